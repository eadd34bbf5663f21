"""Exchanged tensors, dtypes by name, storages by dtype, weak dicts, decorating context managers, files as tensors."""

import gc
import io
import weakref

import numpy as np
import pytest
import rabbet
from rabbet.utils import swap_tensors
from rabbet.utils._contextlib import (
    _DecoratorContextManager,
    _NoParamDecoratorContextManager,
    context_decorator,
)
from rabbet.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakTensorKeyDictionary

# ---- swap_tensors


def test_references_lead_to_the_other_tensor_after_an_exchange():
    a, b = rabbet.zeros(2), rabbet.ones(3, dtype=rabbet.float64)
    a.note, held = "a", [a, b]
    swap_tensors(a, b)
    assert held[0] is a and a.tolist() == [1, 1, 1] and a.dtype is rabbet.float64
    assert b.tolist() == [0, 0] and b.note == "a" and not hasattr(a, "note")
    swap_tensors(a, a)
    assert a.tolist() == [1, 1, 1]


def test_classes_are_exchanged_too():
    nn = pytest.importorskip("rabbet.nn")
    a, b = nn.Parameter(rabbet.zeros(2)), rabbet.ones(3)
    swap_tensors(a, b)
    assert (
        type(a) is rabbet.Tensor
        and type(b) is nn.Parameter
        and b.requires_grad
        and not a.requires_grad
    )
    del a
    gc.collect()
    assert (b + 1).tolist() == [1, 1]


def test_exchanges_that_would_leave_references_behind_are_refused():
    a, b = rabbet.zeros(2), rabbet.ones(3)
    for wrong in ((a, 1), (None, b)):
        with pytest.raises(TypeError, match="to be a Tensor"):
            swap_tensors(*wrong)
    view = a[1:]
    with pytest.raises(RuntimeError, match="used by a view"):
        swap_tensors(a, b)
    del view
    reference = weakref.ref(b)
    with pytest.raises(RuntimeError, match="t2 because it has weakref"):
        swap_tensors(a, b)
    assert reference() is b and a.tolist() == [0, 0] and b.tolist() == [1, 1, 1]


# ---- dtypes and storages


def test_dtypes_without_arithmetic_have_names_and_sizes():
    sizes = {
        "uint1": 1,
        "int4": 1,
        "uint7": 1,
        "quint8": 1,
        "qint8": 1,
        "qint32": 4,
        "quint4x2": 1,
        "bits16": 2,
    }
    for name, size in sizes.items():
        dtype = getattr(rabbet, name)
        assert (
            dtype is getattr(rabbet, name)
            and dtype.itemsize == size
            and not dtype.is_floating_point
        )
    bits = rabbet.tensor([1, 2], dtype=rabbet.uint8).view(rabbet.uint4)
    assert bits.dtype is rabbet.uint4 and bits.view(rabbet.uint8).tolist() == [1, 2]
    with pytest.raises((TypeError, RuntimeError)):
        bits + bits
    assert repr(bits) == "tensor([1, 2], dtype=rabbet.uint4)"
    with pytest.raises(ValueError, match="no dtype 'uint9'"):
        rabbet._C.named_dtype("uint9")


def test_scales_of_microscaling_formats_are_powers_of_two():
    values = rabbet.tensor(
        [1.0, 1.49, 1.5, 3.0, 0.3, -5.0, 2.0**127, 0.0, float("nan"), float("inf")]
    )
    found = values.to(rabbet.float8_e8m0fnu)
    # OCP Microscaling Formats, version 1.0, 5.4.1: the exponent plus 127, 255 is NaN.
    assert found.view(rabbet.uint8).tolist() == [127, 127, 128, 129, 125, 129, 254, 0, 255, 255]
    expected = [1.0, 1.0, 2.0, 4.0, 0.25, 4.0, 2.0**127, 2.0**-127]
    assert found.float().tolist()[:8] == expected and found.float()[8:].isnan().all()
    assert rabbet.float8_e8m0fnu.is_floating_point and rabbet.finfo(rabbet.float8_e8m0fnu).eps == 1


def test_storages_have_classes_by_dtype():
    storage = rabbet.FloatStorage([1, 2])
    assert isinstance(storage, rabbet.FloatStorage) and not isinstance(storage, rabbet.LongStorage)
    assert isinstance(storage, rabbet.TypedStorage) and storage.tolist() == [1, 2]
    assert len(rabbet.ByteStorage(3)) == 3 and len(rabbet.BoolStorage()) == 0
    assert isinstance(rabbet.ones(1).untyped_storage(), rabbet.StorageBase)
    on_cuda = rabbet.cuda.FloatStorage
    assert on_cuda is rabbet.cuda.FloatStorage and on_cuda.__module__ == "rabbet.cuda"
    assert not isinstance(storage, on_cuda) and "FloatStorage" in dir(rabbet.cuda)
    with pytest.raises(TypeError, match="FloatStorage: expected a size or a sequence"):
        rabbet.FloatStorage(1, 2)


def test_the_module_of_an_object_is_set():
    class Thing:
        pass

    rabbet.utils.set_module(Thing, "somewhere")
    assert Thing.__module__ == "somewhere"
    with pytest.raises(TypeError, match="'mod' must be a string, got int"):
        rabbet.utils.set_module(Thing, 3)


def test_a_file_is_mapped_as_a_tensor(tmp_path):
    path = tmp_path / "numbers"
    np.arange(4, dtype=np.float32).tofile(path)
    shared = rabbet.from_file(path, shared=True, size=4)
    private = rabbet.from_file(str(path), size=2, dtype=rabbet.int32)
    shared[0] = 9
    assert np.fromfile(path, np.float32).tolist() == [9, 1, 2, 3] and private.shape == (2,)
    for options, error in (
        ({"size": 5}, ValueError),
        ({"size": 1, "device": "meta"}, RuntimeError),
    ):
        with pytest.raises(error, match="from_file"):
            rabbet.from_file(path, **options)


def test_the_base_of_a_view_is_the_tensor_that_it_shows():
    x = rabbet.arange(6.0)
    assert (
        x._base is None
        and x[1:]._base is x
        and x.view(2, 3)[0]._base is x
        and (x + 1)._base is None
    )


def test_dense_tensors_answer_what_other_layouts_ask():
    x = rabbet.ones(2, 3)
    assert x.to_dense() is x and x.to_dense(rabbet.float64).dtype is rabbet.float64
    assert (
        x.sparse_dim() == 0
        and x.dense_dim() == 2
        and not x.is_sparse
        and x.layout is rabbet.strided
    )
    assert x.half().dequantize().dtype is rabbet.float32 and x[0]._is_view() and not x._is_view()
    assert rabbet.equal((x[:, :2] * 0.5).matrix_power(2), rabbet.full((2, 2), 0.5))
    for name in ("values", "indices", "coalesce", "crow_indices"):
        with pytest.raises(
            RuntimeError, match=f"{name} expected sparse tensor layout but got Strided"
        ):
            getattr(x, name)()
    with pytest.raises(
        NotImplementedError, match=r"Tensor\.to_sparse: rabbet has no sparse tensors"
    ):
        x.to_sparse()


# ---- weak references


def test_weak_dicts_compare_keys_by_identity_and_lose_them():
    a, b = rabbet.ones(2), rabbet.ones(2)
    table = WeakTensorKeyDictionary({a: 1})
    table[b] = 2
    assert (
        table[a] == 1
        and len(table) == 2
        and a in table
        and rabbet.ones(2) not in table
        and 3 not in table
    )
    assert [k is a or k is b for k in table] == [True, True]
    del a
    gc.collect()
    assert len(table) == 1 and table.copy()[b] == 2
    del table[b]
    with pytest.raises(KeyError):
        table[b]
    assert isinstance(table, WeakIdKeyDictionary) and table.get(b) is None


def test_a_weak_reference_to_a_tensor():
    x = rabbet.ones(1)
    reference = TensorWeakRef(x)
    assert reference() is x
    del x
    gc.collect()
    assert reference() is None
    with pytest.raises(TypeError, match="got int"):
        TensorWeakRef(1)


# ---- context managers that decorate


class Counting(_DecoratorContextManager):
    inside = 0

    def __enter__(self):
        Counting.inside += 1

    def __exit__(self, *error):
        Counting.inside -= 1


class Bare(_NoParamDecoratorContextManager, Counting):
    pass


def test_functions_and_generators_run_inside_and_their_callers_outside():
    @Counting()
    def function(x):
        """Doc."""
        return Counting.inside, x

    @Bare
    def bare():
        return Counting.inside

    @Counting()
    def generator():
        try:
            got = yield Counting.inside
            yield got, Counting.inside
        except KeyError:
            yield "caught", Counting.inside
        return "end"

    assert (
        function(3) == (1, 3)
        and function.__doc__ == "Doc."
        and bare() == 1
        and Counting.inside == 0
    )
    steps = generator()
    assert next(steps) == 1 and Counting.inside == 0
    assert steps.send("sent") == ("sent", 1) and steps.throw(KeyError()) == ("caught", 1)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == "end" and Counting.inside == 0
    with Counting():
        assert Counting.inside == 1


def test_classes_are_decorated_with_a_warning_or_not_at_all():
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        decorated = Counting()(dict)
    assert decorated(a=1) == {"a": 1}
    with pytest.raises(RuntimeError, match="Cannot decorate classes"):
        context_decorator(lambda: Counting(), dict)

    class Both(Counting):
        def __call__(self):
            return self

    with pytest.raises(RuntimeError, match="both callable and also a valid context manager"):
        context_decorator(Both(), len)


# ---- settings of modules


def test_whether_memory_is_filled_is_a_checked_setting():
    from rabbet.utils import _triton, deterministic

    assert deterministic.fill_uninitialized_memory is True
    deterministic.fill_uninitialized_memory = False
    assert deterministic.fill_uninitialized_memory is False
    with pytest.raises(TypeError, match="expected a bool, got int"):
        deterministic.fill_uninitialized_memory = 1
    deterministic.fill_uninitialized_memory = True
    assert not _triton.has_triton() and not _triton.has_triton_package()


def test_workers_have_words_for_numpys_seed():
    from rabbet.utils.data._utils.worker import _generate_state

    for base, worker in ((5, 1), (2**40 + 3, 7), (0, 0)):
        sequence = np.random.SeedSequence([worker, base & 0xFFFFFFFF, base >> 32, 0])
        assert _generate_state(base, worker) == sequence.generate_state(4).tolist()


def test_pairs_of_four_bit_floats_are_stored_and_moved():
    dtype = rabbet.float4_e2m1fn_x2
    codes = rabbet.tensor([[0x21, 0x43], [0x65, 0x07]], dtype=rabbet.uint8)
    x = codes.view(dtype)
    assert dtype.itemsize == 1 and dtype.is_floating_point and x.is_floating_point()
    for made, want in (
        (x.t().contiguous(), codes.t()),
        (rabbet.cat([x, x[:1]]), rabbet.cat([codes, codes[:1]])),
        (x.clone()[1:], codes[1:]),
        (rabbet.empty(2, 2, dtype=dtype).copy_(x), codes),
    ):
        assert made.dtype is dtype and made.view(rabbet.uint8).tolist() == want.tolist()
    file = io.BytesIO()
    rabbet.save(x, file)
    file.seek(0)
    assert rabbet.load(file).view(rabbet.uint8).equal(codes)
    assert repr(x[0]) == "tensor([33, 67], dtype=rabbet.float4_e2m1fn_x2)"
    for refused in (lambda: x + x, lambda: x.float(), lambda: rabbet.finfo(dtype), x.tolist):
        with pytest.raises((TypeError, RuntimeError, NotImplementedError)):
            refused()
