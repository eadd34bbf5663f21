"""Elements at indices, on the simulator: the CPU backend is the oracle, to the bit where sums are exact."""

import pytest


def test_indices_along_a_dimension(compared):
    code = """
at = rabbet.tensor([[0, 1, 2], [3, 3, 0]])
for dtype in ALL:
    x, src = some((4, 3), dtype, nan=False), some((2, 5), dtype, nan=False)
    both(lambda x, at: rabbet.gather(x, 0, at), x, at)
    both(lambda x, at: rabbet.gather(x.t(), 1, at.t()), x, at)
    both(lambda x, at, src: rabbet.scatter_add(x, 0, at, src), x, at, src)
    both(lambda x, src: rabbet.scatter(x, 0, rabbet.tensor([[0, 1, 2]]).to(x.device), src), x, src)
    both(lambda x, at: rabbet.scatter(x, 0, at, 2), x, at)
    both(lambda x, at: rabbet.index_select(x, 0, at[1]), x, at)
    both(lambda x, at: rabbet.index_select(x.t(), 1, at[1]), x, at)
    both(lambda x, at: rabbet.index_add(x, 0, at[1], x[:3]), x, at)
    both(lambda x, at: rabbet.index_add(x, 0, at[1], x[:3], alpha=1 if dtype == rabbet.bool else 3), x, at)
for x, at in ((some((), F32), rabbet.tensor(0)), (some((0, 3), F32), rabbet.zeros((0, 3), dtype=rabbet.int64))):
    both(lambda x, at: rabbet.gather(x, 0, at), x, at)
    both(lambda x, at: rabbet.scatter_add(x, 0, at, x), x, at)
both(lambda x: x.index_add_(0, rabbet.tensor([2, 2], dtype=rabbet.int32).to(x.device), x[:2] * 2), some((4, 3), F32))
# A thousand terms at one place: threads meet.
for dtype in (F32, F16, rabbet.int8, rabbet.bool):
    ones = rabbet.ones(1000, dtype=dtype)
    both(lambda ones: rabbet.scatter_add(rabbet.zeros_like(ones[:2]), 0, rabbet.zeros(1000, dtype=rabbet.int64).to(ones.device), ones), ones)
"""
    compared(code)


def test_advanced_indexing(compared):
    code = """
rows, columns = rabbet.tensor([-1, 0, 2]), rabbet.tensor([[1], [-3]])
def at(t, x): return t.to(x.device)
for dtype in ALL:
    x = some((4, 3, 5), dtype, nan=False)
    for f in (
        lambda x: x[at(rows, x)], lambda x: x[:, at(rows, x)], lambda x: x[..., at(rows, x)],
        lambda x: x[at(rows, x), at(columns, x)], lambda x: x[at(rows, x), :, at(columns, x)],
        lambda x: x[:, at(columns, x), at(rows, x)], lambda x: x[x != 0], lambda x: x.transpose(0, 2)[at(rows, x)],
        lambda x: x[at(rows[:0], x)], lambda x: x[at(rows, x), at(rows, x), at(rows, x)],
    ):
        both(f, x)
    def put(x, accumulate=False, where=None, values=None):
        y = x.clone()
        return y.index_put_(where, values, accumulate)
    both(lambda x: put(x, False, (at(rows, x),), x[:3] * 2), x)
    both(lambda x: put(x, True, (at(rows, x), at(columns, x)), x[:1, :1]), x)
    both(lambda x: put(x, True, (at(rabbet.tensor([1, 1, 1]), x),), x[:3]), x)
    def assign(x):
        y = x.clone()
        y[at(rows, x), 1] = 1
        y[:, x[0, :, 0] != 0] = 0
        return y
    both(assign, x)
"""
    compared(code)


def test_rows_of_tables(compared):
    """Widths that fit into 16, 8, 4, 2 and 1 bytes, and tables with gaps."""
    code = """
at = rabbet.tensor([[1, 0], [4, 4]])
for dtype in ALL:
    for width in (1, 3, 4, 600):
        if width == 600 and dtype not in (F32, BF16): continue
        table = some((5, width), dtype)
        both(lambda t, at: rabbet.nn.functional.embedding(at, t), table, at)
        both(lambda t, at: t[at], table, at.to(rabbet.int32).long())
        both(lambda t, at: rabbet.index_select(t, 0, at[0].int()), table, at)
    both(lambda t, at: rabbet.nn.functional.embedding(at, t[:, 1:4]), some((5, 5), dtype), at)
grads = []
for device in ("cpu", "cuda"):
    table = rabbet.arange(15.0).reshape(5, 3).to(device).requires_grad_()
    out = rabbet.nn.functional.embedding(at.to(device), table, padding_idx=1)
    (out * rabbet.arange(12.0).reshape(2, 2, 3).to(device)).sum().backward()
    grads.append(table.grad)
same(*grads)
"""
    compared(code)


OUT_OF_RANGE = """
def refused(f, *words):
    try:
        f()
        rabbet.cuda.synchronize()
    except IndexError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"{words}: no error")
    assert (x.cpu() == kept).all().item()  # memory is what it was
    rabbet.cuda.synchronize()  # raised once
kept = rabbet.arange(12.0).reshape(4, 3)
x = kept.to("cuda")
def at(*values): return rabbet.tensor(values).to("cuda")
refused(lambda: rabbet.index_select(x, 0, at(1, 4)), "index_select", "index 4", "dimension 0", "size 4")
refused(lambda: rabbet.index_select(x, 1, at(-1)), "index_select", "index -1", "dimension 1", "size 3")
refused(lambda: rabbet.gather(x, 0, at(9, 9, 10**12).reshape(1, 3)), "gather", "size 4")
refused(lambda: rabbet.scatter(x, 0, at(4, 0, 0).reshape(1, 3), x), "scatter", "index 4")
refused(lambda: rabbet.scatter_add(x, 1, at(3).reshape(1, 1), x), "scatter_add", "index 3", "size 3")
refused(lambda: rabbet.index_add(x, 0, at(-5), x[:1]), "index_add", "index -5")
refused(lambda: x[at(-5)], "index", "index -5", "size 4")
refused(lambda: x[at(0), at(3)], "index", "index 3", "dimension 1")
refused(lambda: x.clone().index_put_((at(4),), x[:1]), "index_put", "index 4")
refused(lambda: rabbet.nn.functional.embedding(at(7), x), "embedding", "index out of range in self", "index 7")
"""


def test_an_index_out_of_range_is_an_error_of_the_next_wait(compared):
    compared(OUT_OF_RANGE)


def test_copies_to_the_host_and_events_report_it_too(compared):
    code = """
x = rabbet.zeros(4, device="cuda")
def bad(): return x[rabbet.tensor([4]).to("cuda")]
for wait in (lambda y, e: y.cpu(), lambda y, e: y.item(), lambda y, e: e.synchronize(),
             lambda y, e: rabbet.cuda.current_stream().synchronize()):
    y, e = bad(), rabbet.cuda.Event()
    e.record()
    try:
        wait(y, e)
    except IndexError: pass
    else: raise AssertionError("no error")
"""
    compared(code)


ADDING = [
    "lambda x, at: rabbet.scatter_add(rabbet.zeros({size}, dtype=x.dtype, device=x.device), 0, at, x)",
    "lambda x, at: rabbet.zeros({size}, dtype=x.dtype, device=x.device).index_add_(0, at, x)",
    "lambda x, at: rabbet.zeros({size}, dtype=x.dtype, device=x.device).index_add_(0, at, x * 0.5, alpha=2)",
    "lambda x, at: rabbet.zeros({size}, dtype=x.dtype, device=x.device).index_put_((at,), x, True)",
    "lambda x, at: rabbet.ops('embedding_backward')(x[:, None], at, [{size}, 1], -1)[:, 0]",
]


@pytest.mark.parametrize("size", [3, 9000])
def test_sums_of_16_bit_floats_are_rounded_once(compared, size):
    """In a float32 copy of a small result, or sorted into a large one. Begins are numbers of the result."""
    code = f"""
at = rabbet.arange(1000) % 3 // 2 * {size - 1}
for dtype in (F16, BF16):
    x = rabbet.full((1000,), 1 + 2**-7, dtype=dtype)   # their sums are exact in float32
    for f in [{", ".join(text.format(size=size) for text in ADDING)}]:
        same(f(x.float(), at).to(dtype), f(x.to("cuda"), at.to("cuda")))
    begin = rabbet.full(({size},), 256.0, dtype=dtype).to("cuda")
    same(rabbet.full((1,), 256 + 667 * (1 + 2**-7)).to(dtype), begin.scatter_add(0, at.to("cuda"), x.to("cuda"))[:1])
x, at = rabbet.ones(100, dtype=BF16, device="cuda"), rabbet.zeros(100, dtype=rabbet.int64, device="cuda")
big = rabbet.zeros(1 << 20, dtype=BF16, device="cuda")
rabbet.cuda.reset_peak_memory_stats()
before = rabbet.cuda.memory_allocated()
big.index_add_(0, at, x)
assert rabbet.cuda.max_memory_allocated() - before < 1 << 20, "a copy of the large result"
assert big[0].item() == 100
"""
    compared(code)


@pytest.mark.parametrize("order", ["random:1", "random:2"])
def test_elements_are_written_whole_where_indices_meet(compared, order):
    """Real and imaginary part are of one source, though threads take turns."""
    code = """
at = rabbet.zeros(64, dtype=rabbet.int64, device="cuda")
part = rabbet.arange(64.0, dtype=F64).to("cuda")
for dtype in (rabbet.complex64, rabbet.complex128):
    x = rabbet.complex(part, part).to(dtype)
    for _ in range(4):
        for made in (rabbet.zeros_like(x).index_put_((at,), x), rabbet.zeros_like(x).scatter_(0, at, x)):
            assert made[0].real.item() == made[0].imag.item(), made[0]
        assert rabbet.zeros_like(x).index_put_((at,), rabbet.tensor(1 + 2j, dtype=dtype, device="cuda"))[0].item() == 1 + 2j
"""
    compared(code, CUSIM_ORDER=order)


def test_deterministic_sums_are_those_of_the_cpu_to_the_bit(compared):
    """Terms that no two orders round alike: only the CPU's order gives its bits. Those of 16 bits are summed in float32."""
    code = """
rabbet.use_deterministic_algorithms(True)
at = rabbet.tensor(numbers.integers(0, 3, 600))
def both(f, x, at):
    wide = x.float() if x.dtype in (F16, BF16) else x
    same(f(wide, at).to(x.dtype), f(x.to("cuda"), at.to("cuda")))
for dtype in (F16, BF16, F32, F64, rabbet.complex64):
    x = rabbet.tensor(numbers.standard_normal((600, 2))).to(dtype)
    for f in (
        lambda x, at: rabbet.scatter_add(x[:4], 0, at[:, None].expand(600, 2), x),
        lambda x, at: rabbet.index_add(x[:4], 0, at, x, alpha=0.5),
        lambda x, at: rabbet.index_add(x[:4].t(), 1, at, x.t()),
        lambda x, at: x[:4].clone().index_put_((at,), x, True),
        lambda x, at: x[:4].clone().index_put_((at, at * 0), x[:, 0], True),
        lambda x, at: rabbet.ops("embedding_backward")(x, at, [4, 2], 1),
        lambda x, at: rabbet.ops("embedding_backward")(x, at, [4, 2], -1),
    ):
        both(f, x, at)
def peak():
    rabbet.cuda.reset_peak_memory_stats()
    rabbet.scatter_add(x, 0, at, x)
    return rabbet.cuda.max_memory_allocated()
x, at = rabbet.rand(50000, device="cuda"), rabbet.zeros(50000, dtype=rabbet.int64, device="cuda")
sorting = peak()
rabbet.use_deterministic_algorithms(False)
assert sorting > peak() + 50000 * 16  # keys and places, twice
"""
    compared(code)


def test_nonzero_and_masks(compared):
    code = """
for dtype in ALL:
    for shape in ((), (0, 3), (3, 5), (2, 1, 4), (5000,)):
        x = some(shape, dtype)
        both(rabbet.nonzero, x)
        both(lambda x: rabbet.count_nonzero(x), x)
    both(lambda x: rabbet.nonzero(x.t()), some((3, 5), dtype))
    both(lambda x: rabbet.masked_select(x, x == x), some((3, 5), dtype))
both(lambda x: rabbet.nonzero(x)[:, 0], (rabbet.arange(9000) % 7 == 0))
"""
    compared(code)


def test_numbers_and_indices_of_the_cpu_beside_tensors_of_the_device(simulator, run):
    run(
        """
import pytest, rabbet
x, i, two = rabbet.arange(6.0), rabbet.tensor([0, 2]), rabbet.tensor(2.0)
y, j = x.to("cuda"), i.to("cuda")
CALLS = [
    lambda x, i: x.index_fill(0, i, two), lambda x, i: x.index_fill_(0, i, two), lambda x, i: x.fill_(two),
    lambda x, i: x.scatter(0, i, value=two), lambda x, i: x.scatter_(0, i, value=two, reduce="add"),
    lambda x, i: x.masked_fill(x > 3, two), lambda x, i: x.index_put((i,), two), lambda x, i: x.clamp(min=two),
    lambda x, i: rabbet.where(x > 3, x, two), lambda x, i: x.index_add(0, i, x[:2], alpha=two),
    lambda x, i: x.lerp(x + 1, two), lambda x, i: x.__setitem__(i, two) or x, lambda x, i: x.add(x, alpha=two),
    lambda x, i: x.addcmul(x, x, value=two), lambda x, i: rabbet.full_like(x, two), lambda x, i: x * two,
]
for n, f in enumerate(CALLS):
    here, there = f(x.clone(), i), f(y.clone(), j)
    assert there.is_cuda and rabbet.equal(here, there.cpu()), n
assert rabbet.equal(y[i].cpu(), x[i]) and rabbet.equal(y.index_put((i,), j.float(), True).cpu(), x.index_put((i,), i.float(), True))
for wrong in (lambda: y.index_put((i,), rabbet.ones(2)), lambda: x[j], lambda: y.index_fill(0, i, two),
              lambda: y.scatter(0, i, y), lambda: y.gather(0, i), lambda: y.scatter(0, j, two)):
    with pytest.raises(RuntimeError):
        wrong()
assert y.clone().copy_(x, True).is_cuda and rabbet.equal(x.clone().copy_(y, False), x)
assert y.cuda("cuda", True).is_cuda and y.cuda(None, True).is_cuda and x.cuda(0, non_blocking=True).is_cuda
assert y.to("cuda", rabbet.float64, True, True).dtype == rabbet.float64 and y.to(x, True, True).device.type == "cpu"
""",
        **simulator,
    )
