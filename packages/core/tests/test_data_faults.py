"""Faults around data loaders that are not a worker's own: memory that is full, no fork, datasets and samplers that count wrong."""

import multiprocessing
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
from rabbet.utils import data
from rabbet.utils.data import _utils
from shared_files import left_since, shared_files


class Squares(data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return rabbet.full((3000,), float(i * i))


def no_large_files(_):
    """Of a worker: no file, and no shared memory, may grow beyond a page."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_come_by_value_where_shared_memory_is_full(method):
    before = shared_files()
    loader = data.DataLoader(
        Squares(), 4, num_workers=2, worker_init_fn=no_large_files, multiprocessing_context=method
    )
    found = [batch[:, 0].tolist() for batch in loader]
    assert found == [[float(i * i) for i in range(k, k + 4)] for k in (0, 4, 8)]
    batches = iter(loader)
    next(batches)
    sizes = [len(slot._mapped(0)) if slot._memory else 0 for slot in batches._pool.ring.slots]
    assert max(sizes) <= 4096  # none of it went through a slot
    del batches
    assert not left_since(before)


WITHOUT_FORK = """
import multiprocessing, os
from test_data_faults import Squares
import multiprocessing.context as context

if __name__ == "__main__":
    del os.fork
    context._concrete_contexts.pop("fork")
    multiprocessing.set_start_method("spawn", force=True)
    from rabbet.utils import data
    assert [len(b) for b in data.DataLoader(Squares(), 5, num_workers=2)] == [5, 5, 2]
    print("done")
"""


def test_processes_start_where_there_is_no_fork(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_FORK)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(
        ValueError,
        match=r"valid start method in \['spawn'\], but got multiprocessing_context='fork'",
    ):
        data.DataLoader(Squares(), num_workers=1, multiprocessing_context="fork")


class WithoutLength(data.Dataset):
    def __getitem__(self, i):
        return i


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_without_a_length_needs_a_sampler(workers):
    with pytest.raises(TypeError, match=r"object of type 'WithoutLength' has no len\(\)"):
        list(data.DataLoader(WithoutLength(), 2, num_workers=workers))
    with pytest.raises((TypeError, ValueError), match=r"WithoutLength|num_samples"):
        list(data.DataLoader(WithoutLength(), 2, shuffle=True, num_workers=workers))
    loader = data.DataLoader(WithoutLength(), 2, sampler=range(5), num_workers=workers)
    assert [b.tolist() for b in loader] == [[0, 1], [2, 3], [4]] and len(loader) == 3


class Miscounts(data.Sampler):
    def __init__(self, told, number):
        self.told, self.number = told, number

    def __iter__(self):
        return iter(range(self.number))

    def __len__(self):
        return self.told


@pytest.mark.parametrize("kind", ["processes", "threads", None])
@pytest.mark.parametrize(("told", "number"), [(2, 9), (9, 2), (0, 3)])
def test_a_sampler_that_reports_a_wrong_length_gives_what_it_gives(kind, told, number):
    options = {} if kind is None else {"num_workers": 2, "kind": kind}
    loader = data.DataLoader(Squares(), 2, sampler=Miscounts(told, number), **options)
    assert len(loader) == -(-told // 2)
    for _ in range(2):
        assert [i for b in loader for i in b[:, 0].tolist()] == [
            float(i * i) for i in range(number)
        ]


def test_numpy_is_known_when_the_program_imports_it_after_the_loader():
    """The loader imports it neither in the program nor in workers."""
    code = """
import sys
from pathlib import Path
from rabbet.utils import data
from rabbet.utils.data import _utils
import rabbet
assert list(data.DataLoader([1.5, 2.5], 2))[0].tolist() == [1.5, 2.5]
assert "numpy" not in sys.modules and "rabbet.autograd" not in sys.modules and "rabbet.nn" not in sys.modules
import numpy as np
for x, dtype in ((np.float64(1.5), rabbet.float64), (np.float32(1.5), rabbet.float32), (np.ones(2), rabbet.float64)):
    assert data.default_collate([x, x]).dtype is dtype, x
assert np.ndarray in _utils.collate.default_collate_fn_map and list(_utils.collate.default_collate_fn_map)[0] is rabbet.Tensor
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'frob'"):
        _ = _utils.collate.frob


def test_a_forked_worker_copies_little_of_its_program():
    """Neither collections of garbage nor imports in the worker touch the program's pages."""
    code = """
import gc, sys, time
import rabbet
from rabbet.utils import data
kept = [[{"a": i}] for i in range(200_000)]  # 60 MB of objects that a collection would write to
class D(data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if i % 8 == 0: gc.collect()
        return rabbet.ones(16)
batches = iter(data.DataLoader(D(), 8, num_workers=1, multiprocessing_context="fork"))
for _ in range(4): next(batches)
with open(f"/proc/{batches._workers[0].pid}/smaps_rollup") as file:
    print(sum(int(x.split()[1]) for x in file if x.startswith("Private_Dirty")))
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(found.stdout) < 12_000  # kB; with collections of the program's objects 60,000
