"""Run worker processes that work through named items, and start them again behind an item that ended its process.

A worker appends JSON lines to the file $GPU_CHECK_EVENTS: `{"items": [NAME, ...]}` once, then `{"begin": NAME}` and
`{"end": NAME, "outcome": "passed" | "failed" | "skipped", "note": TEXT}` for each. It leaves out the items that
$GPU_CHECK_DONE lists. An item that takes too long, or whose process dies in it, has failed; the next process goes on with the
others. So neither a hanging kernel nor an error that stays with a CUDA context takes other items along.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POLL = 0.1


@dataclass
class Job:
    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)


@dataclass
class Report:
    """What one job did, over all of its processes."""

    name: str
    items: list[str] | None = None  # unknown until the worker says it
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: str = ""  # the job itself failed: no item is to blame
    late: bool = False  # its time was over
    starts: int = 0
    status: int | None = None  # of the last process

    def names(self, outcome: str) -> list[str]:
        return [name for name, found in self.outcomes.items() if found["outcome"] == outcome]

    def cut(self) -> list[str]:
        return [name for name in self.items or [] if name not in self.outcomes]


class Worker:
    """One job and its current process."""

    def __init__(self, job: Job, folder: Path, launch: Callable[..., subprocess.Popen]) -> None:
        self.job, self.launch = job, launch
        self.log = folder / f"{job.name}.log"
        self.events, self.done = (folder / f"{job.name}.{kind}" for kind in ("events", "done"))
        self.report = Report(job.name)
        self.start()

    def start(self) -> None:
        self.events.write_text("")
        self.done.write_text("\n".join(self.report.outcomes))
        self.read, self.partial = 0, ""
        self.current, self.began = "", 0.0
        self.ended = len(self.report.outcomes)
        self.report.starts += 1
        files = {"GPU_CHECK_EVENTS": str(self.events), "GPU_CHECK_DONE": str(self.done)}
        self.process = self.launch(self.job.command, self.log, **self.job.env, **files)

    def take(self) -> None:
        """Read the events that have come since."""
        with self.events.open() as events:
            events.seek(self.read)
            text = self.partial + events.read()
            self.read = events.tell()
        *lines, self.partial = text.split("\n")
        for event in map(json.loads, filter(None, lines)):
            if "items" in event and self.report.items is None:
                self.report.items = event["items"]
            elif "begin" in event:
                self.current, self.began = event["begin"], time.monotonic()
            elif "end" in event:
                self.finish(event["outcome"], event.get("note", ""), event["end"])

    def finish(self, outcome: str, note: str, name: str = "") -> None:
        seconds = round(time.monotonic() - self.began, 2)
        self.report.outcomes[name or self.current] = {
            "outcome": outcome,
            "note": note,
            "seconds": seconds,
        }
        self.current = ""

    def goes_on(self, item_seconds: float) -> bool:
        """False once the job is over."""
        status = self.process.poll()
        self.take()
        if status is None:
            if self.current and time.monotonic() - self.began > item_seconds:
                kill(self.process)
                self.finish("failed", f"took more than {item_seconds:g} s")
                return self.again()
            return True
        self.report.status = status
        kill(self.process)  # what it left running
        if self.current:
            self.finish("failed", f"its process ended: {ending(status)}; {last_words(self.log)}")
            return self.again()
        if self.report.items is None:
            self.report.error = f"{ending(status)}; {last_words(self.log)}"
            return False
        return self.again()

    def again(self) -> bool:
        """Go on behind the items that are done; not where the last process did none."""
        if not self.report.cut():
            return False
        if len(self.report.outcomes) == self.ended:
            self.report.error = (
                f"{ending(self.report.status)} before any item; {last_words(self.log)}"
            )
            return False
        self.start()
        return True


def ending(status: int | None) -> str:
    if status is not None and status < 0:
        return signal.Signals(-status).name
    return f"exit status {status}"


def last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"


def kill(process: subprocess.Popen) -> None:
    """With the processes that it started: each worker leads a session of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def supervise(
    jobs: list[Job],
    folder: Path,
    launch: Callable[..., subprocess.Popen],
    seconds: float,
    item_seconds: float,
    workers: int,
) -> list[Report]:
    """Reports of all jobs, in their order, after at most `seconds`; `workers` of them run at a time."""
    end = time.monotonic() + seconds
    waiting, running, reports = list(jobs), [], {job.name: Report(job.name) for job in jobs}
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < workers:
                worker = Worker(waiting.pop(0), folder, launch)
                reports[worker.job.name] = worker.report
                running.append(worker)
            running = [worker for worker in running if worker.goes_on(item_seconds)]
            time.sleep(POLL)
    finally:
        for worker in running:
            kill(worker.process)
            worker.take()
    for worker in running:
        worker.report.late = bool(worker.report.cut()) or worker.report.items is None
    for job in waiting:
        reports[job.name].late = True
    return [reports[job.name] for job in jobs]
