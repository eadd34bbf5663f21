"""DataLoader.stats(): what a pass of the loader took."""

import collections
import collections.abc
import time

import numpy as np
import pytest
import rabbet
from rabbet.utils import data
from rabbet.utils.data import DataLoader
from rabbet.utils.data._utils.stats import Counters, nbytes

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

KINDS = [(0, "auto"), (2, "threads"), (2, "processes")]


class Rows(data.Dataset):
    """Sample i: 10 floats."""

    def __len__(self):
        return 26

    def __getitem__(self, i):
        return rabbet.full((10,), float(i))


class Sleepy(Rows):
    """Reading sample 0 and joining the batch that holds it take 50 ms each."""

    def __getitem__(self, i):
        if i == 0:
            time.sleep(0.05)
        return super().__getitem__(i)


def slow_collate(samples):
    batch = data.default_collate(samples)
    if batch[0, 0] == 0:
        time.sleep(0.05)
    return batch


class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        step = 1 if info is None else info.num_workers
        return iter(range(0 if info is None else info.id, 10, step))


@pytest.mark.parametrize("workers, kind", KINDS)
def test_batches_samples_and_bytes_are_counted(workers, kind):
    loader = DataLoader(Rows(), 4, num_workers=workers, kind=kind)
    list(loader)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.bytes) == (7, 26, 26 * 10 * 4)
    assert stats.capacity == 2 * workers and len(stats.workers) == workers
    if workers:
        assert [w.batches for w in stats.workers] == [4, 3]
        assert [w.samples for w in stats.workers] == [14, 12]
        for name in ("batches", "samples", "bytes", "read", "collate", "write"):
            total = sum(getattr(w, name) for w in stats.workers)
            assert getattr(stats, name) == pytest.approx(total)
        assert (stats.write > 0) == (kind == "processes")
    assert 0 <= stats.ready <= stats.capacity


@pytest.mark.parametrize("workers, kind", KINDS)
def test_time_in_the_dataset_in_collate_and_in_the_loop_are_told_apart(workers, kind):
    loader = DataLoader(Sleepy(), 13, num_workers=workers, kind=kind, collate_fn=slow_collate)
    for _ in loader:
        time.sleep(0.03)
    stats = loader.stats()
    assert stats.read >= 0.05 and stats.collate >= 0.05 and stats.loop >= 0.06
    assert stats.busy == pytest.approx(stats.read + stats.collate + stats.write)
    if workers:
        assert stats.workers[0].read >= 0.05 and stats.workers[0].collate >= 0.05
    else:
        assert stats.wait >= stats.busy >= 0.1


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_batches_that_wait_for_the_loop_are_ready(kind):
    loader = DataLoader(Rows(), 2, num_workers=1, prefetch_factor=3, kind=kind)
    for _ in loader:
        time.sleep(0.04)
    assert 0.5 < loader.stats().ready <= 3
    loader = DataLoader(Rows(), 13, num_workers=1, kind=kind)
    batches = iter(loader)
    time.sleep(0.2)  # before the first next(), so it does not count
    next(batches)
    assert loader.stats().ready <= 2


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_and_single_samples(workers):
    loader = DataLoader(Stream(), 3, num_workers=workers)
    list(loader)
    stats = loader.stats()
    assert (stats.samples, stats.bytes) == (10, 80) and stats.batches == 4
    loader = DataLoader(Rows(), None, num_workers=workers)
    list(loader)
    assert (loader.stats().batches, loader.stats().samples) == (26, 26)


@pytest.mark.parametrize("workers, kind", KINDS)
def test_a_running_pass_counts_what_the_loop_has(workers, kind):
    loader = DataLoader(Rows(), 4, num_workers=workers, kind=kind)
    assert loader.stats() == data.LoaderStats()
    batches = iter(loader)
    next(batches), next(batches)
    assert (loader.stats().batches, loader.stats().samples) == (2, 8)
    list(loader)
    assert loader.stats().batches == 7  # of the latest pass
    next(iter(loader))
    assert loader.stats().batches == 1


def test_persistent_workers_begin_with_each_pass():
    loader = DataLoader(Rows(), 4, num_workers=2, persistent_workers=True, kind="threads")
    for _ in range(3):
        list(loader)
        assert loader.stats().batches == 7


class Broken(Rows):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError(i)
        return super().__getitem__(i)


@pytest.mark.parametrize("workers, kind", KINDS)
def test_batches_that_fail_are_not_counted(workers, kind):
    loader = DataLoader(Broken(), 4, num_workers=workers, kind=kind)
    with pytest.raises(KeyError):
        list(loader)
    assert (loader.stats().batches, loader.stats().samples) == (1, 4)


Pair = collections.namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    "batch, expected",
    [
        (rabbet.zeros(3, 2), 24),
        (rabbet.zeros(2).bfloat16(), 4),
        (np.zeros((2, 2)), 32),
        (np.float32(1), 4),
        ({"a": rabbet.zeros(2), "b": [rabbet.zeros(1), "text", 3]}, 12),
        (Pair(rabbet.zeros(1), (rabbet.zeros(1),)), 8),
        (["text"] * 5, 0),
        (collections.UserDict(a=rabbet.zeros(2)), 8),
        (rabbet.nn.Parameter(rabbet.zeros(2)), 8),
        (collections.OrderedDict(a=[{"b": np.zeros(1)}]), 8),
        (object(), 0),
        (None, 0),
    ],
)
def test_bytes_of_a_batch(batch, expected):
    assert nbytes(batch) == expected


class Lazy(collections.abc.Mapping):
    """A mapping that computes its values."""

    def __getitem__(self, key):
        raise AssertionError("computed")

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


def test_counting_bytes_neither_computes_nor_recurs_for_ever():
    cycle = [rabbet.zeros(2)]
    cycle.append(cycle)
    assert nbytes(cycle) == 0 and nbytes(Lazy()) == 0 and nbytes([Lazy(), rabbet.zeros(2)]) == 8
    loader = DataLoader([1], 1, collate_fn=lambda samples: cycle)
    assert next(iter(loader)) is cycle and loader.stats().batches == 1


def counted(read, loop):
    counters = Counters()
    counters.batch(0, (1, 0, read, 0, 0, 0))
    counters._loop = loop
    return counters.stats()


def test_suggested_workers_keep_up_with_the_loop(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert counted(100, 100).suggested_workers == 1
    assert counted(250, 100).suggested_workers == 3
    assert counted(4, 100).suggested_workers == 0
    assert counted(10**9, 100).suggested_workers == 8
    assert counted(100, 0).suggested_workers == 8
    assert data.LoaderStats().suggested_workers == 0


def test_the_table_has_a_row_for_each_worker():
    loader = DataLoader(Rows(), 4, num_workers=2, kind="threads")
    list(loader)
    lines = str(loader.stats()).splitlines()
    assert lines[0].startswith("7 batches, 26 samples, 0.0 MB in ")
    assert "of 4 batches ready" in lines[1]
    assert [line.split()[:3] for line in lines[3:]] == [
        ["0", "4", "14"], ["1", "3", "12"], ["total", "7", "26"],
    ]  # fmt: skip
