"""Files that processes leave in /dev/shm."""

import os
import time


def shared_files() -> set[str]:
    """The names in /dev/shm."""
    return set(os.listdir("/dev/shm"))


def left_since(before: set[str], patience: float = 20.0) -> set[str]:
    """Names that are not in `before` and stay for that many seconds.

    Tests that run at the same time keep files of their own there for a moment, such as the semaphores of queues.
    """
    until = time.monotonic() + patience
    left = shared_files() - before
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left &= shared_files()
    return left
