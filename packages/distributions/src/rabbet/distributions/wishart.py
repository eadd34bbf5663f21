"""The Wishart distribution."""

import math
import warnings
from typing import Any

import rabbet
from rabbet import Size, Tensor

from . import constraints
from ._linalg import (
    cholesky,
    identity,
    inverse_from_cholesky,
    is_positive_definite,
    log_determinant,
    scale_tril_of_precision,
    solve_lower,
)
from .exp_family import ExponentialFamily
from .gamma import Gamma
from .utils import lazy_property, multigammaln

__all__ = ["Wishart"]


def _multidigamma(a: Tensor, p: int) -> Tensor:
    """The derivative of `multigammaln`."""
    halves = 0.5 * rabbet.arange(p, dtype=a.dtype, device=a.device)
    return (a.unsqueeze(-1) - halves).digamma().sum(-1)


class Wishart(ExponentialFamily):
    """Sums of `df` squares of normal vectors, positive definite p x p matrices; one of covariance, precision or factor."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            "scale_tril": scale_tril,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, with optional leading batch dimensions"
            )
        df = rabbet.as_tensor(df, dtype=matrix.dtype, device=matrix.device)
        event_shape = matrix.shape[-2:]
        batch_shape = rabbet.broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch_shape)
        if (self.df <= event_shape[-1] - 1).any():
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}."
            )
        if (self.df < event_shape[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        setattr(self, name, matrix.expand(batch_shape + event_shape))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        factor = {"scale_tril": lambda m: m, "covariance_matrix": cholesky}.get(
            name, scale_tril_of_precision
        )
        self._unbroadcasted_scale_tril = factor(matrix)
        self._chi2 = self._chi2_of(self.df)

    def _chi2_of(self, df: Tensor) -> Gamma:
        """Squares of the diagonal of a draw's factor."""
        rows = rabbet.arange(self._event_shape[-1], dtype=df.dtype, device=df.device)
        return Gamma(0.5 * (df.unsqueeze(-1) - rows), 0.5, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        new._event_shape = self._event_shape  # what the constraint of df depends on
        super().expand(batch_shape, new)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        new._chi2 = new._chi2_of(new.df)
        return new

    def _expanded(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower triangular factor of the covariance."""
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance of the vectors."""
        factor = self._unbroadcasted_scale_tril
        return self._expanded(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """Its inverse."""
        return self._expanded(inverse_from_cholesky(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.df.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = (self.df - self.covariance_matrix.shape[-1] - 1).masked_fill(
            self.df <= self.covariance_matrix.shape[-1] + 1, math.nan
        )
        return factor.view(self._batch_shape + (1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.view(self._batch_shape + (1, 1)) * (v.square() + products)

    def rsample(self, sample_shape: Any = (), max_try_correction: Any = None) -> Tensor:
        """Bartlett's decomposition; draws that rounding made singular are drawn again, up to 3 times below 10 rows."""
        shape = Size(sample_shape)
        tries = max_try_correction
        if tries is None:
            tries = 3 if self._event_shape[-1] < 10 else 10 if self._event_shape[-1] < 100 else 100
        sample = self._bartlett(shape)
        for _ in range(tries):
            singular = ~is_positive_definite(sample)
            if not singular.any():
                break
            warnings.warn("Singular sample detected.", stacklevel=2)
            sample = rabbet.where(singular[..., None, None], self._bartlett(shape), sample)
        return sample

    def _bartlett(self, shape: Size) -> Tensor:
        whole = self._extended_shape(shape)
        below = rabbet.randn(whole, dtype=self.df.dtype, device=self.df.device).tril(-1)
        diagonal = self._chi2.rsample(shape).clamp(min=rabbet.finfo(self.df.dtype).tiny).sqrt()
        noise = below + diagonal.unsqueeze(-1) * identity(below)
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        p, nu, factor = self._event_shape[-1], self.df, self._unbroadcasted_scale_tril
        inner = solve_lower(factor, solve_lower(factor, value).mT)
        trace = inner.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (p * math.log(2) / 2 + log_determinant(factor))
            - multigammaln(nu / 2, p)
            + (nu - p - 1) * log_determinant(cholesky(value))
            - trace / 2
        )

    def entropy(self) -> Tensor:
        p, nu = self._event_shape[-1], self.df
        return (
            (p + 1) * (p * math.log(2) / 2 + log_determinant(self._unbroadcasted_scale_tril))
            + multigammaln(nu / 2, p)
            - (nu - p - 1) / 2 * _multidigamma(nu / 2, p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        p = self._event_shape[-1]
        shifted = y + (p + 1) / 2
        log_det = 2 * log_determinant(cholesky(-2 * x))
        return shifted * (-log_det + p * math.log(2)) + multigammaln(shifted, p)
