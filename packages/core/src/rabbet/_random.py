"""Random numbers: seeds, generators, and tensors drawn from distributions."""

import operator
import warnings
from typing import Any

from . import _C, _functions, _overriding
from ._C import Generator, Tensor

__all__ = [
    "bernoulli", "get_rng_state", "initial_seed", "manual_seed", "normal", "seed", "set_rng_state",
]  # fmt: skip

_ops = _C.op


def manual_seed(seed: int) -> Generator:
    """Seed the generators of all devices; returns the CPU's."""
    if not -(2**63) <= seed < 2**64:
        raise RuntimeError(f"manual_seed: the seed must fit 64 bits, got {seed}")
    _C.seed_all(seed % 2**64)
    return _C.default_generator("cpu")


def seed() -> int:
    """Seed all generators with a number from the operating system and return it."""
    import os

    value = int.from_bytes(os.urandom(8), "little")
    manual_seed(value)
    return value


def initial_seed() -> int:
    """The seed of the CPU's generator."""
    return _C.default_generator("cpu").initial_seed()


def get_rng_state() -> Tensor:
    """State of the CPU's generator, a uint8 tensor."""
    return _C.default_generator("cpu").get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the state of the CPU's generator."""
    _C.default_generator("cpu").set_state(new_state)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Normal numbers with the given means and standard deviations: numbers (then with `size`) or tensors."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        given = [
            k for k, x in (("size", size), ("dtype", dtype), ("device", device)) if x is not None
        ]
        if given:
            raise TypeError(f"normal: {given[0]} follows from the tensors, it cannot be given")
        tensors = [k for k, x in (("means", mean), ("stds", std)) if isinstance(x, Tensor)]
        overload = tensors[0] if len(tensors) == 1 else "tensors"
        return _ops(f"normal.{overload}")(mean, std, generator=generator, out=out)
    if size is None:
        raise TypeError("normal: size is needed when mean and std are numbers")
    return _ops("normal.sized")(
        mean,
        std,
        size,
        generator=generator,
        dtype=dtype,
        device="cpu" if device is None else device,  # PyTorch's does not follow the default device
        layout=layout,
        pin_memory=pin_memory,
        requires_grad=requires_grad,
        out=out,
    )


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Any = None, out: Tensor | None = None
) -> Tensor:
    """0 or 1 with the probabilities in `input`, or all with probability `p`."""
    if p is not None:
        return _ops("bernoulli_")(_ops("empty_like")(input), p, generator=generator)
    if not input.is_floating_point():
        raise _C.DTypeError(
            f"bernoulli: expected a floating tensor of probabilities, got {input.dtype}"
        )
    return _ops("bernoulli.tensor")(input, input, generator=generator, out=out)


def random_(
    self: Tensor, *bounds: int | None, generator: Generator | None = None, **named: Any
) -> Tensor:
    """Fill with integers: random_(), random_(to) from [0, to), or random_(from, to) from [from, to).

    Without bounds all numbers from 0 to the largest that an integer dtype holds, or up to which a floating dtype
    holds all; with `to` None the numbers from `from` to that one.

    Raises:
        TypeError: for bounds that are no integers.
        RuntimeError: if the range is empty, or one of its ends does not fit the dtype.
    """
    names = ("to",) if len(bounds) + len(named) == 1 else ("from", "to")
    given = dict(zip(names, bounds)) | named
    if len(bounds) > 2 or not set(given) <= set(names) or len(given) < len(bounds) + len(named):
        raise TypeError(
            f"random_(): expected random_(), random_(to) or random_(from, to), got {len(bounds)} bounds by position "
            f"and {sorted(named)} by keyword"
        )
    first, last = given.get("from", 0), given.get("to")
    filled: Tensor = _ops("random_")(self, *_bounds(self.dtype, first, last), generator=generator)
    return filled


def _bounds(dtype: Any, first: int, last: int | None) -> tuple[int, int]:
    """The ends of the range that `random_` draws from, checked against the dtype."""
    for name, bound in (("from", first), ("to", last)):
        if bound is not None and not hasattr(bound, "__index__"):
            raise TypeError(f"random_(): argument '{name}' must be int, not {type(bound).__name__}")
    exact = None  # up to where a floating dtype holds all integers
    if dtype.is_complex:
        raise _C.NotImplementedForError(f"random_ does not support {dtype}")
    if dtype.is_floating_point:
        limits = _functions.finfo(dtype)
        exact = int(2 / limits.eps)
        least, most = -int(limits.max), int(limits.max)
    elif dtype is _C.bool:
        least, most = 0, 1
    else:
        info = _functions.iinfo(dtype)
        least, most = info.min, info.max
    first = operator.index(first)
    # The end is not drawn, and must fit an int64.
    last = min((exact or most) + 1, 2**63 - 1) if last is None else operator.index(last)
    if first >= last:
        raise _C.ArgumentError(
            f"random_ expects 'from' to be less than 'to', but got from={first} >= to={last}"
        )
    for name, bound in (("from", first), ("to - 1", last - 1)):
        if not least <= bound <= most:
            raise _C.ArgumentError(f"{name} is out of bounds for {dtype}")
        if exact is not None and abs(bound) > exact:
            warnings.warn(
                f"{name} is out of bounds [-(2^{exact.bit_length() - 1}), 2^{exact.bit_length() - 1}]. Due to precision "
                f"limitations {dtype} can support discrete uniform distribution only within this range.",
                stacklevel=4,
            )
    return first, last


_overriding.functions(globals(), [bernoulli.__name__, normal.__name__])
