"""Run first in the processes of test_composite.py and test_trace.py: makes composites and stubs of a plugin."""

import ctypes
from contextlib import contextmanager

import rabbet  # noqa: F401
from plugin_prelude import LIBRARY, address, error, lib, made  # noqa: F401

lib.make.argtypes = [ctypes.c_int32, *[ctypes.c_void_p] * 4]
lib.make_stub.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
lib.level_wrap.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
lib.level_told.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
PARTS, ALL, STUB = (lib.layer_id(i) for i in range(3))


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
    return made(code, out)


def stub(like):
    """A tensor of the shape, dtype and device of `like`, without values."""
    out = ctypes.c_void_p()
    return made(lib.make_stub(address(like), ctypes.byref(out)), out)


@contextmanager
def level():
    """A level of the plugin's transform; gives the function that wraps a tensor."""
    number = ctypes.c_int32()
    assert lib.level_enter(ctypes.byref(number)) == 0

    def wrapped(t):
        out = ctypes.c_void_p()
        return made(lib.level_wrap(number.value, address(t), ctypes.byref(out)), out)

    try:
        yield wrapped
    finally:
        lib.level_leave(number.value)
