"""Several processes that run one function, watched together."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"


class ProcessException(Exception):
    """A process failed.

    Attributes:
        msg: what happened.
        error_index: which of the processes it was.
        pid: its id.
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function raised an exception, whose traceback is in the message."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process ended by a signal or with an exit code that is not 0.

    Attributes:
        exit_code: the code; minus the signal's number.
        signal_name: the signal, or None.
    """

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], error_file: str) -> None:
    """The body of process `i`: an exception goes to the file, as text."""
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # the parent reports its own
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """The processes that start_processes() started.

    Attributes:
        processes: one per index.
        sentinels: their handles, by which `multiprocessing.connection.wait` waits.
    """

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.error_files = error_files
        self.processes = processes
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends; True once all have ended well.

        Call it until it returns True. If one failed, the others are ended, and its failure is raised.

        Args:
            timeout: seconds to wait for a process at most.
            grace_period: seconds that the others have to end by themselves.

        Raises:
            ProcessRaisedException: if the function raised.
            ProcessExitedException: if a process ended in another way than well.
        """
        if not self.sentinels:
            self._remove_files()
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels and self.join()
        self._end_all(grace_period)
        try:
            self._raise(failed)
        finally:
            self._remove_files()
        return False

    def _remove_files(self) -> None:
        for folder in {os.path.dirname(file) for file in self.error_files}:
            shutil.rmtree(folder, ignore_errors=True)

    def _end_all(self, grace_period: float | None) -> None:
        until = time.monotonic() + (grace_period or 0)
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        if os.path.getsize(self.error_files[index]) > 0:
            with open(self.error_files[index], "rb") as file:
                text = pickle.load(file)
            raise ProcessRaisedException(
                f"\n\n-- Process {index} terminated with the following error:\n{text}",
                index,
                process.pid,
            )
        if process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            raise ProcessExitedException(
                f"process {index} terminated with signal {name}",
                index,
                process.pid,
                process.exitcode,
                name,
            )
        raise ProcessExitedException(
            f"process {index} terminated with exit code {process.exitcode}",
            index,
            process.pid,
            process.exitcode,
        )


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes, i from 0.

    Args:
        fn: a function of a module, for start methods other than 'fork'.
        args: what can be pickled, for these; the memory of tensors is shared.
        join: wait for all of them; else returns a ProcessContext.
        daemon: end the processes with this one.
        start_method: 'spawn', 'fork' or 'forkserver'.

    Raises:
        ProcessRaisedException, ProcessExitedException: if a process fails, with `join`.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    folder = tempfile.mkdtemp(prefix="rabbet-processes-")
    error_files = [os.path.join(folder, str(i)) for i in range(nprocs)]
    for i, error_file in enumerate(error_files):
        open(error_file, "wb").close()
        process = context.Process(target=_run, args=(fn, i, args, error_file), daemon=daemon)
        process.start()
        processes.append(process)
    found = ProcessContext(processes, error_files)
    if not processes:
        os.rmdir(folder)
    if not join:
        return found
    while not found.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """start_processes() with the start method 'spawn'."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\n"
            "To use a different start_method use:\n\t\t torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
