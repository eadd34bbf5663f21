"""Random numbers: known answers, the mapping that philox.h promises, distributions, independence of threads."""

from typing import Any

import numpy as np
import pytest
from native_host import Host, KernelError

stats = pytest.importorskip("scipy.stats")
N = 100_003
DRAWS: list[tuple[str, list[Any], Any]] = [
    ("uniform", [-1.0, 3.0], stats.uniform(-1, 4)),
    ("normal", [2.0, 3.0], stats.norm(2, 3)),
    ("exponential", [2.0], stats.expon(scale=0.5)),
]


def philox(seed: int, counter: int) -> list[int]:
    """Philox-4x32-10 in plain Python."""
    mask = 0xFFFFFFFF
    c = [counter & mask, counter >> 32, 0, 0]
    k = [seed & mask, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def draw(host: Host, op: str, args: list[Any], dtype: str, n: int = N) -> np.ndarray:
    x = np.zeros(n, dtype)
    return host.filled(op, [x, *args, None], (n,), dtype)


def test_philox_known_answer() -> None:
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_element_i_is_word_i_mod_4_of_counter_i_div_4(host: Host) -> None:
    seed = 0x123456789ABCDEF
    host.lib.seed(seed)
    words = [w for counter in range(25) for w in philox(seed, counter)]
    np.testing.assert_array_equal(draw(host, "random", [0, 1 << 32], "int64", 100), words)
    after = [w for counter in range(25, 26) for w in philox(seed, counter)]
    np.testing.assert_array_equal(draw(host, "random", [0, 1 << 32], "int64", 3), after[:3])
    host.lib.seed(seed)
    want = [(w >> 8) * 2.0**-24 for w in words[:7]]
    np.testing.assert_array_equal(draw(host, "uniform", [0.0, 1.0], "float32", 7), np.float32(want))


@pytest.mark.parametrize("n", [1, 2, 3, 6, 31, 129, 513, 1030])
def test_runs_of_words_and_what_is_made_of_them(host: Host, n: int) -> None:
    seed = 0xFEDCBA9876543210
    words = np.array([w for counter in range(n) for w in philox(seed, counter)], np.uint64)
    host.lib.seed(seed)
    np.testing.assert_array_equal(draw(host, "random", [0, 1 << 32], "int64", n), words[:n])
    host.lib.seed(seed)
    wide = words[0::2] | words[1::2] << np.uint64(32)
    got = draw(host, "random", [-(2**62), 2**62], "int64", n)
    np.testing.assert_array_equal(got, (wide[:n] >> np.uint64(1)).astype(np.int64) - 2**62)
    host.lib.seed(seed)
    order = list(range(n))
    for k in range(n - 1):
        place = n - 1 - k
        other = int(wide[k]) * (place + 1) >> 64
        order[place], order[other] = order[other], order[place]
    np.testing.assert_array_equal(
        host.filled("randperm", [n, None, None, None], (n,), "int64"), order
    )
    u = (words >> np.uint64(8)).astype(np.float64) * 2.0**-24
    radius, angle = np.sqrt(-2 * np.log1p(-u[0::2])), 2 * np.pi * u[1::2]
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:n]
    host.lib.seed(seed)
    got = draw(host, "normal", [0.0, 1.0], "float32", n)
    np.testing.assert_allclose(got, normal, 1e-6, 2e-6)
    host.lib.seed(seed)
    got = draw(host, "normal", [2.0, 3.0], "float16", n)
    np.testing.assert_allclose(got, 2 + 3 * normal, 2e-3, 2e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op,args,law", DRAWS, ids=[d[0] for d in DRAWS])
def test_distribution_and_threads(
    host: Host, op: str, args: list[Any], law: Any, dtype: str
) -> None:
    found = []
    for threads in (1, 2, 5):
        host.lib.set_threads(threads)
        host.lib.seed(7)
        found.append(draw(host, op, args, dtype))
    host.lib.set_threads(2)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert stats.kstest(found[0].astype(np.float64), law.cdf).pvalue > 1e-4


def test_uniform_stays_below_its_bound_in_float16(host: Host) -> None:
    host.lib.seed(1)
    x = draw(host, "uniform", [-1.0, 3.0], "float16")
    assert x.min() >= -1 and x.max() < 3


def test_discrete_draws(host: Host) -> None:
    host.lib.seed(2)
    assert abs(draw(host, "bernoulli", [0.3], "float32").mean() - 0.3) < 0.01
    counts = np.bincount(draw(host, "random", [0, 10], "int64"), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-4
    wide = draw(host, "random", [-(2**62), 2**62], "int64")
    assert wide.min() < -(2**61) and wide.max() > 2**61
    p = np.linspace(0, 1, N)
    got = host.filled("bernoulli.tensor", [p, p, None], (N,), "float64")
    assert got[0] == 0 and got[-1] == 1 and abs(got.mean() - 0.5) < 0.01
    order = host.filled("randperm", [1000, None, None, None], (1000,), "int64")
    assert sorted(order.tolist()) == list(range(1000)) and order.tolist() != list(range(1000))


@pytest.mark.parametrize(
    "op,args",
    [
        ("bernoulli", [1.5]),
        ("normal", [0.0, -1.0]),
        ("random", [3, 3]),
        ("uniform", [2.0, 1.0]),
        ("exponential", [0.0]),
    ],
)
def test_bad_parameters_are_errors(host: Host, op: str, args: list[Any]) -> None:
    with pytest.raises(KernelError, match=op):
        draw(host, op, args, "float32", 4)
