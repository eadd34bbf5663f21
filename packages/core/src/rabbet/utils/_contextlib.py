"""Bases of context managers that decorate functions, generators too."""

import functools
import inspect
import warnings
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager", "context_decorator"]


def _in_each_step(make: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose body runs inside of a context, which its caller is outside of."""

    @functools.wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, body)
        while True:
            try:
                with make():
                    value = step()
            except StopIteration as end:
                return end.value
            try:
                sent = yield value
            except GeneratorExit:
                with make():
                    body.close()
                raise
            except BaseException as error:
                step = functools.partial(body.throw, error)
            else:
                step = functools.partial(body.send, sent)

    return steps


def context_decorator(ctx: Any, func: Any) -> Any:
    """A function whose calls run inside of a context.

    Args:
        ctx: a context manager that can be entered again, or a function without arguments that makes one.
        func: a function, a generator function or a class, whose `__init__` is meant then.

    Raises:
        RuntimeError: for a context manager that is called to make one.
    """
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise RuntimeError(
            f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), making it ambiguous "
            "which interface to use.  If you intended to pass a context manager factory, rewrite your call as "
            "context_decorator(lambda: ctx()); if you intended to pass a context manager directly, rewrite your call "
            "as context_decorator(lambda: ctx)"
        )
    make: Callable[[], Any] = ctx if callable(ctx) else lambda: ctx
    if inspect.isgeneratorfunction(func):
        return _in_each_step(make, func)
    if inspect.isclass(func):
        raise RuntimeError(
            "Cannot decorate classes; it is ambiguous whether or not only the constructor or all methods should have "
            "the context manager applied; additionally, decorating a class at definition-site will prevent use of the "
            "identifier as a conventional type.  To specify which methods to decorate, decorate each of them "
            "individually."
        )

    @functools.wraps(func)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return inside


class _DecoratorContextManager:
    """Base of context managers that decorate functions, too: each call works in a copy, made by `clone`."""

    def __call__(self, orig_func: Any) -> Any:
        if inspect.isclass(orig_func):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods. To preserve the current behavior of class decoration, you can directly "
                "decorate the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )

            @functools.wraps(orig_func)
            def made(*args: Any, **kwargs: Any) -> Any:
                with self.clone():
                    return orig_func(*args, **kwargs)

            return made
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *error: object) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another one with the same arguments; a class with arguments defines it."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """A context manager without arguments, which decorates without parentheses, too."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)
