"""`rabbet.multiprocessing`: Python's own under PyTorch's names; tensors in messages refuse."""

import multiprocessing as python
import os
import signal
import time

import pytest
import rabbet
from rabbet import multiprocessing as mp


def double(i, numbers, results):
    results.put((i, 2 * numbers[i]))


def fail(i, which):
    if i == which:
        raise ValueError(f"process {i} failed")
    time.sleep(30)


def die(i):
    os.kill(os.getpid(), signal.SIGKILL)


def leave(i):
    os._exit(3)


def test_names_are_pythons():
    assert mp.Process is python.Process and mp.get_start_method() == python.get_start_method()
    assert (
        set(python.__all__) <= set(mp.__all__)
        and mp.get_all_start_methods() == python.get_all_start_methods()
    )
    assert isinstance(mp.get_context("fork"), python.context.ForkContext)
    assert (
        mp.get_all_sharing_strategies() == set() and mp.set_sharing_strategy("file_system") is None
    )
    with pytest.raises(ValueError, match="cannot find context for 'frob'"):
        mp.get_context("frob")


def test_forked_processes_return_results_by_a_queue():
    results = mp.get_context("fork").Queue()
    assert mp.start_processes(double, ([3, 4], results), nprocs=2, start_method="fork") is None
    assert sorted(results.get(timeout=10) for _ in range(2)) == [(0, 6), (1, 8)]


def test_a_forked_process_writes_into_a_shared_tensor():
    x = rabbet.zeros(3).share_memory_()
    process = mp.get_context("fork").Process(target=x.fill_, args=(7,))
    process.start()
    process.join()
    assert process.exitcode == 0 and x.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    "make", [mp.Queue, mp.JoinableQueue, mp.SimpleQueue, mp.get_context("fork").Queue]
)
def test_tensors_in_queues_refuse_where_they_are_put(make):
    queue = make()
    with pytest.raises(NotImplementedError, match="shares no tensors by messages"):
        queue.put({"x": [rabbet.ones(2)]})
    queue.put({"x": [1]})
    assert queue.get() == {"x": [1]}


def test_tensors_in_pipes_and_as_storages_refuse():
    ours, theirs = mp.Pipe()
    for value in (rabbet.ones(2), rabbet.ones(2).untyped_storage(), rabbet.FloatStorage(2)):
        with pytest.raises(NotImplementedError, match="shares no tensors by messages"):
            ours.send(value)
    ours.send(1)
    assert theirs.recv() == 1
    with pytest.raises(NotImplementedError, match="get_sharing_strategy"):
        mp.get_sharing_strategy()


def test_the_exception_of_a_process_is_raised_with_its_traceback_and_ends_the_others():
    begin = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match="ValueError: process 1 failed") as caught:
        mp.start_processes(fail, (1,), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and "Process 1 terminated" in str(caught.value)
    assert time.monotonic() - begin < 20


def test_a_process_that_dies_is_named_with_its_signal_or_code():
    with pytest.raises(
        mp.ProcessExitedException, match="process 0 terminated with signal SIGKILL"
    ) as caught:
        mp.start_processes(die, start_method="fork")
    assert (caught.value.exit_code, caught.value.signal_name) == (-9, "SIGKILL")
    with pytest.raises(mp.ProcessExitedException, match="with exit code 3"):
        mp.start_processes(leave, start_method="fork")


def test_processes_can_be_joined_later():
    results = mp.get_context("fork").Queue()
    context = mp.start_processes(double, ([1], results), join=False, start_method="fork")
    assert isinstance(context, mp.ProcessContext) and len(context.pids()) == 1
    assert results.get(timeout=10) == (0, 2)
    while not context.join(timeout=5):
        pass
    assert context.join()


def test_spawn_starts_new_interpreters_and_takes_no_other_method():
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        context = mp.spawn(leave, nprocs=0, join=False, start_method="fork")
    assert context.join()
    with pytest.raises(mp.ProcessExitedException, match="with exit code 3"):
        mp.spawn(leave)
