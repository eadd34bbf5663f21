"""Named parts of a program."""

from __future__ import annotations

import contextlib
from typing import Any, Self

from rabbet._C import range_begin, range_end
from rabbet.futures import Future


class record_function(contextlib.ContextDecorator):
    """Context manager and decorator: give a part of the program a name in profiles.

    Without a profiler it does nothing.

    Args:
        name: the name.
        args: a text that PyTorch's execution traces keep beside the name; has no effect.

    Raises:
        TypeError: if the name is no string.

    Example:
        >>> import rabbet
        >>> from rabbet.profiler import profile, record_function
        >>> with profile() as prof, record_function("scaling"):
        ...     _ = rabbet.ones(3) * 2
        >>> [child.name for e in prof.events() if e.name == "scaling" for child in e.cpu_children]
        ['aten::ones', 'aten::mul']
    """

    run_callbacks_on_exit = True
    _range = 0

    def __init__(self, name: str, args: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"record_function: expected name to be a str, got {type(name).__name__}"
            )
        self.name = name
        self.args = args

    def _recreate_cm(self) -> record_function:
        return type(self)(
            self.name, self.args
        )  # each call of a decorated function has its own range

    def __enter__(self) -> Self:
        self._range = range_begin(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        if self.run_callbacks_on_exit:
            range_end(self._range)

    def _call_end_callbacks_on_future(self, fut: Future) -> Future:
        """End the range when a future completes, and not at the end of the block; the future that then completes.

        Raises:
            RuntimeError: if it was called before.
        """
        if not self.run_callbacks_on_exit:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once.")
        self.run_callbacks_on_exit = False

        def end(done: Future) -> Any:
            range_end(self._range)
            return done.value()

        return fut.then(end)
