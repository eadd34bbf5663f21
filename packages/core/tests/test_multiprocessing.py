"""`rabbet.multiprocessing`: Python's own under PyTorch's names; messages share the memory of tensors."""

import multiprocessing as python
import os
import signal
import time

import pytest
import rabbet
from rabbet import multiprocessing as mp
from shared_files import left_since, shared_files


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
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    assert mp.get_sharing_strategy() == "file_descriptor"
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError, match="invalid sharing strategy 'frob', expected one of"):
        mp.set_sharing_strategy("frob")
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


@pytest.mark.parametrize("make", [mp.Queue, mp.JoinableQueue, mp.SimpleQueue])
def test_what_cannot_be_pickled_is_refused_where_it_is_put(make):
    queue = make()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        queue.put({"x": [rabbet.ones(2, requires_grad=True) * 2]})
    queue.put({"x": [1]})
    assert queue.get() == {"x": [1]}


def write(message, results):
    """Write to each tensor of a message, and tell how it looks."""
    seen = []
    for x in message:
        seen.append(
            (tuple(x.shape), x.stride(), x.storage_offset(), x.requires_grad, x.is_shared())
        )
        x.detach().fill_(7)
    results.put(seen)


def a_message():
    base = rabbet.arange(12.0).reshape(3, 4)
    leaf = rabbet.zeros(2, requires_grad=True)
    return base, base.t()[1:], leaf, rabbet.zeros(0, 3), rabbet.zeros((), dtype=rabbet.bfloat16)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_arguments_of_processes_share_their_memory(method):
    context = mp.get_context(method)
    message, results = a_message(), context.Queue()
    process = context.Process(target=write, args=(mp_sendable(message, method), results))
    process.start()
    seen = results.get(timeout=60)
    process.join()
    assert [s[:4] for s in seen] == [
        (tuple(x.shape), x.stride(), x.storage_offset(), x.requires_grad) for x in message
    ]
    assert [s[4] for s in seen] == [True, True, True, False, True]
    assert all((x.detach() == 7).all() for x in message)


def mp_sendable(message, method):
    """A forked process sees what is shared before it begins; others get a message."""
    return [x.share_memory_() for x in message] if method == "fork" else message


def test_views_of_one_memory_stay_views_of_one_memory():
    ours, theirs = mp.Pipe()
    base = rabbet.zeros(3, 4)
    row = base[1]
    ours.send((base, row, base.untyped_storage(), base))
    a, b, storage, again = theirs.recv()
    assert again is a and storage == a.untyped_storage() == b.untyped_storage()
    b.fill_(3)
    assert base[1].tolist() == row.tolist() == [3] * 4 and base.is_shared() and row.is_shared()
    storage.fill_(0)
    assert base.sum() == 0
    ours.send(base)
    assert theirs.recv().data_ptr() == a.data_ptr()  # the mapping that is there already


def test_a_view_written_after_its_base_was_shared_keeps_its_values():
    ours, theirs = mp.Pipe()
    base = rabbet.zeros(3, 4)
    row = base[1]
    ours.send(base)
    row.fill_(5)
    ours.send(row)
    assert theirs.recv().sum() == 0 and theirs.recv().tolist() == [5] * 4


def test_storages_cross_pipes():
    ours, theirs = mp.Pipe()
    typed, untyped = rabbet.FloatStorage([1.0, 2.0]), rabbet.ones(2).untyped_storage()
    ours.send((typed, untyped, rabbet.FloatStorage(0)))
    a, b, empty = theirs.recv()
    a[0], b[0] = 5.0, 9
    assert typed.tolist() == [5, 2] and untyped[0] == 9 and len(empty) == 0
    assert empty.dtype is rabbet.float32 and typed.is_shared() and b.is_shared()
    assert rabbet.FloatStorage(2).share_memory_().is_shared()
    meta = rabbet.empty(3, device="meta")
    ours.send(meta)
    assert theirs.recv().is_meta
    with pytest.raises(RuntimeError, match="Cannot pickle meta storage"):
        ours.send(meta.untyped_storage())


def test_modules_cross_processes_with_their_parameters_shared():
    nn = pytest.importorskip("rabbet.nn")
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model[0].weight.note = "kept"
    model[0].bias.requires_grad_(False)
    context = mp.get_context("fork")
    queue, results = context.Queue(), context.Queue()
    process = context.Process(target=train, args=(queue, results))
    process.start()
    queue.put(model)
    assert results.get(timeout=60) == ("Parameter", "kept", [True, False, True, True])
    process.join()
    assert (model[0].weight == 7).all() and (model[1].running_mean == 7).all()


def train(queue, results):
    model = queue.get(timeout=60)
    with rabbet.no_grad():
        model[0].weight.fill_(7)
        model[1].running_mean.fill_(7)
    weight = model[0].weight
    results.put((type(weight).__name__, weight.note, [p.requires_grad for p in model.parameters()]))


def row_sum(x):
    return x.sum(1)


def test_pools_take_and_return_tensors():
    with mp.get_context("fork").Pool(2) as pool:
        sums = pool.map(row_sum, [rabbet.full((2, 3), float(i)) for i in range(6)])
    assert [s.tolist() for s in sums] == [[3.0 * i] * 2 for i in range(6)]


def send_and_wait(connection):
    connection.send(rabbet.full((1000,), 3.0))
    connection.recv()


def test_memory_lasts_as_long_as_someone_uses_it_and_no_longer():
    before, descriptors = shared_files(), len(os.listdir("/proc/self/fd"))
    ours, theirs = mp.Pipe()
    process = mp.get_context("fork").Process(target=send_and_wait, args=(theirs,))
    process.start()
    received = ours.recv()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert received.sum() == 3000  # freed by its sender's end
    del received
    ours.close(), theirs.close()
    process.close()
    assert not left_since(before) and len(os.listdir("/proc/self/fd")) == descriptors


def test_messages_leave_no_descriptors():
    ours, theirs = mp.Pipe()
    counts = []
    for i in range(60):
        ours.send(rabbet.full((50,), float(i)))
        assert theirs.recv()[0] == i
        if i >= 20:
            counts.append(len(os.listdir("/proc/self/fd")))
    assert max(counts[-20:]) <= max(counts[:20])


def multiply(results):
    x = rabbet.ones(512, 512)
    results.put(float((x @ x).sum()))


def test_a_forked_process_computes_after_its_parent_used_threads():
    x = rabbet.ones(512, 512)
    expected = float((x @ x).sum())
    context = mp.get_context("fork")
    for _ in range(3):
        results = context.SimpleQueue()
        process = context.Process(target=multiply, args=(results,))
        process.start()
        process.join(60)
        assert process.exitcode == 0 and results.get() == expected


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
