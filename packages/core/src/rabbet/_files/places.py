"""Where storages were when they were saved, as files call it, and how they get there again."""

import bisect
from collections.abc import Callable
from typing import Any

from .._C import Tensor
from ..storage import TypedStorage, UntypedStorage
from . import SerializationError

Tagger = Callable[[Any], str | None]
Deserializer = Callable[[Any, str], Any]
registry: list[
    tuple[int, Tagger, Deserializer]
] = []  # by priority, as register_package() filled it


def register(priority: int, tagger: Tagger, deserializer: Deserializer) -> None:
    """Add an entry; those of lower priority come first."""
    bisect.insort(registry, (priority, tagger, deserializer), key=lambda entry: entry[0])


def tag(storage: TypedStorage | UntypedStorage) -> str:
    """What files call the place of a storage."""
    for _, tagger, _ in registry:
        location = tagger(storage)
        if location is not None:
            return location
    return str(storage.device)


def restored(memory: Tensor, place: str) -> Tensor:
    """The bytes of a storage, on the device that a file calls `place`."""
    for _, _, deserializer in registry:
        result = deserializer(UntypedStorage(memory), place)
        if result is not None:
            return storage_bytes(result)
    return moved(memory, place)


def moved(t: Tensor, place: str) -> Tensor:
    """A tensor on the device that a file calls `place`.

    Raises:
        SerializationError: if the device is not there.
    """
    if place == "cpu":
        return t
    try:
        return t.to(place)
    except RuntimeError as error:
        raise SerializationError(
            f"load: a tensor was saved on the device {place!r}, which is not available ({error}). If you are running "
            "on a CPU-only machine, please use load with map_location=device('cpu') to map your storages to the CPU."
        ) from None


def storage_bytes(storage: Any) -> Tensor:
    """The memory of a storage that a user's function gave."""
    if isinstance(storage, TypedStorage):
        storage = storage.untyped()
    if not isinstance(storage, UntypedStorage):
        raise TypeError(f"load: expected an UntypedStorage or None, got {type(storage).__name__}")
    return storage._bytes()
