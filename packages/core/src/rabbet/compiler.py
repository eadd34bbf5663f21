"""`rabbet.compile` and `rabbet.compiler`: compilation is the work of the wheel rabbet-compile."""

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from ._settings import warn_once

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
]


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Return `model`, a module or function, so that its calls run in a region of rabbet-compile.

    In a region elementwise operators run later, and fused. Results are those of eager calls, bit for bit, and any
    Python may run there: nothing is traced, so `fullgraph`, `dynamic`, `mode` and `options` change nothing.
    Without the wheel rabbet-compile, `model` is returned as it is, which a warning says once; with `disable=True`,
    `backend="eager"` or `RABBET_COMPILE=off` in the environment, it is returned as it is, too. Without `model` it is
    a decorator.

    Raises:
        TypeError: if `model` cannot be called.
        RuntimeError: if both `mode` and `options` are given.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if model is None:
        return lambda given: compile(
            given,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
        )
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    if disable or os.environ.get("RABBET_COMPILE") == "off":
        return model
    if importlib.util.find_spec("rabbet_compile") is None:
        warn_once(
            "compile: the program runs eagerly; to have it compiled: pip install rabbet-compile"
        )
        return model
    return importlib.import_module("rabbet_compile").compile(
        model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options
    )


def is_compiling() -> bool:
    """Whether code is being traced: never. In a region of `rabbet.compile` it runs as it does eagerly."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return a function as it is, which runs in a region as it does eagerly; a decorator with and without arguments."""
    return fn if fn is not None else lambda given: given


def allow_in_graph(fn: Any) -> Any:
    """Take a function into graphs as one step; returns it."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Take a function's result as constant in graphs; returns the function."""
    return fn


def reset() -> None:
    """Forget what was compiled."""
    if wheel := sys.modules.get("rabbet_compile"):
        wheel.reset()


def cudagraph_mark_step_begin() -> None:
    """Mark a step for captured graphs: there are none."""


def list_backends(exclude_tags: tuple[str, ...] | None = ("debug", "experimental")) -> list[str]:
    """Names of the compilers: none."""
    return []


_stance = "default"  # what rabbet_compile asks at each call of a compiled function


class set_stance:
    """Set how the compiler treats later calls; a function, a context manager and a decorator.

    With "force_eager", functions that were compiled run eagerly. All other stances are "default" here, where nothing
    is ever compiled anew.
    """

    _STANCES = (
        "default",
        "force_eager",
        "eager_on_recompile",
        "fail_on_recompile",
        "eager_then_compile",
        "aot_eager_then_compile",
    )

    def __init__(self, stance: str = "default", **options: Any) -> None:
        if stance not in self._STANCES:
            raise RuntimeError(
                f"set_stance: expected one of {', '.join(self._STANCES)}, got {stance!r}"
            )
        self._given, self._before = stance, _stance
        self._set(stance)

    @staticmethod
    def _set(stance: str) -> None:
        global _stance
        _stance = stance

    def __enter__(self) -> None:
        self._set(self._given)

    def __exit__(self, *error: object) -> None:
        self._set(self._before)

    def __call__(self, fn: Any) -> Any:
        self._set(self._before)  # it is for `fn` alone

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self._given):
                return fn(*args, **kwargs)

        return with_stance
