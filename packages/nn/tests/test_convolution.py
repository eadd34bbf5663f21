"""Convolution in one to three directions against its definition, and against PyTorch where it is installed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet import nn
from rabbet.nn import functional as F


@dataclass(frozen=True)
class Case:
    n: int
    channels: int
    outputs: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def tail(self) -> list:
        return [list(self.stride), list(self.padding), list(self.dilation), self.groups]

    @property
    def x_shape(self) -> tuple[int, ...]:
        return (self.n, self.channels, *self.size)

    @property
    def w_shape(self) -> tuple[int, ...]:
        return (self.outputs, self.channels // self.groups, *self.kernel)


def windows(case: Case, padded: np.ndarray):
    """For each weight position the part of the padded input under it."""
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            case.size, case.kernel, case.stride, case.padding, case.dilation, strict=True
        )
    ]
    for place in itertools.product(*(range(k) for k in case.kernel)):
        cut = tuple(
            slice(i * d, i * d + (n - 1) * s + 1, s)
            for i, d, s, n in zip(place, case.dilation, case.stride, out, strict=True)
        )
        yield place, (slice(None), slice(None), *cut)


def convolve(case: Case, x: np.ndarray, w: np.ndarray, g: np.ndarray | None = None):
    """y; with g also dx and dw, the transposes of the same sum."""
    widths = [(0, 0), (0, 0)] + [(p, p) for p in case.padding]
    padded = np.pad(x, widths)
    dx, dw, y = np.zeros_like(padded), np.zeros_like(w), 0.0
    c, o = case.channels // case.groups, case.outputs // case.groups
    for place, cut in windows(case, padded):
        parts = []
        for group in range(case.groups):
            ws = w[(slice(group * o, group * o + o), slice(None), *place)]
            xs = padded[cut][:, group * c : group * c + c]
            parts.append(np.einsum("nc...,oc->no...", xs, ws))
            if g is not None:
                gs = g[:, group * o : group * o + o]
                dx[cut][:, group * c : group * c + c] += np.einsum("no...,oc->nc...", gs, ws)
                at = (slice(group * o, group * o + o), slice(None), *place)
                axes = [0, *range(2, x.ndim)]
                dw[at] = np.tensordot(gs, xs, (axes, axes))
        y = y + np.concatenate(parts, 1)
    inner = tuple(slice(p, p + n) for p, n in zip(case.padding, case.size, strict=True))
    return y, dx[(slice(None), slice(None), *inner)], dw


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    each = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(rank))  # noqa: E731
    kernel, dilation = each(1, 4 if rank < 3 else 3), each(1, 2)
    padding, stride = each(0, 3), each(1, 3)
    size = tuple(
        max(draw(st.integers(1, {1: 70, 2: 20, 3: 7}[rank])), d * (k - 1) + 1 - 2 * p)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    if draw(st.integers(0, 4)) == 0:  # depthwise
        channels = groups = draw(st.integers(1, 5))
        outputs = channels * draw(st.integers(1, 2))
    else:
        channels = groups * draw(st.integers(0, 9))
        outputs = groups * draw(st.integers(1, 21))
    return Case(
        draw(st.integers(0, 3)), channels, outputs, size, kernel, stride, padding, dilation, groups
    )


def arrays(case: Case, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=case.x_shape), rng.normal(size=case.w_shape)
    shape = convolve(case, x, w)[0].shape
    return x.astype(dtype), w.astype(dtype), rng.normal(size=shape).astype(dtype)


def run(case: Case, x: rabbet.Tensor, w: rabbet.Tensor, g: rabbet.Tensor) -> list[np.ndarray]:
    return [
        rabbet.ops.convolution(x, w, None, *case.tail).numpy(),
        rabbet.ops.convolution_dx(g, w, list(x.shape), *case.tail).numpy(),
        rabbet.ops.convolution_dw(x, g, list(w.shape), *case.tail).numpy(),
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_convolution_and_its_transposes_are_their_definition(case: Case, dtype: str) -> None:
    x, w, g = arrays(case, dtype)
    want = convolve(case, x.astype("float64"), w.astype("float64"), g.astype("float64"))
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    for got, exact in zip(run(case, *map(rabbet.tensor, (x, w, g))), want, strict=True):
        scale = 1 + np.abs(exact).max(initial=0)
        np.testing.assert_allclose(got, exact, atol=tolerance * scale, rtol=0)


# Sizes at which strips, chunks of channels, depth blocks and tasks are more than one.
LARGE = [
    Case(3, 70, 150, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    Case(2, 40, 24, (57, 58), (3, 3), (2, 2), (1, 1), (1, 1), 1),
    Case(5, 130, 260, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    Case(2, 260, 40, (13, 14), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    Case(2, 33, 65, (15, 16), (1, 1), (2, 2), (0, 0), (1, 1), 1),
    Case(1, 3, 37, (65, 66), (7, 7), (2, 2), (3, 3), (1, 1), 1),
    Case(9, 6, 16, (14, 14), (5, 5), (1, 1), (0, 0), (1, 1), 1),
    Case(2, 48, 48, (56, 55), (3, 3), (1, 1), (1, 1), (1, 1), 48),
    Case(2, 20, 20, (41, 40), (3, 3), (2, 2), (1, 1), (1, 1), 20),
    Case(2, 12, 20, (300,), (9,), (1,), (4,), (1,), 1),
    Case(2, 8, 12, (9, 10, 11), (3, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 1), 1),
]


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_large_sizes(case: Case) -> None:
    x, w, g = arrays(case, "float32")
    want = convolve(case, x.astype("float64"), w.astype("float64"), g.astype("float64"))
    for got, exact in zip(run(case, *map(rabbet.tensor, (x, w, g))), want, strict=True):
        np.testing.assert_allclose(got, exact, atol=2e-5 * (1 + np.abs(exact).max()), rtol=0)


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_results_do_not_depend_on_threads(case: Case) -> None:
    x, w, g = map(rabbet.tensor, arrays(case, "float32"))
    threads = rabbet.get_num_threads()
    try:
        results = []
        for count in (1, 2, 4):
            rabbet.set_num_threads(count)
            results.append(run(case, x, w, g))
    finally:
        rabbet.set_num_threads(threads)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("level", ["2", "3"])
def test_other_instruction_sets(level: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "large_sizes or strided",
        str(Path(__file__)),
    ]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env={**os.environ, "RABBET_CPU_LEVEL": level},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_strided_inputs_and_outputs() -> None:
    case = Case(2, 4, 6, (8, 9), (3, 2), (2, 1), (1, 0), (1, 1), 2)
    x, w, g = arrays(case, "float32")
    plain = run(case, *map(rabbet.tensor, (x, w, g)))
    turned = [
        rabbet.tensor(np.ascontiguousarray(a.transpose(2, 3, 1, 0))).permute(3, 2, 0, 1)
        for a in (x, w, g)
    ]
    for a, b in zip(plain, run(case, *turned), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_are_rounded_once(dtype: str) -> None:
    case = Case(2, 5, 7, (9, 8), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    short = [rabbet.tensor(a).to(getattr(rabbet, dtype)) for a in arrays(case, "float32")]
    wide = run(case, *[a.to(rabbet.float32) for a in short])
    ops = rabbet.ops
    x, w, g = short
    got = [
        ops.convolution(x, w, None, *case.tail),
        ops.convolution_dx(g, w, list(x.shape), *case.tail),
        ops.convolution_dw(x, g, list(w.shape), *case.tail),
    ]
    for a, b in zip(got, wide, strict=True):
        assert rabbet.equal(a, rabbet.tensor(b).to(a.dtype))


def test_complex_agrees_with_its_parts() -> None:
    case = Case(2, 3, 4, (5, 6), (3, 2), (1, 2), (1, 1), (1, 1), 1)
    x, w, g = arrays(case, "float64")
    real = run(case, *map(rabbet.tensor, (x, w, g)))
    turned = run(case, *(rabbet.tensor(a * b) for a, b in ((x, 1j), (w, 1.0 + 0j), (g, 1j))))
    for a, b, factor in zip(real, turned, (1j, 1j, -1.0), strict=True):
        np.testing.assert_allclose(a * factor, b, atol=1e-12)


def test_infinities_stay_where_they_are() -> None:
    x = rabbet.ones(1, 1, 5, 20)
    x[0, 0, 2, 19] = float("inf")
    w = rabbet.ones(1, 1, 3, 3)
    y = rabbet.ops.convolution(x, w, None, [1, 1], [1, 1], [1, 1], 1).numpy()
    where = np.argwhere(np.isinf(y[0, 0]))
    assert {tuple(p) for p in where} == {(r, c) for r in (1, 2, 3) for c in (18, 19)}
    g = rabbet.ones(1, 1, 5, 20)
    dw = rabbet.ops.convolution_dw(x, g, [1, 1, 3, 3], [1, 1], [1, 1], [1, 1], 1).numpy()
    assert np.isinf(dw[0, 0, :, 1:]).all() and np.isfinite(dw[0, 0, :, 0]).all()


MODULES = [
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 11)),
    ("Conv3d", (4, 6, 3), {"stride": (1, 2, 1), "padding": (1, 0, 2), "dilation": (1, 1, 2)},
     (2, 4, 5, 7, 8)),
    ("Conv3d", (2, 4, (2, 3, 1)), {"padding": "same"}, (2, 2, 4, 5, 3)),
    ("Conv2d", (2, 4, (2, 3)), {"padding": "same", "padding_mode": "reflect"}, (2, 2, 4, 5)),
    ("Conv3d", (2, 4, 3), {"padding": 1, "padding_mode": "circular"}, (2, 4, 5, 3)),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1, "groups": 2}, (2, 4, 11)),
    ("ConvTranspose3d", (4, 6, 3), {"stride": (1, 2, 2), "padding": 1, "output_padding": (0, 1, 1)},
     (2, 4, 3, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("name,arguments,options,shape", MODULES, ids=lambda v: str(v))
def test_layers_agree_with_pytorch(
    name: str, arguments: tuple, options: dict, shape: tuple
) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, name)(*arguments, **options)
    ours = getattr(nn, name)(*arguments, **options)
    ours.load_state_dict({k: rabbet.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    data = np.random.default_rng(0).normal(size=shape).astype("float32")
    x, tx = rabbet.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on copies that it makes for even kernels
        ty = theirs(tx)
    y = ours(x)
    assert tuple(y.shape) == tuple(ty.shape)
    (y * y).sum().backward()
    (ty * ty).sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), ty.detach().numpy(), atol=1e-5)
    pairs = [(x.grad, tx.grad)] + [
        (a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    ]
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-4, rtol=1e-4)


X = rabbet.ones(1, 4, 5, 5, 5)
W = rabbet.ones(2, 4, 3, 3, 3)
ERRORS = [
    (lambda: F.conv3d(X[0, 0], W), "conv3d: expected input of 4 or 5"),
    (lambda: F.conv1d(X, W), "conv1d: expected input of 2 or 3"),
    (lambda: F.conv3d(X, W, groups=3), "groups=3 must be positive and divide"),
    (lambda: F.conv3d(X, W[:, :3]), "expects 3 input channels"),
    (lambda: F.conv3d(X, W, stride=0), "'stride' must be at least 1"),
    (lambda: F.conv3d(X, W, dilation=(1, 1, 3)), "kernel covers"),
    (lambda: F.conv3d(X, W, padding=-1), "'padding' must be at least 0"),
    (lambda: F.conv3d(X, W, rabbet.ones(3)), "expected 'bias' of shape"),
    (lambda: F.conv3d(X, W, stride=(1, 2)), "expected stride to be an int or 3 ints"),
    (lambda: F.conv3d(X, W, stride=2, padding="same"), "not supported for strided"),
    (lambda: F.conv_transpose3d(X, W), "expects 2 channels"),
    (lambda: F.conv_transpose3d(X, W.transpose(0, 1), output_padding=1), "output padding must be"),
    (lambda: F.conv_transpose3d(X, W.transpose(0, 1), padding=9), "leaves an output of"),
    (lambda: F.conv_transpose3d(X, W.transpose(0, 1), rabbet.ones(3)), "expected a bias of shape"),
]  # fmt: skip


@pytest.mark.parametrize("call,message", ERRORS, ids=[m for _, m in ERRORS])
def test_bad_arguments(call, message: str) -> None:
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        call()


def test_one_size_in_a_tuple_stands_for_all_directions():
    layer = nn.Conv2d(2, 3, 3, stride=(2,), padding=(1,), dilation=(1,))
    x = rabbet.ones(1, 2, 6, 6)
    other = F.conv2d(x, layer.weight, layer.bias, stride=2, padding=1)
    assert rabbet.equal(layer(x), other)
