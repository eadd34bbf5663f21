"""The multivariate normal distribution."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._linalg import (
    cholesky,
    inverse_from_cholesky,
    log_determinant,
    mahalanobis,
    scale_tril_of_precision,
)
from .distribution import Distribution
from .utils import _standard_normal, lazy_property

__all__ = ["MultivariateNormal"]

# Under the names that packages import.
_batch_mahalanobis = mahalanobis
_precision_to_scale_tril = scale_tril_of_precision


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of matrices (..., m, n) and vectors (..., n); dimensions in front broadcast."""
    return rabbet.matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


class MultivariateNormal(Distribution):
    """Normal vectors of mean `loc` and one of covariance, precision or Cholesky factor."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "scale_tril": scale_tril,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        given = {name: matrix for name, matrix in given.items() if matrix is not None}
        if len(given) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
            )
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            subject = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(
                f"{subject} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch_shape = rabbet.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(batch_shape + matrix.shape[-2:]))
        self.loc = loc.expand(batch_shape + loc.shape[-1:])
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        factor = {"scale_tril": lambda m: m, "covariance_matrix": cholesky}.get(
            name, scale_tril_of_precision
        )
        self._unbroadcasted_scale_tril = factor(matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    def _expanded(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower triangular factor of the covariance."""
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._expanded(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance."""
        return self._expanded(inverse_from_cholesky(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance = self._unbroadcasted_scale_tril.square().sum(-1)
        return variance.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, self.loc.dtype, self.loc.device).unsqueeze(-1)
        return self.loc + (self._unbroadcasted_scale_tril @ noise).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        factor = self._unbroadcasted_scale_tril
        constant = self._event_shape[0] * math.log(2 * math.pi)
        distance = mahalanobis(factor, value - self.loc)
        return -0.5 * (constant + distance) - log_determinant(factor)

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi))
        entropy = constant + log_determinant(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape)
