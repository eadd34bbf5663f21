"""Limiting gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import rabbet
from rabbet import Tensor, ops
from rabbet.autograd import no_grad

from .._accumulate import accumulation_dtype, widened
from ..functional.distance import vector_norm

_foreach_norm, _foreach_divide = ops.foreach_norm, ops.foreach_divide
_foreach_clamp = ops.foreach_clamp


def _serves_lists(tensors: list[Tensor]) -> bool:
    """Whether the operators on lists take these: floating tensors of one device."""
    return len({t.device for t in tensors}) == 1 and all(t.is_floating_point() for t in tensors)


def _norms(tensors: list[Tensor], order: float) -> Tensor:
    """The norm of each tensor as a vector, in one pass where that is possible."""
    if _serves_lists(tensors) and order in (1.0, 2.0, float("inf")):
        with suppress(NotImplementedError):  # a backend without it
            return _foreach_norm(tensors, order)
    first = vector_norm(widened(tensors[0]), order)
    rest = [vector_norm(widened(t), order) for t in tensors[1:]]
    return rabbet.stack([first, *(n.to(device=first.device, dtype=first.dtype) for n in rest)])


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in _tensors(parameters) if p.grad is not None]


def _tensors(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the norm of all tensors taken as one vector; 0 if there are none."""
    listed = _tensors(tensors)
    total = _total_norm(listed, norm_type, error_if_nonfinite)
    return _rounded(total, listed)


def _real_dtype(t: Tensor) -> Any:
    return rabbet.real(t).dtype if t.is_complex() else t.dtype


def _rounded(total: Tensor, tensors: list[Tensor]) -> Tensor:
    """A total norm as `get_total_norm` returns it: in the dtype of the first tensor."""
    return total.to(dtype=_real_dtype(tensors[0])) if tensors else total


def _total_norm(tensors: list[Tensor], norm_type: float, error_if_nonfinite: bool) -> Tensor:
    """The norm of all tensors taken as one vector, in the accumulation dtype of the first."""
    with no_grad():
        if not tensors:
            return rabbet.tensor(0.0)
        total = vector_norm(_norms(tensors, float(norm_type)), float(norm_type))
        total = total.to(dtype=accumulation_dtype(_real_dtype(tensors[0])))
        if error_if_nonfinite and not bool(rabbet.isfinite(total)):
            raise RuntimeError(
                f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
                "so it cannot be clipped. To disable this error and scale the gradients by the "
                "non-finite norm anyway, set `error_if_nonfinite=False`"
            )
        return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients of `parameters` by `max_norm / total_norm` where that is below 1."""
    with no_grad():
        factor = rabbet.clamp(float(max_norm) / (widened(total_norm) + 1e-6), max=1.0)
        grads = _grads(parameters)
        if not grads:
            return
        if _serves_lists(grads):
            with suppress(NotImplementedError):
                # In float64 the reciprocal of the reciprocal rounds to the factor again.
                _foreach_divide(grads, factor.to(grads[0].device, rabbet.float64).reciprocal())
                return
        for grad in grads:
            grad.mul_(factor.to(device=grad.device, dtype=grad.dtype))


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients so that their common norm is at most `max_norm`; returns the norm before.

    Args:
        parameters: a tensor or several, whose `.grad` are changed in place.
        max_norm: the limit.
        norm_type: order of the norm, infinity included.
        error_if_nonfinite: raise if the norm is not finite.
        foreach: accepted for PyTorch's sake; it changes nothing.
    """
    parameters = _tensors(parameters)
    grads = _grads(parameters)
    total = _total_norm(grads, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return _rounded(total, grads)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place."""
    limit = float(clip_value)
    with no_grad():
        grads = _grads(parameters)
        if not grads:
            return
        if _serves_lists(grads):
            with suppress(NotImplementedError):
                _foreach_clamp(grads, -limit, limit)
                return
        for grad in grads:
            grad.clamp_(-limit, limit)


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The former name of `clip_grad_norm_`."""
    warnings.warn(
        "`clip_grad_norm` is now deprecated in favor of `clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
