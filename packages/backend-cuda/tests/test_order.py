"""Order and scans, on the simulator. The CPU backend is the oracle; NumPy for what both could get wrong alike."""


def test_lines_in_shared_memory(compared):
    code = """
for dtype in REAL:
    for shape, dim in (((5,), 0), ((), 0), ((3, 40), 1), ((40, 3), 0), ((2, 1, 200), -1), ((0, 4), 1), ((4, 0), 1)):
        x = some(shape, dtype)
        for descending in (False, True):
            both(lambda x: rabbet.sort(x, dim, descending=descending, stable=True), x)
            both(lambda x: rabbet.argsort(x, dim, descending=descending, stable=True), x)
            if shape and shape[dim] > 3: both(lambda x: rabbet.topk(x, 3, dim, largest=descending), x)
"""
    compared(code)


def test_long_lines_by_radix_and_selection(compared):
    code = """
for dtype in (BF16, F32, F64, rabbet.bool, rabbet.int8, rabbet.int64):
    x = some((2, 4200), dtype)
    both(lambda x: rabbet.sort(x, 1, descending=True, stable=True), x)
    both(lambda x: rabbet.topk(x, 700, 1), x)
    both(lambda x: rabbet.topk(x, 5, 1, largest=False), x)
x = rabbet.tensor(numbers.standard_normal((9001, 2)).astype("float32"))
both(lambda x: rabbet.sort(x, 0), x)
both(lambda x: rabbet.topk(x, 3000, 0), x)
values, places = rabbet.sort(x[:, 0].to("cuda"))
assert (values.cpu().numpy() == np.sort(x[:, 0].numpy())).all()
assert (places.cpu().numpy() == np.argsort(x[:, 0].numpy(), kind="stable")).all()
big = rabbet.tensor(numbers.integers(-(2**62), 2**62, 3000))
both(lambda x: rabbet.sort(x), big)
"""
    compared(code)


def test_what_is_made_of_sorting(compared):
    code = """
x = some((50,), F32, nan=False)
for f in (
    lambda x: rabbet.unique(x, return_inverse=True, return_counts=True), lambda x: rabbet.kthvalue(x, 7),
    lambda x: rabbet.median(x), lambda x: rabbet.mode(x), lambda x: rabbet.cummax(x, 0), lambda x: rabbet.cummin(x, 0),
    lambda x: rabbet.histc(x, 4, -2, 2), lambda x: rabbet.bincount((x * 4).long().abs()),
    lambda x: rabbet.scatter_reduce(x, 0, (x * 4).long().abs(), x, "amax"),
):
    both(f, x)
both(lambda x: rabbet.logcumsumexp(x, 0), x, close=1e-5)
"""
    compared(code)


def test_searchsorted(compared):
    code = """
for dtype in REAL:
    line = rabbet.sort(some((9,), dtype))[0]
    for right in (False, True):
        both(lambda line, x: rabbet.searchsorted(line, x, right=right), line, some((3, 4), dtype))
        both(lambda line, x: rabbet.searchsorted(line[::2], x.t(), right=right), line, some((3, 4), dtype))
    both(lambda line, x: rabbet.searchsorted(line[:0], x), line, some((3,), dtype))
both(lambda line: rabbet.bucketize(line, line), rabbet.arange(5.0))
"""
    compared(code)


def test_few_long_lines_are_selected_and_sorted_by_several_blocks(compared):
    """Values that repeat, so that the k-th has ties in several tiles; as in PyTorch the first of them are taken."""
    code = """
for dtype in (F32, BF16, F64, rabbet.int64, rabbet.uint8):
    x = some((2, 17000), dtype)
    for k in (1, 900):
        for largest in (True, False):
            both(lambda x: rabbet.topk(x, k, 1, largest=largest), x)
    both(lambda x: rabbet.sort(x, 1, stable=True), x)
x = rabbet.randn(40000, 2)
both(lambda x: rabbet.topk(x, 1500, 0), x)
both(lambda x: rabbet.sort(x, 0), x)
"""
    compared(code)
    compared("x = rabbet.tensor(numbers.integers(0, 50, (1, 17000)))\nboth(lambda x: rabbet.topk(x, 600, 1), x)",
             CUSIM_CHECK="all", CUSIM_ORDER="random:2")  # fmt: skip


def test_scans(compared):
    """By threads for short lines, by blocks for longer ones, by several blocks for the longest."""
    code = """
for dtype in ALL:
    for shape, dim in (((5,), 0), ((), 0), ((0, 3), 1), ((3, 0), 1), ((3, 300), 1), ((300, 3), 0), ((2, 3, 70), -1)):
        x = some(shape, dtype)
        close = {F16: 2e-3, BF16: 1e-2}.get(dtype, 1e-5 if dtype.is_floating_point or dtype.is_complex else None)
        both(lambda x: rabbet.ops("cumsum")(x, dim), x, close=close)
        if x.numel() < 500:
            both(lambda x: rabbet.ops("cumprod")(x, dim), x, close=close)
for dtype in (F32, rabbet.int64, rabbet.bool):
    both(lambda x: rabbet.cumsum(x, 0), some((9000,), dtype, nan=False), close=1e-6)
a, b = rabbet.rand(3, 400), rabbet.randn(3, 400)
for dim in (0, 1):
    both(lambda a, b: rabbet.ops("affine_scan")(a, b, dim), a, b, close=1e-6)
a, b = rabbet.rand(9000), rabbet.randn(9000)
both(lambda a, b: rabbet.ops("affine_scan")(a, b, 0), a, b, close=1e-6)
x = numbers.standard_normal(20000)
assert np.allclose(rabbet.tensor(x).to("cuda").cumsum(0).cpu().numpy(), np.cumsum(x), rtol=1e-9, atol=1e-9)
"""
    compared(code)


def test_movement_and_creation(compared):
    code = """
for dtype in ALL:
    x, y = some((3, 5), dtype), some((2, 4, 6), dtype)
    for f in (
        lambda x: rabbet.roll(x, 2), lambda x: rabbet.roll(x, (1, -2), (0, 1)), lambda x: rabbet.roll(x.t(), 7),
        lambda x: rabbet.tril(x, 1), lambda x: rabbet.triu(x.t(), -1), lambda x: rabbet.diagonal_scatter(x, x[0, :3], 1),
        lambda x: rabbet.cat([x, x, x, x[:1]]), lambda x: rabbet.cat([x, x[:, :1].contiguous(), x[:, :0].contiguous(), x], 1),
        lambda x: rabbet.cat([x] * 40, 1), lambda x: rabbet.flip(x, (0, 1)),
    ):
        both(f, x)
    both(rabbet.tril, y)
    both(lambda y: rabbet.cat([y, y.transpose(0, 1).contiguous().transpose(0, 1), y], -1), y)
    def made(f): both(lambda x: f(dtype=dtype, device=x.device), x)
    made(lambda **given: rabbet.eye(3, 5, **given))
    made(lambda **given: rabbet.full((2, 3), 1 if dtype == rabbet.bool else 3, **given))
    if dtype == rabbet.bool: continue
    for n in (0, 1, 7): made(lambda **given: rabbet.linspace(0, 5, n, **given))
    if dtype.is_complex: continue
    made(lambda **given: rabbet.arange(2, 9, 2, **given))
    made(lambda **given: rabbet.arange(5, 0, -1.5, **given))
z = some((2, 3), rabbet.complex64) * 1j
for name in ("real", "imag"): both(rabbet.ops(name), z)
both(rabbet.complex, rabbet.rand(3), rabbet.rand(2, 3))
both(lambda z: rabbet.full((3,), 1 + 2j, device=z.device), z)
"""
    compared(code)
