"""The tools of compute-sanitizer over each family, a process for each, side by side."""

import sys
from pathlib import Path

from facts import program
from family_names import FAMILIES, USE_LIBRARIES, WITHOUT_LIBRARIES
from runner import HERE, Check, Result
from supervise import Job, Report

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# Each tensor is an allocation of its own; reports name lines of the kernels' text.
EXACT = {"RABBET_CUDA_EXACT": "1", "RABBET_CUDA_LINEINFO": "1"}
FOUND = 9  # the tool's exit status where it found something


def jobs(check: Check, tool: str | None) -> dict[str, Job]:
    """By `TOOL: FAMILY`, our kernels first; families that use libraries with them, too."""
    names = TOOLS if tool else ("simulator",)
    libraries = {False: WITHOUT_LIBRARIES, True: check.with_libraries()}
    wanted = [(name, family, False) for name in names for family in FAMILIES]
    wanted += [(name, family, True) for name in names[:1] for family in USE_LIBRARIES]
    found = {}
    for name, family, with_ in wanted:
        words = [tool, "--tool", name, "--error-exitcode", str(FOUND)] if tool else []
        words += ["--report-api-errors", "no"] if name == "memcheck" else []
        command = [*words, sys.executable, str(HERE / "family.py"), family, "--plain"]
        env = EXACT | libraries[with_]
        env |= {} if check.simulated else {"RABBET_CUDA_CACHE": str(check.work / "lines-cache")}
        env |= {"CUSIM_CHECK": "all"} if check.simulated else {}
        label = f"{name}: {family}{' with libraries' if with_ else ''}"
        found[label] = Job(label.replace(": ", "-").replace(" ", "-"), command, env)
    return found


def sanitizers(check: Check) -> Result:
    """Memory, races, barriers and uninitialized reads of every family; the simulator's checkers in their place there."""
    tool = None if check.simulated else program("compute-sanitizer")
    if not tool and not check.simulated:
        return Result(
            "skipped",
            f"compute-sanitizer is not here; not run: {', '.join(TOOLS)} of {', '.join(FAMILIES)}",
        )
    reason = refused(check, tool) if tool else ""
    if reason:
        return Result("skipped", f"{reason}; not run: {', '.join(TOOLS)} of {', '.join(FAMILIES)}")
    wanted = jobs(check, tool)
    reports = check.supervise(list(wanted.values()), 240 if check.simulated else 90)
    verdicts = {
        label: judged_tool(report, check.logs / f"{report.name}.log", bool(tool))
        for label, report in zip(wanted, reports, strict=True)
    }
    return summed_up(verdicts, check.simulated)


def refused(check: Check, tool: str) -> str:
    """Why the tool does not work on this machine at all: found once, not by each of the processes."""
    words = [tool, "--tool", "memcheck", "--error-exitcode", str(FOUND), sys.executable]
    words += [str(HERE / "family.py"), "elementwise", "--plain", "--only", "add float32 8"]
    status, text = check.try_command(*words, seconds=60, **EXACT)
    said = verdict(status, text)
    return said.removeprefix("skipped: ") if said.startswith("skipped") else ""


def judged_tool(report: Report, log: Path, tool: bool) -> str:
    """What became of one tool over one family; passed only if all calls ran and the tool says that it found nothing."""
    text = log.read_text(errors="replace") if log.exists() else ""
    failed = report.names("failed")
    if tool and ("=========" in text or not report.late):
        said = verdict(None if report.late else report.status, text)
        if said.startswith("failed") and not (report.late and said == LATE):
            return said
    if failed:
        return f"failed: {failed[0]}: {report.outcomes[failed[0]]['note'][:300]}"
    if report.error:
        return f"failed: {report.error}"
    if report.late:
        return f"cut: {len(report.cut())} calls not run" if report.items else "cut: not run"
    return "passed"


LATE = "failed: out of time"


def verdict(status: int | None, text: str) -> str:
    """What a tool of compute-sanitizer found; passed only if it says so itself."""
    lines = [line.strip("= ") for line in text.splitlines() if line.startswith("=====")]
    summaries = [line for line in lines if "SUMMARY" in line]
    summary = next(
        (line for line in summaries if "SUMMARY: 0 " not in line), (summaries or [""])[-1]
    )
    first = next((line for line in lines if line and "COMPUTE-SANITIZER" not in line), "")
    if status is None:
        return f"{LATE}; {first}".rstrip("; ")
    if status == 0 and "SUMMARY: 0 " in summary:
        return "passed"
    if not summary and "not supported" in text.lower():
        return f"skipped: {first}"
    return f"failed: exit status {status}; {summary}; {first}"


def summed_up(verdicts: dict[str, str], simulated: bool) -> Result:
    kinds = {
        kind: [k for k, v in verdicts.items() if v.startswith(kind)]
        for kind in ("failed", "cut", "passed")
    }
    note = f"{len(kinds['passed'])} of {len(verdicts)} passed"
    note += (
        f"; {'; '.join(f'{name} {verdicts[name]}' for name in kinds['failed'][:5])}"
        if kinds["failed"]
        else ""
    )
    note += f"; cut: {', '.join(kinds['cut'])}" if kinds["cut"] else ""
    if simulated:
        note += (
            f"; by the simulator's checkers: {', '.join(TOOLS)} of compute-sanitizer did not run"
        )
    status = next((kind for kind in ("failed", "cut") if kinds[kind]), "passed")
    return Result(status, note, {"verdicts": verdicts})
