"""What a checkpoint keeps of the world around a forward pass: its arguments, random states, autocast."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rabbet import _C, Tensor
from rabbet.autograd import no_grad
from rabbet.autograd.graph import active_hooks


class SavedTensor:
    """A tensor that waits for backward, as an operator would save it: packed by the thread's hooks."""

    def __init__(self, tensor: Tensor) -> None:
        self._requires_grad = tensor.requires_grad
        self._unpack: Callable[[Any], Tensor] | None = None
        self._value: Any = tensor
        self._version = 0
        hooks = active_hooks()
        if hooks is not None:
            pack, self._unpack = hooks
            with no_grad():
                self._value = pack(tensor)
        elif not tensor.is_inference():
            self._version = tensor._version

    def load(self) -> Tensor:
        """The tensor as a leaf.

        Raises:
            RuntimeError: if it was written since.
        """
        if self._unpack is not None:
            value = self._unpack(self._value)
        else:
            value = self._value
            if not value.is_inference() and value._version != self._version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace "
                    f"operation: checkpoint saved an argument at version {self._version}, it is at version "
                    f"{value._version} now"
                )
        return value.detach().requires_grad_(self._requires_grad)


class SavedCall:
    """Arguments of a call; those that are tensors are saved as an operator saves its own."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args = tuple(map(self._save, args))
        self._kwargs = {name: self._save(value) for name, value in kwargs.items()}

    @staticmethod
    def _save(value: Any) -> Any:
        return SavedTensor(value) if isinstance(value, Tensor) else value

    @staticmethod
    def _load(value: Any) -> Any:
        return value.load() if isinstance(value, SavedTensor) else value

    def load(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments; what hooks of the time packed is unpacked by them."""
        args = [self._load(value) for value in self._args]
        return args, {name: self._load(value) for name, value in self._kwargs.items()}


def _generators() -> list[Any]:
    """The default generators of the CPU and of all devices of the loaded backends."""
    places = [
        f"{backend['name']}:{index}"
        for backend in _C.backends()
        if backend["name"] not in ("cpu", "meta")
        for index in range(backend["devices"])
    ]
    return [_C.default_generator(place) for place in ("cpu", *places)]


def _autocast_regions() -> list[tuple[str, dict[str, Any]]]:
    """Arguments of the autocast regions that set what the thread has now."""
    amp = sys.modules.get("rabbet.amp")  # not imported: it is off
    if amp is None:
        return []
    cached = amp.is_autocast_cache_enabled()
    names = ["cpu", *(b["name"] for b in _C.backends() if b["name"] not in ("cpu", "meta"))]
    return [
        (
            name,
            {
                "enabled": amp.is_autocast_enabled(name),
                "dtype": amp.get_autocast_dtype(name),
                "cache_enabled": cached,
            },
        )
        for name in names
        if amp.is_autocast_available(name)
    ]


class Surroundings:
    """Random states and autocast as they are now; `restored()` brings them back for a while."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self._states = [(g, g.get_state()) for g in _generators()] if preserve_rng_state else []
        self._regions = _autocast_regions()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Code inside draws the same random numbers and casts as at the time of the constructor."""
        before = [(generator, generator.get_state()) for generator, _ in self._states]
        for generator, state in self._states:
            generator.set_state(state)
        try:
            if self._regions:
                with contextlib.ExitStack() as stack:
                    for device_type, settings in self._regions:
                        region = sys.modules["rabbet.amp"].autocast(device_type, **settings)
                        stack.enter_context(region)
                    yield
            else:
                yield
        finally:
            for generator, state in before:
                generator.set_state(state)
