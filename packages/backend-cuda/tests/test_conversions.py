"""Floats that become integers, on the simulator, which reports conversions that a device makes in another way."""

VALUES = """
VALUES = [-1.5, -1.0, -0.75, 0.5, 1.5, -2.0, 255.5, 300.0, -300.25, 65535.0, -65537.0, 70000.0]
WIDE = [*VALUES, -3e9, 4294967295.0, 2.0**31, -(2.0**40), 2.0**52 + 2]
UNSIGNED = [rabbet.uint8, rabbet.uint16, rabbet.uint32, rabbet.uint64]
def wrapped(values, dtype):
    \"\"\"By way of int64, as C++ does it on x86-64.\"\"\"
    return np.asarray(values, np.float64).astype(np.int64).astype(dtype.name).tolist()
"""


def test_floats_become_unsigned_integers_by_way_of_int64(compared):
    code = """
for source in (F16, BF16, F32, F64):
    given = [v for v in (WIDE if source == F64 else VALUES) if source != F16 or abs(v) < 65504]
    x = rabbet.tensor(given, dtype=source)
    values, x = x.double().tolist(), x.to("cuda")
    for dtype in UNSIGNED:
        expected = wrapped(values, dtype)
        out = rabbet.empty(len(expected), dtype=dtype, device="cuda")
        assert x.to(dtype).tolist() == expected, (source, dtype, x.to(dtype).tolist(), expected)
        assert x.reshape(-1, 1).expand(-1, 3).to(dtype)[:, 2].tolist() == expected
        assert out.copy_(x).tolist() == expected
        assert rabbet.complex(x.double(), x.double()).to(dtype).tolist() == expected
big = [2.0**63, 2.0**63 + 2.0**40, 2.0**64 - 2.0**11, 2.0**63 - 2.0**10, -1.0]
assert rabbet.tensor(big, dtype=F64).to("cuda").to(rabbet.uint64).tolist() == [int(v) % 2**64 for v in big]
"""
    compared(VALUES + code)


def test_numbers_become_unsigned_integers_likewise(compared):
    code = """
for dtype in UNSIGNED:  # numbers that do not fit are refused
    x = rabbet.zeros(2, dtype=dtype)
    for f in (lambda x: rabbet.full_like(x, 2.5), lambda x: x.clone().fill_(254.75), lambda x: x.add(2.5 > 2), lambda x: x.clamp(0.5, 7.5)):
        both(f, x)
    both(lambda x: rabbet.round(x, decimals=-1), rabbet.tensor([254, 3, 148, 255], dtype=dtype))
    both(lambda x: rabbet.round(x, decimals=-2), rabbet.tensor([254, 3, 148, 255], dtype=dtype))
    both(lambda x: rabbet.empty(5, dtype=dtype, device=x.device).copy_(x - 3), rabbet.arange(5.0))
"""
    compared(VALUES + code)
