"""Parametrizations: parameters that are computed from other tensors each time they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rabbet
from rabbet import Tensor

from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]

_cache_depth = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once within the block."""
    global _cache_depth
    _cache_depth += 1
    try:
        yield
    finally:
        _cache_depth -= 1
        if not _cache_depth:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they are computed from.

    That is `original`, or `original0`, `original1`, ... if `right_inverse` gives several tensors.
    """

    def __init__(
        self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False
    ) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        values = self._inverted(original, partly=True)
        self.is_tensor = isinstance(values, Tensor)
        trained = original.requires_grad
        if isinstance(values, Tensor):
            if values.dtype != original.dtype and not unsafe:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {values.dtype}"
                )
            own = [("original", values)]
        else:
            self.ntensors = len(values)
            own = [(f"original{i}", value) for i, value in enumerate(values)]
        for name, value in own:
            if isinstance(original, Parameter):
                if value is original:
                    self.register_parameter(name, original)
                else:
                    self.register_parameter(name, Parameter(value, requires_grad=trained))
            else:
                self.register_buffer(name, value)
        if not unsafe:
            result = self()
            if result.dtype != original.dtype or tuple(result.shape) != tuple(original.shape):
                raise ValueError(
                    "Registering a parametrization may not change the dtype or the shape of the "
                    f"tensor, unless the `unsafe` flag is enabled: it had dtype {original.dtype} and "
                    f"shape {tuple(original.shape)}, and has {result.dtype} and {tuple(result.shape)}"
                )

    def _inverted(self, value: Tensor, partly: bool = False) -> Any:
        """What the parametrizations are computed from to give `value`; `partly`: as far as they can say."""
        result: Any = value
        with rabbet.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        result = module.right_inverse(result)
                    except NotImplementedError:
                        if not partly:
                            raise
                elif not partly:
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
        if not isinstance(result, Tensor) and not (
            isinstance(result, Sequence) and all(isinstance(r, Tensor) for r in result)
        ):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors, "
                f"got {type(result).__name__}"
            )
        return result

    def right_inverse(self, value: Tensor) -> None:
        """Change what the tensor is computed from so that it becomes `value`."""
        values = self._inverted(value)
        if self.is_tensor != isinstance(values, Tensor):
            raise ValueError(
                "'right_inverse' must return as many tensors as when it was registered"
            )
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        given = [values] if self.is_tensor else values
        if len(given) != len(names):
            raise ValueError(
                f"'right_inverse' must return a sequence of {len(names)} tensors, got {len(given)}"
            )
        for name, new in zip(names, given, strict=True):
            with rabbet.no_grad():
                getattr(self, name).copy_(new)

    def forward(self) -> Tensor:
        modules = list(self)
        if self.is_tensor:
            result = modules[0](self.original)
        else:
            result = modules[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in modules[1:]:
            result = module(result)
        return result


def _add_property(module: Module, name: str) -> None:
    def read(self: Any) -> Tensor:
        if not _cache_depth:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def _own_class(module: Module) -> None:
    """Give `module` a class of its own, which can have properties."""

    def copied(self: Any, memo: dict[int, Any]) -> Any:
        made = object.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return _with_properties(made)

    def refuse(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict()."
        )

    cls = type(module)
    module.__class__ = type(
        f"Parametrized{cls.__name__}", (cls,), {"__deepcopy__": copied, "__getstate__": refuse}
    )


def _with_properties(module: Any) -> Any:
    """A copy of a parametrized module, with a class that no other module shares."""
    module.__class__ = type(module).__bases__[0]
    _own_class(module)
    for name in module.parametrizations:
        _add_property(module, name)
    return module


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Have `module.tensor_name` computed by `parametrization` of what it was; returns `module`.

    Args:
        module: holds the parameter or buffer.
        tensor_name: its name.
        parametrization: a module; its `right_inverse`, if it has one, gives what it starts from.
        unsafe: whether it may change the dtype and the shape.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        known = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            result = parametrization(value)
            if result.dtype != value.dtype or tuple(result.shape) != tuple(value.shape):
                raise ValueError(
                    "Registering a parametrization may not change the dtype or the shape of the "
                    "tensor, unless the `unsafe` flag is enabled."
                )
        known.append(parametrization)
        known.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        known = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _own_class(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = known
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module, or its tensor of that name, has a parametrization."""
    known = module._modules.get("parametrizations")
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make the tensor an ordinary one again: its value, or with False what it is computed from."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    known = module.parametrizations[tensor_name]
    own = dict(known._parameters) if known._parameters else dict(known._buffers)
    if not leave_parametrized:
        if not known.is_tensor:
            raise ValueError(
                "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
                "parametrized in terms of a sequence of tensors."
            )
        value = own["original"]
    else:
        with rabbet.no_grad():
            value = getattr(module, tensor_name).detach().clone()
        if known._parameters:
            trained = any(p is not None and p.requires_grad for p in known._parameters.values())
            value = Parameter(value, requires_grad=trained)
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if known._parameters:
        module.register_parameter(tensor_name, value)
    else:
        module.register_buffer(tensor_name, value)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
