"""save() and load(): checkpoints as safetensors files (https://huggingface.co/docs/safetensors) or PyTorch's files.

A dict of separate tensors is an ordinary safetensors file. Anything else (nested dicts, lists, numbers, strings,
parameters, tensors that share memory) is stored as such a file whose metadata holds a skeleton: the structure with
tensors replaced by names. A composite tensor is stored as its parts, with what its layer needs to make it again.
Checksums in the metadata find damage. `format="pt"` writes what PyTorch's `load` takes.

Nothing in a file is executed unless the caller says `weights_only=False`: not in a safetensors file, and not in
PyTorch's, whose pickles are read by a machine of our own over a list of allowed names. With `weights_only=False`
Python's pickle reads them, and whatever they name is imported and called.
"""

import contextlib
import enum
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from . import _C
from ._C import Tensor
from ._files import (
    SerializationError,
    forms,
    header,
    memory,
    places,
    reading,
    replacing,
    safe,
    structure,
)
from ._files.memory import skipping
from ._files.memory import tensor_bytes as tensor_bytes
from ._files.unpickling import UnpicklingError
from .storage import TypedStorage, UntypedStorage
from .types import FileLike as FileLike

__all__ = [
    "DEFAULT_PROTOCOL",
    "FileLike",
    "LoadEndianness",
    "MAP_LOCATION",
    "SerializationError",
    "SourceChangeWarning",
    "UnpicklingError",
    "add_safe_globals",
    "clear_safe_globals",
    "default_restore_location",
    "get_default_load_endianness",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "location_tag",
    "register_package",
    "safe_globals",
    "save",
    "set_default_load_endianness",
    "skip_data",
]

DEFAULT_PROTOCOL = 2  # of the pickles in PyTorch's files

# What `load` takes as map_location, for annotations.
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | _C.device | str | dict[str, str] | None

_FORMATS = ("pt", "safetensors")
_ENDINGS = {".pt": "pt", ".pth": "pt", ".safetensors": "safetensors"}


def _rebuild_tensor(
    data: bytes,
    dtype: str,
    shape: tuple[int, ...],
    requires_grad: bool,
    cls: type,
    device: str = "cpu",
) -> Tensor:
    """What a pickle of a tensor calls; pickles of tensors of the CPU do not name the device."""
    made = (
        _C.from_buffer(bytearray(data), getattr(_C, dtype), list(shape))
        if data
        else _C.op("empty")(shape, dtype=getattr(_C, dtype))
    )
    if device != "cpu":
        made = made.to(device)
    if cls is not Tensor:
        return Tensor._make_subclass(cls, made, requires_grad)
    if requires_grad:
        made.requires_grad = True
    return made


# ---- classes and functions that files may name


def add_safe_globals(safe_globals: Sequence[Any]) -> None:
    """Let files name these classes and functions: `load` calls them with what stands in the file.

    Args:
        safe_globals: classes, functions, or pairs of one and its name in files, such as `(Config, "project.Config")`.
            A class of tensors joins `Tensor`, `Parameter` and `Buffer` in all files, other ones those of PyTorch.
    """
    safe.declare(safe_globals)


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return safe.declared()


def clear_safe_globals() -> None:
    """Forget all that `add_safe_globals` was given."""
    safe.replace([])


@contextlib.contextmanager
def safe_globals(safe_globals: Sequence[Any]) -> Iterator[None]:
    """Let files name these classes and functions within a `with` block."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        safe.replace(before)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file of PyTorch's that `load` would refuse; nothing is made of them.

    Raises:
        ValueError: if `f` is in no zip form of PyTorch's.
    """
    from ._files import torch_file

    with reading.opened(f, mapped=False) as (file, name):
        if forms.form_of(reading.beginning(file, forms.PEEK), name) != "zip":
            raise ValueError(
                f"get_unsafe_globals_in_checkpoint: {name} is in no zip form of PyTorch's"
            )
        return torch_file.refused_names(file, name)


class SourceChangeWarning(Warning):
    """PyTorch's warning that a Module's source has changed; rabbet compares no sources."""


class LoadEndianness(enum.Enum):
    """The byte order of a file that does not say its own."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_load_endianness: LoadEndianness | None = None


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order of PyTorch's files that do not say theirs; None: little."""
    return _load_endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order of PyTorch's files that do not say theirs."""
    global _load_endianness
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _load_endianness = endianness


def _default_order() -> str:
    if _load_endianness is LoadEndianness.NATIVE:
        return sys.byteorder
    return "big" if _load_endianness is LoadEndianness.BIG else "little"


class skip_data:
    """A `with` block in which save() and load() leave out the bytes of storages.

    save() writes PyTorch's zip form with zeros in the place of the bytes; load() gives tensors whose elements are not
    set. Values that are written in another form, or read from one, are whole.

    Args:
        materialize_fake_tensors: accepted for PyTorch's sake; rabbet writes no fake tensors.
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(skipping.active)
        skipping.active = True

    def __exit__(self, *exc: object) -> None:
        skipping.active = self._before.pop()


# ---- writing


def _write_safetensors(file: Any, skeleton: str | None, tensors: dict[str, Tensor]) -> None:
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


def _chosen_format(f: Any, format: str | None) -> str | None:
    """The format of a file; None: safetensors if it carries the value, else PyTorch's."""
    if format is not None:
        if format not in _FORMATS:
            raise ValueError(
                f"save: expected `format` to be one of {', '.join(_FORMATS)}, got {format!r}"
            )
        return format
    if not hasattr(f, "write"):
        ending = os.path.splitext(reading.checked_path("save", f))[1].lower()
        if ending in _ENDINGS:
            return _ENDINGS[ending]
    from ._as_torch.names import is_active

    return "pt" if is_active() else None


class _Form(NamedTuple):
    """How save() writes a value."""

    format: str | None
    zipped: bool
    pickle_module: Any
    protocol: int


def _writer(obj: Any, form: _Form) -> Callable[[Any], None]:
    """What writes `obj` to a file that can seek; all of it that can be refused was checked."""
    is_usual = form.pickle_module is None and form.protocol == DEFAULT_PROTOCOL
    if form.format != "pt" and (is_usual or form.format == "safetensors"):
        try:
            packed = structure.pack(obj)
            return lambda file: _write_safetensors(file, *packed)
        except structure.NotCarried:
            if form.format is not None:
                raise
    from ._files import torch_file

    data, storages = torch_file.pack(obj, not form.zipped, form.pickle_module, form.protocol)
    write = torch_file.write_zip if form.zipped else torch_file.write_legacy
    return lambda file: write(file, data, storages)


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    *,
    format: str | None = None,
) -> None:
    """Write `obj` (tensors, values of Python, objects of any class that pickle takes) to a path or binary file.

    A path is replaced at once and only when everything is written: a crash leaves the old file, and several threads
    or processes may save to it. A symbolic link is followed; the mode of an existing file is kept. A file object gets
    everything in one piece, which is made in memory first.

    Args:
        pickle_module: whose `Pickler` writes objects of any class; None: Python's `pickle`.
        pickle_protocol: of PyTorch's files, 1 to 5; every PyTorch reads 2.
        format: "safetensors": tensors that share memory and overlap are views of one entry, others are stored row by
            row without what else their storage holds. "pt": what PyTorch's `load` takes, with whole storages and
            strides. None: by the path, .pt and .pth are "pt"; else "pt" for what safetensors cannot carry (sets,
            NumPy arrays, Modules, ...) and wherever `torch` means rabbet.

    `Parameter` and `requires_grad` are kept, gradients are not. What `load` makes with `weights_only=True` is written
    so that it does; objects of other classes, whole Modules among them, need `weights_only=False` to be loaded.

    Raises:
        SerializationError: for a value that no file can hold, naming where it stands.
        pickle.PicklingError: for an object that pickle refuses.

    Example:
        >>> rabbet.save({"weight": rabbet.ones(2)}, "weights.pt")
    """
    _check_pickle("save", pickle_module, "Pickler")
    if type(pickle_protocol) is not int or not 1 <= pickle_protocol <= 5:
        raise ValueError(f"save: expected `pickle_protocol` from 1 to 5, got {pickle_protocol!r}")
    form = _Form(
        _chosen_format(f, format), _use_new_zipfile_serialization, pickle_module, pickle_protocol
    )
    return _save(_writer(obj, form), f)


def _save(write: Callable[[Any], None], f: Any) -> None:
    if hasattr(f, "write"):
        buffer = io.BytesIO()
        write(buffer)
        return _write_to_stream(f, buffer.getvalue())
    path = reading.checked_path("save", f)
    if replacing.is_special(path):
        with open(path, "wb") as stream:
            return _save(write, stream)
    with replacing.replacing(path) as file:
        write(file)
    return None


def _check_pickle(function: str, module: Any, needed: str) -> None:
    if module is not None and not callable(getattr(module, needed, None)):
        name = getattr(module, "__name__", type(module).__name__)
        raise TypeError(
            f"{function}: expected `pickle_module` to be a module like Python's pickle, with a class {needed}, "
            f"got {name}"
        )


# ---- reading


def restorer(map_location: Any, wrap: Callable[[Tensor], Any]) -> Callable[[Tensor, str], Tensor]:
    """What moves memory that was saved on a device of this name.

    Args:
        wrap: what a function as map_location gets.
    """
    restored = places.restored if wrap is UntypedStorage else places.moved
    if map_location is None:
        return restored
    if callable(map_location) and not isinstance(map_location, _C.device):
        return lambda t, place: _placed(map_location(wrap(t), place), t, place, restored)
    if isinstance(map_location, dict):
        return lambda t, place: restored(t, str(map_location.get(place, place)))
    if not isinstance(map_location, (str, _C.device)):
        raise TypeError(
            "load: expected `map_location` to be a device, a dict, a function or None, got "
            f"{type(map_location).__name__}"
        )
    return lambda t, place: t.to(map_location)


def register_package(
    priority: int,
    tagger: Callable[[Any], str | None],
    deserializer: Callable[[Any, str], Any],
) -> None:
    """Say how storages of a device of one's own are named in files, and where they go when they are loaded.

    Args:
        priority: entries of lower numbers are asked first, and all of them before rabbet's own devices.
        tagger: returns the name of a storage's place in files, or None if the storage is none of its own.
        deserializer: called with a storage in the CPU's memory and the name of its place; returns the storage where
            it belongs, or None if the name is none of its own.

    Raises:
        TypeError: if `priority` is no int, or one of the functions cannot be called.
    """
    if not isinstance(priority, int):
        raise TypeError(
            f"register_package: expected `priority` to be an int, got {type(priority).__name__}"
        )
    for name, function in (("tagger", tagger), ("deserializer", deserializer)):
        if not callable(function):
            raise TypeError(
                f"register_package: expected `{name}` to be callable, got {type(function).__name__}"
            )
    places.register(priority, tagger, deserializer)


def location_tag(storage: UntypedStorage | TypedStorage) -> str:
    """What files call the place of a storage."""
    return places.tag(storage)


def default_restore_location(storage: UntypedStorage, location: str) -> UntypedStorage:
    """A storage on the device that a file calls so, for functions as map_location.

    Raises:
        SerializationError: if the device is not there.
    """
    return UntypedStorage(places.restored(storage._bytes(), location))


def _placed(
    result: Any, t: Tensor, place: str, restored: Callable[[Tensor, str], Tensor]
) -> Tensor:
    """What a function as map_location gave; None: the usual place."""
    if result is None:
        return restored(t, place)
    if isinstance(result, (UntypedStorage, TypedStorage)):
        return places.storage_bytes(result)
    if not isinstance(result, Tensor) or restored is places.restored:
        expected = "UntypedStorage" if restored is places.restored else "Tensor"
        raise TypeError(
            f"load: map_location must return a {expected} or None, got {type(result).__name__}"
        )
    return result


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    verify: bool = True,
    encoding: str = "utf-8",
) -> Any:
    """Read what save() wrote, any safetensors file (as a dict), or a file of PyTorch's, from a path or binary file.

    Args:
        map_location: a device, a dict of devices, or a function of a storage (of a tensor, where the file is in the
            safetensors form) and its device's name that gives one, or None for the usual place.
        pickle_module: whose `Unpickler` reads a file of PyTorch's; only without `weights_only`.
        weights_only: True executes nothing in a file: classes and functions of yours that PyTorch's files name need
            `add_safe_globals`. False lets Python's pickle read such a file, which imports and calls whatever it
            names, as anybody who wrote the file wants: only for files that you trust. None: True, unless
            `pickle_module` is given.
        mmap: map the file instead of reading it: memory is used for what is touched. The file must stay as it is
            while its tensors live: overwriting it in place changes their values, and truncating it ends the process
            with SIGBUS at the next access. save() is safe, as it leaves the mapped file alone. What is written to the
            tensors stays in memory.
        verify: compare the checksums in the file. With `mmap` this reads the whole file once.
        encoding: of the byte strings in files of Python 2; "bytes" leaves them as they are.

    Raises:
        SerializationError: for a corrupt or truncated file, saying what is wrong.
        UnpicklingError: a SerializationError, for what a file of PyTorch's may not hold, by name.
        FileNotFoundError: if there is no such file.

    Example:
        >>> rabbet.load("weights.pt")["weight"]
        tensor([1., 1.])
    """
    if weights_only not in (None, True, False):
        raise TypeError(
            f"load: expected `weights_only` to be a bool or None, got {type(weights_only).__name__}"
        )
    if weights_only is None:
        weights_only = pickle_module is None
    if pickle_module is not None and weights_only:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    _check_pickle("load", pickle_module, "Unpickler")
    with reading.opened(f, mapped=bool(mmap)) as (file, name):
        form = forms.form_of(reading.beginning(file, forms.PEEK), name)
        if form is not None:
            from ._files import torch_file

            restore = restorer(map_location, UntypedStorage)
            return torch_file.read(file, form, torch_file.Request(
                name, restore, bool(mmap), verify, weights_only, encoding, _default_order(), pickle_module
            ))  # fmt: skip
        tensors, found = reading.read(file, name, mapped=bool(mmap), verify=verify)
    move = restorer(map_location, lambda t: t)
    tensors = {key: move(t, "cpu") for key, t in tensors.items()}
    if header.SKELETON not in found.metadata:
        return tensors
    return structure.unpack(found.metadata[header.SKELETON], tensors, name)
