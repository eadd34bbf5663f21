"""Attributes of Tensor that come with a plugin which is not loaded yet."""

from collections.abc import Callable
from typing import Any

from . import _C


class LazyAttribute:
    """Stands on Tensor for an attribute of a layer; the first access loads the layer.

    activate: loads a layer, given its name and that of the attribute; raises AttributeError if it cannot.
    """

    def __init__(self, name: str, layer: str, activate: Callable[[str, str], None]) -> None:
        self.name, self.layer, self._activate = name, layer, activate

    def _load(self) -> None:
        self._activate(self.layer, self.name)
        if vars(_C.Tensor).get(self.name) is self:
            raise AttributeError(
                f"Tensor.{self.name}: the plugin for '{self.layer}' is loaded, but has no such attribute"
            )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        self._load()
        return getattr(owner if instance is None else instance, self.name)

    def __set__(self, instance: Any, value: Any) -> None:
        self._load()
        setattr(instance, self.name, value)
