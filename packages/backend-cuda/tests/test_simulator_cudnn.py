"""The simulator's cuDNN refuses what the library's manual forbids, with the statuses of the real library where it is there."""

import os
import runpy
from pathlib import Path

import pytest

PLANNED = runpy.run_path(str(Path(__file__).parent / "test_cudnn.py"))

# Calls by ctypes. Each `say` is one status, or several.
CALLS = """
import ctypes, os
from ctypes import byref, c_bool, c_float, c_int, c_int64, c_void_p
lib = ctypes.CDLL(os.environ["LIBRARY"])
def i64(*v): return (c_int64 * len(v))(*v)
def i32(*v): return (c_int * len(v))(*v)
def make(kind):
    made = c_void_p()
    status = lib.cudnnBackendCreateDescriptor(kind, byref(made))
    return status or made
def put(d, attribute, kind, values, count=None):
    count = len(values) if count is None else count
    return lib.cudnnBackendSetAttribute(d, attribute, kind, c_int64(count), values)
def hang(d, attribute, part): return lib.cudnnBackendSetAttribute(d, attribute, 15, c_int64(1), byref(part))
def end(d): return lib.cudnnBackendFinalize(d)
def get(d, attribute, kind, count, to):
    found = c_int64(-1)
    return lib.cudnnBackendGetAttribute(d, attribute, kind, c_int64(count), byref(found), to), found.value
def say(what, *statuses): print(what, *statuses)
def tensor(shape, name, dtype=0, strides=None, aligned=16, without=()):
    made, steps = make(17), [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1): steps[k] = steps[k + 1] * shape[k + 1]
    given = {901: (1, i32(dtype)), 902: (3, i64(*shape)), 903: (3, i64(*(strides or steps))), 900: (3, i64(aligned)), 906: (3, i64(name))}
    for attribute, (kind, values) in given.items():
        if attribute not in without: assert put(made, attribute, kind, values) == 0
    return made
def convolution(padding=(1, 1), stride=(1, 1), dilation=(1, 1), without=()):
    made = make(1)
    for attribute, kind, values in ((106, 3, i64(2)), (100, 1, i32(0)), (101, 7, i32(1)), (104, 3, i64(*padding)),
                                    (105, 3, i64(*padding)), (102, 3, i64(*dilation)), (103, 3, i64(*stride))):
        if attribute not in without: assert put(made, attribute, kind, values) == 0
    return made
def ended(made):
    assert end(made) == 0
    return made
def forward(**parts):
    made = make(10)
    for name, attribute in {"how": 702, "w": 703, "x": 704, "y": 705}.items():
        if name in parts: assert hang(made, attribute, parts[name]) == 0
    return made

t = tensor((1, 2, 3, 4), 5)
say("kind", make(999))
say("attribute of another kind", put(t, 100, 3, i64(1)))
say("type", put(t, 901, 3, i64(1)))
say("counts", put(t, 901, 1, i32(0, 0)), put(t, 901, 1, i32(0), 0), put(t, 901, 1, i32(0), -1))
say("null", put(t, 901, 1, None, 1))
say("get before the end", get(t, 901, 1, 1, i32(0))[0])
say("end, and again", end(t), end(t))
say("set after the end", put(t, 901, 1, i32(0)))
out = i64(*[0] * 8)
say("get", get(t, 902, 3, 8, out), list(out[:4]), get(t, 902, 3, 2, out), get(t, 902, 3, 0, None), get(t, 902, 1, 8, out)[0])
say("nothing set", end(make(17)), end(make(1)), end(make(10)), end(make(15)))
say("no alignment", end(tensor((2, 2, 2), 1, without=(900,))))
say("alignment below the element", end(tensor((2, 2, 2), 1, aligned=2)))
say("description", end(convolution()), *(end(convolution(without=(a,))) for a in (102, 103, 106)))
say("description's values", end(convolution(padding=(1,))), end(convolution(padding=(-1, 0))), end(convolution(stride=(0, 1))), end(convolution(dilation=(0, 1))))
how, x, w, y = ended(convolution()), ended(tensor((2, 3, 8, 8), 1)), ended(tensor((4, 3, 3, 3), 2)), ended(tensor((2, 4, 8, 8), 3))
say("operation", end(forward(how=how, x=x, w=w, y=y)))
say("operation without a part", end(forward(x=x, w=w, y=y)), end(forward(how=how, w=w, y=y)))
say("sizes", end(forward(how=how, x=x, w=w, y=ended(tensor((2, 4, 7, 8), 3)))))
say("channels", end(forward(how=how, x=x, w=ended(tensor((4, 2, 3, 3), 2)), y=y)))
say("part without an end", end(forward(how=how, x=tensor((2, 3, 8, 8), 1), w=w, y=y)))
"""
SAID = """kind 4003
attribute of another kind 2000
type 2010
counts 2000 2000 2000
null 2000
get before the end 1001
end, and again 0 2000
set after the end 2000
get (0, 4) [1, 2, 3, 4] (0, 2) (0, 4) 2010
nothing set 2000 2000 2000 2000
no alignment 2000
alignment below the element 2000
description 0 2000 2000 2000
description's values 2000 2000 2000 2000
operation 0
operation without a part 2000 2000
sizes 2000
channels 2000
part without an end 2000
"""


def test_wrong_descriptors_are_refused(run, with_cudnn):
    assert run(CALLS, LIBRARY=with_cudnn["RABBET_CUDA_CUDNN"]) == SAID


def test_the_real_library_says_the_same(run, simulator, tmp_path):
    path = PLANNED["cudnn_library"]()
    if path is None:
        pytest.skip("RABBET_TEST_CUDNN names no library")
    PLANNED["add_driver"](tmp_path, Path(simulator["RABBET_CUDA_DRIVER"]), path)
    folders = f"{tmp_path}:{path.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    assert run(CALLS, LIBRARY=str(path), LD_LIBRARY_PATH=folders) == SAID


# What the real library does not survive, or asks a device for.
DRIVEN = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).resolve().parent)!r})\nfrom drive import allocate, cuda, given, np, ok, read, start\nstart()\n"
    + CALLS.split('\nt = tensor((1, 2, 3, 4), 5)\nsay("kind"')[0]
    + """
BAD, NULL, MISALIGNED = 2000, 2002, 2003
handle = c_void_p(); ok(lib.cudnnCreate(byref(handle)))
how = ended(convolution())
x, w, y = (ended(tensor(s, name)) for s, name in (((1, 2, 4, 4), 1), ((3, 2, 3, 3), 2), ((1, 3, 4, 4), 3)))
def graph(*operations, handle=handle):
    made = make(15)
    if handle: ok(put(made, 800, 0, (c_void_p * 1)(handle.value)))
    ok(put(made, 801, 15, (c_void_p * len(operations))(*(o.value for o in operations))))
    return made
def plan(whole, mode=2, taken=0):
    heuristics = make(4)
    ok(hang(heuristics, 201, whole)); ok(put(heuristics, 200, 8, i32(mode))); ok(end(heuristics))
    configs = [make(3) for _ in range(4)]
    raw, found = (c_void_p * 4)(*(c.value for c in configs)), c_int64()
    ok(lib.cudnnBackendGetAttribute(heuristics, 202, 15, c_int64(4), byref(found), raw))
    made = make(5)
    ok(put(made, 400, 0, (c_void_p * 1)(handle.value))); ok(hang(made, 401, configs[taken]))
    return made
def pack(names, data, workspace=None):
    made = make(16)
    ok(put(made, 1000, 3, i64(*names))); ok(put(made, 1001, 6, (c_void_p * len(data))(*data)))
    if workspace: ok(put(made, 1003, 6, (c_void_p * 1)(workspace)))
    return made
operation = ended(forward(how=how, x=x, w=w, y=y))
"""
)


def test_wrong_graphs_and_executions_are_refused(run, with_cudnn):
    code = """
assert end(tensor((2, 2, 2), 1, without=(906,))) == BAD                           # no name
assert end(forward(how=x, x=x, w=w, y=y)) == BAD                                  # another kind
assert end(graph(operation, handle=None)) == BAD
assert end(graph(how)) == BAD                                                     # no operation
assert end(graph(operation, operation)) == BAD                                    # written twice
other = ended(forward(how=how, x=ended(tensor((1, 2, 4, 4), 1, aligned=4)), w=w, y=ended(tensor((1, 3, 4, 4), 4))))
assert end(graph(operation, other)) == BAD                                        # one name for two tensors
assert end(pack([1, 1], [16, 32])) == BAD and end(pack([1, 2], [16])) == BAD
assert end(make(5)) == BAD
text = make(5)
ok(put(text, 400, 0, (c_void_p * 1)(handle.value))); ok(put(text, 405, 24, ctypes.create_string_buffer(b"{}"), 2))
assert end(text) == BAD
gone = tensor((1, 2, 4, 4), 1); address = c_void_p(gone.value); ok(lib.cudnnBackendDestroyDescriptor(gone))
assert end(address) == BAD and lib.cudnnBackendDestroyDescriptor(address) == BAD
whole = ended(graph(operation))
used = ended(plan(whole))
X, W, Y = given(np.ones(32)), given(np.ones(54)), allocate(192)
places = [X.value, W.value, Y.value]
def run(using, names=(1, 2, 3), data=places, workspace=None, on=handle):
    return lib.cudnnBackendExecute(on, using, ended(pack(names, data, workspace)))
assert run(used, on=None) == BAD
assert run(used, (1, 2), places[:2]) == BAD                                       # no result
assert run(used, data=[X.value, 0, Y.value]) == NULL
assert run(used, data=[X.value + 4, W.value, Y.value]) == MISALIGNED
assert run(used, data=[X.value, W.value, Y.value + 4096]) == 5000                 # beyond the memory
assert lib.cudnnBackendExecute(handle, whole, ended(pack((1, 2, 3), places))) == BAD
assert lib.cudnnBackendExecute(handle, used, pack((1, 2, 3), places)) == BAD      # without an end
wanting = plan(whole, mode=3, taken=3); ok(end(wanting))
assert run(wanting) == NULL                                                       # no workspace
ok(run(wanting, workspace=allocate(96).value))
ok(run(used)); ok(cuda.cuCtxSynchronize())
assert (read(Y, 48).reshape(3, 4, 4)[:, 1:3, 1:3] == 18).all()
"""
    run(DRIVEN + code, **with_cudnn, LIBRARY=with_cudnn["RABBET_CUDA_CUDNN"], CUSIM_CHECK="all")


def test_layouts_and_dtypes_that_engines_do_not_take(run, with_cudnn):
    code = """
def status(taken, mode=3, dtype=0, strides=None, shapes=((1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 4, 4))):
    x, w, y = (ended(tensor(s, k, dtype, strides if k == 0 else None)) for k, s in enumerate(shapes))
    return end(plan(ended(graph(ended(forward(how=how, x=x, w=w, y=y)))), mode, taken))
assert [status(k) for k in range(4)] == [0] * 4
gaps, broadcast = [64, 32, 8, 1], [32, 0, 4, 1]
assert [status(k, strides=gaps) for k in range(4)] == [3004, 3004, 3004, 0]       # one takes gaps
assert [status(k, strides=broadcast) for k in range(4)] == [3004] * 4
assert [status(k, dtype=1) for k in range(4)] == [3003] * 4                       # float64
assert status(0, mode=2, strides=gaps) == 0
"""
    run(DRIVEN + code, **with_cudnn, LIBRARY=with_cudnn["RABBET_CUDA_CUDNN"])


def test_what_is_executed_is_ordered_by_streams(run, with_cudnn):
    """Two streams without an event between them: the checker sees it."""
    code = """
from drive import stream
used = ended(plan(ended(graph(operation))))
X, W, Y = given(np.ones(32)), given(np.ones(54)), allocate(192)
cuda.cuCtxSynchronize()
for on in (stream(), stream()):
    ok(lib.cudnnSetStream(handle, on))
    ok(lib.cudnnBackendExecute(handle, used, ended(pack((1, 2, 3), [X.value, W.value, Y.value]))))
assert cuda.cuCtxSynchronize() == 719
"""
    run(DRIVEN + code, **with_cudnn, LIBRARY=with_cudnn["RABBET_CUDA_CUDNN"], CUSIM_CHECK="all")
