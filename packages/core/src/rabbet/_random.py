"""Random numbers: seeds, generators, and tensors drawn from distributions."""

from collections.abc import Sequence
from typing import Any

from . import _C
from ._C import Generator, Tensor

__all__ = [
    "bernoulli", "get_rng_state", "initial_seed", "manual_seed", "multinomial", "normal", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "seed", "set_rng_state",
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


def _sizes(size: tuple[Any, ...]) -> Sequence[int]:
    return size[0] if len(size) == 1 and not isinstance(size[0], int) else size


def _drawn(
    op: str,
    size: Any,
    args: tuple[Any, ...],
    generator: Any,
    dtype: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    empty = _ops("empty")(size, dtype=dtype, device=device)
    # A transform may want a draw for each of many examples, which one tensor cannot hold.
    name = op.removesuffix("_") if _C.transform_depth() else op
    made = _ops(name)(empty, *args, generator=generator)
    if requires_grad:
        made.requires_grad = True
    return made


def rand(
    *size: Any,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform on [0, 1)."""
    return _drawn("uniform_", _sizes(size), (), generator, dtype, device, requires_grad)


def randn(
    *size: Any,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal."""
    return _drawn("normal_", _sizes(size), (), generator, dtype, device, requires_grad)


def rand_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None
) -> Tensor:
    """Uniform on [0, 1) in the shape of `input`."""
    drawn = _drawn(
        "uniform_", input.shape, (), None, dtype or input.dtype, device or input.device, False
    )
    return _laid_out(drawn, input, memory_format)


def randn_like(
    input: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None
) -> Tensor:
    """Standard normal in the shape of `input`."""
    drawn = _drawn(
        "normal_", input.shape, (), None, dtype or input.dtype, device or input.device, False
    )
    return _laid_out(drawn, input, memory_format)


def _laid_out(drawn: Tensor, like: Tensor, memory_format: Any) -> Tensor:
    """`drawn` in a memory format, by default in that of `like`."""
    if memory_format is None and like.is_contiguous():
        return drawn
    out = _ops("empty_like")(
        like, dtype=drawn.dtype, device=drawn.device, memory_format=memory_format
    )
    return out.copy_(drawn)


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Integers from [low, high); randint(high, size) starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if not isinstance(high, int) or not isinstance(size, (tuple, list)):
        raise TypeError("randint: expected randint(low, high, size) or randint(high, size)")
    if high <= low:
        raise RuntimeError(f"randint: expected low < high, got low={low}, high={high}")
    empty = _ops("empty")(size, dtype=dtype or _C.int64, device=device)
    return _ops("random")(empty, low, high, generator=generator)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: Any = None,
    memory_format: Any = None,
) -> Tensor:
    """Integers from [low, high) in the shape of `input`."""
    bounds = (0, low) if high is None else (low, high)
    drawn = randint(*bounds, tuple(input.shape), dtype=dtype or input.dtype, device=input.device)
    return _laid_out(drawn, input, memory_format)


def randperm(n: int, *, generator: Any = None, dtype: Any = None, device: Any = None) -> Tensor:
    """A random permutation of 0 .. n - 1."""
    return _ops("randperm")(n, dtype=dtype, device=device, generator=generator)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Normal numbers with the given means and standard deviations, numbers (then with `size`) or tensors."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        shape = (mean + std).shape
        first = mean if isinstance(mean, Tensor) else std
        noise = _drawn("normal_", shape, (), generator, first.dtype, first.device, False)
        return noise * std + mean
    if size is None:
        raise TypeError("normal: size is needed when mean and std are numbers")
    return _drawn("normal_", size, (float(mean), float(std)), generator, dtype, device, False)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """0 or 1 with the probabilities in `input`, or all with probability `p`."""
    if p is not None:
        return _ops("bernoulli_")(_ops("empty_like")(input), p, generator=generator)
    if not input.is_floating_point():
        raise _C.DTypeError(
            f"bernoulli: expected a floating tensor of probabilities, got {input.dtype}"
        )
    return _ops("bernoulli.tensor")(input, input, generator=generator)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Indices drawn from each row with probabilities in proportion to `input` (rows, categories).

    Raises:
        RuntimeError: for negative or all-zero weights, or too few categories without replacement.
    """
    weights = input if input.ndim == 2 else input.unsqueeze(0)
    if input.ndim not in (1, 2) or num_samples <= 0:
        raise RuntimeError("multinomial: expected 1 or 2 dimensions and num_samples > 0")
    if bool((weights < 0).any()) or bool((weights.sum(1) <= 0).any()):
        raise RuntimeError(
            "multinomial: weights must not be negative, and each row needs a positive sum"
        )
    if not replacement and int((weights > 0).sum(1).min()) < num_samples:
        raise RuntimeError(
            "multinomial: fewer categories with positive weight than samples; use replacement=True"
        )
    if replacement:
        edges = (weights / weights.sum(1, True)).double().cumsum(1)
        draws = rand(weights.size(0), num_samples, generator=generator, dtype=_C.float64)
        picked = (draws.unsqueeze(2) >= edges.unsqueeze(1)).sum(2).clamp(max=weights.size(1) - 1)
    else:  # the largest of u ** (1 / w): Efraimidis and Spirakis 2006
        noise = rand(*weights.shape, generator=generator, dtype=_C.float64)
        keys = _ops("where")(weights > 0, noise.log() / weights.double(), float("-inf"))
        picked = keys.argsort(1, True)[:, :num_samples]
    return picked if input.ndim == 2 else picked[0]
