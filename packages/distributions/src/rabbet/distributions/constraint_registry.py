"""Transforms from the real numbers to constrained values, by constraint.

`biject_to(constraint)` is a bijection with `log_abs_det_jacobian`, for samplers; `transform_to(constraint)` may map several
points to one, for optimizers.
"""

from collections.abc import Callable
from typing import Any, TypeVar, overload

from . import constraints, transforms

_F = TypeVar("_F", bound=Callable[[Any], Any])

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Links classes of constraints to functions that make transforms of a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}
        super().__init__()

    @overload
    def register(self, constraint: Any) -> Callable[[_F], _F]: ...

    @overload
    def register(self, constraint: Any, factory: _F) -> _F: ...

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Set the factory of a constraint's class; a decorator without `factory`.

        Raises:
            TypeError: if `constraint` is no constraint and no class of constraints.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not (isinstance(constraint, type) and issubclass(constraint, constraints.Constraint)):
            raise TypeError(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform to values that satisfy `constraint`.

        Raises:
            NotImplementedError: if none is registered.
        """
        if type(constraint) not in self._registry:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return self._registry[type(constraint)](constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()
_BOTH = (biject_to, transform_to)


def _register(*kinds: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorator: register in both."""

    def add(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for registry in _BOTH:
            for kind in kinds:
                registry.register(kind, factory)
        return factory

    return add


@_register(constraints.real)
def _to_real(constraint: Any) -> Any:
    return transforms.identity_transform


@_register(constraints.greater_than, constraints.greater_than_eq)
def _to_greater_than(constraint: Any) -> Any:
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_register(constraints.less_than)
def _to_less_than(constraint: Any) -> Any:
    shift = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_register(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    if all(isinstance(bound, (int, float)) for bound in (low, high)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    scale = transforms.AffineTransform(low, high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), scale])


@_register(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints.simplex)
def _biject_to_simplex(constraint: Any) -> Any:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_to_simplex(constraint: Any) -> Any:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _to_lower_cholesky(constraint: Any) -> Any:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
def _to_positive_definite(constraint: Any) -> Any:
    return transforms.PositiveDefiniteTransform()


def _register_parts(registry: ConstraintRegistry) -> None:
    """Constraints made of others: their transforms come from the same registry."""

    @registry.register(constraints.independent)
    def of_independent(constraint: Any) -> Any:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    @registry.register(constraints.cat)
    def of_cat(constraint: Any) -> Any:
        parts = [registry(c) for c in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    @registry.register(constraints.stack)
    def of_stack(constraint: Any) -> Any:
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


for _registry in _BOTH:
    _register_parts(_registry)
