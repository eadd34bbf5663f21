"""The simulator's cuFFT: against NumPy, and what it refuses."""

from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
FFT = (
    f"import sys; sys.path.insert(0, {HERE!r})\nfrom drive import *\nstart()\n"
    + """
fft = ctypes.CDLL(os.environ["RABBET_CUDA_CUFFT"])
R32, R64, C32, C64 = 0, 1, 4, 5
BAD_PLAN, BAD_TYPE, BAD_VALUE, FAILED, BAD_SIZE, BAD_DEVICE, NO_ROOM = 1, 3, 4, 6, 8, 11, 13
def create():
    plan = c_int(); ok(fft.cufftCreate(byref(plan)))
    ok(fft.cufftSetAutoAllocation(plan, 0))
    return plan
def make(plan, shape, batch, types, embed=None):
    n, size = (ctypes.c_longlong * len(shape))(*shape), c_size_t()
    long = ctypes.c_longlong
    status = fft.cufftXtMakePlanMany(plan, len(shape), n, embed, long(1), long(1), types[0], None, long(1), long(1), types[1], long(batch), byref(size), types[2])
    return status, size.value
def planned(shape, batch, types):
    plan = create()
    status, size = make(plan, shape, batch, types); ok(status)
    if size: ok(fft.cufftSetWorkArea(plan, allocate(size)))
    return plan
rng = np.random.default_rng(0)
def numbers(*shape): return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
"""
)


def test_transforms_are_those_of_numpy(run, simulator):
    code = """
for shape in ((1,), (5,), (8,), (97,), (4, 6), (3, 5), (2, 3, 4), (3, 4, 5)):
    axes = tuple(range(1, len(shape) + 1))
    for real, complex, types in ((np.float32, np.complex64, (R32, C32)), (np.float64, np.complex128, (R64, C64))):
        close = 1e-4 if real == np.float32 else 1e-12
        x = numbers(3, *shape).astype(complex)
        count, last = x.size, shape[-1]
        half = (*shape[:-1], last // 2 + 1)
        a, b = given(x, complex), allocate(x.nbytes)
        plan = planned(shape, 3, (types[1], types[1], types[1]))
        for direction, want in ((-1, np.fft.fftn(x, axes=axes)), (1, np.fft.ifftn(x, axes=axes) * (count / 3))):
            ok(fft.cufftXtExec(plan, a, b, direction))
            assert np.allclose(read(b, count, complex).reshape(want.shape), want, atol=close), (shape, direction)
        r = x.real.copy()
        want = np.fft.rfftn(r, axes=axes).astype(complex)
        a, b = given(r, real), allocate(want.nbytes)
        ok(fft.cufftXtExec(planned(shape, 3, (types[0], types[1], types[1])), a, b, -1))
        got = read(b, want.size, complex).reshape(want.shape)
        assert np.allclose(got, want, atol=close), shape
        assert np.array_equal(read(a, r.size, real).reshape(r.shape), r)
        ok(fft.cufftXtExec(planned(shape, 3, (types[1], types[0], types[1])), given(want, complex), a, 1))
        back = read(a, r.size, real).reshape(r.shape)
        if last == 1 or len(shape) == 1: assert np.isnan(back).any() or np.allclose(back, r * (count / 3), atol=close * count)
"""
    run(FFT + code, CUSIM_CHECK="all", **simulator)


def test_half_spectra_come_back_as_signals_and_their_memory_is_overwritten(run, simulator):
    """A spectrum that no real signal has becomes NaN."""
    code = """
for shape in ((8,), (7,), (4, 6), (2, 3, 4)):
    x = rng.standard_normal(shape)
    spectrum = np.fft.rfftn(x)
    for planes in ((0,), (0, -1)) if shape[-1] % 2 == 0 else ((0,),):
        for plane in planes:  # rounded, a spectrum is not exactly Hermitian
            own = spectrum[..., plane]
            turned = np.conj(np.roll(np.flip(own), 1, tuple(range(own.ndim)))) if own.ndim else np.conj(own)
            spectrum[..., plane] = (own + turned) / 2
    a, b = given(spectrum, np.complex128), allocate(x.nbytes)
    plan = planned(shape, 1, (C64, R64, C64))
    ok(fft.cufftXtExec(plan, a, b, 1))
    assert np.allclose(read(b, x.size, np.float64).reshape(shape), x * x.size), shape
    assert np.isnan(read(a, spectrum.size, np.complex128)).all()
    spectrum.flat[0] += 1j
    ok(fft.cufftXtExec(plan, given(spectrum, np.complex128), b, 1))
    assert np.isnan(read(b, x.size, np.float64)).all()
"""
    run(FFT + code, **simulator)


def test_what_does_not_fit_is_refused(run, simulator):
    code = """
types = (C32, C32, C32)
for want, shape, batch, kinds in [
    (BAD_VALUE, (), 1, types), (BAD_VALUE, (2, 2, 2, 2), 1, types), (BAD_SIZE, (0,), 1, types), (BAD_SIZE, (4,), 0, types),
    (BAD_TYPE, (4,), 1, (C32, C32, R32)), (BAD_TYPE, (4,), 1, (R32, R32, C32)), (BAD_TYPE, (4,), 1, (R64, C32, C32)),
]:
    assert make(create(), shape, batch, kinds)[0] == want, (shape, batch, kinds)
plan = create()
A = given(np.ones(64)); B = allocate(256)
assert fft.cufftXtExec(plan, A, B, -1) == BAD_PLAN  # not made
status, room = make(plan, (12,), 2, types)
assert status == 0 and room > 0 and make(plan, (12,), 2, types)[0] == BAD_PLAN
assert fft.cufftXtExec(plan, A, B, -1) == NO_ROOM
assert fft.cufftSetWorkArea(plan, None) == BAD_VALUE
ok(fft.cufftSetWorkArea(plan, allocate(room)))
assert fft.cufftXtExec(plan, A, B, 0) == BAD_VALUE
assert fft.cufftXtExec(plan, A, None, -1) == BAD_VALUE
assert fft.cufftXtExec(plan, c_ulonglong(A.value + 4), B, -1) == BAD_VALUE  # not aligned
assert fft.cufftXtExec(plan, A, c_ulonglong(A.value + 8), -1) == BAD_VALUE  # overlaps
assert fft.cufftXtExec(plan, A, c_ulonglong(B.value + 128), -1) == FAILED  # beyond the memory
ok(fft.cufftXtExec(plan, A, A, -1))
real = planned((12,), 2, (R32, C32, C32))
assert fft.cufftXtExec(real, A, A, -1) == BAD_VALUE and fft.cufftXtExec(real, A, B, 1) == BAD_TYPE
ok(fft.cufftDestroy(plan))
assert fft.cufftDestroy(plan) == BAD_PLAN and fft.cufftXtExec(plan, A, B, -1) == BAD_PLAN
start(1)
assert fft.cufftXtExec(real, A, B, -1) == BAD_DEVICE
"""
    run(FFT + code, CUSIM_DEVICES="2", **simulator)


def test_transforms_run_in_the_order_of_their_stream(run, simulator):
    code = """
f = kernel('extern "C" __global__ void rb_kernel(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = i % 2 ? 0 : 2; }')
A, B, on, plan = allocate(256), allocate(256), stream(), planned((32,), 1, (C32, C32, C32))
ok(fft.cufftSetStream(plan, on))
ok(launch(f, [A, 64], on=on))
ok(fft.cufftXtExec(plan, A, B, -1))
assert cuda.cuStreamQuery(on) == 600
ok(cuda.cuStreamSynchronize(on))
assert read(B, 2)[0] == 64 and abs(read(B, 64)[1:]).max() < 1e-5
"""
    run(FFT + code, CUSIM_CHECK="all", **simulator)
