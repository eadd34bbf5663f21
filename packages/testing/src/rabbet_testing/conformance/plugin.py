"""The kit's pytest plugin: options, what is collected, fixtures, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rabbet import library

from .report import Outcome, Recorder, Report, level_of
from .subject import LEVELS, Subject, SubjectError, find_device, find_layer, find_ops

USAGE = """give what to judge:
  pytest --pyargs rabbet_testing --device=NAME    a backend: the name that users write as a device
  pytest --pyargs rabbet_testing --layer=NAME     a transform: the name of its layer
  pytest --pyargs rabbet_testing --ops=NAMESPACE  a pack of operators: what stands before their `::`"""
FIND = {"device": find_device, "layer": find_layer, "ops": find_ops}
FOLDER = Path(__file__).parent
NAME = "rabbet_testing_kit"
_subject = pytest.StashKey[Subject]()
_report = pytest.StashKey[Report]()


def install(manager: Any) -> None:
    """Register this module with pytest, once."""
    if not manager.has_plugin(NAME):
        import sys

        manager.register(sys.modules[__name__], NAME)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the kit."""
    group = parser.getgroup("rabbet_testing", "conformance kit of Rabbet")
    options: list[tuple[str, dict[str, Any]]] = [
        ("--device", {"metavar": "NAME", "help": "judge the backend of this device"}),
        ("--layer", {"metavar": "NAME", "help": "judge the plugin of this layer"}),
        ("--ops", {"metavar": "NAMESPACE", "help": "judge the operators of this namespace"}),
        ("--level", {"metavar": "L0,L1,..", "help": "levels to judge (default: all)"}),
        ("--conformance-json", {"metavar": "FILE", "help": "write the report as JSON"}),
        ("--conformance-table", {"metavar": "FILE", "help": "write the support table as Markdown"}),
        ("--conformance-badge", {"metavar": "FILE", "help": "write a badge as SVG"}),
    ]
    for name, given in options:
        try:
            group.addoption(name, **given)
        except ValueError as error:
            raise pytest.UsageError(
                f"rabbet_testing: another pytest plugin has the option {name} ({error}); leave it out by -p no:PLUGIN"
            ) from None


def _levels(text: str | None) -> list[str]:
    if text is None:
        return list(LEVELS)
    wanted = [part.strip().upper() for part in text.split(",")]
    for level in wanted:
        if level not in LEVELS:
            raise pytest.UsageError(
                f"rabbet_testing: --level takes {', '.join(LEVELS)}, got {level!r}"
            )
    return wanted


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Find the subject, or say what is wrong."""
    if config.getoption("help", False) or config.getoption("version", 0):
        return
    asked = {kind: name for kind in FIND if (name := config.getoption(f"--{kind}"))}
    if len(asked) != 1:
        both = " and ".join(f"--{kind}" for kind in asked)
        exclude = f"{both} exclude each other; " if asked else ""
        raise pytest.UsageError(f"rabbet_testing: {exclude}{USAGE}")
    levels = _levels(config.getoption("--level"))
    library.strict()
    ((kind, name),) = asked.items()
    try:
        subject = FIND[kind](name)
        _check_declared(subject)
    except (SubjectError, ValueError) as error:
        raise pytest.UsageError(f"rabbet_testing: --{kind}={name}: {error}") from None
    config.stash[_subject] = subject
    config.stash[_report] = Report(subject, levels)


def _check_declared(subject: Subject) -> None:
    """Raise a ValueError if the plugin says of a layer or of operators what the kit cannot use."""
    if subject.kind == "layer":
        _through(subject)
    elif subject.kind == "ops":
        from ..judges.packs import given_calls

        given_calls(subject.params("ops"))


def _through(subject: Subject) -> Any:
    from ..judges.layers import through

    return through(subject.name, subject.params("layer"))


def subject_of(config: pytest.Config) -> Subject:
    """What this run judges."""
    return config.stash[_subject]


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is judged, for the first lines."""
    subject = config.stash.get(_subject, None)
    if subject is None:
        return []
    wheel = f"{subject.wheel} {subject.version}".strip()
    levels = ", ".join(config.stash[_report].levels)
    return [f"rabbet conformance: {subject.kind} {subject.name} [{wheel}], levels {levels}"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the kit's files collect those of the subject's kind and of the levels."""
    path = collection_path
    if path.parent.name != FOLDER.name or not path.name.startswith("test_"):
        return None
    subject = config.stash.get(_subject, None)
    if subject is None or (path.resolve().parent != FOLDER.resolve() and path.parent != FOLDER):
        return None
    levels = config.stash[_report].levels
    level = level_of(path.name)
    if level == "layer" and subject.kind == "layer":
        given = _through(subject)
        wanted = given.make if "composites" in path.name else given.enter or given.call
        return not wanted or not {"L2", "L3"} & set(levels)
    if level in ("layer", "ops"):
        return subject.kind != level or not {"L2", "L3"} & set(levels)
    if subject.kind != "device" and level != "L0":  # the boundary is the same for all
        return True
    return level not in levels


# ---- fixtures


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """The device that is judged, as users write it."""
    return subject_of(request.config).name


@pytest.fixture(scope="session")
def layer(request: pytest.FixtureRequest) -> str:
    """The layer that is judged."""
    return subject_of(request.config).name


@pytest.fixture(scope="session")
def plugin(request: pytest.FixtureRequest) -> Subject:
    """The plugin that provides it."""
    return subject_of(request.config)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Recorder:
    """Says more about the test's outcome than passed or failed."""
    return Recorder(request.node.user_properties)


# ---- the report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note level, operator and dtype of a test, which travel with its outcome between processes."""
    path = Path(item.path)
    if not path.name.startswith("test_"):
        return
    level = level_of(path.name)
    params = getattr(item, "callspec", None)
    values = params.params if params else {}
    item.user_properties.append(
        (
            "rabbet",
            {
                "level": level,
                "test": getattr(item, "originalname", item.name),
                "op": str(values.get("op", "")),
                "dtype": str(values.get("dtype", "")),
            },
        )
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect outcomes; with xdist this runs in the process that gathers them."""
    if _gathering is not None:
        outcome = Outcome.of(report)
        if outcome is not None:
            _gathering.add(outcome)


_gathering: Report | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin to gather, except in a worker of xdist."""
    global _gathering
    worker = hasattr(session.config, "workerinput")
    _gathering = None if worker else session.config.stash.get(_report, None)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the files that were asked for."""
    if _gathering is None:
        return
    _gathering.status = int(exitstatus)
    for option, write in (
        ("--conformance-json", _gathering.json),
        ("--conformance-table", _gathering.table),
        ("--conformance-badge", _gathering.badge),
    ):
        path = session.config.getoption(option)
        if path:
            Path(path).write_text(write(), encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each level, and the verdict."""
    if _gathering is None or not _gathering.outcomes:
        return
    terminalreporter.section("rabbet conformance")
    for line in _gathering.summary():
        terminalreporter.write_line(line)
