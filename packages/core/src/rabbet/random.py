"""Seeds and states of the random number generators."""

import contextlib
from collections.abc import Iterator
from typing import Any

from . import _C
from ._random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__all__ = [
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Random numbers that are drawn inside leave the generators as they were.

    Args:
        devices: the devices besides the CPU whose generators to keep; None: those of all loaded backends.
        enabled: False does nothing.
        device_type: what kind of device an index in `devices` means.
    """
    if not enabled:
        yield
        return
    if devices is None:
        places = [
            _C.device(f"{b['name']}:{i}")
            for b in _C.backends()
            if b["name"] not in ("cpu", "meta")
            for i in range(b["devices"])
        ]
    else:
        places = [_C.device(f"{device_type}:{d}" if isinstance(d, int) else d) for d in devices]
    generators = [_C.default_generator(place) for place in (_C.device("cpu"), *places)]
    kept = [(generator, generator.get_state()) for generator in generators]
    try:
        yield
    finally:
        for generator, state in kept:
            generator.set_state(state)


def __getattr__(name: str) -> Any:
    if name == "default_generator":  # made with the backend, which loads when it is first used
        return _C.default_generator("cpu")
    from ._as_torch.names import missing_attribute

    raise missing_attribute(__name__.partition(".")[2], name)
