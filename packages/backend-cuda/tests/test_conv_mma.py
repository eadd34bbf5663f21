"""Convolutions on tensor cores on the simulator: small whole numbers, whose sums NumPy gives to the bit."""

import pytest

JUDGE = """
import rabbet.nn
ops, PLAIN = rabbet.ops, ([1], [0], [1], 1)
sizes_of = lambda shape, how: [(i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d in zip(shape[0][2:], shape[1][2:], *how[:3])]

def taps(shape, how):
    # For each tap: its place in the weight, and the slices of a padded input that outputs meet there.
    (_, _, *size), (_, _, *kernel), out = *shape, sizes_of(shape, how)
    for tap in np.ndindex(*kernel):
        starts = [t * d for t, d in zip(tap, how[2])]
        yield tap, tuple(slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, out, how[0]))

def padded(x, how): return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in how[1])])

def oracle(x, w, g, how):
    # Outputs, the input's gradient and the weight's, tap by tap.
    shape, groups = (x.shape, w.shape), how[3]
    wide, y, dw = padded(x, how), np.zeros(g.shape), np.zeros(w.shape)
    dx = np.zeros_like(wide)
    grouped = lambda t: t.reshape(t.shape[0], groups, -1, *t.shape[2:])
    flat = lambda t: t.reshape(*t.shape[:3], -1)
    weight = w.reshape(groups, -1, *w.shape[1:])
    for tap, at in taps(shape, how):
        here = (slice(None), slice(None), *at)
        read, factors = grouped(wide[here]), weight[(slice(None),) * 3 + tap]
        y += np.einsum("ngc...,goc->ngo...", read, factors).reshape(g.shape)
        dx[here] += np.einsum("ngo...,goc->ngc...", grouped(g), factors).reshape(dx[here].shape)
        dw[(slice(None),) * 2 + tap] = np.einsum("ngcp,ngop->goc", flat(read), flat(grouped(g))).reshape(w.shape[:2])
    return y, dx[(..., *(slice(p, p + i) for p, i in zip(how[1], x.shape[2:])))], dw

def contiguous(t): return t
def last(t): return t.movedim(1, -1).contiguous().movedim(-1, 1)
def gaps(t): return rabbet.cat([t, t], -1)[..., : t.shape[-1]]
def turned(t): return t.transpose(0, -1).contiguous().transpose(0, -1)
def shifted(t): return rabbet.cat([t.reshape(-1)[:1], t.reshape(-1)])[1:].reshape(t.shape)
FORMS = [contiguous, last, gaps, turned, shifted]

def judge(shape, how, dtype, forms=(contiguous, contiguous, contiguous), bias=True, seed=0, only=("y", "dx", "dw")):
    draw = np.random.default_rng(seed)
    how = [[h] * (len(shape[0]) - 2) if isinstance(h, int) else h for h in how[:3]] + [how[3]]
    x, w = (draw.integers(-2, 3, s).astype(float) for s in shape)
    g = draw.integers(-2, 3, (x.shape[0], w.shape[0], *sizes_of(shape, how))).astype(float)
    b = draw.integers(-9, 10, w.shape[0]).astype(float)
    y, dx, dw = oracle(x, w, g, how)
    there = [form(rabbet.tensor(t).to(dtype).to("cuda")) for form, t in zip(forms, (x, w, g))]
    added = rabbet.tensor(b).to(dtype).to("cuda") if bias else None
    if bias: y = y + b.reshape(-1, *[1] * (y.ndim - 2))
    calls = {"y": (y, lambda: ops.convolution(there[0], there[1], added, *how)),
             "dx": (dx, lambda: ops.convolution_dx(there[2], there[1], list(x.shape), *how)),
             "dw": (dw, lambda: ops.convolution_dw(there[0], there[2], list(w.shape), *how))}
    for name in only:
        want, got = calls[name][0], calls[name][1]()
        want = rabbet.tensor(want).to(F32).to(dtype)
        assert got.dtype == dtype and got.shape == want.shape, name
        assert (got.cpu() == want).all().item(), (name, shape, how, dtype, [f.__name__ for f in forms])
"""
# (input, weight), (stride, padding, dilation, groups)
SHAPES = {
    "one direction": ([(3, 5, 40), (7, 5, 4)], [3, 2, 2, 1]),
    "two directions": ([(2, 8, 9, 7), (12, 8, 3, 3)], [1, 1, 1, 1]),
    "three directions": ([(2, 8, 4, 5, 3), (8, 8, 2, 3, 2)], [[1, 2, 1], [0, 1, 1], [2, 1, 1], 1]),
    "cut tiles": ([(2, 24, 7, 7), (70, 24, 3, 3)], [1, 1, 1, 1]),
    "one tap": ([(3, 16, 5, 5), (72, 16, 1, 1)], [1, 0, 1, 1]),
    "groups": ([(4, 24, 6, 6), (48, 8, 3, 3)], [2, 1, 1, 3]),
    "few channels": ([(2, 3, 11, 9), (6, 3, 5, 3)], [2, [2, 0], 1, 1]),
    "a wide stride": ([(2, 3, 10, 10), (8, 3, 2, 3)], [5, 0, 1, 1]),
    "stride and dilation with a common factor": ([(2, 8, 13, 9), (8, 8, 3, 3)], [[4, 6], 3, [2, 4], 1]),
    "a stride wider than the input": ([(1, 8, 3, 3), (8, 8, 2, 2)], [20, 1, 1, 1]),
    "padding wider than the window": ([(1, 8, 4, 4), (8, 8, 2, 2)], [2, 5, 3, 1]),
    "one position": ([(2, 16, 3, 3), (8, 16, 3, 3)], [1, 0, 1, 1]),
    "a long window": ([(1, 2, 90), (2, 2, 80)], [1, 0, 1, 1]),
}  # fmt: skip


@pytest.fixture
def on_tensor_cores(compared, tmp_path):
    """Run code, and return the macros of the kernels that it asked for."""

    def in_a_process(code, **env):
        compared(JUDGE + code, RABBET_CUDA_KEEP_SOURCES=str(tmp_path), **env)
        texts = [path.read_text() for path in tmp_path.glob("convolution*.cu")]
        made = {text.rstrip().rsplit("\n", 1)[-1] for text in texts}
        return {macro for macro in made if macro.startswith("RB_CONV")}

    return in_a_process


def test_outputs_and_gradients_are_exact(on_tensor_cores):
    code = f"""
for at, (shape, how) in enumerate({[*SHAPES.values()]!r}):
    for form in (contiguous, last): judge(shape, how, (F16, BF16)[at % 2], (form,) * 3)
"""
    made = on_tensor_cores(code)
    assert not made & {"RB_CONV(true)", "RB_CONV(false)", "RB_CONV_DW"}
    truths = ("true", "false")
    assert made >= {
        "RB_CONV_PACK",
        *(f"RB_CONV_MMA(64, {ahead})" for ahead in truths),
        *(f"RB_CONV_MMA_DW(64, {a}, {g})" for a in truths for g in truths),
        "RB_CONV_MMA_DW(128, true, false)",
    }


def test_convolutions_that_chance_makes(on_tensor_cores):
    """Any strides in memory, for each tensor its own."""
    code = """
draw = np.random.default_rng(3)
some = lambda *values: values[draw.integers(len(values))]
count = 0
while count < 60:
    directions = some(1, 2, 2, 3)
    every = lambda *values: [int(some(*values)) for _ in range(directions)]
    groups, channels, outputs = some(1, 1, 2, 3), some(1, 3, 8, 16, 20), some(1, 5, 8, 16, 66)
    if groups > 1 and channels <= 4 and outputs <= 4: continue  # by no tiles
    size, kernel = every(1, 2, 5, 7, 9), every(1, 2, 3, 4)
    how = [every(1, 1, 2, 3, 4), every(0, 1, 2, 3), every(1, 1, 2, 3), groups]
    shape = [(int(some(1, 2, 3)), groups * channels, *size), (groups * outputs, channels, *kernel)]
    if min(sizes_of(shape, how)) < 1: continue
    judge(shape, how, some(F16, BF16), [some(*FORMS) for _ in range(3)], bool(some(0, 1)), count)
    count += 1
"""
    assert all(macro.startswith(("RB_CONV_MMA", "RB_CONV_PACK")) for macro in on_tensor_cores(code))


def test_large_tiles(on_tensor_cores):
    code = """
for form in (contiguous, last):
    judge([(1, 1024, 9, 9), (9216, 8, 1, 1)], [1, 0, 1, 128], F16, (form,) * 3, only=["y"])
"""
    assert {f"RB_CONV_MMA(128, {ahead})" for ahead in ("true", "false")} <= on_tensor_cores(code)


def test_sums_over_many_positions_are_cut(on_tensor_cores):
    """And added up in float32: their parts have other strides than the weight."""
    code = """
for form in (contiguous, last):
    judge([(2, 8, 35, 40), (16, 8, 3, 3)], [1, 1, 1, 1], BF16, (form,) * 3, only=["dw"])
    judge([(1, 3, 2500), (8, 3, 4)], [1, 2, 1, 1], F16, (form,) * 3, only=["dw"])
"""
    on_tensor_cores(code)


def test_float32_in_tf32_where_it_is_allowed(on_tensor_cores):
    """Small whole numbers are exact in TF32, too."""
    code = f"""
for shape, how in {[SHAPES[name] for name in ("cut tiles", "one tap", "groups")]!r}:
    for form in (contiguous, last): judge(shape, how, F32, (form,) * 3)
"""
    made = on_tensor_cores(code)
    assert {"RB_CONV_MMA(64, true)", "RB_CONV_MMA(64, false)"} <= made
    assert {"RB_CONV_MMA_DW(128, true, false)", "RB_CONV_MMA_DW(128, false, false)"} <= made
    assert not made & {"RB_CONV(true)", "RB_CONV(false)", "RB_CONV_DW"}


ROUNDED = """
draw = np.random.default_rng(0)
x, w = draw.standard_normal((2, 24, 9, 9)).astype("float32"), draw.standard_normal((20, 24, 3, 3)).astype("float32")
def tf32(v):
    bits = v.view("uint32")
    return ((bits + 0x1000) & 0xFFFFE000).astype("uint32").view("float32").astype(float)
g, how = draw.standard_normal((2, 20, 9, 9)).astype("float32"), [[1, 1], [1, 1], [1, 1], 1]
exact, rounded = (oracle(*map(f, (x, w, g)), how) for f in (lambda v: v.astype(float), tf32))
a, b, c = (rabbet.from_numpy(t).to("cuda") for t in (x, w, g))
def computed():
    return (ops.convolution(a, b, None, *how), ops.convolution_dx(c, b, list(x.shape), *how),
            ops.convolution_dw(a, c, list(w.shape), *how))
def are(wanted):
    for got, want, other in zip(computed(), wanted, exact if wanted is rounded else rounded):
        got = got.cpu().numpy()
        assert np.allclose(got, want, rtol=1e-5, atol=5e-5), np.abs(got - want).max()
        assert np.abs(got - other).max() > 1e-3
"""


def test_switches_say_whether_float32_is_rounded(compared):
    compared(
        JUDGE
        + ROUNDED
        + """
cudnn, products = rabbet.backends.cudnn, rabbet.backends.cuda.matmul
are(rounded)
cudnn.allow_tf32 = False; are(exact)
products.allow_tf32 = True; are(exact)
cudnn.enabled = False; are(rounded)
cudnn.allow_tf32 = True; products.allow_tf32 = False; are(exact)
"""
    )
    compared(JUDGE + ROUNDED + "are(exact)", NVIDIA_TF32_OVERRIDE="0")


def test_few_sums_and_short_ones_of_float32_are_not_rounded(on_tensor_cores):
    code = """
judge([(1, 8, 5, 5), (8, 8, 3, 3)], [1, 1, 1, 1], F32)
judge([(1, 4, 20, 20), (8, 4, 1, 1)], [1, 0, 1, 1], F32, only=["y", "dx"])
"""
    assert on_tensor_cores(code) == {"RB_CONV(true)", "RB_CONV(false)", "RB_CONV_DW"}


def test_infinities_and_nan_stay_where_they_are_read(compared):
    """Padding reads nothing, and zeros that fill tiles meet no weight."""
    compared(
        JUDGE
        + """
x, w = np.zeros((1, 5, 6, 6)), np.ones((7, 5, 3, 3))
x[0, 2, 0, 0], x[0, 4, 5, 5] = np.nan, np.inf
for form in (contiguous, last):
    got = ops.convolution(*(form(rabbet.tensor(t).to(F16).to("cuda")) for t in (x, w)), None, [1], [1]).cpu().to(F32).numpy()
    assert np.isnan(got[0, :, :2, :2]).all() and np.isposinf(got[0, :, 4:, 4:]).all()
    assert np.isfinite(got).sum() == 7 * (36 - 8)
    assert np.isfinite(np.where(np.isnan(got) | np.isinf(got), 0, got)).all()
    g = ops.convolution_dx(form(rabbet.ones(1, 7, 3, 3, dtype=F16, device="cuda")),
                           form(rabbet.full((7, 5, 2, 2), float("inf"), dtype=F16, device="cuda")), [1, 5, 6, 6], [2], [0], [1], 1)
    assert g.isinf().all().item()
"""
    )


def test_empty_tensors_and_bad_input(compared):
    compared(
        JUDGE
        + """
empty = lambda *shape: rabbet.empty(shape, dtype=F16, device="cuda")
assert ops.convolution(empty(0, 8, 5, 5), empty(4, 8, 3, 3)).shape == (0, 4, 3, 3)
assert ops.convolution_dx(empty(0, 4, 3, 3), empty(4, 8, 3, 3), [0, 8, 5, 5], *PLAIN).shape == (0, 8, 5, 5)
assert (ops.convolution_dw(empty(0, 8, 5, 5), empty(0, 4, 3, 3), [4, 8, 3, 3], *PLAIN) == 0).all().item()
x, w = empty(2, 8, 5, 5), empty(4, 8, 3, 3)
for wrong in (lambda: ops.convolution(x, empty(4, 7, 3, 3)), lambda: ops.convolution(x, w.to(F32)),
              lambda: ops.convolution(x, empty(4, 8, 9, 3)), lambda: ops.convolution(x, w, None, [0]),
              lambda: ops.convolution(x, w, None, [1], [-1]), lambda: ops.convolution(x, w, empty(3)),
              lambda: ops.convolution_dx(empty(2, 4, 4, 3), w, [2, 8, 5, 5], *PLAIN),
              lambda: ops.convolution_dw(x, empty(2, 5, 3, 3), [4, 8, 3, 3], *PLAIN), lambda: ops.convolution(x, w.cpu())):
    try: wrong()
    except (ValueError, RuntimeError): continue
    raise AssertionError("taken")
"""
    )


def test_places_beyond_32_bits(compared):
    compared(
        JUDGE
        + """
draw = np.random.default_rng(0)
x, w = (rabbet.tensor(draw.integers(-2, 3, s).astype(float)).to(F16) for s in ((2, 8, 4, 4), (4, 8, 3, 3)))
far = rabbet.empty((1 << 31) + 1024, dtype=F16, device="cuda")
for steps in ((16, 4, 1), (1, 32, 8)):
    a = far.as_strided((2, 8, 4, 4), (1 << 31, *steps))
    a.copy_(x)
    assert (ops.convolution(a, w.to("cuda")).cpu() == ops.convolution(x, w)).all().item()
    assert (ops.convolution_dw(a, rabbet.ones(2, 4, 2, 2, dtype=F16, device="cuda"), [4, 8, 3, 3], *PLAIN).cpu()
            == ops.convolution_dw(x, rabbet.ones(2, 4, 2, 2, dtype=F16), [4, 8, 3, 3], *PLAIN)).all().item()
""",
        CUSIM_MEMORY=str(6 << 30),
    )
