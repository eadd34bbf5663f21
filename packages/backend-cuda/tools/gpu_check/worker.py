"""The side of a worker of supervise.py: says which items there are, and what becomes of each."""

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

DEVICE_FAILED = 70  # exit status of a process whose device refuses further work


class Skipped(Exception):
    """An item cannot run here, for this reason."""


def say(**event: object) -> None:
    """For the process that started this one; on stderr where none did."""
    path = os.environ.get("GPU_CHECK_EVENTS")
    if path:
        with open(path, "a") as events:
            events.write(json.dumps(event) + "\n")
    else:
        print(event, file=sys.stderr)


def done() -> set[str]:
    path = os.environ.get("GPU_CHECK_DONE")
    return set(Path(path).read_text().split("\n")) if path else set()


def device_failed(error: BaseException) -> bool:
    """Whether the device refuses all further work of this process."""
    return type(error).__name__ in ("DeviceError", "AcceleratorError")  # ours and torch's


def work_through(items: dict[str, Callable[[], object]]) -> int:
    """Call each; what one returns is its note, and what it raises its failure. The exit status is 1 if one failed."""
    say(items=list(items))
    before, failed = done(), False
    for name, call in items.items():
        if name in before:
            continue
        say(begin=name)
        try:
            note = call()
        except Skipped as why:
            say(end=name, outcome="skipped", note=str(why))
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            say(end=name, outcome="failed", note=f"{type(error).__name__}: {error}"[:500])
            failed = True
            if device_failed(error):
                os._exit(DEVICE_FAILED)
        else:
            say(end=name, outcome="passed", note=str(note or ""))
    return int(failed)
