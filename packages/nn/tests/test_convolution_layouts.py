"""Convolutions of channels that lie side by side (channels_last) have loops of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet.nn import functional as F

FORMATS = {2: rabbet.channels_last, 3: rabbet.channels_last_3d}
CONVOLUTIONS = {2: F.conv2d, 3: F.conv3d}
TOLERANCE = {rabbet.float32: 1e-5, rabbet.float64: 1e-13, rabbet.bfloat16: 4e-2}


@st.composite
def cases(draw):
    """Rank, sizes of images and windows, options, and whether the weight is channels last, too."""
    rank = draw(st.sampled_from([2, 2, 3]))
    each = lambda *values: [draw(st.sampled_from(values)) for _ in range(rank)]  # noqa: E731
    kernel, dilation, padding = each(1, 2, 3, 5), each(1, 1, 2), each(0, 1, 2, 4)
    least = [
        max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    size = [n + extra for n, extra in zip(least, each(0, 1, 6, 11), strict=True)]
    shape = [draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3, 5, 8, 17, 33])), *size]
    outer = draw(st.sampled_from([1, 2, 7, 16, 17, 31, 50, 70]))
    options = each(1, 1, 2, 3), padding, dilation
    return shape, [outer, shape[1], *kernel], options, draw(st.booleans()), draw(st.booleans())


def results(x, w, bias, options, g):
    """y and the gradients of x and w."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = CONVOLUTIONS[x.ndim - 2](x, w, bias, *options)
    return [y.detach(), *rabbet.autograd.grad(y, [x, w], g)]


def agree(case, dtype):
    shape, window, options, weight_is_last, has_bias = case
    format = FORMATS[len(shape) - 2]
    rabbet.manual_seed(7)
    x, w = (rabbet.randn(*s).to(dtype) for s in (shape, window))
    bias = rabbet.randn(window[0]).to(dtype) if has_bias else None
    y = CONVOLUTIONS[x.ndim - 2](x, w, bias, *options)
    g = rabbet.randn(y.shape).to(dtype)
    last = [t.contiguous(memory_format=format) for t in (x, w, g)]
    got = results(last[0], last[1] if weight_is_last else w, bias, options, last[2])
    wide = rabbet.float32 if dtype == rabbet.bfloat16 else dtype
    given = [t if t is None else t.to(wide) for t in (x, w, bias)]
    want = results(*given, options, g.to(wide))
    if min(shape[1], window[0], *shape[2:], *y.shape[2:]) > 1:
        assert got[0].is_contiguous(memory_format=format)
        assert got[1].is_contiguous(memory_format=format)
    for a, b in zip(got, want, strict=True):
        scale = 1 + float(b.abs().max())
        assert a.dtype == dtype and a.shape == b.shape
        assert float((a.to(wide) - b).abs().max()) <= TOLERANCE[dtype] * scale


@settings(max_examples=80, deadline=None, derandomize=True)
@given(cases(), st.sampled_from([rabbet.float32, rabbet.float64]))
def test_channels_side_by_side_give_what_rows_give(case, dtype):
    agree(case, dtype)


def test_short_floats():
    agree(([2, 5, 7, 6], [9, 5, 3, 3], ([1, 1], [1, 1], [1, 1]), True, True), rabbet.bfloat16)


def test_groups_keep_the_layout():
    x = rabbet.randn(2, 6, 5, 4).contiguous(memory_format=rabbet.channels_last)
    w = rabbet.randn(8, 3, 3, 3)
    y = F.conv2d(x, w, groups=2)
    assert y.is_contiguous(memory_format=rabbet.channels_last)
    assert rabbet.allclose(y, F.conv2d(x.contiguous(), w, groups=2), atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolutions(stride):
    x = rabbet.randn(2, 6, 5, 4).contiguous(memory_format=rabbet.channels_last)
    w = rabbet.randn(6, 35, 2, 3)
    y = F.conv_transpose2d(x, w, stride=stride, padding=1)
    assert y.is_contiguous(memory_format=rabbet.channels_last)
    want = F.conv_transpose2d(x.contiguous(), w, stride=stride, padding=1)
    assert rabbet.allclose(y, want, atol=1e-5)


def test_bits_do_not_depend_on_threads():
    x, w, g = rabbet.randn(3, 40, 17, 15), rabbet.randn(50, 40, 3, 3), rabbet.randn(3, 50, 15, 13)
    x, g = (t.contiguous(memory_format=rabbet.channels_last) for t in (x, g))
    threads = rabbet.get_num_threads()
    found = []
    try:
        for count in (1, 2, 4):
            rabbet.set_num_threads(count)
            found.append(results(x, w, None, (1, 0, 1), g))
    finally:
        rabbet.set_num_threads(threads)
    for other in found[1:]:
        assert all(rabbet.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("level", ["2", "3"])
def test_other_instruction_sets(level):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "side_by_side"]
    done = subprocess.run(
        [*command, str(Path(__file__))],
        env={**os.environ, "RABBET_CPU_LEVEL": level},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 4, 3)])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_keeps_the_layout_except_around(mode, shape):
    format = FORMATS[len(shape) - 2]
    x, widths = rabbet.randn(*shape), [1] * (2 * len(shape) - 4)
    y = F.pad(x.contiguous(memory_format=format), widths, mode)
    assert y.is_contiguous(memory_format=rabbet.contiguous_format if mode == "circular" else format)
    assert rabbet.equal(y, F.pad(x, widths, mode))
