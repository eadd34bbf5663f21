"""CUDA's device functions on the simulator, against NumPy and SciPy."""

from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
DRIVE = f"import sys; sys.path.insert(0, {HERE!r})\nfrom drive import *\nstart()\n"


def test_lanes_exchange_values(run, simulator):
    code = """
text = '''
template <class T> __device__ void all(T* x, int n) {
  const int i = threadIdx.x;
  T v = x[i];
  x[n + i] = __shfl_sync(0xffffffffu, v, 3);
  x[2 * n + i] = __shfl_xor_sync(0xffffffffu, v, 5);
  x[3 * n + i] = __shfl_down_sync(0xffffffffu, v, 7);
  x[4 * n + i] = __shfl_up_sync(0xffffffffu, v, 7);
  x[5 * n + i] = __shfl_xor_sync(0xffffffffu, v, 4, 8);
  x[6 * n + i] = __shfl_down_sync(0xffffffffu, v, 1, 8);
  x[7 * n + i] = __shfl_sync(0xffffffffu, v, 9, 8);
}
extern "C" __global__ void rb_kernel(TYPE* x, int n) { all(x, n); }
'''
lane = np.arange(64) % 32
first, eight = np.arange(64) // 32 * 32, np.arange(64) // 8 * 8
want = [first + 3, first + (lane ^ 5), first + np.where(lane + 7 > 31, lane, lane + 7),
        first + np.where(lane < 7, lane, lane - 7), np.arange(64) ^ 4,
        np.where(lane % 8 == 7, np.arange(64), np.arange(64) + 1), eight + 1]
for name, dtype in (("int", np.int32), ("unsigned long long", np.uint64), ("float", np.float32), ("double", np.float64)):
    values = (np.arange(64) * 37 % 64).astype(dtype)
    data = given(np.concatenate([values, np.zeros(7 * 64, dtype)]), dtype)
    ok(run(kernel(text.replace("TYPE", name)), [data, 64], block=64))
    got = read(data, 8 * 64, dtype).reshape(8, 64)
    for row, places in zip(got[1:], want, strict=True):
        assert (row == values[places]).all(), (name, row, places)
"""
    run(DRIVE + code, **simulator)


def test_votes_and_counting_barriers(run, simulator):
    code = """
text = '''
extern "C" __global__ void rb_kernel(unsigned* x, int n) {
  const int i = threadIdx.x, odd = i % 2, lane = i % warpSize;
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  x[i] = __ballot_sync(~0u, odd);
  x[n + i] = __any_sync(half, i == 20);
  x[2 * n + i] = __all_sync(half, i != 20);
  x[3 * n + i] = __syncthreads_count(i < 5);
  x[4 * n + i] = __syncthreads_or(i == 40) + 2 * __syncthreads_and(i < 64) + 4 * __syncthreads_and(i < 63);
  x[5 * n + i] = __match_any_sync(~0u, i / 8);
  x[6 * n + i] = __reduce_add_sync(~0u, (unsigned)i);
  x[7 * n + i] = __reduce_max_sync(~0u, i);
}
'''
data = allocate(8 * 64 * 4)
ok(run(kernel(text), [data, 64], block=64))
got = read(data, 8 * 64, np.uint32).reshape(8, 64)
i = np.arange(64)
assert (got[0] == 0xaaaaaaaa).all()
assert (got[1] == ((i >= 16) & (i < 32))).all() and (got[2] == ~((i >= 16) & (i < 32))).all()
assert (got[3] == 5).all() and (got[4] == 3).all()
assert (got[5] == np.uint32(0xff) << (i % 32 // 8 * 8)).all()
assert (got[6] == np.where(i < 32, 496, 496 + 1024)).all() and (got[7] == np.where(i < 32, 31, 63)).all()
"""
    run(DRIVE + code, **simulator)


def test_atomic_operations(run, simulator):
    code = """
text = '''
extern "C" __global__ void rb_kernel(int* i, unsigned* u, unsigned long long* l, float* f, double* d, unsigned short* s) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(i, 1); atomicMax(i + 1, t); atomicMin(i + 2, -t); atomicOr(i + 3, 1 << t % 32); atomicAnd(i + 4, ~(1 << t % 32));
  atomicSub(i + 5, 2); atomicXor(i + 6, t);
  atomicAdd(u, 3u); atomicInc(u + 1, 9u); atomicCAS(u + 2, 0u, (unsigned)t + 1); atomicExch(u + 3, 7u);
  atomicAdd(l, 1ull << 33); atomicMax(l + 1, (unsigned long long)t << 40);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
  unsigned short seen, old = 0;
  do { seen = old; old = atomicCAS(s + 1, seen, (unsigned short)(seen + 1)); } while (old != seen);
}
'''
i, u, l = given([0, 0, 0, 0, -1, 0, 0], np.int32), given([0] * 4, np.uint32), given([0] * 2, np.uint64)
f, d, s = given([0], np.float32), given([0], np.float64), given([0, 0, 5], np.uint16)
ok(run(kernel(text), [i, u, l, f, d, s], grid=3, block=64))
xor = 0
for t in range(192): xor ^= t
assert read(i, 7, np.int32).tolist() == [192, 191, -191, -1, 0, -384, xor]
got = read(u, 4, np.uint32).tolist()
assert got[0] == 576 and got[1] == 192 % 10 and 1 <= got[2] <= 192 and got[3] == 7
assert read(l, 2, np.uint64).tolist() == [192 << 33, 191 << 40]
assert read(f, 1)[0] == 96 and read(d, 1, np.float64)[0] == 48 and read(s, 3, np.uint16).tolist() == [0, 192, 5]
"""
    run(DRIVE + code, **simulator)


MATHS = """
import scipy.special as sp
names = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sqrt": np.sqrt, "cbrt": np.cbrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": sp.erf, "erfc": sp.erfc,
    "erfinv": sp.erfinv, "erfcinv": sp.erfcinv, "erfcx": sp.erfcx, "normcdf": sp.ndtr, "normcdfinv": sp.ndtri,
    "lgamma": sp.gammaln, "tgamma": sp.gamma, "j0": sp.j0, "j1": sp.j1, "y0": sp.y0, "y1": sp.y1,
    "cyl_bessel_i0": sp.i0, "cyl_bessel_i1": sp.i1, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "rint": np.rint, "round": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), "fabs": np.abs,
    "sinpi": lambda x: np.sin(np.pi * x), "cospi": lambda x: np.cos(np.pi * x), "exp10": lambda x: 10.0**x,
}
two = {
    "pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod, "copysign": np.copysign, "fmax": np.fmax,
    "fmin": np.fmin, "nextafter": np.nextafter, "fdim": lambda x, y: np.where(x != x, x, np.maximum(x - y, 0)),
}
np.seterr(all="ignore")
x = np.concatenate([np.linspace(-3.1, 3.3, 40), [0.0, 1.0, -1.0, 0.5, 0.999, 1e-5, 20.0, 40.0]])
y = np.roll(x, 7)
lines = "".join(f"out[{i} * n + i] = {name}(a);" for i, name in enumerate(names))
lines += "".join(f"out[{len(names) + i} * n + i] = {name}(a, b);" for i, name in enumerate(two))
for name, dtype, close in (("float", np.float32, 2e-5), ("double", np.float64, 1e-12)):
    text = f'extern "C" __global__ void rb_kernel(const {name}* x, const {name}* y, {name}* out, int n)'
    text += "{ const int i = threadIdx.x; const " + name + " a = x[i], b = y[i]; " + lines + "}"
    out = allocate(8 * len(x) * (len(names) + len(two)))
    ok(run(kernel(text), [given(x, dtype), given(y, dtype), out, len(x)], block=len(x)))
    got = read(out, len(x) * (len(names) + len(two)), dtype).reshape(-1, len(x))
    a, b = x.astype(dtype), y.astype(dtype)
    for row, (name, f) in zip(got, [*names.items(), *two.items()], strict=True):
        want = f(a.astype(np.float64)) if name in names else f(a, b) if name == "nextafter" else f(a.astype(np.float64), b.astype(np.float64))
        with np.errstate(all="ignore"): want = want.astype(dtype)
        poles = np.isinf(want) if name in ("tgamma", "y0", "y1") else np.zeros(len(x), bool)
        scale = close * (1 + np.abs(want)) if name in ("sinpi", "cospi", "tan", "y0", "y1") else close
        bad = ~np.isclose(row, want, rtol=close, atol=scale if np.ndim(scale) else close * 0.1, equal_nan=True) & ~poles
        bad &= ~((name == "tgamma") & ((a == np.floor(a)) & (a <= 0)))
        assert not bad.any(), (name, dtype, a[bad], row[bad], want[bad])
"""


def test_mathematical_functions(run, simulator):
    run(DRIVE + MATHS, **simulator)


def test_bits_conversions_vectors_and_shared_memory(run, simulator):
    code = """
text = '''
struct __align__(16) Pack { float v[4]; };
__global__ void __launch_bounds__(128) unused(int* x) { *x = 1; }
extern "C" __global__ void __launch_bounds__(32) rb_kernel(long long* out, const float4* __restrict__ x, float* y) {
  CUSIM_DYNAMIC_SHARED(int, dynamic);
  __shared__ float4 fixed[4];
  const int i = threadIdx.x;
  dynamic[i] = i;
  if (i < 4) fixed[i] = __ldg(x + i);
  __syncthreads();
  if (i == 0) {
    long long k = 0;
    out[k++] = __float_as_int(1.5f); out[k++] = __double_as_longlong(-2.0); out[k++] = __popc(0xf0f0) + __popcll(~0ull);
    out[k++] = __clz(1) * 100 + __clzll(1); out[k++] = __ffs(8) * 100 + __ffsll(0); out[k++] = __umulhi(1u << 31, 6u);
    out[k++] = __umul64hi(1ull << 63, 10ull); out[k++] = __brev(1u); out[k++] = __byte_perm(0x11223344, 0x55667788, 0x7410);
    out[k++] = __float2int_rn(2.5f) * 100 + __float2int_rz(-2.7f); out[k++] = __float2int_rz(1e20f);
    out[k++] = max(3, 9) * 10 + min(7u, 5u); out[k++] = sizeof(float4) + alignof(float4) + sizeof(int2) + alignof(double2);
    out[k++] = dynamic[31]; out[k++] = isnan(NAN) + 2 * isinf(INFINITY) + 4 * isfinite(1.0f) + 8 * signbit(-1.0);
    out[k++] = (long long)(fixed[1].z + fmaf(2, 3, 4) + abs(-2) + fabsf(-1.f));
    double s, c; sincos(0.0, &s, &c); int e; out[k++] = (long long)(s + 2 * c + 8 * frexp(8.0, &e) + e + ldexp(1.0, 5));
    *(Pack*)y = *(const Pack*)(x + 2);
  }
}
'''
out, y = allocate(17 * 8), allocate(16)
x = given(np.arange(16))
f = kernel(text)
ok(run(f, [out, x, y], block=32, shared=128))
want = [0x3fc00000, -(2**62), 8 + 64, 3163, 400, 3, 5, 0x80000000, 0, 200 - 2, 2**31 - 1, 95, 56, 31, 15, 6 + 10 + 2 + 1, 0 + 2 + 4 + 4 + 32]
got = read(out, 17, np.int64).tolist()
bytes_ = bytes.fromhex("4433221188776655")  # of both words; the selector takes 0, 1, 4 and 7
want[8] = int.from_bytes(bytes(bytes_[k] for k in (0, 1, 4, 7)), "little")
assert got == want, (got, want)
assert read(y, 4).tolist() == [8, 9, 10, 11]
"""
    run(DRIVE + code, **simulator)
