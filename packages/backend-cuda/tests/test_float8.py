"""Floats of 8 bits and scaled products on the simulator, against the CPU."""

EVERY = """
F8, F5 = rabbet.float8_e4m3fn, rabbet.float8_e5m2
codes = rabbet.tensor(np.arange(256, dtype=np.uint8))
def codes_of(t): return t.cpu().contiguous().view(rabbet.uint8)
bits = numbers.integers(0, 2**32, 5000, dtype=np.uint32).view(np.float32)
middles = [v for dtype in (F8, F5) for v in ((codes[:126].view(dtype).float() + codes[1:127].view(dtype).float()) / 2).tolist()]
special = [0.0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 465, 480, 57344, 61439, 61440, 65536, 1e30, 1e-45, 2**-10, 2**-17]
values = rabbet.tensor(np.concatenate([bits, np.asarray(middles + special, np.float32)]))
"""


def test_every_code_and_every_rounding_is_the_cpus(compared):
    code = """
for dtype in (F8, F5):
    both(lambda x: x.float(), codes.view(dtype))
    for wide in REAL + [rabbet.complex64]:
        x = values[::7].nan_to_num(0, 9, -9).clamp(-100, 100).to(wide) if wide in WHOLE else values.to(wide)
        there = x.to("cuda").to(dtype)
        assert there.dtype == dtype and there.device.type == "cuda"
        got, want = codes_of(there), codes_of(x.to(dtype))
        nan = x.isnan()
        assert (got == want)[~nan].all() and (got[nan] & 127 == 127).all(), (dtype, wide)
        small = codes[:120].view(dtype)
        assert rabbet.equal(small.to("cuda").to(wide).cpu(), small.to(wide)), (dtype, wide)
"""
    compared(EVERY + code)


def test_strided_tensors_and_writes_into_them(compared):
    code = """
x = values[:60].nan_to_num(1, 2, 3).clamp(-400, 400).view(6, 10)
for dtype in (F8, F5):
    there = x.to("cuda")
    assert rabbet.equal(codes_of(there.t().to(dtype)), codes_of(x.t().to(dtype)))
    assert rabbet.equal(codes_of(there[:, ::3].to(dtype)), codes_of(x[:, ::3].to(dtype)))
    target, wanted = rabbet.zeros(6, 20, device="cuda").to(dtype), rabbet.zeros(6, 20).to(dtype)
    target[:, ::2].copy_(there); wanted[:, ::2].copy_(x)
    assert rabbet.equal(codes_of(target), codes_of(wanted))
    back = rabbet.zeros(6, 20, device="cuda"); back.copy_(target)
    assert rabbet.equal(back.cpu(), wanted.float())
    other = F5 if dtype is F8 else F8
    assert rabbet.equal(codes_of(target.to(other)), codes_of(wanted.to(other)))
    assert rabbet.equal(codes_of(target + target), codes_of(wanted + wanted))
    assert rabbet.zeros(3, device="cuda", dtype=dtype).cpu().tolist() == [0, 0, 0]
    assert rabbet.empty(0, device="cuda").to(dtype).shape == (0,)
"""
    compared(EVERY + code)


PRODUCTS = """
F8, F5 = rabbet.float8_e4m3fn, rabbet.float8_e5m2
ONE = rabbet.tensor(1.0)
def eight(m, k, dtype): return rabbet.tensor(numbers.standard_normal((m, k)).astype(np.float32)).to(dtype)
def scales(rows, m, n):
    shapes = ((m, 1), (1, n)) if rows else ((), (1,))
    return [rabbet.tensor(numbers.uniform(0.5, 2, shape).astype(np.float32)) for shape in shapes]
def all_products(close):
    for first, second in ((F8, F8), (F8, F5), (F5, F8), (F5, F5)):
        for m, k, n in ((16, 32, 48), (32, 16, 16), (5, 7, 3), (1, 16, 16)):
            a, bt, b = eight(m, k, first), eight(n, k, second).t(), eight(k, n, second)
            bias = rabbet.tensor(numbers.standard_normal(n).astype(np.float32))
            for right in (bt, b):
                for rows in (False, True):
                    for to in (F32, BF16, F16, F64, F8, F5):
                        for added in (None, bias, bias.bfloat16(), bias.half()):
                            f = lambda a, b, x, y, *bias: rabbet._scaled_mm(a, b, x, y, *bias, out_dtype=to)
                            given = [a, right, *scales(rows, m, n), *([] if added is None else [added])]
                            here, there = f(*given), f(*(t.to("cuda") for t in given))
                            assert there.dtype == to
                            rounding = {F32: close, F64: close, F16: 2e-3, BF16: 1e-2, F8: 0.15, F5: 0.3}[to]
                            same(here.float(), there.float(), rounding)
"""


def test_scaled_products_by_the_library_and_without_it(compared):
    compared(PRODUCTS + "all_products(1e-4)")
    compared(PRODUCTS + "all_products(1e-4)", RABBET_CUDA_CUBLASLT="")


def test_the_library_multiplies_floats_of_8_bits_where_columns_lie_together(compared):
    code = """
import ctypes, os
launched = ctypes.CDLL(os.environ["RABBET_CUDA_CUBLASLT"])
a, b, one = eight(16, 32, F8).to("cuda"), eight(48, 32, F8).to("cuda").t(), ONE.to("cuda")
rabbet._scaled_mm(a, b, one, one, out_dtype=BF16)  # no kernel is needed after this but the library's
rabbet.cuda.synchronize()
before = rabbet.cuda.memory_stats()["allocation.all.allocated"]
rabbet._scaled_mm(a, b, one, one, out_dtype=BF16)
assert rabbet.cuda.memory_stats()["allocation.all.allocated"] == before + 1  # the result's alone
rabbet._scaled_mm(a, b.contiguous(), one, one, out_dtype=BF16)
assert rabbet.cuda.memory_stats()["allocation.all.allocated"] > before + 2
"""
    compared(PRODUCTS + code)


def test_integers_of_8_bits(compared):
    code = """
for m, k, n in ((17, 32, 24), (32, 64, 16), (5, 7, 3), (1, 8, 8), (8, 8, 1), (0, 4, 2), (3, 0, 2), (4, 3000, 4)):
    a, bt = (rabbet.tensor(numbers.integers(-128, 128, shape).astype(np.int8)) for shape in ((m, k), (n, k)))
    for right in (bt.t(), bt.t().contiguous()):
        both(rabbet._int_mm, a, right)
    both(lambda a, b: rabbet._int_mm(a, b), a, bt.t().to(rabbet.uint8))
    out = rabbet.zeros(n, m, dtype=rabbet.int32, device="cuda").t()
    rabbet._int_mm(a.to("cuda"), bt.t().to("cuda"), out=out)
    same(rabbet._int_mm(a, bt.t()), out)
"""
    compared(code)
    compared(code, RABBET_CUDA_CUBLASLT="")
