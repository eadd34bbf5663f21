"""Shows each instruction of a call to a handler before it runs, and follows numbers on the interpreter's stack."""

from __future__ import annotations

import dis
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rabbet import Tensor

from . import _replay
from ._numbers import Numbers, Step, is_number

__all__ = ["Frames", "Handler", "Refused", "do_not_watch", "next_instruction"]

Handler = Callable[[Any, Any, int], None]


class Refused(Exception):
    """Raised by a handler when the call cannot be recorded; its text is the reason."""


class Frames:
    """Calls a handler for each instruction of a call.

    Attributes:
        refused: why the call cannot be recorded; None while it can.
        numbers: the followed numbers: those given to `load`, and the results computed from them.
        uses: the name of the operator that the current instruction calls with followed numbers, and the numbers by
            position. The recorder resets it to None when it records the call.
    """

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self.refused: str | None = None
        self.numbers = Numbers()
        self.uses: tuple[str, dict[int, Any]] | None = None
        self._frame: Any = None
        self._after: tuple[tuple[int, int], Callable[[Any], None], bool] | None = None
        self._names: dict[int, tuple[str, ...]] = {}
        self._handlers = handlers
        self._watch = _replay.Watch(self._enter, self._op, bytes(handlers))
        self._is_running = False

    def enters(self, function: Any) -> None:
        """Called when a Python function starts."""
        raise NotImplementedError

    def is_old(self, item: Any) -> bool:
        """Whether an object was there before the call."""
        raise NotImplementedError

    # ---- running

    def start(self) -> None:
        """Start to watch the calling thread."""
        self._is_running = self._watch.start()
        if not self._is_running:
            self.refuse_at("a trace function is set, as debuggers and coverage do")

    def stop(self) -> None:
        """Stop watching."""
        if self._is_running:
            self._watch.stop()
        if self._watch.error is not None and self.refused is None:
            error = self._watch.error
            self.refused = f"an error in rabbet_compile: {type(error).__name__}: {error}"
        self._after = None

    def pause(self) -> None:
        """Stop watching until `resume`. Pauses nest."""
        self._watch.pause()

    def resume(self) -> None:
        """End a pause."""
        self._watch.resume()

    def refuse_at(self, reason: str) -> None:
        """Note why the call cannot be recorded, unless a reason is known already."""
        if self.refused is None:
            self.refused = reason

    def refuse(self, reason: str) -> NoReturn:
        """Give up the recording for this reason.

        Raises:
            Refused: always.
        """
        raise Refused(reason)

    # ---- events

    def _enter(self, frame: Any) -> bool:
        if self.refused is not None:
            return False
        code = frame.code
        if code.co_filename.startswith(_OWN):
            return False
        if frame.function is not _replay.NULL:
            self.enters(frame.function)
        return True

    def _op(self, frame: Any, op: int, arg: int) -> None:
        if self.refused is not None:
            return
        self._frame = frame
        try:
            if self.uses is not None:
                raise Refused(
                    f"gives {self.uses[0]} a number that changes, in a place where it cannot be replaced"
                )
            if self._after is not None:
                self._see_result(frame)
            handler = self._handlers.get(op)
            if handler is not None:
                handler(self, frame, arg)
        except Refused as refused:
            code = frame.code
            where = f"{os.path.basename(code.co_filename)}:{frame.line} in {code.co_name}"
            self.refuse_at(f"{refused} at {where}")
        finally:
            self._frame = None

    def _see_result(self, frame: Any) -> None:
        assert self._after is not None
        where, see, needed = self._after
        self._after = None
        self._watch.show_all(False)
        if where == (frame.id, frame.at):
            see(frame.peek(1))
        elif needed:
            raise Refused("computes with a number that changes, and raises an error")

    def after(self, see: Callable[[Any], None], needed: bool = True) -> None:
        """Call `see` with the result of the current instruction, once the instruction has run.

        Args:
            needed: whether the call cannot be recorded if the instruction raises an error.
        """
        frame = self._frame
        self._after = (frame.id, next_instruction(frame)), see, needed
        self._watch.show_all(True)

    # ---- names that instructions need

    def keywords(self, frame: Any) -> tuple[str, ...]:
        """The names of the keyword arguments of the call that is about to run."""
        return self._names.pop(frame.id, ())

    def set_keywords(self, frame: Any, names: tuple[str, ...]) -> None:
        """Remember the names of the keyword arguments of the next call."""
        self._names[frame.id] = names

    # ---- numbers that change

    def follow(self, value: Any, *step: Any) -> None:
        """Replace the result at the top of the stack by a followed number, which `step` computes."""
        if not is_number(value):
            raise Refused(f"computes a {type(value).__name__} of a number that changes")
        self._frame.replace(1, self.numbers.follow(value, *step, type(value)))

    def load(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        """The call reads a number that changes from call to call, from an entry of a dict."""

        def see(result: Any) -> None:
            if result is not value:
                raise Refused("reads a number that changes in a way that cannot be followed")
            self.follow(value, Step.ENTRY, held, key)

        if self._after is not None:
            raise Refused("reads several numbers that change at once")
        self.after(see)

    def compute(self, op: int, left: Any, right: Any) -> None:
        """A binary operator has a followed number as an operand."""
        op %= 13  # operators in place have the numbers from 13 on
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            names = {0: "add", 5: "mul", 10: "sub", 11: "div"}
            at = 1 if isinstance(left, Tensor) else 0
            if op not in names or (at == 0 and op not in (0, 5)):
                raise Refused("combines a tensor with a number that changes")
            self.uses = names[op], {-1 if op in (0, 5) else 1: (left, right)[at]}
            return
        if not (is_number(left) and is_number(right)):
            raise Refused(f"combines a number that changes with a {type(right).__name__}")
        a, b = self.numbers.at(left), self.numbers.at(right)
        self.after(lambda result: self.follow(result, Step.BINARY, op, a, b))

    def compare(self, op: int, left: Any, right: Any) -> None:
        """A comparison has a followed number as an operand."""
        if not (is_number(left) and is_number(right)):
            raise Refused(f"compares a number that changes with a {type(right).__name__}")
        a, b = self.numbers.at(left), self.numbers.at(right)
        self.after(lambda result: self.numbers.expect(Step.COMPARE, op, a, b, result))

    def apply(self, function: Any, args: tuple[Any, ...]) -> None:
        """The call computes a function of followed numbers."""
        if not all(map(is_number, args)):
            raise Refused("computes with a number that changes and another object")
        at = tuple(map(self.numbers.at, args))
        self.after(lambda result: self.follow(result, Step.CALL, function, at))

    def number_key(self, container: Any, key: Any) -> None:
        """The call looks up a followed number in a dict."""
        if not isinstance(container, dict) or self.is_old(container):
            raise Refused(f"uses a number that changes as an index of a {type(container).__name__}")
        for other in container:
            if not is_number(other):
                raise Refused("uses a number that changes as a key beside others")
            step = Step.COMPARE, _EQUAL, self.numbers.at(other), self.numbers.at(key), other == key
            self.numbers.expect(*step)


_CACHE = dis.opmap["CACHE"]
_EQUAL = dis.cmp_op.index("==")
_OWN: tuple[str, ...] = (os.path.dirname(__file__) + os.sep,)


def next_instruction(frame: Any) -> int:
    """The index of the instruction after the current one."""
    code, at = frame.code.co_code, frame.at + 1
    while code[2 * at] == _CACHE:
        at += 1
    return at


def do_not_watch(*paths: str) -> None:
    """Exclude the code of these files and folders from watching: it belongs to the recorder."""
    global _OWN
    _OWN = (*_OWN, *paths)
