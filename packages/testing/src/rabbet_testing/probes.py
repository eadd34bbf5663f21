"""What a program does with a device, a layer or operators, in a process of its own.

    python -m rabbet_testing.probes PROBE KIND NAME LIBRARY MODULE

KIND is `device`, `layer` or `ops`. The last line printed is JSON with what is wrong.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import rabbet
from rabbet import _C, _plugins

from .fake_host import finish, step
from .judges.processes import MODULES

# What core says of an exception that came out of a plugin's function.
ESCAPED = "let an exception through"
PATIENCE = 30  # seconds for a forked child
THREADS, LARGE = 4, 256
FAILING = "this function fails on purpose"


class Subject:
    """The device, layer or namespace of operators, loaded."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        step(f"load the {kind} {name}")
        _plugins.plugins()
        self._calls: list[Callable[[], list[bytes]]] = []
        if kind == "layer":
            _plugins.require_layer(name)
        elif kind == "ops":
            from .conformance.subject import find_ops
            from .judges.packs import outcome, repeatable

            calls = repeatable(name, find_ops(name).params("ops"))
            self._calls = [partial(outcome, case) for case in calls]
        elif not any(b["name"] == name.partition(":")[0] for b in _C.backends()):
            _plugins.require_backend(name.partition(":")[0])

    @property
    def place(self) -> str:
        """Where its tensors are."""
        return self.name if self.kind == "device" else "cpu"

    def table(self, size: int, first: float = 1.0) -> Any:
        """A tensor of `size` by `size`, whose numbers count from `first`."""
        numbers = rabbet.arange(size * size).to(rabbet.float32) + first
        return numbers.reshape(size, size).to(self.place)

    def compute(self, size: int = 8, first: float = 1.0) -> list[bytes]:
        """What has been on the device and went through its operators, and the calls of a pack; equal for equal arguments."""
        there = self.table(size, first)
        found = [there.cpu().numpy().tobytes()]
        for given in self._calls:
            found += given()
        for call in _COMPUTATIONS:
            try:
                found.append(call(there).cpu().numpy().tobytes())
            except NotImplementedError:
                found.append(b"")
        return found


_COMPUTATIONS: list[Callable[[Any], Any]] = [
    lambda x: x + x, lambda x: x * 0.5, lambda x: x @ x, lambda x: x.t().contiguous(), lambda x: x.sum(1),
    lambda x: x.exp(), lambda x: x.to(rabbet.int64) + 1,
]  # fmt: skip


def _state() -> dict[str, Any]:
    return {
        "backends": [b["name"] for b in _C.backends()],
        "layers": [la["name"] for la in _C.layers()],
        "operators": len(_C.record_names()),
        "kernels": len(_C.registered_kernels()),
        "plugins": len(_C.plugins()),
        "threads": len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0,
        "environment": dict(os.environ),
    }


def _records(namespace: str) -> list[str]:
    return [n for n in _C.record_names() if n.startswith(f"{namespace}::")]


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    return ", ".join(k for k in before if before[k] != after[k])


# ---- probes


def opening(kind: str, name: str, library: str, module: str) -> list[str]:
    """Opening the library registers nothing and starts nothing: that is for `init`."""
    before = _state()
    step("open the library, without init")
    ctypes.CDLL(library)
    changed = _changes(before, _state())
    return (
        [f"opening the library, before init, changes: {changed} (a static constructor?)"]
        if changed
        else []
    )


def loading_twice(kind: str, name: str, library: str, module: str) -> list[str]:
    """The same path again is no second plugin, a copy of a device or layer is refused; neither leaves a trace."""
    subject, findings = Subject(kind, name), []
    results = subject.compute()
    before = _state()
    exclusive = (
        kind != "ops"
    )  # the records and kernels of one wheel may come twice, its devices and layers not
    step("load the same path again")
    _C.load_plugin(library)
    if _changes(before, _state()):
        findings.append(f"loading the same path again changes: {_changes(before, _state())}")
    with tempfile.TemporaryDirectory() as folder:
        copy = str(Path(shutil.copy(library, folder)).rename(Path(folder) / "a_copy.so"))
        step("load a copy of the library")
        try:
            _C.load_plugin(copy)
        except _C.RabbetError as error:
            if "registered already" not in str(error):
                findings.append(
                    f"a copy of the library is refused, but not since its names are taken: {error}"
                )
        else:
            if exclusive:
                findings.append(
                    "a copy of the library loads, though its names are taken: init ignores the refusal"
                )
    ignored = {"threads": 0} if exclusive else {"threads": 0, "plugins": 0, "kernels": 0}
    changed = _changes({**before, **ignored}, {**_state(), **ignored})
    if changed:
        findings.append(f"the copy changes: {changed}")
    if subject.compute() != results:
        findings.append("computes other numbers after a copy was loaded")
    return findings


def importing(kind: str, name: str, library: str, module: str) -> list[str]:
    """The plugin's module, imported before it is needed, leads to the same device or layer."""
    import importlib

    step(f"import {module}")
    importlib.import_module(module)
    Subject(kind, name).compute()
    return []


def starting(kind: str, name: str, library: str, module: str) -> list[str]:
    """It loads and computes."""
    Subject(kind, name).compute()
    return []


def forking(kind: str, name: str, library: str, module: str) -> list[str]:
    """A child works or refuses in words; the parent goes on."""
    subject, findings = Subject(kind, name), []
    results = subject.compute()
    read, write = os.pipe()
    step("fork")
    child = os.fork()
    if child == 0:
        try:
            text = "" if subject.compute() == results else "the child computes other numbers"
            code = 1 if text else 0
        except Exception as error:
            text, code = str(error), 0 if str(error) else 1
        os.write(write, text.encode()[:4000])
        os._exit(code)
    status = _wait(child)
    os.close(write)
    words = os.read(read, 4000).decode(errors="replace")
    if status is None:
        findings.append(f"a forked child does not end within {PATIENCE} s")
    elif status != 0:
        findings.append(f"a forked child ends with {status}: {words or 'no words'}")
    step("compute in the parent, after the fork")
    if subject.compute() != results:
        findings.append("the parent computes other numbers after a fork")
    return findings


def _wait(child: int) -> int | None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def threading_(kind: str, name: str, library: str, module: str) -> list[str]:
    """Several threads at once, the first use included, get what one alone gets."""
    shared: list[Any] = []
    found: list[Any] = []
    gate = threading.Barrier(THREADS)

    def work(k: int) -> None:
        gate.wait()
        try:
            subject = Subject(kind, name)
            if gate.wait() == 0:
                shared.append(subject.table(LARGE))
            gate.wait()
            for _ in range(4):
                for size in (8, LARGE):  # core lets other threads of Python run during large calls
                    found.append(
                        (k, size, subject.compute(size, k), shared[0].cpu().numpy().tobytes())
                    )
        except Exception as error:
            gate.abort()
            found.append(error)

    step(f"compute on {THREADS} threads")
    threads = [threading.Thread(target=work, args=(k,)) for k in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    errors = [
        f
        for f in found
        if isinstance(f, Exception) and not isinstance(f, threading.BrokenBarrierError)
    ]
    findings = [f"on one of several threads: {type(e).__name__}: {e}" for e in errors[:3]]
    if not errors:
        subject = Subject(kind, name)
        whole = subject.table(LARGE).cpu().numpy().tobytes()
        alone = {
            (k, size): (subject.compute(size, k), whole)
            for k in range(THREADS)
            for size in (8, LARGE)
        }
        wrong = sum(alone[k, size] != (own, seen) for k, size, own, seen in found)
        if wrong:
            findings.append(
                f"{wrong} of {len(found)} computations on several threads differ from those on one"
            )
    return findings


_alive: list[Any] = []  # until the interpreter is gone


def exiting(kind: str, name: str, library: str, module: str) -> list[str]:
    """Leaves tensors alive and a thread that computes."""
    subject = Subject(kind, name)
    _alive.extend(rabbet.ones(n).to(subject.place) for n in (1, 1000, 100000))

    def work() -> None:
        while True:
            subject.compute()

    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.05)
    step("leave the program, with tensors alive and a thread that computes")
    return []


def failing_exit(kind: str, name: str, library: str, module: str) -> list[str]:
    """As `exiting`, and a function of atexit fails; what Python says of that is held back."""

    def fail() -> None:
        raise RuntimeError(FAILING)

    sys.unraisablehook = lambda given: (
        None if FAILING in str(given.exc_value) else sys.__unraisablehook__(given)
    )
    subject = Subject(kind, name)
    _alive.append(rabbet.ones(1000).to(subject.place))
    _alive.append(subject)
    atexit.register(fail)
    step("leave the program, with tensors alive and a function of atexit that fails")
    return []


# ---- bad calls


def _spoilt(value: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """What does not fit where `value` did, made from the value that is on the device."""
    if isinstance(value, rabbet.Tensor):
        for name in ("complex64", "bool", "float64", "uint8"):
            yield f"as {name}", partial(_cast, getattr(rabbet, name))
        for shape in ((0,), (7, 5, 3), ()):
            yield f"of shape {shape}", partial(_shaped, shape)
    elif isinstance(value, bool):
        return
    elif isinstance(value, (int, float)):
        yield from ((f"as {n}", partial(_always, n)) for n in (99, -99))
    elif isinstance(value, list) and value and isinstance(value[0], int):
        yield from ((f"as {n}", partial(_always, n)) for n in ([99, -99], []))


def _cast(dtype: Any, t: Any) -> Any:
    return t.cpu().to(dtype).to(t.device)


def _shaped(shape: tuple[int, ...], t: Any) -> Any:
    return rabbet.ones(shape).to(t.dtype).to(t.device)


def _always(value: Any, _: Any) -> Any:
    return value


def _fitting(kind: str, name: str) -> Iterator[tuple[str, list[Any]]]:
    """Operators of a namespace, or with a kernel for a device, each with calls that fit."""
    from .cases import cases

    if kind == "ops":
        from .conformance.subject import find_ops
        from .judges import packs

        given = packs.given_calls(find_ops(name).params("ops"))
        for op in _records(name):
            yield op, packs.calls(op, packs.dtypes(op, given)[0], given)[:2]
        return
    for op in _C.record_names():
        info = _C.op_info(op)
        if name.partition(":")[0] in info["kernels"] and info["kind"] != "creation":
            yield op, list(cases(op, rabbet.float32))[:2] or list(cases(op, rabbet.int64))[:1]


def bad_calls(kind: str, name: str, library: str, module: str) -> list[str]:
    """Every kernel, called with what does not fit: a status code comes, never an exception of C++."""
    from .judges.calls import moved

    subject, findings = Subject(kind, name), list[str]()
    results, calls, place = subject.compute(), 0, subject.place
    # A call without a kernel may run on the CPU, and says so.
    warnings.filterwarnings("ignore", r"\S+: no kernel for '", UserWarning)
    # uint8 masks are accepted with PyTorch's deprecation warning.
    warnings.filterwarnings("ignore", ".*uint8", UserWarning)
    for op, made in _fitting(kind, name):
        for case in made:
            for i, value in enumerate(case.args):
                for what, spoil in _spoilt(value):
                    step(f"call {op} with argument {i} {what}")
                    try:
                        there = moved(case, place)
                        there.args[i] = spoil(there.args[i])
                        there.run()
                        _C.synchronize(rabbet.device(place))
                    except Exception as error:
                        if ESCAPED in str(error):
                            findings.append(
                                f"the kernel of {op}, called with argument {i} {what}, lets a C++ exception through: {error}"
                            )
                    calls += 1
    step("compute after the bad calls")
    if not calls:
        findings.append("there was no kernel to call")
    if subject.compute() != results:
        findings.append("computes other numbers after bad calls")
    return findings[:20]


def damage(kind: str, name: str, library: str, module: str) -> list[str]:
    """Composites of the layer as a damaged file describes them."""
    from .conformance.subject import find_layer
    from .judges import composites, layers

    return composites.probe_damage(layers.through(name, find_layer(name).params("layer")), step)


PROBES: dict[str, Callable[[str, str, str, str], list[str]]] = {
    "opening": opening, "loading-twice": loading_twice, "importing": importing, "starting": starting,
    "forking": forking, "threading": threading_, "exiting": exiting, "failing-exit": failing_exit,
    "bad-calls": bad_calls, "damage": damage,
}  # fmt: skip


def main(probe: str, *given: str) -> int:
    """Run one probe."""
    kind, name, library, module = given
    try:
        for registering in filter(None, os.environ.get(MODULES, "").split(",")):
            step(f"import {registering}")
            importlib.import_module(registering)
        found = PROBES[probe](kind, name, library, module)
    except Exception as error:
        found = [f"{type(error).__name__}: {error}"]
    return finish(found)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
