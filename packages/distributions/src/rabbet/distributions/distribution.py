"""The base class of distributions."""

import warnings
from typing import Any

import rabbet
from rabbet import Size, Tensor

from . import constraints
from .utils import lazy_property

__all__ = ["Distribution"]


def _initialized_here(kind: type) -> type:
    """The first class in the MRO whose `__init__` this package defines.

    Classes show another `__module__` while `torch` means rabbet; functions keep theirs.
    """
    return next(
        c
        for c in kind.__mro__
        if str(getattr(c.__init__, "__module__", "")).startswith(f"{__package__}.")  # type: ignore[misc]
    )


class Distribution:
    """A probability distribution, or a batch of them with one event shape.

    Args:
        batch_shape: the shape of the batch of parameters.
        event_shape: the shape of one draw of one distribution.
        validate_args: whether arguments and values are checked; None takes the class's setting.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether distributions check their arguments if they are not told."""
        if value not in [True, False]:
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = (),
        event_shape: Any = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()

    def _validate_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            arg_constraints = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        for name, constraint in arg_constraints.items():
            given = name in self.__dict__
            lazy = not given and isinstance(getattr(type(self), name), lazy_property)
            if constraints.is_dependent(constraint) or lazy:
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} "
                    f"({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} "
                    f"to satisfy the constraint {constraint!r}, "
                    f"but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its parameters expanded to another batch shape.

        All parameters that `arg_constraints` names are expanded. A class with its own `__init__` that is no part
        of this package has to define `expand`, and may hand the object to fill as `_instance`.
        """
        new = self._get_checked_instance(_initialized_here(type(self)), _instance)
        batch_shape = Size(batch_shape)
        for name, constraint in self.arg_constraints.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                event_shape = value.shape[value.ndim - constraint.event_dim :]
                setattr(new, name, value.expand(batch_shape + event_shape))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter that is a tensor."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that values satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw `sample_shape` values of each distribution, without gradients."""
        with rabbet.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draw `sample_shape` values of each distribution, differentiable by the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw n values; deprecated: `sample((n,))`."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability of a discrete value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along dimension 0, for the whole batch if `expand`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        """The shape of `sample(sample_shape)`."""
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _check(self, value: Any) -> None:
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value: Any) -> None:
        """Raise ValueError unless `value` fits the shape and lies in the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        got, expected = value.shape, self._batch_shape + self._event_shape
        if got[len(got) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(
                f"The right-most size of value must match event_shape: {got} vs {self._event_shape}."
            )
        if any(i != j and 1 not in (i, j) for i, j in zip(got[::-1], expected[::-1], strict=False)):
            raise ValueError(
                f"Value is not broadcastable with batch_shape+event_shape: {got} vs {expected}."
            )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable "
                "sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(got)}) "
                f"to be within the support ({support!r}) "
                f"of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """`_instance`, or an empty object of this class if it is made as `cls` is."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return self.__new__(type(self))

    def __repr__(self) -> str:
        given = {
            name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__
        }
        texts = [f"{name}: {v if v.numel() == 1 else v.size()}" for name, v in given.items()]
        return f"{self.__class__.__name__}({', '.join(texts)})"
