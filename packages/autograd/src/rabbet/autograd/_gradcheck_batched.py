"""gradcheck: derivatives of several directions at once, by vmap, against a loop."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from . import forward_ad
from ._gradcheck_errors import GradcheckError
from ._roots import grad

_HINT = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation. Pass `{}=False` to leave this check "
    "out; to make it pass, write the derivative with operators that vmap can batch."
)


def check_batched_backward(output: Tensor, inputs: Sequence[Tensor], number: int) -> None:
    """Backward of two cotangents at once."""

    def products(cotangent: Tensor) -> tuple[Tensor, ...]:
        found = grad(output, inputs, cotangent, retain_graph=True, allow_unused=True)
        return tuple(
            rabbet.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)
        )

    cotangents = [_random_like(output) for _ in range(2)]
    _compare(products, cotangents, number, "check_batched_grad")


def check_batched_forward(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Forward mode along two directions of each input at once."""
    plain = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    for i, x in enumerate(inputs):
        if not (isinstance(x, Tensor) and x.requires_grad):
            continue

        def tangents(direction: Tensor, which: int = i) -> tuple[Tensor, ...]:
            with forward_ad.dual_level():
                given = list(plain)
                given[which] = forward_ad.make_dual(plain[which], direction)
                result = func(*given)
                found = []
                for o in result if isinstance(result, (tuple, list)) else (result,):
                    if isinstance(o, Tensor):
                        primal, tangent = forward_ad.unpack_dual(o)
                        found.append(rabbet.zeros_like(primal) if tangent is None else tangent)
            return tuple(found)

        directions = [_random_like(x) for _ in range(2)]
        _compare(tangents, directions, i, "check_batched_forward_grad")


def _random_like(x: Tensor) -> Tensor:
    return rabbet.testing.make_tensor(x.shape, dtype=x.dtype, device=x.device, low=-1, high=1)


def _compare(
    f: Callable[[Tensor], tuple[Tensor, ...]], directions: list[Tensor], number: int, option: str
) -> None:
    expected = [rabbet.stack(list(parts)) for parts in zip(*map(f, directions), strict=True)]
    try:
        with (
            warnings.catch_warnings()
        ):  # an operator that runs example by example is no failure here
            warnings.simplefilter("ignore", UserWarning)
            got = rabbet.vmap(f)(rabbet.stack(directions))
    except RuntimeError as error:
        raise GradcheckError(
            f"While computing batched gradients, got: {error}\n\n{_HINT.format(option)}"
        ) from error
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        if not rabbet.allclose(g, e):
            raise GradcheckError(
                f"For output {number} and input {i}:\n\n{_HINT.format(option)}\n\nGot:\n{g}\n\nExpected:\n{e}"
            )
