"""Parts that resizing and sampling at points share."""

from ._C import Tensor

KEYS = -0.75  # Keys' parameter of cubic interpolation (Keys 1981)


def near(d: Tensor, a: float = KEYS) -> Tensor:
    """Keys' cubic kernel with the parameter `a` at distances of at most 1."""
    return ((a + 2) * d - (a + 3)) * d * d + 1


def far(d: Tensor, a: float = KEYS) -> Tensor:
    """The same kernel at distances between 1 and 2."""
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def along(values: Tensor, dim: int, ndim: int) -> Tensor:
    """`values`, a line, as a tensor of `ndim` dimensions that lies along `dim`."""
    return values.reshape([-1 if d == dim else 1 for d in range(ndim)])
