"""What code in a process of its own begins with: results on the device against those of the CPU backend."""

import numpy as np
import rabbet
import rabbet.nn

F16, BF16, F32, F64 = rabbet.float16, rabbet.bfloat16, rabbet.float32, rabbet.float64
WHOLE = [rabbet.bool, rabbet.uint8, rabbet.int8, rabbet.int16, rabbet.int32, rabbet.int64]
REAL = [F16, BF16, F32, F64, *WHOLE]
ALL = [*REAL, rabbet.complex64, rabbet.complex128]
numbers = np.random.default_rng(0)


def some(shape, dtype, nan=True):
    """Few different values, NaN and -0 among them."""
    if not dtype.is_floating_point:
        return rabbet.tensor(np.asarray(numbers.integers(0, 7, shape))).to(dtype)
    values = np.asarray(numbers.integers(-9, 9, shape) / 4.0)
    values.flat[3::11] = -0.0
    if nan:
        values.flat[::7] = np.nan
    return rabbet.tensor(values).to(dtype)


def same(here, there, close=None):
    there = there.cpu()
    assert here.dtype == there.dtype and here.shape == there.shape, (here, there)
    if close is None:
        equal = (here == there) | ((here != here) & (there != there))
        assert equal.all().item(), (here, there)
    else:
        wide = rabbet.complex128 if here.dtype.is_complex else F64
        assert rabbet.allclose(
            here.to(wide), there.to(wide), rtol=close, atol=close, equal_nan=True
        ), (here, there)


def both(f, *given, close=None):
    """f on the CPU and on the device, to the bit or close."""
    here, there = f(*given), f(*(x.to("cuda") for x in given))
    if isinstance(here, rabbet.Tensor):
        here, there = (here,), (there,)
    for a, b in zip(here, there, strict=True):
        assert b.device.type == "cuda"
        same(a, b, close)


def seeded(f, close=None):
    """The CPU's numbers, twice in a row: as many counters are taken."""
    drawn = []
    for device in ("cpu", "cuda"):
        rabbet.manual_seed(7)
        drawn.append((f(device), f(device)))
    for here, there in zip(*drawn, strict=True):
        same(here, there, close)
