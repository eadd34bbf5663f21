"""Outcomes of a run, and what is written from them: JSON, a support table, a badge."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn
from xml.sax.saxutils import escape

import pytest
import rabbet
from rabbet import _C

from ..judges.reasons import NOT_APPLICABLE, Reason, reason_of, skip
from ..judges.reference import ALL_DTYPES
from .subject import Subject

SCHEMA = 1  # of the JSON; grows when a field changes its meaning or goes
OUTCOMES = ("passed", "failed", "not declared", "not implemented", "not applicable")


@dataclass
class Outcome:
    """How one test ended.

    Attributes:
        level: "L0" to "L4", "layer" or "ops".
        test: the name of the test function; `op`, `dtype`: what it was given, or "".
        outcome: one of OUTCOMES. "not declared" is an operator and dtype that the device does not offer, "not
            implemented" anything else that is not there; neither is a failure.
        notes: what the test said beside it, and why it was skipped or failed.
        reason: of a test that judged nothing, the name of a `Reason`; else "".
    """

    level: str
    test: str
    op: str
    dtype: str
    outcome: str
    notes: list[str] = field(default_factory=list)
    reason: str = ""

    @classmethod
    def of(cls, report: pytest.TestReport) -> Outcome | None:
        """The outcome that a phase of a test decides, or None."""
        said: Any = dict(report.user_properties).get("rabbet")
        if said is None and report.failed:  # the process that ran the test is gone
            return cls(**_from_id(report.nodeid), outcome="failed", notes=[_short(report.longrepr)])
        if said is None or (report.when != "call" and report.passed):
            return None
        notes = [str(value) for name, value in report.user_properties if name == "rabbet note"]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            return cls(**said, outcome="failed", notes=[*notes, _short(crash or report.longrepr)])
        if report.passed:
            return cls(**said, outcome="passed", notes=notes)
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        words = text.removeprefix("Skipped: ")
        reason = reason_of(words)
        if reason is None:
            words = f"skipped for none of the written reasons: {words}"
            return cls(**said, outcome="failed", notes=[*notes, words])
        outcome = reason.value[0]
        return cls(**said, outcome=outcome, notes=[*notes, words], reason=reason.name)


def level_of(file: str) -> str:
    """The level of a file of tests: "L2" of test_l2_ops.py, "layer" of test_layer.py, "ops" of test_ops.py."""
    part = Path(file).stem.split("_")[1]
    return part if part in ("layer", "ops") else part.upper()


def _from_id(node: str) -> dict[str, str]:
    """Level, test, operator and dtype of "FOLDER/test_l2_ops.py::TEST[OP-DTYPE]"."""
    called, _, given = node.rstrip("]").partition(".py::")[2].partition("[")
    op, _, dtype = given.partition("-")
    return {"level": level_of(node.partition(".py::")[0]), "test": called, "op": op, "dtype": dtype}


def _short(crash: Any) -> str:
    return str(getattr(crash, "message", crash))[:2000]


def _counted(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """How often each outcome follows each name."""
    found: dict[str, Counter[str]] = {}
    for name, outcome in pairs:
        found.setdefault(name, Counter())[outcome] += 1
    return {name: {k: c[k] for k in OUTCOMES if c[k]} for name, c in sorted(found.items())}


class Recorder:
    """What a test says beside its outcome."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def note(self, text: str) -> None:
        """Add a line to the report of this test."""
        self._properties.append(("rabbet note", text))

    def not_implemented(self, what: str, reason: Reason = Reason.NOT_OFFERED) -> NoReturn:
        """End the test: the subject does not have this, and need not."""
        skip(reason, what)


class Report:
    """All outcomes of a run."""

    def __init__(self, subject: Subject, levels: list[str]) -> None:
        self.subject, self.levels = subject, levels
        self.status = 0  # pytest's, of the whole run
        self.outcomes: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a test; a failure at the end of a test that passed replaces it."""
        if self.outcomes and outcome.outcome == "failed":
            last = self.outcomes[-1]
            same = (last.level, last.test, last.op, last.dtype)
            if same == (outcome.level, outcome.test, outcome.op, outcome.dtype):
                self.outcomes.pop()
        self.outcomes.append(outcome)

    def counts(self) -> dict[str, dict[str, int]]:
        """For each level how many tests had which outcome."""
        return _counted((o.level, o.outcome) for o in self.outcomes)

    def derivatives(self) -> dict[str, dict[str, int]]:
        """The same for each test of L3, of which each is over many operators."""
        tested = [o for o in self.outcomes if o.level == "L3"]
        return _counted((o.test.removeprefix("test_"), o.outcome) for o in tested)

    def reasons(self) -> dict[str, dict[str, int]]:
        """For each level how often something was not judged for which reason: tests, and parts of tests that passed."""
        found: dict[str, Counter[str]] = {}
        for o in self.outcomes:
            named = [r.name for note in o.notes if (r := reason_of(note))]
            found.setdefault(o.level, Counter()).update(named)
        return {level: dict(sorted(c.items())) for level, c in sorted(found.items()) if c}

    @property
    def conformant(self) -> bool:
        """Whether the run came to its end, something passed, and nothing failed."""
        kinds = {o.outcome for o in self.outcomes}
        return self.status == 0 and "passed" in kinds and "failed" not in kinds

    def adjustments(self) -> dict[str, Any]:
        """What the plugin asked the kit for: every declaration is part of the report."""
        names = [*self.levels, "layer", "ops"]
        given = {level: self.subject.params(level) for level in names}
        return {level: _plain(found) for level, found in given.items() if found}

    def summary(self) -> list[str]:
        """Lines for people."""
        lines = []
        for level, counts in self.counts().items():
            lines.append(f"{level}: " + ", ".join(f"{n} {k}" for k, n in counts.items()))
        for test, counts in self.derivatives().items():
            said = ", ".join(f"{n} {k}" for k, n in counts.items())
            lines.append(f"L3 {test.replace('_', ' ')}: {said}")
        for level, reasons in self.reasons().items():
            said = ", ".join(f"{n} {name}" for name, n in reasons.items())
            lines.append(f"{level} not judged: {said}")
        for level, given in self.adjustments().items():
            lines += [f"{level} declares {key}: {value}" for key, value in given.items()]
        verdict = "conformant" if self.conformant else "NOT conformant"
        return [*lines, f"{self.subject.kind} {self.subject.name}: {verdict}"]

    # ---- files

    def json(self) -> str:
        """The report as README.md of this package describes it."""
        told = ("kind", "name", "wheel", "version", "library")
        subject = {key: getattr(self.subject, key) for key in told}
        data = {
            "schema": SCHEMA,
            "subject": subject,
            "versions": {
                "rabbet-testing": _version("rabbet-testing"),
                "rabbet-core": _C.__version__,
                "abi": ".".join(map(str, _C.abi)),
                "python": platform.python_version(),
            },
            "platform": platform.platform(),
            "selection": {"levels": self.levels},
            "conformant": self.conformant,
            "levels": self.counts(),
            "reasons": self.reasons(),
            "declared": self.adjustments(),
            "results": [asdict(o) for o in self._sorted()],
        }
        return json.dumps(data, indent=1) + "\n"

    def _sorted(self) -> list[Outcome]:
        return sorted(self.outcomes, key=lambda o: (o.level, o.test, o.op, o.dtype))

    def table(self) -> str:
        """Markdown: the levels, and which operators run in which dtypes."""
        return support_table(json.loads(self.json()))

    def badge(self) -> str:
        """An SVG of the verdict."""
        passed = sorted(
            level for level, counts in self.counts().items() if not counts.get("failed")
        )
        text = " ".join(passed) if self.conformant else "not conformant"
        return badge(f"rabbet {self.subject.kind} {self.subject.name}", text, self.conformant)


def _plain(value: Any) -> Any:
    """As JSON takes it; functions by name, tensors by dtype and shape."""
    if isinstance(value, rabbet.Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def _version(wheel: str) -> str:
    try:
        return version(wheel)
    except PackageNotFoundError:
        return "?"


_MARKS = {"passed": "yes", "failed": "**fails**", "not declared": "", "not applicable": "-"}


_WORDS = {"ops": "operators"}
_LEGEND = (
    "`yes`: as its schema and record say, in all dtypes that it takes; `part`: as the report's notes say; `no`: not "
    "implemented; `-`: there is nothing to judge; empty: not declared."
)


def _levels_table(levels: dict[str, dict[str, int]]) -> Iterable[str]:
    yield "| level | " + " | ".join(OUTCOMES) + " |"
    yield "|---|" + "---:|" * len(OUTCOMES)
    for level, counts in levels.items():
        yield f"| {level} | " + " | ".join(str(counts.get(k, "")) for k in OUTCOMES) + " |"


def support_table(data: dict[str, Any]) -> str:
    """The Markdown table of a report that was written as JSON."""
    subject, versions = data["subject"], data["versions"]
    lines = [
        f"# Conformance of the {_WORDS.get(subject['kind'], subject['kind'])} `{subject['name']}`",
        "",
        f"{subject['wheel']} {subject['version']} with rabbet-core {versions['rabbet-core']} (plugin ABI "
        f"{versions['abi']}), judged by rabbet-testing {versions['rabbet-testing']}: "
        + ("conformant." if data["conformant"] else "**not conformant**."),
        "",
        *_levels_table(data["levels"]),
    ]
    ops = [r for r in data["results"] if r["level"] == "L2" and r["op"] and r["dtype"]]
    if ops:
        legend = (
            "`yes`: agrees with the reference; `part`: where it is declared, as the report's notes say; `-`: the "
            "operator has no meaning there; empty: not declared."
        )
        lines += ["", "## Operators", "", legend, "", *_operators(ops)]
    packed = [r for r in data["results"] if r["level"] == "ops" and r["op"]]
    if packed:
        lines += ["", "## Operators", "", _LEGEND, "", *_judgements(packed)]
    if data["declared"]:
        lines += ["", "## Declared by the plugin", ""]
        for level, given in data["declared"].items():
            lines += [f"- {level}, {key}: `{json.dumps(value)}`" for key, value in given.items()]
    return "\n".join(lines) + "\n"


def _mark(result: dict[str, Any]) -> str:
    # What has no meaning is no part that is missing.
    missing = [
        r for n in result["notes"] if (r := reason_of(n)) is None or r.value[0] != NOT_APPLICABLE
    ]
    if result["outcome"] == "passed" and missing:
        return "part"
    return _MARKS.get(result["outcome"], str(result["outcome"]))


def _operators(results: list[dict[str, Any]]) -> Iterable[str]:
    present = {r["dtype"] for r in results}
    dtypes = [d for d in ALL_DTYPES if d in present]
    marks: dict[str, dict[str, str]] = {}
    for r in results:
        marks.setdefault(r["op"], {})[r["dtype"]] = _mark(r)
    yield "| operator | " + " | ".join(dtypes) + " |"
    yield "|---|" + "---|" * len(dtypes)
    for op, row in sorted(marks.items()):
        yield f"| `{op}` | " + " | ".join(row.get(d, "") for d in dtypes) + " |"


def _judgements(results: list[dict[str, Any]]) -> Iterable[str]:
    """For each operator of a pack how its tests ended; what fails in one dtype fails."""
    tests = list(dict.fromkeys(r["test"] for r in results))
    found: dict[str, dict[str, list[str]]] = {}
    for r in results:
        mark = "no" if r["outcome"] == "not implemented" else _mark(r)
        found.setdefault(r["op"], {}).setdefault(r["test"], []).append(mark)
    yield (
        "| operator | "
        + " | ".join(t.removeprefix("test_").replace("_", " ") for t in tests)
        + " |"
    )
    yield "|---|" + "---|" * len(tests)
    for op, row in sorted(found.items()):
        yield f"| `{op}` | " + " | ".join(_worst(row.get(t, [""])) for t in tests) + " |"


def _worst(marks: list[str]) -> str:
    return next((m for m in (_MARKS["failed"], "part", "yes", "no") if m in marks), marks[0])


def badge(label: str, text: str, good: bool) -> str:
    """A small SVG with two fields."""
    left, right = 7 * len(label) + 12, 7 * len(text) + 12
    colour = "#2e7d32" if good else "#c62828"
    style = 'font-family="Verdana,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
        f"<title>{escape(label)}: {escape(text)}</title>"
        f'<rect width="{left}" height="20" fill="#555"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g {style}><text x="{left / 2:g}" y="14">{escape(label)}</text>'
        f'<text x="{left + right / 2:g}" y="14">{escape(text)}</text></g></svg>\n'
    )
