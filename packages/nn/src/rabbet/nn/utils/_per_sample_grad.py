"""Gradients of every sample of a batch: refused; `rabbet.func` has them."""

from typing import Any

__all__ = ["call_for_per_sample_grads"]


def call_for_per_sample_grads(
    module: Any,
    *,
    batch_size: int | None = None,
    loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Any:
    """A module whose parameters get gradients per sample.

    Raises:
        NotImplementedError: always: use `vmap` of `grad` of `rabbet.func`.
    """
    raise NotImplementedError(
        "call_for_per_sample_grads is not in rabbet yet: use func.vmap(func.grad(...)) with func.functional_call"
    )
