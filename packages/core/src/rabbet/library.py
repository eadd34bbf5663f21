"""Operators of your own, kernels and rules for existing ones, and an explanation of what a call does.

    @library.op("mine::scale(Tensor x, float a) -> Tensor", vjp={"x": "grad * a"})
    def scale(x, a):
        return x * a

Every registration can be taken back: `revoke()`, or use it as a context manager.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from . import _C, _rules
from ._C import Op
from ._plugins import module_imported, require_layer, require_ops
from ._registrations import Place, Registration, caller, find, keep, on_rollback, replaces

if TYPE_CHECKING:
    from ._custom_ops import (
        CustomOpDef,
        Library,
        custom_op,
        fallthrough_kernel,
        get_ctx,
        get_kernel,
        impl_abstract,
        register_autocast,
        register_autograd,
        register_kernel,
        register_torch_dispatch,
        register_vmap,
        triton_op,
        wrap_triton,
    )
    from ._schemas import infer_schema

# Names that PyTorch has and that load with the module that defines them.
_LAZY = {
    "_custom_ops": [
        "CustomOpDef", "Library", "custom_op", "fallthrough_kernel", "get_ctx", "get_kernel", "impl_abstract", "register_autocast", "register_autograd", "register_kernel",
        "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
    ],
    "_schemas": ["infer_schema"],
}  # fmt: skip

__all__ = [
    "CustomOpDef",
    "Library",
    "Registration",
    "autocast",
    "batch",
    "custom_op",
    "define",
    "device_types",
    "events",
    "explain",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer",
    "infer_schema",
    "jvp",
    "module_imported",
    "op",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_records",
    "register_torch_dispatch",
    "register_vmap",
    "require_layer",
    "require_ops",
    "shape",
    "strict",
    "triton_op",
    "vjp",
    "wrap_triton",
]


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            value = getattr(importlib.import_module(f"rabbet.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'rabbet.library' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_KINDS_OF_KERNELS = {"composite", "opaque"}  # whose kind does not say the result's shape


def register_records(text: str, file: str = "<records>") -> None:
    """Register operators from text in the record language (docs/reference/records).

    Raises:
        PluginError: naming file and line of what is wrong; nothing is registered then.
    """
    before = set(_C.record_names())
    _C.add_ops(text, file, str(caller("records")))
    for name in _C.record_names():
        if name not in before:
            on_rollback(partial(_C.remove_op, name))


# ---- operators


def op(
    schema: str,
    *,
    kind: str | None = None,
    dtype: Any = None,
    shape: Any = None,
    vjp: Any = None,
    jvp: Any = None,
    autocast: Any = None,
    batch: Any = None,
    decomp: str | None = None,
    doc: str | None = None,
    fields: dict[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Op]:
    """Decorator: make an operator of a Python function, which runs on every device without a kernel.

    The function is called as the schema says: keyword-only arguments by keyword. It must return tensors of
    its own, one for each result, and write to no argument that the schema does not mark `(a!)`. Made of
    operators it needs no more: gradients, batching and autocast reach those. With `kind="opaque"` they do
    not look into it (it may use NumPy): it is then differentiable by `vjp` only, and called with tensors
    that require no grad.

    Args:
        schema: e.g. "mine::scale(Tensor x, float a) -> Tensor" (types: docs/reference/records).
        kind: "composite" (the default), "opaque", "elementwise", ..., as in records.
        dtype, shape: of the results, as record text (`shape="x.shape"`, `dtype="promote(x, y)"`), or
            functions of the arguments, which come as meta tensors, see `shape`. A dtype object will do too.
        vjp: a formula for each differentiable argument, {"x": "grad * a"}, or a function, see `vjp`.
        jvp: a formula for the tangent of the result, or a function, see `jvp`.
        autocast: "low", "fp32", "promote" or a dtype.
        batch: what one more dimension means ("leading x"), or a function, see `batch`.
        decomp: a formula that runs in place of the function.
        doc: a sentence; else the first line of the function's docstring.
        fields: a dict of further fields of the record.

    Returns:
        The operator, which is also `rabbet.ops.mine.scale`. Its `handle` is the registration.

    Raises:
        PluginError: if the schema or a formula is wrong, the operator exists already, or the function takes
            other arguments than the schema.
    """

    options: dict[str, Any] = {
        "kind": kind, "dtype": dtype, "shape": shape, "vjp": vjp, "jvp": jvp, "autocast": autocast,
        "batch": batch, "decomp": decomp, "doc": doc, "fields": fields,
    }  # fmt: skip

    def register(function: Callable[..., Any]) -> Op:
        if not callable(function):
            raise TypeError(f"library.op: expected a function, got {type(function).__name__}")
        place = caller(getattr(function, "__qualname__", "?"))
        return _define(schema, function, place, **options)

    return register


def define(
    schema: str,
    signature: str | None = None,
    *,
    kind: str | None = None,
    dtype: Any = None,
    shape: Any = None,
    vjp: Any = None,
    jvp: Any = None,
    autocast: Any = None,
    batch: Any = None,
    decomp: str | None = None,
    doc: str | None = None,
    fields: dict[str, str] | None = None,
    lib: Any = None,
    tags: Any = (),
) -> Op:
    """Make an operator without a function: only kernels (`impl`) and rules say what it does.

    Args:
        schema: as for `op`, with the same keywords.
        signature: as PyTorch gives it, "(Tensor x) -> Tensor"; `schema` is the name then.
        lib, tags: taken for PyTorch's sake.
    """
    if signature is not None:
        from ._schemas import record_schema

        schema = record_schema(schema, signature)
    return _define(
        schema, None, caller(schema),
        kind=kind, dtype=dtype, shape=shape, vjp=vjp, jvp=jvp, autocast=autocast, batch=batch,
        decomp=decomp, doc=doc, fields=fields,
    )  # fmt: skip


def _name_of(schema: str) -> str:
    if not isinstance(schema, str):
        raise TypeError(f"library.op: the schema must be a str, got {type(schema).__name__}")
    name = schema.split("(", 1)[0].strip()
    space, colons, base = name.partition("::")
    if not colons or not space.isidentifier() or not base.split(".")[0].isidentifier():
        mark = " " * (len(schema) - len(schema.lstrip())) + "^"
        raise _C.PluginError(
            f"library.op: expected 'namespace::name(arguments) -> result', got\n  {schema}\n  {mark}"
        )
    return name


def _define(
    schema: str,
    function: Callable[..., Any] | None,
    place: Place,
    *,
    kind: str | None = None,
    dtype: Any = None,
    shape: Any = None,
    vjp: Any = None,
    jvp: Any = None,
    autocast: Any = None,
    batch: Any = None,
    decomp: str | None = None,
    doc: str | None = None,
    fields: dict[str, str] | None = None,
) -> Op:
    name = _name_of(schema)
    if shape is None:
        shape = _waiting_shapes.pop(name, None)
    replace = replaces(name, "operator", place)
    if not replace and name in _C.record_names():
        raise _C.PluginError(
            f"the operator '{name}' is registered already, by {_C.op_info(name)['provider']}; "
            f"this is a second one, by {place}"
        )
    has_fallback = function is not None or decomp is not None
    record: dict[str, Any] = {
        "kind": kind or ("composite" if has_fallback else "opaque"),
        "expose": "none",
    }
    by_function = callable(shape) or (callable(dtype) and not isinstance(dtype, _C.dtype))
    if record["kind"] in _KINDS_OF_KERNELS or by_function:
        record["shape"] = "kernel"
    if by_function and not callable(shape):
        raise TypeError(f"library.op: {name}: a dtype function needs a shape function beside it")
    if by_function and isinstance(dtype, str):
        raise TypeError(
            f"library.op: {name}: with a shape function give dtype as a dtype or a function, not as text"
        )
    if shape is not None and not by_function:
        record["shape"] = shape
    if dtype is not None and not by_function:
        record["dtype"] = _dtype_text(dtype)
    for key, value in (("decomp", decomp), ("autocast", _policy(autocast))):
        if value is not None:
            record[key] = value
    if isinstance(jvp, str):
        record["jvp"] = jvp
    if isinstance(batch, str):
        record["batch"] = batch
    doc = doc or _first_line(function)
    if doc:
        record["doc"] = doc
    lines = [" ".join(schema.split())]
    lines += [
        f"  {key} {' '.join(str(value).split())}"
        for key, value in (record | (fields or {})).items()
    ]
    if isinstance(vjp, dict):
        lines += [f"  vjp {arg} {' '.join(formula.split())}" for arg, formula in vjp.items()]
    _C.add_ops("\n".join(lines) + "\n", f"{place.file}:{place.line}", str(place), replace)

    made: list[Registration] = []
    parts: list[Callable[[], Registration]] = []
    if function is not None and decomp is None:
        parts.append(lambda: _add_python(name, "decomp", function, function, place))
    if by_function:
        parts.append(lambda: _add_shape(name, shape, dtype, place))
    if callable(vjp):
        parts.append(lambda: _add_vjp(name, vjp, None, None, place))
    if callable(jvp):
        parts.append(lambda: _add_jvp(name, jvp, None, place))
    if callable(batch):
        parts.append(lambda: _add_batch(name, batch, place))
    old = find(name, "operator") if replace else None
    try:
        for part in old.parts if old is not None else ():
            part.revoke()  # what the older definition said; what others registered stays
        made += [add() for add in parts]
        if function is not None:
            _check_signature(name, function, "function", extra=0)
    except BaseException:
        for registration in (*made, *([old] if old is not None else [])):
            registration.revoke()
        _C.remove_op(name)
        raise
    operator = _C.op(name)
    handle = Registration(name, "operator", place, function, [lambda: _C.remove_op(name)], made)
    _C.set_op_handle(operator, keep(handle))
    operator.default = operator  # PyTorch's name of the overload
    return operator


def _first_line(function: Any) -> str:
    text = inspect.getdoc(function) if function is not None else None
    return text.splitlines()[0].strip() if text else ""


def _dtype_text(dtype: Any) -> str:
    return dtype.name if isinstance(dtype, _C.dtype) else str(dtype)


def _policy(policy: Any) -> str | None:
    return None if policy is None else _dtype_text(policy)


def _check_signature(name: str, function: Any, what: str, extra: int) -> None:
    """Refuse a function that cannot be called as the schema says; `extra` arguments come first."""
    info = _C.op_info(name)
    positional: list[Any] = [None] * extra
    keywords: dict[str, Any] = {}
    for p in info["params"]:
        if p["keyword_only"]:
            keywords[p["name"]] = None
        else:
            positional.append(None)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in: no signature to look at
        return
    try:
        if what == "kernel" and _fills(function, info):
            keywords["out"] = None
        signature.bind(*positional, **keywords)
    except TypeError as error:
        raise _C.PluginError(
            f"the {what} of '{name}' takes {signature}, but the schema says\n  {info['schema']}\n({error})"
        ) from None


def _fills(function: Any, info: dict[str, Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "out" in parameters and all(p["name"] != "out" for p in info["params"])


# ---- kernels and rules


def _record(name: Any, what: str) -> str:
    """The record's name of an operator given by name or as object.

    Raises:
        ArgumentError: if there is none, naming similar ones.
    """
    name = getattr(name, "_opoverload", name)
    if isinstance(name, Op):
        if len(name.overloads) > 1:
            raise _C.ArgumentError(
                f"library.{what}: '{name.__name__}' has several overloads, name one: {', '.join(name.overloads)}"
            )
        return name.overloads[0]
    if not isinstance(name, str):
        raise TypeError(
            f"library.{what}: expected the name of an operator or an Op, got {type(name).__name__}"
        )
    names = _C.record_names()
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, 3)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise _C.ArgumentError(f"library.{what}: there is no operator '{name}'{hint}")


def _add_python(
    name: str, target: str, fn: Any, shown: Any, place: Place, **options: Any
) -> Registration:
    replace = replaces(name, target, place)
    ticket = _C.add_python_kernel(name, target, fn, str(place), replace=replace, **options)
    return keep(Registration(name, target, place, shown, [lambda: _C.remove_kernel(ticket)]))


_RULE_TARGETS = {
    "decomp": "op", "shape": "shape", "vjp": "vjp", "jvp": "jvp", "vmap": "batch", "autograd": "vjp",
    "autocast": "autocast",
}  # fmt: skip


def impl(
    name: str | Op,
    device: str | Iterable[str],
    fn: Any = None,
    *,
    contiguous: bool = False,
    dtypes: Iterable[Any] | None = None,
    allocates: bool = False,
    keepalive: Any = None,
    lib: Any = None,
) -> Any:
    """Register a kernel of operator `name` for a device type; as decorator when `fn` is left out.

    A Python function gets the arguments and returns the result (a tuple of them); if it has a parameter
    `out` that the schema does not have, it gets the result there, made as the record's shape says, and fills
    it. Its tensors require no grad, and nothing that it does is recorded.

    A function in C has the type RbFn of rabbet/abi.h: a ctypes function pointer, a cffi pointer, a numba
    cfunc (anything with `address`), or the address as int. It is called without Python, on any thread.

    Args:
        device: "cpu", ..., or several; a kernel for one that is not installed waits for it (`python -m rabbet
            doctor`). "default": for all devices that have no kernel.
        contiguous: C: pass contiguous tensors only.
        dtypes: C: those that it supports, of the dtype it computes in; None: all.
        allocates: C: it makes its results itself.
        keepalive: C: an object that must live as long as the address is valid.

    Raises:
        ArgumentError: if there is no such operator.
        PluginError: if there is a kernel already, naming who registered it.
    """
    record = _record(name, "impl")
    if isinstance(device, (list, tuple)):
        return _impl_for_each(record, device, fn)
    if not isinstance(device, str):
        raise TypeError(
            f"library.impl: expected a device type such as 'cpu', got {type(device).__name__}"
        )
    if ":" in device or not device:
        raise _C.ArgumentError(
            f"library.impl: expected a device type without an index, such as 'cpu', got '{device}'"
        )
    if device in _RULE_TARGETS:
        raise _C.ArgumentError(
            f"library.impl: '{device}' is no device; use library.{_RULE_TARGETS[device]}"
        )
    options: dict[str, Any] = {
        "contiguous": contiguous,
        "dtypes": dtypes,
        "allocates": allocates,
    }

    def register(function: Any) -> Registration:
        place = caller(getattr(function, "__qualname__", record))
        address = _address(function)
        if address is not None:
            return _add_c(record, device, address, place, (function, keepalive), **options)
        if any(options.values()) or keepalive is not None:
            raise TypeError(
                "library.impl: contiguous, dtypes, allocates and keepalive are for functions in C"
            )
        if not callable(function):
            raise TypeError(
                "library.impl: expected a Python function, a C function pointer (ctypes, cffi, numba) or an "
                f"address, got {type(function).__name__}"
            )
        _check_signature(record, function, "kernel", extra=0)
        if device == "default":
            return _add_python(record, "decomp", function, function, place)
        fills = _fills(function, _C.op_info(record))
        return _add_python(record, device, function, function, place, fills=fills)

    return register if fn is None else register(fn)


def _impl_for_each(record: str, devices: Iterable[str], fn: Any) -> Any:
    def register(function: Any) -> Any:
        for device in devices:
            impl(record, device, function)
        return function

    return register if fn is None else register(fn)


def _address(function: Any) -> int | None:
    """The address of a function in C; None for anything else."""
    if isinstance(function, int) and not isinstance(function, bool):
        return function
    if isinstance(getattr(function, "address", None), int):  # numba
        return int(function.address)
    kind = type(function)
    if kind.__module__ == "_cffi_backend":
        ffi = sys.modules["_cffi_backend"].FFI()  # the object exists: the module is there
        return int(ffi.cast("uintptr_t", function))
    if any(base.__module__ == "_ctypes" and base.__name__ == "CFuncPtr" for base in kind.__mro__):
        import ctypes

        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return None


_kept_alive: list[Any] = []  # code that a call on another thread may still be in


def _add_c(
    name: str, device: str, address: int, place: Place, keepalive: Any, *,
    contiguous: bool, dtypes: Iterable[Any] | None, allocates: bool,
) -> Registration:  # fmt: skip
    if address <= 0:
        raise _C.ArgumentError(
            f"library.impl: {name}: the address of the function is {address}: it is null"
        )
    replace = replaces(name, device, place)
    ticket = _C.add_c_kernel(
        name, device, address, str(place), contiguous, allocates, list(dtypes or ()), replace
    )
    _kept_alive.append(keepalive)
    return keep(Registration(name, device, place, None, [lambda: _C.remove_kernel(ticket)]))


def _rule_decorator(
    name: str | Op, what: str, fn: Any, add: Callable[[str, Any, Place], Registration]
) -> Any:
    record = _record(name, what)

    def register(function: Any) -> Registration:
        if not callable(function):
            raise TypeError(f"library.{what}: expected a function, got {type(function).__name__}")
        return add(record, function, caller(getattr(function, "__qualname__", record)))

    return register if fn is None else register(fn)


def shape(name: str | Op, fn: Any = None) -> Any:
    """Register the shape function of an operator; as decorator when `fn` is left out.

    It gets the operator's arguments, tensors as meta tensors, and returns for each result a shape, a pair
    (shape, dtype) or a meta tensor; without a dtype it is that of the first tensor. Meta tensors, kernels
    that fill their results, and transforms need it. Of an operator whose result is a list it returns the meta
    tensors, and only calls on meta tensors need it.
    """

    def add(record: str, function: Any, place: Place) -> Registration:
        _check_signature(record, function, "shape function", extra=0)
        return _add_shape(record, function, None, place)

    return _rule_decorator(name, "shape", fn, add)


def _add_shape(name: str, function: Any, dtype: Any, place: Place) -> Registration:
    if _C.op_info(name)["returns_list"]:
        return _add_python(name, "meta", function, function, place)
    return _add_python(name, "shape", _rules.shape_rule(name, function, dtype), function, place)


_waiting_shapes: dict[str, Callable[..., Any]] = {}  # of operators that do not exist yet


def register_fake(
    op: str | Op, func: Any = None, /, *, lib: Any = None, allow_override: bool = False
) -> Any:
    """`shape` under PyTorch's name; as decorator when `func` is left out. Returns the function.

    An operator "space::name" need not exist yet: its definition then finds the function.

    Args:
        lib: the `Library` that takes the function back when it is destroyed.
        allow_override: whether the function may take the place of another.
    """

    def register(function: Any) -> Any:
        if isinstance(op, str) and "::" in op and op not in _C.record_names():
            if not callable(function):
                raise TypeError(
                    f"library.register_fake: expected a function, got {type(function).__name__}"
                )
            _waiting_shapes[str(op)] = function
            return function
        old = find(_record(op, "register_fake"), "shape") if allow_override else None
        if old is not None:
            old.revoke()
        registration = shape(op, function)
        if lib is not None:
            lib._keep(registration)
        return function

    return register if func is None else register(func)


def vjp(
    name: str | Op, fn: Any = None, *, setup_context: Any = None, saves: Iterable[str] | None = None
) -> Any:
    """Register the derivative of an operator as a function; as decorator when `fn` is left out.

    `fn(ctx, *grads)` gets the gradient of each result, and returns one for each argument of the operator, None
    for those that have none (numbers, masks). `ctx.inputs` and `ctx.output` are the arguments and the result,
    `ctx.needs_input_grad` says which gradients are wanted. What it computes can be differentiated again.

    Args:
        setup_context: `setup_context(ctx, inputs, output)`, called in backward, before `fn` (as for
            torch.library.register_autograd): it may set attributes of ctx, call ctx.save_for_backward(...) for
            ctx.saved_tensors, or ctx.set_materialize_grads(False) for None in place of zeros.
        saves: names of the arguments and results ("out" is a single one) whose values it reads; the others are
            meta tensors in ctx then and need no memory. None: all.
    """

    def add(record: str, function: Any, place: Place) -> Registration:
        return _add_vjp(record, function, setup_context, saves, place)

    return _rule_decorator(name, "vjp", fn, add)


def _add_vjp(
    name: str, fn: Any, setup_context: Any, saves: Iterable[str] | None, place: Place
) -> Registration:
    info = _C.op_info(name)
    if info["returns_list"]:
        raise _C.NotImplementedForError(
            f"library.vjp: {name}: the gradient of an operator with a list of results cannot be a function"
        )
    args, rets = [p["name"] for p in info["params"]], info["rets"]
    mask = 1 << 31  # no argument: the mask is given
    for word in (*args, *rets) if saves is None else saves:
        if word not in args and word not in rets:
            raise _C.ArgumentError(
                f"library.vjp: {name}: saves names '{word}', which is no argument ({', '.join(args)}) and no "
                f"result ({', '.join(rets)})"
            )
        mask |= 1 << args.index(word) if word in args else 1 << (32 + rets.index(word))
    rule = _rules.vjp_rule(name, fn, setup_context)
    return _add_python(name, "vjp", rule, fn, place, reads=mask)


def jvp(name: str | Op, fn: Any = None, *, setup_context: Any = None) -> Any:
    """Register how tangents pass through an operator; as decorator when `fn` is left out.

    `fn(ctx, *tangents)` gets the tangent of each argument (None where it has none) and returns that of each
    result, or None for zero. `ctx` is that of `vjp`.
    """

    def add(record: str, function: Any, place: Place) -> Registration:
        return _add_jvp(record, function, setup_context, place)

    return _rule_decorator(name, "jvp", fn, add)


def _add_jvp(name: str, fn: Any, setup_context: Any, place: Place) -> Registration:
    return _add_python(name, "jvp", _rules.jvp_rule(name, fn, setup_context), fn, place)


def batch(name: str | Op, fn: Any = None) -> Any:
    """Register the batching rule of an operator, for vmap; as decorator when `fn` is left out.

    `fn(info, in_dims, *args)` gets the arguments with all examples, the dim along which they lie in each
    (None: the same for all), and `info.batch_size` and `info.randomness`. It returns (results, dims of the
    examples in them), as for torch.library.register_vmap.
    """
    return _rule_decorator(name, "batch", fn, _add_batch)


def _add_batch(name: str, fn: Any, place: Place) -> Registration:
    _check_signature(name, fn, "batching rule", extra=2)
    return _add_python(name, "vmap", _rules.batch_rule(name, fn), fn, place, layer=True)


def autocast(name: str | Op, policy: Any) -> Registration:
    """Say in which dtype an operator runs under autocast.

    Args:
        policy: "low" (that of the autocast context), "fp32", "promote" (the widest of its tensors), "pass" (as
            they come), or float16, bfloat16 or float32.
    """
    record = _record(name, "autocast")
    place = caller(record)
    replaces(record, "autocast", place)
    before = _C.set_autocast(record, _dtype_text(policy))
    undo = [lambda: _C.set_autocast(record, before)]
    return keep(Registration(record, "autocast", place, None, undo))


# ---- looking at operators and devices


def device_types() -> list[str]:
    """Names of the backends that are loaded. In C, `RbTensor.backend` is the place in this list."""
    return [backend["name"] for backend in _C.backends()]


def explain(name: str | Op, *args: Any, **kwargs: Any) -> str:
    """Say what a call of an operator with these arguments goes through, and who registered it.

    Layers come in the order in which they run, with the reason why they act on the call or pass it on.
    """
    from ._explain import explain as explained

    return explained(name, args, kwargs)


def infer(name: str | Op, *args: Any, **kwargs: Any) -> Any:
    """The results of a call, not run: tensors on the device `meta` with their shapes, strides and dtypes.

    Raises:
        NotImplementedError: where they depend on the values, or only a kernel knows them.
    """
    return _C.infer(name if isinstance(name, Op) else _C.op(name), args, kwargs)[0]


@contextmanager
def events(*, calls: bool = True, memory: bool = True) -> Iterator[list[dict[str, Any]]]:
    """Record what the dispatcher does inside the `with` block, on all threads.

    Args:
        calls: begin and end of every operator call, with those that it makes itself.
        memory: what the caching allocator gives and gets back. Small CPU tensors have memory of
            their threads instead.

    Yields:
        A list that is filled when the block ends: dicts with `kind` ("begin", "end", "alloc", "free"), `time` in
        nanoseconds and `thread`; calls have `op`, `depth` and `arguments` or `failed`, memory has `nbytes`,
        `address` and `device`. A first dict `{"kind": "lost", "count": n}` says that n older events did not fit.
    """
    if not (calls or memory):
        raise ValueError("events: expected calls or memory to be recorded, got neither")
    reader = _C.EventReader(3 * calls + 12 * memory)
    found: list[dict[str, Any]] = []
    try:
        yield found
    finally:
        some, lost = reader.read()
        reader.close()
        found += [{"kind": "lost", "count": lost}] if lost else []
        found += some


class strict:
    """Check of functions in Python what takes time, too: that those with a parameter `out` write to it.

    `strict()` and `strict(False)` set it for the process; as a context manager it is as before afterwards. The
    other checks of what functions hand over always run; opcheck and the conformance kit are strict.
    """

    def __init__(self, mode: bool = True) -> None:
        self._before = _C.strict_functions(bool(mode))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _C.strict_functions(self._before)


def opcheck(
    op: str | Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Iterable[str] | None = None,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, str]:
    """Test an operator with these arguments, which must be of the shapes and dtypes it is made for.

    Args:
        args, kwargs: of the operator; tensors that require grad have their gradients checked.
        test_utils: names of tests to run, of "test_schema", "test_shape", "test_derivative",
            "test_vmap", "test_autocast"; None: all. PyTorch's names will do too.
        raise_exception: whether a failure raises.
        atol, rtol: for comparing vmap with the loop.

    Returns:
        For each test "SUCCESS", "SKIPPED: why" or what is wrong.

    Raises:
        OpCheckError: with the failures, unless raise_exception is False.
    """
    from ._opcheck import opcheck as checked

    with strict():
        found = getattr(op, "_opoverload", op)
        return checked(found, args, kwargs, test_utils, raise_exception, atol, rtol)
