"""Worker processes of the data loader: what they share, and what goes wrong with them."""

import gc
import os
import random
import signal
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest
import rabbet
from rabbet.utils import data
from rabbet.utils.data import DataLoader
from shared_files import left_since, shared_files

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Rows(data.Dataset):
    """Sample i: (40, 50) floats of the value i."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return rabbet.full((40, 50), float(i))


def check(batches, size=4):
    for number, batch in enumerate(batches):
        assert batch.shape == (size, 40, 50)
        assert batch[:, 0, 0].tolist() == [size * number + i for i in range(size)]
        assert (batch == batch[:, :1, :1]).all()


def open_files():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_batches_of_each_start_method(method):
    check(DataLoader(Rows(), 4, num_workers=2, multiprocessing_context=method))


def test_batches_that_are_kept_stay_as_they_are():
    check(list(DataLoader(Rows(), 2, num_workers=2)), 2)  # more batches than slots


def test_memory_of_slots_is_used_again_and_then_freed():
    files, shared = open_files(), shared_files()
    loader = iter(DataLoader(Rows(), 1, num_workers=2, prefetch_factor=1))
    places = set()
    for batch in loader:
        places.add(batch.data_ptr())
    assert len(places) <= 8 and batch[0, 0, 0] == 23
    del loader
    assert batch[0, 0, 0] == 23  # outlives its loader
    del batch
    assert open_files() <= files and not left_since(shared)


def test_a_forked_process_keeps_the_batch_that_it_has():
    loader = iter(DataLoader(Rows(), 4, num_workers=1, prefetch_factor=1))
    first = next(loader)
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0 if (first[:, 0, 0] == rabbet.arange(4.0)).all() else 1)
    del first
    assert len(list(loader)) == 5
    os.close(theirs)
    assert os.waitpid(child, 0)[1] == 0
    os.close(ours)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_slots_that_a_forked_process_sees_are_replaced(method):
    loader = DataLoader(
        Rows(), 4, num_workers=1, persistent_workers=True, multiprocessing_context=method
    )
    files = None
    for _ in range(3):
        for number, batch in enumerate(loader):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            assert batch[:, 0, 0].tolist() == [4 * number + i for i in range(4)]
            assert any(slot.shown for slot in loader._iterator._pool.ring.slots)
        files = files or open_files()
    assert open_files() <= files + 4


def test_fetchers_under_the_names_of_packages():
    kind = data.dataloader._DatasetKind
    fetcher = kind.create_fetcher(kind.Map, Rows(), True, data.default_collate, False)
    assert fetcher.fetch([3, 4]).shape == (2, 40, 50)
    assert data._utils.MP_STATUS_CHECK_INTERVAL == 5.0


class Hoards(Rows):
    """Collates itself and keeps what it collated."""

    def __init__(self):
        self.kept = []

    def __getitems__(self, indices):
        batch = data.default_collate([self[i] for i in indices])
        self.kept.append(batch)
        return self.kept[0], batch

    def __getitem__(self, i):
        return rabbet.full((40,), float(i))


def same(batch):
    return batch


def test_batches_that_a_worker_keeps_are_not_overwritten():
    loader = DataLoader(Hoards(), 4, num_workers=1, collate_fn=same)
    for number, (first, batch) in enumerate(loader):
        assert first[:, 0].tolist() == [0, 1, 2, 3]
        assert batch[:, 0].tolist() == [4 * number + i for i in range(4)]


class Kinds(data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        leaf = rabbet.ones(2, requires_grad=True)
        turned = rabbet.arange(6.0).reshape(2, 3).t()
        return {"leaf": leaf, "turned": turned, "empty": rabbet.zeros(0), "bf16": rabbet.ones(3).bfloat16(),
                "array": np.arange(3), "text": "x", "pair": (turned, turned)}  # fmt: skip


def test_samples_of_all_kinds_without_batches():
    for got in DataLoader(Kinds(), None, num_workers=1):
        assert got["leaf"].requires_grad and got["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert got["empty"].numel() == 0 and got["bf16"].dtype is rabbet.bfloat16
        assert got["array"].tolist() == [0, 1, 2] and got["text"] == "x"
        assert got["pair"][0] is got["pair"][1]


class Draws(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        info = data.get_worker_info()
        return info.id, info.seed, random.random(), float(rabbet.rand(())), float(np.random.rand())


def draws(seed):
    g = rabbet.Generator().manual_seed(seed)
    return list(DataLoader(Draws(), None, num_workers=2, generator=g, collate_fn=same))


def test_workers_have_their_own_seeds_which_the_generator_decides():
    first = draws(3)
    assert first == draws(3) != draws(4)
    assert [d[0] for d in first] == [0, 1, 0, 1] and first[1][1] == first[0][1] + 1
    assert len({d[2:] for d in first}) == 4
    random.seed(first[0][1])
    assert first[0][2] == random.random()
    rabbet.manual_seed(first[0][1])
    assert first[0][3] == float(rabbet.rand(()))


class Fails(Rows):
    """What goes wrong at sample 5 is a function."""

    def __init__(self, fail):
        self.fail = fail

    def __getitem__(self, i):
        return self.fail() if i == 5 else super().__getitem__(i)


def raises():
    raise IndexError("bad sample")


def test_the_error_of_a_worker_has_its_type_worker_index_and_traceback():
    with pytest.raises(IndexError) as caught:
        list(DataLoader(Fails(raises), 4, num_workers=2))
    text = str(caught.value)
    assert text.startswith("Caught IndexError in DataLoader worker process 1.\nOriginal Traceback")
    assert "raises" in text and "bad sample" in text and "index of the sample is 5" in text


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def raises_odd():
    class Local(Exception):
        pass

    raise Local("only here")


def raises_two():
    raise Odd(1, 2)


@pytest.mark.parametrize("fail, text", [(raises_odd, "only here"), (raises_two, "Caught Odd")])
def test_errors_that_cannot_be_made_again_are_runtime_errors(fail, text):
    with pytest.raises(RuntimeError, match=text):
        list(DataLoader(Fails(fail), 4, num_workers=1))


def ragged():
    return rabbet.zeros(3, 50)


def test_ragged_samples_are_named_with_shapes_and_indices():
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader(Fails(ragged), 4, num_workers=1))
    text = str(caught.value)
    assert "sample 1 has shape (3, 50)" in text and "has the indices [4, 5, 6, 7]" in text


def unpicklable():
    return lambda: None


def test_samples_that_cannot_be_pickled_are_refused():
    with pytest.raises((AttributeError, RuntimeError, TypeError), match="pickle"):
        list(DataLoader(Fails(unpicklable), None, num_workers=1))


def dies():
    os.kill(os.getpid(), signal.SIGKILL)


def leaves():
    os._exit(3)


@pytest.mark.parametrize("fail, how", [(dies, "killed by signal: Killed"), (leaves, "exit code 3")])
def test_a_worker_that_dies_is_named_and_nothing_is_left(fail, how):
    files = open_files()
    loader = DataLoader(Fails(fail), 4, num_workers=2, persistent_workers=True)
    got = []
    with pytest.raises(
        RuntimeError, match=rf"\(pid\(s\) \d+\) exited unexpectedly: worker 1 .*{how}"
    ):
        for batch in loader:
            got.append(batch)
    assert len(got) <= 1
    loader.dataset.fail = float  # the next pass has new workers
    next(iter(loader))
    del loader, got, batch
    assert open_files() <= files


def hangs():
    time.sleep(60)


def test_a_worker_that_hangs_is_named_and_ended():
    loader = DataLoader(Fails(hangs), 4, num_workers=2, timeout=1)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"timed out after 1 seconds: worker 1 \(pid \d+\)"):
        list(loader)
    assert time.monotonic() - begin < 20


PARENT = """
import os, signal, sys, time
import rabbet
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start jobs that ignore it
from rabbet.utils import data
class D(data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        if i > 20: time.sleep(60)
        return rabbet.ones(1000)
if __name__ == "__main__":
    it = iter(data.DataLoader(D(), 2, num_workers=2, multiprocessing_context=sys.argv[1]))
    next(it)
    print(*(w.pid for w in it._workers), flush=True)
    for _ in it: pass
"""


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_program(tmp_path, method, number):
    program = tmp_path / "program.py"
    program.write_text(PARENT)
    shared = shared_files()
    parent = subprocess.Popen(
        [sys.executable, program, method],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=30)
    until = time.monotonic() + 20
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_running, workers)) and not left_since(shared)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)


class Whole(data.IterableDataset):
    def __len__(self):
        return 3

    def __iter__(self):
        return iter(range(3))


def test_streams_that_are_not_divided_among_workers_warn():
    loader = DataLoader(Whole(), None, num_workers=2)
    assert len(loader) == 3
    with pytest.warns(UserWarning, match="was reported to be 3.*each makes all of the samples"):
        assert sorted(loader) == [0, 0, 1, 1, 2, 2]


def test_two_loaders_at_once_and_one_inside_of_the_other():
    outer = DataLoader(Rows(), 4, num_workers=1)
    for a, b in zip(outer, DataLoader(Rows(), 4, num_workers=1), strict=True):
        assert (a == b).all()
    for batch in outer:
        check(DataLoader(Rows(), 4, num_workers=1))
        assert batch.shape == (4, 40, 50)


class Products(Rows):
    def __getitem__(self, i):
        x = rabbet.ones(256, 256)
        return (x @ x)[0, 0]


def test_workers_compute_after_their_program_used_threads():
    x = rabbet.ones(512, 512)
    assert (x @ x)[0, 0] == 512
    loader = DataLoader(Products(), 4, num_workers=2, timeout=60)
    assert [b.tolist() for b in loader] == [[256.0] * 4] * 6


def test_more_workers_than_processors_warn():
    count = len(os.sched_getaffinity(0)) + 1
    with pytest.warns(UserWarning, match=f"will create {count} worker processes in total"):
        DataLoader(Rows(), num_workers=count).check_worker_number_rationality()


def test_long_lists_of_indices_do_not_block():
    loader = DataLoader(range(200_000), 100_000, num_workers=1, prefetch_factor=2, collate_fn=len)
    assert list(loader) == [100_000] * 2


def test_passes_are_not_pickled():
    import pickle

    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iter(DataLoader(Rows())))


def shuffled(workers, kind, generator=None, **options):
    return DataLoader(
        range(23), 4, shuffle=True, num_workers=workers, kind=kind, generator=generator, **options
    )


def lists(batches):
    return [b.tolist() for b in batches]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_a_pass_is_resumed_with_any_number_of_workers(own, persistent):
    def generator(seed):
        return rabbet.Generator().manual_seed(seed) if own else rabbet.manual_seed(seed) and None

    for stop in (0, 2, 6):
        loader = shuffled(1, "threads", generator(3), persistent_workers=persistent)
        list(loader)
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        expected = lists(batches)
        after = lists(loader)
        assert len(expected) == 6 - stop and len(after) == 6
        for workers, kind in ((0, "auto"), (2, "threads"), (1, "processes"), (2, "processes")):
            other = shuffled(workers, kind, generator(9))
            other.load_state_dict(state)
            assert lists(other) == expected
            assert persistent or lists(other) == after


def test_a_state_between_passes_is_the_begin_of_the_next():
    loader = shuffled(0, "auto", rabbet.Generator().manual_seed(3))
    list(loader)
    state = loader.state_dict()
    expected = lists(loader)
    other = shuffled(0, "auto", rabbet.Generator())
    other.load_state_dict(state)
    assert lists(other) == expected != lists(other)


def test_what_cannot_be_resumed_is_refused():
    with pytest.raises(RuntimeError, match="a pass with an IterableDataset does not tell"):
        DataLoader(Whole()).state_dict()
    unordered = DataLoader(Rows(), num_workers=1, in_order=False)
    with pytest.raises(RuntimeError, match="load_state_dict: a pass with in_order=False"):
        unordered.load_state_dict({})
    with pytest.raises(ValueError, match="expected what state_dict"):
        DataLoader(Rows()).load_state_dict({"batches": 1})
    state = DataLoader(Rows()).state_dict()
    sampler = data.RandomSampler(Rows(), generator=rabbet.Generator())
    with pytest.raises(ValueError, match="comes from 2 generators, that of the state from 1"):
        DataLoader(Rows(), sampler=sampler).load_state_dict(state)


# ---- large samples, which workers copy into the batch one by one


class Large(data.Dataset):
    """Samples with 160 kB tensors and the number of earlier tensors that are still alive."""

    def __init__(self, kind="tuple"):
        self.kind, self.made = kind, []

    def __len__(self):
        return 10

    def __getitem__(self, i):
        alive = sum(ref() is not None for ref in self.made)
        image = rabbet.arange(40_000.0).reshape(200, 200) + i
        self.made.append(weakref.ref(image))
        samples = {
            "tensor": image,
            "tuple": (image, alive, "text"),
            "list": [image, rabbet.tensor(alive)],
            "dict": {"x": image, "y": image.flip(0) * 2, "alive": alive, "deep": (image + 1,)},
        }
        return samples[self.kind]


class LargeStream(data.IterableDataset):
    def __init__(self, kind):
        self.samples = Large(kind)

    def __iter__(self):
        return (self.samples[i] for i in range(10))


@pytest.mark.parametrize("kind", ["tensor", "tuple", "list", "dict"])
@pytest.mark.parametrize("make", [Large, LargeStream])
def test_large_samples_arrive_as_without_workers(kind, make):
    expected = list(DataLoader(make(kind), 4))
    found = list(DataLoader(make(kind), 4, num_workers=1))
    assert len(found) == 3

    def compare(a, b):
        if isinstance(a, rabbet.Tensor) and a.ndim > 1:
            assert rabbet.equal(a, b)
        elif isinstance(a, dict):
            assert a.keys() == b.keys() and [compare(a[k], b[k]) for k in a]
        elif isinstance(a, list) and not isinstance(a[0], str):
            assert len(a) == len(b) and [compare(x, y) for x, y in zip(a, b, strict=True)]

    for a, b in zip(expected, found, strict=True):
        assert type(a) is type(b)
        compare(a, b)


def test_a_worker_holds_one_large_sample_instead_of_all():
    for images, alive, texts in DataLoader(Large(), 5, num_workers=1):
        assert max(alive) <= 1 and len(images) == 5 and set(texts) == {"text"}
    inside = [alive for _, alive, _ in DataLoader(Large(), 5)]
    assert max(map(max, inside)) >= 4  # the count works


class Uneven(Large):
    def __getitem__(self, i):
        size, dtype = (200, rabbet.float32) if i != 3 else self.kind
        return rabbet.full((size, 200), float(i), dtype=dtype)


def test_large_samples_that_do_not_fit_each_other_are_treated_as_before():
    uneven = Uneven((201, rabbet.float32))
    with pytest.raises(RuntimeError, match=r"sample 0 has shape \(200, 200\) and that of sample 3 has shape \(201, 200\)"):  # fmt: skip
        next(iter(DataLoader(uneven, 5, num_workers=1)))
    mixed = next(iter(DataLoader(Uneven((200, rabbet.float64)), 5, num_workers=1)))
    assert mixed.dtype == rabbet.float64 and mixed[:, 0, 0].tolist() == [0, 1, 2, 3, 4]


class Kept(Large):
    """Returns a tensor that it also keeps."""

    def __init__(self):
        self.image = rabbet.zeros(200, 200)

    def __getitem__(self, i):
        assert i == 0 or self.image[0, 0] == i - 1  # nothing else has written to it
        self.image = self.image.clone().fill_(i)
        return self.image


def test_samples_that_the_dataset_keeps_are_copied():
    batches = DataLoader(Kept(), 4, num_workers=1)
    assert [b[:, 0, 0].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
