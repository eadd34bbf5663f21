"""The simulator's cuSOLVER and cuBLAS: against NumPy, and what they refuse."""

from pathlib import Path

HERE = str(Path(__file__).resolve().parent)
BEGIN = (
    f"import sys; sys.path.insert(0, {HERE!r})\nfrom drive import *\nstart()\n"
    + """
from ctypes import c_double, c_int64, c_longlong
solver, blas = (ctypes.CDLL(os.environ[f"RABBET_CUDA_{name}"]) for name in ("CUSOLVER", "CUBLAS"))
R32, R64, C32, C64 = 0, 1, 4, 5
NOT_STARTED, BAD_VALUE, FAILED = 1, 3, 6
handle, params, other = c_void_p(), c_void_p(), c_void_p()
ok(solver.cusolverDnCreate(byref(handle))), ok(solver.cusolverDnCreateParams(byref(params))), ok(blas.cublasCreate_v2(byref(other)))
rng = np.random.default_rng(0)
def columns(x): return given(np.ascontiguousarray(x.T), np.float64)
def back(data, rows, cols): return read(data, rows * cols, np.float64).reshape(cols, rows).T
def room(function, *arguments):
    device, host = c_size_t(), c_size_t()
    status = function(handle, params, *arguments, byref(device), byref(host))
    return status, device.value, host.value
info = allocate(4)
def number(): return read(info, 1, np.int32)[0]
long = c_int64
"""
)
CHOLESKY = """
n = 4
x = rng.standard_normal((n, n)); x = x @ x.T + np.eye(n)
status, size, host_size = room(solver.cusolverDnXpotrf_bufferSize, 0, long(n), R64, None, long(n), R64); ok(status)
device, host = allocate(size), ctypes.create_string_buffer(host_size)
def factor(a, uplo=0, order=n, ld=n, type=R64, compute=R64, with_params=params, on=handle, bytes=size, host=host, to=info):
    return solver.cusolverDnXpotrf(on, with_params, uplo, long(order), type, a, long(ld), compute, device, c_size_t(bytes), host, c_size_t(host_size), to)
"""


def test_factors_are_those_of_numpy(run, simulator):
    code = """
for uplo in (0, 1):
    a = columns(x)
    ok(factor(a, uplo))
    found = back(a, n, n)
    want = np.linalg.cholesky(x)
    want = want if uplo == 0 else want.T
    assert number() == 0 and np.allclose(np.tril(found) if uplo == 0 else np.triu(found), want)
    rest = np.triu(found, 1) if uplo == 0 else np.tril(found, -1)  # the other triangle stays
    assert np.array_equal(rest, np.triu(x, 1) if uplo == 0 else np.tril(x, -1))
wrong = x.copy(); wrong[2, 2] = -9
ok(factor(columns(wrong)))
assert number() == 3
assert (read(device, size, np.uint8) == 0xee).all()
"""
    run(BEGIN + CHOLESKY + code, CUSIM_CHECK="all", **simulator)


def test_what_does_not_fit_is_refused(run, simulator):
    code = """
a = columns(x)
assert factor(a, on=None) == NOT_STARTED and factor(a, on=params) == NOT_STARTED
for wrong in (dict(uplo=2), dict(ld=3), dict(type=R32), dict(compute=C64), dict(with_params=None), dict(bytes=size - 1), dict(host=None), dict(to=None)):
    assert factor(a, **wrong) == BAD_VALUE, wrong
assert factor(None) == BAD_VALUE
assert factor(c_ulonglong(a.value + 64)) == FAILED  # beyond the memory
assert factor(x.ctypes.data_as(c_void_p)) == FAILED  # the host's
wide = room(solver.cusolverDnXgesvd_bufferSize, ctypes.c_byte(ord("S")), ctypes.c_byte(ord("S")), long(2), long(3), R64, None, long(2), R64, None, R64, None, long(2), R64, None, long(3), R64)
assert wide[0] == BAD_VALUE  # more columns than rows
start(1)
assert factor(a) == NOT_STARTED  # of another device
"""
    run(BEGIN + CHOLESKY + code, CUSIM_DEVICES="2", **simulator)


def test_factorisations_end_a_capture(run, simulator):
    code = """
a, on, graph = columns(x), stream(), c_void_p()
ok(solver.cusolverDnSetStream(handle, on))
ok(cuda.cuStreamBeginCapture_v2(on, 2))
assert factor(a) == FAILED
assert cuda.cuStreamEndCapture(on, byref(graph)) == 901
"""
    run(BEGIN + CHOLESKY + code, **simulator)


TRIANGULAR = """
m, n = 3, 2
x, b = rng.standard_normal((m, m)) + 4 * np.eye(m), rng.standard_normal((m, n))
def solve(a, to, side=0, uplo=1, op=0, diag=0, rows=m, cols=n, lda=m, ldb=m, on=other):
    return blas.cublasDtrsm_v2(on, side, uplo, op, diag, rows, cols, byref(c_double(2)), a, lda, to, ldb)
def batch(lists, counts=2):
    return blas.cublasDtrsmBatched(other, 0, 1, 0, 0, m, n, byref(c_double(2)), lists[0], m, lists[1], m, counts)
"""


def test_triangular_solves_are_those_of_numpy(run, simulator):
    code = """
for uplo in (0, 1):
    for op in (0, 1):
        for diag in (0, 1):
            t = np.triu(x) if uplo else np.tril(x)
            if diag: np.fill_diagonal(t, 1)
            to = columns(b)
            ok(solve(columns(x), to, 0, uplo, op, diag))
            assert np.allclose(back(to, m, n), np.linalg.solve(t.T if op else t, 2 * b)), (uplo, op, diag)
            to = columns(b.T)
            ok(solve(columns(x), to, 1, uplo, op, diag, n, m, m, n))
            assert np.allclose(back(to, n, m), np.linalg.solve((t.T if op else t).T, 2 * b).T), (uplo, op, diag)
for wrong in (dict(side=2), dict(uplo=2), dict(op=3), dict(diag=2), dict(lda=2), dict(ldb=2)):
    assert solve(columns(x), columns(b), **wrong) == 7, wrong
assert solve(columns(x), columns(b), on=None) == 1 and solve(None, columns(b)) == 7
"""
    run(BEGIN + TRIANGULAR + code, CUSIM_CHECK="all", **simulator)


def test_addresses_in_lists_are_looked_at_when_the_call_runs(run, simulator):
    code = """
a, to = [columns(x) for _ in range(2)], [columns(b) for _ in range(2)]
lists = [given([t.value for t in each], np.uint64) for each in (a, to)]
ok(batch(lists))
for t in to: assert np.allclose(back(t, m, n), np.linalg.solve(np.triu(x), 2 * b))
lists[1] = given([to[0].value, to[1].value + (1 << 20)], np.uint64)
ok(batch(lists))
status = cuda.cuCtxSynchronize()
assert status == 700 and "an address of a list is none of the device's" in words(status), (status, words(status))
"""
    run(BEGIN + TRIANGULAR + code, **simulator)
