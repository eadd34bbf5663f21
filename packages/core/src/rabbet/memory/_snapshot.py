"""Snapshots: what lies in memory at one point of a program, and what is new at a later one."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import _C
from .._C import Tensor
from ..overrides import DisableTorchFunctionSubclass
from ._find import Found, live_tensors, storage_of
from ._holders import paths_to
from ._recording import origin_of

__all__ = ["LiveStorage", "LiveTensor", "Snapshot", "holders", "holders_of", "snapshot"]


@dataclass(frozen=True)
class LiveTensor:
    """A tensor of a snapshot.

    Attributes:
        kind: the name of its class.
        dtype, shape: as those of the tensor.
        requires_grad: whether it does.
        is_saved: whether a graph keeps it for backward.
    """

    kind: str
    dtype: Any
    shape: tuple[int, ...]
    requires_grad: bool
    is_saved: bool

    def __str__(self) -> str:
        saved = ", saved for backward" if self.is_saved else ""
        return f"{self.kind} {self.dtype.name}{self.shape}{saved}"


@dataclass(eq=False)
class LiveStorage:
    """Memory of a snapshot that one or several tensors share.

    Attributes:
        device: such as "cpu".
        address: of its first byte.
        nbytes: its size.
        tensors: those that were found.
        line: where the program allocated it, if `record` was active then.
        module: the path of the module that ran then, such as "Net.layers.0".
    """

    device: str
    address: int
    nbytes: int
    tensors: list[LiveTensor]
    line: str | None
    module: str | None
    _serial: int | None = field(repr=False, default=None)
    _refs: list[weakref.ref[Tensor]] = field(repr=False, default_factory=list)

    def alive(self) -> list[Tensor]:
        """Its tensors that Python objects still refer to."""
        return [t for ref in self._refs if (t := ref()) is not None]

    def holders(self, limit: int = 3) -> list[str]:
        """The references that keep its tensors alive, as `memory.holders` gives them."""
        return holders_of([self], limit)[0]

    def _is(self, earlier: LiveStorage) -> bool:
        """Whether it is the memory of an earlier snapshot, and not another one at the same address."""
        if self._serial is not None or earlier._serial is not None:
            return self._serial == earlier._serial
        is_held = bool(self._refs) and len(earlier._refs) == len(earlier.tensors)
        return not is_held or bool(earlier.alive())  # C code's references do not tell

    def __str__(self) -> str:
        first = next(iter(self.tensors))
        more = f" and {len(self.tensors) - 1} more" if len(self.tensors) > 1 else ""
        place = "  ".join(p for p in (self.module, self.line) if p and p != "Global")
        return f"{self.nbytes:>14,}  {self.device:<7} {first}{more}  {place}".rstrip()


class Snapshot:
    """The live storages at one point of a program; `print` it.

    It holds no tensors.

    Attributes:
        storages: the memory that was found, largest first.
        counted: bytes of all tensors by backend, as core counts them.
    """

    def __init__(self, storages: Iterable[LiveStorage], counted: dict[str, int]) -> None:
        self.storages = sorted(storages, key=lambda s: -s.nbytes)
        self.counted = counted

    @property
    def nbytes(self) -> int:
        """Bytes of all storages that were found."""
        return sum(s.nbytes for s in self.storages)

    @property
    def unseen(self) -> int:
        """Bytes that core counts and that were not found: only C code refers to them."""
        return max(sum(self.counted.values()) - self.nbytes, 0)

    def since(self, earlier: Snapshot) -> Snapshot:
        """The storages that `earlier` does not have.

        Memory that was freed and given again to a tensor of the same size is told apart by the former tensors, which are
        gone, or by what `record` noted. Without a recording that fails for gradients and for what graphs keep.

        Raises:
            TypeError: if `earlier` is not a Snapshot.
        """
        if not isinstance(earlier, Snapshot):
            raise TypeError(f"Snapshot.since: expected a Snapshot, got {type(earlier).__name__}")
        before = {(s.device, s.address, s.nbytes): s for s in earlier.storages}
        new = []
        for storage in self.storages:
            known = before.get((storage.device, storage.address, storage.nbytes))
            if known is None or not storage._is(known):
                new.append(storage)
        counted = {
            name: max(count - earlier.counted.get(name, 0), 0)
            for name, count in self.counted.items()
        }
        return Snapshot(new, counted)

    def text(self, limit: int = 20) -> str:
        """The largest `limit` storages as text."""
        lines = [f"{len(self.storages)} storages with {self.nbytes:,} bytes"]
        if self.unseen:
            lines[0] += f"; {self.unseen:,} more bytes are held by C code only"
        lines += map(str, self.storages[:limit])
        if len(self.storages) > limit:
            rest = sum(s.nbytes for s in self.storages[limit:])
            lines.append(f"{rest:>14,}  in {len(self.storages) - limit} more")
        return "\n".join(lines)

    __str__ = text


def _describe(found: Found) -> LiveTensor:
    t = found.tensor
    return LiveTensor(
        type(t).__name__,
        t.dtype,
        tuple(Tensor.size(t)),
        bool(t.requires_grad),
        found.is_saved,
    )


def snapshot(device: Any = None) -> Snapshot:
    """All memory of tensors that the program refers to, on all devices.

    It finds tensors of variables, containers and objects, their gradients, and what graphs keep for backward. Lines and
    modules are those that `record` noted. It looks at all objects of the process: some 0.1 s in a large program.

    Args:
        device: only of this device, such as "cpu:0", or of a type of devices, such as "cpu"; None: of all.

    Raises:
        RuntimeError: if `device` is not the name of a device.

    Example:
        >>> before = memory.snapshot()
        >>> step()
        >>> print(memory.snapshot().since(before))
    """
    wanted = None if device is None else _C.device(device)
    with DisableTorchFunctionSubclass():  # classes that replace attributes are not asked
        storages = _storages(wanted)
    counted = {name: c["bytes"] for name, c in _C.live_by_backend().items()}
    if wanted is not None:
        counted = {name: count for name, count in counted.items() if name == wanted.type}
    return Snapshot(storages, counted)


def _storages(wanted: Any) -> list[LiveStorage]:
    storages: dict[tuple[str, int], LiveStorage] = {}
    for found in live_tensors():
        place = storage_of(found.tensor)
        if place is None:
            continue
        name, address, nbytes = place
        at = found.tensor.device
        if wanted is not None and (at.type != wanted.type or wanted.index not in (None, at.index)):
            continue
        entry = storages.get((name, address))
        if entry is None:
            origin = origin_of(name, address)
            line, module, serial = origin if origin is not None else (None, None, None)
            entry = LiveStorage(name, address, nbytes, [], line, module, serial)
            storages[name, address] = entry
        entry.tensors.append(_describe(found))
        if found.is_held:
            entry._refs.append(weakref.ref(found.tensor))
    return list(storages.values())


def holders_of(storages: list[LiveStorage], limit: int) -> list[list[str]]:
    """The references that keep each of the storages alive, from one search for all of them."""
    tensors = [storage.alive() for storage in storages]
    paths = iter(paths_to([t for group in tensors for t in group], limit, tensors))
    found = []
    for storage, group in zip(storages, tensors, strict=True):
        texts = [path for _ in group for path in next(paths)]
        if not texts and any(t.is_saved for t in storage.tensors):
            texts = ["a graph that waits for backward"]
        found.append(list(dict.fromkeys(texts))[:limit])
    return found


def holders(tensor: Any, limit: int = 3) -> list[str]:
    """The references that keep an object alive: paths from variables, modules and tracebacks to it.

    Args:
        tensor: a tensor, or any other object.
        limit: how many paths.

    Returns:
        Texts such as "__main__.net.layers[0]" or "local 'loss' of step (train.py:12)".

    Raises:
        ValueError: if `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"memory.holders: limit must be at least 1, got {limit}")
    return paths_to([tensor], limit)[0]
