"""Random numbers: seeds, generators, and tensors drawn from distributions."""

from typing import Any

from . import _C, _overriding
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
        kind = [x for x in (mean, std) if isinstance(x, Tensor)]
        name = (
            "normal.tensors"
            if len(kind) == 2
            else "normal.means"
            if isinstance(mean, Tensor)
            else "normal.stds"
        )
        return _ops(name)(mean, std, generator=generator, out=out)
    if size is None:
        raise TypeError("normal: size is needed when mean and std are numbers")
    return _ops("normal.sized")(
        mean,
        std,
        size,
        generator=generator,
        dtype=dtype,
        device="cpu" if device is None else device,  # PyTorch's does not follow the default device
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


_overriding.functions(globals(), ["bernoulli", "normal"])
