"""The Python hooks that a plugin may implement; imported when the first plugin with hooks loads.

docs/reference/hooks.md describes them for authors of plugins.
"""

import inspect
import json
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pluggy

from . import _C, _overriding, _registrations
from ._discovery import Plugin
from ._layer_attributes import ABSENT, OF_OTHER_LAYOUTS, LayerAttribute
from ._lazy_attributes import LazyAttribute

hookspec = pluggy.HookspecMarker("rabbet")
PREFIX = "rabbet_"


class PluginReport:
    """What a plugin may add to the doctor's report of itself, and what it may read there.

    name, stage: the plugin's.
    """

    def __init__(self, name: str, stage: str) -> None:
        self.name, self.stage = name, stage
        self._lines: list[str] = []
        self._details: dict[str, Any] = {}

    def add(self, text: str) -> None:
        """Add a line of text.

        Raises:
            TypeError: if it is no str.
        """
        if not isinstance(text, str):
            raise TypeError(f"report.add: expected a str, got {_described(text)}")
        self._lines.append(text)

    def put(self, key: str, value: Any) -> None:
        """Add a value to the JSON form, under the plugin's `details`.

        Raises:
            TypeError: if the key is no str, or JSON cannot hold the value.
        """
        if not isinstance(key, str):
            raise TypeError(f"report.put: expected a str as key, got {_described(key)}")
        json.dumps(value)
        self._details[key] = value


class Specs:
    """Signatures of all hooks. Implementations may take fewer arguments; arguments are only ever added."""

    @hookspec
    def rabbet_register_ops(self, lib: ModuleType) -> None:
        """Register operators, kernels and rules; `lib` is rabbet.library."""

    @hookspec
    def rabbet_tensor_attributes(self) -> dict[str, object]:
        """Return descriptors to put on the Tensor type, by name: "LAYER.NAME" for composites of that layer alone."""
        raise NotImplementedError

    @hookspec
    def rabbet_doctor(self, report: PluginReport) -> None:
        """Add to what the doctor says about this plugin."""

    @hookspec
    def rabbet_conformance_params(self, level: str) -> dict[str, Any]:
        """Return parameters for the conformance kit, such as tolerances, for a level ("L1", "L2", ...)."""
        raise NotImplementedError


NAMES = tuple(name for name in vars(Specs) if name.startswith(PREFIX))
_RETURNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "rabbet_register_ops": ("None", lambda value: value is None),
    "rabbet_doctor": ("None", lambda value: value is None),
    "rabbet_tensor_attributes": (
        "a dict of descriptors by name",
        lambda value: isinstance(value, dict) and all(_is_name(key) for key in value),
    ),
    "rabbet_conformance_params": (
        "a dict with str keys",
        lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value),
    ),
}


def _is_name(key: object) -> bool:
    parts = key.split(".") if isinstance(key, str) else []
    return len(parts) in (1, 2) and all(part.isidentifier() for part in parts)


def _described(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 80 else text[:77] + '...'}"


def _implementations(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The module's hooks by name; names that begin like one are taken for one."""
    found: dict[str, Callable[..., Any]] = {}
    for name, value in vars(module).items():
        if not name.startswith(PREFIX) or isinstance(value, ModuleType):
            continue
        if name not in NAMES:
            raise _C.PluginError(f"unknown hook '{name}'; known hooks: {', '.join(NAMES)}")
        if not inspect.isfunction(value):
            raise _C.PluginError(f"hook '{name}' must be a function, got {_described(value)}")
        found[name] = value
    return found


def _holder(found: dict[str, Callable[..., Any]]) -> Any:
    """An object that holds the hooks, marked as implementations."""
    marker = pluggy.HookimplMarker("rabbet")
    holder = type("Hooks", (), {})()
    for name, function in found.items():
        setattr(holder, name, marker(function))
    return holder


class HookManager:
    """Registers plugins one by one: a plugin with a bad hook is refused, the others stay.

    library: returns rabbet.library, which hooks register operators with.
    """

    def __init__(self, library: Callable[[], ModuleType]) -> None:
        self._library = library
        self.manager = pluggy.PluginManager("rabbet")
        self.manager.add_hookspecs(Specs)
        self.attributes: dict[str, Plugin] = {}  # who put what on Tensor
        self.of_layers: dict[str, LayerAttribute] = {}  # what is there for the composites of layers

    def check(self, plugin: Plugin, module: ModuleType) -> None:
        """Raise a PluginError if the module's hooks do not fit the specs or the manifest; nothing is called."""
        found = _implementations(module)
        if plugin.manifest.get("attributes") and "rabbet_tensor_attributes" not in found:
            raise _C.PluginError(
                f"the manifest lists attributes, but '{module.__name__}' has no hook 'rabbet_tensor_attributes'"
            )
        if plugin.manifest.get("hooks") and not found:
            raise _C.PluginError(
                f"the manifest says that there are hooks, but '{module.__name__}' has none of {', '.join(NAMES)}"
            )
        self._alone(plugin, found)

    def _alone(self, plugin: Plugin, found: dict[str, Callable[..., Any]]) -> pluggy.PluginManager:
        """A manager of one plugin; raises a PluginError if its hooks do not fit the specs."""
        alone = pluggy.PluginManager("rabbet")
        alone.add_hookspecs(Specs)
        try:
            alone.register(_holder(found), name=plugin.name)
            return alone
        except pluggy.PluginValidationError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            name = next((n for n in found if f"'{n}'" in str(error)), "?")
            raise _C.PluginError(
                f"hook '{name}' of plugin '{plugin.name}' takes {inspect.signature(found[name])}, "
                f"the hook is {name}{self._signature(name)}: {lines[-1]}"
            ) from error

    def register_plugin(self, plugin: Plugin, module: ModuleType) -> None:
        """Register the hooks of one plugin and apply what it contributes; takes all back if that fails."""
        if self.manager.has_plugin(plugin.name):
            return
        self.manager.register(_holder(_implementations(module)), name=plugin.name)
        undo: list[Callable[[], Any]] = []
        try:
            with _registrations.recording(undo):
                self._put_attributes(plugin, undo)
                self.call(plugin, "rabbet_register_ops", lib=self._library())
        except BaseException:
            for step in reversed(undo):
                step()
            self.manager.unregister(name=plugin.name)
            raise

    def implemented(self, name: str) -> list[str]:
        """The hooks that a registered plugin has."""
        holder = self.manager.get_plugin(name)
        return [hook for hook in NAMES if hasattr(holder, hook)]

    def call(self, plugin: Plugin, hook: str, **arguments: Any) -> Any:
        """Call a hook of one plugin and check what it returns; None if it has none.

        Raises:
            PluginError: naming plugin and hook.
        """
        if hook not in self.implemented(plugin.name):
            return None
        others = [p for n, p in self.manager.list_name_plugin() if n != plugin.name and p]
        return self._result(plugin, self.manager.subset_hook_caller(hook, others), arguments)

    def ask(self, plugin: Plugin, module: ModuleType, hook: str, **arguments: Any) -> Any:
        """As `call`, of a module that need not be registered; None if it has no such hook."""
        found = _implementations(module)
        if hook not in found:
            return None
        caller = getattr(self._alone(plugin, found).hook, hook)
        return self._result(plugin, caller, arguments)

    @staticmethod
    def _result(plugin: Plugin, caller: pluggy.HookCaller, arguments: dict[str, Any]) -> Any:
        hook = caller.name
        where = f"hook '{hook}' of plugin '{plugin.name}'"
        try:
            results = caller(**arguments)
        except (Exception, SystemExit) as error:
            raise _C.PluginError(f"{where} raised {type(error).__name__}: {error}") from error
        value = results[0] if results else None  # pluggy leaves None out
        expected, fits = _RETURNS[hook]
        if not fits(value):
            raise _C.PluginError(f"{where} must return {expected}, it returned {_described(value)}")
        return value

    @staticmethod
    def _signature(name: str) -> str:
        parameters = list(inspect.signature(getattr(Specs, name)).parameters)[1:]
        return f"({', '.join(parameters)})"

    def _put_attributes(self, plugin: Plugin, undo: list[Callable[[], Any]]) -> None:
        new = self.call(plugin, "rabbet_tensor_attributes") or {}
        listed = plugin.manifest.get("attributes", [])
        for name in new:
            if name not in listed:
                raise _C.PluginError(
                    f"hook 'rabbet_tensor_attributes' of plugin '{plugin.name}' returned '{name}', which its "
                    f"manifest does not list under attributes"
                )
            layer, dot, attribute = name.rpartition(".")
            if dot:
                self._check_layer(plugin, layer, attribute)
            else:
                self._check_free(plugin, name)
        for name, value in new.items():
            layer, dot, attribute = name.rpartition(".")
            if dot:
                self._put_for_layer(plugin, layer, attribute, value, undo)
                continue
            before = vars(_C.Tensor).get(name, ABSENT)
            setattr(_C.Tensor, name, _overriding.member(name, value))
            self.attributes[name] = plugin
            undo.append(partial(self._put_back, name, before))

    def _check_layer(self, plugin: Plugin, layer: str, name: str) -> None:
        who = f"plugin '{plugin.name}' (wheel {plugin.wheel}) wants to put '{name}' on composites of the layer '{layer}'"
        if layer not in plugin.provides:
            raise _C.PluginError(f"{who}, which its manifest does not provide")
        there = inspect.getattr_static(_C.Tensor, name, ABSENT)
        if there is ABSENT or name in self.of_layers or name in OF_OTHER_LAYOUTS:
            return
        raise _C.PluginError(f"{who}, but all tensors have Tensor.{name} already")

    def _put_for_layer(
        self, plugin: Plugin, layer: str, name: str, value: object, undo: list[Callable[[], Any]]
    ) -> None:
        before = vars(_C.Tensor).get(name, ABSENT)
        there = self.of_layers.get(name)
        if there is None:
            there = self.of_layers[name] = LayerAttribute(name, before)
            setattr(_C.Tensor, name, _overriding.member(name, there))
            self.attributes[name] = plugin
            undo.append(partial(self.of_layers.pop, name))
            undo.append(partial(self._put_back, name, before))
        there.layers[layer] = value
        undo.append(partial(there.layers.pop, layer))

    def _check_free(self, plugin: Plugin, name: str) -> None:
        there = inspect.getattr_static(_C.Tensor, name, ABSENT)
        if there is ABSENT:
            return
        if isinstance(there, LazyAttribute) and there.layer in plugin.provides:
            return
        owner = "an attribute of rabbet-core"
        if name in self.attributes:
            other = self.attributes[name]
            owner = f"an attribute of plugin '{other.name}' (wheel {other.wheel})"
        elif isinstance(there, LazyAttribute):
            owner = f"kept for the layer '{there.layer}'"
        raise _C.PluginError(
            f"plugin '{plugin.name}' (wheel {plugin.wheel}) wants to put '{name}' on Tensor, but Tensor.{name} "
            f"is {owner} already"
        )

    def _put_back(self, name: str, before: object) -> None:
        del self.attributes[name]
        if before is ABSENT:
            delattr(_C.Tensor, name)
        else:
            setattr(_C.Tensor, name, before)
