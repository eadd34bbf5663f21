"""utils.data: datasets, samplers, batches and the loader."""

import collections
import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import rabbet
from rabbet.utils import data
from rabbet.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Squares(data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


class Stream(data.IterableDataset):
    def __init__(self, n):
        self.start, self.end = 0, n

    def __iter__(self):
        info = data.get_worker_info()
        numbers = range(self.start, self.end)
        return iter(numbers if info is None else numbers[info.id :: info.num_workers])


def values(batches):
    return [b.tolist() if isinstance(b, rabbet.Tensor) else b for b in batches]


# ---- datasets


def test_tensor_datasets_give_rows():
    d = TensorDataset(rabbet.arange(6).reshape(3, 2), rabbet.arange(3))
    assert len(d) == 3
    x, y = d[1]
    assert x.tolist() == [2, 3] and y.item() == 1
    assert [t.tolist() for t in d[0:2]] == [[[0, 1], [2, 3]], [0, 1]]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        TensorDataset(rabbet.zeros(2), rabbet.zeros(3))


def test_concatenated_datasets_count_on():
    d = Squares(3) + Squares(2)
    assert len(d) == 5 and d.cumulative_sizes == [3, 5]
    assert [d[i] for i in (0, 2, 3, 4, -1, -5)] == [0, 4, 0, 1, 1, 0]
    with pytest.raises(ValueError, match="absolute value of index should not exceed"):
        d[-6]
    with pytest.raises(AssertionError, match="should not be an empty iterable"):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        data.ConcatDataset([Stream(2)])


def test_streams_are_chained():
    assert list(Stream(2) + Stream(3)) == [0, 1, 0, 1, 2]
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(data.ChainDataset([Squares(2)]))


def test_subsets_take_indices_of_the_whole():
    d = data.Subset(Squares(10), [7, 2, 5])
    assert (len(d), d[0], d.__getitems__([2, 1])) == (3, 49, [25, 4])
    assert values(DataLoader(d, batch_size=2)) == [[49, 4], [25]]


def test_stacked_datasets_are_side_by_side():
    pairs = data.StackDataset(Squares(3), Squares(3))
    named = data.StackDataset(a=Squares(3), b=Squares(3))
    assert (pairs[2], named[1], len(named)) == ((4, 4), {"a": 1, "b": 1}, 3)
    assert named.__getitems__([0, 2]) == [{"a": 0, "b": 0}, {"a": 4, "b": 4}]
    for wrong, text in (
        (lambda: data.StackDataset(), "At least one dataset"),
        (lambda: data.StackDataset(Squares(2), Squares(3)), "Size mismatch between"),
        (lambda: data.StackDataset(Squares(2), a=Squares(2)), "both types are given"),
    ):
        with pytest.raises(ValueError, match=text):
            wrong()


def test_random_splits_cover_the_data_once():
    g = rabbet.Generator().manual_seed(3)
    parts = data.random_split(range(10), [3, 7], generator=g)
    assert [len(p) for p in parts] == [3, 7]
    assert sorted(i for p in parts for i in p) == list(range(10))
    again = data.random_split(range(10), [3, 7], generator=rabbet.Generator().manual_seed(3))
    assert [p.indices for p in again] == [p.indices for p in parts]
    assert [len(p) for p in data.random_split(range(11), [0.3, 0.3, 0.4])] == [4, 3, 4]


def test_random_splits_of_wrong_lengths_are_refused():
    with pytest.raises(ValueError, match="Sum of input lengths does not equal"):
        data.random_split(range(10), [3, 3])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1"):
        data.random_split(range(10), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(range(1), [0.9, 0.1])


@pytest.mark.parametrize("kind", [data.Dataset, data.Sampler])
def test_base_classes_say_what_to_write(kind):
    with pytest.raises(NotImplementedError):
        data.Dataset()[0]
    assert kind[int]  # annotations of elements


# ---- samplers


def test_random_samplers_are_permutations():
    sampler = data.RandomSampler(range(20))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    assert len(list(data.RandomSampler(range(5), num_samples=12))) == 12
    drawn = list(data.RandomSampler(range(5), replacement=True, num_samples=100))
    assert len(drawn) == 100 and set(drawn) == set(range(5))
    seeded = [
        list(data.RandomSampler(range(9), generator=rabbet.Generator().manual_seed(1)))
        for _ in "ab"
    ]
    assert seeded[0] == seeded[1]


def test_weights_choose_how_often():
    drawn = list(data.WeightedRandomSampler([0.0, 1.0, 3.0], 2000))
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] == 0 and 2.3 < counts[2] / counts[1] < 4.0
    assert sorted(data.WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]


def test_batches_of_indices():
    assert list(data.BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert [len(data.BatchSampler(range(5), 2, last)) for last in (False, True)] == [3, 2]
    assert sorted(data.SubsetRandomSampler([3, 9, 4])) == [3, 4, 9]


@pytest.mark.parametrize("drop_last, length", [(False, 4), (True, 3)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_processes_share_a_dataset(drop_last, length, shuffle):
    parts = [
        list(data.DistributedSampler(range(10), 3, rank, shuffle, drop_last=drop_last))
        for rank in range(3)
    ]
    assert [len(p) for p in parts] == [length] * 3
    flat = [i for p in parts for i in p]
    assert set(flat) <= set(range(10)) and len(set(flat)) == (9 if drop_last else 10)
    if not shuffle:
        assert parts[1][:3] == [1, 4, 7]


def test_epochs_of_a_distributed_sampler_differ():
    sampler = data.DistributedSampler(range(50), 2, 0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: data.RandomSampler(range(3), replacement=1), TypeError, "replacement should be a boolean"),
        (lambda: data.RandomSampler(range(3), num_samples=0), ValueError, "num_samples should be a positive"),
        (lambda: data.RandomSampler([]), ValueError, "num_samples should be a positive"),
        (lambda: data.WeightedRandomSampler([1.0], 0), ValueError, "num_samples should be a positive"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), ValueError, "weights should be a 1d sequence"),
        (lambda: data.BatchSampler(range(3), 0, False), ValueError, "batch_size should be a positive"),
        (lambda: data.BatchSampler(range(3), True, False), ValueError, "batch_size should be a positive"),
        (lambda: data.BatchSampler(range(3), 2, 1), ValueError, "drop_last should be a boolean"),
        (lambda: data.DistributedSampler(range(3), 2, 2), ValueError, "Invalid rank 2"),
    ],
)  # fmt: skip
def test_wrong_samplers_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_distributed_sampler_needs_its_place():
    with pytest.raises((RuntimeError, ValueError)):
        data.DistributedSampler(range(3))


# ---- batches

Point = collections.namedtuple("Point", "x y")


def test_collating_joins_each_kind():
    collate = data.default_collate
    assert collate([1, 2]).dtype == rabbet.int64 and collate([True, False]).dtype == rabbet.bool
    assert collate([1.0, 2.0]).dtype == rabbet.float64
    assert collate(["a", "b"]) == ["a", "b"] and collate([b"a"]) == [b"a"]
    assert collate([rabbet.zeros(2), rabbet.ones(2)]).tolist() == [[0, 0], [1, 1]]
    assert collate([np.float32(1), np.float32(2)]).dtype == rabbet.float32
    assert collate([np.zeros((2, 3), np.int16)] * 4).shape == (4, 2, 3)
    point = collate([Point(1, 2.0), Point(3, 4.0)])
    assert type(point) is Point and point.x.tolist() == [1, 3]
    pair = collate([(1, "a"), (2, "b")])
    assert type(pair) is list and pair[0].tolist() == [1, 2] and pair[1] == ("a", "b")
    lists = collate([[1, 2], [3, 4]])
    assert type(lists) is list and [t.tolist() for t in lists] == [[1, 3], [2, 4]]
    tree = collate([{"a": 1, "b": {"c": [1.0]}}, {"a": 2, "b": {"c": [2.0]}}])
    assert tree["a"].tolist() == [1, 2] and tree["b"]["c"][0].tolist() == [1.0, 2.0]
    ordered = collate([collections.OrderedDict(z=1), collections.OrderedDict(z=2)])
    assert type(ordered) is collections.OrderedDict
    defaults = collate([collections.defaultdict(list, z=1)])
    assert type(defaults) is collections.defaultdict and defaults["z"].tolist() == [1]


@pytest.mark.parametrize("sample", [lambda n: rabbet.zeros(3, n), lambda n: np.zeros((3, n))])
def test_samples_of_several_shapes_are_named_with_their_shapes(sample):
    batch = [sample(4), sample(4), sample(5)]
    message = r"that of sample 0 has shape \(3, 4\) and that of sample 2 has shape \(3, 5\)"
    for samples in (batch, [(x, 1) for x in batch], [{"x": x} for x in batch]):
        with pytest.raises(RuntimeError, match=message):
            data.default_collate(samples)
    with pytest.raises(RuntimeError, match=message):
        next(iter(DataLoader(batch, batch_size=3)))


@pytest.mark.parametrize(
    "batch, error, text",
    [
        ([object()], TypeError, "default_collate: batch must contain .*; found <class 'object'>"),
        ([None], TypeError, "found <class 'NoneType'>"),
        ([[1], [1, 2]], RuntimeError, "each element in list of batch should be of equal size"),
        ([np.array(["a"])], TypeError, "default_collate: batch must contain .*; found <U1"),
        ([rabbet.zeros(2), rabbet.zeros(3)], RuntimeError, "must have one shape"),
        ([{"a": 1}, {"b": 1}], KeyError, "a"),
    ],
)
def test_samples_that_do_not_join_are_refused(batch, error, text):
    with pytest.raises(error, match=text):
        data.default_collate(batch)


def test_converting_keeps_the_structure():
    convert = data.default_convert
    x = rabbet.ones(2)
    assert convert(x) is x and convert("a") == "a" and convert(3) == 3
    assert convert(np.arange(3)).tolist() == [0, 1, 2]
    made = convert({"a": [np.zeros(2)], "p": Point(np.ones(1), 2), "t": (np.ones(1),)})
    assert isinstance(made["a"][0], rabbet.Tensor) and type(made["p"]) is Point
    assert type(made["t"]) is list


def test_functions_for_types_of_ones_own():
    from rabbet.utils.data._utils.collate import collate, default_collate_fn_map

    class Mine(int):
        pass

    own = {Mine: lambda batch, *, collate_fn_map=None: sum(batch), **default_collate_fn_map}
    made = collate([(Mine(1), 2.0), (Mine(5), 3.0)], collate_fn_map=own)
    assert made[0] == 6 and made[1].tolist() == [2.0, 3.0]


# ---- the loader


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_order(workers):
    loader = DataLoader(Squares(7), batch_size=3, num_workers=workers)
    assert values(loader) == [[0, 1, 4], [9, 16, 25], [36]] and len(loader) == 3
    assert values(DataLoader(Squares(7), 3, drop_last=True, num_workers=workers)) == [
        [0, 1, 4],
        [9, 16, 25],
    ]
    assert values(DataLoader(Squares(3), None, num_workers=workers)) == [0, 1, 4]
    shuffled = DataLoader(Squares(50), 7, shuffle=True, num_workers=workers)
    assert sorted(x for b in values(shuffled) for x in b) == [i * i for i in range(50)]
    sampled = DataLoader(Squares(9), 2, sampler=[3, 1, 2], num_workers=workers)
    assert values(sampled) == [[9, 1], [4]]
    batched = DataLoader(Squares(9), batch_sampler=[[1, 2], [3]], num_workers=workers)
    assert values(batched) == [[1, 4], [9]] and batched.batch_size is None
    assert values(DataLoader(Squares(4), 2, collate_fn=sum, num_workers=workers)) == [1, 13]


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_end_when_every_worker_has(workers):
    loader = DataLoader(Stream(7), batch_size=2, num_workers=workers)
    got = values(loader)
    assert sorted(x for b in got for x in b) == list(range(7))
    assert got == ([[0, 1], [2, 3], [4, 5], [6]] if workers == 0 else [[0, 2], [1, 3], [4, 6], [5]])
    dropped = DataLoader(Stream(7), batch_size=2, drop_last=True, num_workers=workers)
    assert all(len(b) == 2 for b in values(dropped))
    assert values(DataLoader(Stream(3), batch_size=None, num_workers=workers)) == [0, 1, 2]
    assert list(DataLoader(Stream(0), num_workers=workers)) == []


def test_the_same_seed_gives_the_same_order():
    orders = [
        values(
            DataLoader(
                Squares(20),
                4,
                shuffle=True,
                num_workers=w,
                generator=rabbet.Generator().manual_seed(5),
            )
        )
        for w in (0, 0, 2)
    ]
    assert orders[0] == orders[1] == orders[2]


def test_workers_know_who_they_are():
    class Who(Squares):
        def __getitem__(self, i):
            info = data.get_worker_info()
            return (info.id, info.num_workers, info.seed, type(info.dataset) is Who)

    ids, counts, seeds, same = zip(
        *DataLoader(Who(6), None, num_workers=2, collate_fn=lambda x: x), strict=True
    )
    assert set(ids) == {0, 1} and set(counts) == {2} and set(same) == {True}
    assert abs(seeds[0] - seeds[1]) == 1 and data.get_worker_info() is None


def init_half(worker):
    info = data.get_worker_info()
    d = info.dataset
    size = (d.end - d.start) // info.num_workers
    d.start, d.end = worker * size, (worker + 1) * size


class Plain(Stream):
    def __iter__(self):
        return iter(range(self.start, self.end))


def test_worker_init_changes_its_own_dataset():
    d = Plain(8)
    loader = DataLoader(d, batch_size=4, num_workers=2, worker_init_fn=init_half)
    assert values(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (d.start, d.end) == (0, 8)


class Broken(Squares):
    def __getitem__(self, i):
        if i == 3:
            raise KeyError("no such sample")
        return i


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_samples_reach_the_loop(workers):
    got = []
    with pytest.raises(KeyError, match="no such sample") as caught:
        for b in DataLoader(Broken(6), batch_size=2, num_workers=workers):
            got.append(b.tolist())
    assert got == [[0, 1]]
    if workers:
        assert "in DataLoader worker" in str(caught.value) and "Traceback" in str(caught.value)


def test_persistent_workers_serve_the_next_epoch():
    loader = DataLoader(Squares(5), 2, num_workers=2, persistent_workers=True)
    first = values(loader)
    kept = loader._iterator
    half = iter(loader)
    next(half)
    assert values(loader) == first == values(loader)
    assert kept is loader._iterator


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor option could only be specified"),
        ({"prefetch_factor": -1, "num_workers": 1}, ValueError, "prefetch_factor option should be non-negative"),
        ({"persistent_workers": True}, ValueError, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "fork"}, ValueError, "multiprocessing_context can only be used"),
        ({"multiprocessing_context": "frob", "num_workers": 1}, ValueError, "should specify a valid start method in"),
        ({"multiprocessing_context": 3, "num_workers": 1}, TypeError, "should be a valid context object or a string"),
        ({"kind": "frob"}, ValueError, "kind must be 'auto', 'processes' or 'threads', got 'frob'"),
        ({"kind": "threads", "multiprocessing_context": "fork", "num_workers": 1}, ValueError, "of kind='processes'"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, ValueError, "batch_size=None option disables auto-batching"),
        ({"batch_size": 0}, ValueError, "batch_size should be a positive integer"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        DataLoader(Squares(4), **options)


@pytest.mark.parametrize(
    "name, value", [("shuffle", True), ("sampler", [1]), ("batch_sampler", [[1]])]
)
def test_streams_take_no_order(name, value):
    with pytest.raises(
        ValueError, match=f"DataLoader with IterableDataset: expected unspecified {name}"
    ):
        DataLoader(Stream(4), **{name: value})


def test_a_loader_keeps_what_it_was_made_of():
    loader = DataLoader(Squares(4))
    for name in (
        "batch_size",
        "batch_sampler",
        "sampler",
        "drop_last",
        "dataset",
        "persistent_workers",
    ):
        with pytest.raises(
            ValueError, match=f"{name} attribute should not be set after DataLoader"
        ):
            setattr(loader, name, None)
    loader.num_workers = 0


# ---- workers of both kinds


class Slow(Squares):
    def __getitem__(self, i):
        time.sleep(0.3 if i == 0 else 0.0)
        return i


@pytest.mark.parametrize("kind, named", [("threads", "a thread"), ("processes", r"pid \d+")])
def test_a_worker_that_takes_too_long_is_named(kind, named):
    message = rf"DataLoader timed out after 0.05 seconds: worker 0 \({named}\) made no batch"
    with pytest.raises(RuntimeError, match=message):
        list(DataLoader(Slow(2), num_workers=1, timeout=0.05, kind=kind))


def test_options_that_need_workers_or_batches_ahead():
    with pytest.raises(AssertionError, match="timeout needs num_workers > 0, got timeout=1"):
        iter(DataLoader(Squares(2), timeout=1))
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(DataLoader(Squares(2), num_workers=1, prefetch_factor=0))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_batches_may_come_as_they_are_ready(kind):
    loader = DataLoader(Slow(6), batch_size=None, num_workers=2, in_order=False, kind=kind)
    got = list(loader)
    assert sorted(got) == list(range(6)) and got[0] != 0


def test_workers_read_ahead_and_no_further():
    class Counted(Squares):
        def __init__(self, n):
            super().__init__(n)
            self.read = []

        def __getitem__(self, i):
            self.read.append(i)
            return i

    d = Counted(100)
    batches = iter(DataLoader(d, batch_size=None, num_workers=2, prefetch_factor=3, kind="threads"))
    next(batches)
    time.sleep(0.1)
    assert len(d.read) == 7  # six ahead, and the one that was taken is replaced
    del batches


def data_threads():
    return [t for t in threading.enumerate() if t.name.startswith("rabbet-data")]


def test_threads_end_with_their_loop():
    gc.collect()
    before = len(data_threads())
    batches = iter(DataLoader(Squares(100), num_workers=3, kind="threads"))
    next(batches)
    assert len(data_threads()) > before
    del batches
    gc.collect()
    list(DataLoader(Squares(4), num_workers=3, kind="threads"))
    gc.collect()
    deadline = time.time() + 5
    while len(data_threads()) > before and time.time() < deadline:
        time.sleep(0.01)
    assert len(data_threads()) <= before


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_error_while_a_worker_starts_reaches_the_loop(kind):
    def init(worker):
        raise ValueError("cannot open")

    with pytest.raises(ValueError, match="cannot open"):
        list(DataLoader(Squares(4), num_workers=2, worker_init_fn=init, kind=kind))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_kinds_give_the_same_batches(kind):
    pairs = [(rabbet.full((3,), float(i)), {"n": i, "text": str(i)}) for i in range(11)]
    plain = list(DataLoader(pairs, 4))
    for persistent in (False, True):
        loader = DataLoader(pairs, 4, num_workers=2, kind=kind, persistent_workers=persistent)
        for _ in range(2):
            got = list(loader)
            assert [g[0].tolist() for g in got] == [g[0].tolist() for g in plain]
            assert [g[1]["text"] for g in got] == [g[1]["text"] for g in plain]
            assert [g[1]["n"].tolist() for g in got] == [g[1]["n"].tolist() for g in plain]


def test_a_device_to_pin_memory_for_is_deprecated():
    with pytest.warns(UserWarning) as seen:
        list(DataLoader([0], pin_memory=True, pin_memory_device="cuda"))
    assert any("ignore pin_memory_device='cuda'" in str(w.message) for w in seen)


def test_pinning_without_an_accelerator_warns():
    code = (  # in a process of its own: other tests may have loaded one
        "import warnings\n"
        "from rabbet.utils.data import DataLoader\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    print([x.tolist() for x in DataLoader([0, 1], pin_memory=True)])\n"
        "print(*(w.message for w in seen if w.category is UserWarning))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[[0], [1]]\n") and "no accelerator is found" in done.stdout


def test_num_workers_must_be_an_integer():
    with pytest.raises(TypeError, match=r"num_workers must be an int, got 1\.5"):
        DataLoader(Squares(2), num_workers=1.5)


@pytest.mark.parametrize("workers", [0, 1])
def test_passes_of_loaders_of_other_packages(workers, recwarn):
    """Packages give the iterators objects with the attributes of PyTorch's loaders, as fastai does."""

    class Loader:
        _dataset_kind = data.dataloader._DatasetKind.Iterable
        _auto_collation, drop_last, in_order = False, False, True
        _index_sampler, generator, prefetch_factor, worker_init_fn = [None] * 3, None, 2, None
        pin_memory, persistent_workers, timeout, num_workers = False, False, 0, workers
        dataset = property(lambda self: self)

        def collate_fn(self, batch):
            return batch

        def __iter__(self):
            return iter(["a", "b"])

    loader = data.dataloader
    single, several = loader._SingleProcessDataLoaderIter, loader._MultiProcessingDataLoaderIter
    assert list((several if workers else single)(Loader())) == ["a", "b"]
