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
