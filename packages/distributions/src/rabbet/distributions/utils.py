"""Helpers of distributions: broadcasting, probabilities and log odds, triangles of matrices."""

import math
from collections.abc import Callable
from functools import update_wrapper
from numbers import Number
from typing import Any

import rabbet
from rabbet import Size, Tensor

__all__ = [
    "broadcast_all",
    "logits_to_probs",
    "clamp_probs",
    "probs_to_logits",
    "lazy_property",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors of one shape; numbers take the dtype and device of the first tensor.

    Raises:
        ValueError: if a value is neither a number nor a tensor.
    """
    tensors = [v for v in values if rabbet.overrides.is_tensor_like(v)]
    if len(tensors) + sum(isinstance(v, Number) for v in values) != len(values):
        raise ValueError(
            "Input arguments must all be instances of Number, "
            "torch.Tensor or objects implementing __torch_function__."
        )
    options: dict[str, Any] = {"dtype": rabbet.get_default_dtype()}
    like = next((t for t in tensors if isinstance(t, Tensor)), None)
    if like is not None:
        options = {"dtype": like.dtype, "device": like.device}
    return tuple(
        rabbet.broadcast_tensors(
            *(rabbet.tensor(v, **options) if isinstance(v, Number) else v for v in values)
        )
    )


def shape_of(parameters: tuple[Any, ...], broadcast: Tensor) -> Size:
    """The batch shape of parameters: none if all were given as numbers."""
    return Size() if all(isinstance(p, Number) for p in parameters) else broadcast.shape


def _standard_normal(shape: Size, dtype: Any, device: Any) -> Tensor:
    return rabbet.randn(shape, dtype=dtype, device=device)


def uniform_open(shape: Size, like: Tensor) -> Tensor:
    """Uniform numbers of (0, 1): 0 is replaced by the smallest normal number."""
    u = rabbet.rand(shape, dtype=like.dtype, device=like.device)
    return u.clamp(min=rabbet.finfo(like.dtype).tiny)


def multigammaln(a: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    halves = 0.5 * rabbet.arange(p, dtype=a.dtype, device=a.device)
    return p * (p - 1) / 4 * math.log(math.pi) + (a.unsqueeze(-1) - halves).lgamma().sum(-1)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log odds; of log weights over the last dimension unless `is_binary`."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities limited to [eps, 1 - eps] of their dtype."""
    eps = rabbet.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds of probabilities; logarithms unless `is_binary`."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


class lazy_property:
    """A property that is computed when it is first read and kept in the instance."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with rabbet.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What a class shows of a lazy property: a property to readers of documentation."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def _triangle(n: int, diag: int, device: Any) -> Tensor:
    """The mask of a lower triangle."""
    index = rabbet.arange(n, device=device)
    return index < index.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangles of (..., n, n) in row order.

    Raises:
        ValueError: if there is no such diagonal.
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _triangle(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices of which (..., m) has the elements in row order.

    Raises:
        ValueError: if no triangle has m elements.
    """
    m = vec.shape[-1]
    b = 1 + 2 * diag
    root = (math.sqrt(b * b + 8 * m + 4 * abs(diag) * (diag + 1)) - b) / 2
    n = round(root)
    if n - root > rabbet.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {m} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    mask = _triangle(n, diag, vec.device)
    place = (mask.reshape(-1).cumsum(0) - 1).clamp(min=0).reshape(n, n)
    return rabbet.where(mask, vec[..., place], 0.0)
