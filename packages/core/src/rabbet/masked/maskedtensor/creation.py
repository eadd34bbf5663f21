"""Makers of masked tensors."""

from __future__ import annotations

from ..._C import Tensor
from .core import MaskedTensor

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A MaskedTensor with copies of `data` and `mask` that has no history.

    Args:
        data: of a floating or signed integer dtype, or bool.
        mask: bools in the shape of `data`; True marks the elements that count.
        requires_grad: whether a gradient is wanted.

    Raises:
        TypeError: for data and masks that are no tensors, or of other dtypes.
        ValueError: for a mask of another shape.

    Example:
        >>> rabbet.masked.masked_tensor(rabbet.tensor([1.0, 2.0]), rabbet.tensor([True, False]))
        MaskedTensor(
          [  1.0000,       --]
        )
    """
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A MaskedTensor with copies of `data` and `mask` through which gradients reach `data`.

    Elements that the mask leaves out get the gradient 0.

    Example:
        >>> x = rabbet.tensor([1.0, 2.0], requires_grad=True)
        >>> rabbet.masked.as_masked_tensor(x, rabbet.tensor([True, False])).sum().backward()
        >>> x.grad
        tensor([1., 0.])
    """
    return MaskedTensor._from_values(data, mask)
