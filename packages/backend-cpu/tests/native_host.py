"""Run kernels of the native library without core: NumPy arrays in, NumPy arrays out (see native/fake_host.cpp)."""

import ctypes as C
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "core" / "include"
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
ARG, TYPE, INDEX, NOTIMPL, OOM = 1, 2, 3, 4, 5


class KernelError(Exception):
    """A kernel returned an error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Tensor(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("device", C.c_int32 * 2),
        ("ndim", C.c_int32),
        ("dlpack", C.c_uint8 * 4),
        ("shape", C.POINTER(C.c_int64)),
        ("strides", C.POINTER(C.c_int64)),
        ("byte_offset", C.c_uint64),
        ("view_size", C.c_uint32),
        ("dtype", C.c_uint16),
        ("backend", C.c_uint8),
        ("layout", C.c_uint8),
        ("keys", C.c_uint64 * 2),
        ("numel", C.c_int64),
        ("flags", C.c_uint32),
        ("level", C.c_int32),
        ("owner", C.c_void_p),
        ("ext", C.c_void_p),
    ]


class _Union(C.Union):
    _fields_ = [("i", C.c_int64), ("f", C.c_double), ("p", C.c_void_p)]


class _Value(C.Structure):
    _fields_ = [("tag", C.c_uint32), ("len", C.c_uint32), ("v", _Union)]


class BFloat16:
    """An array of bfloat16, kept as its bits."""

    def __init__(self, values: Any) -> None:
        bits = np.asarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        self.bits = rounded.astype(np.uint16)

    def float32(self) -> np.ndarray:
        """The values as float32."""
        return (self.bits.astype(np.uint32) << 16).view(np.float32)


class TensorList(list):
    """A list of arrays, also where it is empty."""


class Host:
    """The loaded plugin."""

    def __init__(self, library: Path, build_dir: Path) -> None:
        compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
        if compiler is None:
            raise FileNotFoundError("no C++ compiler for the native tests; set CXX")
        target = build_dir / "libfake_host.so"
        command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{INCLUDE}"]
        subprocess.run(
            [
                *command,
                str(HERE / "native" / "fake_host.cpp"),
                "-o",
                str(target),
                "-pthread",
                "-ldl",
            ],
            check=True,
        )
        self.lib = C.CDLL(str(target))
        for name in ("last_message", "kernel_name"):
            getattr(self.lib, name).restype = C.c_char_p
        self.lib.kernel_mask.restype = C.c_uint64
        self.lib.try_allocation.argtypes = [C.c_uint64]
        self.lib.seed.argtypes = [C.c_uint64]
        self._kept: list[Any] = []
        self._check(self.lib.load(str(library).encode()))

    def _check(self, code: int) -> None:
        if code:
            raise KernelError(code, self.lib.last_message().decode())

    def kernels(self) -> list[str]:
        """Names of the ops for which there is a kernel."""
        return [self.lib.kernel_name(i).decode() for i in range(self.lib.kernel_count())]

    def supports(self, op: str, dtype: str) -> bool:
        """Whether the kernel takes `dtype` as its compute dtype."""
        mask = self.lib.kernel_mask(op.encode())
        return mask == 0 or bool(mask >> DTYPES.index(dtype) & 1)

    def _keep(self, thing: Any) -> Any:
        self._kept.append(thing)
        return thing

    def _tensor(self, array: Any) -> int:
        dtype = "bfloat16" if isinstance(array, BFloat16) else array.dtype.name
        a = array.bits if isinstance(array, BFloat16) else array
        t = self._keep(_Tensor())
        t.data, t.ndim, t.numel = a.ctypes.data, a.ndim, a.size
        t.shape = self._keep((C.c_int64 * (a.ndim + 1))(*a.shape))
        t.strides = self._keep((C.c_int64 * (a.ndim + 1))(*[s // a.itemsize for s in a.strides]))
        t.dtype, t.backend, t.flags = DTYPES.index(dtype), 1, int(a.flags.c_contiguous)
        self._keep(a)
        return C.addressof(t)

    def _value(self, x: Any) -> _Value:
        v = _Value()
        if x is None:
            v.tag = 0
        elif isinstance(x, (np.ndarray, BFloat16)):
            v.tag, v.v.p = 8, self._tensor(x)
        elif isinstance(x, bool):
            v.tag, v.v.i = 1, int(x)
        elif isinstance(x, int):
            v.tag, v.v.i = 2, x
        elif isinstance(x, float):
            v.tag, v.v.f = 3, x
        elif isinstance(x, complex):
            v.tag, v.v.p = 4, C.addressof(self._keep((C.c_double * 2)(x.real, x.imag)))
        elif isinstance(x, str):
            text = self._keep(C.create_string_buffer(x.encode()))
            v.tag, v.len, v.v.p = 7, len(x), C.addressof(text)
        elif isinstance(x, TensorList):
            items = [None if i is None else self._tensor(i) for i in x]
            v.tag, v.len, v.v.p = (
                9,
                len(x),
                C.addressof(self._keep((C.c_void_p * (len(x) + 1))(*items))),
            )
        elif isinstance(x, (list, tuple)):
            v.tag, v.len, v.v.p = (
                10,
                len(x),
                C.addressof(self._keep((C.c_int64 * (len(x) + 1))(*x))),
            )
        else:
            raise TypeError(f"no value for {type(x)}")
        return v

    def run(self, op: str, args: Sequence[Any], rets: Sequence[Any]) -> None:
        """Run the kernel of `op`, which fills `rets`; raises KernelError."""
        self._kept.clear()
        a = (_Value * (len(args) + 1))(*map(self._value, args))
        r = (_Value * (len(rets) + 1))(*map(self._value, rets))
        self._check(self.lib.run(op.encode(), a, len(args), r, len(rets)))

    def run_allocating(self, op: str, args: Sequence[Any]) -> np.ndarray:
        """Run a kernel that makes its own single result."""
        self._kept.clear()
        a = (_Value * (len(args) + 1))(*map(self._value, args))
        r = (_Value * 1)()
        self._check(self.lib.run(op.encode(), a, len(args), r, 1))
        t = C.cast(r[0].v.p, C.POINTER(_Tensor)).contents
        shape = tuple(t.shape[d] for d in range(t.ndim))
        dtype = np.dtype(DTYPES[t.dtype])
        raw = C.string_at(t.data, t.numel * dtype.itemsize)
        strides = [t.strides[d] * dtype.itemsize for d in range(t.ndim)]
        out = np.lib.stride_tricks.as_strided(np.frombuffer(raw, dtype), shape, strides).copy()
        self.lib.free_tensor(C.byref(t))
        return out

    def filled(
        self, op: str, args: Sequence[Any], shape: tuple[int, ...], dtype: str
    ) -> np.ndarray:
        """Run the kernel into one fresh array and return it."""
        out = np.empty(shape, dtype)
        self.run(op, args, [out])
        return out


def layouts(array: np.ndarray) -> list[np.ndarray]:
    """The same values in several memory layouts: dense, Fortran, gaps, reversed."""
    found = [array]
    if array.ndim == 0 or array.size == 0:
        return found
    if array.ndim > 1:
        found.append(np.asfortranarray(array))
    gaps = np.zeros(tuple(2 * n for n in array.shape), array.dtype)[
        tuple(slice(None, None, 2) for _ in array.shape)
    ]
    gaps[...] = array
    return [*found, gaps, np.ascontiguousarray(array[::-1])[::-1]]


def random_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values that no op of ours overflows on: small integers, normal floats."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if kind in "ui":
        return np.asarray(rng.integers(0 if kind == "u" else -9, 9, shape)).astype(dtype)
    values = rng.normal(size=shape)
    return np.asarray(values + 1j * rng.normal(size=shape) if kind == "c" else values).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    """In the widest dtype of its kind, for an oracle."""
    kinds = {"f": np.float64, "c": np.complex128}
    return array.astype(kinds.get(array.dtype.kind, array.dtype))


TOLERANCE = {
    "float16": 4e-3,
    "float32": 5e-6,
    "complex64": 2e-5,
    "float64": 1e-12,
    "complex128": 1e-12,
}


def assert_close(got: np.ndarray, want: Any, scale: float = 1.0) -> None:
    """Equal shapes; integers equal, floats within the rounding of their dtype times `scale`."""
    want = np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    tolerance = TOLERANCE[got.dtype.name] * scale
    np.testing.assert_allclose(wide(got), want, rtol=tolerance, atol=tolerance, equal_nan=True)
