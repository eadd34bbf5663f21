"""Normalisations and their derivatives on the simulator, against the CPU's kernels and NumPy."""

CASES = """
ops = rabbet.ops
rabbet.manual_seed(0)
close = {F16: 5e-3, BF16: 3e-2, F32: 1e-4, F64: 1e-9}
last = lambda t: t.to(memory_format=rabbet.channels_last)
wide = lambda t: t if t.dtype == F64 else t.float()
"""


def test_layer_and_rms_norm(compared):
    compared(
        CASES
        + """
for dtype in (F32, F64, F16, BF16):
    for shape, over in (((3, 5), [5]), ((2, 3, 40), [3, 40]), ((2, 300), [300]), ((0, 5), [5]), ((40, 2), [2])):
        x, g = rabbet.randn(shape).to(dtype), rabbet.randn(shape).to(dtype)
        w, b = rabbet.randn(over), rabbet.randn(over).to(dtype)
        both(lambda x, w, b: ops.layer_norm(x, over, w, b, 1e-5), x, w, b, close=close[dtype])
        both(lambda x: ops.layer_norm(x, over, None, None, 0.1), x, close=close[dtype])
        both(lambda x, w: ops.rms_norm(x, over, w), x, w, close=close[dtype])
        both(lambda g, x, w: ops.layer_norm_backward(g, x, over, w, 1e-5), g, x, w, close=4 * close[dtype])
        both(lambda g, x: ops.rms_norm_backward(g, x, over, None, 1e-5), g, x, close=4 * close[dtype])
x = rabbet.randn(5, 3, 4).permute(2, 0, 1)
both(lambda x: ops.layer_norm(x, [5, 3], None, None, 1e-5), x, close=1e-5)
both(lambda x: ops.layer_norm_backward(x, x, [5, 3], None, 1e-5), x, close=1e-5)
far = np.random.default_rng(0).standard_normal((4, 50)) + 1000
want = (far - far.mean(1, keepdims=True)) / np.sqrt(far.var(1, keepdims=True) + 1e-5)
got = ops.layer_norm(rabbet.tensor(far).float().to("cuda"), [50], None, None, 1e-5)
assert np.abs(np.asarray(got.tolist()) - want).max() < 1e-3
"""
    )


def test_group_norm_in_both_memory_formats(compared):
    compared(
        CASES
        + """
for dtype in (F32, F16):
    for shape, groups in (((2, 4, 3, 5), 2), ((2, 6), 3), ((3, 4, 7), 4), ((2, 8, 6, 6), 1)):
        x, g, w, b = (rabbet.randn(s).to(dtype) for s in (shape, shape, shape[1:2], shape[1:2]))
        for put in (lambda t: t, last) if len(shape) == 4 else (lambda t: t,):
            both(lambda x, w, b: ops.group_norm(put(x), groups, w, b, 1e-5), x, w, b, close=close[dtype])
            both(lambda g, x, w: ops.group_norm_backward(put(g), put(x), groups, w, 1e-5), g, x, w, close=8 * close[dtype])
"""
    )


def test_batch_norm_in_both_memory_formats(compared):
    compared(
        CASES
        + """
for dtype in (F32, F64, BF16):
    for shape in ((3, 2, 4, 4), (40, 5), (3, 2, 7), (2, 1, 65, 65)):
        if dtype != F32 and shape[-1] == 65: continue
        x, g = rabbet.randn(shape).to(dtype), rabbet.randn(shape).to(dtype)
        w, b, m, v = (rabbet.rand(shape[1]) + 0.5 for _ in range(4))
        for put in (lambda t: t, last) if len(shape) == 4 else (lambda t: t,):
            both(lambda x, w, b: ops.batch_norm_train(put(x), w, b, 1e-5), x, w, b, close=close[dtype])
            both(lambda x, m, v, w: ops.batch_norm_eval(put(x), m, v, w, None, 1e-5), x, m, v, w, close=close[dtype])
            for train in (True, False):
                both(lambda g, x, m, v, w: ops.batch_norm_backward(put(g), put(x), wide(x).mean([0, *range(2, x.ndim)]) if train else m,
                     wide(x).var([0, *range(2, x.ndim)], correction=0) if train else v, w, 1e-5, train), g, x, m, v, w, close=20 * close[dtype])
"""
    )
