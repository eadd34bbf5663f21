"""Sizes, strides and counts near 2**62: computed exactly, or refused before memory or time is spent on them."""

import itertools

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import _C

HUGE = 2**62
REFUSED = (ValueError, RuntimeError, OverflowError, MemoryError, IndexError)


def grads(y, *tensors):
    y.sum().backward()
    return [t.grad.tolist() for t in tensors]


def leaf(*shape):
    return rabbet.ones(*shape, requires_grad=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_with_one_window_has_any_stride(rank):
    conv = [F.conv1d, F.conv2d, F.conv3d][rank - 1]
    x, w = leaf(1, 1, *[4] * rank), leaf(1, 1, *[2] * rank)
    plain = leaf(1, 1, *[4] * rank), leaf(1, 1, *[2] * rank)
    want = conv(*plain, stride=3)
    got = conv(x, w, stride=HUGE)
    assert got.tolist() == want.tolist()
    assert grads(got, x, w) == grads(want, *plain)


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64, rabbet.complex64])
def test_a_convolution_far_in_its_padding(dtype):
    """The first and the last window lie in the padding, the one between sees the middle."""
    far = HUGE // 2
    x = rabbet.arange(1, 17, dtype=dtype).reshape(1, 1, 4, 4).requires_grad_()
    w = rabbet.tensor([[[[2.0]]]], dtype=dtype).requires_grad_()
    y = F.conv2d(x, w, stride=far, padding=far)
    assert y.shape == (1, 1, 3, 3) and y[0, 0, 1, 1].item() == 2 and y.abs().sum().item() == 2
    y.backward(rabbet.ones_like(y))
    assert x.grad[0, 0, 0, 0].item() == 2 and x.grad.abs().sum().item() == 2
    assert w.grad.tolist() == [[[[1]]]]
    taps = rabbet.ones(1, 1, 2, 2, dtype=dtype)
    spread = F.conv2d(x.detach(), taps, stride=far, padding=far, dilation=far)
    assert spread.shape == (1, 1, 2, 2) and spread.tolist() == [[[[1, 1], [1, 1]]]]


@pytest.mark.parametrize("padding", [65, 68, 69, 100, 1000])
def test_padding_beyond_the_input_changes_no_result(padding):
    rabbet.manual_seed(0)
    x, w = rabbet.randn(2, 3, 4, 4).requires_grad_(), rabbet.randn(5, 3, 3, 2).requires_grad_()
    y = F.conv2d(x, w, padding=padding, stride=2)
    weights = rabbet.randn(y.shape)
    (y * weights).sum().backward()
    a, b = x.detach().requires_grad_(), w.detach().requires_grad_()
    z = F.conv2d(F.pad(a, [padding] * 4), b, stride=2)
    (z * weights).sum().backward()
    for got, want in ((y, z), (x.grad, a.grad), (w.grad, b.grad)):
        assert rabbet.allclose(got, want, atol=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: F.conv2d(x, w, padding=HUGE),
        lambda x, w: F.conv2d(x, w, dilation=HUGE),
        lambda x, w: F.conv2d(x, w, stride=HUGE, padding=HUGE - 1),
        lambda x, w: F.conv_transpose2d(x, w, stride=HUGE),
        lambda x, w: F.conv_transpose2d(x, w, stride=HUGE, padding=HUGE),
        lambda x, w: F.max_pool2d(x, HUGE),
        lambda x, w: F.max_pool2d(x, 2, dilation=HUGE),
        lambda x, w: F.max_pool2d(x, 2 * HUGE - 1, stride=HUGE, padding=HUGE - 1),
        lambda x, w: F.avg_pool2d(x, HUGE),
        lambda x, w: F.adaptive_avg_pool2d(x, HUGE),
        lambda x, w: F.adaptive_max_pool2d(x, HUGE),
        lambda x, w: F.pad(x, (HUGE, HUGE)),
    ],
)
def test_windows_that_no_tensor_has_are_refused(call):
    with pytest.raises(REFUSED):
        call(rabbet.ones(1, 1, 4, 4), rabbet.ones(1, 1, 2, 2))


def test_one_transposed_window_has_any_stride():
    x, w = leaf(1, 1, 1, 1), leaf(1, 1, 1, 1)
    y = F.conv_transpose2d(x, w, stride=HUGE)
    assert y.tolist() == [[[[1]]]] and grads(y, x, w) == [[[[[1]]]], [[[[1]]]]]


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_pooling_windows_larger_than_the_input(pool):
    x = rabbet.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    for far in (10, 1000, HUGE):
        y = pool(x, far, stride=far, padding=far // 2)
        assert y.shape == (1, 1, 1, 1)
        assert (
            y.item() == 15 if pool is F.max_pool2d else far > 10 or y.item() == pytest.approx(1.2)
        )
        x.grad = None
        y.sum().backward()
        at = (x.grad != 0).sum().item()
        assert at == (1 if pool is F.max_pool2d else 16)
    steps = pool(x, HUGE, stride=1, padding=HUGE // 2)
    assert steps.shape == (1, 1, 5, 5)
    assert pool is F.avg_pool2d or steps.amin().item() == 15


@pytest.mark.parametrize("ceil", [False, True])
def test_pooling_beyond_the_row_agrees_with_padding_by_hand(ceil):
    rabbet.manual_seed(1)
    x = rabbet.randn(2, 3, 5, 4)
    for kernel, stride, dilation in itertools.product((5, 6, 9), (1, 3), (1, 2)):
        padding = kernel // 2
        wide = F.pad(x, [padding] * 4, value=-float("inf"))
        if dilation * (kernel - 1) + 1 > min(wide.shape[2:]):
            continue
        got = F.max_pool2d(x, kernel, stride, padding, dilation, ceil)
        rows = range(0, got.shape[2]), range(0, got.shape[3])
        for r, c in itertools.product(*rows):
            window = wide[:, :, r * stride :: dilation, c * stride :: dilation][
                :, :, :kernel, :kernel
            ]
            assert rabbet.equal(got[:, :, r, c], window.amax((2, 3)))


@pytest.mark.parametrize("shape", [(4, 4), (0, 4)])
@pytest.mark.parametrize(
    "split",
    [
        lambda x: rabbet.tensor_split(x, HUGE),
        lambda x: x.tensor_split(2**40),
        lambda x: rabbet.vsplit(x, HUGE),
        lambda x: rabbet.split(x, [HUGE, HUGE, 4 - 2 * HUGE]),
        lambda x: rabbet.split(x, [HUGE] * 4),
        lambda x: x[:1].expand(HUGE, 4)[0:HUGE].split(1) if len(x) else rabbet.chunk(x, HUGE),
        lambda x: x[:1].expand(HUGE, 4).unbind() if len(x) else rabbet.chunk(x, 2**40),
    ],
)
def test_more_pieces_than_memory_holds_are_refused(split, shape):
    with pytest.raises(REFUSED, match=r"too many|too large|negative|does not split"):
        split(rabbet.ones(*shape))


def test_large_pieces_are_taken():
    x = rabbet.ones(4, 4)
    assert len(rabbet.split(x, HUGE)) == 1 and len(rabbet.chunk(x, HUGE)) == 4
    assert [len(p) for p in rabbet.tensor_split(x, [HUGE, -HUGE])] == [4, 0, 4]
    assert len(rabbet.tensor_split(x, 100)) == 100


INTERNAL = {
    "pad_to": [((2, 3), [4]), ((2, 3), [4, 3, 1]), ((2, 3), [1, 3]), ((2, 3), [-HUGE, 3]), ((2, 3), [HUGE, HUGE])],
    "per_channel": [((3,), HUGE), ((3,), 2**31), ((3,), -1), ((3,), 33)],
}  # fmt: skip


@pytest.mark.parametrize("op", INTERNAL)
def test_operators_inside_derivatives_check_what_they_are_given(op):
    for shape, size in INTERNAL[op]:
        for device in ("cpu", "meta"):
            with pytest.raises(REFUSED):
                rabbet.ops(op)(rabbet.ones(*shape, device=device), size)


def test_derivatives_of_windows_check_what_they_are_given():
    g, w = rabbet.ones(1, 3, 3, 3), rabbet.ones(3, 2, 3, 3)
    index = rabbet.zeros(2, 3, dtype=rabbet.int64)
    calls = [
        ("gather_as", (rabbet.ones(4, 3), 0, index, [3])),
        ("gather_as", (rabbet.ones(4, 3), 0, index, [1, 3])),
        ("gather_as", (rabbet.ones(4, 3), 0, index, [HUGE, HUGE])),
        ("max_pool_dx", (g, rabbet.zeros(1, 3, 3, 3, dtype=rabbet.int64), [1, 3, 9], 2)),
        ("max_pool_dx", (g, rabbet.zeros(1, 3, 3, 3, dtype=rabbet.int64), [1, 3, 5, 5], HUGE)),
        ("max_pool_dx", (g, rabbet.zeros(1, 3, 3, 2, dtype=rabbet.int64), [1, 3, 5, 5], 2)),
        ("adaptive_avg_pool_dx", (g, [1, 3, 5, 5], HUGE)),
        ("adaptive_avg_pool_dx", (g, [1, 3, 5], 2)),
    ]
    for size, stride, padding, dilation in (
        (HUGE, 1, 0, 1), (5, HUGE, 0, 1), (5, 1, HUGE, 1), (5, 1, 0, HUGE), (5, 0, 0, 1), (5, 1, -1, 1),
    ):  # fmt: skip
        options = ([stride], [padding], [dilation], 1)
        calls.append(("convolution_dx", (g, w, [1, 2, size, size], *options)))
        calls.append(("convolution_dw", (rabbet.ones(1, 2, 5, 5), g, [3, 2, size, 3], *options)))
        calls.append(
            ("avg_pool_dx", (g, [1, 3, size, size], [2], [stride], [padding], False, True, None))
        )
    for op, args in calls:
        for device in ("cpu", "meta"):
            moved = [a.to(device) if isinstance(a, rabbet.Tensor) else a for a in args]
            try:
                rabbet.ops(op)(*moved)
            except REFUSED as error:
                named = any(name in str(error) for name in (op, "pad_to", "too large"))
                assert named, (op, args, error)
            else:
                raise AssertionError(f"{op}{args[1:]} on {device} was accepted")


def test_no_operator_takes_a_huge_number_in_the_place_of_a_size():
    """Every int and list of ints of every record's first example, one after the other; nothing may hang or crash."""
    from rabbet_testing.cases import cases, op_names

    tried = 0
    for name in op_names():
        for case in itertools.islice(cases(name, rabbet.float32), 1):
            for place, value in enumerate(case.args):
                is_list = (
                    isinstance(value, (list, tuple))
                    and value
                    and all(type(v) is int for v in value)
                )
                if not is_list and type(value) is not int:
                    continue
                for huge in (HUGE, -HUGE, 2**63 - 1):
                    args = list(case.args)
                    args[place] = [huge] * len(value) if is_list else huge
                    tried += 1
                    try:
                        rabbet.ops(name)(*args, **case.kwargs)
                    except (*REFUSED, TypeError, _C.RabbetError):
                        continue
    assert tried > 200
