"""Private functions of the module `torch` that packages call."""

from collections.abc import Callable
from typing import Any

from .._C import NotImplementedForError, Tensor
from .._settings import is_nonzero

__all__ = ["_assert", "_assert_async", "_check", "_check_index", "_check_not_implemented", "_check_type", "_check_value", "_is_all_true", "_sample_dirichlet", "_standard_gamma"]  # fmt: skip


def _assert(condition: Any, message: str) -> None:
    """A Python assert as a function."""
    assert condition, message


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor to be nonzero") -> None:
    """Raise RuntimeError unless the one element of a tensor is not zero."""
    if not is_nonzero(input):
        raise RuntimeError(assert_msg)


def _raises(error: type[Exception], name: str) -> Callable[..., None]:
    def check(cond: Any, message: Callable[[], Any] | None = None) -> None:
        if not isinstance(cond, bool):
            raise TypeError(f"cond must be a bool, but got {type(cond)}")
        if cond:
            return
        if message is not None and not callable(message):
            raise TypeError("message must be a callable")
        raise error(
            f"{name}: expected cond to be True, got False" if message is None else str(message())
        )

    check.__name__ = check.__qualname__ = name
    check.__doc__ = (
        f"Raise {error.__name__} with the text that `message` gives unless `cond` holds."
    )
    return check


_check = _raises(RuntimeError, "_check")
_check_index = _raises(IndexError, "_check_index")
_check_value = _raises(ValueError, "_check_value")
_check_type = _raises(TypeError, "_check_type")
_check_not_implemented = _raises(NotImplementedError, "_check_not_implemented")


def _is_all_true(input: Tensor) -> Tensor:
    """Whether all elements of a bool tensor are True, as a tensor."""
    return input.all()


def _standard_gamma(self: Tensor, generator: Any = None) -> Tensor:
    """Numbers of Gamma(alpha, 1), differentiable by alpha."""
    return _drawn("gamma_draws", self, generator)


def _sample_dirichlet(self: Tensor, generator: Any = None) -> Tensor:
    """Points of the simplex for concentrations along the last dimension."""
    return _drawn("dirichlet_draws", self, generator)


def _drawn(function: str, alpha: Tensor, generator: Any) -> Tensor:
    from rabbet.distributions import _sampling

    if generator is not None:
        raise NotImplementedForError(f"{function}: only the default generator is supported")
    return getattr(_sampling, function)(alpha)
