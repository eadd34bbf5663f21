"""Orders that are computed index by index, the samplers that use them, and samplers that begin in the middle."""

import collections
import itertools
import math
import resource

import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet.utils import data
from rabbet.utils.data import DataLoader, DistributedSampler, Permutation, RandomSampler
from rabbet.utils.data.permutation import _Feistel
from rabbet.utils.data.sampler import iter_from

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

SEEDS = st.integers(-(2**70), 2**70)


@settings(max_examples=60, deadline=None)
@given(n=st.one_of(st.integers(0, 1100), st.integers(0, 20_000)), seed=SEEDS)
def test_every_index_comes_once(n, seed):
    order = list(Permutation(n, seed))
    assert len(order) == n == len(Permutation(n, seed))
    assert sorted(order) == list(range(n))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 3000), seed=SEEDS)
def test_the_network_alone_permutes_small_domains_too(n, seed):
    network = _Feistel(n, seed)
    order = network.at_all(rabbet.arange(n)).tolist()
    assert sorted(order) == list(range(n))
    assert [network.at(i) for i in range(0, n, 97)] == order[::97]


@settings(max_examples=80, deadline=None)
@given(n=st.integers(1, 2**62), seed=SEEDS, data=st.data())
def test_positions_agree_with_chunks_for_all_sizes(n, seed, data):
    order = Permutation(n, seed)
    start = data.draw(st.integers(0, n - 1))
    part = list(itertools.islice(order.iter_from(start), 50))
    assert part == order[start : start + 50] == [order[i] for i in range(start, min(n, start + 50))]
    assert len(set(part)) == len(part) and all(0 <= i < n for i in part)
    assert order.at(rabbet.tensor([[start]])).tolist() == [[part[0]]]


@pytest.mark.parametrize("n", [10**9, 2**62])
def test_large_orders_do_not_collide(n):
    order = Permutation(n, 3)
    parts = [order[start : start + 20_000] for start in (0, n // 2, n - 20_000)]
    assert len({i for part in parts for i in part}) == 60_000


FIRST_TEN = [
    8,
    1,
    9,
    7,
    4,
    6,
    0,
    2,
    5,
    3,
]  # of seed 0: a resumed pass of another version has the same order
FIRST_OF_MANY = [254282053, 771103948, 930136162, 262553025]


def test_orders_stay_as_they_are_in_later_versions():
    assert Permutation(10, 0)[:] == FIRST_TEN
    assert Permutation(10**9, 0)[:4] == FIRST_OF_MANY
    assert Permutation(10**9, -1)[:4] != FIRST_OF_MANY


def chi_square(counts, expected):
    return sum((c - expected) ** 2 / expected for c in counts)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_small_orders_are_uniform(n):
    draws = 200 * math.factorial(n)
    if n == 5:
        draws = 4800
    seen = collections.Counter(tuple(Permutation(n, seed)) for seed in range(draws))
    degrees = math.factorial(n) - 1
    statistic = chi_square(
        [seen[p] for p in itertools.permutations(range(n))], draws / (degrees + 1)
    )
    assert statistic < degrees + 5 * math.sqrt(2 * degrees)  # five standard deviations


@pytest.mark.parametrize("n", [1025, 5000, 10**9])
def test_each_position_takes_every_range_of_values_equally_often(n):
    bins, seeds = 16, 1500
    for position in (0, n // 2, n - 1):
        counts = collections.Counter(
            Permutation(n, seed)[position] * bins // n for seed in range(seeds)
        )
        statistic = chi_square([counts[b] for b in range(bins)], seeds / bins)
        assert statistic < bins - 1 + 5 * math.sqrt(2 * (bins - 1))


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_are_independent(seed):
    """Pairs of successive indices fall into each cell of a grid equally often; so do gaps and ranks."""
    n, count, bins = 10**9, 40_000, 10
    order = Permutation(n, seed)[:count]
    cells = collections.Counter(
        (a * bins // n, b * bins // n) for a, b in zip(order[::2], order[1::2], strict=True)
    )
    grid = [cells[i, j] for i in range(bins) for j in range(bins)]
    degrees = bins * bins - 1
    assert chi_square(grid, count / 2 / (degrees + 1)) < degrees + 5 * math.sqrt(2 * degrees)
    low_bits = collections.Counter(i % 16 for i in order)
    assert chi_square([low_bits[b] for b in range(16)], count / 16) < 15 + 5 * math.sqrt(30)


def test_a_whole_order_has_few_fixed_points_and_no_trend():
    n = 50_000
    order = list(Permutation(n, 11))
    assert sum(i == x for i, x in enumerate(order)) < 12  # Poisson with mean 1
    mean = (n - 1) / 2
    products = sum((i - mean) * (x - mean) for i, x in enumerate(order))
    variance = sum((i - mean) ** 2 for i in range(n))
    assert abs(products / variance) < 5 / math.sqrt(n)
    rises = sum(a < b for a, b in itertools.pairwise(order))
    assert abs(rises - n / 2) < 5 * math.sqrt(n / 12)


def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_memory_stays_flat_for_a_billion_indices():
    n = 10**9
    sampler = RandomSampler(range(n), constant_memory=True)
    list(itertools.islice(sampler, 20_000))
    before = peak_kib()
    for start in (0, n // 3, n - 50_000):
        seen = list(itertools.islice(sampler.iter_from(start), 50_000))
        assert len(set(seen)) == 50_000
    shares = DistributedSampler(range(n), 4, 3, constant_memory=True)
    assert len(list(itertools.islice(iter(shares), 50_000))) == 50_000
    loader = DataLoader(range(n), 64, sampler=sampler)
    for _ in itertools.islice(loader, 20):
        pass
    assert peak_kib() - before < 40_000


# ---- samplers


def seeded(seed=3):
    return rabbet.Generator().manual_seed(seed)


def test_the_default_order_is_that_of_randperm():
    order = list(RandomSampler(range(50), generator=seeded()))
    assert order == rabbet.randperm(50, generator=seeded()).tolist()
    shares = list(DistributedSampler(range(50), 2, 1, seed=3))
    assert shares == rabbet.randperm(50, generator=seeded()).tolist()[1::2]


@pytest.mark.parametrize("n, count", [(7, 7), (7, 3), (7, 20), (3000, 7000)])
def test_computed_orders_of_a_sampler(n, count):
    def sampler():
        return RandomSampler(range(n), num_samples=count, generator=seeded(), constant_memory=True)

    order = list(sampler())
    assert len(order) == count == len(sampler())
    for start in range(0, count, n):
        turn = order[start : start + n]
        assert len(set(turn)) == len(turn) and set(turn) <= set(range(n))
    if count > 2 * n:
        assert order[:n] != order[n : 2 * n]
    for position in (0, 1, n - 1, n, count - 1, count, count + 5):
        assert list(sampler().iter_from(position)) == order[position:]
    kept = RandomSampler(range(3000), generator=seeded(), constant_memory=True)
    assert list(kept) != list(kept)  # a new order each time


@pytest.mark.parametrize("count, replicas", [(10, 3), (9, 3), (2, 5), (1, 4), (2000, 3), (0, 2)])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_replicas_share_a_computed_order(count, replicas, shuffle, drop_last):
    def parts(constant):
        samplers = [
            DistributedSampler(range(count), replicas, rank, shuffle, 5, drop_last,
                               constant_memory=constant)
            for rank in range(replicas)
        ]  # fmt: skip
        for sampler in samplers:
            sampler.set_epoch(2)
            whole = list(sampler)
            for position in range(0, len(whole) + 1, 1 + len(whole) // 7):
                assert list(sampler.iter_from(position)) == whole[position:]
        return [list(sampler) for sampler in samplers]

    computed, listed = parts(True), parts(False)
    assert [len(p) for p in computed] == [len(p) for p in listed]
    if not shuffle:
        assert computed == listed
    counts = collections.Counter(i for part in computed for i in part)
    assert sorted(counts.values()) == sorted(
        collections.Counter(i for part in listed for i in part).values()
    )


@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("own", [False, True])
def test_a_loader_resumes_a_computed_order_without_reading_its_first_part(batch_size, own):
    n = 10**9

    def loader(seed):
        generator = seeded(seed) if own else None
        sampler = RandomSampler(
            range(n), num_samples=3 * n, generator=generator, constant_memory=True
        )
        return DataLoader(range(n), batch_size, sampler=sampler, collate_fn=lambda x: x)

    rabbet.manual_seed(7)
    first = loader(3)
    batches = iter(first)
    for _ in range(5):
        next(batches)
    state = first.state_dict()
    expected = list(itertools.islice(batches, 3))
    other = loader(8)
    other.load_state_dict(state)
    assert list(itertools.islice(other, 3)) == expected
    far = loader(8)
    far.load_state_dict(
        {**state, "batches": 2 * n // (batch_size or 1) + 3}
    )  # at once, in the third turn
    assert len(list(itertools.islice(far, 3))) == 3


class Lists(data.Sampler):
    def __iter__(self):
        return iter([4, 5, 6, 7])


class Own(RandomSampler):
    def __iter__(self):
        return iter([3, 1, 2])


class Skips(Lists):
    def __iter__(self):
        raise AssertionError("not called")

    def iter_from(self, position):
        return iter([position])


def test_samplers_of_other_classes_begin_in_the_middle():
    assert list(iter_from(Lists(), 2)) == [6, 7]
    assert list(iter_from(Own(range(3)), 1)) == [1, 2]
    assert list(iter_from([1, 2, 3], 2)) == [3]
    assert list(iter_from(Skips(), 2)) == [2]
    assert list(iter_from(data.BatchSampler(Lists(), 3, False), 1)) == [[7]]
    assert list(iter_from(data.SequentialSampler(range(5)), 3)) == [3, 4]


# ---- bad input


@pytest.mark.parametrize(
    "n, seed, error, text",
    [
        (-1, 0, ValueError, r"n must be from 0 to 2\*\*62, got -1"),
        (2**62 + 1, 0, ValueError, r"n must be from 0 to 2\*\*62"),
        (1.5, 0, TypeError, r"n must be an int, got 1\.5"),
        (True, 0, TypeError, "n must be an int, got True"),
        (5, "a", TypeError, "seed must be an int, got 'a'"),
    ],
)
def test_wrong_arguments_of_an_order_are_refused(n, seed, error, text):
    with pytest.raises(error, match=f"Permutation: {text}"):
        Permutation(n, seed)


@pytest.mark.parametrize("n", [5, 5000])
def test_positions_outside_of_an_order_are_refused(n):
    order = Permutation(n, 0)
    assert order[-1] == order[n - 1] and order[n:] == [] and n not in order
    for position in (n, -n - 1):
        with pytest.raises(
            IndexError, match=f"position {position} is out of range for {n} indices"
        ):
            order[position]
        with pytest.raises(IndexError, match=f"at: position {position} is out of range"):
            order.at(rabbet.tensor([0, position]))
    with pytest.raises(TypeError, match="at: expected an int64 tensor of positions, got"):
        order.at(rabbet.zeros(2))
    with pytest.raises(TypeError, match="at: expected an int64 tensor of positions, got list"):
        order.at([0])
    for position, step in ((-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="expected position >= 0 and step >= 1"):
            order.iter_from(position, step)
    assert order.at(rabbet.zeros(0, dtype=rabbet.int64)).tolist() == []
    assert repr(order) == f"Permutation(n={n}, seed=0)"


def test_the_option_is_a_bool():
    with pytest.raises(TypeError, match="RandomSampler: constant_memory must be a bool, got 1"):
        RandomSampler(range(3), constant_memory=1)
    with pytest.raises(
        TypeError, match="DistributedSampler: constant_memory must be a bool, got 1"
    ):
        DistributedSampler(range(3), 1, 0, constant_memory=1)
