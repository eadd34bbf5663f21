"""`__torch_dispatch__`: selects the handler of a call, prepares its arguments, and checks its result.

The layer `python` (csrc/dispatch) runs `_dispatch_call` for every call with a tensor whose class defines the protocol, and
for every call inside a mode. The layer loads with this module, when the first such class or mode is used.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from . import _C, _aten, _dispatch
from ._C import Tensor
from ._overriding import is_wrapper

_disabled = _C._disabled_torch_dispatch_impl


# ---- calls


class _Param(NamedTuple):
    name: str
    keyword_only: bool
    has_default: bool
    default: Any
    is_dim: bool


class _Record(NamedTuple):
    """The parts of an operator's record that a call needs."""

    name: str
    params: tuple[_Param, ...]
    rets: tuple[str, ...]
    returns_list: bool


@functools.cache
def _record(name: str) -> _Record:
    info = _C.op_info(name)
    params = tuple(
        _Param(p["name"], p["keyword_only"], p["has_default"], p["default"], p["type"] == "dim")
        for p in info["params"]
    )
    return _Record(name, params, tuple(info["rets"]), info["returns_list"])


def _is_default(param: _Param, value: Any, ndim: int) -> bool:
    if not param.has_default or isinstance(value, Tensor):
        return False
    default = param.default
    if value is default:
        return True
    if param.is_dim and type(default) is int and default < 0:  # core has wrapped it
        default += ndim
    return type(value) is type(default) and value == default


def _arguments(record: _Record, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as PyTorch passes them: defaults are left out, keyword-only ones have their names."""
    positional: list[Any] = []
    keywords = {}
    needed = 0
    ndim = next((tensor.ndim for tensor in _tensors(args)), 0)
    for param, value in zip(record.params, args, strict=True):
        is_default = _is_default(param, value, ndim)
        if param.keyword_only:
            if not is_default:
                keywords[param.name] = value
            continue
        positional.append(value)
        if not is_default:
            needed = len(positional)
    return tuple(positional[:needed]), keywords


def _as_in_pytorch(name: str, args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The record and arguments of the call that PyTorch makes instead, where it differs."""
    if name == "mT":
        ndim = args[0].ndim
        return ("t", args) if ndim == 2 else ("transpose", (args[0], ndim - 2, ndim - 1))
    if name in ("add", "mul", "sub") and not isinstance(args[0], Tensor):
        if name != "sub" and args[2:] in ((), (1,)):
            return name, (args[1], args[0], *args[2:])
        if name == "sub":
            return "rsub", (args[1], args[0], args[2])
    return name, args


def _one_dim(args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a reduction that PyTorch has in two overloads: one dimension, and several."""
    dims = args[1]
    single = dims[0] if dims is not None and len(dims) == 1 else dims
    rest = tuple(args[2:])
    if not any(rest):
        return ((args[0],) if single is None else (args[0], single)), {}
    return (args[0], single, *rest), {}


def _softmax(args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (args[0], args[1], False), {} if args[2] is None else {"dtype": args[2]}


def _convolution(args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With the options of transposed convolutions: PyTorch has one operator for both, without defaults."""
    *first, stride, padding, dilation, groups = args
    return (*first, stride, padding, dilation, False, [0] * len(padding), groups), {}


# Records whose arguments have another form in PyTorch.
_FORMS: dict[str, Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "convolution": _convolution,
    "cast": lambda args: ((args[0],), {"dtype": args[1]}),
    "to_device": lambda args: ((args[0],), {"device": args[1]}),
    "softmax": _softmax,
    "log_softmax": _softmax,
    "any": _one_dim,
    "all": _one_dim,
    "squeeze": _one_dim,
}


def _request(
    record: _Record, args: Sequence[Any], outs: tuple[Any, ...] | None
) -> tuple[_aten.OpOverload, tuple[Any, ...], dict[str, Any]]:
    """The overload for a call, and its arguments."""
    in_place = outs is not None and len(outs) == 1 and bool(args) and outs[0] is args[0]
    func = _aten.overload_of(record.name, args, in_place, outs is not None and not in_place)
    form = _FORMS.get(record.name)
    positional, keywords = form(args) if form else _arguments(record, args)
    if outs is not None and not in_place:
        keywords["out"] = outs[0] if len(outs) == 1 else outs
    return func, positional, keywords


def _handler_of(cls: type) -> Any:
    """`__torch_dispatch__` of a class; None where it defines none."""
    found = getattr(cls, "__torch_dispatch__", None)
    return None if found is _disabled else found


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, Tensor))


def _types_of(values: Sequence[Any]) -> tuple[type, ...]:
    """The classes among the values that define the protocol, subclasses before the classes that they derive from."""
    found: list[type] = []
    for tensor in _tensors(values):
        cls = type(tensor)
        if cls is Tensor or cls in found or _handler_of(cls) is None:
            continue
        place = next((i for i, other in enumerate(found) if issubclass(cls, other)), len(found))
        found.insert(place, cls)
    return tuple(found)


def _dispatch_call(name: str, args: tuple[Any, ...], outs: tuple[Any, ...] | None) -> Any:
    """Run a call of the layer.

    Args:
        name: the operator's record.
        args: its arguments.
        outs: the tensors to be written, or None.

    Returns:
        A tuple with a tensor, or a tuple of tensors, for each result; None if there is no handler;
        NotImplemented if the operators of the decomposition are dispatched instead.
    """
    modes = _dispatch.modes()
    if modes and hasattr(modes[-1], "__record_dispatch__"):
        return _record_call(name, args, outs)
    if _aten.is_derivative(name):  # which PyTorch's operators do not have as one call
        return NotImplemented
    types = _types_of(args if outs is None else (*args, *outs))
    has_mode = bool(modes)
    if not types and not has_mode:
        return None
    if _aten.is_decomposed(name):
        return NotImplemented
    name, args = _as_in_pytorch(name, args)
    record = _record(name)
    func, positional, keywords = _request(record, args, outs)
    if outs is not None:
        _refuse_many_views(args, outs)
    result, handler = _ask(func, types, positional, keywords)
    if outs is not None:
        return ()
    results = _checked(record, func, handler, result)
    if record.returns_list and func.is_view and is_wrapper(args[0]):
        _remember_many_views(record, args[0], results[0])
    return results


def _record_call(name: str, args: tuple[Any, ...], outs: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Hand a call to the innermost mode as it is: the record's name, an argument for each parameter, and `outs`."""
    mode = _dispatch.pop_mode()
    try:
        results: tuple[Any, ...] = mode.__record_dispatch__(name, args, outs)
    finally:
        _dispatch.push_mode(mode)
    return results


def _on_read(tensor: Tensor, what: str) -> None:
    """Tell the innermost mode that the program is about to read a tensor; it may raise."""
    modes = _dispatch.modes()
    gate = getattr(modes[-1], "__read_dispatch__", None) if modes else None
    if gate is not None:
        gate(tensor, what)


def _remember_many_views(record: _Record, base: Tensor, views: tuple[Tensor, ...]) -> None:
    for view in views:
        if view is not base and is_wrapper(view):
            _dispatch.keeper(view).made_by = record.name


def _refuse_many_views(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
    """A write to one of several views of a wrapper would not reach the base's gradient."""
    for out in outs:
        if not is_wrapper(out) or not (made_by := getattr(_dispatch.keeper(out), "made_by", None)):
            continue
        import rabbet

        needs_grad = any(t.requires_grad for t in _tensors((*args, *outs)))
        if needs_grad and _dispatch.call_outside(rabbet.is_grad_enabled):
            raise RuntimeError(
                f"a result of {made_by}() is a view and is being modified inplace. This view is the output of a function "
                "that returns multiple views. Such functions do not allow the output views to be modified inplace. You "
                "should replace the inplace operation by an out-of-place one."
            )


def _ask(
    func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, str]:
    """The result of the innermost mode, else of the first class that does not return NotImplemented, and who gave it."""
    asked = []
    if _dispatch.modes():
        mode = _dispatch.pop_mode()
        try:
            result = mode.__torch_dispatch__(func, types, args, kwargs)
        finally:
            _dispatch.push_mode(mode)
        if result is not NotImplemented:
            return result, type(mode).__name__
        asked.append(f"mode object {mode!r}")
    for cls in types:
        result = _handler_of(cls)(func, types, args, kwargs)
        if result is not NotImplemented:
            return result, cls.__name__
        asked.append(f"tensor subclass {cls!r}")
    listed = "\n".join(f"  - {who}" for who in asked)
    raise TypeError(
        f"Multiple dispatch failed for 'torch.ops.{func}'; all __torch_dispatch__ handlers returned "
        f"NotImplemented:\n\n{listed}"
    )


# ---- results


def _checked(record: _Record, func: Any, handler: str, result: Any) -> tuple[Any, ...]:
    """What a handler returned, one entry for each result of the operator."""
    what = f"{func}: __torch_dispatch__ of {handler}"
    count = len(record.rets)
    if count == 0:
        if result is not None:
            raise RuntimeError(f"{what} must return None, got {_described(result)}")
        return ()
    if count == 1:
        results: tuple[Any, ...] = (result,)
    elif isinstance(result, (list, tuple)) and len(result) == count:
        results = tuple(result)
    else:
        raise RuntimeError(
            f"{what} must return {count} results ({', '.join(record.rets)}), got {_described(result)}"
        )
    return tuple(_checked_one(record, what, value) for value in results)


def _checked_one(record: _Record, what: str, value: Any) -> Any:
    if not record.returns_list:
        if not isinstance(value, Tensor):
            raise RuntimeError(
                f"{what} must return a Tensor, got {_described(value)}: Unable to cast {value} to Tensor"
            )
        return value
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, Tensor) for v in value):
        raise RuntimeError(f"{what} must return a list of Tensors, got {_described(value)}")
    return tuple(value)


def _described(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


# ---- values


# PyTorch's messages for reads of a subclass, keyed by the reason for which core asks for the values.
_REFUSALS = {
    "buffer": ".numpy() is not supported for tensor subclasses.",
    "tolist()": ".tolist() is not supported for tensor subclasses, got {}",
    "__dlpack__": "__dlpack__() is not supported for tensor subclasses, got {}",
    "values": "{} has no values of its own: only its __torch_dispatch__ reads them",
}


def _read_values(tensor: Tensor, what: str) -> Tensor:
    """The values of a wrapper, for `what`: its class is asked for the number of item(), bool() and the like.

    Raises:
        RuntimeError: for everything else that needs values.
    """
    import rabbet

    cls = type(tensor)
    if what == "data_ptr()":  # there is no memory: 0
        with without_dispatch():
            return rabbet.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    if what in _REFUSALS:
        raise RuntimeError(_REFUSALS[what].format(cls.__name__))
    before = _dispatch.set_disabled(False)
    try:
        func = _aten.space("aten")._local_scalar_dense.default
        value, handler = _ask(func, _types_of((tensor,)), (tensor,), {})
    finally:
        _dispatch.set_disabled(before)
    if not isinstance(value, (bool, int, float, complex)):
        raise RuntimeError(
            f"{func}: __torch_dispatch__ of {handler} must return a number, got {_described(value)}"
        )
    with without_dispatch():
        return rabbet.full(tensor.shape, value, dtype=tensor.dtype, device="cpu")


# ---- switches


class without_dispatch:
    """A `with` block in which nothing is dispatched to Python, in this thread."""

    def __enter__(self) -> None:
        self._before = _dispatch.set_disabled(True)

    def __exit__(self, *error: object) -> None:
        _dispatch.set_disabled(self._before)


def call_without_dispatch(
    func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """`_disabled_torch_dispatch_impl`: run an operator below the layer."""
    with without_dispatch():
        return func(*args, **(kwargs or {}))


# ---- tensors


def dispatch_method(self: Tensor, name: str, args: tuple[Any, ...], **kwargs: Any) -> Any:
    """Dispatch a method that is not an operator of rabbet to the tensor's class and the modes."""
    func = getattr(_aten.space("aten"), name).default
    given = {key: value for key, value in kwargs.items() if value is not None}
    return _ask(func, _types_of((self,)), (self, *args), given)[0]


def join(tensor: Tensor) -> None:
    """Dispatch calls with this new object of a class that defines the protocol."""
    _dispatch.mark(tensor)


_dispatch.add_layer(_dispatch_call, _read_values, _on_read)
layer = _dispatch


def make_wrapper_subclass(
    cls: type,
    size: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = _C.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    dispatch_sizes_strides_policy: str | None = None,
    dispatch_device: bool = False,
    dispatch_layout: bool = False,
    _extra_dispatch_keys: Any = None,
    storage_size: int | None = None,
) -> Any:
    """A tensor with a shape and without values, of a class with `__torch_dispatch__` that provides them.

    Args:
        cls: the class of the tensor, a subclass of Tensor that defines `__torch_dispatch__`.
        size: its shape.
        strides: in elements; row-major if left out, or as `memory_format` says.
        dtype, device: what the tensor shows; the defaults if left out. No memory is used there.
        requires_grad: whether autograd records what happens to it.
        storage_offset, storage_size, pin_memory: of the memory, which a wrapper does not have in rabbet: without effect.

    Raises:
        TypeError: if the class does not define `__torch_dispatch__`, or is no subclass of Tensor.
        NotImplementedError: for `dispatch_sizes_strides_policy`, `dispatch_device`, `dispatch_layout`: attributes of a
            tensor are not dispatched in rabbet; and for layouts that are not strided.
    """
    if not isinstance(cls, type) or not issubclass(cls, Tensor):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your "
            "class inherits from Tensor."
        )
    if _handler_of(cls) is None:
        raise TypeError(f"{cls.__name__} must define __torch_dispatch__")
    for name, given in (
        ("dispatch_sizes_strides_policy", dispatch_sizes_strides_policy is not None),
        ("dispatch_device", dispatch_device),
        ("dispatch_layout", dispatch_layout),
        ("layout", layout is not _C.strided),
    ):
        if given:
            raise _C.NotImplementedForError(
                f"_make_wrapper_subclass: rabbet does not support the argument '{name}' yet"
            )
    shape = _sizes("size", size)
    steps = None if strides is None else _sizes("strides", strides)
    if min(shape, default=0) < 0:
        raise RuntimeError(f"_make_wrapper_subclass: size {tuple(shape)} has a negative dimension")
    if steps is not None and len(steps) != len(shape):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})"
        )
    overrides = _C.set_overrides_disabled(2)
    try:
        with without_dispatch():
            keeper = _C.op("empty")([0], dtype=dtype, device=device)
            if steps is None and memory_format not in (None, _C.preserve_format):
                shown = _C.op("empty")(shape, device="meta", memory_format=memory_format)
                steps = list(shown.stride())
    finally:
        _C.set_overrides_disabled(overrides)
    made = _dispatch.make_wrapper(cls, keeper, shape, steps)
    keeper.wrapper = (cls, made.__dict__)  # for aliases of the wrapper, see csrc/dispatch/layer.cpp
    if requires_grad:
        made.requires_grad = True
    return made


def _sizes(name: str, given: Any) -> list[int]:
    try:
        return [operator.index(n) for n in given]
    except TypeError:
        raise TypeError(
            f"_make_wrapper_subclass(): argument '{name}' must be tuple of ints, not {type(given).__name__}"
        ) from None


# ---- copies and pickles


def deepcopy_wrapper(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """copy.deepcopy of a tensor without values: its class clones it."""
    made = tensor.clone()
    if type(made) is not type(tensor):
        raise RuntimeError(
            "The default implementation of __deepcopy__() for wrapper subclasses only works for subclass types that "
            f"properly implement __torch_dispatch__ and for which clone() returns the type {type(tensor).__name__}, "
            f"not {type(made).__name__}"
        )
    return made.detach()


def reduce_wrapper(tensor: Tensor, requires_grad: bool) -> tuple[Any, ...]:
    """What pickle stores for a tensor without values: its class and geometry; its attributes follow as state."""
    geometry = (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype.name, str(tensor.device))
    return rebuild_wrapper, (type(tensor), *geometry, requires_grad)


def rebuild_wrapper(
    cls: type,
    size: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: str,
    device: str,
    requires_grad: bool,
) -> Any:
    """The tensor that `reduce_wrapper` described, without its attributes."""
    return make_wrapper_subclass(
        cls,
        size,
        strides=strides,
        dtype=getattr(_C, dtype),
        device=device,
        requires_grad=requires_grad,
    )
