"""Filling parameters in place: the usual starting values. Each function returns its tensor."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import rabbet
from rabbet import Generator, Tensor, _overriding
from rabbet.autograd import no_grad

from ._orthogonal_matrices import orthonormal

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which a layer's weights grow to make up for a nonlinearity.

    Args:
        nonlinearity: 'linear', 'conv2d', 'sigmoid', 'tanh', 'relu', 'leaky_relu', 'selu', ...
        param: the negative slope of 'leaky_relu', 0.01 if None.
    """
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with values uniform on [a, b)."""
    if a > b:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}"
        )
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normal values."""
    if std < 0:
        raise RuntimeError(f"normal_ expects std >= 0.0, but found std {std}")
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normal values that lie in [a, b]."""
    if std <= 0 or a >= b:
        raise ValueError(
            f"trunc_normal_: expected std > 0 and a < b, got std={std}, a={a} and b={b}"
        )
    if mean < a - 7 * std or mean > b + 7 * std:
        warnings.warn(
            "trunc_normal_: mean is more than 7 std from [a, b], where float64 cannot tell the "
            "probabilities of values apart",
            stacklevel=2,
        )
    low, high = (math.erf((edge - mean) / (std * math.sqrt(2.0))) for edge in (a, b))
    with no_grad():
        p = rabbet.empty(tensor.shape, dtype=rabbet.float64, device=tensor.device)
        p.uniform_(low, high, generator=generator)
        values = _erfinv(p) * (std * math.sqrt(2.0)) + mean
        return tensor.copy_(rabbet.clamp(values, a, b))


def _erfinv(p: Tensor) -> Tensor:
    """Inverse error function of float64: Winitzki's approximation (2008), then Newton's method."""
    p = rabbet.clamp(p, -1 + 1e-15, 1 - 1e-15)
    log = rabbet.log1p(-p * p)
    half = 2 / (math.pi * 0.147) + log / 2
    x = rabbet.sign(p) * rabbet.sqrt(rabbet.sqrt(half * half - log / 0.147) - half)
    for _ in range(3):
        slope = rabbet.exp(x * x) * (math.sqrt(math.pi) / 2)
        x = x - (rabbet.erf(x) - p) * slope
    return x


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with 1 on the diagonal and 0 elsewhere."""
    if tensor.ndim != 2:
        raise ValueError(
            f"eye_: Only tensors with 2 dimensions are supported, got shape {tuple(tensor.shape)}"
        )
    with no_grad():
        return tensor.copy_(rabbet.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight so that it passes on as many input channels as it can."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError(
            f"dirac_: Only tensors with 3, 4, or 5 dimensions are supported, got {tensor.ndim}"
        )
    out = tensor.shape[0]
    if groups < 1 or out % groups:
        raise ValueError(f"dim 0 must be divisible by groups, got {out} and {groups}")
    per_group = out // groups
    center = tuple(n // 2 for n in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for d in range(min(per_group, tensor.shape[1])):
                tensor[(group * per_group + d, d, *center)] = 1.0
    return tensor


def _fans(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, "
            f"got shape {tuple(tensor.shape)}"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


_calculate_fan_in_and_fan_out = _fans


def _fan(tensor: Tensor, mode: str) -> int:
    fans = dict(zip(("fan_in", "fan_out"), _fans(tensor), strict=True))
    if mode.lower() not in fans:
        raise ValueError(f"Mode {mode} not supported, please use one of {list(fans)}")
    return fans[mode.lower()]


_calculate_correct_fan = _fan


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with uniform values of variance `2 gain^2 / (fan_in + fan_out)` (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal values of variance `2 gain^2 / (fan_in + fan_out)` (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_fans(tensor))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with uniform values that keep the variance through a nonlinearity (He et al. 2015).

    Args:
        tensor: a weight, (out, in, *).
        a: the negative slope of 'leaky_relu'.
        mode: 'fan_in' keeps the variance forward, 'fan_out' backward.
        nonlinearity: as in `calculate_gain`.
        generator: source of random numbers.
    """
    if _empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normal values that keep the variance through a nonlinearity; as `kaiming_uniform_`."""
    if _empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def _empty(tensor: Tensor) -> bool:
    if 0 not in tensor.shape:
        return False
    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix, later dimensions joined into one (Saxe et al. 2013)."""
    if tensor.ndim < 2:
        raise ValueError(
            f"Only tensors with 2 or more dimensions are supported, got shape {tuple(tensor.shape)}"
        )
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with no_grad():
        flat = rabbet.empty([rows, cols], dtype=tensor.dtype, device=tensor.device)
        flat.normal_(0, 1, generator=generator)
        # That R's diagonal is positive makes the distribution uniform over orthogonal matrices.
        q = orthonormal(flat.T).T if rows < cols else orthonormal(flat)
        return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Fill a matrix with normal values and set a part `sparsity` of each column to 0."""
    if tensor.ndim != 2:
        raise ValueError(
            f"sparse_: Only tensors with 2 dimensions are supported, got {tuple(tensor.shape)}"
        )
    zeros = math.ceil(sparsity * tensor.shape[0])
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(tensor.shape[1]):
            keys = rabbet.empty([tensor.shape[0]], device=tensor.device)
            order = rabbet.argsort(keys.uniform_(generator=generator))
            tensor[order[:zeros], col] = 0
    return tensor


def _former(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`fill` under its former name, without the underscore."""
    name = fill.__name__[:-1]

    @functools.wraps(fill)
    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{fill.__name__}`.",
            FutureWarning,
            stacklevel=2,
        )
        return fill(*args, **kwargs)

    deprecated.__name__ = deprecated.__qualname__ = name
    return deprecated


uniform = _former(uniform_)
normal = _former(normal_)
constant = _former(constant_)
eye = _former(eye_)
dirac = _former(dirac_)
xavier_uniform = _former(xavier_uniform_)
xavier_normal = _former(xavier_normal_)
kaiming_uniform = _former(kaiming_uniform_)
kaiming_normal = _former(kaiming_normal_)
orthogonal = _former(orthogonal_)
sparse = _former(sparse_)

_overriding.functions(globals(), [name for name in globals() if name.endswith("_")])

# Under the names that packages import; every function here works without recording.
_no_grad_uniform_ = uniform_
_no_grad_normal_ = normal_
