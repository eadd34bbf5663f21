"""Grad modes: context managers and decorators that switch recording on and off for the thread."""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from . import _C

F = TypeVar("F", bound=Callable[..., Any])

is_grad_enabled = _C.is_grad_enabled
is_inference_mode_enabled = _C.is_inference_mode


def _set(on: bool) -> None:
    # In inference mode nothing is recorded, whatever is switched on inside.
    _C.set_grad_enabled(on and not is_inference_mode_enabled())


class _Mode:
    """Sets the thread's grad mode to `on` inside; restores it on exit, also after an exception."""

    on: bool

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(is_grad_enabled())
        _set(self.on)

    def __exit__(self, *exc: object) -> None:
        _set(self._before.pop())

    def _fresh(self) -> "_Mode":
        return type(self)()

    def __call__(self, function: F) -> F:
        """Wrap a function (or generator function) so that it runs in this mode."""
        import inspect

        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _wrap_generator(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            sent = None
            while True:
                with self._fresh():
                    try:
                        value = generator.send(sent)
                    except StopIteration as stop:
                        return stop.value
                sent = yield value

        return wrapped  # type: ignore[return-value]


class no_grad(_Mode):
    """Do not record: results have no history. Context manager and decorator."""

    on = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        instance = super().__new__(cls)
        if function is None:
            return instance
        instance.__init__()  # type: ignore[misc]
        return instance(function)

    def __init__(self, function: None = None) -> None:
        super().__init__()


class enable_grad(_Mode):
    """Record, also inside no_grad(). Context manager and decorator."""

    on = True

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        instance = super().__new__(cls)
        if function is None:
            return instance
        instance.__init__()  # type: ignore[misc]
        return instance(function)

    def __init__(self, function: None = None) -> None:
        super().__init__()


class set_grad_enabled(_Mode):
    """Set the grad mode at once; as a context manager it is restored at the end."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.on = bool(mode)
        self._before.append(is_grad_enabled())
        _set(self.on)

    def __enter__(self) -> None:
        if not self._before:
            self._before.append(is_grad_enabled())
        _set(self.on)

    def _fresh(self) -> "_Mode":
        return set_grad_enabled(self.on)

    def __call__(self, function: F) -> F:
        if self._before:
            _set(self._before.pop())
        return super().__call__(function)


class inference_mode(_Mode):
    """no_grad() for code whose results are never differentiated. Context manager and decorator.

    Tensors made inside are inference tensors (`is_inference()`): they have no version counter, are
    never saved for backward and cannot be written in place outside. clone() gives a normal tensor.
    `inference_mode(False)` leaves the mode and records again.
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        instance = super().__new__(cls)
        if isinstance(mode, bool):
            return instance
        instance.__init__()  # type: ignore[misc]
        return instance(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode
        self._inference_before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(is_grad_enabled())
        self._inference_before.append(is_inference_mode_enabled())
        _C.set_inference_mode(self.mode)
        _C.set_grad_enabled(not self.mode)

    def __exit__(self, *exc: object) -> None:
        _C.set_inference_mode(self._inference_before.pop())
        _C.set_grad_enabled(self._before.pop())

    def _fresh(self) -> "_Mode":
        return inference_mode(self.mode)


class _Multithreading(threading.local):
    enabled = True


_multithreading = _Multithreading()


def is_multithreading_enabled() -> bool:
    """Whether backward runs that this thread starts may use several threads."""
    return _multithreading.enabled


class set_multithreading_enabled:
    """Allow or forbid backward to use several threads, at once; as a context manager restored at the end.

    A backward run stays on the thread that starts it either way; its operators use core's pool.
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(
                f"set_multithreading_enabled: mode must be a bool, got {type(mode).__name__}"
            )
        self._before = _multithreading.enabled
        self.mode = mode
        _multithreading.enabled = mode

    def __enter__(self) -> None:
        _multithreading.enabled = self.mode

    def __exit__(self, *exc: object) -> None:
        _multithreading.enabled = self._before
