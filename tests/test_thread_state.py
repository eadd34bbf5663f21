"""A thread's whole state goes to another thread: modes, levels, inference mode, streams' places."""

import ctypes
import threading

import pytest
import rabbet
from plugin_wheels import build

STATE = """
static const RbHost* host;
static void keep(const RbHost* h) { host = h; }
RB_EXPORT int32_t save(RbTls** out) { return host->tls_save(out); }
RB_EXPORT int32_t restore(const RbTls* saved) { return host->tls_restore(saved); }
RB_EXPORT void drop(RbTls* saved) { host->tls_free(saved); }
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """tls_save, tls_restore and tls_free as functions of ctypes."""
    path = build(
        tmp_path_factory.mktemp("state"),
        "state",
        extra=STATE,
        init="keep(host); (void)txn; return 0;",
    )
    rabbet._C.load_plugin(str(path))
    library = ctypes.CDLL(str(path))
    for name in ("save", "restore", "drop"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library


class Saved:
    """The state of the thread that made it."""

    def __init__(self, library):
        self.library, self.at = library, ctypes.c_void_p()
        assert library.save(ctypes.byref(self.at)) == 0

    def restore(self):
        assert self.library.restore(self.at) == 0

    def __del__(self):
        self.library.drop(self.at)


def elsewhere(state, saved, work):
    """What `work` returns on a thread that goes on as `saved` says, and what it returns there afterwards."""
    results = []

    def run():
        own = Saved(state)
        saved.restore()
        results.append(work())
        own.restore()
        results.append(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results


def test_modes_go_along(state):
    x = rabbet.ones(2, 2)
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        saved = Saved(state)
    assert elsewhere(state, saved, lambda: (x @ x).dtype) == [rabbet.bfloat16, rabbet.float32]
    assert (x @ x).dtype is rabbet.float32


def test_grad_and_inference_mode_go_along(state):
    x = rabbet.ones(2, requires_grad=True)
    with rabbet.no_grad():
        saved = Saved(state)
    assert elsewhere(state, saved, lambda: (x * 2).requires_grad) == [False, True]
    with rabbet.inference_mode():
        saved = Saved(state)
    assert elsewhere(state, saved, lambda: rabbet.ones(1).is_inference()) == [True, False]


def test_levels_go_along(state):
    def doubled(t):
        return once_elsewhere(state, lambda: t * 2)

    x = rabbet.arange(6.0).reshape(3, 2)
    assert rabbet.func.vmap(doubled)(x).tolist() == (x * 2).tolist()


def once_elsewhere(state, work):
    results, saved = [], Saved(state)

    def run():
        own = Saved(state)
        saved.restore()
        results.append(work())
        own.restore()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def test_the_line_of_the_program_goes_along(state):
    rabbet._C.set_source("model.py:3 in forward")
    try:
        saved = Saved(state)
    finally:
        rabbet._C.set_source(None)
    there, after = elsewhere(state, saved, rabbet._C.source)
    assert there == "model.py:3 in forward" and after != there


def test_the_thread_that_saves_goes_on_as_it_was(state):
    x = rabbet.ones(2, requires_grad=True)
    saved = Saved(state)
    with rabbet.no_grad():
        saved.restore()
        assert (x * 2).requires_grad
    assert (x * 2).requires_grad
