"""The simulator's cuBLASLt against NumPy, and the driver that does nothing."""

from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
LT = (
    f"import sys; sys.path.insert(0, {HERE!r})\nfrom drive import *\nstart()\n"
    + """
lt = ctypes.CDLL(os.environ["RABBET_CUDA_CUBLASLT"])
handle = c_void_p(); ok(lt.cublasLtCreate(byref(handle)))
TYPES = {np.float32: 0, np.float64: 1, np.float16: 2, np.int8: 3, np.complex64: 4, np.complex128: 5, np.int32: 10}
def put(call, thing, attribute, value):
    ok(call(thing, attribute, byref(value), c_size_t(ctypes.sizeof(value))))
def layout(dtype, rows, cols, ld=None, batches=1, stride=0, order=0):
    made = c_void_p()
    ok(lt.cublasLtMatrixLayoutCreate(byref(made), TYPES.get(dtype, dtype), ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(ld or rows)))
    put(lt.cublasLtMatrixLayoutSetAttribute, made, 1, c_int(order))
    put(lt.cublasLtMatrixLayoutSetAttribute, made, 5, c_int(batches))
    put(lt.cublasLtMatrixLayoutSetAttribute, made, 6, ctypes.c_int64(stride))
    return made
def operation(compute, scale, ta=0, tb=0, epilogue=1, bias=None):
    made = c_void_p()
    ok(lt.cublasLtMatmulDescCreate(byref(made), compute, scale))
    for attribute, value in ((3, ta), (4, tb), (7, epilogue)):
        put(lt.cublasLtMatmulDescSetAttribute, made, attribute, c_int(value))
    if bias is not None: put(lt.cublasLtMatmulDescSetAttribute, made, 8, bias)
    return made
preference = c_void_p(); ok(lt.cublasLtMatmulPreferenceCreate(byref(preference)))
put(lt.cublasLtMatmulPreferenceSetAttribute, preference, 1, c_size_t(1 << 20))
def heuristic(op, a, b, c, d):
    result, count = (ctypes.c_uint64 * 12)(), c_int()
    status = lt.cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, c, d, preference, 1, result, byref(count))
    return status, result, count.value
def matmul(op, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm=None, workspace=None, size=0, on=None):
    alpha, beta = np.asarray(alpha), np.asarray(beta)
    return lt.cublasLtMatmul(handle, op, c_void_p(alpha.ctypes.data), a, la, b, lb, c_void_p(beta.ctypes.data), c, lc, d, ld,
                             algorithm, workspace, c_size_t(size), on)
rng = np.random.default_rng(0)
def numbers(dtype, *shape):
    x = rng.standard_normal(shape) * (1 if dtype not in (np.int8,) else 20)
    if np.issubdtype(dtype, np.complexfloating): x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)
"""
)


def test_products_are_those_of_numpy(run, simulator):
    """Columns lie together: what is given is the transpose of NumPy's rows."""
    code = """
CASES = [(np.float32, np.float32, 68, 0, np.float32), (np.float64, np.float64, 70, 1, np.float64), (np.float16, np.float16, 68, 0, np.float32),
         (np.float16, np.float32, 68, 0, np.float32), (np.complex64, np.complex64, 68, 4, np.complex64),
         (np.complex128, np.complex128, 70, 5, np.complex128), (np.int8, np.int32, 72, 10, np.int32), (np.float32, np.float32, 77, 0, np.float32)]
for dtype, to, compute, scale, factor in CASES:
    m, n, k, batches = 8, 7, 12, 3
    for ta, tb in ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0)):
        if ta == 2 and not np.issubdtype(dtype, np.complexfloating): continue
        if dtype == np.int8 and (ta, tb) != (1, 0): continue
        a, b, c = numbers(dtype, batches, m, k), numbers(dtype, batches, k, n), numbers(to, batches, m, n)
        sent = lambda x, t: np.ascontiguousarray(np.conj(x) if t == 2 else x if t else x.swapaxes(1, 2))
        A, B, C = given(sent(a, ta), dtype), given(sent(b, tb), dtype), given(sent(c, 0), to)
        la = layout(dtype, *((k, m) if ta else (m, k)), batches=batches, stride=m * k)
        lb = layout(dtype, *((n, k) if tb else (k, n)), batches=batches, stride=n * k)
        lc = layout(to, m, n, batches=batches, stride=m * n)
        op = operation(compute, scale, ta, tb)
        status, algorithm, count = heuristic(op, la, lb, lc, lc); assert (status, count) == (0, 1), (dtype, status)
        ok(matmul(op, factor(2), A, la, B, lb, factor(3), C, lc, C, lc, algorithm))
        got = read(C, batches * m * n, to).reshape(batches, n, m).swapaxes(1, 2)
        wide = np.complex128 if np.issubdtype(dtype, np.complexfloating) else np.float64
        want = 2 * (a.astype(wide) @ b.astype(wide)) + 3 * c
        close = 1e-12 if dtype in (np.float64, np.complex128) else 2e-2 if compute == 77 or to == np.float16 else 1e-5
        assert np.allclose(got, want, rtol=close, atol=close), (dtype, to, ta, tb, abs(got - want).max())
        if compute == 77: assert abs(got - want).max() > 1e-5  # TF32 is less exact
"""
    run(LT + code, CUSIM_CHECK="all", **simulator)


def test_epilogues_rows_and_leading_dimensions(run, simulator):
    code = """
m, n, k = 5, 6, 4
a, b, bias = numbers(np.float32, m, k), numbers(np.float32, k, n), numbers(np.float32, m)
A, B, V = given(np.pad(a, ((0, 0), (0, 3)))), given(b), given(bias)
la, lb, ld = layout(np.float32, m, k, k + 3, order=1), layout(np.float32, k, n, n, order=1), layout(np.float32, m, n, n + 2, order=1)
def gelu(x): return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
y = a @ b
for epilogue, want in ((1, y), (2, np.maximum(y, 0)), (4, y + bias[:, None]), (6, np.maximum(y + bias[:, None], 0)),
                       (32, gelu(y)), (36, gelu(y + bias[:, None]))):
    D = allocate(m * (n + 2) * 4)
    op = operation(68, 0, epilogue=epilogue, bias=V if epilogue & 4 else None)
    ok(matmul(op, np.float32(1), A, la, B, lb, np.float32(0), D, ld, D, ld))
    got = read(D, m * (n + 2)).reshape(m, n + 2)
    assert np.allclose(got[:, :n], want, atol=1e-5), epilogue
    assert np.isnan(got[:, n:]).all()
"""
    run(LT + code, **simulator)


def test_eight_bits_are_scaled(run, simulator):
    code = """
one, half = 0x38, 0x30  # of e4m3
m = n = k = 16
A, B = given(np.full((m, k), one, np.uint8), np.uint8), given(np.full((n, k), half, np.uint8), np.uint8)
D = allocate(m * n * 4)
op = operation(68, 0, 1, 0)
scale = given([4.0])
put(lt.cublasLtMatmulDescSetAttribute, op, 17, scale)
l8, ld = layout(28, k, m), layout(np.float32, m, n)
ok(matmul(op, np.float32(1), A, l8, B, l8, np.float32(0), D, ld, D, ld))
assert (read(D, m * n) == 16 * 0.5 * 4).all()
assert heuristic(operation(68, 0, 0, 0), l8, l8, ld, ld)[0] == 15  # the first must be transposed
assert heuristic(operation(68, 0, 1, 0), layout(28, 12, 16), layout(28, 12, 16), ld, ld)[0] == 15
"""
    run(LT + code, **simulator)


def test_what_does_not_fit_is_refused(run, simulator):
    code = """
f = np.float32
A, D = given(np.ones(64)), allocate(256)
sq = layout(f, 8, 8)
for want, op, la, lb, ld in [
    (7, operation(68, 0), layout(f, 8, 8, 7), sq, sq),                     # leading dimension
    (7, operation(68, 0), layout(f, 8, 4), sq, sq),                        # sizes
    (7, operation(68, 0), layout(f, 8, 8, batches=2, stride=64), sq, sq),  # batches
    (7, operation(68, 0, epilogue=4), sq, sq, sq),                         # no bias
    (7, operation(68, 0, epilogue=4, bias=c_ulonglong(A.value + 8)), sq, sq, sq),  # not aligned
    (15, operation(68, 1), sq, sq, sq),                                    # scale type
    (15, operation(70, 1), sq, sq, sq),                                    # compute type
    (15, operation(68, 0, epilogue=192), sq, sq, sq),
]:
    assert heuristic(op, la, lb, ld, ld)[0] == want
    assert matmul(op, f(1), A, la, A, lb, f(0), D, ld, D, ld) == want
op = operation(68, 0)
assert matmul(op, f(1), A, sq, A, sq, f(0), c_ulonglong(D.value + 128), sq, c_ulonglong(D.value + 128), sq) == 13  # beyond the memory
_, algorithm, _ = heuristic(op, sq, sq, sq, sq)
other = layout(f, 4, 8)
assert matmul(op, f(1), A, other, A, sq, f(0), D, other, D, other, algorithm) == 7
long = layout(f, 2, 2048), layout(f, 2048, 2), layout(f, 2, 2)
L = given(np.ones(4096))
status, algorithm, _ = heuristic(op, *long, long[2]); room = algorithm[8]
assert status == 0 and room > 0
assert matmul(op, f(1), L, long[0], L, long[1], f(0), D, long[2], D, long[2], algorithm) == 7  # no workspace
W = allocate(room)
ok(matmul(op, f(1), L, long[0], L, long[1], f(0), D, long[2], D, long[2], algorithm, W, room))
assert (read(D, 4) == 2048).all()
assert (read(W, room, np.uint8) == 0xee).all()
"""
    run(LT + code, **simulator)


def test_alignment_decides_which_algorithms_there_are(run, simulator):
    """The first reads 16 bytes at once. What it was not told makes the device fail, as a GPU does."""
    code = """
def algorithms(matrix, **aligned):
    wish = c_void_p(); ok(lt.cublasLtMatmulPreferenceCreate(byref(wish)))
    for attribute, name in ((5, "a"), (6, "b"), (7, "c"), (8, "d")):
        put(lt.cublasLtMatmulPreferenceSetAttribute, wish, attribute, c_uint(aligned.get(name, 256)))
    results, count = (ctypes.c_uint64 * 96)(), c_int()
    ok(lt.cublasLtMatmulAlgoGetHeuristic(handle, op, matrix, matrix, matrix, matrix, wish, 8, results, byref(count)))
    return [results[12 * i + 2] for i in range(count.value)], results
op, packed = operation(68, 0), layout(np.float32, 8, 8)
assert algorithms(packed)[0] == [0, 1, 2]
for name in "abcd": assert algorithms(packed, **{name: 4})[0] == [1, 2], name
assert algorithms(layout(np.float32, 8, 8, 9))[0] == [1, 2]
batches, first = layout(np.float32, 8, 8, batches=2, stride=65), algorithms(layout(np.float32, 8, 8, batches=2, stride=65))[1]
A, D = given(np.ones(256)), allocate(1024)
second = (ctypes.c_uint64 * 8)(*first[12:20])
ok(matmul(op, np.float32(1), A, batches, A, batches, np.float32(0), D, batches, D, batches, second))
ok(cuda.cuCtxSynchronize())
ok(matmul(op, np.float32(1), A, batches, A, batches, np.float32(0), D, batches, D, batches, first))
status = cuda.cuCtxSynchronize()
assert status == 716 and "not aligned to 16 bytes" in words(status), (status, words(status))
"""
    run(LT + code, **simulator)


def test_failures_are_planted(run, simulator):
    code = """
sq, A, D = layout(np.float32, 8, 8), given(np.ones(64)), allocate(256)
def status(): return matmul(operation(68, 0), np.float32(1), A, sq, A, sq, np.float32(0), D, sq, D, sq)
for planted, want in (("multiply:14", [14] * 4), ("multiply1:13*2", [13, 13, 0, 0]), ("choose:3,multiply:14+3", [0, 0, 0, 14]), ("multiply0:14", [0] * 4)):
    os.environ["CUSIM_CUBLASLT_FAIL"] = planted
    assert [status() for _ in range(4)] == want, planted
assert heuristic(operation(68, 0), sq, sq, sq, sq)[0] == 0
os.environ["CUSIM_CUBLASLT_FAIL"] = "choose:3"
assert heuristic(operation(68, 0), sq, sq, sq, sq)[0] == 3
"""
    run(LT + code, **simulator)


def test_products_run_in_the_order_of_their_stream(run, simulator):
    code = """
f = kernel('extern "C" __global__ void rb_kernel(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = 2; }')
A, D, sq, on = allocate(256), allocate(256), layout(np.float32, 8, 8), stream()
ok(launch(f, [A, 64], on=on))
ok(matmul(operation(68, 0), np.float32(1), A, sq, A, sq, np.float32(0), D, sq, D, sq, on=on))
assert cuda.cuStreamQuery(on) == 600
ok(cuda.cuStreamSynchronize(on))
assert (read(D, 64) == 32).all()
"""
    run(LT + code, CUSIM_CHECK="all", **simulator)


def test_the_driver_that_does_nothing_counts_launches(run, null_driver):
    code = """
import ctypes, os, rabbet
x = rabbet.ones(8, device="cuda")
count = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]).cusim_launches
count.restype = ctypes.c_ulonglong
before = count()
y = x + x
z = y.exp()
rabbet.cuda.synchronize()
print(count() - before, z.shape)
"""
    assert run(code, **null_driver).startswith("2 ")
