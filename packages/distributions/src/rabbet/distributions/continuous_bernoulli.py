"""The continuous Bernoulli distribution."""

import math
from typing import Any

import rabbet
from rabbet import Tensor

from . import constraints
from ._probs_or_logits import ProbsOrLogits
from .exp_family import ExponentialFamily
from .utils import clamp_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Densities in proportion to probs ** x * (1 - probs) ** (1 - x) on [0, 1] (Loaiza-Ganem and Cunningham 2019).

    Between the two `lims` around 1/2 the formulas lose their digits and their series stand in their place.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        shape = self._keep_one(probs, logits)
        if probs is not None:
            if (
                validate_args is not None
                and not self.arg_constraints["probs"].check(self.probs).all()
            ):
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._lims = self._lims
        return new

    def _split(self) -> tuple[Tensor, Tensor]:
        """Where the formulas hold, and probabilities for which they do."""
        p = self.probs
        holds = (p <= self._lims[0]) | (p > self._lims[1])
        return holds, rabbet.where(holds, p, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        """log((log(1 - p) - log(p)) / (1 - 2 p)), and log(2) at 1/2."""
        holds, p = self._split()
        log_norm = ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5).square()
        return rabbet.where(holds, log_norm, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        holds, p = self._split()
        mean = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return rabbet.where(holds, mean, 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> Tensor:
        holds, p = self._split()
        variance = p * (p - 1) / (1 - 2 * p).square() + 1 / ((-p).log1p() - p.log()).square()
        x = (self.probs - 0.5).square()
        return rabbet.where(holds, variance, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with rabbet.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(rabbet.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        return value * self.logits + rabbet.logsigmoid(-self.logits) + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._check(value)
        holds, p = self._split()
        cdf = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = rabbet.where(holds, cdf, value)
        return rabbet.where(value <= 0, 0.0, rabbet.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        holds, p = self._split()
        top = (value * (2 * p - 1) - p).log1p() - (-p).log1p()
        return rabbet.where(holds, top / (p.log() - (-p).log1p()), value)

    def entropy(self) -> Tensor:
        log_odds = (-self.probs).log1p() - self.probs.log()
        return self.mean * log_odds - self._cont_bern_log_norm() - (-self.probs).log1p()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        low, high = (p - 0.5 for p in self._lims)
        holds = (x <= low) | (x > high)
        safe = rabbet.where(holds, x, low)
        series = 0.5 * x + x.square() / 24 - x**4 / 2880
        return rabbet.where(holds, (safe.exp() - 1).abs().log() - safe.abs().log(), series)
