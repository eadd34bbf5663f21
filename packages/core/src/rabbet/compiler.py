"""`rabbet.compile` and `rabbet.compiler`: compilation is the work of the wheel rabbet-compile."""

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from . import _C
from ._settings import warn_once

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "load_compiled_function",
    "nested_compile_region",
    "reset",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]

_INDUCTOR = "inductor"  # PyTorch's default, which stands for regions here


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Return `model`, a module or function, so that its calls are replayed or run in a region of rabbet-compile.

    In a region elementwise operators run later, and fused. Calls that repeat are replayed without Python code, as long
    as everything that the function read is the same. Results are those of eager calls, bit for bit, and any Python may
    run: `fullgraph`, `dynamic` and `mode` change nothing, and of `options` only `{"replay": False}` does.
    `backend` is by default what `compiler.set_default_backend` has set. Without the wheel rabbet-compile, `model` is returned as it is, which a warning says once; with `disable=True`,
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
    backend = _default_backend if backend is None else backend
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


_default_backend: str | Callable[..., Any] = _INDUCTOR


def get_default_backend() -> str | Callable[..., Any]:
    """The backend of `rabbet.compile` where none is given; at first "inductor"."""
    return _default_backend


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Set the backend of `rabbet.compile` where none is given; None: "inductor" again.

    Raises:
        TypeError: if it is neither a name nor callable.
    """
    global _default_backend
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(
            f"set_default_backend: expected a name, a callable or None, got {type(backend).__name__}"
        )
    _default_backend = _INDUCTOR if backend is None else backend


# ---- guards: nothing that is compiled here depends on them

_guard_collectives = False


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Set whether processes agree on guards; returns what was set before. There are no guards, so nothing changes."""
    global _guard_collectives
    before, _guard_collectives = _guard_collectives, bool(enabled)
    return before


def _kept(guard_entries: Any) -> list[bool]:
    """A filter of guards that keeps all: to keep a guard is always safe."""
    return [True for _ in guard_entries]


def _kept_of_tensors(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """A filter of guards that keeps all: to keep a guard is always safe."""
    return _kept(guard_entries)


def _dropped(guard_entries: Any) -> list[bool]:
    """A filter of guards that keeps none."""
    return [False for _ in guard_entries]


keep_portable_guards_unsafe = skip_guard_on_globals_unsafe = _kept
skip_guard_on_inbuilt_nn_modules_unsafe = skip_guard_on_all_nn_modules_unsafe = _kept
keep_tensor_guards_unsafe, skip_all_guards_unsafe = _kept_of_tensors, _dropped


# ---- functions in graphs


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Mark a function that is repeated in a model; returns it. A decorator with and without arguments."""
    return fn if fn is not None else lambda given: given


def substitute_in_graph(
    original_fn: Callable[..., Any],
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function that graphs use in place of `original_fn`; as a decorator it returns that function.

    Regions run `original_fn` itself.

    Raises:
        TypeError: if one of the two cannot be called.
    """
    _need_callable("substitute_in_graph", original_fn)

    def take(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
        _need_callable("substitute_in_graph", traceable_fn)
        return traceable_fn

    return take


def _need_callable(name: str, given: Any) -> None:
    if not callable(given):
        raise TypeError(f"{name}: expected a function, got {type(given).__name__}")


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of NumPy arrays into one of tensors, on the CPU and without gradients.

    Tensors in the arguments become arrays, and arrays in the results become tensors.

    Raises:
        RuntimeError: from the call, if a tensor requires grad.
    """
    _need_callable("wrap_numpy", fn)

    @functools.wraps(fn)
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        import numpy

        from . import Tensor, as_tensor
        from .utils._pytree import tree_map_only

        args, kwargs = tree_map_only(Tensor, lambda t: t.numpy(), (args, kwargs))
        return tree_map_only((numpy.ndarray, numpy.generic), as_tensor, fn(*args, **kwargs))

    return of_tensors


# ---- stored programs


def save_cache_artifacts() -> None:
    """Return None: regions store no programs."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Ignore stored programs and return None: regions use none."""


def load_compiled_function(file: Any, **options: Any) -> Any:
    """Load a function that was compiled to a file.

    Raises:
        NotImplementedError: always: regions are not written to files.
    """
    raise _C.NotImplementedForError(
        "compiler.load_compiled_function: rabbet.compile writes no files; compile the function itself"
    )


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
