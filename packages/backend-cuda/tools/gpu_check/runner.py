"""Processes of the stages: with a limit of time each, their output in a log, their results as JSON."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facts import libraries
from supervise import Job, Report, kill, supervise

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent
ROOT = PACKAGE.parent.parent


@dataclass
class Result:
    status: str  # passed, cut (nothing failed, but not all ran), failed, skipped
    note: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Stage:
    name: str
    seconds: int  # which it has in any case
    run: Callable[["Check"], Result]
    most: int = 0  # which it may take of what the stages before it left over

    def limit(self, left: float, later: float) -> float:
        """Of the seconds that are left, those that later stages do not need."""
        return min(max(self.seconds, self.most), left - later)


class Failed(Exception):
    """A stage ends as failed, with this note."""


@contextmanager
def sigterm_deferred() -> Iterator[None]:
    """A SIGTERM that arrives in the block takes effect at its end."""
    arrived = []
    before = signal.signal(signal.SIGTERM, lambda *_: arrived.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if arrived:
            signal.raise_signal(signal.SIGTERM)


class Check:
    """What the stages share: folders, the environment of processes, the time that is left."""

    def __init__(
        self,
        out: Path,
        simulated: bool,
        site: Path | None = None,
        wheels: Path | None = None,
        chosen: dict[str, list[str]] | None = None,
        seed: int = 0,
    ) -> None:
        self.out, self.simulated, self.given_site, self.given_wheels = out, simulated, site, wheels
        self.chosen, self.seed = chosen or {}, seed
        self.workers = max(2, min(12, (os.cpu_count() or 2) - 2))
        self.work = ROOT / "build" / "gpu_check" / ("simulated" if simulated else "real")
        self.logs = self.work / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.site = site or self.work.parent / "site"
        self.env = dict(os.environ)
        paths = [str(self.site), str(HERE), *filter(None, [self.env.get("PYTHONPATH")])]
        self.env["PYTHONPATH"] = os.pathsep.join(paths)
        self.env["GPU_CHECK_SMALL"] = "1" if simulated else ""
        self._log: Path | None = None
        self.env |= self.simulator() if simulated else libraries() | self.env
        self._end = 0.0
        self.limit = 0.0
        self._started: list[subprocess.Popen] = []

    def simulator(self) -> dict[str, str]:
        """Build the simulator where that is not done yet; environment variables that put it in place."""
        command = [sys.executable, str(PACKAGE / "sim" / "build.py")]
        if self._log:  # within the stage's time
            text = self.command(*command)
        else:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            text = done.stdout
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def with_libraries(self) -> dict[str, str]:
        """Environment variables for cuBLASLt and cuDNN: those of the machine, or the simulator's."""
        if not self.simulated:
            return {}
        return {"RABBET_CUDA_CUDNN": str(Path(self.env["CUSIM_FOLDER"]) / "libcudnn_sim.so")}

    def begin(self, name: str, seconds: float) -> None:
        self.limit = seconds
        self._end = time.monotonic() + seconds
        self._log = self.logs / f"{name}.log"
        self._log.write_text("")

    def run(self, stage: Stage, seconds: float) -> Result:
        self.begin(stage.name, seconds)
        try:
            return stage.run(self)
        except Failed as failed:
            return Result("failed", str(failed))
        except Exception as error:
            self.note(traceback.format_exc())
            return Result("failed", f"{type(error).__name__}: {error}")
        finally:
            self._end_processes()

    def _end_processes(self) -> None:
        """End the processes that a SIGTERM kept from reaching the caller of `start`."""
        for process in self._started:
            if process.poll() is None:
                kill(process)
        self._started.clear()

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def note(self, text: str) -> None:
        """Into the stage's log."""
        assert self._log is not None
        with self._log.open("a") as log:
            print(text, file=log)

    def start(self, command: list[str], log: Path, **env: str) -> subprocess.Popen:
        with log.open("a") as to:
            print("$", *command, file=to, flush=True)
            with sigterm_deferred():
                process = subprocess.Popen(
                    command,
                    stdout=to,
                    stderr=subprocess.STDOUT,
                    cwd=ROOT,
                    env=self.env | env,
                    start_new_session=True,
                )
                self._started.append(process)
            return process

    def wait(self, process: subprocess.Popen, seconds: float) -> int | None:
        """The exit status; None where it was ended because its time was over."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill(process)  # with what it left running

    def command(self, *words: str | Path, seconds: float | None = None, **env: str) -> str:
        """What a command prints; it fails the stage if it fails or takes too long."""
        return self.try_command(*words, seconds=seconds, must=True, **env)[1]

    def try_command(
        self, *words: str | Path, seconds: float | None = None, must: bool = False, **env: str
    ) -> tuple[int | None, str]:
        command = [str(word) for word in words]
        assert self._log is not None
        began = self._log.stat().st_size
        limit = min(self.left(), seconds or self.left())
        status = self.wait(self.start(command, self._log, **env), limit)
        with self._log.open("rb") as log:
            log.seek(began)
            text = log.read().decode(errors="replace").split("\n", 1)[-1]
        if must and status != 0:
            why = f"took more than {limit:.0f} s" if status is None else f"exit status {status}"
            raise Failed(f"{Path(command[-1]).name}: {why}; {last_line(text)[:1000]}")
        return status, text

    def script(
        self, name: str, *words: str | Path, seconds: float | None = None, **env: str
    ) -> dict[str, Any]:
        """The JSON object that a script prints as its last line. It may have `skipped`, a reason."""
        path = name if os.path.isabs(name) else HERE / name
        text = self.command(sys.executable, path, *words, seconds=seconds, **env)
        return json.loads(last_line(text))

    def supervise(
        self, jobs: list[Job], item_seconds: float, workers: int | None = None
    ) -> list[Report]:
        """Of processes that work through items, side by side, until the stage's time is over."""
        seconds = max(0.0, self.left() - 1)  # a second to stop them all
        if len(jobs) > 1:  # the CPU computes what the device is compared with
            threads = max(1, 2 * (os.cpu_count() or 2) // min(len(jobs), self.workers))
            for job in jobs:
                job.env.setdefault("RABBET_NUM_THREADS", str(threads))
        return supervise(
            jobs, self.logs, self.start, seconds, item_seconds, workers or self.workers
        )

    def seconds(self, share: float = 1.0) -> str:
        """For a script that stops by itself, some seconds before it is ended."""
        return str(max(1, int(share * self.left() - 10)))


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
