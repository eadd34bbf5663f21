"""Keywords, numbers in place of tensors, and sequences, as PyTorch's functions take them."""

import subprocess
import sys

import numpy as np
import pytest
import rabbet

T = rabbet.tensor
T1 = rabbet.tensor([1.0, 2.0])
M = rabbet.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "name, a, b, dtype, result",
    [
        ("add", 1, 2, "int64", 3), ("add", 7, 2.5, "float32", 9.5), ("add", True, 2, "int64", 3),
        ("sub", 5, 2, "int64", 3), ("mul", 2, True, "int64", 2), ("mul", 1j, 2, "complex64", 2j),
        ("div", 1, 2, "float32", 0.5), ("true_divide", 7, 2, "float32", 3.5), ("floor_divide", 7, 2, "int64", 3),
        ("floor_divide", 7, 2.5, "float32", 2.0), ("multiply", 2, 3, "int64", 6), ("subtract", 2, 3.0, "float32", -1.0),
    ],
)  # fmt: skip
def test_arithmetic_of_numbers_alone_is_a_tensor_without_dimensions(name, a, b, dtype, result):
    made = getattr(rabbet, name)(a, b)
    assert made.dtype is getattr(rabbet, dtype) and made.shape == () and made.item() == result


def test_options_beside_numbers_alone():
    assert rabbet.div(7, 2, rounding_mode="floor").item() == 3
    assert rabbet.div(-7, 2, rounding_mode="trunc").item() == -3
    assert rabbet.add(1, 2, alpha=3).item() == 7


@pytest.mark.parametrize(
    "name", ["pow", "remainder", "maximum", "atan2", "lt", "bitwise_and", "where"]
)
def test_other_operators_need_a_tensor(name):
    with pytest.raises(TypeError):
        getattr(rabbet, name)(1, 2)


def test_numbers_among_the_elements_of_isin_and_gcd():
    meta = rabbet.ones(3, device="meta")
    assert rabbet.isin(meta, 1.0).shape == (3,) and rabbet.isin(1.0, meta).shape == ()
    assert rabbet.isin(1, T1).item() is True and rabbet.isin(T1, 1).tolist() == [True, False]
    assert rabbet.isin(element=3, test_elements=T1).item() is False
    assert rabbet.isin(elements=T1, test_element=2).tolist() == [False, True]
    assert rabbet.gcd(T([4, 9]), 6).tolist() == [2, 3] and rabbet.lcm(4, T([6])).tolist() == [12]


def test_arange_by_keyword():
    assert rabbet.arange(end=3).tolist() == [0, 1, 2]
    made = rabbet.arange(end=3, dtype=rabbet.float64, requires_grad=True, layout=rabbet.strided)
    assert made.dtype is rabbet.float64 and made.requires_grad
    assert rabbet.arange(end=3, out=rabbet.empty(0)).tolist() == [0.0, 1.0, 2.0]
    assert rabbet.arange(start=1, end=7, step=3).tolist() == [1, 4]
    for wrong in ({}, {"step": 2}, {"end": 5, "step": 2}):
        with pytest.raises(TypeError):
            rabbet.arange(**wrong)


CALLS = {
    "split by size": lambda: M.split(split_size=[1, 2], dim=1),
    "split by sections": lambda: rabbet.split(M, split_size_or_sections=(1, 2), dim=1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_split_into_listed_sizes(call):
    assert [x.shape[1] for x in call()] == [1, 2]


def test_spellings_of_parameters():
    assert rabbet.swapaxes(M, axis0=0, axis1=1).shape == (3, 2)
    assert rabbet.softmax(M, 1, rabbet.float64).dtype is rabbet.float64
    assert M.log_softmax(1, rabbet.float64).dtype is rabbet.float64
    plain = rabbet.layer_norm(M, [3])
    assert rabbet.equal(rabbet.layer_norm(M, [3], None, None, 1e-5, False), plain)
    assert rabbet.equal(rabbet.layer_norm(M, [3], cudnn_enable=True), plain)
    assert rabbet.equal(rabbet.group_norm(M, 1, cudnn_enabled=False), rabbet.group_norm(M, 1))
    assert rabbet.zeros(2).copy_(other=T1).tolist() == [1.0, 2.0]
    assert M.view_as(other=M).shape == M.reshape_as(other=M).shape == M.shape
    assert M.type_as(other=T(1)).dtype is rabbet.int64
    with pytest.raises(TypeError, match="unexpected keyword"):
        M.view_as(tensor=M)
    with pytest.raises(TypeError, match="one argument"):
        M.type_as()


def test_gather_takes_sparse_grad_only_where_it_is_false():
    at = T([[0], [1]])
    assert rabbet.gather(M, 1, at, sparse_grad=False).tolist() == [[0.0], [4.0]]
    with pytest.raises(NotImplementedError, match="sparse"):
        M.gather(1, at, sparse_grad=True)


def test_new_tensors_take_the_options_of_creations():
    options = {
        "layout": rabbet.strided,
        "pin_memory": False,
        "device": "cpu",
        "requires_grad": True,
    }
    for made in (M.new_zeros(2, **options), M.new_ones((2,), **options), M.new_empty([2], **options),
                 M.new_full((2,), 3.0, **options), M.new_empty_strided((2,), (1,), **options)):  # fmt: skip
        assert made.requires_grad and made.shape == (2,) and made.dtype is rabbet.float32
    assert M.new_tensor([1], dtype=rabbet.float64, requires_grad=True).requires_grad
    leaf = rabbet.asarray([1.0], requires_grad=True)
    twice = leaf * 2
    assert leaf.requires_grad and rabbet.asarray(twice, requires_grad=True) is twice
    assert not rabbet.asarray(twice).requires_grad and leaf.requires_grad
    rabbet.asarray(twice, dtype=rabbet.float64, requires_grad=True).sum().backward()
    assert leaf.grad.tolist() == [2.0]
    assert rabbet.frombuffer(b"ab", dtype=rabbet.uint8, requires_grad=False).tolist() == [97, 98]
    assert rabbet.from_numpy(ndarray=np.ones(2)).tolist() == [1.0, 1.0]
    assert rabbet.normal(0.0, 1.0, (2,), layout=rabbet.strided, pin_memory=False).shape == (2,)
    with pytest.raises(TypeError):
        M.new_zeros(2, colour="red")


def test_generators_of_draws_like_a_tensor():
    def drawn(make):
        return [make(generator=rabbet.Generator().manual_seed(3)).tolist() for _ in range(2)]

    for make in (rabbet.rand_like, rabbet.randn_like):
        first, second = drawn(lambda make=make, **options: make(M, **options))
        assert first == second
    first, second = drawn(lambda **options: rabbet.randint_like(M, 9, **options))
    assert first == second


def test_result_type_by_keyword():
    assert rabbet.result_type(tensor=T1, other=2) is rabbet.float32
    assert rabbet.result_type(scalar=2.0, tensor=T([1])) is rabbet.float32
    assert rabbet.result_type(scalar1=1, scalar2=2) is rabbet.int64
    assert rabbet.can_cast(from_=rabbet.float32, to=rabbet.int64) is False
    assert rabbet.promote_types(type1=rabbet.float32, type2=rabbet.int64) is rabbet.float32
    for wrong in ({}, {"tensor": T1}, {"tensor": T1, "scalar1": 1}):
        with pytest.raises(TypeError):
            rabbet.result_type(**wrong)


def test_queries_of_numbers_are_refused():
    for query in (rabbet.numel, rabbet.is_complex, rabbet.is_floating_point):
        with pytest.raises(TypeError, match="must be Tensor"):
            query(2)


@pytest.mark.parametrize(
    "key",
    [
        range(1),
        ([0, 1], range(2)),
        (range(2), slice(None)),
        (slice(None), range(0, 3, 2)),
        (1, range(2)),
        range(0),
    ],
)
def test_ranges_are_indices(key):
    as_lists = tuple(
        list(k) if isinstance(k, range) else k for k in (key if isinstance(key, tuple) else (key,))
    )
    assert rabbet.equal(M[key], M[as_lists])
    copy = M.clone()
    copy[key] = 9.0
    assert (copy[as_lists] == 9.0).all()


def test_text_is_no_index():
    for key in ("0", b"0", (0, "1")):
        with pytest.raises(IndexError):
            M[key]


def test_sizes_made_of_tensors_hold_ints():
    size = rabbet.Size((T(2), 3))
    assert size == (2, 3) and all(type(n) is int for n in size)
    with pytest.raises(TypeError):
        rabbet.Size((2.5,))


def test_sequences_stand_for_tuples():
    for shape in ([3, 2], (3, 2), rabbet.Size([3, 2]), (np.int64(3), 2), [T(3), 2]):
        assert M.reshape(shape).shape == (3, 2) and rabbet.zeros(shape).shape == (3, 2)
    for dims in ([0, 1], (0, 1), range(2), np.array([0, 1])):
        assert M.sum(dims).item() == 15.0


@pytest.mark.parametrize(
    "call, expected",
    [
        (lambda x, y: rabbet.add(x, 3, y), 31.0),
        (lambda x, y: x.clone().add_(3, y), 31.0),
        (lambda x, y: x.sub(3, y), -29.0),
        (lambda x, y: x.clone().addcmul_(0.5, y, y), 51.0),
        (lambda x, y: rabbet.addcdiv(x, 2, y, x), 21.0),
        (lambda x, y: x.clone().addcdiv_(-2, y, x), -19.0),
        (lambda x, y: rabbet.addmm(2, x, 3, y, y), 302.0),
        (lambda x, y: x.addmm(2, 3, y, y), 302.0),
        (lambda x, y: x.clone().addmm_(2, y, y), 102.0),
        (lambda x, y: x[0].addmv(2, 3, y, y[0]), 302.0),
        (lambda x, y: rabbet.addr(2, x, 3, y[0], y[0]), 302.0),
        (lambda x, y: x[None].baddbmm(2, 3, y[None], y[None]), 302.0),
    ],
)
@pytest.mark.filterwarnings("ignore:This overload")
def test_deprecated_signatures_take_numbers_before_operands(call, expected):
    x, y = rabbet.full((1, 1), 1.0), rabbet.full((1, 1), 10.0)
    assert call(x, y).item() == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.add(x, 2),
        lambda x: x.add("1", x),
        lambda x: x.add(1, 2, x),
        lambda x: x.mul(2, x),
        lambda x: rabbet.addmm(1, x, 2, 3, x),
    ],
)
def test_other_numbers_by_position_are_refused(call):
    with pytest.raises(TypeError):
        call(rabbet.ones(1, 1))


def test_a_deprecated_signature_warns():
    code = """
import warnings, rabbet
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        rabbet.ones(1).add_(2, rabbet.ones(1))
assert [w.category for w in caught] == [UserWarning], caught
assert str(caught[0].message).startswith("This overload of add_ is deprecated"), caught
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_searchsorted_takes_one_number_as_self():
    edges = rabbet.tensor([1.0, 2.0, 3.0])
    assert rabbet.searchsorted(edges, self=2.0).item() == 1
    assert rabbet.searchsorted(sorted_sequence=edges, self=2.0, right=True).item() == 2
    assert rabbet.searchsorted(edges, self=rabbet.tensor(2.0)).item() == 1
    assert rabbet.bucketize(self=2.0, boundaries=edges).item() == 1
    for call in (
        lambda: rabbet.searchsorted(edges),
        lambda: rabbet.searchsorted(edges, 2.0, self=2.0),
        lambda: rabbet.searchsorted(edges, self=edges),
        lambda: rabbet.bucketize(2.0),
        lambda: rabbet.bucketize(boundaries=edges),
    ):
        with pytest.raises(TypeError, match=r"searchsorted|bucketize"):
            call()


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm"])
def test_products_of_16_bits_have_results_of_float32(name):
    shape = [*([2] if "b" in name[:3] else []), 2, 2]
    operands = [rabbet.full(shape, 0.1, dtype=rabbet.float16)] * (3 if "add" in name else 2)
    found = getattr(rabbet, name)(*operands, out_dtype=rabbet.float32)
    assert found.dtype is rabbet.float32
    assert found.equal(getattr(rabbet, name)(*(t.float() for t in operands)))
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        getattr(rabbet, name)(*operands, out_dtype=rabbet.float64)


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.int64, rabbet.bool, rabbet.complex64])
def test_complex_numbers_that_are_real_fill_tensors_of_real_dtypes(dtype):
    like = rabbet.zeros(2, dtype=dtype)
    for filled in (
        rabbet.full_like(like, 1 + 0j),
        rabbet.full((2,), 1 + 0j, dtype=dtype),
        like.new_full((2,), 1 + 0j),
        like.clone().fill_(1 + 0j),
        rabbet.masked_fill(like, ~like.to(rabbet.bool), 1 + 0j),
    ):
        assert filled.dtype is dtype and filled.tolist() == [1, 1]
    if not dtype.is_complex and dtype is not rabbet.bool:
        with pytest.raises(RuntimeError, match="without overflow"):
            rabbet.full_like(like, 1 + 1j)


def test_embedding_takes_the_options_of_its_layer():
    weight = rabbet.arange(6.0).reshape(3, 2).requires_grad_()
    indices = rabbet.tensor([0, 0, 0, 1])
    rows = rabbet.embedding(weight, indices, -1, True, False)
    assert rows.tolist() == weight[indices].tolist()
    rows.sum().backward()
    np.testing.assert_allclose(weight.grad, [[1, 1], [1, 1], [0, 0]], rtol=1e-6)
    weight.grad = None
    rabbet.embedding(weight, indices, padding_idx=1, scale_grad_by_freq=True).sum().backward()
    np.testing.assert_allclose(weight.grad, [[1, 1], [0, 0], [0, 0]], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="sparse gradients are not supported"):
        rabbet.embedding(weight, indices, sparse=True)


@pytest.mark.parametrize("rows, columns", [(3, 4), (4, 3), (0, 2), (2, 0), (1, 1)])
def test_indices_of_triangles_have_their_shape_on_the_meta_device(rows, columns):
    for offset in range(-6, 7):
        for name in ("tril_indices", "triu_indices"):
            there = getattr(rabbet, name)(rows, columns, offset)
            seen = getattr(rabbet, name)(rows, columns, offset, device="meta", dtype=rabbet.int32)
            expected = getattr(np, name)(rows, offset, columns)
            assert there.tolist() == np.array(expected).tolist()
            assert seen.shape == there.shape and seen.dtype is rabbet.int32
    with pytest.raises(ValueError, match="must not be negative"):
        rabbet.tril_indices(-1, 3)


def test_tensors_of_tensors_warn_and_name_what_copies_them():
    x = T([1.0, 2.0])
    for call, name in (
        (lambda: rabbet.tensor(x, requires_grad=True), r"rabbet\.tensor"),
        (lambda: x.new_tensor(x, dtype=rabbet.float64), r"tensor\.new_tensor"),
    ):
        text = rf"use sourceTensor\.detach\(\)\.clone\(\) .* rather than {name}\(sourceTensor\)"
        with pytest.warns(UserWarning, match=text) as caught:
            made = call()
        assert caught[0].filename == __file__
        assert made.tolist() == [1, 2] and made.data_ptr() != x.data_ptr()
    for quiet in (rabbet.as_tensor(x), rabbet.asarray(x, copy=True), rabbet.scalar_tensor(x[0])):
        assert quiet.sum().item() in (1, 3)
    assert rabbet.tensor([x[0], x[1]]).tolist() == [1, 2]
