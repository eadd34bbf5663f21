"""Functions of tensors some of whose elements a mask leaves out; MaskedTensor refuses until rabbet has it."""

from typing import TYPE_CHECKING, Any

from ._ops import (
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)

if TYPE_CHECKING:
    MaskedTensor: type
    as_masked_tensor: Any
    masked_tensor: Any
else:
    from .maskedtensor import MaskedTensor, as_masked_tensor, masked_tensor

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor",
    "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax",
    "softmin", "std", "sum", "var",
]  # fmt: skip


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether `obj` is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)
