"""Run first in the processes of test_composite.py and test_trace.py: makes composites and stubs of a plugin."""

import ctypes
import sys
from contextlib import contextmanager

import rabbet

rabbet.zeros(1)
_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_table = (ctypes.c_void_p * 8).from_address(_get(rabbet._C.python_v0, b"rabbet._C.python_v0"))
_wrap = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(_table[3])
address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(_table[4])
_raise = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int32)(_table[5])
LIBRARY = sys.argv[1]
rabbet._C.load_plugin(LIBRARY)
lib = ctypes.CDLL(LIBRARY)
lib.make.argtypes = [ctypes.c_int32, *[ctypes.c_void_p] * 4]
lib.make_stub.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.level_wrap.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
lib.level_told.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
PARTS, ALL, STUB = (lib.layer_id(i) for i in range(3))


def _made(code, out):
    if code:
        _raise(code)
    return _wrap(out)


def compose(a, b, layer=PARTS, base=None):
    """A tensor that stands for a + b."""
    out = ctypes.c_void_p()
    code = lib.make(
        layer,
        address(a),
        address(b),
        address(base) if base is not None else None,
        ctypes.byref(out),
    )
    return _made(code, out)


def stub(like):
    """A tensor of the shape, dtype and device of `like`, without values."""
    out = ctypes.c_void_p()
    return _made(lib.make_stub(address(like), ctypes.byref(out)), out)


@contextmanager
def level():
    """A level of the plugin's transform; gives the function that wraps a tensor."""
    number = ctypes.c_int32()
    assert lib.level_enter(ctypes.byref(number)) == 0

    def wrapped(t):
        out = ctypes.c_void_p()
        return _made(lib.level_wrap(number.value, address(t), ctypes.byref(out)), out)

    try:
        yield wrapped
    finally:
        lib.level_leave(number.value)


def error(call):
    """Type and message of what a call raises."""
    try:
        call()
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    raise AssertionError("nothing was raised")
