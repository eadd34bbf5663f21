"""`rabbet.compile` and `rabbet.compiler`: nothing is compiled yet, functions run eagerly."""

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
    """Return `model`, a module or function, as it is: it runs eagerly, which a warning says once.

    Without `model` it is a decorator.

    Raises:
        TypeError: if `model` cannot be called.
        RuntimeError: if both `mode` and `options` are given.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if model is None:
        return lambda given: compile(given, mode=mode, options=options, disable=disable)
    if not callable(model):
        raise TypeError(f"compile: expected a module or a function, got {type(model).__name__}")
    if not disable:
        warn_once("compile: rabbet has no compiler yet, the program runs eagerly")
    return model


def is_compiling() -> bool:
    """Whether code runs under the compiler: no."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function out of the compiler; a decorator with and without arguments."""
    return fn if fn is not None else lambda given: given


def allow_in_graph(fn: Any) -> Any:
    """Take a function into graphs as one step; returns it."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Take a function's result as constant in graphs; returns the function."""
    return fn


def reset() -> None:
    """Forget what was compiled: nothing."""


def cudagraph_mark_step_begin() -> None:
    """Mark a step for captured graphs: there are none."""


def list_backends(exclude_tags: tuple[str, ...] | None = ("debug", "experimental")) -> list[str]:
    """Names of the compilers: none."""
    return []


class set_stance:
    """How the compiler treats what follows; taken as a call, a context and a decorator."""

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

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, fn: Any) -> Any:
        return fn
