"""Random numbers of CUDA devices. Without a device seeds are taken and do nothing, as in PyTorch."""

from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from . import _devices

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def _generators() -> list[_C.Generator]:
    return [_C.default_generator(f"cuda:{i}") for i in range(_devices.count())]


def _current_generator() -> list[_C.Generator]:
    return _generators()[_C.current_device("cuda") :][:1]


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    for generator in _current_generator():
        generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in _generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a number from the operating system."""
    for generator in _current_generator():
        generator.seed()


def seed_all() -> None:
    """Seed the generators of all devices with one number from the operating system."""
    generators = _generators()
    for generator in generators:
        generator.manual_seed(generators[0].seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _C.default_generator(_devices.checked("initial_seed")).initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a device's generator."""
    return _C.default_generator(_devices.checked("get_rng_state", device)).get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Set the state of a device's generator."""
    _C.default_generator(_devices.checked("set_rng_state", device)).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in _generators()]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of all devices' generators."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
