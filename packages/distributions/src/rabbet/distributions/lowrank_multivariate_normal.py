"""Multivariate normal distributions whose covariance is a diagonal and a product of few columns."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._linalg import cholesky, identity, log_determinant, mahalanobis, solve_lower
from .distribution import Distribution
from .utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors of covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`.

    Inverse and determinant come from the small matrix I + W.mT @ inverse(D) @ W (Woodbury).
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
            )
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(
                f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m"
            )
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            batch_shape = rabbet.broadcast_shapes(
                loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
            )
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand(batch_shape + event_shape)
        self.cov_factor = cov_factor.expand(batch_shape + cov_factor.shape[-2:])
        self.cov_diag = cov_diag.expand(batch_shape + event_shape)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        scaled = cov_factor.mT / cov_diag.unsqueeze(-2)
        small = scaled @ cov_factor
        self._capacitance_tril = cholesky(small + identity(small))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The diagonal of the covariance."""
        variance = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(self._batch_shape + self._event_shape)

    def _expanded(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower triangular factor of the covariance."""
        return self._expanded(cholesky(self._covariance()))

    def _covariance(self) -> Tensor:
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        return factor @ factor.mT + identity_of(diagonal)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        return self._expanded(self._covariance())

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        inner = solve_lower(self._capacitance_tril, factor.mT / diagonal.unsqueeze(-2))
        return self._expanded(identity_of(diagonal.reciprocal()) - inner.mT @ inner)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        factor, diagonal = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        options = {"dtype": self.loc.dtype, "device": self.loc.device}
        few = _standard_normal(shape[:-1] + factor.shape[-1:], **options).unsqueeze(-1)
        noise = _standard_normal(shape, **options)
        return self.loc + (factor @ few).squeeze(-1) + diagonal.sqrt() * noise

    def _log_determinant(self) -> Tensor:
        """log(det(covariance))."""
        small = 2 * log_determinant(self._capacitance_tril)
        return small + self._unbroadcasted_cov_diag.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        d = value - self.loc
        scaled = d / self._unbroadcasted_cov_diag
        projected = (self._unbroadcasted_cov_factor.mT @ scaled.unsqueeze(-1)).squeeze(-1)
        distance = (d * scaled).sum(-1) - mahalanobis(self._capacitance_tril, projected)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self._log_determinant() + distance)

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1 + math.log(2 * math.pi))
        return (0.5 * (constant + self._log_determinant())).expand(self._batch_shape)


def identity_of(diagonal: Tensor) -> Tensor:
    """The diagonal matrix."""
    return diagonal.unsqueeze(-1) * identity(diagonal)
