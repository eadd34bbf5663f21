"""Grad modes: context managers and decorators that switch recording on and off for the thread."""

from __future__ import annotations

import functools
import inspect
import threading
import types
import warnings
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Self, TypeVar

from . import _C

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]

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

    def clone(self) -> Self:
        """A context manager of the same mode."""
        return type(self)()

    def __call__(self, function: F) -> F:
        """Wrap a function so that it runs in this mode.

        Of generators, coroutines and asynchronous generators the body does, and what comes between does not.
        """
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods. To preserve the current behavior of class decoration, you can directly "
                "decorate the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            decorated: Any = self._wrap_call(function)
        elif inspect.isgeneratorfunction(function):
            decorated = self._wrap_generator(function)
        elif inspect.iscoroutinefunction(function):
            decorated = self._wrap_coroutine(function)
        elif inspect.isasyncgenfunction(function):
            decorated = self._wrap_async_generator(function)
        else:
            decorated = self._wrap_call(function)
        if inspect.isclass(function):
            return decorated
        functools.update_wrapper(decorated, function)
        return decorated

    def _wrap_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return call

    def _wrap_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from self._steps(function(*args, **kwargs)))

        return generator

    def _wrap_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await self._awaited(function(*args, **kwargs))

        return coroutine

    def _wrap_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            inner = function(*args, **kwargs)
            step = inner.__anext__()
            while True:
                try:
                    value = await self._awaited(step)
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await self._awaited(inner.aclose())
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
                else:
                    step = inner.asend(sent)

        return generator

    def _steps(self, inner: Any) -> Generator[Any, Any, Any]:
        """Each step of a generator, or of what is awaited, in this mode."""
        step, given = inner.send, None
        while True:
            try:
                with self.clone():
                    value = step(given)
            except StopIteration as stop:
                return stop.value
            try:
                step, given = inner.send, (yield value)
            except GeneratorExit:
                with self.clone():
                    inner.close()
                raise
            except BaseException as error:
                step, given = inner.throw, error

    def _awaited(self, inner: Any) -> Any:
        return types.coroutine(self._steps)(inner)


def _decorating(cls: type[Any], function: Callable[..., Any] | None) -> Any:
    """An instance, or the function decorated by one: `@no_grad` without parentheses."""
    instance = object.__new__(cls)
    if function is None:
        return instance
    instance.__init__()
    return instance(function)


class no_grad(_Mode):
    """Do not record: results have no history. Context manager and decorator."""

    on = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return _decorating(cls, function)

    def __init__(self, function: None = None) -> None:
        super().__init__()


class enable_grad(_Mode):
    """Record, also inside no_grad(). Context manager and decorator."""

    on = True

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return _decorating(cls, function)

    def __init__(self, function: None = None) -> None:
        super().__init__()


class set_grad_enabled(_Mode):
    """Set the grad mode at once; as a context manager it is restored at the end."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        if not isinstance(mode, bool):
            raise TypeError(
                f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}"
            )
        self.mode = self.on = mode
        self._before.append(is_grad_enabled())
        _set(self.on)

    def __enter__(self) -> None:
        if not self._before:
            self._before.append(is_grad_enabled())
        _set(self.on)

    def clone(self) -> Self:
        """A context manager of the same mode, which is set at once."""
        return type(self)(self.mode)

    def __call__(self, function: F) -> F:
        """Wrap a function so that it runs in this mode, which is set there only."""
        if self._before:
            _set(self._before.pop())
        return super().__call__(function)

    def __repr__(self) -> str:
        return f"rabbet.autograd.grad_mode.set_grad_enabled(mode={self.mode})"


class inference_mode(_Mode):
    """no_grad() for code whose results are never differentiated. Context manager and decorator.

    Tensors made inside are inference tensors (`is_inference()`): they have no version counter, are
    never saved for backward and cannot be written in place outside. clone() gives a normal tensor.
    `inference_mode(False)` leaves the mode and records again.
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        return _decorating(cls, None if isinstance(mode, bool) else mode)

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

    def clone(self) -> Self:
        """A context manager of the same mode."""
        return type(self)(self.mode)


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
