"""At exit Python ends threads that want its lock: one that is in Python code below native code must not end the program."""

import subprocess
import sys

import pytest

HEAD = """
import ctypes, threading, time, warnings
import rabbet
from rabbet import library

inside = threading.Event()
def busy(*given, **named):
    inside.set()
    while True: pass

class Late:  # destroyed when Python already ends threads
    def __del__(self, sleep=time.sleep): sleep(0.2)
late = Late()
"""
TAIL = """
threading.Thread(target=work, daemon=True).start()
assert inside.wait(20)
print("leaving")
"""
# What calls `busy` from native code.
WAYS = {
    "a kernel": """
library.op("odd::busy(Tensor x) -> Tensor")(lambda x: busy())
def work(): rabbet.ops.odd.busy(rabbet.ones(2))
""",
    "a kernel behind a C function pointer": """
library.define("odd::busy(Tensor x) -> Tensor", kind="opaque", shape="x.shape")
function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(busy)
library.impl("odd::busy", "cpu")(function)
def work(): rabbet.ops.odd.busy(rabbet.ones(2))
""",
    "a gradient hook": """
x = rabbet.ones(2, requires_grad=True)
x.register_hook(busy)
def work(): x.sum().backward()
""",
    "a function's backward": """
class F(rabbet.autograd.Function):
    forward = staticmethod(lambda ctx, x: x * 2)
    backward = staticmethod(busy)
def work(): F.apply(rabbet.ones(2, requires_grad=True)).sum().backward()
""",
    "a hook of saved tensors": """
def work():
    with rabbet.autograd.graph.saved_tensors_hooks(busy, busy):
        rabbet.ones(2, requires_grad=True).exp()
""",
    "a batching rule": """
library.op("odd::plain(Tensor x) -> Tensor", kind="opaque", shape="x.shape")(lambda x: x * 2)
library.batch("odd::plain")(busy)
def work(): rabbet.func.vmap(rabbet.ops.odd.plain)(rabbet.ones(2, 2))
""",
    "a warning of vmap": """
library.op("odd::plain(Tensor x) -> Tensor", kind="opaque", shape="x.shape")(lambda x: x * 2)
warnings.showwarning = busy
def work(): rabbet.func.vmap(rabbet.ops.odd.plain)(rabbet.ones(2, 2))
""",
    "the conversion of an argument": """
class Size: __index__ = busy
def work(): rabbet.ones(2) * Size()
""",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_program_leaves_while_a_thread_is_in(way):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + WAYS[way] + TAIL], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")
