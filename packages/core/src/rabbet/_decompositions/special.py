"""Decompositions of special functions."""

import math

from .. import _C
from .._C import Tensor

_ops = _C.op


def polygamma(n: int, input: Tensor) -> Tensor:
    """Of positive numbers by the zeta function; the first derivative below 0 by Euler's reflection."""
    if n == 0:
        return _ops("digamma")(input)
    where = _ops("where")
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    above = x > 0
    zeta = _ops("hurwitz_zeta")
    if n == 1:
        turn = x - x.detach().round()
        sine = where(above, 1.0, (turn * math.pi).sin())
        slope = math.pi / sine
        reflected = slope * slope - zeta(where(above, 1.0, 1 - x), 2)
        return where(above, zeta(where(above, x, 1.0), 2), reflected)
    # 171! is larger than the largest float64.
    factor = (float(math.factorial(n)) if n <= 170 else math.inf) * (1 if n % 2 else -1)
    beyond = where(x == 0, factor * math.inf, math.nan)
    return where(above, factor * zeta(where(above, x, 1.0), n + 1), beyond)


def mvlgamma(input: Tensor, p: int) -> Tensor:
    x = input if input.is_floating_point() else input.to(_C.get_default_dtype())
    steps = _ops("arange")(p, dtype=x.dtype, device=x.device) * 0.5
    return (x.unsqueeze(-1) - steps).lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)
