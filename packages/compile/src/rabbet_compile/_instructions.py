"""The reads and writes of each instruction of CPython 3.11."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from typing import Any

from rabbet import Tensor

from . import _calls, _replay
from ._frames import Refused
from ._guards import MISSING, Kind
from ._known import CONTAINERS, ITERATORS, found_in, is_python_class
from ._numbers import Step, is_number
from ._watch import Watch

__all__ = ["HANDLERS"]

# Instructions that move references, jump, or make new objects from those on the stack.
_SILENT = [
    "CACHE",
    "POP_TOP",
    "PUSH_NULL",
    "NOP",
    "PUSH_EXC_INFO",
    "CHECK_EXC_MATCH",
    "WITH_EXCEPT_START",
    "LOAD_ASSERTION_ERROR",
    "RETURN_GENERATOR",
    "LIST_TO_TUPLE",
    "RETURN_VALUE",
    "YIELD_VALUE",
    "POP_EXCEPT",
    "SWAP",
    "LOAD_CONST",
    "BUILD_TUPLE",
    "BUILD_LIST",
    "JUMP_FORWARD",
    "RERAISE",
    "COPY",
    "SEND",
    "LOAD_FAST",
    "STORE_FAST",
    "DELETE_FAST",
    "POP_JUMP_FORWARD_IF_NOT_NONE",
    "POP_JUMP_FORWARD_IF_NONE",
    "RAISE_VARARGS",
    "MAKE_FUNCTION",
    "BUILD_SLICE",
    "JUMP_BACKWARD_NO_INTERRUPT",
    "MAKE_CELL",
    "LOAD_CLOSURE",
    "JUMP_BACKWARD",
    "EXTENDED_ARG",
    "LIST_APPEND",
    "COPY_FREE_VARS",
    "RESUME",
    "BUILD_CONST_KEY_MAP",
    "BUILD_STRING",
    "PRECALL",
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_NONE",
]
_WRITERS = {13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25}  # BINARY_OP: the operators in place


def _global(watch: Watch, frame: Any, name: str) -> None:
    held = frame.globals
    value = held.get(name, MISSING)
    watch._known[id(held)] = held
    watch.entry(held, name, value)
    if value is MISSING:
        built = frame.builtins
        watch._known[id(built)] = built
        watch.entry(built, name, built.get(name, MISSING))


def _load_global(watch: Watch, frame: Any, arg: int) -> None:
    _global(watch, frame, frame.code.co_names[arg >> 1])


def _load_deref(watch: Watch, frame: Any, arg: int) -> None:
    cell = frame.local(arg)
    try:
        value = cell.cell_contents
    except ValueError:
        value = MISSING
    if watch.is_old(cell):
        watch.know(value)
        watch.guard(("cell", id(cell)), Kind.CELL, cell, value)


def _store_deref(watch: Watch, frame: Any, arg: int) -> None:
    if watch.is_old(frame.local(arg)):
        name = frame.code.co_cellvars + frame.code.co_freevars
        raise Refused(f"changes a variable of an enclosing function ({', '.join(name)})")


def _load_attr(watch: Watch, frame: Any, arg: int) -> None:
    watch.attribute(frame.peek(1), frame.code.co_names[arg], frame)


def _store_attr(watch: Watch, frame: Any, arg: int) -> None:
    watch.set_attribute(frame.peek(1), frame.code.co_names[arg], frame.peek(2))


def _delete_attr(watch: Watch, frame: Any, arg: int) -> None:
    watch.set_attribute(frame.peek(1), frame.code.co_names[arg], MISSING)


def _binary(watch: Watch, frame: Any, arg: int) -> None:
    left, right = frame.peek(2), frame.peek(1)
    if arg in _WRITERS and isinstance(left, CONTAINERS) and not isinstance(left, frozenset):
        watch.changed(left)
    if left in watch.numbers or right in watch.numbers:
        return watch.compute(arg, left, right)
    watch.operand(left)
    watch.operand(right)
    return None


def _compare(watch: Watch, frame: Any, arg: int) -> None:
    left, right = frame.peek(2), frame.peek(1)
    if left in watch.numbers or right in watch.numbers:
        return watch.compare(arg, left, right)
    watch.operand(left)
    watch.operand(right)
    return None


def _unary_number(watch: Watch, frame: Any, op: int) -> None:
    item = frame.peek(1)
    if item not in watch.numbers:
        return watch.operand(item)
    at = watch.numbers.at(item)
    watch.after(lambda result: watch.follow(result, Step.UNARY, op, at))
    return None


def _unary(watch: Watch, frame: Any, arg: int) -> None:
    watch.operand(frame.peek(1))


def _test(watch: Watch, frame: Any, arg: int) -> None:
    watch.truth(frame.peek(1))


def _call(watch: Watch, frame: Any, arg: int) -> None:
    first, second = frame.peek(arg + 2), frame.peek(arg + 1)
    args = tuple(frame.peek(i) for i in range(arg, 0, -1))
    names = watch.keywords(frame)
    if first is not _replay.NULL:
        first, args = first, (second, *args)
    else:
        first = second
    split = len(args) - len(names)
    _calls.call(watch, frame, first, args[:split], dict(zip(names, args[split:], strict=True)))


def _call_ex(watch: Watch, frame: Any, arg: int) -> None:
    named = frame.peek(1) if arg & 1 else {}
    given = frame.peek(2 if arg & 1 else 1)
    function = frame.peek(3 if arg & 1 else 2)
    if not isinstance(given, tuple):
        watch.iterate(given)
        if not isinstance(given, (list, tuple)):
            raise Refused(f"passes a {type(given).__name__} as arguments")
    if not isinstance(named, dict):
        raise Refused(f"passes a {type(named).__name__} as keyword arguments")
    watch.items(named)
    _calls.call(watch, frame, function, tuple(given), dict(named))


def _import(watch: Watch, frame: Any, arg: int) -> None:
    name, wanted, level = frame.code.co_names[arg], frame.peek(1), frame.peek(2)
    package = frame.globals.get("__package__") or ""
    if level:
        base = package.rsplit(".", level - 1)[0] if level > 1 else package
        name = f"{base}.{name}" if name else base
    parts = name.split(".")
    modules = sys.modules
    watch._known[id(modules)] = modules
    for i in range(len(parts)):
        part = ".".join(parts[: i + 1])
        if part not in modules:
            raise Refused(f"imports {name} for the first time")
        watch.entry(modules, part, modules[part])
    for item in wanted or ():
        if not hasattr(modules[name], item):
            raise Refused(f"imports {name}.{item} for the first time")


def _with(watch: Watch, frame: Any, arg: int) -> None:
    manager = frame.peek(1)
    watch.type_of(manager)
    for name in ("__enter__", "__exit__"):
        found = found_in(type(manager), name)
        if not isinstance(found, types.FunctionType):
            raise Refused(f"enters a {type(manager).__name__}")
        watch.know(found)


def _merge(watch: Watch, frame: Any, arg: int) -> None:
    given = frame.peek(1)
    if not isinstance(given, dict):
        raise Refused(f"unpacks a {type(given).__name__}")
    if watch.numbers.are_in(list(given)):
        raise Refused("uses a number that changes as a key")
    watch.items(given)


def _build_set(watch: Watch, frame: Any, arg: int) -> None:
    for i in range(arg):
        watch.operand(frame.peek(i + 1))


def _build_map(watch: Watch, frame: Any, arg: int) -> None:
    if watch.numbers and any(frame.peek(2 * i + 2) in watch.numbers for i in range(arg)):
        raise Refused("uses a number that changes as a key")


def _is(watch: Watch, frame: Any, arg: int) -> None:
    left, right = frame.peek(2), frame.peek(1)
    if (left in watch.numbers and is_number(right)) or (right in watch.numbers and is_number(left)):
        frame.replace(2, watch.numbers.original(left))
        frame.replace(1, watch.numbers.original(right))
        raise Refused("asks whether a number that changes is another object")


def _for_iter(watch: Watch, frame: Any, arg: int) -> None:
    iterator = frame.peek(1)
    if type(iterator) not in ITERATORS:
        if is_python_class(type(iterator)) and isinstance(
            found_in(type(iterator), "__next__"), types.FunctionType
        ):
            return watch.type_of(iterator)
        if not isinstance(iterator, Tensor) and type(iterator).__name__ != "chain":
            raise Refused(f"goes through a {type(iterator).__name__}")
    if watch.is_old(iterator):
        raise Refused(f"goes on with a {type(iterator).__name__} that was there before")
    return None


def _format(watch: Watch, frame: Any, arg: int) -> None:
    item = frame.peek(2 if arg & 4 else 1)
    _calls.as_text(watch, item)


def _refused(watch: Watch, frame: Any, arg: int) -> None:
    op = frame.code.co_code[2 * frame.at]
    raise Refused(f"uses the instruction {dis.opname[op]}")


_BY_NAME: dict[str, Callable[[Watch, Any, int], None]] = {
    "LOAD_GLOBAL": _load_global,
    "LOAD_NAME": lambda w, f, arg: _global(w, f, f.code.co_names[arg]),
    "LOAD_DEREF": _load_deref,
    "STORE_DEREF": _store_deref,
    "DELETE_DEREF": _store_deref,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_attr,
    "IMPORT_FROM": _load_attr,
    "STORE_ATTR": _store_attr,
    "DELETE_ATTR": _delete_attr,
    "BINARY_SUBSCR": lambda w, f, arg: w.subscript(f.peek(2), f.peek(1)),
    "STORE_SUBSCR": lambda w, f, arg: w.store_item(f.peek(2), f.peek(1), f.peek(3)),
    "DELETE_SUBSCR": lambda w, f, arg: w.store_item(f.peek(2), f.peek(1), MISSING),
    "BINARY_OP": _binary,
    "COMPARE_OP": _compare,
    "CONTAINS_OP": lambda w, f, arg: w.contains(f.peek(1), f.peek(2)),
    "UNARY_NEGATIVE": lambda w, f, arg: _unary_number(w, f, 0),
    "UNARY_POSITIVE": lambda w, f, arg: _unary_number(w, f, 1),
    "UNARY_INVERT": lambda w, f, arg: _unary_number(w, f, 2),
    "UNARY_NOT": _test,
    "JUMP_IF_FALSE_OR_POP": _test,
    "JUMP_IF_TRUE_OR_POP": _test,
    "POP_JUMP_FORWARD_IF_FALSE": _test,
    "POP_JUMP_FORWARD_IF_TRUE": _test,
    "POP_JUMP_BACKWARD_IF_FALSE": _test,
    "POP_JUMP_BACKWARD_IF_TRUE": _test,
    "GET_ITER": lambda w, f, arg: w.iterate(f.peek(1)),
    "GET_YIELD_FROM_ITER": lambda w, f, arg: w.iterate(f.peek(1)),
    "FOR_ITER": _for_iter,
    "UNPACK_SEQUENCE": lambda w, f, arg: w.iterate(f.peek(1)),
    "UNPACK_EX": lambda w, f, arg: w.iterate(f.peek(1)),
    "LIST_EXTEND": lambda w, f, arg: w.iterate(f.peek(1)),
    "SET_UPDATE": lambda w, f, arg: w.iterate(f.peek(1)),
    "DICT_MERGE": _merge,
    "DICT_UPDATE": _merge,
    "IS_OP": _is,
    "BUILD_MAP": _build_map,
    "CALL": _call,
    "CALL_FUNCTION_EX": _call_ex,
    "KW_NAMES": lambda w, f, arg: w.set_keywords(f, f.code.co_consts[arg]),
    "IMPORT_NAME": _import,
    "BEFORE_WITH": _with,
    "FORMAT_VALUE": _format,
    # These hash the elements.
    "BUILD_SET": _build_set,
    "SET_ADD": _unary,
    "MAP_ADD": lambda w, f, arg: w.operand(f.peek(2)),
}
HANDLERS: dict[int, Callable[[Watch, Any, int], None]] = {
    op: _BY_NAME.get(name, _refused) for name, op in dis.opmap.items() if name not in _SILENT
}
