"""Child processes that run calls: the parent survives their crashes, hangs and use of memory."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ALONE = Path(__file__).with_name("child.py")  # what runs where rabbet is not installed
AHEAD = 16  # calls sent before the first of them is answered
START = 120.0  # seconds that importing the library may take


class Child:
    """A process that runs calls; a new one takes the place of one that ended or hangs.

    Args:
        library: the module whose functions are called.
        timeout: seconds in which a call is answered.
    """

    def __init__(self, python: str, library: str, timeout: float = 20.0) -> None:
        program = [str(ALONE)] if library == "torch" else ["-m", "rabbet_testing.fuzz.ours"]
        self.command, self.timeout = [python, *program, library], timeout
        self.process: subprocess.Popen[bytes] | None = None
        self.unread = b""

    def run(self, call: dict[str, Any]) -> dict[str, Any]:
        """The child's answer, or `crash` with its exit status, or `hang`."""
        return next(self.run_all([call]))

    def run_all(self, calls: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The answers in the order of the calls; a call that ends the child is answered for it."""
        sent = 0
        for done in range(len(calls)):
            if self.process is None:
                self._start()
                sent = done
            last = min(done + AHEAD, len(calls))
            self._send(calls[sent:last])
            sent = last
            yield self._answer(self.timeout)

    def _start(self) -> None:
        """A new process, which says that the library is there."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE)  # fmt: skip
        if "ready" not in self._answer(START):
            raise RuntimeError(f"{' '.join(self.command)}: it does not start")

    def _send(self, calls: Sequence[dict[str, Any]]) -> None:
        assert self.process is not None and self.process.stdin is not None
        try:
            for call in calls:
                self.process.stdin.write(json.dumps(call).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: the answers that it gave are read first

    def _answer(self, timeout: float) -> dict[str, Any]:
        process = self.process
        assert process is not None and process.stdout is not None
        descriptor = process.stdout.fileno()
        while b"\n" not in self.unread:
            ready, _, _ = select.select([descriptor], [], [], timeout)
            part = os.read(descriptor, 1 << 16) if ready else b""
            if not part:
                status = process.wait() if ready else None
                self.close()
                return {"hang": timeout} if status is None else {"crash": status}
            self.unread += part
        line, self.unread = self.unread.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            try:
                self.process.communicate()
            except BrokenPipeError:
                pass
            self.process, self.unread = None, b""
