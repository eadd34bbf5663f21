"""Checks and small helpers of options."""

from __future__ import annotations

from typing import Any

from rabbet import Tensor


def check_at_least_zero(value: Any, text: str) -> None:
    """Raise ValueError `text: value` unless the number is at least 0."""
    if isinstance(value, Tensor):
        value = value.item()
    if not value >= 0.0:
        raise ValueError(f"{text}: {value}")


def check_lr(lr: Any) -> None:
    """Raise ValueError unless `lr` is one number of at least 0."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check_at_least_zero(lr, "Invalid learning rate")


def check_betas(betas: Any) -> None:
    """Raise ValueError unless both are at least 0 and below 1."""
    for i in range(2):
        if not 0.0 <= as_number(betas[i]) < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def check_modes(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Refuse modes that exclude each other."""
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")


def check_fused(groups: list[dict[str, Any]]) -> None:
    """Refuse parameters that the fused steps do not take."""
    for param in (p for group in groups for p in group["params"]):
        if not param.is_floating_point():
            raise RuntimeError(
                "`fused=True` requires all the params to be floating point Tensors of supported devices, "
                f"got {param.dtype} on {param.device}"
            )


def as_number(value: Any) -> float:
    """`value` as a Python number."""
    number: float = value.item() if isinstance(value, Tensor) else value
    return number
