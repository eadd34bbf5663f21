"""The dtypes that operators compute in, and the numbers that a dtype takes; PyTorch is the oracle."""

import math

import pytest
import rabbet

NAN, INF = math.nan, math.inf


def u8(m, *values):
    return m.tensor(values, dtype=m.uint8)


def i8(m, *values):
    return m.tensor(values, dtype=m.int8)


def half(m, *values):
    return m.tensor(values, dtype=m.float16)


def single(m, *values):
    return m.tensor(values, dtype=m.float32)


def zeros(m, dtype):
    return m.zeros(2, dtype=getattr(m, dtype))


def filled(m, dtype, value):
    return zeros(m, dtype).fill_(value)


def full(m, dtype, value):
    return m.full((2,), value, dtype=getattr(m, dtype))


def made(m, dtype, value):
    return m.tensor([value], dtype=getattr(m, dtype))


def assigned(m, dtype, at, value):
    t = zeros(m, dtype)
    t[at] = value
    return t


MASK = [True, False]

# The result and its dtype.
GIVES = {
    "addcmul of uint8 beside float32": (
        lambda m: m.addcmul(single(m, 1, 2), u8(m, 20, 3), u8(m, 20, 3)),
        [401, 11],
        "float32",
    ),
    "addcmul of float16 beside float32": (
        lambda m: m.addcmul(single(m, 1, 2), half(m, 300, 3), half(m, 300, 3)),
        [90001, 11],
        "float32",
    ),
    "addcmul of uint8 beside int64": (
        lambda m: m.addcmul(m.tensor([1, 2]), u8(m, 20, 3), u8(m, 20, 3)),
        [401, 11],
        "int64",
    ),
    "addcmul of integers with a fraction": (
        lambda m: m.addcmul(u8(m, 1, 2), u8(m, 20, 3), u8(m, 20, 3), value=2.5),
        [33, 20],
        "uint8",
    ),
    "addcmul with gradients": (
        lambda m: m.addcmul(
            single(m, 1, 2).requires_grad_(), half(m, 300, 3), half(m, 300, 3)
        ).detach(),
        [90001, 11],
        "float32",
    ),
    "addcdiv of float16 beside float32": (
        lambda m: m.addcdiv(single(m, 1), half(m, 60000), half(m, 0.5)),
        [120001],
        "float32",
    ),
    "addcdiv of integers by floats": (
        lambda m: m.addcdiv(m.tensor([1]), single(m, 20), m.tensor([20])),
        [2],
        "float32",
    ),
    "square of bools": (lambda m: m.square(m.tensor([True, False])), [1, 0], "int64"),
    "square of uint8": (lambda m: m.square(u8(m, 2, 20)), [4, 144], "uint8"),
    "uint8 and int8": (lambda m: u8(m, 200) + i8(m, -1), [199], "int16"),
    "uint16 and float32": (
        lambda m: m.tensor([3], dtype=m.uint16) + single(m, 0.5),
        [3.5],
        "float32",
    ),
    "integers wrap around": (lambda m: zeros(m, "int8") + 300, [44, 44], "int8"),
    "clamp to a float": (lambda m: m.clamp(i8(m, 1, -5), 2.5), [2.5, 2.5], "float32"),
    "clamp of uint8 to -1": (lambda m: m.clamp(u8(m, 1, 5), min=-1), [255, 255], "uint8"),
    "fill_ drops the fraction": (lambda m: filled(m, "int8", 2.7), [2, 2], "int8"),
    "fill_ of uint8 with -1": (lambda m: filled(m, "uint8", -1), [255, 255], "uint8"),
    "fill_ with infinity": (lambda m: filled(m, "float16", INF), [INF, INF], "float16"),
    "fill_ with a tensor": (
        lambda m: zeros(m, "int8").fill_(m.tensor(300)),
        [44, 44],
        "int8",
    ),
    "full of bools": (lambda m: full(m, "bool", 300), [True, True], "bool"),
    "full of uint64": (lambda m: full(m, "uint64", 2**64 - 1), [2**64 - 1] * 2, "uint64"),
    "tensor of uint8 from -1": (lambda m: made(m, "uint8", -1), [255], "uint8"),
    "tensor of uint16 from -1": (lambda m: made(m, "uint16", -1), [65535], "uint16"),
    "tensor of int8 from 2.7": (lambda m: made(m, "int8", 2.7), [2], "int8"),
    "tensor of uint64": (lambda m: made(m, "uint64", 2**63), [2**63], "uint64"),
    "tensor of float16 from 1e30": (lambda m: made(m, "float16", 1e30), [INF], "float16"),
    "add with a float alpha": (
        lambda m: m.add(m.tensor([1]), m.tensor([1.5]), alpha=2.5),
        [4.75],
        "float32",
    ),
    "add of bools with a bool alpha": (
        lambda m: m.add(m.tensor([True]), m.tensor([False]), alpha=True),
        [True],
        "bool",
    ),
    "assignment drops the fraction": (lambda m: assigned(m, "int8", 0, 2.7), [2, 0], "int8"),
    "hardtanh of integers": (
        lambda m: m.nn.functional.hardtanh(m.tensor([1, 9, -5]), -1.5, 2.5),
        [1, 2, -1],
        "int64",
    ),
    "relu6 of uint8": (lambda m: m.nn.functional.relu6(u8(m, 1, 9)), [1, 6], "uint8"),
    "threshold of integers": (
        lambda m: m.nn.functional.threshold(m.tensor([1, 9, -1]), 1.5, 7.5),
        [7, 9, 7],
        "int64",
    ),
}

REFUSED = {
    "addcdiv of integers": lambda m: m.addcdiv(single(m, 1), u8(m, 20), u8(m, 20)),
    "addcmul with too large a value": lambda m: m.addcmul(u8(m, 1), u8(m, 1), u8(m, 1), value=300),
    "addcmul with 1e300": lambda m: m.addcmul(*[single(m, 1)] * 3, value=1e300),
    "lerp of two dtypes": lambda m: m.lerp(single(m, 1), half(m, 2), 0.5),
    "square_ of bools": lambda m: m.tensor([True]).square_(),
    "uint64 and int64": lambda m: m.tensor([1], dtype=m.uint64) + m.tensor([1]),
    "uint32 and int64": lambda m: m.tensor([1], dtype=m.uint32) + m.tensor([1]),
    "uint16 and uint8": lambda m: m.tensor([1], dtype=m.uint16) + u8(m, 1),
    "uint64 and bool": lambda m: m.tensor([1], dtype=m.uint64) == m.tensor([True]),
    "promote_types": lambda m: m.promote_types(m.uint16, m.uint32),
    "cat of uint64 and int64": lambda m: m.cat([m.tensor([1], dtype=m.uint64), m.tensor([1])]),
    "clamp of int8 to 255": lambda m: m.clamp(i8(m, 1), 255),
    "clamp of int8 from -300": lambda m: m.clamp(i8(m, 1), min=-300),
    "clamp_min of int8": lambda m: m.clamp_min(i8(m, 1), 255),
    "clamp_max of int8": lambda m: m.clamp_max(i8(m, 1), 255),
    "clamp_ of int8": lambda m: i8(m, 1).clamp_(255),
    "clamp of float32 to 1e300": lambda m: m.clamp(single(m, 1), 1e300),
    "clamp of float16 to 1e6": lambda m: m.clamp(half(m, 1), max=1e6),
    "pow of int8": lambda m: m.pow(i8(m, 1), 300),
    "masked_fill of int8": lambda m: zeros(m, "int8").masked_fill(m.tensor(MASK), 300),
    "masked_fill of float16": lambda m: zeros(m, "float16").masked_fill(m.tensor(MASK), 1e6),
    "scatter of int8": lambda m: m.scatter(zeros(m, "int8"), 0, m.tensor([0]), 300),
    "pad of int8": lambda m: m.nn.functional.pad(zeros(m, "int8"), (1, 1), value=300),
    "full_like": lambda m: m.full_like(zeros(m, "int8"), 300),
    "new_full": lambda m: zeros(m, "float32").new_full((2,), 1e300),
    "assignment": lambda m: assigned(m, "int8", 0, 300),
    "assignment by mask": lambda m: assigned(m, "int8", m.tensor(MASK), 300),
    "assignment of NaN": lambda m: assigned(m, "int8", 0, NAN),
    "alpha of integers": lambda m: m.add(m.tensor([1]), m.tensor([1]), alpha=2.7),
    "alpha of bools": lambda m: m.add(m.tensor([True]), m.tensor([True]), alpha=2.5),
    "complex alpha": lambda m: m.add(single(m, 1), single(m, 1), alpha=2j),
    "complex alpha of integers": lambda m: m.add(m.tensor([1]), m.tensor([1]), alpha=2j),
    "bool alpha of floats": lambda m: m.add(single(m, 1), single(m, 1), alpha=True),
    "bool alpha of integers": lambda m: m.sub(m.tensor([1]), 1, alpha=True),
    "alpha of add_": lambda m: m.tensor([1]).add_(m.tensor([1]), alpha=2.7),
    "alpha of sub": lambda m: m.sub(m.tensor([1]), m.tensor([1]), alpha=2.7),
    "alpha of rsub": lambda m: m.rsub(m.tensor([1]), 1, alpha=2.5),
    "bool alpha of rsub": lambda m: m.rsub(single(m, 1), 1, alpha=True),
    "hardtanh of uint8": lambda m: m.nn.functional.hardtanh(u8(m, 1)),
    "hardtanh of int8": lambda m: m.nn.functional.hardtanh(i8(m, 1), -300, 300),
    "hardtanh of bools": lambda m: m.nn.functional.hardtanh(m.tensor([True])),
    "threshold of bools": lambda m: m.nn.functional.threshold(m.tensor([True]), 1, 7),
    "threshold of uint8": lambda m: m.nn.functional.threshold(u8(m, 1), 2, 300),
}
for name, make in (("fill_", filled), ("full", full)):
    for dtype, value in (
        ("int8", 300), ("int8", -129), ("uint8", 256), ("uint8", -300), ("uint8", -1.5), ("uint8", 255.5),
        ("int8", NAN), ("int8", INF), ("int8", 1e30), ("int64", 2**63), ("float16", 70000), ("float16", 1e30),
        ("bfloat16", 1e39), ("float32", 1e300), ("complex64", 1e300), ("float32", 2j),
    ):  # fmt: skip
        REFUSED[f"{name} {dtype} {value}"] = lambda m, f=make, d=dtype, v=value: f(m, d, v)
for dtype, value in (
    ("int8", 300), ("int8", 300.5), ("int8", NAN), ("int64", INF), ("int64", 1e30), ("uint8", -300), ("int64", 2**63),
    ("int64", 2**64),
):  # fmt: skip
    REFUSED[f"tensor {dtype} {value}"] = lambda m, d=dtype, v=value: made(m, d, v)
REFUSED["tensor 2**64"] = lambda m: m.tensor([2**64])

SAME = {
    "matmul": lambda m, a, b: m.matmul(a(2, 3), b(3, 2)),
    "matmul of vectors": lambda m, a, b: m.matmul(a(3), b(3)),
    "@": lambda m, a, b: a(2, 3) @ b(3, 2),
    "mm": lambda m, a, b: m.mm(a(2, 3), b(3, 2)),
    "bmm": lambda m, a, b: m.bmm(a(1, 2, 3), b(1, 3, 2)),
    "mv": lambda m, a, b: m.mv(a(2, 3), b(3)),
    "dot": lambda m, a, b: m.dot(a(3), b(3)),
    "addmm": lambda m, a, b: m.addmm(a(2, 2), a(2, 3), b(3, 2)),
    "addmm's input": lambda m, a, b: m.addmm(a(2, 2), b(2, 3), b(3, 2)),
    "baddbmm": lambda m, a, b: m.baddbmm(a(1, 2, 2), b(1, 2, 3), b(1, 3, 2)),
    "einsum": lambda m, a, b: m.einsum("ij,jk->ik", a(2, 3), b(3, 2)),
    "tensordot": lambda m, a, b: m.tensordot(a(2, 3), b(3, 2), 1),
    "linear": lambda m, a, b: m.nn.functional.linear(a(2, 3), b(4, 3)),
    "linear's bias": lambda m, a, b: m.nn.functional.linear(a(2, 3), a(4, 3), b(4)),
    "bilinear": lambda m, a, b: m.nn.functional.bilinear(a(2, 3), a(2, 3), b(4, 3, 3)),
    "conv1d": lambda m, a, b: m.nn.functional.conv1d(a(1, 1, 4), b(1, 1, 2)),
    "conv2d's bias": lambda m, a, b: m.nn.functional.conv2d(a(1, 1, 4, 4), a(1, 1, 2, 2), b(1)),
    "conv_transpose2d": lambda m, a, b: m.nn.functional.conv_transpose2d(
        a(1, 1, 4, 4), b(1, 1, 2, 2)
    ),
}


def ones(m, dtype):
    return lambda *shape: m.ones(shape, dtype=getattr(m, dtype))


def told(result):
    return result.tolist(), str(result.dtype).split(".")[-1]


@pytest.mark.parametrize("name", GIVES)
def test_what_is_computed(name):
    call, values, dtype = GIVES[name]
    assert told(call(rabbet)) == (values, dtype)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    with pytest.raises(RuntimeError):
        REFUSED[name](rabbet)


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("dtype", ["float64", "int64", "float16"])
def test_products_take_one_dtype(name, dtype):
    with pytest.raises(RuntimeError, match="dtype"):
        SAME[name](rabbet, ones(rabbet, "float32"), ones(rabbet, dtype))
    SAME[name](rabbet, ones(rabbet, "float32"), ones(rabbet, "float32"))


@pytest.mark.parametrize("name", GIVES)
def test_pytorch_computes_the_same(name):
    torch = pytest.importorskip("torch")
    assert told(GIVES[name][0](torch)) == GIVES[name][1:]


@pytest.mark.parametrize("name", REFUSED)
def test_pytorch_refuses_the_same(name):
    torch = pytest.importorskip("torch")
    with pytest.raises((RuntimeError, ValueError, TypeError, OverflowError)):
        REFUSED[name](torch)


@pytest.mark.parametrize("name", SAME)
def test_products_in_pytorch_take_one_dtype(name):
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError):
        SAME[name](torch, ones(torch, "float32"), ones(torch, "float64"))


def test_the_message_names_the_argument_and_the_number():
    with pytest.raises(
        RuntimeError, match=r"full: .* type int8 without overflow: 'fill_value' is 300"
    ):
        rabbet.full((2,), 300, dtype=rabbet.int8)
    with pytest.raises(RuntimeError, match=r"matmul: .*'input' and 'other'.* float32 != float64"):
        rabbet.ones(2, 2) @ rabbet.ones(2, 2, dtype=rabbet.float64)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_bools_are_not_subtracted(device):
    mask = rabbet.tensor([True, False], device=device)
    for call in (
        lambda: mask - mask,
        lambda: mask - True,
        lambda: True - mask,
        lambda: mask.clone().sub_(mask),
        lambda: rabbet.rsub(mask, mask),
        lambda: rabbet.nn.functional.mse_loss(mask, mask),
    ):
        with pytest.raises(
            RuntimeError, match=r"expected (real|float) or complex dtypes, got bool"
        ):
            call()
