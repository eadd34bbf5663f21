"""What a program means by `functorch`, PyTorch's older package of function transforms: `func`, and modules as functions.

`functorch.dim`, `functorch.experimental` and `functorch.compile` are missing.
"""

import copy
import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rabbet import Tensor, func, nn

from .names import framework

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "make_functional", "make_functional_with_buffers", "vjp", "vmap"]  # fmt: skip


def _warn(name: str, new_name: str) -> None:
    warnings.warn(
        f"We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{name}` is "
        "deprecated as of PyTorch 2.0 and will be deleted in a future version of PyTorch >= 2.3. Please use "
        f"`{framework()}.{new_name}` instead; see the PyTorch 2.0 release notes and/or the `torch.func` migration "
        "guide for more details https://pytorch.org/docs/main/func.migrating.html",
        FutureWarning,
        stacklevel=3,
    )


def _deprecated(name: str) -> Callable[..., Any]:
    function = getattr(func, name)
    new_name = "vmap" if name == "vmap" else f"func.{name}"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _warn(name, new_name)
        return function(*args, **kwargs)

    return call


vmap, grad, grad_and_value = map(_deprecated, ("vmap", "grad", "grad_and_value"))
vjp, jvp, jacrev, jacfwd = map(_deprecated, ("vjp", "jvp", "jacrev", "jacfwd"))
hessian, functionalize = map(_deprecated, ("hessian", "functionalize"))


class _Functional(nn.Module):
    """A module without a state of its own, which is called with the tensors of its state."""

    def __init__(self, module: nn.Module, names: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.stateless_model = module
        self._names = names

    def _call(self, states: Sequence[Iterable[Tensor]], args: Any, kwargs: Any) -> Any:
        state: dict[str, Tensor] = {}
        for names, tensors in zip(self._names, states, strict=True):
            state.update(zip(names, tensors, strict=True))
        return func.functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(_Functional):
    """A module as a function of its parameters: `functional(params, *args, **kwargs)`."""

    def forward(self, params: Iterable[Tensor], *args: Any, **kwargs: Any) -> Any:
        return self._call((params,), args, kwargs)


class FunctionalModuleWithBuffers(_Functional):
    """A module as a function of its parameters and buffers: `functional(params, buffers, *args, **kwargs)`."""

    def forward(
        self, params: Iterable[Tensor], buffers: Iterable[Tensor], *args: Any, **kwargs: Any
    ) -> Any:
        return self._call((params, buffers), args, kwargs)


def _taken_apart(
    model: nn.Module, parts: Sequence[str], detached: bool
) -> tuple[nn.Module, list[list[str]], list[tuple[Tensor, ...]]]:
    """A copy of the model on the meta device, and the names and the tensors of its parameters and buffers."""
    names, tensors = [], []
    for part in parts:
        named = dict(getattr(model, f"named_{part}")(remove_duplicate=False))
        if len({id(t) for t in named.values()}) < len(named):
            raise RuntimeError(
                "make_functional(): we don't yet support models that do parameter tying (also sometimes known as "
                "weight sharing). Please try to rewrite your model by replacing all instances of the tied parameter "
                "with another and/or comment your support in https://github.com/pytorch/functorch/issues/446"
            )
        copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in named.values()]
        if part == "parameters":
            copies = [nn.Parameter(t, requires_grad=t.requires_grad) for t in copies]
        names.append(list(named))
        tensors.append(tuple(t.detach() if detached else t for t in copies))
    return copy.deepcopy(model).to("meta"), names, tensors


def make_functional(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """Return a model without buffers as a function of its parameters, and copies of these.

    Args:
        disable_autograd_tracking: whether the copies do not require gradients.

    Raises:
        RuntimeError: if the model has buffers or tied parameters.
    """
    _warn("make_functional", "func.functional_call")
    if next(iter(model.buffers()), None) is not None:
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    module, names, (params,) = _taken_apart(model, ["parameters"], disable_autograd_tracking)
    return FunctionalModule(module, names), params


def make_functional_with_buffers(
    model: nn.Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return a model as a function of its parameters and buffers, and copies of these.

    Args:
        disable_autograd_tracking: whether the copies do not require gradients.

    Raises:
        RuntimeError: if the model has tied parameters.
    """
    _warn("make_functional_with_buffers", "func.functional_call")
    parts = ["parameters", "buffers"]
    module, names, (params, buffers) = _taken_apart(model, parts, disable_autograd_tracking)
    return FunctionalModuleWithBuffers(module, names), params, buffers


def combine_state_for_ensemble(
    models: Sequence[nn.Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return models of one class as one function for `vmap`, with their parameters and buffers stacked.

    Raises:
        RuntimeError: if there is none, or if classes or modes differ.
    """
    _warn("combine_state_for_ensemble", "func.stack_module_state")
    models = list(models)
    params, buffers = func.stack_module_state(models)
    names = [list(params), list(buffers)]
    module = copy.deepcopy(models[0]).to("meta")
    stacked = tuple(t.detach().requires_grad_(t.requires_grad) for t in params.values())
    return FunctionalModuleWithBuffers(module, names), stacked, tuple(buffers.values())
