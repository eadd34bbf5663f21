"""Mixtures of distributions of one family."""

from typing import Any

import rabbet
from rabbet import Size, Tensor

from . import constraints
from .categorical import Categorical
from .constraints import MixtureSameFamilyConstraint
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A categorical distribution chooses among the last batch dimension of the components."""

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an "
                " instance of torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution needs to be an "
                "instance of torch.distributions.Distribution"
            )
        mixtures = mixture_distribution.batch_shape
        components = component_distribution.batch_shape[:-1]
        for a, b in zip(mixtures[::-1], components[::-1], strict=False):
            if a != b and 1 not in (a, b):
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixtures}) is not "
                    "compatible with `component_distribution."
                    f"batch_shape`({components})"
                )
        count = mixture_distribution.logits.shape[-1]
        if component_distribution.batch_shape[-1] != count:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not"
                " equal `component_distribution.batch_shape[-1]`"
                f" ({component_distribution.batch_shape[-1]})"
            )
        self._num_component = count
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(components, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = Size(batch_shape)
        components = self._component_distribution.expand(batch_shape + (self._num_component,))
        new._component_distribution = components
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """What chooses."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """What is chosen from."""
        return self._component_distribution

    @property
    def _component_dim(self) -> int:
        return -1 - self._event_ndims

    def _weighted(self, value: Tensor) -> Tensor:
        """The mean over the components."""
        weights = self.mixture_distribution.probs
        weights = weights.reshape(weights.shape + (1,) * self._event_ndims)
        return (weights * value).sum(self._component_dim)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        means = self.component_distribution.mean
        d = means - self.mean.unsqueeze(self._component_dim)
        return self._weighted(self.component_distribution.variance) + self._weighted(d.square())

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(x.unsqueeze(self._component_dim))
        return (each * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        self._check(x)
        each = self.component_distribution.log_prob(x.unsqueeze(self._component_dim))
        return (each + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with rabbet.no_grad():
            chosen = self.mixture_distribution.sample(sample_shape)
            draws = self.component_distribution.sample(sample_shape)
            ones = (1,) * (self._event_ndims + 1)
            batch_shape = Size(sample_shape) + self._batch_shape
            index = chosen.expand(batch_shape).reshape(batch_shape + ones)
            index = index.expand(batch_shape + (1,) + self._event_shape)
            return draws.gather(len(batch_shape), index).squeeze(len(batch_shape))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(\n  {self.mixture_distribution},\n  {self.component_distribution})"
