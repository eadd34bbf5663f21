"""Sees what Python code reads and writes while it runs, and turns it into guards.

Each instruction is shown before it runs, with the objects that it works on. What it reads of objects that were there
before the call becomes a guard; objects that the call makes need none, since equal reads make equal objects. Whatever is
not known here ends the watch with a reason, and the call is not recorded.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import os
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from rabbet import Tensor

from . import _calls, _replay
from ._guards import MISSING, Guard, Kind
from ._known import (
    ATOMS,
    BASES,
    IMMUTABLE,
    METADATA,
    OPERATOR_TYPES,
    is_plain_data,
    is_python_class,
)
from ._replay import same

__all__ = ["Refused", "Watch", "do_not_watch", "same"]


class Refused(Exception):
    """Raised where a read or a write cannot be guarded."""


# Instructions that move references, jump, or make new objects of what is on the stack.
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
    "BUILD_MAP",
    "JUMP_FORWARD",
    "IS_OP",
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
_LIST_LIKE = (list, tuple, str, bytes, range, frozenset)
_WRITERS = {13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25}  # BINARY_OP: those in place


class Watch:
    """Collects the guards of one call.

    Attributes:
        guards: what the call has read, by place.
        refused: the reason for which the call cannot be recorded; None so far.
        writes: for each place of an object that was there before: (dict, key, value before, value now).
        tensors: the tensors that were there before, by id.
        backward: whether a backward pass has run.
        on_data: called with each tensor that is made of Python's data.
        is_made: whether an operator of the call has made a tensor.
    """

    def __init__(self, on_tensor: Callable[[Tensor], None]) -> None:
        self.guards: dict[Any, Guard] = {}
        self.writes: dict[Any, tuple[dict[Any, Any], Any, Any, Any]] = {}
        self.refused: str | None = None
        self.tensors: dict[int, Tensor] = {}
        self.backward = False
        self.on_data: Callable[[Tensor], None] = lambda tensor: None
        self.is_made: Callable[[Tensor], bool] = lambda tensor: False
        self._known: dict[int, Any] = {}
        self._arguments: dict[int, Any] = {}
        self._on_tensor = on_tensor
        self._before: list[Any] = []
        self._ids: set[int] = set()
        self._after: tuple[tuple[int, int], Callable[[Any], None]] | None = None
        self._names: dict[int, tuple[str, ...]] = {}
        self._watch = _replay.Watch(self._enter, self._op, bytes(_HANDLERS))
        self._where: Any = None

    # ---- running

    def start(self) -> None:
        """Watch what the thread does from now on."""
        self._before = gc.get_objects()
        self._ids = set(map(id, self._before))
        if not self._watch.start():
            self.refuse_at("a trace function is set, as debuggers and coverage do")

    def stop(self) -> None:
        """End the watch."""
        if self.refused is None or "trace function" not in self.refused:
            self._watch.stop()
        if self._watch.error is not None and self.refused is None:
            error = self._watch.error
            self.refused = f"an error in rabbet_compile: {type(error).__name__}: {error}"
        self._before = []
        self._after = None

    def pause(self) -> None:
        """Watch nothing until `resume`."""
        self._watch.pause()

    def resume(self) -> None:
        """End a pause."""
        self._watch.resume()

    def argument(self, item: Any) -> None:
        """Say that an object is a container of arguments, whose structure is compared in another way."""
        self._arguments[id(item)] = item

    def refuse_at(self, reason: str) -> None:
        """Note a reason for which the call cannot be recorded; the first one counts."""
        if self.refused is None:
            where = f" at {self._where}" if self._where else ""
            self.refused = reason + where

    # ---- events

    def _enter(self, frame: Any) -> bool:
        if self.refused is not None:
            return False
        code = frame.code
        if code.co_filename.startswith(_OWN):
            return False
        function = frame.function
        if function is not _replay.NULL and self.is_old(function):
            self.function(function)
        return True

    def _op(self, frame: Any, op: int, arg: int) -> None:
        if self.refused is not None:
            return
        if self._after is not None:
            where, see = self._after
            self._after = None
            self._watch.show_all(False)
            if where == (frame.id, frame.at):
                see(frame.peek(1))
        handler = _HANDLERS.get(op)
        if handler is None:
            return
        try:
            handler(self, frame, arg)
        except Refused as refused:
            code = frame.code
            self._where = f"{os.path.basename(code.co_filename)}:{frame.line} in {code.co_name}"
            self.refuse_at(str(refused))

    def made_of_data(self, frame: Any) -> None:
        """The instruction makes a tensor of Python's data, which the next one finds on the stack."""
        code, at = frame.code.co_code, frame.at + 1
        while code[2 * at] == _CACHE:
            at += 1
        self._after = (frame.id, at), self.on_data
        self._watch.show_all(True)

    # ---- what was there before

    def is_old(self, item: Any) -> bool:
        """Whether an object was there before the call."""
        n = id(item)
        return n in self._known or (n in self._ids and n not in self._arguments)

    def know(self, item: Any) -> None:
        """Note that the call got an object that was there before."""
        kind = type(item)
        if kind in ATOMS or id(item) in self._known:
            return
        if id(item) in self._arguments:
            raise Refused("finds an argument in another place, too")
        self._known[id(item)] = item
        if isinstance(item, Tensor):
            self.tensor(item)
        elif isinstance(item, (tuple, frozenset)):
            for part in item:
                self.know(part)

    def is_known(self, item: Any) -> bool:
        """Whether the call got the object from a place that a guard looks at."""
        return id(item) in self._known

    def guard(self, place: Any, *guard: Any) -> None:
        """Add a guard, unless the place has one."""
        if place not in self.guards:
            self.guards[place] = guard

    def tensor(self, tensor: Tensor) -> None:
        """Note a tensor from outside that is not an argument."""
        if id(tensor) in self._arguments or id(tensor) in self.tensors:
            return
        self.tensors[id(tensor)] = tensor
        self.guard(("tensor", id(tensor)), Kind.TENSOR, tensor)
        self._on_tensor(tensor)

    def function(self, function: types.FunctionType) -> None:
        """A Python function runs."""
        named = function.__kwdefaults__
        self.guard(
            ("function", id(function)), Kind.FUNCTION, function, function.__code__,
            function.__defaults__, named,
        )  # fmt: skip
        for default in function.__defaults__ or ():
            self.know(default)
        if named:
            self._known[id(named)] = named
            self.items(named)

    def type_of(self, item: Any) -> None:
        """The class of an object is looked at, and an attribute of it."""
        kind = type(item)
        if kind.__flags__ & _HEAP:
            self.type(kind)
            if self.is_old(item) and not isinstance(item, type):
                self.guard(("class", id(item)), Kind.CLASS_OF, item, kind)

    def dict_of(self, item: Any) -> dict[str, Any] | None:
        """The dict of an object's attributes, if it has one."""
        held = _dict_of(item)
        if held is not None and self.is_old(item):
            self._known[id(held)] = held
            if not isinstance(item, types.ModuleType):
                self.guard(("dict", id(item)), Kind.DICT_OF, item, held)
        return held

    def type(self, kind: type) -> None:
        """An attribute of a class is looked up."""
        if kind.__flags__ & _HEAP and not kind.__flags__ & _IMMUTABLE:
            with contextlib.suppress(AttributeError):
                type.__getattribute__(kind, "a name that no class has")  # gives it a version
            self.guard(("type", id(kind)), Kind.CLASS, kind)

    def entry(self, held: Any, key: Any, value: Any) -> None:
        """The entry of a dict that was there before is read; MISSING: it has none."""
        place = _place(held, key)
        if not self.is_old(held):
            return
        self.old_key(key)
        if place not in self.writes:
            self.know(value)
            self.guard(place, Kind.ENTRY, held, key, value)

    def old_key(self, key: Any) -> None:
        """Look for an object in a container that was there before: the next call has to look for the same one.

        Raises:
            Refused: if it is an argument, or made by the call.
        """
        if isinstance(key, tuple):
            for part in key:
                self.old_key(part)
        elif type(key) not in IMMUTABLE and not self.is_old(key):
            raise Refused(
                f"looks for a {type(key).__name__} that is an argument or new in a container"
            )

    def length(self, container: Any) -> None:
        """The length of a container is read."""
        if self.is_old(container):
            self._unwritten(container)
            self.guard(("length", id(container)), Kind.LENGTH, container, len(container))

    def items(self, container: Any) -> None:
        """All items of a container are read."""
        old = self.is_old(container)
        if isinstance(container, dict):
            pairs = tuple(part for pair in dict.items(container) for part in pair)
            if old:
                self._unwritten(container)
                self.guard(("items", id(container)), Kind.PAIRS, container, pairs)
                if isinstance(container, OrderedDict):  # it has an order of its own
                    self.guard(("order", id(container)), Kind.SEQUENCE, container, tuple(container))
            self._know_all(pairs, old)
        elif isinstance(container, list):
            items = tuple(container)
            if old:
                self.guard(("items", id(container)), Kind.ITEMS, container, items)
            self._know_all(items, old)
        else:
            items = tuple(container)
            if old:
                self.guard(("items", id(container)), Kind.SEQUENCE, container, items)
            self._know_all(items, old)

    def _know_all(self, items: Iterable[Any], old: bool) -> None:
        if old:
            for item in items:
                self.know(item)

    def _unwritten(self, container: Any) -> None:
        if isinstance(container, dict) and any(place[1] == id(container) for place in self.writes):
            raise Refused("reads all of a dict in which it has changed an entry before")

    # ---- reading

    def iterate(self, container: Any) -> None:
        """The items of an object are read one after the other."""
        kind = type(container)
        if kind in ATOMS or (
            isinstance(container, (tuple, str, range, Tensor)) and kind.__iter__ in _OWN_ITERATION
        ):
            return
        if isinstance(container, Tensor):
            return
        if isinstance(container, _CONTAINERS) and kind.__iter__ in _OWN_ITERATION:
            self.items(container)
        elif kind in _VIEWS:
            self.items(_owner(container))
        elif kind in _ITERATORS:
            if self.is_old(container):
                raise Refused(f"goes on with a {kind.__name__} that was there before")
        elif is_python_class(kind):
            self.type_of(container)
        else:
            raise Refused(f"reads a {kind.__name__}")

    def truth(self, item: Any) -> None:
        """The truth of an object is asked for."""
        kind = type(item)
        if kind in ATOMS or isinstance(item, Tensor):
            return
        if isinstance(item, (*_CONTAINERS, tuple)) and "__bool__" not in kind.__dict__:
            if isinstance(item, (tuple, frozenset)):
                return
            if kind.__len__ in _OWN_LENGTH:
                self.length(item)
                return
        if is_python_class(kind):
            self.type_of(item)
        elif hasattr(kind, "__bool__") or hasattr(kind, "__len__"):
            raise Refused(f"asks whether a {kind.__name__} is true")

    def operand(self, item: Any) -> None:
        """An operator looks at an object: all of it, where it is a container."""
        kind = type(item)
        if kind in IMMUTABLE or isinstance(item, Tensor):
            return
        if isinstance(item, (tuple, frozenset)):
            for part in item:
                self.operand(part)
        elif isinstance(item, _CONTAINERS):
            self.items(item)
            for part in list(item.values()) + list(item) if isinstance(item, dict) else list(item):
                self.operand(part)
        elif kind in _VIEWS:
            self.operand(_owner(item))
        elif is_python_class(kind):
            self.type_of(item)
        elif kind.__eq__ is not object.__eq__ and not isinstance(item, (type, types.FunctionType)):
            raise Refused(f"compares or combines a {kind.__name__}")

    def index(self, item: Any) -> None:
        """An operator takes an object as an index or as a number."""
        if isinstance(item, (list, tuple)):
            self.items(item)
            for part in item:
                self.index(part)
        elif isinstance(item, slice):
            self.index((item.start, item.stop, item.step))
        else:
            self.operand(item)

    def subscript(self, container: Any, key: Any) -> None:
        """`container[key]`."""
        kind = type(container)
        if isinstance(container, Tensor):
            return self.index(key)
        if kind in ATOMS:
            return
        if isinstance(container, dict) and kind.__getitem__ in _DICT_SUBSCRIPT:
            self.operand(key)
            value = dict.get(container, key, MISSING)
            if value is MISSING and hasattr(kind, "__missing__"):
                if isinstance(container, defaultdict) and self.is_old(container):
                    raise Refused("makes an entry of a defaultdict")
                self.type_of(container)
            self.entry(container, key, value)
        elif (isinstance(container, list) and kind.__getitem__ is list.__getitem__) or isinstance(
            container, deque
        ):
            self.items(container)
        elif isinstance(container, (tuple, str, bytes, range)) or kind is types.MappingProxyType:
            return
        elif isinstance(container, type):
            self.type(container)
            self.type_of(container)
        elif is_python_class(kind):
            self.type_of(container)
        else:
            raise Refused(f"takes an item of a {kind.__name__}")

    def contains(self, container: Any, item: Any) -> None:
        """`item in container`."""
        kind = type(container)
        if isinstance(container, dict) and kind.__contains__ in _DICT_CONTAINS:
            self.operand(item)
            self.entry(container, item, dict.get(container, item, MISSING))
        elif kind is types.MappingProxyType or kind in (str, bytes, range):
            return
        elif kind in _VIEWS:
            self.operand(container)
            self.operand(item)
        elif isinstance(container, (*_CONTAINERS, tuple)):
            self.items(container)
            if self.is_old(container):
                self.old_key(item)
            self.operand(item)
            for part in container:
                self.operand(part)
        elif is_python_class(kind):
            self.type_of(container)
        else:
            raise Refused(f"asks whether a {kind.__name__} contains an object")

    def attribute(self, item: Any, name: str, frame: Any = None) -> None:
        """`item.name`."""
        kind = type(item)
        if isinstance(item, Tensor):
            return self.tensor_attribute(item, name, frame)
        if isinstance(item, type):
            return self.class_attribute(item, name)
        if kind in IMMUTABLE:
            return
        if kind is super:
            return self.type(item.__self_class__)
        self.type_of(item)
        getter = _found(kind, "__getattribute__")
        if isinstance(getter, types.FunctionType):
            return None  # Python code, which is watched
        if getter.__objclass__ not in BASES and not issubclass(kind, (*_GENERIC, BaseException)):
            raise Refused(f"reads the attribute '{name}' of a {kind.__name__}")
        return self.generic_attribute(item, name)

    def generic_attribute(self, item: Any, name: str) -> None:
        """`object.__getattribute__(item, name)`."""
        kind = type(item)
        self.type_of(item)
        found = _found(kind, name)
        if found is not MISSING:
            self.know(found)
            if type(found) is types.MemberDescriptorType:
                return self.slot(item, found)
            if type(found) is types.GetSetDescriptorType:
                if name == "__dict__":
                    self.dict_of(item)
                    return None
                if kind in _READABLE and name in _READABLE[kind]:
                    return self.slot(item, found)
                if name == "__class__":
                    return None
                raise Refused(f"reads the attribute '{name}' of a {kind.__name__}")
            if hasattr(type(found), "__set__") or hasattr(type(found), "__delete__"):
                if isinstance(found, property) and not isinstance(found.fget, types.FunctionType):
                    raise Refused(f"reads the attribute '{name}' of a {kind.__name__}")
                return self.type_of(found)
        held = self.dict_of(item)
        if held is not None:
            self.entry(held, name, held.get(name, MISSING))
            if name in held:
                return None
            if found is MISSING and isinstance(item, types.ModuleType):
                self.entry(held, "__getattr__", held.get("__getattr__", MISSING))
        return None

    def slot(self, item: Any, descriptor: Any) -> None:
        """A member of an object is read."""
        try:
            value = descriptor.__get__(item, type(item))
        except AttributeError:
            value = MISSING
        if self.is_old(item):
            self.know(value)
            self.guard(("slot", id(item), id(descriptor)), Kind.SLOT, item, descriptor, value)

    def class_attribute(self, item: type, name: str) -> None:
        """An attribute of a class."""
        meta = type(item)
        self.type(item)
        self.type(meta)
        found = _found(meta, name)
        if isinstance(found, property) and not isinstance(found.fget, types.FunctionType):
            raise Refused(f"reads the attribute '{name}' of the class {item.__name__}")
        if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            if name not in _OF_CLASSES:
                raise Refused(f"reads the attribute '{name}' of the class {item.__name__}")
            return
        for value in (_found(item, name), found):
            if value is not MISSING:
                self.know(value)

    def tensor_attribute(self, tensor: Tensor, name: str, frame: Any = None) -> None:
        """An attribute of a tensor."""
        kind = type(tensor)
        self.type_of(tensor)
        found = _found(kind, name)
        if name == "grad":
            return self.gradient(tensor, frame)
        if name in METADATA:
            return None
        if name in Tensor.__dict__:
            if type(found) in OPERATOR_TYPES:  # a method
                return None
            raise Refused(f"reads the attribute '{name}' of a tensor")
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return None
        if found is MISSING or not hasattr(type(found), "__set__"):
            held = self.dict_of(tensor)
            if id(tensor) in self._arguments and name not in ("__class__",) and found is MISSING:
                raise Refused(f"looks for the attribute '{name}' of an argument")
            if held is not None:
                self.entry(held, name, held.get(name, MISSING))
            if found is not MISSING:
                self.know(found)
            return None
        raise Refused(f"reads the attribute '{name}' of a tensor")

    def gradient(self, tensor: Tensor, frame: Any) -> None:
        """`tensor.grad`."""
        if not (self.is_old(tensor) or id(tensor) in self._arguments):
            return
        place = ("grad", id(tensor))
        if place in self.writes:
            return
        grad = tensor.grad
        if grad is not None and self.is_made(grad):
            return
        if id(tensor) in self._arguments:
            raise Refused("looks at the gradient of an argument")
        if grad is None or (frame is not None and _tests_none(frame)):
            self.guard(place, Kind.GRAD, tensor, grad is not None)
            return
        raise Refused("uses the gradient that a tensor had before the call")

    # ---- writing

    def store(self, held: Any, key: Any, value: Any) -> None:
        """`held[key] = value` for a dict; MISSING: the entry is removed."""
        if not self.is_old(held):
            return
        place = _place(held, key)
        before = dict.get(held, key, MISSING)
        self.old_key(key)
        if place in self.writes:
            if self.writes[place][3] is MISSING:
                raise Refused("removes an entry of a dict and makes it again")
            before = self.writes[place][2]
        elif ("items", id(held)) in self.guards or ("length", id(held)) in self.guards:
            if before is MISSING or value is MISSING:
                raise Refused("adds or removes an entry of a dict that it has read before")
        self.writes[place] = held, key, before, value

    def set_attribute(self, item: Any, name: str, value: Any) -> None:
        """`item.name = value`; MISSING: `del item.name`."""
        kind = type(item)
        if isinstance(item, Tensor):
            return self.set_tensor_attribute(item, name, value)
        if isinstance(item, type):
            raise Refused(f"changes the class {item.__name__}")
        self.type_of(item)
        setter = "__delattr__" if value is MISSING else "__setattr__"
        if getattr(kind, setter) is getattr(object, setter):
            self.generic_set_attribute(item, name, value)
        elif isinstance(item, types.ModuleType) and self.is_old(item):
            raise Refused(f"changes the module {item.__name__}")
        elif not isinstance(_found(kind, setter), types.FunctionType):
            raise Refused(f"sets the attribute '{name}' of a {kind.__name__}")
        return None

    def generic_set_attribute(self, item: Any, name: str, value: Any) -> None:
        """`object.__setattr__(item, name, value)`."""
        kind = type(item)
        self.type_of(item)
        found = _found(kind, name)
        if found is not MISSING and hasattr(type(found), "__set__"):
            if isinstance(found, property):
                if not isinstance(found.fset, (types.FunctionType, type(None))):
                    raise Refused(f"sets the attribute '{name}' of a {kind.__name__}")
                return
            if type(found).__flags__ & _HEAP:
                return self.type_of(found)
            if self.is_old(item):
                raise Refused(f"sets the attribute '{name}' of a {kind.__name__}")
            return
        held = self.dict_of(item)
        if held is not None and self.is_old(item):
            self.store(held, name, value)

    def set_tensor_attribute(self, tensor: Tensor, name: str, value: Any) -> None:
        """`tensor.name = value`."""
        if name == "grad":
            if self.is_old(tensor) or id(tensor) in self._arguments:
                self.writes.setdefault(("grad", id(tensor)), ({}, None, None, None))
                self._on_tensor(tensor)
            return
        found = _found(type(tensor), name)
        if found is not MISSING and hasattr(type(found), "__set__"):
            raise Refused(f"sets the attribute '{name}' of a tensor")
        if id(tensor) in self._arguments:
            raise Refused(f"sets the attribute '{name}' of an argument")
        held = self.dict_of(tensor)
        if self.is_old(tensor):
            if held is None:
                raise Refused(f"sets the attribute '{name}' of a tensor")
            self.store(held, name, value)

    def changed(self, container: Any) -> None:
        """A container is changed."""
        if self.is_old(container) or id(container) in self._arguments:
            raise Refused(f"changes a {type(container).__name__} that was there before the call")

    def store_item(self, container: Any, key: Any, value: Any) -> None:
        """`container[key] = value`; MISSING: `del container[key]`."""
        kind = type(container)
        if isinstance(container, Tensor):
            self.index(key)
            return self.index(value)
        if isinstance(container, dict) and kind.__setitem__ in _DICT_STORE:
            if id(container) in self._arguments:
                self.changed(container)
            self.operand(key)
            self.store(container, key, value)
        elif isinstance(container, (list, deque)):
            self.changed(container)
        elif is_python_class(kind):
            self.type_of(container)
        else:
            self.changed(container)

    def refuse(self, reason: str) -> NoReturn:
        """End the watch.

        Raises:
            Refused: always.
        """
        raise Refused(reason)

    # ---- names that instructions need

    def keywords(self, frame: Any) -> tuple[str, ...]:
        """The names of the keyword arguments of the call."""
        return self._names.pop(frame.id, ())

    def set_keywords(self, frame: Any, names: tuple[str, ...]) -> None:
        """Remember the names for the call that follows."""
        self._names[frame.id] = names


_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
_CACHE = dis.opmap["CACHE"]
_CONTAINERS: tuple[type, ...] = (list, dict, set, frozenset, deque)
_VIEWS = {type({}.keys()), type({}.values()), type({}.items())}
_VIEWS |= {type(OrderedDict().keys()), type(OrderedDict().values()), type(OrderedDict().items())}
_ITERATORS = {
    type(iter(x)) for x in ([], (), {}, set(), "", b"", range(0), deque(), {}.values(), {}.items(), OrderedDict())
} | {
    enumerate, zip, map, filter, reversed, types.GeneratorType, type(reversed([])), type(reversed({})),
    type(iter(OrderedDict().items())), type(iter(OrderedDict().values())),
}  # fmt: skip
# Types in C whose attributes are found as those of all objects are.
_GENERIC: tuple[type, ...] = (
    types.FunctionType, types.MethodType, types.GeneratorType, types.CodeType, deque, OrderedDict, defaultdict,
    property, types.MappingProxyType, functools.partial, *_VIEWS, *_ITERATORS,
)  # fmt: skip
_OWN_ITERATION = {
    k.__iter__ for k in (list, dict, set, frozenset, deque, OrderedDict, tuple, str, range)
}
_OWN_LENGTH = {k.__len__ for k in (list, dict, set, frozenset, deque, OrderedDict)}
_DICT_SUBSCRIPT = {dict.__getitem__, OrderedDict.__getitem__, defaultdict.__getitem__}
_DICT_CONTAINS = {dict.__contains__, OrderedDict.__contains__}
_DICT_STORE = {dict.__setitem__, OrderedDict.__setitem__, defaultdict.__setitem__}
_FUNCTION = frozenset(
    {
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__name__",
        "__qualname__",
        "__doc__",
        "__module__",
        "__closure__",
    }
)
_READABLE: dict[type, frozenset[str]] = {
    types.FunctionType: _FUNCTION | {"__globals__"},
    types.MethodType: _FUNCTION | {"__func__", "__self__"},
    types.BuiltinFunctionType: frozenset({"__name__", "__qualname__", "__self__"}),
    types.CodeType: frozenset(dir(types.CodeType)),
}
_OF_CLASSES = {
    "__mro__",
    "__name__",
    "__qualname__",
    "__module__",
    "__bases__",
    "__base__",
    "__dict__",
    "__doc__",
}
_OWN: tuple[str, ...] = (os.path.dirname(__file__) + os.sep,)


def do_not_watch(*paths: str) -> None:
    """Watch no code of these files and folders: it is part of the recording."""
    global _OWN
    _OWN = (*_OWN, *paths)


def _place(held: Any, key: Any) -> Any:
    return ("entry", id(held), key if is_plain_data(key) else ("object", id(key)))


def _found(kind: type, name: str) -> Any:
    """What a class or its bases have by this name."""
    for base in type.__dict__["__mro__"].__get__(kind):
        held = type.__dict__["__dict__"].__get__(base)
        if name in held:
            return held[name]
    return MISSING


def _dict_of(item: Any) -> dict[str, Any] | None:
    try:
        held = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def _owner(view: Any) -> Any:
    """The dict of a view."""
    return gc.get_referents(view)[0]


def _tests_none(frame: Any) -> bool:
    """Whether the next instruction asks whether the result is None, and nothing else gets it."""
    code = frame.code.co_code
    at = 2 * (frame.at + 1)
    while dis.opname[code[at]] == "CACHE":
        at += 2
    name = dis.opname[code[at]]
    return name.startswith("POP_JUMP") and name.endswith("NONE")


# ---- instructions


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
    if arg in _WRITERS and isinstance(left, _CONTAINERS) and not isinstance(left, frozenset):
        watch.changed(left)
    watch.operand(left)
    watch.operand(right)


def _compare(watch: Watch, frame: Any, arg: int) -> None:
    watch.operand(frame.peek(2))
    watch.operand(frame.peek(1))


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
        found = _found(type(manager), name)
        if not isinstance(found, types.FunctionType):
            raise Refused(f"enters a {type(manager).__name__}")
        watch.know(found)


def _merge(watch: Watch, frame: Any, arg: int) -> None:
    given = frame.peek(1)
    if not isinstance(given, dict):
        raise Refused(f"unpacks a {type(given).__name__}")
    watch.items(given)


def _for_iter(watch: Watch, frame: Any, arg: int) -> None:
    iterator = frame.peek(1)
    if type(iterator) not in _ITERATORS:
        if type(iterator).__flags__ & _HEAP and isinstance(
            _found(type(iterator), "__next__"), types.FunctionType
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
    "UNARY_NEGATIVE": _unary,
    "UNARY_POSITIVE": _unary,
    "UNARY_INVERT": _unary,
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
    "CALL": _call,
    "CALL_FUNCTION_EX": _call_ex,
    "KW_NAMES": lambda w, f, arg: w.set_keywords(f, f.code.co_consts[arg]),
    "IMPORT_NAME": _import,
    "BEFORE_WITH": _with,
    "FORMAT_VALUE": _format,
    # Elements are hashed.
    "BUILD_SET": lambda w, f, arg: [w.operand(f.peek(i + 1)) for i in range(arg)] and None,
    "SET_ADD": _unary,
    "MAP_ADD": lambda w, f, arg: w.operand(f.peek(2)),
}
_HANDLERS: dict[int, Callable[[Watch, Any, int], None]] = {
    op: _BY_NAME.get(name, _refused) for name, op in dis.opmap.items() if name not in _SILENT
}
