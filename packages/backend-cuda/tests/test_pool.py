"""Pooling on the simulator, against the CPU's kernels and NumPy."""

POOL = """
ops = rabbet.ops
rabbet.manual_seed(0)
last = lambda t: t.to(memory_format=rabbet.channels_last) if t.ndim == 4 else t
close = {F16: 5e-3, BF16: 3e-2, F32: 1e-5, F64: 1e-12}
"""


def test_maximum_over_windows_and_its_derivative(compared):
    compared(
        POOL
        + """
CASES = [((2, 2, 7, 6), [2, 3], [2, 1], [1, 0], [1], False), ((2, 3, 5, 4, 4), [2, 2, 2], [], [1], [1], False), ((1, 2, 7), [2], [3], [0], [1], True),
         ((2, 9), [3], [1], [1], [2], False), ((1, 3, 9, 9), [3], [2], [1], [1], True), ((40, 3, 3), [2, 2], [1], [0], [1], False)]
for shape, kernel, stride, padding, dilation, ceil in CASES:
    if len(shape) == 4: kernel = kernel * 2 if len(kernel) == 1 else kernel
    for dtype in (F32, F64, F16, BF16, rabbet.int64, rabbet.uint8) if shape[1] == 2 else (F32,):
        x = rabbet.randint(0, 9, shape).to(dtype)  # ties
        for put in (lambda t: t, last):
            f = lambda x: ops.max_pool_with_indices(put(x), kernel, stride, padding, dilation, ceil)
            both(f, x)
            if not dtype.is_floating_point: continue
            values, at = f(x)
            g = rabbet.randn(values.shape).to(dtype)
            both(lambda g, at: ops.max_pool_dx(put(g), put(at), list(shape), len(kernel)), g, at, close=close[dtype])
    if len(kernel) <= 2: both(lambda x: ops.adaptive_max_pool_with_indices(x.float(), [2, 3][: len(kernel)]), x)
x = rabbet.tensor([[1.0, float("nan"), 0.0, float("nan"), -float("inf"), 2.0]])
both(lambda x: ops.max_pool_with_indices(x, [3], [1], [1]), x)
"""
    )


def test_mean_over_windows_and_its_derivative(compared):
    compared(
        POOL
        + """
CASES = [((2, 2, 7, 6), [2, 3], [2, 1], [1, 0], False, True, None), ((2, 3, 5, 4, 4), [2, 2, 2], [], [1], False, False, None), ((1, 2, 7), [2], [3], [1], True, False, None),
         ((2, 9), [3], [1], [1], False, True, 2), ((1, 3, 9, 9), [3, 3], [2], [1], True, True, None)]
for shape, *window in CASES:
    for dtype in (F32, F64, F16, BF16) if shape[1] == 2 else (F32,):
        x = rabbet.randn(shape).to(dtype)
        for put in (lambda t: t, last):
            f = lambda x: ops.avg_pool(put(x), *window)
            both(f, x, close=close[dtype])
            g = rabbet.randn(f(x).shape).to(dtype)
            both(lambda g: ops.avg_pool_dx(put(g), list(shape), *window), g, close=close[dtype])
for shape, size in (((1, 2, 5, 7), [2, 3]), ((2, 7), [3]), ((2, 3, 4, 5), [6, 1]), ((1, 2, 3, 4, 5), [2, 2, 2])):
    x = rabbet.randn(shape)
    both(lambda x: ops.adaptive_avg_pool(x, size), x, close=1e-5)
    g = rabbet.randn(shape[: len(shape) - len(size)] + tuple(size))
    both(lambda g: ops.adaptive_avg_pool_dx(g, list(shape), len(size)), g, close=1e-5)
x = np.arange(16.0).reshape(1, 1, 4, 4)
got = ops.avg_pool(rabbet.tensor(x, device="cuda"), [2, 2])
assert np.allclose(np.asarray(got.tolist()), x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5)))
"""
    )
