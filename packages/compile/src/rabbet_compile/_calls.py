"""The reads and writes of functions in C. A function that this module does not know is refused."""

from __future__ import annotations

import abc
import functools
import operator
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from rabbet import _C, Tensor

from ._guards import MISSING, Kind
from ._known import ATOMS, BASES, IMMUTABLE, METADATA, is_python_class
from ._numbers import PURE

__all__ = ["as_text", "call"]

Args = tuple[Any, ...]
Handler = Callable[[Any, Any, Args, dict[str, Any]], None]


# Functions and methods that store or return objects without reading their values.
_KEEPING = frozenset(
    [
        "append",
        "extend",
        "insert",
        "pop",
        "items",
        "values",
        "keys",
        "copy",
        "list",
        "tuple",
        "dict",
        "zip",
        "enumerate",
        "reversed",
        "iter",
        "next",
        "isinstance",
        "type",
        "partial",
    ]
)
_BY_KEY = frozenset(["get", "setdefault", "__getitem__", "__setitem__", "__contains__", "pop"])


def _with_numbers(watch: Any, frame: Any, function: Any, args: Args, named: dict[str, Any]) -> None:
    """`call` with followed numbers among the arguments."""
    if type(function) is _C.Op:
        positions = {i: arg for i, arg in enumerate(args) if arg in watch.numbers}
        others = tuple(arg for i, arg in enumerate(args) if i not in positions)
        if watch.numbers.are_in((others, named)):
            watch.refuse("gives an operator a number that changes by name or in a list")
        watch.uses = function.__name__, positions
        return _operator(watch, others, named)
    if isinstance(function, types.BuiltinFunctionType | type) and function in PURE and not named:
        return watch.apply(function, args)
    if isinstance(function, type) and is_python_class(function):
        return _make(watch, frame, function, args, named)
    if is_python_class(type(function)):
        return _object(watch, frame, function, args, named)
    if isinstance(function, types.BuiltinFunctionType | type) and function in (
        len,
        isinstance,
        type,
        callable,
    ):
        return _FUNCTIONS[id(function)][1](watch, frame, args, named)
    name = getattr(function, "__name__", "")
    bound = isinstance(function, types.BuiltinFunctionType) and isinstance(
        function.__self__, list | dict
    )
    held = (function.__self__, *args) if bound else args
    if isinstance(held[0], dict) and name in _BY_KEY:
        if held[1] in watch.numbers:
            return watch.number_key(held[0], held[1])
        return _method(watch, frame, type(held[0]), name, held, named)
    if name not in _KEEPING:
        watch.refuse(f"gives {_name(function)} a number that changes")
    for arg in held if name not in ("append", "insert", "pop") else ():
        if isinstance(arg, list | dict):
            watch.iterate(arg)
    if name in ("append", "extend", "insert", "pop"):
        watch.changed(held[0])
    return None


def call(watch: Any, frame: Any, function: Any, args: Args, named: dict[str, Any]) -> None:
    """Guard the reads of `function(*args, **named)`, or refuse the call."""
    kind = type(function)
    if kind is types.FunctionType:
        return None  # the watch sees its instructions
    if kind is types.MethodType:
        return call(watch, frame, function.__func__, (function.__self__, *args), named)
    if kind is _C.overridable:
        return call(watch, frame, function.__wrapped__, args, named)
    if watch.numbers.are_in((*args, *named.values())):
        return _with_numbers(watch, frame, function, args, named)
    if kind is _C.Op:
        return _operator(watch, args, named)
    if isinstance(function, type):
        return _make(watch, frame, function, args, named)
    known = _FUNCTIONS.get(id(function))
    if known is not None:
        return known[1](watch, frame, args, named)
    if kind is types.BuiltinFunctionType:
        return _builtin(watch, frame, function, args, named)
    if kind in (
        types.MethodDescriptorType,
        types.ClassMethodDescriptorType,
        types.WrapperDescriptorType,
    ):
        return _method(watch, frame, function.__objclass__, function.__name__, args, named)
    if kind is types.MethodWrapperType:
        owner = function.__self__
        return _method(watch, frame, type(owner), function.__name__, (owner, *args), named)
    return _object(watch, frame, function, args, named)


def _object(watch: Any, frame: Any, function: Any, args: Args, named: dict[str, Any]) -> None:
    kind = type(function)
    if isinstance(function, functools.partial) and kind is functools.partial:
        if watch.is_old(function):
            watch.slot(function, functools.partial.__dict__["func"])
            watch.know(function.args)
            watch.know(function.func)
            watch._known[id(function.keywords)] = function.keywords
        watch.items(function.keywords)
        return call(
            watch, frame, function.func, (*function.args, *args), {**function.keywords, **named}
        )
    if isinstance(function, weakref.ReferenceType):
        value = function()
        if watch.is_old(function):
            watch.know(value)
            watch.guard(("call", id(function)), Kind.CALL, function, (), value)
        return None
    if isinstance(function, functools._lru_cache_wrapper):
        inner = getattr(function, "__wrapped__", None)
        if str(getattr(inner, "__module__", "")).partition(".")[0] == "rabbet":
            return None
        watch.refuse(f"calls {_name(function)}, which keeps its results")
    if is_python_class(kind):
        watch.type_of(function)
        return None
    watch.refuse(f"calls {_name(function)}, of which it is not known what it reads")
    return None


def _operator(watch: Any, args: Args, named: dict[str, Any]) -> None:
    for arg in (*args, *named.values()):
        if isinstance(arg, (list, tuple)):
            watch.iterate(arg)
            for item in arg:
                _number_like(watch, item)
        else:
            _number_like(watch, arg)


def _number_like(watch: Any, arg: Any) -> None:
    if isinstance(arg, (*IMMUTABLE, Tensor, _C.Generator)) or callable(arg):
        return
    if isinstance(arg, (list, tuple)):
        watch.operand(arg)
    elif is_python_class(type(arg)):
        watch.type_of(arg)
    else:
        watch.refuse(f"gives an operator a {type(arg).__name__}")


# ---- making objects

_MAKERS = {k.__new__ for k in BASES if k is not Tensor} | {OrderedDict.__new__, defaultdict.__new__}


def _make(watch: Any, frame: Any, kind: type, args: Args, named: dict[str, Any]) -> None:
    known = _FUNCTIONS.get(id(kind))
    if known is not None:
        return known[1](watch, frame, args, named)
    if kind in IMMUTABLE or kind in (types.MethodType, types.SimpleNamespace):
        for arg in (*args, *named.values()):
            _number_like(watch, arg)
        return None
    if issubclass(kind, BaseException):
        watch.look_up(kind)
        return None
    if isinstance(kind, abc.ABCMeta) or type(kind) is type:
        watch.look_up(kind)
        watch.look_up(type(kind))
        if is_python_class(kind):
            if issubclass(kind, Tensor):
                watch.refuse(f"makes a {kind.__name__}")
            maker = kind.__new__
            if not (isinstance(maker, types.FunctionType) or maker in _MAKERS):
                watch.refuse(f"makes a {kind.__name__}")
            for arg in (*args, *named.values()):
                if issubclass(kind, (dict, list, set, tuple)) and isinstance(
                    arg, (list, dict, set, deque)
                ):
                    watch.iterate(arg)
            return None
    elif is_python_class(kind) and is_python_class(type(kind)):
        watch.look_up(kind)
        watch.look_up(type(kind))
        return None
    watch.refuse(f"makes a {kind.__module__}.{kind.__name__}")
    return None


# ---- methods of basic types

_READS_ALL_OF: dict[type, str] = {
    dict: "copy items keys values __iter__ __len__ __eq__ __or__ __reversed__",
    OrderedDict: "copy items keys values __iter__ __len__ __eq__ __reversed__",
    list: "copy index count __iter__ __len__ __eq__ __add__ __contains__ __getitem__ __reversed__",
    set: "copy __iter__ __len__ __eq__ __contains__ __or__ __and__ __sub__ union intersection difference issubset issuperset "
    "isdisjoint symmetric_difference",
    deque: "copy index count __iter__ __len__ __contains__",
}
_CHANGES_OF: dict[type, str] = {
    dict: "clear popitem __ior__ __init__",
    OrderedDict: "clear popitem move_to_end __init__",
    list: "append extend insert pop remove clear sort reverse __iadd__ __setitem__ __delitem__ __init__ __imul__",
    set: "add discard remove pop clear update difference_update intersection_update __init__",
    deque: "append appendleft pop popleft extend extendleft clear rotate insert remove",
}
_READS_ALL = {kind: frozenset(names.split()) for kind, names in _READS_ALL_OF.items()}
_CHANGES = {kind: frozenset(names.split()) for kind, names in _CHANGES_OF.items()}
_PURE_OWNERS = (str, bytes, int, float, complex, bool, tuple, range, slice, frozenset, type(None))
_GENERATOR = frozenset({"send", "close", "throw", "__next__", "__iter__"})
_ITERATES = frozenset(
    {
        "extend",
        "update",
        "join",
        "union",
        "intersection",
        "difference",
        "extendleft",
        "__init__",
        "fromkeys",
    }
)


def _builtin(watch: Any, frame: Any, function: Any, args: Args, named: dict[str, Any]) -> None:
    owner, module = function.__self__, function.__module__ or ""
    if module or owner is None or isinstance(owner, types.ModuleType):
        module = module or getattr(owner, "__name__", "")
        if function is getattr(_autograd(), "real_grads", None):
            return _real_grads(watch, args)
        if (module, function.__name__) == ("rabbet.autograd._C", "run"):
            watch.backward = True
            return None
        if module == "math":
            for arg in args:
                watch.operand(arg)
            return None
        names = _ALLOWED.get(module)
        if names is not None and function.__name__ in names:
            return None
        if (module, function.__name__) in _GETTERS:
            value = function(*args, **named)
            watch.guard(("call", id(function), args), Kind.CALL, function, args, value)
            return None
        watch.refuse(f"calls {module}.{function.__name__}, of which it is not known what it reads")
    if isinstance(owner, type):
        if function.__name__ == "__new__":
            return _new(watch, owner, args)
        return _method(watch, frame, owner, function.__name__, args, named)
    return _method(watch, frame, type(owner), function.__name__, (owner, *args), named)


def _autograd() -> Any:
    return getattr(sys.modules.get("rabbet.autograd"), "_C", None)


def _real_grads(watch: Any, args: Args) -> None:
    watch.iterate(args[0])
    for tensor in args[0]:
        watch.gradient(tensor, None)


def _new(watch: Any, owner: type, args: Args) -> None:
    kind = args[0] if args else owner
    if owner not in BASES or owner is Tensor or not isinstance(kind, type):
        watch.refuse(f"makes a {owner.__name__}")
    watch.look_up(kind)
    for arg in args[1:]:
        watch.iterate(arg) if isinstance(arg, (list, dict, set)) else None


def _method(
    watch: Any, frame: Any, kind: type, name: str, args: Args, named: dict[str, Any]
) -> None:
    item = args[0] if args else None
    if kind is object or (
        kind is type and name in ("__setattr__", "__delattr__", "__getattribute__", "__init__")
    ):
        return _of_object(watch, frame, name, args)
    if issubclass(kind, Tensor):
        return _of_tensor(watch, frame, name, args, named)
    if issubclass(kind, BaseException):
        return None
    if name in _ITERATES:
        for arg in args[1:]:
            watch.iterate(arg)
    for base in (OrderedDict, dict, list, set, deque):
        if not issubclass(kind, base):
            continue
        if base in (dict, OrderedDict) and _of_dict(watch, name, args, named):
            return None
        if name in _READS_ALL[base]:
            watch.items(item) if name != "__len__" else watch.length(item)
            for arg in args[1:]:
                watch.operand(arg)
            return None
        if name in _CHANGES[base]:
            watch.changed(item)
            if name == "sort" and named.get("key") is not None:
                _pure(watch, named["key"])
            if name in ("remove", "add", "discard"):
                watch.operand(args[1])
            return None
    if kind in _PURE_OWNERS:
        for arg in args:
            watch.operand(arg) if name != "join" else None
        if name in ("format", "__mod__", "format_map"):
            for arg in (*args[1:], *named.values()):
                as_text(watch, arg)
        return None
    if kind in IMMUTABLE:
        return None
    if kind is types.GeneratorType and name in _GENERATOR:
        if watch.is_old(item):
            watch.refuse("goes on with a generator that was there before")
        return None
    if kind is types.MappingProxyType:
        return _method(watch, frame, dict, name, (watch.proxied(item), *args[1:]), named)
    if kind is super:
        return None
    if name == "__get__" and args:
        watch.type_of(args[0])
        return None
    watch.refuse(f"calls {kind.__name__}.{name}, of which it is not known what it reads")
    return None


def _of_dict(watch: Any, name: str, args: Args, named: dict[str, Any]) -> bool:
    item = args[0]
    if name in (
        "get",
        "__getitem__",
        "__contains__",
        "setdefault",
        "pop",
        "__setitem__",
        "__delitem__",
    ):
        key = args[1]
        if watch.numbers.are_compared(item, key):
            watch.number_key(item, key)
            return True
        watch.operand(key)
        value = dict.get(item, key, MISSING)
        if name in ("get", "__getitem__", "__contains__", "pop", "setdefault"):
            watch.entry(item, key, value)
        if name == "__setitem__":
            watch.store_item(item, key, args[2])
        elif name in ("pop", "__delitem__") and value is not MISSING:
            watch.store_item(item, key, MISSING)
        elif name == "setdefault" and value is MISSING:
            watch.store_item(item, key, args[2] if len(args) > 2 else None)
        return True
    if name == "update":
        for other in args[1:]:
            if not isinstance(other, dict):
                watch.changed(item)
                return True
            watch.items(other)
            for key, value in dict.items(other):
                watch.store_item(item, key, value)
        for key, value in named.items():
            watch.store_item(item, key, value)
        return True
    return False


def _of_object(watch: Any, frame: Any, name: str, args: Args) -> None:
    if name in ("__setattr__", "__delattr__"):
        value = args[2] if name == "__setattr__" else MISSING
        if isinstance(args[0], Tensor):
            return watch.set_tensor_attribute(args[0], args[1], value)
        if isinstance(args[0], type):
            watch.refuse(f"changes the class {args[0].__name__}")
        return watch.generic_set_attribute(args[0], args[1], value)
    if name == "__getattribute__":
        if isinstance(args[0], Tensor):
            return watch.tensor_attribute(args[0], args[1], frame)
        return watch.generic_attribute(args[0], args[1])
    if name in ("__init__", "__init_subclass__", "__eq__", "__ne__", "__class__"):
        return None
    if name == "__hash__":
        watch.refuse("uses the identity of an object as a number")
    watch.refuse(f"calls object.{name}, of which it is not known what it reads")
    return None


# ---- tensors

_TENSOR_METHODS = METADATA | frozenset(
    [
        "to",
        "float",
        "double",
        "half",
        "bfloat16",
        "long",
        "int",
        "short",
        "char",
        "byte",
        "bool",
        "chalf",
        "cfloat",
        "cdouble",
        "cpu",
        "view",
        "view_as",
        "reshape_as",
        "type_as",
        "backward",
        "__torch_function__",
        "storage_offset",
    ]
)
_READS = frozenset(
    [
        "item",
        "tolist",
        "numpy",
        "__array__",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__repr__",
        "__contains__",
    ]
)


def _of_tensor(watch: Any, frame: Any, name: str, args: Args, named: dict[str, Any]) -> None:
    if name == "__setattr__":
        return watch.set_tensor_attribute(args[0], args[1], args[2])
    if name == "backward":
        watch.backward = True
    if name in _READS:
        watch.refuse(f"reads the values of a tensor ({name})")
    found = Tensor.__dict__.get(name)
    if name in _TENSOR_METHODS or type(found) is _C.Op:
        return _operator(watch, args[1:], named)
    if type(found) is types.WrapperDescriptorType and name not in ("__repr__", "__index__"):
        return _operator(watch, args[1:], named)
    watch.refuse(f"calls Tensor.{name}, of which it is not known what it reads")
    return None


# ---- functions


def _pure(watch: Any, function: Any) -> None:
    """Refuse a function that C code would call, unless it is Python code or reads nothing but its arguments."""
    if function is None or isinstance(function, types.FunctionType):
        return
    if isinstance(function, types.MethodType):
        return _pure(watch, function.__func__)
    if function in (int, float, str, bool, len, tuple, list, abs, type):
        return
    if isinstance(function, type) and is_python_class(function):
        return
    if type(function) is _C.Op:
        return
    watch.refuse(
        f"lets a function in C call {_name(function)}, of which it is not known what it reads"
    )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or f"a {type(function).__name__}"


def as_text(watch: Any, item: Any) -> None:
    """The call converts an object to text."""
    kind = type(item)
    if item in watch.numbers:
        watch.refuse("prints a number that changes")
    if kind in IMMUTABLE or isinstance(item, type):
        return
    if isinstance(item, (list, tuple, dict, set, frozenset, deque)):
        if not isinstance(item, (tuple, frozenset)):
            watch.items(item)
        for part in [*item, *item.values()] if isinstance(item, dict) else item:
            as_text(watch, part)
    elif is_python_class(kind) and not isinstance(item, Tensor):
        watch.type_of(item)
        usual = object.__dict__
        if all(getattr(kind, name) is usual[name] for name in ("__repr__", "__str__")):
            watch.refuse("prints the address of an object")
    else:
        watch.refuse(f"prints a {kind.__name__}")


def _iterate_all(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    _pure(watch, named.get("key"))
    for arg in args:
        if type(arg) not in ATOMS and not callable(arg):
            watch.iterate(arg)


def _compare_all(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    _iterate_all(watch, frame, args, named)
    for arg in args:
        if isinstance(arg, (list, tuple, dict, set)):
            watch.operand(arg)


def _mapped(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    _pure(watch, args[0])
    for arg in args[1:]:
        watch.iterate(arg)


def _operands(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    for arg in args:
        watch.operand(arg)


def _texts(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    for arg in args:
        as_text(watch, arg)


def _length(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    item = args[0]
    if isinstance(item, (list, dict, set, deque)):
        watch.length(item)
    elif not isinstance(item, (tuple, str, bytes, range, frozenset, Tensor)):
        if not is_python_class(type(item)):
            watch.refuse(f"asks for the length of a {type(item).__name__}")
        watch.type_of(item)


def _is_instance(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    item, kinds = args
    if not isinstance(item, (Tensor, type)):
        watch.type_of(item)
    _kinds(watch, kinds)


def _is_subclass(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    watch.look_up(args[0])
    _kinds(watch, args[1])


def _kinds(watch: Any, kinds: Any) -> None:
    if isinstance(kinds, tuple):
        for kind in kinds:
            _kinds(watch, kind)
    elif isinstance(kinds, type):
        if isinstance(kinds, abc.ABCMeta):
            watch.guard("abc", Kind.CALL, abc.get_cache_token, (), abc.get_cache_token())
        watch.look_up(type(kinds))
    elif not isinstance(kinds, types.UnionType):
        watch.refuse(f"asks whether an object is of a {type(kinds).__name__}")


def _get_attribute(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    watch.attribute(args[0], args[1])


def _set_attribute(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    watch.set_attribute(args[0], args[1], args[2] if len(args) > 2 else MISSING)


def _type(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    if len(args) != 1:
        watch.refuse("makes a class")
    if isinstance(args[0], Tensor):
        return
    watch.type_of(args[0])


def _identity(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    item = args[0]
    if type(item) in ATOMS or not watch.is_old(item):
        watch.refuse(f"asks for the id of a {type(item).__name__} that another call may not get")


def _next(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    if watch.is_old(args[0]):
        watch.refuse(f"goes on with a {type(args[0]).__name__} that was there before")
    watch.iterate(args[0])


def _vars(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    if len(args) != 1:
        watch.refuse("calls vars()")
    if isinstance(args[0], type):
        return watch.look_up(args[0])
    watch.generic_attribute(args[0], "__dict__")


def _number(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    for arg in args:
        if not isinstance(arg, Tensor):
            watch.operand(arg)


def _nothing(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    pass


def _tensor_of_data(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    for arg in args[:1]:
        if isinstance(arg, Tensor):
            watch.refuse("makes a tensor of a tensor by rabbet.tensor")
        watch.operand(arg)
    watch.after(watch.on_data, needed=False)


def _reduce(watch: Any, frame: Any, args: Args, named: dict[str, Any]) -> None:
    _pure(watch, args[0])
    watch.iterate(args[1])


_TABLE: dict[Any, Handler] = {
    len: _length, isinstance: _is_instance, issubclass: _is_subclass, getattr: _get_attribute, hasattr: _get_attribute,
    setattr: _set_attribute, delattr: _set_attribute, type: _type, iter: _iterate_all, next: _next, vars: _vars,
    list: _iterate_all, tuple: _iterate_all, set: _compare_all, frozenset: _compare_all, dict: _iterate_all,
    sorted: _compare_all, sum: _compare_all, min: _compare_all, max: _compare_all, any: _compare_all, all: _compare_all,
    enumerate: _iterate_all, zip: _iterate_all, reversed: _iterate_all, map: _mapped, filter: _mapped,
    OrderedDict: _iterate_all, deque: _iterate_all, defaultdict: _iterate_all,
    abs: _number, round: _number, divmod: _operands, pow: _operands, int: _number, float: _number, complex: _number,
    bool: lambda w, f, a, n: w.truth(a[0]) if a else None, range: _operands, slice: _nothing, ord: _operands, chr: _operands,
    id: _identity, str: _texts, repr: _texts, format: _texts, callable: lambda w, f, a, n: w.type_of(a[0]),
    super: _nothing, object: _nothing, property: _nothing, staticmethod: _nothing, classmethod: _nothing,
    functools.partial: _nothing, functools.reduce: _reduce,
    _C.tensor: _tensor_of_data,
    **{getattr(operator, name): _operands for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "pow", "lt", "le", "gt", "ge", "eq", "ne"]},
    operator.getitem: lambda w, f, a, n: w.subscript(a[0], a[1]), operator.index: _operands,
}  # fmt: skip
_FUNCTIONS: dict[int, tuple[Any, Handler]] = {id(f): (f, handler) for f, handler in _TABLE.items()}

# Functions that read only the state of the thread, which every variant compares, or change it until the call ends.
_ALLOWED: dict[str, frozenset[str]] = {
    "rabbet._C": frozenset(
        [
            "has_torch_function",
            "has_torch_function_variadic",
            "call_override",
            "promote_types",
            "can_cast",
            "range_begin",
            "range_end",
            "op",
            "op_info",
            "named_dtype",
            "chosen_device",
            "get_default_dtype",
            "is_capturing",
            "set_overrides_disabled",
            "overrides_disabled",
            "transform_level",
            "transform_depth",
            "return_types",
            "composite_layer",
            "call_record",
            "infer",
            "float_limits",
            "source",
        ]
    ),
    "rabbet.autograd._C": frozenset(
        [
            "is_grad_enabled",
            "set_grad_enabled",
            "is_inference_mode",
            "set_inference_mode",
            "current_run",
        ]
    ),
    "rabbet.amp._C": frozenset(
        [
            "backend_id",
            "is_enabled",
            "get_dtype",
            "set_enabled",
            "set_dtype",
            "is_cache_enabled",
            "enter",
            "leave",
            "clear_cache",
        ]
    ),
    "_abc": frozenset({"_abc_instancecheck", "_abc_subclasscheck"}),
    "rabbet._dispatch": frozenset({"modes"}),
}
_GETTERS = frozenset({("rabbet._C", "setting"), ("rabbet._C", "layers")})
