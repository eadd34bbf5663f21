"""Processes that Python starts anew: torch is rabbet in them, too. A forked process needs nothing."""

import functools
import multiprocessing
import multiprocessing.spawn
from typing import Any

_PRELOAD = "rabbet._as_torch.preload"


def install() -> None:
    """Make new interpreters of `multiprocessing`, spawned or in its fork server, begin with as_torch()."""
    spawn: Any = multiprocessing.spawn
    plain = spawn.get_command_line

    @functools.wraps(plain)
    def get_command_line(**options: Any) -> list[str]:
        command: list[str] = plain(**options)
        if "-c" in command:
            at = command.index("-c") + 1
            command[at] = f"import {_PRELOAD}; {command[at]}"
        return command

    spawn.get_command_line = get_command_line
    multiprocessing.set_forkserver_preload([_PRELOAD])
