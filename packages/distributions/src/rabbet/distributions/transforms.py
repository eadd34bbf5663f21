"""Invertible transforms of tensors, with the logarithms of their Jacobians' determinants."""

import math
from collections.abc import Callable
from numbers import Number
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._linalg import cholesky, identity
from ._transform import (
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    StackTransform,
    Transform,
    _require_dims,
    _widened,
    identity_transform,
)
from ._transform import (
    _InverseTransform as _InverseTransform,
)
from .utils import (
    broadcast_all,
    lazy_property,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftplusTransform",
    "TanhTransform",
    "SoftmaxTransform",
    "StackTransform",
    "StickBreakingTransform",
    "Transform",
    "identity_transform",
]


def _same_class(self: Any, other: Any) -> bool:
    """Transforms without parameters are equal if they are of one class."""
    return isinstance(other, type(self))


class ExpTransform(Transform):
    """y = exp(x)."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """y = x ** exponent, of positive numbers."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def _remade(self, cache_size: int) -> Any:
        return PowerTransform(self.exponent, cache_size=cache_size)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return rabbet.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """sigmoid(x), away from 0 and 1 by what the dtype can tell."""
    info = rabbet.finfo(x.dtype)
    return x.sigmoid().clamp(min=info.tiny, max=1 - info.eps)


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x))."""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        info = rabbet.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -rabbet.softplus(-x) - rabbet.softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x)); x itself above 20."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return rabbet.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -rabbet.softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x)."""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return 0.5 * (y.log1p() - (-y).log1p())

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2 * (
            math.log(2) - x - rabbet.softplus(-2 * x)
        )  # log(1 - tanh(x)^2) without cancellation


class AbsTransform(Transform):
    """y = abs(x), with the positive branch as its inverse."""

    domain = constraints.real
    codomain = constraints.positive
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x; the last `event_dim` dimensions belong together."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return _widened(constraints.real, self._event_dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return _widened(constraints.real, self._event_dim)

    def _remade(self, cache_size: int) -> Any:
        return AffineTransform(self.loc, self.scale, self._event_dim, cache_size=cache_size)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, AffineTransform) and all(
            a == b if isinstance(a, Number) and isinstance(b, Number) else bool((a == b).all())
            for a, b in ((self.loc, other.loc), (self.scale, other.scale))
        )

    __hash__ = object.__hash__

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        shape, n = x.shape, self._event_dim
        if isinstance(self.scale, Tensor):
            result = self.scale.abs().log()
        else:
            result = rabbet.full_like(x, math.log(abs(self.scale)))
        if n:
            result = result.reshape(result.shape[:-n] + (-1,)).sum(-1)
            shape = shape[:-n]
        return result.expand(shape)

    def forward_shape(self, shape: Any) -> Any:
        shapes = (getattr(p, "shape", ()) for p in (self.loc, self.scale))
        return rabbet.broadcast_shapes(shape, *shapes)

    inverse_shape = forward_shape


def _shifted_products(z: Tensor) -> Tensor:
    """Products of all elements before each along the last dimension, and of all: one element more."""
    return rabbet.cat([z.new_ones(z.shape[:-1] + (1,)), z.cumprod(-1)], -1)


class CorrCholeskyTransform(Transform):
    """Vectors of length D * (D - 1) / 2 to Cholesky factors of D x D correlation matrices.

    tanh gives canonical partial correlations, from which rows are broken like sticks (Lewandowski, Kurowicka and
    Joe 2009, "Generating random correlation matrices").
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = rabbet.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = _shifted_products((1 - r * r).sqrt())[..., :-1]  # what is left of each row
        return (r + identity(r)) * left

    def _inverse(self, y: Any) -> Any:
        # Of each row what is left before column j: 1 minus the squares before it.
        left = rabbet.cat([y.new_ones(y.shape[:-1] + (1,)), 1 - (y * y).cumsum(-1)[..., :-1]], -1)
        y_vec = tril_matrix_to_vec(y, diag=-1)
        t = y_vec / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        # Each element is the product of its own tanh and what is left of its row before it.
        left = 1 - (y * y).cumsum(-1)
        stick = tril_matrix_to_vec(left, diag=-2).log().sum(-1) / 2
        tanh = 2 * (math.log(2) - x - rabbet.softplus(-2 * x))
        return stick + tanh.sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _require_dims(shape, 1)
        n = shape[-1]
        d = round((0.25 + 2 * n) ** 0.5 + 0.5)
        if d * (d - 1) // 2 != n:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (d, d)

    def inverse_shape(self, shape: Any) -> Any:
        _require_dims(shape, 2)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        d = shape[-1]
        return shape[:-2] + (d * (d - 1) // 2,)


class SoftmaxTransform(Transform):
    """y = softmax(x) over the last dimension; its inverse is the logarithm."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        _require_dims(shape, 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """Vectors of length n to the simplex of n + 1 numbers: each takes its part of what is left."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _offset(self, x: Tensor) -> Tensor:
        """log(n), log(n - 1), ..., 0: zero goes to equal parts."""
        n = x.shape[-1]
        return rabbet.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Any) -> Any:
        z = _clipped_sigmoid(x - self._offset(x))
        return rabbet.cat([z, z.new_ones(z.shape[:-1] + (1,))], -1) * _shifted_products(1 - z)

    def _inverse(self, y: Any) -> Any:
        taken = y[..., :-1]
        left = (1 - taken.cumsum(-1)).clamp(min=rabbet.finfo(y.dtype).tiny)
        return taken.log() - left.log() + self._offset(taken)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x)
        return (rabbet.logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        _require_dims(shape, 1)
        return shape[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Any) -> Any:
        _require_dims(shape, 1)
        return shape[:-1] + (shape[-1] - 1,)


def _with_diagonal(x: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """The lower triangle of x, with a function of its diagonal there."""
    diagonal = of(x.diagonal(dim1=-2, dim2=-1)).unsqueeze(-1)
    return rabbet.where(identity(x).bool(), diagonal, x.tril(-1))


class LowerCholeskyTransform(Transform):
    """Square matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return _with_diagonal(x, rabbet.exp)

    def _inverse(self, y: Any) -> Any:
        return _with_diagonal(y, rabbet.log)


class PositiveDefiniteTransform(Transform):
    """Square matrices to positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite
    __eq__ = _same_class
    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(cholesky(y))


class CumulativeDistributionTransform(Transform):
    """y = cdf(x) of a distribution."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)

    def _remade(self, cache_size: int) -> Any:
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)
