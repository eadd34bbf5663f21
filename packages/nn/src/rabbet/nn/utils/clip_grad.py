"""Limiting gradients."""

from __future__ import annotations

from collections.abc import Iterable

import rabbet
from rabbet import Tensor
from rabbet.autograd import no_grad

from ..functional.distance import vector_norm


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
        norms = [vector_norm(t, float(norm_type)) for t in _tensors(tensors)]
        if not norms:
            return rabbet.tensor(0.0)
        first = norms[0]
        joined = rabbet.stack([n.to(device=first.device, dtype=first.dtype) for n in norms])
        total = vector_norm(joined, float(norm_type))
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
        for parameter in _tensors(parameters):
            if parameter.grad is not None:
                grad = parameter.grad
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
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value], in place."""
    limit = float(clip_value)
    with no_grad():
        for parameter in _tensors(parameters):
            if parameter.grad is not None:
                parameter.grad.clamp_(-limit, limit)
