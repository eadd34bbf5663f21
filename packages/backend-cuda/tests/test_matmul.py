"""Products of matrices on the simulator, against NumPy in float64 or the operands' own type."""

import pytest

CHECK = """
import numpy as np, rabbet
F = rabbet.nn.functional
ops = rabbet.ops
rng = np.random.default_rng(0)
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "complex64": 1e-4}
def array(shape, dtype):
    if dtype.startswith(("int", "uint")): return rng.integers(0, 5, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x
def tensor(x, dtype): return rabbet.tensor(x.tolist(), dtype=getattr(rabbet, dtype)).reshape(x.shape)
def rounded(x, dtype):
    t = tensor(x, dtype)
    wide = {"float16": rabbet.float64, "bfloat16": rabbet.float64}.get(dtype, t.dtype)
    return np.array(t.to(wide).tolist()).reshape(x.shape)
def close(got, want, dtype, *, what=()):
    assert got.device.type == "cuda" and str(got.dtype).endswith(dtype) and tuple(got.shape) == want.shape, (got.shape, want.shape, what)
    here = got.cpu()
    here = np.array((here.to(rabbet.float64) if dtype in ("float16", "bfloat16") else here).tolist()).reshape(want.shape)
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    assert np.allclose(here, want, rtol=0, atol=TOLERANCE.get(dtype, 1e-10) * scale), (what, np.abs(here - want).max())
"""


@pytest.fixture(params=["cuBLASLt", "own kernels"])
def products(request, simulator):
    """The environment with the stand-in of cuBLASLt, and without the library."""
    env = {**simulator, "RABBET_CUDA_FALLBACK": "error"}
    return env if request.param == "cuBLASLt" else {**env, "RABBET_CUDA_CUBLASLT": ""}


def test_every_dtype_multiplies_and_adds(run, products):
    code = """
for dtype in ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8", "int32", "int64", "uint8"):
    x, y, z = (rounded(array(s, dtype), dtype) for s in ((5, 20), (20, 7), (1, 7)))
    a, b, c = (tensor(v, dtype).to("cuda") for v in (x, y, z))
    want = x @ y
    if dtype in ("int8", "uint8"): want = want.astype(dtype)
    close(a @ b, want, dtype, what=dtype)
    two = 2 - 1j if dtype.startswith("complex") else 2
    close(rabbet.addmm(c, a, b, beta=2, alpha=two), (2 * z + two * (x @ y)).astype(want.dtype), dtype, what=dtype)
    close(ops.linear(a, b.t(), c[0]), (x @ y + z[0]).astype(want.dtype), dtype, what=dtype)
"""
    run(CHECK + code, **products)


def test_operands_of_any_strides_and_dimensions(run, products):
    code = """
SHAPES = [((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 3)), ((70, 33), (33, 130)), ((0, 4), (4, 2)), ((3, 0), (0, 2)),
          ((2, 3, 4), (4, 5)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 4), (4,)), ((1, 9), (9, 40)), ((6, 1), (1, 6))]
for shape, other in SHAPES:
    x, y = array(shape, "float32"), array(other, "float32")
    a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda")
    close(a @ b, x @ y, "float32", what=(shape, other))
    for left in (False, True):
        for right in (False, True):
            # Transposed in memory, and with gaps.
            u = a.mT.clone().mT if left and a.ndim > 1 else a
            v = b.mT.clone().mT if right and b.ndim > 1 else b
            close(u @ v, x @ y, "float32", what=(shape, other, left, right))
            wide = rabbet.cat([u, u], -1)[..., :shape[-1]], rabbet.cat([v, v], -1)[..., :other[-1]]
            close(wide[0] @ wide[1], x @ y, "float32", what=(shape, other, "gaps"))
x, y = array((6, 5), "float32"), array((5, 7), "float32")
a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda")
for out in (rabbet.zeros(6, 7, device="cuda"), rabbet.zeros(7, 6, device="cuda").t(), rabbet.zeros(6, 14, device="cuda")[:, ::2]):
    rabbet.matmul(a, b, out=out)
    close(out, x @ y, "float32", what=out.stride())
x, y = array((2, 3, 5, 4), "float32"), array((2, 5, 3, 4), "float32")
a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda").transpose(1, 2)
close(a @ b.mT, x @ y.transpose(0, 2, 3, 1), "float32")
close(a[::2, ::2].flip(0) @ b[::2, ::2].mT, x[::2, ::2] @ y[::2, :, ::2].transpose(0, 2, 3, 1), "float32")
"""
    run(CHECK + code, **products)


def test_what_is_added_broadcasts_and_is_not_read_for_beta_0(run, products):
    code = """
x, y = array((6, 5), "float32"), array((5, 7), "float32")
a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda")
for shape in ((), (7,), (1, 7), (6, 1), (6, 7), (1, 1)):
    z = array(shape, "float32") + 0.0
    z = np.asarray(z)
    c = tensor(z, "float32").to("cuda")
    for beta, alpha in ((1, 1), (0.5, -2), (0, 3)):
        close(rabbet.addmm(c, a, b, beta=beta, alpha=alpha), beta * z + alpha * (x @ y), "float32", what=(shape, beta))
nan = rabbet.full((6, 7), float("nan"), device="cuda")
close(rabbet.addmm(nan, a, b, beta=0), x @ y, "float32")
c = rabbet.ones(7, 6, device="cuda").t()
c.addmm_(a, b, beta=2)
close(c, 2 + x @ y, "float32")
empty = rabbet.addmm(rabbet.ones(3, device="cuda"), rabbet.zeros(2, 0, device="cuda"), rabbet.zeros(0, 3, device="cuda"), beta=3)
close(empty, np.full((2, 3), 3.0), "float32")
x, y = array((4, 6, 5), "float32"), array((4, 5, 7), "float32")
a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda")
for shape in ((7,), (6, 1), (4, 1, 7), (4, 6, 7), (4, 1, 1), ()):
    z = np.asarray(array(shape, "float32") + 0.0)
    close(rabbet.baddbmm(tensor(z, "float32").to("cuda"), a, b, beta=2, alpha=0.5), 2 * z + 0.5 * (x @ y), "float32", what=shape)
"""
    run(CHECK + code, **products)


def test_activations_follow_the_sum(run, products):
    code = """
from math import erf
x, w, bias = array((3, 2, 8), "float32"), array((5, 8), "float32"), array((5,), "float32")
y = x @ w.T
def sigmoid(v): return 1 / (1 + np.exp(-v))
FORMULAS = {"relu": lambda v: np.maximum(v, 0), "gelu": lambda v: v * 0.5 * (1 + np.vectorize(erf)(v / 2**0.5)),
            "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v**3))),
            "silu": lambda v: v * sigmoid(v), "tanh": np.tanh, "sigmoid": sigmoid}
for dtype, names in (("float32", FORMULAS), ("bfloat16", ["gelu"])):
    a, b, c = (tensor(v, dtype).to("cuda") for v in (x, w, bias))
    for name in names:
        f = FORMULAS[name]
        close(ops.linear_activation(a, b, c, activation=name), f(y + bias), dtype, what=name)
        close(ops.linear_activation(a, b, activation=name), f(y), dtype, what=name)
nan = rabbet.full((2, 8), float("nan"), device="cuda")
assert ops.linear_activation(nan, tensor(w, "float32").to("cuda"), activation="relu").isnan().all().item()
"""
    run("import rabbet.nn\n" + CHECK + code, **products)


def test_long_sums_of_few_results_are_split(run, products):
    code = """
for m, k, n in ((1, 5000, 1), (3, 4100, 2), (1, 4100, 40), (40, 2300, 1)):
    for dtype in ("float32", "float16"):
        x, y = rounded(array((m, k), dtype), dtype), rounded(array((k, n), dtype), dtype)
        for b in (tensor(y, dtype).to("cuda"), tensor(y.T, dtype).to("cuda").t()):
            a, c = tensor(x, dtype).to("cuda"), rabbet.ones(n, dtype=getattr(rabbet, dtype), device="cuda")
            close(rabbet.addmm(c, a, b, beta=2, alpha=0.5), 2 + 0.5 * (x @ y), dtype, what=(m, k, n))
x = array((2, 3000), "float64")
a = tensor(x, "float64").to("cuda")
close((a[:, None] @ a[:, :, None]).squeeze(), (x * x).sum(1), "float64")
"""
    run(CHECK + code, **products)


@pytest.mark.parametrize("m,k,n", [(130, 20, 140), (1500, 9, 1500)])
def test_large_tiles(run, products, m, k, n):
    """From 128 tiles on they are of 128 x 128: the second size; the edges are cut."""
    code = f"""
x, y = array(({m}, {k}), "float32"), array(({k}, {n}), "float32")
a, b = rabbet.from_numpy(x.astype("float32")).to("cuda"), rabbet.from_numpy(y.astype("float32")).to("cuda")
got = (a @ b).cpu().numpy()
assert np.allclose(got, x @ y, atol=1e-4), np.abs(got - x @ y).max()
"""
    run(CHECK + code, **products)


def test_the_matrices_of_hypothesis(run, products):
    code = """
from hypothesis import given, settings, strategies as st
sizes = st.integers(1, 9)
@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(batch=st.lists(st.integers(1, 3), max_size=3), m=sizes, k=sizes, n=sizes, turns=st.tuples(*[st.booleans()] * 3), data=st.data())
def check(batch, m, k, n, turns, data):
    def operand(rows, columns, turn):
        shape = [data.draw(st.sampled_from([1, b])) for b in batch] + [rows, columns]
        x = rng.integers(-4, 5, shape).astype("float32")
        step = data.draw(st.sampled_from([1, 2, -1]))
        t = rabbet.from_numpy(x).to("cuda")
        if turn: t = t.mT.clone().mT
        axis = data.draw(st.integers(0, len(shape) - 1))
        keep = [slice(None)] * len(shape)
        keep[axis] = slice(None, None, abs(step))
        return (x[tuple(keep)], t[tuple(keep)]) if shape[axis] > 2 and axis < len(batch) else (x, t)
    x, a = operand(m, k, turns[0])
    y, b = operand(k, n, turns[1])
    try: want = x @ y
    except ValueError: return
    close(a @ b, want, "float32")
    z = rng.integers(-4, 5, want.shape[-2:]).astype("float32")
    c = rabbet.from_numpy(z).to("cuda")
    if turns[2]: c = c.t().clone().t()
    if want.ndim == 2: close(rabbet.addmm(c, a, b, beta=2), 2 * z + want, "float32")
    if want.ndim == 3 and x.shape[0] == y.shape[0]: close(rabbet.baddbmm(c, a, b, beta=-1), want - z, "float32")
check()
"""
    run(CHECK + code, **products)


def test_tensor_cores(run, simulator):
    """Operands that lie along k and across it, cut edges, batches, sums in parts, epilogues."""
    code = """
for dtype, k, n in (("float16", 72, 136), ("bfloat16", 32, 40)):
    x, y, z = (rounded(array(s, dtype), dtype) for s in ((2, 131, k), (2, k, n), (n,)))
    a, b, c = (tensor(v, dtype).to("cuda") for v in (x, y, z))
    far = tensor(np.pad(x, ((0, 0), (0, 5), (0, 0))), dtype).to("cuda").mT.clone().mT[:, :131]
    for left in (a, far):
        for right in (b, b.mT.clone().mT):
            if dtype == "float16" or (left is a and right is b): close(left @ right, x @ y, dtype, what=(left.stride(), right.stride()))
    close(ops.linear_activation(a[0], b[0].t(), c, activation="relu"), np.maximum(x[0] @ y[0] + z, 0), dtype)
x, y = rounded(array((40, 2100), "float16") / 8, "float16"), rounded(array((2100, 40), "float16"), "float16")
a, b = tensor(x, "float16").to("cuda"), tensor(y.T, "float16").to("cuda").t()
close(rabbet.addmm(rabbet.ones(40, 40, dtype=rabbet.float16, device="cuda"), a[:, :2096], b[:2096], beta=2), 2 + x[:, :2096] @ y[:2096], "float16")
"""
    run(
        "import rabbet.nn\n" + CHECK + code,
        **{**simulator, "RABBET_CUDA_FALLBACK": "error", "RABBET_CUDA_CUBLASLT": ""},
    )


def test_float32_in_tf32_where_it_is_allowed(run, simulator):
    """Operands of numbers that TF32 keeps give float32's result; others are rounded to 10 bits."""
    code = """
rabbet.backends.cuda.matmul.allow_tf32 = True
x, y = rng.integers(-900, 900, (2, 131, 72)) / 64.0, rng.integers(-900, 900, (2, 72, 136)) / 64.0
a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda")
for left in (a, tensor(np.pad(x, ((0, 0), (0, 1), (0, 0))), "float32").to("cuda").mT.clone().mT[:, :131]):
    for right in (b, b.mT.clone().mT): close(left @ right, x @ y, "float32", what=(left.stride(), right.stride()))
def tf32(v):
    bits = v.astype("float32").view("uint32")
    return ((bits + 0x1000) & 0xFFFFE000).astype("uint32").view("float32").astype("float64")
x, y = array((40, 2100), "float32"), array((2100, 40), "float32")
a, b = tensor(x, "float32").to("cuda"), tensor(y, "float32").to("cuda")
close(a @ b, tf32(x) @ tf32(y), "float32")
rabbet.backends.cuda.matmul.allow_tf32 = False
close(a @ b, x @ y, "float32")
assert np.abs(tf32(x) @ tf32(y) - x @ y).max() > 1e-3
"""
    run(
        CHECK + code,
        **{**simulator, "RABBET_CUDA_FALLBACK": "error", "RABBET_CUDA_CUBLASLT": ""},
        CUSIM_CHECK="all",
    )
