"""Tensors: creation, views, indexing, promotion, identity, interop; NumPy is the oracle."""

import copy
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128"]  # fmt: skip
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_shares_memory_both_ways(name):
    array = np.arange(12).reshape(3, 4).astype(name)
    t = rabbet.from_numpy(array[::-1, ::2])
    assert t.dtype is getattr(rabbet, name) and t.stride() == (-4, 2)
    assert t.tolist() == array[::-1, ::2].tolist()
    t[0, 0] = 1
    assert array[2, 0] == 1
    back = t.numpy()
    back[0, 1] = 0
    assert t.tolist() == back.tolist() and array[2, 2] == 0


@pytest.mark.parametrize("name", [d for d in DTYPES if d not in ("uint16", "uint32", "uint64")])
def test_dlpack_shares_memory_both_ways(name):
    t = rabbet.ones(2, 3, dtype=getattr(rabbet, name))
    array = np.from_dlpack(t)
    assert array.ctypes.data == t.data_ptr() and array.dtype == name
    again = rabbet.from_dlpack(np.ones((2, 3), name)[:, 1:])
    assert again.shape == (2, 2) and again.tolist() == np.ones((2, 2), name).tolist()


def test_dlpack_keeps_the_producer_alive():
    array = np.from_dlpack(rabbet.arange(1000))
    gc.collect()
    assert array[999] == 999


@given(data=st.data(), shape=shapes)
@settings(max_examples=150, deadline=None)
def test_basic_indexing_agrees_with_numpy(data, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    steps = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, slice) and i.step is not None and i.step <= 0 for i in steps):
        return
    want = array[index]
    got = rabbet.from_numpy(array)[index]
    assert tuple(got.shape) == want.shape and got.tolist() == want.tolist()


@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
@settings(max_examples=100, deadline=None)
def test_advanced_indexing_agrees_with_numpy(data, shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    index = data.draw(hnp.integer_array_indices(shape))
    got = rabbet.from_numpy(array)[tuple(rabbet.tensor(i) for i in index)]
    assert got.tolist() == array[index].tolist()


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), [0, 2]),
        ([0, 1], slice(None), [1, 0]),
        (None, [1, 0], Ellipsis),
        ([[0], [1]], [0, 2]),
        (slice(None), np.array([True, False, True])),
    ],
    ids=str,
)
def test_mixed_indexing_and_assignment_agree_with_numpy(index):
    array = np.arange(24.0).reshape(2, 3, 4)
    t = rabbet.tensor(array)
    assert t[index].tolist() == array[index].tolist()
    array[index] = -1.0
    t[index] = -1.0
    assert t.tolist() == array.tolist()
    array[index] += array[index] * 0 + 5
    t[index] += 5
    assert t.tolist() == array.tolist()


# NumPy's advanced index of one place beside a bool has another shape than PyTorch's: no ints here.
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
@pytest.mark.parametrize(
    "index",
    [
        True,
        False,
        (True, True),
        (True, False),
        (slice(None), True),
        (Ellipsis, False),
        ([0, 0], True),
        (True, [0, 0]),
        ([0, 1], slice(None), True),
        (None, True, [0, 1]),
        ([1], False),
    ],
)
def test_a_bool_is_a_mask_without_dimensions(index):
    array = np.arange(6.0).reshape(2, 3)
    want = array[index]
    items = index if isinstance(index, tuple) else (index,)
    for true in (lambda b: b, rabbet.tensor, lambda b: rabbet.tensor(b, dtype=rabbet.uint8)):
        key = tuple(true(i) if isinstance(i, bool) else i for i in items)
        key = key if isinstance(index, tuple) else key[0]
        got = rabbet.from_numpy(array)[key]
        assert got.shape == want.shape and got.tolist() == want.tolist(), key
        t, other = rabbet.from_numpy(array.copy()), array.copy()
        t[key], other[index] = -1.0, -1.0
        assert t.tolist() == other.tolist(), key


def test_a_mask_without_dimensions_is_differentiable_and_broadcasts():
    pytest.importorskip("rabbet.autograd")
    x = rabbet.ones(2, 3, requires_grad=True)
    x[[0, 0], True].sum().backward()
    assert x.grad.tolist() == [[2, 2, 2], [0, 0, 0]]
    with pytest.raises(IndexError, match="do not broadcast"):
        x[[0, 1], False]
    assert rabbet.tensor(3.0)[True].tolist() == [3] and rabbet.tensor(3.0)[False].shape == (0,)


def test_a_mask_selects_and_assigns():
    array = np.arange(6.0).reshape(2, 3)
    t = rabbet.tensor(array)
    assert t[t > 2].tolist() == array[array > 2].tolist()
    t[t > 2] = 0
    array[array > 2] = 0
    assert t.tolist() == array.tolist()


NUMERIC = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("b", NUMERIC)
@pytest.mark.parametrize("a", NUMERIC)
def test_promotion_follows_pytorchs_table(a, b):
    torch = pytest.importorskip("torch")
    ours = rabbet.promote_types(getattr(rabbet, a), getattr(rabbet, b))
    theirs = torch.promote_types(getattr(torch, a), getattr(torch, b))
    assert str(ours)[7:] == str(theirs)[6:]


@pytest.mark.parametrize(
    "number,expected", [(1, "int32"), (1.5, "float32"), (True, "int32"), (1j, "complex64")]
)
def test_a_number_only_changes_the_category(number, expected):
    assert (rabbet.ones(2, dtype=rabbet.int32) + number).dtype is getattr(rabbet, expected)
    assert (rabbet.ones(2, dtype=rabbet.float16) + 1.5).dtype is rabbet.float16


def test_a_0d_tensor_gives_way_to_one_with_dimensions():
    assert (rabbet.ones(2) + rabbet.tensor(1.0, dtype=rabbet.float64)).dtype is rabbet.float32


def test_views_share_memory_and_copies_do_not():
    x = rabbet.zeros(2, 3)
    for view in (
        x.t(),
        x[0],
        x[:, 1:],
        x.reshape(6),
        x.view(3, 2),
        x.expand(4, 2, 3),
        x.unsqueeze(1),
        x.detach(),
    ):
        view.flatten()[0:1].fill_(0)
        assert view._storage_id() == x._storage_id()
    assert x.clone()._storage_id() != x._storage_id()
    assert x.t().contiguous()._storage_id() != x._storage_id()


def test_one_tensor_has_one_python_object():
    class Named(rabbet.Tensor):
        pass

    x = rabbet.Tensor._make_subclass(Named, rabbet.zeros(2))
    x.note = "kept"
    holder = [x]
    assert holder[0] is x and x.note == "kept" and isinstance(x, rabbet.Tensor)


ENDS_WELL = {
    "collected with attributes": """
import gc, rabbet
for i in range(2000):
    x = rabbet.zeros(3)
    x.note = 1
    cycle = [x]
    cycle.append(cycle)
    del x, cycle
    if i % 50 == 0:
        gc.collect()
        kept = [rabbet.zeros(2) for _ in range(20)]
        views = [{"view": t.view(-1)} for t in kept]
        for t in kept:
            vars(t)
gc.collect()
""",
    "made as a subclass": """
import rabbet
x = rabbet.zeros(5)
y = rabbet.Tensor._make_subclass(rabbet.Tensor, x, True)
del x, y
""",
}


@pytest.mark.parametrize("what", ENDS_WELL)
def test_objects_that_are_kept_for_reuse_are_in_order(what):
    done = subprocess.run([sys.executable, "-c", ENDS_WELL[what]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_memory_is_given_back():
    gc.collect()
    before = rabbet._C.live_counts()
    for _ in range(100):
        x = rabbet.randn(100, 100)
        y = (x @ x.t()).sum()
        del x, y
    gc.collect()
    after = rabbet._C.live_counts()
    assert after["tensors"] == before["tensors"] and after["bytes"] == before["bytes"]


def test_pickle_and_deepcopy_keep_values():
    x = rabbet.randn(2, 3)
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert rabbet.equal(x, other) and other is not x


def test_tensors_made_as_plain_tensors_are_freed_once():
    code = (
        "import gc, rabbet\n"
        "x = rabbet.ones(2)\n"
        "for _ in range(2000):\n    y = rabbet.Tensor._make_subclass(rabbet.Tensor, x)\n"
        "gc.collect(); z = [x + 1 for _ in range(2000)]; del x, y, z; gc.collect(); print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_shallow_copy_shares_memory():
    class Named(rabbet.Tensor):
        pass

    x = rabbet.Tensor._make_subclass(Named, rabbet.arange(3.0))
    x.note = ["kept"]
    y = copy.copy(x)
    assert y is not x and type(y) is Named and y.note is x.note
    y[0] = 7
    assert x.tolist() == [7, 1, 2] and y.data_ptr() == x.data_ptr()
    plain = rabbet.ones(2)
    plain.note = "kept"
    assert type(copy.copy(plain)) is rabbet.Tensor and copy.copy(plain).note == "kept"
    meta = rabbet.empty(2, 3, device="meta").t()
    assert copy.copy(meta).stride() == (1, 3)


def test_a_shallow_copy_is_a_leaf_that_requires_grad_as_the_tensor_does():
    pytest.importorskip("rabbet.autograd")
    x = rabbet.ones(2, requires_grad=True)
    (x * x).sum().backward()
    for t in (x, x * 2):
        c = copy.copy(t)
        assert c.requires_grad and c.is_leaf and c.grad is None and c.grad_fn is None
    assert not copy.copy(x.detach()).requires_grad


def test_deepcopy_keeps_which_tensors_share_memory():
    base = rabbet.arange(6.0)
    tensors = [base[1:], base, base.reshape(2, 3).t(), base.view(rabbet.int32), rabbet.ones(2)]
    tail, whole, turned, bits, other = copy.deepcopy(tensors)
    assert turned.stride() == (1, 3) and tail.storage_offset() == 1 and bits.dtype is rabbet.int32
    tail.fill_(7)
    assert whole.tolist() == [0, 7, 7, 7, 7, 7] and turned.tolist() == [[0, 7], [7, 7], [7, 7]]
    assert bits[1:].view(rabbet.float32).tolist() == [7] * 5
    assert base.tolist() == [0, 1, 2, 3, 4, 5] and other.data_ptr() != tensors[4].data_ptr()
    narrow, wide = copy.deepcopy([rabbet.arange(3, dtype=rabbet.int32)[:2], rabbet.arange(3)])
    assert narrow.tolist() == [0, 1] and wide.tolist() == [0, 1, 2]
    for strange in (
        rabbet.arange(3.0).expand(2, 3),
        rabbet.from_numpy(np.arange(6.0)[::-2]),
        rabbet.from_numpy(np.arange(12.0).reshape(3, 4)[1:, ::2]),
        rabbet.empty(0, 3),
        rabbet.tensor(3),
    ):
        again = copy.deepcopy(strange)
        assert again.tolist() == strange.tolist() and again.shape == strange.shape
    assert copy.deepcopy(rabbet.empty(2, 3, device="meta").t()).stride() == (1, 3)


def test_pickled_meta_tensors_and_generators():
    x = rabbet.empty(2, 3, dtype=rabbet.int32, device="meta").t()
    again = pickle.loads(pickle.dumps(x))
    assert again.is_meta and again.dtype is x.dtype
    assert (again.shape, again.stride()) == ((3, 2), (1, 3))
    g = rabbet.Generator().manual_seed(2**64 - 3)
    rabbet.rand(5, generator=g)
    others = [copy.copy(g), copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    want = rabbet.rand(4, generator=g)
    assert [o.device for o in others] == [g.device] * 3 and all(o is not g for o in others)
    assert all(rabbet.equal(rabbet.rand(4, generator=o), want) for o in others)
    with pytest.raises(TypeError):
        g.__setstate__((1,))
    default = copy.copy(rabbet.default_generator)
    assert default.get_state().tolist() == rabbet.default_generator.get_state().tolist()


@pytest.mark.parametrize(
    "value, spec, text",
    [
        (3.14159, ".3f", "3.142"),
        (3, "", "3"),
        (3, "5d", "    3"),
        (3, "x", "3"),
        (2.5, "", "2.5"),
        (2.5, ">6", "   2.5"),
        (True, "", "True"),
        (1 + 2j, ".1f", "1.0+2.0j"),
    ],
)
def test_a_tensor_without_dimensions_is_formatted_as_its_number(value, spec, text):
    assert format(rabbet.tensor(value), spec) == text


def test_other_tensors_take_no_format():
    x = rabbet.tensor([2.5])
    assert f"{x}" == repr(x)
    meta = rabbet.ones((), device="meta")
    assert f"{meta}" == repr(meta)
    for t in (x, meta):
        with pytest.raises(TypeError, match="unsupported format string"):
            format(t, ".3f")
    with pytest.raises(ValueError, match="Unknown format code 'd'"):
        format(rabbet.tensor(2.5), "d")


def test_dlpack_copies_when_asked():
    x = rabbet.arange(3.0)
    for exported, shares in (
        (x.__dlpack__(), True),
        (x.__dlpack__(copy=None), True),
        (x.__dlpack__(copy=False, dl_device=(1, 0)), True),
        (x.__dlpack__(copy=True), False),
        (x.__dlpack__(copy=True, max_version=(1, 0)), False),
    ):
        assert (rabbet.from_dlpack(exported).data_ptr() == x.data_ptr()) == shares
    assert rabbet.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert rabbet.from_dlpack(x, copy=True, device="cpu").data_ptr() != x.data_ptr()
    array = np.from_dlpack(x, copy=True)
    array[0] = 9
    assert x.tolist() == [0, 1, 2]
    for wrong in ({"copy": 1}, {"dl_device": 3}, {"dl_device": ("cpu", 0)}, {"foo": 1}):
        with pytest.raises(TypeError):
            x.__dlpack__(**wrong)
    with pytest.raises(TypeError, match="keyword arguments only"):
        x.__dlpack__(None)
    with pytest.raises(TypeError, match="copy must be bool"):
        rabbet.from_dlpack(x, copy=1)
    with pytest.raises(BufferError, match="no loaded backend has DLPack device type 99"):
        x.__dlpack__(dl_device=(99, 0))


def test_deepcopy_copies_gradients_each_to_its_tensor():
    tensors = [rabbet.ones(n, requires_grad=True) for n in range(1, 20)]
    for t in tensors:
        (t * t).sum().backward()
    for old, new in zip(tensors, copy.deepcopy(tensors)):
        assert rabbet.equal(old.grad, new.grad) and old.grad is not new.grad and new.requires_grad


def test_meta_tensors_have_shapes_without_data():
    x = rabbet.zeros(1000, 1000, 1000, 1000, device="meta")
    y = (x.sum(0) + 1).reshape(1000, -1)
    assert y.shape == (1000, 1000000) and y.is_meta
    w = rabbet.empty(5, 3, 3, 3, device="meta")
    assert rabbet.ops.convolution(rabbet.empty(2, 3, 8, 8, device="meta"), w).shape == (2, 5, 6, 6)


def test_out_writes_where_it_is_told():
    x, out = rabbet.ones(3), rabbet.empty(3)
    assert rabbet.add(x, x, out=out) is out and out.tolist() == [2, 2, 2]
    grown = rabbet.empty(0)
    rabbet.matmul(rabbet.ones(2, 3), rabbet.ones(3, 2), out=grown)
    assert grown.tolist() == [[3, 3], [3, 3]]


def test_a_write_that_overlaps_an_operand_is_refused():
    """As in PyTorch; the same elements in the same places, and operands with gaps, are fine."""
    x = rabbet.arange(6.0)
    square = rabbet.ones(4, 4)
    for write in (
        lambda: x[1:].add_(x[:-1]),
        lambda: x[1:].copy_(x[:-1]),
        lambda: x.mul_(x[2]),
        lambda: rabbet.exp(x[:-1], out=x[1:]),
        lambda: rabbet.where(x[:-1] > 0, x[:-1], x[1:], out=x[1:]),
        lambda: square.add_(square.t()),
    ):
        with pytest.raises(rabbet.ArgumentError, match=r"share some elements.*clone\(\)"):
            write()
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and square.sum().item() == 16
    assert x.add_(x).tolist() == [0, 2, 4, 6, 8, 10]
    x[::2].add_(x[1::2])
    assert x.tolist() == [2, 2, 10, 6, 18, 10]
    x[1:].copy_(x[:-1].clone())
    assert x.tolist() == [2, 2, 2, 10, 6, 18]


def test_equal_seeds_give_equal_numbers():
    rabbet.manual_seed(7)
    a = rabbet.randn(1000)
    rabbet.manual_seed(7)
    b = rabbet.randn(1000)
    assert rabbet.equal(a, b) and abs(a.mean().item()) < 0.15 and abs(a.std().item() - 1) < 0.1


def test_results_do_not_depend_on_the_number_of_threads():
    x = rabbet.randn(300, 1000)
    threads = rabbet.get_num_threads()
    try:
        found = []
        for n in (1, 2, 4):
            rabbet.set_num_threads(n)
            found.append(
                [
                    f(x)
                    for f in (rabbet.sum, rabbet.exp, lambda t: t @ t.t(), lambda t: t.softmax(1))
                ]
            )
    finally:
        rabbet.set_num_threads(threads)
    for other in found[1:]:
        assert all(rabbet.equal(a, b) for a, b in zip(found[0], other))


def test_kernels_run_after_fork_and_in_threads():
    code = (
        "import rabbet, os, threading\n"
        "x = rabbet.ones(1000, 1000); assert x.sum().item() == 1e6\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    os._exit(0 if x.sum().item() == 1e6 else 1)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "found = []\n"
        "ts = [threading.Thread(target=lambda: found.append((x * 2).sum().item())) for _ in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
        "assert found == [2e6] * 4\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_import_loads_neither_numpy_nor_a_plugin():
    code = "import sys, rabbet; assert 'numpy' not in sys.modules; assert not rabbet._C.plugins(); print('ok')"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "ok\n"
    )


@pytest.mark.parametrize(
    "value,text",
    [
        ([1.0, 2.5], "tensor([1.0000, 2.5000])"),
        ([1, 2], "tensor([1, 2])"),
        ([[True, False]], "tensor([[ True, False]])"),
        ([1.0, float("nan"), float("inf")], "tensor([1., nan, inf])"),
        (3.0, "tensor(3.)"),
        ([], "tensor([])"),
    ],
)
def test_printing(value, text):
    assert repr(rabbet.tensor(value)) == text


def test_printing_shortens_large_tensors():
    assert "..." in repr(rabbet.zeros(2000)) and len(repr(rabbet.zeros(2000))) < 100


@pytest.mark.parametrize("equation,shapes", [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]), ("ii->i", [(3, 3)]), ("ij->", [(2, 3)]),
    ("i,j->ij", [(2,), (3,)]), ("...ij,...jk", [(2, 2, 3), (2, 3, 2)]), ("ij,kj,kl->il", [(2, 3), (4, 3), (4, 5)]),
    ("ij->ji", [(2, 3)]),
])  # fmt: skip
def test_einsum_agrees_with_numpy(equation, shapes):
    arrays = [np.random.default_rng(0).normal(size=s) for s in shapes]
    got = rabbet.einsum(equation, *map(rabbet.tensor, arrays))
    np.testing.assert_allclose(got.numpy(), np.einsum(equation, *arrays), rtol=1e-12)


def test_copy_takes_non_blocking_by_position():
    a, b = rabbet.zeros(3), rabbet.ones(3)
    assert a.copy_(b, True) is a and a.tolist() == [1, 1, 1]
    assert a.copy_(b * 2, False).tolist() == [2, 2, 2]
    for wrong in [(b, 1), (b, None), (b, True, True), (True,) * 3]:
        with pytest.raises(TypeError):
            a.copy_(*wrong)
    with pytest.raises(TypeError):
        a.fill_(2.0, True)
    assert a.tolist() == [2, 2, 2]
