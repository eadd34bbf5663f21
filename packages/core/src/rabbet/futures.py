"""Results that come later: PyTorch's `Future`, with callbacks, chains and waiting for several."""

import threading
from collections.abc import Callable
from types import GenericAlias
from typing import Any

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A result that a thread sets and others wait for.

    Args:
        devices: devices whose streams to synchronize; results on the CPU need none.

    Example:
        >>> from rabbet.futures import Future
        >>> future = Future()
        >>> doubled = future.then(lambda f: 2 * f.wait())
        >>> future.set_result(21)
        >>> doubled.wait()
        42
    """

    __class_getitem__: Any = classmethod(GenericAlias)

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        self._changed = threading.Condition()
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._done

    def wait(self) -> Any:
        """The result, once it is there.

        Raises:
            Exception: the one that set_exception() was given.
        """
        with self._changed:
            self._changed.wait_for(self.done)
        return self.value()

    def value(self) -> Any:
        """The result of a future that is done.

        Raises:
            RuntimeError: if it is not done.
            Exception: the one that set_exception() was given.
        """
        if not self._done:
            raise RuntimeError("Future.value: the future is not done; wait() waits for it")
        if self._error is not None:
            raise self._error
        return self._result

    def then(self, callback: Callable[["Future"], Any]) -> "Future":
        """A future of what `callback` returns for this one, which is called when this one is done."""
        following = Future()

        def run(future: Future) -> None:
            try:
                following.set_result(callback(future))
            except Exception as error:
                following.set_exception(error)

        self._when_done(run)
        return following

    def add_done_callback(self, callback: Callable[["Future"], None]) -> None:
        """Call `callback` with this future when it is done, at once if it is; its exceptions are printed."""

        def run(future: Future) -> None:
            try:
                callback(future)
            except Exception:
                import traceback

                traceback.print_exc()

        self._when_done(run)

    def set_result(self, result: Any) -> None:
        """Set the result and run the callbacks in this thread.

        Raises:
            RuntimeError: if the future is done.
        """
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an exception, which wait() and value() raise, and run the callbacks in this thread.

        Raises:
            AssertionError: if it is no exception.
            RuntimeError: if the future is done.
        """
        assert isinstance(result, Exception), (
            f"{result} is of type {type(result)}, not an Exception."
        )
        self._finish(None, result)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError("Future: the result can be set only once")
            self._result, self._error, self._done = result, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def _when_done(self, callback: Callable[["Future"], Any]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)


def collect_all(futures: list[Future]) -> Future:
    """A future of the list of futures, done when all are; its exception is that of the first that has one."""
    collected = Future()
    if not futures:
        collected.set_result([])
        return collected
    lock = threading.Lock()
    left = len(futures)

    def one_is_done(_: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        error = next((f._error for f in futures if f._error is not None), None)
        if error is None:
            collected.set_result(list(futures))
        else:
            collected._finish(None, error)

    for future in futures:
        future._when_done(one_is_done)
    return collected


def wait_all(futures: list[Future]) -> list[Any]:
    """The results of all futures, once they are there.

    Raises:
        Exception: that of the first future that has one.
    """
    return [future.wait() for future in collect_all(futures).wait()]
