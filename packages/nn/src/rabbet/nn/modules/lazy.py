"""Modules that take sizes from their first input."""

from __future__ import annotations

from itertools import chain
from typing import Any

import rabbet

from ..parameter import is_lazy
from .module import Module

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(Module):
    """Base, beside a module's class, of modules whose parameters get their shapes in the first call.

    Subclasses make `UninitializedParameter`s in `__init__` and define `initialize_parameters`. After it the
    module's class is `cls_to_become`, if that is set.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give all parameters and buffers their shapes, from the arguments of the first call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(map(is_lazy, chain(self._parameters.values(), self._buffers.values())))

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Give parts that have no shape yet the shapes of what is loaded into them."""
        for name, own in chain(self._parameters.items(), self._buffers.items()):
            new = state_dict.get(prefix + name)
            if is_lazy(own) and isinstance(new, rabbet.Tensor) and not is_lazy(new):
                own.materialize(new.shape)  # type: ignore[union-attr]

    def _infer_parameters(self, module: Module, args: Any, kwargs: Any = None) -> None:
        """Give all parts their shapes from the arguments of a call, and become the class without them."""
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        del self._initialize_hook, self._load_hook
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]
