"""Convolutions on the simulator, against the CPU's kernels and sums by NumPy."""

CONV = """
ops = rabbet.ops
rabbet.manual_seed(0)
rabbet.backends.cudnn.allow_tf32 = False
last = lambda t: t.to(memory_format=rabbet.channels_last) if t.ndim == 4 else t
close = {F16: 1e-2, BF16: 1e-1, F32: 1e-4, F64: 1e-10, rabbet.complex64: 1e-4}
# input, weight, stride, padding, dilation, groups
CASES = [((2, 2, 5, 4), (3, 2, 3, 2), [2, 1], [1, 0], [1], 1), ((1, 4, 6, 6), (4, 2, 2, 2), [1], [1], [2], 2), ((2, 3, 9), (5, 3, 3), [2], [1], [1], 1),
         ((2, 6, 7, 5), (12, 1, 3, 3), [1], [1], [1], 6), ((1, 2, 3, 4, 5), (3, 2, 2, 3, 1), [1, 2, 1], [1, 0, 2], [1], 1), ((3, 20, 4, 4), (70, 20, 1, 1), [1], [0], [1], 1),
         ((1, 2, 4), (2, 2, 9), [1], [5], [1], 1), ((1, 10, 5, 5), (10, 5, 3, 3), [2], [1], [1], 2)]
def judge(case, dtype, put=lambda t: t):
    shape, kernel, *how = case
    x, w, b = (rabbet.randn(s).to(dtype) for s in (shape, kernel, kernel[:1]))
    both(lambda x, w, b: ops.convolution(put(x), put(w), b, *how), x, w, b, close=close[dtype] * 3)
    g = rabbet.randn(ops.convolution(x, w, None, *how).shape).to(dtype)
    both(lambda g, w: ops.convolution_dx(put(g), w, list(shape), *how), g, w, close=close[dtype] * 3)
    both(lambda x, g: ops.convolution_dw(x, put(g), list(kernel), *how), x, g, close=close[dtype] * 10)
"""


def test_convolutions_in_all_directions_and_both_memory_formats(compared):
    compared(
        CONV
        + """
for case in CASES:
    judge(case, F32)
    if len(case[0]) == 4: judge(case, F32, last)
"""
    )


def test_convolutions_of_every_dtype(compared):
    compared(
        CONV
        + """
for dtype in (F64, F16, BF16, rabbet.complex64):
    for case in (CASES[0], CASES[3]): judge(case, dtype)
"""
    )


def test_sums_over_many_positions_are_cut(compared):
    compared(
        CONV
        + """
judge(((2, 1, 40, 40), (2, 1, 3, 3), [1], [1], [1], 1), F32)
x = np.random.default_rng(0).standard_normal((1, 1, 6, 6)); w = np.random.default_rng(1).standard_normal((1, 1, 3, 3))
want = np.array([[(x[0, 0, i:i + 3, j:j + 3] * w[0, 0]).sum() for j in range(4)] for i in range(4)])
got = ops.convolution(rabbet.tensor(x, device="cuda"), rabbet.tensor(w, device="cuda"))
assert np.allclose(np.asarray(got.tolist())[0, 0], want)
"""
    )
