"""The Dirichlet distribution."""

from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._sampling import dirichlet_draws
from .exp_family import ExponentialFamily

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """Points of the simplex, with a `concentration` for each corner."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return dirichlet_draws(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        a = self.concentration
        powers = rabbet.xlogy(a - 1, value).sum(-1)
        return powers + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0)
        mode = above / above.sum(-1, True)
        corner = (self.concentration < 1).all(-1, True)
        classes = rabbet.arange(mode.shape[-1], device=mode.device)
        highest = (above.argmax(-1, True) == classes).to(mode.dtype)
        return rabbet.where(corner, highest, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        a = self.concentration
        return a * (total - a) / (total.square() * (total + 1))

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        log_beta = a.lgamma().sum(-1) - total.lgamma()
        return log_beta - (k - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.lgamma().sum(-1) - x.sum(-1).lgamma()
