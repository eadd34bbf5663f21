"""Random counts, all elements at a time: Poisson and binomial numbers."""

import math
from typing import Any

import rabbet

from . import _C
from ._C import Generator, Tensor

__all__ = ["binomial", "poisson"]


def _require_floating(op: str, name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: argument '{name}' must be Tensor, not {type(x).__name__}")
    if not x.is_floating_point():
        raise _C.DTypeError(f"{op}: expected a floating '{name}', got {x.dtype}")


def _uniform(like: Tensor, generator: Generator | None) -> Tensor:
    return rabbet.empty_like(like).uniform_(generator=generator)


def _by_inversion(
    probability: Tensor, ratio: Any, steps: Tensor, generator: Generator | None
) -> Tensor:
    """Counts below `steps` of which 0 has `probability`, and k + 1 has ratio(k) times that of k."""
    u = _uniform(probability, generator)
    count = rabbet.zeros_like(probability)
    k = 0
    above = u > probability
    while above.any():
        count = count + above.type_as(count)
        u = u - probability
        probability = probability * ratio(k)
        k += 1
        above = above & (u > probability) & (k < steps)
    return count


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the Poisson distribution with the rates in `input`: below 10 by inversion, else Hoermann's PTRS (1993).

    Raises:
        TypeError: if the rates are not floating.
        RuntimeError: if one is negative or NaN.
    """
    _require_floating("poisson", "input", input)
    if not (input >= 0).all():
        raise RuntimeError("poisson: invalid Poisson rate, expected rate to be non-negative")
    wide = input.detach().double()
    small = wide < 10
    low = rabbet.where(small, wide, 0.0)
    endless = rabbet.full_like(low, 1000.0)
    few = _by_inversion((-low).exp(), lambda k: low / (k + 1), endless, generator)
    mu = rabbet.where(small, 10.0, wide)
    b = 0.931 + 2.53 * mu.sqrt()
    a = -0.059 + 0.02483 * b
    log_alpha = (1.1239 + 1.1328 / (b - 3.4)).log()
    log_mu = mu.log()

    def log_weight(k: Tensor) -> Tensor:
        return k * log_mu - mu - (k + 1).lgamma()

    many = _transformed_rejection(
        a,
        b,
        mu + 0.43,
        0.9277 - 3.6224 / (b - 2),
        log_alpha,
        log_weight,
        rabbet.full_like(mu, math.inf),
        small,
        generator,
    )
    return rabbet.where(small, few, many).to(input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of successes among `count` trials: of small means by inversion, else Hoermann's BTRS (1993).

    Counts are rounded down and probabilities limited to [0, 1]; a NaN gives NaN.

    Raises:
        TypeError: if an argument is not floating, or their dtypes differ.
    """
    _require_floating("binomial", "count", count)
    _require_floating("binomial", "prob", prob)
    if count.dtype != prob.dtype:
        raise _C.DTypeError(f"binomial: 'count' has dtype {count.dtype}, 'prob' {prob.dtype}")
    n, p = rabbet.broadcast_tensors(count.detach().double(), prob.detach().double())
    unknown = n.isnan() | p.isnan()
    n, p = (
        n.floor().clamp(min=0).masked_fill(unknown, 0),
        p.clamp(min=0, max=1).masked_fill(unknown, 0),
    )
    flipped = p > 0.5
    p = rabbet.where(flipped, 1 - p, p)
    small = n * p < 10
    low, odds = rabbet.where(small, n, 0.0), p / (1 - p)
    few = _by_inversion(
        (low * (-p).log1p()).exp(), lambda k: odds * (low - k) / (k + 1), low, generator
    )
    n_many, p_many = rabbet.where(small, 40.0, n), rabbet.where(small, 0.5, p)
    spread = (n_many * p_many * (1 - p_many)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p_many
    log_alpha = ((2.83 + 5.1 / b) * spread).log()
    log_odds = p_many.log() - (-p_many).log1p()
    mode = ((n_many + 1) * p_many).floor()

    def log_ways(k: Tensor) -> Tensor:
        return -(k + 1).lgamma() - (n_many - k + 1).clamp(min=1).lgamma()

    def log_weight(k: Tensor) -> Tensor:
        return log_ways(k) - log_ways(mode) + (k - mode) * log_odds

    many = _transformed_rejection(
        a, b, n_many * p_many + 0.5, 0.92 - 4.2 / b, log_alpha, log_weight, n_many, small, generator
    )
    result = rabbet.where(small, few, many)
    result = rabbet.where(flipped, n - result, result)
    return result.masked_fill(unknown, math.nan).to(count.dtype)


def _transformed_rejection(
    a: Tensor,
    b: Tensor,
    centre: Tensor,
    squeeze: Tensor,
    log_alpha: Tensor,
    log_weight: Any,
    highest: Tensor,
    done: Tensor,
    generator: Generator | None,
) -> Tensor:
    """Hoermann's transformed rejection with squeeze; `log_alpha` belongs to the scale of the weights."""
    result = a - a  # NaN of rates that are not finite
    done = done | result.isnan()
    while not done.all():
        u, v = _uniform(a, generator) - 0.5, 1 - _uniform(a, generator)
        us = 0.5 - u.abs()
        k = ((2 * a / us + b) * u + centre).floor()
        possible = (k >= 0) & (k <= highest)
        k = k.clamp(min=0)
        inside = (us >= 0.07) & (v <= squeeze)
        level = v.log() + log_alpha - (a / (us * us) + b).log()
        fits = possible & (inside | (level <= log_weight(k)))
        result = rabbet.where(~done & fits, k, result)
        done = done | fits
    return result
