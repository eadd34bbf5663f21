"""Tensors some of whose elements a mask leaves out, and functions of tensors with masks."""

from . import _ops
from ._inputs import combined_masks as _combined_masks
from .maskedtensor import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

amax = _combined_masks(_ops.amax)
amin = _combined_masks(_ops.amin)
argmax = _combined_masks(_ops.argmax)
argmin = _combined_masks(_ops.argmin)
cumprod = _combined_masks(_ops.cumprod)
cumsum = _combined_masks(_ops.cumsum)
log_softmax = _combined_masks(_ops.log_softmax)
logaddexp = _combined_masks(_ops.logaddexp)
logsumexp = _combined_masks(_ops.logsumexp)
mean = _combined_masks(_ops.mean)
median = _combined_masks(_ops.median)
norm = _combined_masks(_ops.norm)
normalize = _combined_masks(_ops.normalize)
prod = _combined_masks(_ops.prod)
softmax = _combined_masks(_ops.softmax)
softmin = _combined_masks(_ops.softmin)
std = _combined_masks(_ops.std)
sum = _combined_masks(_ops.sum)
var = _combined_masks(_ops.var)

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor",
    "log_softmax", "logaddexp", "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax",
    "softmin", "std", "sum", "var",
]  # fmt: skip
