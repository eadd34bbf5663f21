"""The command `rabbet bottleneck`: where the time of a program goes."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
from collections import defaultdict

from rabbet._as_torch.run import main as run

from ._nesting import Nested, Tree
from ._span import Kind
from ._trace import Trace
from .profiler import profile

_USAGE = """usage: rabbet bottleneck [--html FILE] PROGRAM.py [ARGUMENTS]
       rabbet bottleneck [--html FILE] -m MODULE [ARGUMENTS]"""
_ROWS = 15
# Parts of a program by the begin of a framework's range, with advice where they take much.
_PARTS = {
    "enumerate(DataLoader)": ("waiting for DataLoader", "more num_workers, or less work for each sample"),
    "Optimizer.": ("optimizers", ""),
}  # fmt: skip
_BACKWARD, _CALLS, _OTHER = "backward", "other calls of operators", "Python and all else"
_MUCH = 0.2  # of the time


def main(arguments: list[str]) -> int:
    """Run a program with the profiler and print a report; returns the program's exit code."""
    page = None
    if arguments[:1] == ["--html"] and len(arguments) > 1:
        page, arguments = os.path.abspath(arguments[1]), arguments[2:]
    is_module = arguments[:1] == ["-m"] and len(arguments) > 1
    if not arguments or (arguments[0].startswith("-") and not is_module):
        asked = arguments in (["-h"], ["--help"])
        print(_USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    if not is_module and not os.path.exists(arguments[0]):
        print(f"rabbet bottleneck: there is no file {arguments[0]!r}", file=sys.stderr)
        return 2
    name = arguments[1] if is_module else arguments[0]
    for module in ("rabbet.nn", "rabbet.optim"):  # names of modules and steps need them before
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    prof = profile(with_stack=True)
    code: int | str | None = 0
    began = time.perf_counter()
    prof.start()
    try:
        code = run(arguments)
    except SystemExit as ended:
        code = ended.code
    finally:
        prof.stop()
    seconds = time.perf_counter() - began
    sys.stdout.flush()
    print(_report(name, prof, seconds))
    if page is not None:
        prof.export_html(page, title=name)
        print(f"flame graphs: {page}")
    if isinstance(code, str):
        print(code, file=sys.stderr)
        return 1
    return code or 0


def _report(name: str, prof: profile, seconds: float) -> str:
    trace = prof._recording("report").trace
    parts = _parts(trace, seconds)
    lines = ["", f"{name} ran for {seconds:.3f} s. Its first thread:", ""]
    for part, spent in sorted(parts.items(), key=lambda item: -item[1]):
        lines.append(f"  {spent:9.3f} s  {spent / seconds:6.1%}  {part}")
    for part, advice in _PARTS.values():
        if advice and parts.get(part, 0) > _MUCH * seconds:
            lines += ["", f"Much time goes into {part}: {advice} may help."]
    table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=_ROWS)
    lines += ["", "Operators and ranges, all threads, by their own time:", "", table]
    lines += ["Lines of the program, by the time of the calls in them:", ""]
    for line, spent in _lines(trace)[:_ROWS]:
        lines.append(f"  {spent:9.3f} s  {spent / seconds:6.1%}  {line}")
    return "\n".join(lines)


def _parts(trace: Trace, seconds: float) -> dict[str, float]:
    """Seconds of the parts of the first thread."""
    found: dict[str, float] = defaultdict(float)
    tree = Tree(trace)
    todo = list(tree.nested(tree.tops[0], trace.start, trace.end)) if tree.tops else []
    while todo:
        nested = todo.pop()
        part = _part_of(trace, nested)
        if part is None:  # a range of the program, or a module
            todo += tree.nested(tree.children(nested.number), nested.begin, nested.end)
        else:
            found[part] += (nested.end - nested.begin) / 1e9
    found[_OTHER] = max(0.0, seconds - sum(found.values()))
    return found


def _part_of(trace: Trace, nested: Nested) -> str | None:
    kind = nested.span.kind
    if kind is Kind.CALL:
        return _CALLS
    if kind in (Kind.NODE, Kind.DERIVATIVE):
        return _BACKWARD
    label = trace.label(nested.span)
    return next((part for start, (part, _) in _PARTS.items() if label.startswith(start)), None)


def _lines(trace: Trace) -> list[tuple[str, float]]:
    """Lines of the program with the seconds of the outermost calls and nodes that stand in them."""
    found: dict[str, float] = defaultdict(float)
    for span in trace.spans:
        outermost = span.parent < 0 or trace.spans[span.parent].kind in (Kind.USER, Kind.FRAMEWORK)
        if span.kind not in (Kind.CALL, Kind.NODE) or not outermost:
            continue
        own = (f for f in trace.stack(span) if not f.file.startswith(f"rabbet{os.sep}"))
        line = next(own, None)
        if line is not None:
            backward = "" if span.kind is Kind.CALL else " (backward)"
            found[f"{line}{backward}"] += (span.end - span.begin) / 1e9
    return sorted(found.items(), key=lambda item: -item[1])
