"""resize_, resize_as_ and set_: which memory a tensor shows."""

import gc
import os

import pytest
import rabbet
from rabbet import _sharing


def test_resize_keeps_memory_that_is_large_enough():
    x = rabbet.arange(6)
    place = x.data_ptr()
    assert x.resize_(2, 2) is x and x.tolist() == [[0, 1], [2, 3]]
    assert x.resize_((6,)).tolist() == list(range(6)) and x.data_ptr() == place
    y = rabbet.arange(10)[4:]
    assert y.resize_(2, 3).tolist() == [[4, 5, 6], [7, 8, 9]]


def test_resize_to_more_keeps_what_is_there():
    x = rabbet.arange(6).reshape(2, 3)[1:]
    assert x.resize_(2, 2).flatten()[:3].tolist() == [3, 4, 5] and x.shape == (2, 2)
    empty = rabbet.empty(0)
    assert empty.resize_(rabbet.Size([2, 3])).stride() == (3, 1)


def test_the_same_sizes_change_nothing():
    x = rabbet.arange(6).reshape(2, 3).t()
    assert x.resize_(3, 2).stride() == (1, 3)


def test_resize_with_a_memory_format():
    x = rabbet.empty(0).resize_(2, 3, 4, 5, memory_format=rabbet.channels_last)
    assert x.is_contiguous(memory_format=rabbet.channels_last)
    like = rabbet.empty(2, 3, 4, 5).contiguous(memory_format=rabbet.channels_last)
    made = rabbet.empty(0).resize_as_(like, memory_format=rabbet.preserve_format)
    assert made.stride() == like.stride()
    assert rabbet.empty(0).resize_as_(like).is_contiguous()


def test_set():
    source = rabbet.arange(6.0)
    x = rabbet.empty(0)
    assert x.set_(source) is x and x.data_ptr() == source.data_ptr()
    assert x.set_(source, 1, (2,), (3,)).tolist() == [1.0, 4.0]
    assert x.set_(source, 2, (2, 2)).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert x.set_(source.untyped_storage()).tolist() == source.tolist()
    assert x.set_(source.untyped_storage(), 2, (3,)).tolist() == [2.0, 3.0, 4.0]
    assert x.set_().shape == (0,)


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda x: x.requires_grad_().resize_(7), RuntimeError, "require grad"),
        (lambda x: x.resize_(-1), RuntimeError, "negative"),
        (lambda x: x.resize_(2.5), TypeError, "not iterable|int"),
        (lambda x: x.resize_(2, memory_format=rabbet.preserve_format), RuntimeError, "format"),
        (lambda x: x.set_(rabbet.ones(2, dtype=rabbet.int64)), RuntimeError, "int64"),
        (lambda x: x.set_([1.0]), TypeError, "list"),
        (lambda x: x.set_(rabbet.ones(3), 2, (5,)), RuntimeError, "storage"),
    ],
)
def test_bad_calls(call, error, said):
    x = rabbet.ones(6)
    with pytest.raises(error, match=said):
        call(x)
    assert x.shape == (6,)


# ---- memory that processes share


def in_a_fork(function):
    """Run a function in a forked process."""
    child = os.fork()
    if not child:
        try:
            function()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_process_writes_to_shared_memory():
    x = rabbet.arange(6.0).reshape(2, 3).t().requires_grad_()
    plain, shown = rabbet.zeros(3), x.detach().numpy()
    assert not x.is_shared() and x.share_memory_() is x and x.is_shared() and not plain.is_shared()
    assert x.stride() == (1, 3) and x.tolist() == [[0, 3], [1, 4], [2, 5]] and x.requires_grad
    place = x.data_ptr()
    assert x.share_memory_().data_ptr() == place and x[1].detach().is_shared()
    values, others = x.detach().numpy(), plain.numpy()

    def write():
        values[1, 0] = others[0] = 9

    in_a_fork(write)
    assert x[1, 0] == 9 and plain[0] == 0
    assert shown[1, 0] == 1  # former views keep the former memory


def test_shared_memory_is_forgotten_with_its_last_tensor():
    for _ in range(3):
        x = rabbet.ones(10_000).share_memory_()
        assert x.is_shared() and not x.clone().is_shared()
    view = x[5:]
    del x
    assert view.is_shared() and view.sum() == 9995
    del view
    gc.collect()
    assert not _sharing._segments and not _sharing._moved


def test_sharing_without_elements_or_memory_changes_nothing():
    empty, meta = rabbet.empty(0), rabbet.empty(3, device="meta")
    assert empty.share_memory_() is empty and meta.share_memory_() is meta
    assert not empty.is_shared() and not meta.is_shared()


def test_a_storage_of_a_file(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(bytes(range(10)))
    storage = rabbet.UntypedStorage.from_file(file, nbytes=8)
    storage.fill_(1)
    assert file.read_bytes() == bytes(range(10)) and len(storage) == 8  # a copy on write
    shared = rabbet.UntypedStorage.from_file(str(file), shared=True, nbytes=12)
    assert shared.untyped() is shared
    part = shared[2:4]
    part.fill_(9)
    assert shared.tolist()[:5] == [0, 1, 9, 9, 4] and file.read_bytes()[2:4] == b"\t\t"
    assert rabbet.asarray(part, dtype=rabbet.uint8).tolist() == [9, 9] and len(shared[5:5]) == 0
    for nbytes, options in ((0, {}), (13, {}), (0, {"shared": True})):
        with pytest.raises(ValueError, match="from_file: expected nbytes from 1 to the 12 of"):
            rabbet.UntypedStorage.from_file(file, nbytes=nbytes, **options)
    with pytest.raises(RuntimeError, match="only a step of 1"):
        shared[::2]
