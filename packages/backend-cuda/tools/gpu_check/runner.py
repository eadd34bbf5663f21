"""Processes of the stages: with a limit of time each, their output in a log, their results as JSON."""

import importlib.util
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent
ROOT = PACKAGE.parent.parent
LAST_WORDS = 10  # seconds that a process has to finish when its time is over


@dataclass
class Result:
    status: str  # passed, failed, skipped
    note: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Stage:
    name: str
    seconds: int
    run: Callable[["Check"], Result]


class Failed(Exception):
    """A stage ends as failed, with this note."""


class Check:
    """What the stages share: folders, the environment of processes, the time that is left."""

    def __init__(
        self, out: Path, simulated: bool, site: Path | None = None, wheels: Path | None = None
    ) -> None:
        self.out, self.simulated, self.given_site, self.given_wheels = out, simulated, site, wheels
        self.work = ROOT / "build" / "gpu_check" / ("simulated" if simulated else "real")
        self.logs = self.work / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.site = site or self.work.parent / "site"
        self.env = dict(os.environ)
        paths = [str(self.site), str(HERE), *filter(None, [self.env.get("PYTHONPATH")])]
        self.env["PYTHONPATH"] = os.pathsep.join(paths)
        self.env["GPU_CHECK_SMALL"] = "1" if simulated else ""
        self.env |= self.simulator() if simulated else libraries() | self.env
        self._log: Path | None = None
        self._end = 0.0

    def simulator(self) -> dict[str, str]:
        return runpy.run_path(str(PACKAGE / "sim" / "build.py"))["build"]()

    def run(self, stage: Stage, seconds: float) -> Result:
        self._end = time.monotonic() + seconds
        self._log = self.logs / f"{stage.name}.log"
        self._log.write_text("")
        try:
            return stage.run(self)
        except Failed as failed:
            return Result("failed", str(failed))
        except Exception as error:
            self.note(traceback.format_exc())
            return Result("failed", f"{type(error).__name__}: {error}")

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
            return subprocess.Popen(
                command,
                stdout=to,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self.env | env,
                start_new_session=True,
            )

    def wait(self, process: subprocess.Popen, seconds: float) -> int | None:
        """The exit status; None where it was ended because its time was over."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest reports what it has
            try:
                process.wait(LAST_WORDS)
            except subprocess.TimeoutExpired:
                pass
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return None

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

    def seconds(self) -> str:
        """For a script that stops by itself before it is ended."""
        return str(max(1, int(self.left() - LAST_WORDS)))


def libraries() -> dict[str, str]:
    """Where the libraries of the nvidia-* wheels of this Python lie: the backend looks beside itself, in another folder."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in spec.submodule_search_locations or []] if spec else []
    found = {}
    for variable, pattern in {
        "RABBET_CUDA_NVRTC": "libnvrtc.so.1*",
        "RABBET_CUDA_CUBLASLT": "libcublasLt.so.1*",
        "RABBET_CUDA_CUDNN": "libcudnn.so.9",
    }.items():
        paths = [path for root in roots for path in sorted(root.glob(f"*/lib/{pattern}"))]
        if paths:
            found[variable] = str(paths[-1])  # the newest
    return found


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
