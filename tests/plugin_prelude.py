"""Run first in processes of tests that pass tensors to a plugin, whose library is the first argument."""

import ctypes
import sys

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


def made(code, out):
    """The tensor that a function of the plugin put into `out`, or the error of its status code."""
    if code:
        _raise(code)
    return _wrap(out)


def error(call):
    """Type and message of what a call raises."""
    try:
        call()
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    raise AssertionError("nothing was raised")
