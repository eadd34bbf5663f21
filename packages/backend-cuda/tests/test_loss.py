"""Losses of class indices on the simulator, against the CPU's kernels and NumPy."""


def test_cross_entropy_and_its_derivative(compared):
    compared("""
ops = rabbet.ops
rabbet.manual_seed(0)
for dtype, close in ((F32, 1e-4), (F64, 1e-9), (F16, 5e-3), (BF16, 3e-2)):
    for shape in ((4, 3), (3,), (2, 3, 5), (3, 300), (40, 2)):
        rows = shape[:1] + shape[2:] if len(shape) > 1 else ()
        classes = shape[1] if len(shape) > 1 else shape[0]
        x, t, w = rabbet.randn(shape).to(dtype), rabbet.randint(0, classes, rows), rabbet.rand(classes).to(dtype) + 0.1
        for how, smoothing, weight, ignore in (("mean", 0.0, None, -100), ("none", 0.2, w, 1), ("sum", 0.3, None, 1), ("mean", 0.0, w, 0)):
            if ignore == 0 and not (t != 0).any().item(): continue
            given = (x, t) if weight is None else (x, t, w)
            f = lambda x, t, w=None: ops.cross_entropy_loss(x, t, w, how, ignore, smoothing)
            both(f, *given, close=close)
            def slope(x, t, w=None):
                loss, lse, total = f(x, t, w)
                return ops.cross_entropy_backward(rabbet.ones_like(loss) * 0.5, x, t, w, lse, total, how, ignore, smoothing)
            both(slope, *given, close=close)
            g = lambda x, t, w=None: ops.nll_loss(x, t, w, how, ignore)
            both(g, *given, close=close)
            def nll_slope(x, t, w=None):
                loss, total = g(x, t, w)
                return ops.nll_loss_backward(rabbet.ones_like(loss), t, w, total, list(x.shape), how, ignore)
            both(nll_slope, *given, close=close)
x = np.random.default_rng(0).standard_normal((6, 5)); t = np.array([0, 4, 2, 2, 1, 3])
want = np.mean(np.log(np.exp(x).sum(1)) - x[np.arange(6), t])
assert abs(ops.cross_entropy_loss(rabbet.tensor(x, device="cuda"), rabbet.tensor(t, device="cuda"))[0].item() - want) < 1e-12
""")


def test_rows_that_begin_between_packs(compared):
    compared("""
from rabbet.nn import functional as F
numbers = np.random.default_rng(1)
for dtype, close in ((F32, 1e-5), (F64, 1e-12), (F16, 4e-3), (BF16, 2e-2)):
    for width in (37, 301, 1000):  # rows of which few begin at a multiple of 16 bytes
        whole = rabbet.tensor(numbers.standard_normal((5, width + 3)) * 3).to(dtype)
        whole[0, 4:9] = -np.inf
        whole[1, 7] = np.nan
        whole[3] = -np.inf
        whole[3, 20] = np.nan  # beside nothing but what counts as nothing
        t = rabbet.tensor(numbers.integers(0, width, 5))
        for first in (0, 1, 3):
            x = whole[:, first : first + width]
            both(lambda x: rabbet.softmax(x, 1), x, close=close)
            both(lambda x: rabbet.log_softmax(x, 1), x, close=close)
            both(lambda x: rabbet.logsumexp(x, 1), x, close=close)
            both(lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=0.1), x, t, close=close)
            def slope(x, t):
                x = x.nan_to_num(0.0, 1.0, -1.0).requires_grad_()
                F.cross_entropy(x, t).backward()
                return x.grad
            both(slope, x, t, close=close)
            y = rabbet.softmax(x.nan_to_num(0.0, 1.0, -1.0), 1)
            both(lambda g, y: rabbet.ops.softmax_vjp(g, y, 1), x, y, close=close)
            both(lambda g, y: rabbet.ops.log_softmax_vjp(g, y.log(), 1), x[4:], y[4:], close=close)
            if dtype == F32:
                out = rabbet.zeros(5, width + 1, device="cuda")[:, 1:]  # between its packs, unlike the rows
                rabbet.softmax(x.to("cuda"), 1, out=out)
                same(rabbet.softmax(x, 1), out, close)
""")


def test_a_class_out_of_range_is_an_error_that_names_the_operator(run, simulator):
    code = """
import rabbet
for name, bad in (("cross_entropy_loss", 3), ("nll_loss", -1)):
    x = rabbet.ones(2, 3, device="cuda")
    try:
        rabbet.ops(name)(x, rabbet.tensor([0, bad], device="cuda"))
        rabbet.cuda.synchronize()
    except IndexError as error: print(error)
print(rabbet.ops("cross_entropy_loss")(x, rabbet.tensor([0, 1], device="cuda"))[0].item())
"""
    lines = run(code, RABBET_CUDA_FALLBACK="error", **simulator).splitlines()
    assert "cross_entropy_loss: index 3 is out of range" in lines[0], lines
    assert "nll_loss: index -1 is out of range" in lines[1] and abs(float(lines[2]) - 1.0986) < 1e-3
