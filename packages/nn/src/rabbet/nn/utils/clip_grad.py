"""Limiting gradients."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import suppress

import rabbet
from rabbet import Tensor, ops
from rabbet.autograd import no_grad

from ..functional.distance import vector_norm

_foreach_norm, _foreach_scale = ops.foreach_norm, ops.foreach_scale
_foreach_clamp = ops.foreach_clamp


def _serves_lists(tensors: list[Tensor]) -> bool:
    """Whether the operators on lists take these: floating tensors of one device."""
    return len({t.device for t in tensors}) == 1 and all(t.is_floating_point() for t in tensors)


def _norms(tensors: list[Tensor], order: float) -> Tensor:
    """The norm of each tensor as a vector, in one pass where that is possible."""
    if _serves_lists(tensors) and order in (1.0, 2.0, float("inf")):
        with suppress(NotImplementedError):  # a backend without it
            return _foreach_norm(tensors, order)
    first = vector_norm(tensors[0], order)
    rest = [vector_norm(t, order).to(device=first.device, dtype=first.dtype) for t in tensors[1:]]
    return rabbet.stack([first, *rest])


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
    with no_grad():
        listed = _tensors(tensors)
        if not listed:
            return rabbet.tensor(0.0)
        total = vector_norm(_norms(listed, float(norm_type)), float(norm_type))
        first = listed[0]
        total = total.to(dtype=rabbet.real(first).dtype if first.is_complex() else first.dtype)
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
        factor = rabbet.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        grads = _grads(parameters)
        if not grads:
            return
        if _serves_lists(grads):
            with suppress(NotImplementedError):
                _foreach_scale(grads, factor.item())
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
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


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
