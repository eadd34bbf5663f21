"""Decompositions of creation operators and of draws."""

import math
from typing import Any

from .. import _C
from .._C import Generator, Tensor
from .._functions import iinfo

_ops = _C.op


def logspace(start: Any, end: Any, steps: int, base: float, *, dtype: Any, device: Any) -> Tensor:
    return _powers(start, end, steps, base, dtype or _C.get_default_dtype(), device)


def linspace_tensors(start: Any, end: Any, steps: int, *, dtype: Any, device: Any) -> Tensor:
    made = dtype or _default_of(start, end)
    exact = made if made.is_complex or made.is_floating_point else _C.float64
    first, last = (_end_of(x, made, exact) for x in (start, end))
    if device is None:
        device = next((x.device for x in (start, end) if isinstance(x, Tensor)), None)
    at = _ops("arange")(steps, dtype=exact, device=device)
    step = (last - first) / max(steps - 1, 1)
    late = last - (steps - 1 - at) * step if steps > 1 else first + at
    half = _ops("arange")(steps, device=device) < steps // 2
    return _ops("where")(half, first + at * step, late).to(made)


def logspace_tensors(
    start: Any, end: Any, steps: int, base: float, *, dtype: Any, device: Any
) -> Tensor:
    return _powers(start, end, steps, base, dtype or _default_of(start, end), device)


def _powers(start: Any, end: Any, steps: int, base: float, made: Any, device: Any) -> Tensor:
    exact = _C.complex128 if made.is_complex else _C.float64
    first, last = (_end_of(x, made, exact) for x in (start, end))
    exponents = _ops("linspace")(first, last, steps, dtype=exact, device=device)
    return _ops("pow")(base, exponents).to(made)


def _default_of(*ends: Any) -> Any:
    """The default dtype, or that of complex numbers where an end is one."""
    default = _C.get_default_dtype()
    is_complex = any(
        x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in ends
    )
    return default.to_complex() if is_complex else default


def _end_of(x: Any, made: Any, exact: Any) -> Any:
    """An end as the dtype of the result has it: integers cut off its fraction."""
    if isinstance(x, Tensor):
        return x.to(made).to(exact)
    return x if made.is_complex or made.is_floating_point else int(x)


def random_complex(like: Tensor, normal: bool, *, generator: Generator | None) -> Tensor:
    if normal:
        return _complex_parts(like, "normal", 0.0, math.sqrt(0.5), generator)
    return _complex_parts(like, "uniform", 0.0, 1.0, generator)


def complex_uniform(
    input: Tensor, low: float, high: float, *, generator: Generator | None
) -> Tensor:
    return _complex_parts(input, "uniform", low, high, generator)


def complex_normal(
    input: Tensor, mean: float, std: float, *, generator: Generator | None
) -> Tensor:
    return _complex_parts(input, "normal", 0.0, std * math.sqrt(0.5), generator) + mean


def _complex_parts(
    like: Tensor, draw: str, a: float, b: float, generator: Generator | None
) -> Tensor:
    """Complex numbers whose parts are drawn by the operator `draw`, which devices have for real dtypes only."""
    if not like.is_complex():
        raise _C.NotImplementedForError(
            f"{draw}: there is no kernel for {like.dtype} on {like.device}"
        )
    part = _C.float64 if like.dtype is _C.complex128 else _C.float32
    drawn = _ops(draw)(_places([*like.shape, 2], part, like.device), a, b, generator=generator)
    return _ops("view_as_complex")(drawn).to(like.dtype)


def log_normal(input: Tensor, mean: float, std: float, *, generator: Generator | None) -> Tensor:
    places = _places(list(input.shape), _wide(input.dtype), input.device)
    return _ops("normal")(places, mean, std, generator=generator).exp().to(input.dtype)


def cauchy(input: Tensor, median: float, sigma: float, *, generator: Generator | None) -> Tensor:
    places = _places(list(input.shape), _wide(input.dtype), input.device)
    drawn = _ops("uniform")(places, generator=generator)  # the distribution function, inverted
    return (((drawn - 0.5) * math.pi).tan() * sigma + median).to(input.dtype)


def geometric(input: Tensor, p: float, *, generator: Generator | None) -> Tensor:
    drawn = _ops("uniform")(
        _places(list(input.shape), _C.float64, input.device), generator=generator
    )
    trials = ((-drawn).log1p() / math.log1p(-p)).floor() + 1  # the distribution function, inverted
    most = None if input.is_floating_point() else iinfo(input.dtype).max
    return trials.clamp(max=most).to(input.dtype) if most else trials.to(input.dtype)


def _wide(dtype: Any) -> Any:
    """Where numbers of a floating dtype are computed before they are rounded to it."""
    return dtype if dtype is _C.float64 else _C.float32


def _places(size: list[int], dtype: Any, device: Any) -> Tensor:
    """A shape to draw in, of one element."""
    return _ops("empty")([], dtype=dtype, device=device).expand(size)


def randint(
    high: int, size: list[int], *, generator: Generator | None, dtype: Any, device: Any
) -> Tensor:
    return randint_low(0, high, size, generator=generator, dtype=dtype, device=device)


def randint_low(
    low: int,
    high: int,
    size: list[int],
    *,
    generator: Generator | None,
    dtype: Any,
    device: Any,
) -> Tensor:
    dtype = dtype or _C.int64
    _check_bounds("randint", low, high, dtype)
    return _ops("random")(_places(size, dtype, device), low, high, generator=generator)


def randint_like(
    input: Tensor, high: int, *, generator: Generator | None, dtype: Any, device: Any
) -> Tensor:
    return randint_like_low(input, 0, high, generator=generator, dtype=dtype, device=device)


def randint_like_low(
    input: Tensor, low: int, high: int, *, generator: Generator | None, dtype: Any, device: Any
) -> Tensor:
    _check_bounds("randint_like", low, high, dtype or input.dtype)
    empty = _ops("empty_like")(input, dtype=dtype, device=device)
    return _ops("random")(empty, low, high, generator=generator)


def _check_bounds(op: str, low: int, high: int, dtype: Any) -> None:
    if low >= high:
        raise _C.ArgumentError(f"{op}: expected low < high, got low={low}, high={high}")
    if dtype.is_floating_point or dtype.is_complex:
        return
    least, most = (0, 1) if dtype is _C.bool else (iinfo(dtype).min, iinfo(dtype).max)
    if low < least or high - 1 > most:
        raise _C.ArgumentError(f"{op}: {dtype} holds {least} to {most}, got low={low}, high={high}")


def normal(mean: Any, std: Any, *, generator: Generator | None) -> Tensor:
    like = mean if isinstance(mean, Tensor) else std
    if not like.is_floating_point() and not like.is_complex():
        raise _C.DTypeError(f"normal: expected a floating dtype, got {like.dtype}")
    if not isinstance(std, Tensor):
        _check_std(std)
    elif std.is_complex():
        raise _C.ArgumentError("normal expects standard deviation to be non-complex")
    shape = (mean + std).shape
    noise = _ops("normal")(_places(list(shape), like.dtype, like.device), generator=generator)
    return (noise * std + mean).to(like.dtype)


def normal_sized(
    mean: float,
    std: float,
    size: list[int],
    *,
    generator: Generator | None,
    dtype: Any,
    device: Any,
) -> Tensor:
    _check_std(std)
    return _ops("normal")(_places(size, dtype, device), mean, std, generator=generator)


def _check_std(std: float) -> None:
    if not std >= 0:
        raise _C.ArgumentError(f"normal: std must not be negative, got {std}")


def assert_all(condition: Tensor, message: str) -> Tensor:
    if not bool(condition.all()):
        raise _C.ArgumentError(message)
    return condition.clone()


def _edges_reached(edges: Tensor, draws: Tensor) -> Tensor:
    """How many of the ascending edges of its row each draw has reached, at most all but one."""
    last = edges.size(1) - 1
    reached = _ops("zeros_like")(draws, dtype=_C.int64)
    step = 1 << (edges.size(1).bit_length() - 1)
    while step:  # beyond the last edge only where that is reached
        at = (reached + (step - 1)).clamp(max=last)
        reached = reached + (edges.gather(1, at) <= draws) * step
        step //= 2
    return reached.clamp(max=last)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool, *, generator: Generator | None
) -> Tensor:
    if not input.is_floating_point():
        raise _C.DTypeError(f"multinomial: expected a floating dtype, got {input.dtype}")
    if input.ndim not in (1, 2):
        raise _C.ArgumentError(
            f"multinomial: expected 1 or 2 dimensions, got shape {tuple(input.shape)}"
        )
    weights = input if input.ndim == 2 else input.unsqueeze(0)
    categories = weights.size(1)
    if num_samples <= 0:
        raise _C.ArgumentError(f"multinomial: num_samples must be positive, got {num_samples}")
    if not replacement and num_samples > categories:
        raise _C.ArgumentError(
            f"multinomial: {num_samples} samples of {categories} categories need replacement=True"
        )
    require = _ops("assert_all")
    valid = _ops("isfinite")(weights) & (weights >= 0)
    require(valid, "multinomial: weights must be finite and not negative")
    require(weights.sum(1) > 0, "multinomial: the weights of each row need a positive sum")
    draw = {"generator": generator, "dtype": _C.float64, "device": input.device}
    if replacement:
        edges = (weights / weights.sum(1, True)).double().cumsum(1)
        draws = _ops("rand")(weights.size(0), num_samples, **draw)
        picked = _edges_reached(edges, draws)
    else:  # the largest of u ** (1 / w): Efraimidis and Spirakis 2006
        require(
            (weights > 0).sum(1) >= num_samples,
            "multinomial: fewer categories with positive weight than samples; use replacement=True",
        )
        noise = _ops("rand")(*weights.shape, **draw)
        keys = _ops("where")(weights > 0, noise.log() / weights.double(), float("-inf"))
        picked = keys.argsort(1, True)[:, :num_samples].contiguous()
    return picked if input.ndim == 2 else picked[0]
