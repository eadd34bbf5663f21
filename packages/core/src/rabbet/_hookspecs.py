"""The Python hooks that a plugin may implement; imported when the first plugin with hooks loads."""

from types import ModuleType
from typing import Any

import pluggy

from . import _C

hookspec = pluggy.HookspecMarker("rabbet")
PREFIX = "rabbet_"


class Specs:
    """Signatures of all hooks. Implementations may take fewer arguments; arguments are only ever added."""

    @hookspec
    def rabbet_register_ops(self, lib: Any) -> None:
        """Register operators and Python kernels; `lib` is rabbet.library."""

    @hookspec
    def rabbet_tensor_attributes(self) -> dict[str, object]:
        """Return descriptors to put on the Tensor type, by name."""
        raise NotImplementedError

    @hookspec
    def rabbet_doctor(self, report: dict[str, Any]) -> None:
        """Add lines to the doctor's report of this plugin."""

    @hookspec
    def rabbet_conformance_params(self, level: str) -> dict[str, Any]:
        """Return parameters for the conformance kit, such as tolerances, for a level ("L1", "L2", ...)."""
        raise NotImplementedError


def _implementations(module: ModuleType) -> Any:
    """An object that holds the module's hooks, marked as implementations."""
    marker = pluggy.HookimplMarker("rabbet")
    holder = type("Hooks", (), {})()
    for name in vars(module):
        if name.startswith(PREFIX) and callable(getattr(module, name)):
            if not hasattr(Specs, name):
                known = ", ".join(n for n in vars(Specs) if n.startswith(PREFIX))
                raise ValueError(f"unknown hook '{name}'; known hooks: {known}")
            setattr(holder, name, marker(getattr(module, name)))
    return holder


class HookManager:
    """Registers plugins one by one: a plugin with a bad hook is refused, the others stay."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager("rabbet")
        self.manager.add_hookspecs(Specs)

    def register_plugin(self, name: str, module: ModuleType) -> None:
        """Validate and register the hooks of one plugin, then apply what it contributes."""
        if self.manager.has_plugin(name):
            return
        hooks = _implementations(module)
        self.manager.register(hooks, name=name)
        try:
            self._apply(hooks)
        except BaseException:
            self.manager.unregister(name=name)
            raise

    def _apply(self, hooks: Any) -> None:
        if hasattr(hooks, "rabbet_tensor_attributes"):
            for attribute, descriptor in hooks.rabbet_tensor_attributes().items():
                setattr(_C.Tensor, attribute, descriptor)
        if hasattr(hooks, "rabbet_register_ops"):
            from . import library

            hooks.rabbet_register_ops(library)
