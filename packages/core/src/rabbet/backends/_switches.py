"""Modules of switches. What is set is published by name for backends, which read it by `rabbet/settings.h`."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .. import _C

_PRECISIONS = {"none": -1, "ieee": 0, "tf32": 1, "bf16": 2}


def no() -> bool:
    return False


def publish(name: str, value: Any) -> None:
    """Let backends see a switch: a bool, an int, or a precision of float32."""
    if isinstance(value, (bool, int)):
        _C.set_setting(name, int(value))
    elif isinstance(value, str) and value in _PRECISIONS:
        _C.set_setting(name, _PRECISIONS[value])


class Group:
    """Switches under a common name, `NAME.SWITCH` for backends. Other attributes cannot be set."""

    _name: str

    def __init__(self, name: str, **switches: Any) -> None:
        vars(self).update(switches, _name=name)

    def __setattr__(self, switch: str, value: Any) -> None:
        if switch.startswith("_") or switch not in vars(self):
            raise AttributeError(f"Unknown attribute {switch}")
        vars(self)[switch] = value
        publish(f"{self._name}.{switch}", value)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k != "_name")
        return f"{self._name}({shown})"


class Switches(ModuleType):
    """A library's switches, `rabbet.backends.NAME`; `is_available()` is False unless it says otherwise."""

    def __init__(self, name: str, **switches: Any) -> None:
        super().__init__(f"rabbet.backends.{name}", f"The switches of {name}.")
        self.is_available: Callable[[], bool] = no
        vars(self).update(switches)
        vars(self)["_names"] = {n for n, value in switches.items() if not callable(value)}
        vars(self)["_label"] = name
        sys.modules[self.__name__] = self

    def __setattr__(self, switch: str, value: Any) -> None:
        super().__setattr__(switch, value)
        if switch in vars(self).get("_names", ()):
            publish(f"{vars(self)['_label']}.{switch}", value)

    @contextlib.contextmanager
    def flags(self, **values: Any) -> Iterator[None]:
        """Set switches for a while."""
        unknown = sorted(set(values) - vars(self)["_names"])
        if unknown:
            raise TypeError(f"{self.__name__}.flags: there is no switch {unknown[0]!r}")
        before = {name: getattr(self, name) for name in values}
        for name, value in values.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
