"""Fourier transforms by cuFFT, on the simulator's stand-in: values, plans, captures, streams, failures."""

import pytest

NUMBERS = """
fft = rabbet.fft
def signal(shape, dtype=F32):
    x = numbers.standard_normal(shape)
    if dtype.is_complex: x = x + 1j * numbers.standard_normal(shape)
    return rabbet.tensor(x).to(dtype)
C32, C64 = rabbet.complex64, rabbet.complex128
def close(dtype): return 1e-12 if dtype in (F64, C64) else 2e-5
def as_numpy(f, x, *args, **how):
    there = f(x.to("cuda"), *args, **how)
    assert there.device.type == "cuda"
    want = getattr(np.fft, f.__name__.removeprefix("fft_"))(x.numpy(), *args, **how)
    got = there.cpu().numpy()
    scale = np.abs(want).max() + 1 if want.size else 1
    assert got.shape == want.shape and np.abs(got - want).max(initial=0) <= close(x.dtype) * scale, (f.__name__, x.shape)
"""


def test_lines_of_any_length_are_those_of_numpy(compared):
    compared(
        NUMBERS
        + """
for n in (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64, 97, 100, 128, 251, 360, 1009, 1024):
    for real, complex in ((F32, C32), (F64, C64)):
        for norm in (None, "ortho", "forward"):
            as_numpy(fft.fft, signal((3, n), complex), norm=norm)
            as_numpy(fft.ifft, signal((3, n), complex), norm=norm)
            as_numpy(fft.rfft, signal((3, n), real), norm=norm)
            as_numpy(fft.irfft, signal((3, n // 2 + 1), complex), n, norm=norm)
"""
    )


def test_dimensions_strides_and_batches_are_those_of_the_cpu(compared):
    compared(
        NUMBERS
        + """
def calls(x):
    yield lambda x: fft.fft(x, dim=0)
    yield lambda x: fft.fftn(x, norm="ortho")
    yield lambda x: fft.ifftn(x, dim=(0, -1))
    yield lambda x: fft.fft2(x, (5, 4))
    if not x.is_complex():
        yield lambda x: fft.rfftn(x)
        yield lambda x: fft.rfftn(x, dim=(-1, 0), norm="forward")
        yield lambda x: fft.ihfftn(x)
    else:
        for n in (6, 7):
            yield lambda x, n=n: fft.irfftn(x, (n,), (-1,))
            yield lambda x, n=n: fft.irfftn(x, (x.shape[0], n), (0, 1), norm="ortho")
            yield lambda x, n=n: fft.hfftn(x)
for dtype in (F32, F64, C32, C64):
    for shape in ((4, 6), (3, 5), (2, 4, 6), (5, 1, 4), (2, 3, 4, 5), (2, 3, 1, 2, 4), (3, 2, 2, 2, 3, 2), (1, 1), (0, 4)):
        x = signal(shape, dtype)
        for given in (x, x.transpose(0, -1).contiguous().transpose(0, -1), signal((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2], x.flip(0)):
            for call in calls(given):
                try: here = call(given)
                except RuntimeError as error:
                    try: call(given.to("cuda"))
                    except RuntimeError as other: assert str(error) == str(other).replace("cuda", "cpu"), (error, other)
                    else: raise AssertionError(error)
                    continue
                same(here, call(given.to("cuda")), close(dtype) * 100)
"""
    )


def test_a_spectrum_that_no_real_signal_has_is_taken_as_on_the_cpu(compared):
    """For such spectra the library's result is undefined, and the stand-in's is NaN."""
    compared(
        NUMBERS
        + """
real = rabbet.ops("fourier_to_real")
for shape in ((4,), (3, 4), (2, 5, 4), (2, 3, 4, 3), (2, 2, 3, 3, 4)):
    for rank in range(1, len(shape) + 1):
        for last in (2 * shape[-1] - 2, 2 * shape[-1] - 1):
            for dtype in (C32, C64):
                both(lambda x: real(x, rank, last, 1), signal(shape, dtype), close=close(dtype) * 10)
"""
    )


def test_arguments_stay_as_they_are(compared):
    """The library overwrites the input of transforms to real numbers."""
    compared(
        NUMBERS
        + """
for x, call in ((signal((3, 5), C32), fft.irfft), (signal((3, 5), C32), fft.irfft2), (signal((3, 5)), fft.rfft2), (signal((3, 5), C32), fft.fft2)):
    there = x.to("cuda")
    call(there)
    assert (there.cpu() == x).all()
"""
    )


def test_memory_that_does_not_begin_where_complex_numbers_do(compared):
    compared(
        NUMBERS
        + """
x = signal((31,))
there = x.to("cuda")
for first in range(4):
    same(fft.rfft(x[first:]), fft.rfft(there[first:]), 1e-4)
"""
    )


def test_destinations_may_have_gaps(compared):
    compared(
        NUMBERS
        + """
x = signal((3, 6), C32)
for out in (rabbet.empty(3, 12, dtype=C32, device="cuda")[:, ::2], rabbet.empty(6, 3, dtype=C32, device="cuda").t()):
    fft.fft(x.to("cuda"), out=out)
    same(fft.fft(x), out, 1e-5)
for form, given in (("fourier", (2, 1, True)), ("half_fourier", (2, 1))):
    x = signal((3, 6), C32 if form == "fourier" else F32)
    want = rabbet.ops(form)(x, *given)
    out = rabbet.empty(want.shape[0], 2 * want.shape[1], dtype=C32, device="cuda")[:, ::2]
    rabbet.ops(form)(x.to("cuda"), *given, out=out)
    same(want, out, 1e-5)
"""
    )


def test_spectrograms_and_gradients(compared):
    compared(
        NUMBERS
        + """
x, window = signal((2, 64)), rabbet.hann_window(16)
def there_and_back(x, window):
    spectrum = rabbet.stft(x, 16, 4, window=window, return_complex=True)
    return spectrum, rabbet.istft(spectrum, 16, 4, window=window)
both(there_and_back, x, window, close=1e-4)
def loss(x):
    x = x.detach().requires_grad_()
    y = fft.irfftn(fft.rfftn(x, norm="ortho") ** 2, x.shape)
    y.square().sum().backward()
    return x.grad
both(loss, signal((4, 6), F64), close=1e-10)
both(loss, signal((3, 4, 5), F64), close=1e-10)
"""
    )


@pytest.mark.parametrize("schedule", ["lazy", "random:1", "random:2"])
def test_streams_are_followed_and_nothing_races(compared, schedule):
    compared(
        NUMBERS
        + """
x = signal((5, 3, 12))
want = fft.irfftn(fft.rfftn(x), x.shape[-2:], (-2, -1)), fft.fft(x.to(C32), dim=1)
made = []
for _ in range(3):
    stream = rabbet.Stream("cuda")
    with stream:
        there = x.to("cuda")
        made.append((fft.irfftn(fft.rfftn(there), x.shape[-2:], (-2, -1)), fft.fft(there.to(C32), dim=1)))
rabbet.cuda.synchronize()
for found in made:
    for a, b in zip(want, found): same(a, b, 1e-4)
""",
        CUSIM_CHECK="all",
        CUSIM_SCHEDULE=schedule,
        RABBET_CUDA_EXACT="1",
    )


# ---- plans

START = """
import ctypes, os, rabbet
cache = rabbet.backends.cuda.cufft_plan_cache
fft = rabbet.fft
if os.environ["RABBET_CUDA_CUFFT"]:
    library = ctypes.CDLL(os.environ["RABBET_CUDA_CUFFT"])
    library.cusim_fft_plans.restype = ctypes.c_long
rabbet.manual_seed(0)
def line(n, device="cuda"): return rabbet.randn(n, dtype=rabbet.complex64, device=device)
"""


@pytest.fixture
def program(logged):
    """Run code; return the lines that the stand-in logs, and the warnings."""

    def run(code, fail="", **env):
        return logged(START + code, ["CUFFT"], CUSIM_CUFFT_FAIL=fail, **env)

    return run


def made(log):
    return [line.removeprefix("make ") for line in log if line.startswith("make ")]


def test_equal_transforms_have_one_plan(program):
    log, _ = program("""
x = rabbet.randn(6, 8, device="cuda")
for _ in range(3): fft.fft(x.to(rabbet.complex64)); fft.rfft(x); fft.rfft2(x); fft.fft(x.to(rabbet.complex64).reshape(2, 3, 8)[:, :, :])
fft.ifft(x.to(rabbet.complex64))  # the direction is no part of a plan
assert cache.size == 3 == library.cusim_fft_plans()
""")
    assert made(log) == ["c2c 8 x6", "r2c 8 x6", "r2c 6 8 x1"]


def test_up_to_three_dimensions_are_one_plan_and_others_more(program):
    log, _ = program("""
fft.fftn(rabbet.ones(2, 3, 4, 5, 6, dtype=rabbet.complex64, device="cuda"))
fft.rfftn(rabbet.ones(2, 1, 3, 4, 5, device="cuda"))
""")
    assert made(log) == ["c2c 4 5 6 x6", "c2c 2 3 x120", "r2c 3 4 5 x2", "c2c 2 x36"]


def test_the_cache_is_that_of_pytorch(program):
    log, _ = program("""
assert cache.max_size == 4096 and cache.size == 0
cache.max_size = 3
for n in (4, 5, 6, 4, 7, 4, 5): fft.fft(line(n))  # 5 is dropped for 7, and made again for 6
assert cache.size == 3 == library.cusim_fft_plans()
cache.max_size = 1
assert cache.size == 1 == library.cusim_fft_plans()
fft.fft(line(5))
cache.clear()
assert cache.size == 0 == library.cusim_fft_plans() and cache.max_size == 1
cache.max_size = 0
for _ in range(2): fft.fft(line(9))
assert cache.size == 0
refused(RuntimeError, "must be non-negative, but got -1", lambda: setattr(cache, "max_size", -1))
refused(RuntimeError, "read-only", lambda: setattr(cache, "size", 3))
refused(RuntimeError, "expected 0 <= device index < 1, but got device with index 1", lambda: cache[1])
refused(ValueError, "Expected a cuda device", lambda: cache["cpu"])
""")
    assert [text.split()[1] for text in made(log)] == ["4", "5", "6", "7", "5", "9", "9"]


def test_every_device_has_plans_of_its_own(program):
    program(
        """
fft.fft(line(4)); fft.fft(line(5)); fft.fft(line(4, "cuda:1"))
assert [cache[i].size for i in range(2)] == [2, 1] and cache["cuda:1"].size == 1
with rabbet.cuda.device(1):
    assert cache.size == 1
    cache.max_size = 7
    cache.clear()
assert [cache[i].size for i in range(2)] == [2, 0] and [cache[i].max_size for i in range(2)] == [4096, 7]
""",
        CUSIM_DEVICES="2",
    )


def test_two_devices_do_not_wait_for_each_other(program):
    """Each execution waits for one on the other device, and fails if none comes."""
    program(
        """
import threading
given = [rabbet.ones(1 << 16, dtype=rabbet.complex64, device=f"cuda:{i}") for i in range(2)]
threads = [threading.Thread(target=fft.fft, args=(x,)) for x in given]
for t in threads: t.start()
for t in threads: t.join()
assert [cache[i].size for i in range(2)] == [1, 1]
""",
        CUSIM_MEET="2",
        CUSIM_DEVICES="2",
    )


def test_threads_share_plans(program):
    program("""
import threading
x = rabbet.randn(16, 12, device="cuda")
want = fft.rfft2(x).cpu()
wrong = []
def transform():
    with rabbet.Stream("cuda"):
        for _ in range(20):
            if not rabbet.allclose(fft.rfft2(x).cpu(), want): wrong.append(1)
rabbet.cuda.synchronize()
threads = [threading.Thread(target=transform) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong and cache.size == 1
""")


# ---- captures

CAPTURE = """
x = rabbet.randn(3, 8, 6, device="cuda")
def call(): return fft.irfft2(fft.rfft2(x) * 2, x.shape[-2:])
def judge(y): assert rabbet.allclose(y.cpu(), x.cpu() * 2, atol=1e-5), (y, x)
stream, graph = rabbet.Stream("cuda"), rabbet.accelerator.Graph()
"""


@pytest.mark.parametrize("warm", [True, False])
def test_transforms_are_captured(program, warm):
    """With existing plans, and with plans that are made during the capture."""
    program(
        CAPTURE
        + f"""
if {warm}: call()
rabbet.cuda.synchronize()
with stream, graph: y = call()
for _ in range(3):
    x.copy_(rabbet.randn(3, 8, 6)); graph.replay(); rabbet.cuda.synchronize(); judge(y)
""",
        RABBET_CUDA_FALLBACK="error",
    )


def test_plans_live_as_long_as_graphs_that_have_them(program):
    program(
        CAPTURE
        + """
with stream, graph: y = call()
cache.clear()
assert cache.size == 0 and library.cusim_fft_plans() == 2
graph.replay(); rabbet.cuda.synchronize(); judge(y)
del graph
assert library.cusim_fft_plans() == 0
"""
    )


# ---- failures


@pytest.mark.parametrize(
    "where,function",
    [("create", "cufftCreate"), ("make", "cufftXtMakePlanMany"), ("execute", "cufftXtExec")],
)
def test_a_failure_names_the_operator_and_the_function(program, where, function):
    log, _ = program(
        f"""
x = line(12)
refused(RuntimeError, "fourier on 'cuda:0': {function} failed: an internal error (cuFFT status 5)", lambda: fft.fft(x))
assert cache.size == 0 == library.cusim_fft_plans()
assert rabbet.allclose(fft.fft(x).cpu(), fft.fft(x.cpu()), atol=1e-5)
assert cache.size == 1
""",
        f"{where}:5*1",
    )
    assert len([text for text in log if text.startswith("failed")]) == 1


def test_other_plans_give_their_memory_to_a_new_one(program):
    log, _ = program("""
fft.fft(line(4)); fft.fft(line(5))
os.environ["CUSIM_CUFFT_FAIL"] = "make:2*1"
fft.fft(line(6))
assert cache.size == 1 == library.cusim_fft_plans(), cache.size
os.environ["CUSIM_CUFFT_FAIL"] = "make:2"
refused(rabbet.OutOfMemoryError, "fourier on 'cuda:0': cufftXtMakePlanMany failed: no memory", lambda: fft.fft(line(7)))
""")
    assert "failed c2c 6 x1" in log


def test_a_failure_that_ends_a_capture_names_the_operator(program):
    program(
        CAPTURE
        + """
call()
os.environ["CUSIM_CUFFT_FAIL"] = "spoil:6"
def capture():
    with stream, graph: call()
refused(RuntimeError, "half_fourier on 'cuda:0': cufftXtExec failed; this has invalidated the capture in progress", capture)
del os.environ["CUSIM_CUFFT_FAIL"]
judge(call())
"""
    )


def test_without_the_library_transforms_run_on_the_cpu_with_one_warning(program):
    code = """
x = line(12)
for _ in range(2): y = fft.fft(x)
assert y.device.type == "cuda" and rabbet.allclose(y.cpu(), fft.fft(x.cpu()), atol=1e-5)
assert cache.size == 0
"""
    _, said = program(code, RABBET_CUDA_CUFFT="")
    assert said.count("cuFFT was not found: pip install 'rabbet-backend-cuda[fft]'") == 1, said
    assert said.count("fourier: no kernel for 'cuda' takes this call") == 1


def test_without_the_library_the_error_names_it(program):
    program(
        """refused(NotImplementedError, "(cuFFT was not found", lambda: fft.rfft(rabbet.ones(4, device="cuda")))""",
        RABBET_CUDA_CUFFT="",
        RABBET_CUDA_FALLBACK="error",
    )
