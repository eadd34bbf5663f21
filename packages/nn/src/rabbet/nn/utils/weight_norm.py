"""Weight normalisation with a hook before forward: state dicts hold `weight_g` and `weight_v`."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ..modules.module import Module
from ..parameter import Parameter
from .parametrizations import _WeightNorm

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]

T = TypeVar("T", bound=Module)


class WeightNorm:
    """The hook: sets the weight to `g * v / norm(v)` (Salimans and Kingma 2016)."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        """The weight, from its length and direction."""
        return _WeightNorm(self.dim).forward(
            getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        )

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Register the hook and put length and direction in the weight's place."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two weight_norm hooks on the same parameter {name}"
                )
        weight = module._parameters.get(name)
        if weight is None:
            raise ValueError(f"weight_norm: expected a parameter {name!r} in {module}")
        fn = WeightNorm(name, dim)
        length, direction = _WeightNorm(dim).right_inverse(weight.detach())
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(length))
        module.register_parameter(name + "_v", Parameter(direction))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Module) -> None:
        """Make the weight an ordinary parameter again."""
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: T, name: str = "weight", dim: int | None = 0) -> T:
    """Learn length and direction of a weight apart, by a hook; `parametrizations` has the newer form."""
    warnings.warn(
        "`weight_norm` is deprecated in favor of `parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: T, name: str = "weight") -> T:
    """Take `weight_norm` away again: the weight keeps its value."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
