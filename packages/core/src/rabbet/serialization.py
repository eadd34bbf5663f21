"""save() and load(): checkpoints as safetensors files (https://huggingface.co/docs/safetensors).

A dict of separate tensors is an ordinary safetensors file. Anything else (nested dicts, lists, numbers, strings,
parameters, tensors that share memory) is stored as such a file whose metadata holds a skeleton: the structure with
tensors replaced by names. A composite tensor is stored as its parts, with what its layer needs to make it again.
Nothing in a file is ever executed. Checksums in the metadata find damage.
"""

import contextlib
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import _C
from ._C import Tensor
from ._files import SerializationError, header, memory, reading, replacing, structure
from ._files.memory import tensor_bytes as tensor_bytes

__all__ = [
    "SerializationError",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]


def _rebuild_tensor(
    data: bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool, cls: type
) -> Tensor:
    """What a pickle of a tensor calls."""
    made = (
        _C.from_buffer(bytearray(data), getattr(_C, dtype), list(shape))
        if data
        else _C.op("empty")(shape, dtype=getattr(_C, dtype))
    )
    if cls is not Tensor:
        return Tensor._make_subclass(cls, made, requires_grad)
    if requires_grad:
        made.requires_grad = True
    return made


# ---- classes of tensors


def add_safe_globals(safe_globals: Sequence[type]) -> None:
    """Let save() and load() take tensors of these classes, beside `Tensor`, `Parameter` and `Buffer`."""
    for cls in safe_globals:
        if not isinstance(cls, type):
            raise TypeError(f"add_safe_globals: expected classes, got {type(cls).__name__}")
        structure.known_classes()[structure.name_of_class(cls)] = cls


def get_safe_globals() -> list[type]:
    """The classes that `add_safe_globals` was given."""
    return list(structure.known_classes().values())


def clear_safe_globals() -> None:
    """Forget all classes that `add_safe_globals` was given."""
    structure.known_classes().clear()


@contextlib.contextmanager
def safe_globals(classes: Sequence[type]) -> Iterator[None]:
    """Let save() and load() take tensors of these classes within a `with` block."""
    before = get_safe_globals()
    add_safe_globals(classes)
    try:
        yield
    finally:
        clear_safe_globals()
        add_safe_globals(before)


# ---- files


def _write(file: Any, skeleton: str | None, tensors: dict[str, Tensor]) -> None:
    """Write a file that can seek: the header again at the end, when the checksums are known."""
    entries = header.layout(tensors)
    sums = dict.fromkeys(entries, 0)
    file.write(header.encode(entries, skeleton, sums.values()))
    for name in sorted(entries, key=lambda name: entries[name].begin):
        for piece in memory.snapshot(tensors[name]):
            sums[name] = zlib.crc32(piece, sums[name])
            file.write(piece)
    file.seek(0)
    file.write(header.encode(entries, skeleton, sums.values()))


def _write_to_stream(f: Any, data: bytes) -> None:
    """Write all of it, also to a file that takes less at once."""
    view = memoryview(data)
    while len(view):
        taken = f.write(view)
        if not isinstance(taken, int):
            return
        view = view[taken:]


def save(obj: Any, f: Any) -> None:
    """Write `obj` (tensors, numbers, strings, nested dicts, lists and tuples) to a path or binary file.

    A path is replaced at once and only when everything is written: a crash leaves the old file, and several threads
    or processes may save to it. A symbolic link is followed; the mode of an existing file is kept. A file object gets
    everything in one piece, which is made in memory first.

    Views of one storage that overlap share memory when they are loaded; other tensors are stored row by row without
    what else their storage holds. `Parameter` and `requires_grad` are kept, gradients are not.

    Raises:
        SerializationError: for a value of another type, naming where it stands.
    """
    skeleton, tensors = structure.pack(obj)
    if hasattr(f, "write"):
        buffer = io.BytesIO()
        _write(buffer, skeleton, tensors)
        return _write_to_stream(f, buffer.getvalue())
    path = reading.checked_path("save", f)
    if replacing.is_special(path):
        with open(path, "wb") as stream:
            return save(obj, stream)
    with replacing.replacing(path) as file:
        _write(file, skeleton, tensors)


def _mover(map_location: Any) -> Callable[[Tensor], Tensor]:
    if map_location is None:
        return lambda t: t
    if callable(map_location):
        return lambda t: _moved(map_location(t, str(t.device)), t)
    if isinstance(map_location, dict):
        return lambda t: t.to(map_location.get(str(t.device), t.device))
    return lambda t: t.to(map_location)


def _moved(result: Any, t: Tensor) -> Tensor:
    if result is not None and not isinstance(result, Tensor):
        raise TypeError(
            f"load: map_location must return a Tensor or None, got {type(result).__name__}"
        )
    return t if result is None else result


def load(
    f: Any,
    map_location: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
    verify: bool = True,
) -> Any:
    """Read what save() wrote, or any safetensors file (as a dict), from a path or binary file.

    Args:
        map_location: a device, a dict of devices, or a function of (tensor, device name).
        weights_only: accepted for compatibility; files never hold code.
        mmap: map the file instead of reading it: memory is used for what is touched. The file must stay as it is
            while its tensors live: overwriting it in place changes their values, and truncating it ends the process
            with SIGBUS at the next access. save() is safe, as it leaves the mapped file alone. What is written to the
            tensors stays in memory.
        verify: compare the checksums that save() stored. With `mmap` this reads the whole file once.

    Raises:
        SerializationError: for a corrupt or truncated file, saying what is wrong.
        FileNotFoundError: if there is no such file.
    """
    tensors, found, name = reading.read(f, mapped=bool(mmap), verify=verify)
    move = _mover(map_location)
    tensors = {key: move(t) for key, t in tensors.items()}
    if header.SKELETON not in found.metadata:
        return tensors
    return structure.unpack(found.metadata[header.SKELETON], tensors, name)
