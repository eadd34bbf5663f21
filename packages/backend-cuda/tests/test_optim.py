"""Optimizer steps on lists of tensors on the simulator, against the CPU's kernels."""

STEPS = """
import itertools
ops = rabbet.ops
rabbet.manual_seed(0)
# Sizes around vectors and chunks, no elements, and more tensors than one launch takes.
SHAPES = [(3, 4), (5,), (), (0, 2), (4099,), (7, 3)]
# The records' arguments behind the lists: name, lists of states, which may be empty, numbers.
STEPS = [
    ("fused_adam", 3, (0.1, 0.75, 0.9375, 1e-3, 0.05, False, False, 0.5, 0.5)),
    ("fused_adam", 2, (0.1, 0.75, 0.9375, 1e-3, 0.05, True, True, 0.5, 0.5)),
    ("fused_sgd", 0, (0.1, 0.0, 0.0, 0.05, False, False, False)),
    ("fused_sgd", 1, (0.1, 0.5, 0.25, 0.05, True, True, True)),
    ("fused_sgd", 1, (0.1, 0.5, 0.25, 0.0, False, False, False)),
    ("fused_rmsprop", 1, (0.1, 0.875, 1e-3, 0.05, 0.0, False)),
    ("fused_rmsprop", 2, (0.1, 0.875, 1e-3, 0.05, 0.5, True)),
    ("fused_rmsprop", 3, (0.1, 0.875, 1e-3, 0.05, 0.5, True)),
    ("fused_adagrad", 1, (0.1, 1e-3, 0.05, False)),
    ("fused_adamax", 2, (0.1, 0.75, 0.9375, 1e-3, 0.05, False, 0.5)),
    ("fused_nadam", 2, (0.1, 0.75, 0.9375, 1e-3, 0.05, False, False, 0.5, 0.5, 0.5)),
    ("fused_nadam", 2, (0.1, 0.75, 0.9375, 1e-3, 0.05, True, True, 0.5, 0.5, 0.5)),
    ("fused_radam", 2, (0.1, 0.75, 0.9375, 1e-3, 0.05, False, False, 0.5, 0.5)),
    ("fused_radam", 2, (0.1, 0.75, 0.9375, 1e-3, 0.05, True, False, 0.5, 0.0)),
]
STATES = {"fused_adam": 3, "fused_sgd": 1, "fused_rmsprop": 3, "fused_adagrad": 1, "fused_adamax": 2, "fused_nadam": 2, "fused_radam": 2}
def lists(count, dtype, wide, view=lambda t: t):
    made = [[view(rabbet.randn(s).to(dtype)) for s in SHAPES] for _ in range(2)]
    return made + [[view(rabbet.rand(s).to(wide) + 20) for s in SHAPES] for _ in range(count)]
def judge(name, count, rest, given, close):
    there = [[t.to("cuda") if t.is_contiguous() else t.mT.contiguous().to("cuda").mT for t in each] for each in given]
    empty = [[] for _ in range(STATES[name] - count)]
    rabbet.ops(name)(*given, *empty, *rest)
    rabbet.ops(name)(*there, *empty, *rest)
    for here, gone in zip(itertools.chain(*given), itertools.chain(*there)):
        same(here, gone, close)
"""


def test_every_step_of_every_dtype(compared):
    compared(
        STEPS
        + """
for name, count, rest in STEPS:
    judge(name, count, rest, lists(count, F32, F32), 1e-5)
for dtype, wide, close in ((F64, F64, 1e-12), (F16, F32, 2e-3), (BF16, BF16, 2e-1)):
    judge("fused_adam", 2, STEPS[1][2], lists(2, dtype, wide), close)
judge("fused_sgd", 1, STEPS[4][2], lists(1, F32, F32, lambda t: t.mT.contiguous().mT if t.ndim == 2 else t), 1e-5)
"""
    )


def test_more_tensors_than_a_launch_takes_and_other_strides(compared):
    compared(
        STEPS
        + """
SHAPES = [(n % 5 + 1,) for n in range(150)]
judge("fused_adam", 2, STEPS[1][2], lists(2, F32, F32), 1e-5)
p, g = rabbet.randn(6, 5), rabbet.randn(6, 5)
there = p.to("cuda"), g.to("cuda").mT.contiguous().mT
ops.fused_sgd([p], [g], [], 0.1, 0.0, 0.0, 0.05, False, False, False)
ops.fused_sgd([there[0]], [there[1]], [], 0.1, 0.0, 0.0, 0.05, False, False, False)
same(p, there[0], 1e-6)
wide = rabbet.randn(4, 6); gaps = wide.to("cuda")
ops.foreach_divide([gaps[:, ::2]], rabbet.tensor(2.0, device="cuda"))
want = wide.clone(); want[:, ::2] *= 0.5
same(want, gaps, 1e-7)
"""
    )


def test_norms_factors_and_limits(compared):
    compared("""
ops = rabbet.ops
rabbet.manual_seed(0)
inf = float("inf")
for dtype in (F32, F64, F16, BF16):
    given = [rabbet.randn(s).to(dtype) for s in ((3, 4), (), (0,), (9001,))] + [rabbet.tensor([1.0, float("nan")]).to(dtype)]
    for order in (1, 2, inf):
        both(lambda *ts: ops.foreach_norm(list(ts), order), *given, close=1e-6)
    for f in (lambda ts: ops.foreach_divide(ts, rabbet.tensor(2.7, dtype=F64, device=ts[0].device)), lambda ts: ops.foreach_clamp(ts, -0.75, 0.5)):
        def run(*ts):
            ts = [t.clone() for t in ts]
            f(ts)
            return ts
        both(run, *given, close={F16: 1e-3, BF16: 1e-2}.get(dtype, 1e-6))
x = rabbet.arange(6.0)
assert abs(ops.foreach_norm([x.to("cuda")], 2).item() - np.linalg.norm(np.arange(6.0))) < 1e-9
""")


def test_lists_that_do_not_fit_are_refused(run, simulator):
    code = """
import rabbet
x, y = rabbet.ones(3, device="cuda"), rabbet.ones(4, device="cuda")
for given in (([x], [y]), ([x, x], [x])):
    try: rabbet.ops.fused_sgd(*given, [], 0.1, 0.0, 0.0, 0.0, False, False, False)
    except Exception as error: print(str(error).splitlines()[0])
"""
    lines = run(code, RABBET_CUDA_FALLBACK="error", **simulator).splitlines()
    assert "grads" in lines[0] and "2 tensors" in lines[1], lines
