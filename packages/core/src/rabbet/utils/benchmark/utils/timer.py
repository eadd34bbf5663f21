"""Timer: how long a statement takes."""

from __future__ import annotations

import enum
import statistics
import textwrap
import timeit
from collections.abc import Callable
from typing import Any, NoReturn

import rabbet

from .common import Measurement, TaskSpec, set_torch_threads
from .valgrind_wrapper.run import count_instructions
from .valgrind_wrapper.timer_interface import CallgrindStats

__all__ = ["Language", "Timer", "timer"]

_OVERHEAD = 1e-3  # of the timer's own calls, in the time of a block
_MAX_BLOCK = 10**9


class Language(enum.Enum):
    """The languages of statements; only Python runs."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """The time in seconds, after the accelerator, if there is one, has finished its work."""
    if rabbet.accelerator.is_available():
        rabbet.accelerator.synchronize()
    return timeit.default_timer()


def _code(name: str, code: Any) -> str:
    if not isinstance(code, str):
        raise TypeError(f"Timer: {name} must be a str, got {type(code).__name__}")
    lines = textwrap.dedent(code).strip("\n").rstrip()
    return lines or "pass"


def _check_language(language: Any) -> None:
    if language in (Language.PYTHON, "py", "python"):
        return
    if language in (Language.CPP, "cpp", "c++"):
        raise NotImplementedError(
            "Timer: language='c++' is not supported; statements must be Python (language='python')"
        )
    raise ValueError(f"Timer: language must be 'py', 'python', 'cpp' or 'c++', got {language!r}")


def _check_time(function: str, name: str, seconds: Any) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"{function}: {name} must be a non-negative number, got {seconds!r}")


class Timer:
    """Measures how long a Python statement takes.

    It follows `timeit.Timer`, runs the statement once before it measures, sets the number of threads of operators, and
    waits for the accelerator before it reads the clock.

    Args:
        stmt: the code to time.
        setup: code that runs before, in the same namespace.
        global_setup: must be empty; PyTorch uses it for C++.
        timer: returns the time in seconds.
        globals: variables of the code.
        label, sub_label, description, env: how `Compare` groups the results.
        num_threads: threads of operators while the code runs.
        language: 'python'.

    Raises:
        NotImplementedError: for C++.
        TypeError, ValueError: for arguments of other types and values.

    Example:
        >>> Timer("x + x", globals={"x": rabbet.ones(3)}).timeit(10).number_per_run
        10
    """

    _timer_cls = timeit.Timer

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        _check_language(language)
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`."
            )
        if globals is not None and not isinstance(globals, dict):
            raise TypeError(f"Timer: globals must be a dict or None, got {type(globals).__name__}")
        if not callable(timer):
            raise TypeError(f"Timer: timer must be callable, got {type(timer).__name__}")
        if isinstance(num_threads, bool) or not isinstance(num_threads, int) or num_threads < 1:
            raise ValueError(f"Timer: num_threads must be a positive int, got {num_threads!r}")
        stmt, setup = _code("stmt", stmt), _code("setup", setup)
        self._globals = {"rabbet": rabbet, "torch": rabbet, **(globals or {})}
        self._timer = self._timer_cls(stmt=stmt, setup=setup, timer=timer, globals=self._globals)
        self._clock = self._timer_cls(
            timer=timer
        )  # an empty statement takes as long as reading the clock
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )

    def _time(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)  # a block cannot take no time

    def timeit(self, number: int = 1000000) -> Measurement:
        """Time one run of `number` executions, after a hundredth as many to warm up."""
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"Timer.timeit: number must be a positive int, got {number!r}")
        with set_torch_threads(self._task_spec.num_threads):
            self._time(max(number // 100, 2))
            return Measurement(number, [self._time(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """Not available, as in PyTorch: `blocked_autorange` repeats runs."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], NoReturn] | None = None) -> NoReturn:
        """Not available, as in PyTorch: see `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """How many executions make the clock's own cost less than a thousandth of a block, within `min_run_time`."""
        overhead = statistics.median(self._clock.timeit(0) for _ in range(5))
        number = 1
        while True:
            seconds = self._time(number)
            if overhead / seconds <= _OVERHEAD and seconds >= min_run_time / 1000:
                return number
            if seconds > min_run_time or number >= _MAX_BLOCK:
                return number
            number *= 10

    def _runs(
        self,
        number: int,
        is_enough: Callable[[list[float]], bool],
        min_run_time: float,
        max_run_time: float,
        callback: Callable[[int, float], Any] | None,
    ) -> list[float]:
        times: list[float] = []
        total = 0.0
        while total < min_run_time or (total < max_run_time and not is_enough(times)):
            times.append(self._time(number))
            total += times[-1]
            if callback is not None:
                callback(number, times[-1])
        return times

    def blocked_autorange(
        self,
        callback: Callable[[int, float], NoReturn] | None = None,
        min_run_time: float = 0.2,
    ) -> Measurement:
        """Time blocks of executions until they took `min_run_time` seconds together.

        Args:
            callback: called after each block with its number of executions and its seconds.
            min_run_time: seconds.
        """
        _check_time("Timer.blocked_autorange", "min_run_time", min_run_time)
        with set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times = self._runs(number, bool, min_run_time, float("inf"), callback)
        return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], NoReturn] | None = None,
    ) -> Measurement:
        """Time blocks of executions until their spread is small.

        Args:
            threshold: the interquartile range divided by the median below which it stops.
            min_run_time: seconds before it checks that, and it needs more than 3 blocks.
            max_run_time: seconds after which it stops in any case.
            callback: called after each block with its number of executions and its seconds.
        """
        for name, value in (("threshold", threshold), ("min_run_time", min_run_time), ("max_run_time", max_run_time)):  # fmt: skip
            _check_time("Timer.adaptive_autorange", name, value)

        def is_enough(times: list[float]) -> bool:
            found = Measurement(number, times, self._task_spec)
            return len(times) > 3 and found.meets_confidence(threshold)

        with set_torch_threads(self._task_spec.num_threads):
            number = self._block_size(min_run_time)
            times = self._runs(number, is_enough, min_run_time, max_run_time, callback)
        return Measurement(number, times, self._task_spec)

    def collect_callgrind(
        self,
        number: int = 100,
        *,
        repeats: int | None = None,
        collect_baseline: bool = True,
        retain_out_file: bool = False,
    ) -> Any:
        """Count the instructions that the statement executes, by Valgrind in another process.

        Args:
            number: executions of the statement.
            repeats: return a tuple of that many results; None: one result.
            collect_baseline: also count the loop around an empty statement, which `counts` subtracts.
            retain_out_file: keep Callgrind's output in the result, as text.

        Raises:
            OSError: if `valgrind` or `callgrind_annotate` is not installed.
            ValueError: for globals that cannot be copied to another process.
        """
        for name, value in (("number", number), ("repeats", 1 if repeats is None else repeats)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(
                    f"Timer.collect_callgrind: {name} must be a positive int, got {value!r}"
                )
        found: tuple[CallgrindStats, ...] = tuple(
            count_instructions(self._task_spec, self._globals, number, collect_baseline, retain_out_file)
            for _ in range(repeats or 1)
        )  # fmt: skip
        return found[0] if repeats is None else found
