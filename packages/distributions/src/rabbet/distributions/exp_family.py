"""Exponential families."""

from typing import Any

import rabbet
from rabbet import Tensor

from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Densities exp(<t(x), theta> - F(theta) + k(x)) with natural parameters theta.

    Subclasses give theta, F and the mean of k, from which entropies and divergences follow by gradients of F
    (Nielsen and Nock 2010, "Entropies and cross-entropies of exponential families").
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """theta."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """F(theta)."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float | Tensor:
        """The mean of k(x)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """F(theta) - <theta, grad F(theta)> - E[k(x)], with the gradient from autograd."""
        result = -self._mean_carrier_measure
        params = [p.detach().requires_grad_() for p in self._natural_params]
        with rabbet.enable_grad():
            log_normalizer = self._log_normalizer(*params)
            gradients: Any = rabbet.autograd.grad(log_normalizer.sum(), params, create_graph=True)
            result = result + log_normalizer
            for param, gradient in zip(params, gradients, strict=True):
                term = param * gradient
                result = result - term.reshape(self._batch_shape + (-1,)).sum(-1)
        return result
