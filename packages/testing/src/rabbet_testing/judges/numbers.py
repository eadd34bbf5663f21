"""Random numbers of a device beside those of the CPU: one seed gives the same ones everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rabbet
from rabbet import _C

from ..compare import assert_close
from .gradients import offered

Draw = Callable[[str, Any, Any], Any]  # device, dtype, generator

SIZES = ((1,), (7,), (5, 201))
DRAWS: dict[str, Draw] = {
    "uniform": lambda d, t, g: [_at(s, t, d).uniform_(-1, 3, generator=g) for s in SIZES],
    "normal": lambda d, t, g: [_at(s, t, d).normal_(2, 0.5, generator=g) for s in SIZES],
    "exponential": lambda d, t, g: [_at(s, t, d).exponential_(2.0, generator=g) for s in SIZES],
    "bernoulli": lambda d, t, g: [_at(s, t, d).bernoulli_(0.3, generator=g) for s in SIZES],
    "strided": lambda d, t, g: [_at((6, 5), t, d).t()[1:, ::2].uniform_(0, 1, generator=g)],
    "randint": lambda d, t, g: [rabbet.randint(-5, 1 << 40, (33,), device=d, generator=g),
                                rabbet.randint(0, 7, (5, 7), device=d, generator=g)],
    "randperm": lambda d, t, g: [rabbet.randperm(n, device=d, generator=g) for n in (1, 100)],
    "probabilities": lambda d, t, g: [rabbet.bernoulli(rabbet.full((99,), 0.25, dtype=t).to(d), generator=g)],
}  # fmt: skip
EXACT = ("bernoulli", "randint", "randperm", "probabilities")
ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-12}


def _at(shape: tuple[int, ...], dtype: Any, device: str) -> Any:
    return rabbet.empty(shape, dtype=dtype, device=device)


def generator_of(device: str) -> Any:
    """The default generator of a device."""
    return _C.default_generator(rabbet.device(device))


def judge_seed(what: str, dtype: str, device: str) -> None:
    """Draw after draw from one seed, with the default generator and with one of one's own."""
    kind = getattr(rabbet, dtype)
    close = (
        {"rtol": 0.0, "atol": 0.0}
        if what in EXACT
        else {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]}
    )
    for own in (False, True):
        found = []
        for d in ("cpu", device):
            rabbet.manual_seed(5)
            given = rabbet.Generator(device=d).manual_seed(11) if own else None
            with offered(f"random numbers ({what})"):
                drawn = [*DRAWS[what](d, kind, given), *DRAWS[what](d, kind, given)]
            found.append((drawn, (given or generator_of(d)).get_state().tolist()))
        (here, state), (there, other) = found
        for k, (a, b) in enumerate(zip(there, here, strict=True)):
            message = f"{what} in {dtype} on {device}, draw {k}: not the numbers of Philox that the CPU has"
            assert_close(
                a.cpu().to(kind) if a.is_floating_point() else a.cpu(), b, message=message, **close
            )
        assert other == state, (
            f"{what} on {device}: the generator has counted {other[-8:]}, the CPU's {state[-8:]}"
        )


def judge_state(device: str) -> None:
    """A state that is put back gives the same numbers again."""
    with offered("random numbers"):
        generator = generator_of(device)
        rabbet.rand(13, device=device)
        state = generator.get_state()
        first = rabbet.rand(100, device=device).cpu().tolist()
        second = rabbet.rand(100, device=device).cpu().tolist()
        generator.set_state(state)
        again = rabbet.rand(100, device=device).cpu().tolist()
    assert again == first, f"{device}: the state of the generator does not bring its numbers back"
    assert second != first, f"{device}: the generator repeats itself"
