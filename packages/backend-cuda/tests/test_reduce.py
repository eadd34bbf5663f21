"""Reductions and softmax on the simulator, against the CPU's kernels and NumPy."""

BOTH = """
import numpy as np, rabbet
from rabbet import int32, int64, uint8, float16, bfloat16, float32, float64, bool as boolean, complex64
def near(there, here, tolerance, what):
    assert there.device.type == "cuda" and there.dtype == here.dtype and there.shape == here.shape, what
    wide = rabbet.complex128 if here.dtype.is_complex else rabbet.float64
    a, b = there.cpu().to(wide), here.to(wide)
    assert rabbet.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True), (what, a.tolist(), b.tolist())
def both(f, *given, tolerance=None, what=""):
    here = f(*given)
    there = f(*(x.to("cuda") for x in given))
    results = (here,) if isinstance(here, rabbet.Tensor) else here
    for a, b in zip((there,) if isinstance(there, rabbet.Tensor) else there, results):
        near(a, b, tolerance or {float16: 2e-3, bfloat16: 1e-2}.get(b.dtype, 1e-5), what)
ops = rabbet.ops
"""


def test_every_dtype_reduces_rows_columns_and_the_middle(run, simulator):
    code = """
rabbet.manual_seed(0)
base = rabbet.randn(3, 4, 5)
for dtype in (boolean, uint8, int32, int64, float16, bfloat16, float32, float64, complex64):
    x = (base * 3).to(dtype) if dtype != uint8 else (base.abs() * 9).to(dtype)
    for y in (x, x.transpose(0, 2), x[:, ::2]):
        for dim in (0, 1, -1, (0, 2)):
            at = dict(dim=dim, keepdim=dim == 1)
            both(lambda y: y.sum(**at), y, what=(dtype, dim))
            both(lambda y: y.any(**at), y); both(lambda y: y.all(**at), y)
            both(lambda y: rabbet.count_nonzero(y, dim), y)
            if dtype.is_floating_point or dtype.is_complex: both(lambda y: y.mean(**at), y, what=(dtype, dim))
            if dtype.is_floating_point:
                both(lambda y: y.var(**at), y, what=(dtype, dim))
                both(lambda y: y.logsumexp(**at), y, what=(dtype, dim))
            if dtype == complex64: continue
            both(lambda y: y.amax(**at), y); both(lambda y: y.amin(**at), y)
            if dim != (0, 2):
                both(lambda y: y.max(**at), y); both(lambda y: y.min(**at), y)
                if dtype != boolean: both(lambda y: y.argmax(**at), y); both(lambda y: y.argmin(**at), y)
        if dtype in (int32, float32, float64): both(lambda y: y.prod(1), y)
    both(lambda y: y.sum(), x)
"""
    run(BOTH + code, RABBET_CUDA_FALLBACK="error", **simulator)


def test_long_lines_are_cut_and_results_are_the_same_in_every_run(run, simulator):
    code = """
rabbet.manual_seed(0)
x = rabbet.randn(40001)
for f in (rabbet.sum, rabbet.mean, rabbet.var, rabbet.amax, rabbet.argmax, rabbet.count_nonzero, lambda x: x.logsumexp(0)):
    both(f, x, tolerance=1e-4)
    there = x.to("cuda")
    assert f(there).tolist() == f(there).tolist()
assert abs(x.to("cuda").sum().item() - np.asarray(x.tolist()).sum()) < 1e-2
tall = rabbet.randn(9000, 3)
for f in (lambda x: x.sum(0), lambda x: x.var(0), lambda x: x.max(0), lambda x: x.half().sum(0)):
    both(f, tall, tolerance=2e-3)
both(lambda x: x.sum(1), rabbet.randn(5, 601)); both(lambda x: x.half().mean(1), rabbet.randn(4, 1032))
x[[5, 7]] = float("nan")
both(lambda x: x.amax(), x)
assert x.to("cuda").argmax().item() == 5 and x.to("cuda").max(0).indices.item() == 5
"""
    run(BOTH + code, RABBET_CUDA_FALLBACK="error", **simulator)


def test_nothing_and_infinities(run, simulator):
    code = """
inf, nan = float("inf"), float("nan")
both(lambda x: x.sum(1), rabbet.ones(3, 0)); both(lambda x: x.sum(0), rabbet.ones(3, 0)); both(lambda x: x.mean(1), rabbet.ones(2, 0))
both(lambda x: x.sum(), rabbet.ones(0)); both(lambda x: x.logsumexp(0), rabbet.ones(0)); both(lambda x: x.any(), rabbet.ones(0))
both(lambda x: x.sum(), rabbet.tensor(3.0)); both(lambda x: x.softmax(0), rabbet.tensor(3.0))
lines = rabbet.tensor([[-inf, 0.0, 1.0], [1e4, 1.0, -1e4], [inf, 1.0, 2.0], [-inf, -inf, -inf], [nan, 1.0, inf]])
for f in (lambda x: x.logsumexp(1), lambda x: x.softmax(1), lambda x: x.log_softmax(1), lambda x: x.amax(1), lambda x: x.argmin(1),
          lambda x: x.var(1, correction=3), lambda x: x.sum(1)):
    both(f, lines)
"""
    run(BOTH + code, RABBET_CUDA_FALLBACK="error", **simulator)


def test_softmax_and_its_derivatives_along_every_dimension(run, simulator):
    code = """
rabbet.manual_seed(0)
for shape, dims in (((3, 4, 5), (0, 1, 2)), ((2, 300), (0, 1)), ((70, 2), (0, 1))):
    for dtype in (float32, float64, float16, bfloat16):
        x, g = rabbet.randn(shape).to(dtype), rabbet.randn(shape).to(dtype)
        if dtype != float32 and shape != (3, 4, 5): continue
        for dim in dims:
            for view in (lambda t: t, lambda t: t.mT.contiguous().mT):
                both(lambda x: view(x).softmax(dim), x); both(lambda x: view(x).log_softmax(dim), x)
                both(lambda g, x: ops.softmax_vjp(view(g), x.softmax(dim), dim), g, x)
                both(lambda g, x: ops.log_softmax_vjp(g, view(x.log_softmax(dim)), dim), g, x)
x = np.random.default_rng(0).standard_normal((5, 7))
want = np.exp(x) / np.exp(x).sum(1, keepdims=True)
assert np.allclose(np.asarray(rabbet.tensor(x, device="cuda").softmax(1).tolist()), want)
"""
    run(BOTH + code, RABBET_CUDA_FALLBACK="error", **simulator)


def test_broadcast_lines_are_read_by_elements(run, simulator):
    code = """
for dtype in (int64, bfloat16, float32, float64):
    x = rabbet.tensor([[2], [3]]).to(dtype)
    for f in (lambda x: x.expand(2, 64).sum(1), lambda x: x.expand(2, 64).amin(1), lambda x: x[0].expand(64).max()):
        both(f, x, what=dtype)
    if dtype.is_floating_point:
        both(lambda x: x.expand(2, 64).var(1), x, what=dtype)
        both(lambda x: x.expand(2, 64).softmax(1), x, what=dtype)
"""
    run(BOTH + code, **simulator)
