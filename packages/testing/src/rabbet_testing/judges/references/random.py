"""Definitions of random numbers: the mapping that rabbet/philox.h promises, from seed 0 on."""

from __future__ import annotations

from typing import Any

import numpy as np

from .definitions import DEFINITIONS, WHOLE, Array, defines


def philox(counters: Array, seed: int = 0) -> Array:
    """Four words for each counter, in a last dimension: Philox-4x32-10."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    at = counters.astype(np.uint64)
    c = [at & low, at >> high, np.zeros_like(at), np.zeros_like(at)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (q >> np.uint64(32)) ^ c[1] ^ key[0],
            q & low,
            (p >> np.uint64(32)) ^ c[3] ^ key[1],
            p & low,
        ]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(c, -1)


def _words(n: int, bits: int) -> Array:
    """A number of 32 or 64 bits for each element."""
    words = philox(np.arange(-(-n // (128 // bits)))).reshape(-1)
    return words[:n] if bits == 32 else (words[0::2] | words[1::2] << np.uint64(32))[:n]


def kept_weights(shape: Any, seed: Array, p: float) -> Array:
    """Which weights (..., L, S) attention keeps: dropout by seeds that broadcast to the leading dimensions."""
    *leading, rows, columns = shape
    i, j = np.ogrid[:rows, :columns]
    tile = i // 16 * -(-columns // 16) + j // 16
    word = i // 8 % 2 * 2 + j // 8 % 2
    tiles = -(-rows // 16) * -(-columns // 16)
    seeds = np.broadcast_to(seed, leading)
    own = [1] * (len(leading) - seed.ndim) + list(seed.shape)
    shared = [n if m == 1 else 1 for n, m in zip(leading, own, strict=True)]
    numbers = np.broadcast_to(np.arange(np.prod(shared, dtype=int)).reshape(shared), leading)
    kept = np.empty(shape, bool)
    for head in np.ndindex(*leading):
        counter = (numbers[head] * tiles + tile) * 64 + i % 8 * 8 + j % 8
        words = np.take_along_axis(philox(counter, int(seeds[head])), word[..., None], -1)[..., 0]
        kept[head] = (words >> np.uint64(8)) * 2.0**-24 < np.float32(1 - p)
    return kept


def _uniform(n: int, dtype_name: str) -> Array:
    if dtype_name == "float64":
        return (_words(n, 64) >> np.uint64(11)) * 2.0**-53
    return (_words(n, 32) >> np.uint64(8)) * 2.0**-24


def _drawn(values: Array, like: Array) -> Array:
    return values.reshape(like.shape)


def _draw_uniform(given: dict[str, Any]) -> Any:
    x, dtype_name = given["input"], given["dtype_name"]
    low, high = given["from"], given["to"]
    if dtype_name in PARTS:
        pairs = _uniform(2 * x.size, PARTS[dtype_name]).reshape(-1, 2)
        return (
            _drawn(low + (high - low) * pairs[:, 0] + 1j * (low + (high - low) * pairs[:, 1]), x),
        )
    return (_drawn(low + (high - low) * _uniform(x.size, dtype_name), x),)


def _draw_integers(given: dict[str, Any]) -> Any:
    x, span = given["input"], given["to"] - given["from"]
    return (
        _drawn(
            (
                given["from"]
                + (_words(x.size, 32) * np.uint64(span) >> np.uint64(32)).astype(np.int64)
            ),
            x,
        ),
    )


@defines("normal")
def _draw_normal(input: Array, mean: float, std: float, dtype_name: str) -> Any:
    if dtype_name in PARTS:
        return mean + std * _normal_numbers(input.shape, dtype_name)
    u = _uniform(input.size + input.size % 2, dtype_name).reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:, 0])), 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)
    return _drawn(mean + std * pairs[: input.size], input)


@defines("bernoulli", "bernoulli.tensor")
def _draw_bernoulli(input: Array, p: Any, dtype_name: str) -> Any:
    return _drawn(_uniform(input.size, dtype_name), input) < p


@defines("exponential")
def _draw_exponential(input: Array, lambd: float, dtype_name: str) -> Any:
    return _drawn(-np.log(1 - _uniform(input.size, dtype_name)) / lambd, input)


@defines("log_normal")
def _draw_log_normal(input: Array, mean: float, std: float, dtype_name: str) -> Any:
    return np.exp(_draw_normal(input, mean, std, dtype_name))


@defines("cauchy")
def _draw_cauchy(input: Array, median: float, sigma: float, dtype_name: str) -> Any:
    return _drawn(median + sigma * np.tan(np.pi * (_uniform(input.size, dtype_name) - 0.5)), input)


@defines("geometric")
def _draw_geometric(input: Array, p: float, dtype_name: str) -> Any:
    u = _uniform(input.size, "float64")
    return _drawn(np.floor(np.log1p(-u) / np.log1p(-p)) + 1, input)


def _normal_numbers(shape: Any, dtype_name: str) -> Array:
    if dtype_name in PARTS:
        pairs = _normal_numbers([*shape, 2], PARTS[dtype_name]) * 0.5**0.5
        return np.asarray(pairs[..., 0] + 1j * pairs[..., 1])
    return np.asarray(_draw_normal(np.empty(shape), 0.0, 1.0, dtype_name))


PARTS = {"complex64": "float32", "complex128": "float64"}


@defines("rand")
def _rand(size: Any, dtype_name: str) -> Any:
    if dtype_name in PARTS:
        pairs = _rand([*size, 2], PARTS[dtype_name])
        return pairs[..., 0] + 1j * pairs[..., 1]
    return _uniform(int(np.prod(size)), dtype_name).reshape(size)


@defines("random_complex")
def _random_complex(like: Array, normal: bool, dtype_name: str) -> Any:
    return (_normal_numbers if normal else _rand)(like.shape, dtype_name)


@defines("rand_like")
def _rand_like(input: Array, dtype_name: str) -> Any:
    return _rand(input.shape, dtype_name)


@defines("randn")
def _randn(size: Any, dtype_name: str) -> Any:
    return _normal_numbers(size, dtype_name)


@defines("randn_like")
def _randn_like(input: Array, dtype_name: str) -> Any:
    return _normal_numbers(input.shape, dtype_name)


def _integers(low: int, high: int, shape: Any) -> Any:
    return _draw_integers({"input": np.empty(shape), "from": low, "to": high})[0]


DEFINITIONS.update(
    {
        "randint": lambda high, size: _integers(0, high, size),
        "randint.low": lambda low, high, size: _integers(low, high, size),
        "randint_like": lambda input, high: _integers(0, high, input.shape),
        "randint_like.low": lambda input, low, high: _integers(low, high, input.shape),
        "normal.means": lambda mean, std, dtype_name: _normal_of(mean, std, dtype_name),
        "normal.stds": lambda mean, std, dtype_name: _normal_of(mean, std, dtype_name),
    }
)


@defines("normal.tensors")
def _normal_of(mean: Any, std: Any, dtype_name: str) -> Any:
    shape = np.broadcast_shapes(np.shape(mean), np.shape(std))
    return mean + std * _normal_numbers(shape, dtype_name)


@defines("normal.sized")
def _normal_sized(mean: float, std: float, size: Any, dtype_name: str) -> Any:
    return mean + std * _normal_numbers(size, dtype_name)


@defines("multinomial")
def _multinomial(input: Array, num_samples: int, replacement: bool) -> Any:
    weights = np.atleast_2d(input)
    if replacement:
        edges = np.cumsum(weights / weights.sum(1, keepdims=True), 1)
        drawn = _uniform(len(weights) * num_samples, "float64").reshape(len(weights), -1)
        picked = (drawn[..., None] >= edges[:, None]).sum(2).clip(max=weights.shape[1] - 1)
    else:
        keys = np.log(_uniform(weights.size, "float64")).reshape(weights.shape) / weights
        picked = np.argsort(-keys, 1)[:, :num_samples]
    return picked.reshape(*input.shape[:-1], num_samples)


@defines("randperm")
def _draw_permutation(n: int) -> Any:
    order, words = np.arange(n), _words(n, 64)
    for k in range(n - 1):
        place = n - 1 - k
        at = int(words[k]) * (place + 1) >> 64
        order[[place, at]] = order[[at, place]]
    return order


WHOLE.update(uniform=_draw_uniform, random=_draw_integers)
