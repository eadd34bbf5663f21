"""The prelude of the programs in test_deferral.py: the plugin's functions, with errors as exceptions."""

import ctypes
import os  # noqa: F401
import sys
import threading  # noqa: F401
import time  # noqa: F401

import numpy as np  # noqa: F401
import rabbet

_get = ctypes.pythonapi.PyCapsule_GetPointer
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_table = (ctypes.c_void_p * 8).from_address(_get(rabbet._C.python_v0, b"rabbet._C.python_v0"))
address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(_table[4])
_raise = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int32)(_table[5])

rabbet.ones(1)  # loads the backend
rabbet._C.load_plugin(sys.argv[1])
plugin = ctypes.CDLL(sys.argv[1])
plugin.take_asked.restype = ctypes.c_char_p
for _name in ("memory", "make_ready", "run_pointwise"):
    getattr(plugin, _name).argtypes = {
        "memory": [ctypes.c_void_p, ctypes.c_int64],
        "make_ready": [ctypes.c_void_p],
        "run_pointwise": [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p],
    }[_name]


def must(code):
    return _raise(code) if code else None


def asked():
    return plugin.take_asked().decode()


def error(call):
    try:
        call()
    except Exception as caught:
        return str(caught).splitlines()[0]
    return "nothing"


def memory(t, nbytes):
    return plugin.memory(address(t), nbytes)


__all__ = [name for name in dir() if not name.startswith("_")]
