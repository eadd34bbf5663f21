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
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, cast

from rabbet import Tensor

from . import _replay
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
from ._numbers import Numbers, Step, is_number
from ._replay import same

__all__ = ["Refused", "Watch", "do_not_watch", "place_of", "same"]


Handler = Callable[["Watch", Any, int], None]


class Refused(Exception):
    """Raised where a read or a write cannot be guarded."""


class Watch:
    """Collects the guards of one call.

    Attributes:
        guards: what the call has read, by place.
        refused: the reason for which the call cannot be recorded; None so far.
        writes: for each place of an object that was there before: (dict, key, value before, value now).
        tensors: the tensors that were there before, by id.
        backward: whether a backward pass has run.
        numbers: the numbers that are followed: those at the places in `varying`, and what is computed of them.
        uses: the operator that is called with such numbers, and their positions.
        on_data: called with each tensor that is made of Python's data.
        is_made: whether an operator of the call has made a tensor.
        on_gradient: called with each tensor from outside before the program sets its gradient.
    """

    def __init__(
        self,
        on_tensor: Callable[[Tensor], None],
        handlers: Mapping[int, Handler],
        varying: Mapping[Any, Any],
    ) -> None:
        self.guards: dict[Any, Guard] = {}
        self.writes: dict[Any, tuple[dict[Any, Any], Any, Any, Any]] = {}
        self.refused: str | None = None
        self.tensors: dict[int, Tensor] = {}
        self.backward = False
        self.numbers = Numbers()
        self.varying = varying
        self.uses: tuple[str, dict[int, Any]] | None = None
        self._frame: Any = None
        self.on_data: Callable[[Tensor], None] = lambda tensor: None
        self.is_made: Callable[[Tensor], bool] = lambda tensor: False
        self.on_gradient: Callable[[Tensor], None] = lambda tensor: None
        self._known: dict[int, Any] = {}
        self._arguments: dict[int, Any] = {}
        self._on_tensor = on_tensor
        self._before: list[Any] = []
        self._ids: set[int] = set()
        self._after: tuple[tuple[int, int], Callable[[Any], None], bool] | None = None
        self._names: dict[int, tuple[str, ...]] = {}
        self._handlers = handlers
        self._watch = _replay.Watch(self._enter, self._op, bytes(handlers))
        self._is_running = False

    # ---- running

    def start(self) -> None:
        """Watch what the thread does from now on."""
        self._before = gc.get_objects()
        self._ids = set(map(id, self._before))
        self._is_running = self._watch.start()
        if not self._is_running:
            self.refuse_at("a trace function is set, as debuggers and coverage do")

    def stop(self) -> None:
        """End the watch."""
        if self._is_running:
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
            self.refused = reason

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
        self._frame = frame
        try:
            if self.uses is not None:
                raise Refused(
                    f"gives {self.uses[0]} a number that changes, in a place where it cannot be replaced"
                )
            if self._after is not None:
                self._see_result(frame)
            handler = self._handlers.get(op)
            if handler is not None:
                handler(self, frame, arg)
        except Refused as refused:
            code = frame.code
            where = f"{os.path.basename(code.co_filename)}:{frame.line} in {code.co_name}"
            self.refuse_at(f"{refused} at {where}")
        finally:
            self._frame = None

    def _see_result(self, frame: Any) -> None:
        assert self._after is not None
        where, see, needed = self._after
        self._after = None
        self._watch.show_all(False)
        if where == (frame.id, frame.at):
            see(frame.peek(1))
        elif needed:
            raise Refused("computes with a number that changes, and raises an error")

    def after(self, see: Callable[[Any], None], needed: bool = True) -> None:
        """Call `see` with the result of the instruction, which the next one finds on the stack."""
        frame = self._frame
        code, at = frame.code.co_code, frame.at + 1
        while code[2 * at] == _CACHE:
            at += 1
        self._after = (frame.id, at), see, needed
        self._watch.show_all(True)

    # ---- numbers that change

    def follow(self, value: Any, *step: Any) -> None:
        """Replace a result, on the top of the stack, by a number that is followed."""
        if not is_number(value):
            raise Refused(f"computes a {type(value).__name__} of a number that changes")
        self._frame.replace(1, self.numbers.follow(value, *step, type(value)))

    def load(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        """A number that changes from call to call is read."""

        def see(result: Any) -> None:
            if result is not value:
                raise Refused("reads a number that changes in a way that cannot be followed")
            self.follow(value, Step.ENTRY, held, key)

        if self._after is not None:
            raise Refused("reads several numbers that change at once")
        self.after(see)

    def compute(self, op: int, left: Any, right: Any) -> None:
        """A binary operator with a number that changes."""
        op %= 13
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            names = {0: "add", 5: "mul", 10: "sub", 11: "div"}
            at = 1 if isinstance(left, Tensor) else 0
            if op not in names or (at == 0 and op not in (0, 5)):
                raise Refused("combines a tensor with a number that changes")
            self.uses = names[op], {-1 if op in (0, 5) else 1: (left, right)[at]}
            return
        if not (is_number(left) and is_number(right)):
            raise Refused(f"combines a number that changes with a {type(right).__name__}")
        a, b = self.numbers.at(left), self.numbers.at(right)
        self.after(lambda result: self.follow(result, Step.BINARY, op, a, b))

    def compare(self, op: int, left: Any, right: Any) -> None:
        """A comparison with a number that changes."""
        if not (is_number(left) and is_number(right)):
            raise Refused(f"compares a number that changes with a {type(right).__name__}")
        a, b = self.numbers.at(left), self.numbers.at(right)
        self.after(lambda result: self.numbers.expect(Step.COMPARE, op, a, b, result))

    def apply(self, function: Any, args: tuple[Any, ...]) -> None:
        """A function of numbers is called."""
        if not all(map(is_number, args)):
            raise Refused("computes with a number that changes and another object")
        at = tuple(map(self.numbers.at, args))
        self.after(lambda result: self.follow(result, Step.CALL, function, at))

    def number_key(self, container: Any, key: Any) -> None:
        """A number that changes is looked for in a dict."""
        if not isinstance(container, dict) or self.is_old(container):
            raise Refused(f"uses a number that changes as an index of a {type(container).__name__}")
        for other in container:
            if not is_number(other):
                raise Refused("uses a number that changes as a key beside others")
            step = Step.COMPARE, _EQUAL, self.numbers.at(other), self.numbers.at(key), other == key
            self.numbers.expect(*step)

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
            self.look_up(kind)
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

    def look_up(self, kind: type) -> None:
        """An attribute of a class is looked up."""
        if kind.__flags__ & _HEAP and not kind.__flags__ & _IMMUTABLE:
            with contextlib.suppress(AttributeError):
                type.__getattribute__(kind, "a name that no class has")  # gives it a version
            self.guard(("type", id(kind)), Kind.CLASS, kind)

    def entry(self, held: Any, key: Any, value: Any) -> None:
        """The entry of a dict that was there before is read; MISSING: it has none."""
        place = place_of(held, key)
        if not self.is_old(held):
            return
        self.old_key(key)
        if place in self.varying and is_number(value) and place not in self.writes:
            self.load(held, key, value)
        elif place not in self.writes:
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
                if any(place[1] == id(container) for place in self.varying):
                    raise Refused("reads all of a dict with a number that changes")
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
        if kind in ATOMS or isinstance(container, Tensor):
            return
        if isinstance(container, (tuple, str, range)) and kind.__iter__ in _OWN_ITERATION:
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
        if item in self.numbers:
            return self.numbers.expect(Step.TRUTH, self.numbers.at(item), bool(item))
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
        if item in self.numbers:
            raise Refused("uses a number that changes in a way that cannot be followed")
        if kind in IMMUTABLE or isinstance(item, Tensor):
            return
        if isinstance(item, (tuple, frozenset)):
            for part in item:
                self.operand(part)
        elif isinstance(item, _CONTAINERS):
            self.items(item)
            parts: list[Any] = [*item, *item.values()] if isinstance(item, dict) else [*item]
            for part in parts:
                self.operand(part)
        elif kind in _VIEWS:
            self.operand(_owner(item))
        elif is_python_class(kind):
            self.type_of(item)
        elif _found(kind, "__eq__") is not object.__dict__["__eq__"] and not isinstance(
            item, (type, types.FunctionType)
        ):
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
        if self.numbers.are_compared(container, key):
            return self.number_key(container, key)
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
        elif isinstance(container, (tuple, str, bytes, range)):
            return
        elif kind is types.MappingProxyType:
            self.subscript(self.proxied(container), key)
        elif isinstance(container, type):
            self.look_up(container)
            self.type_of(container)
        elif is_python_class(kind):
            self.type_of(container)
        else:
            raise Refused(f"takes an item of a {kind.__name__}")

    def proxied(self, proxy: Any) -> dict[Any, Any]:
        """The dict that a read-only proxy shows, such as that of a class."""
        held = _owner(proxy)
        if not isinstance(held, dict):
            raise Refused("reads a mappingproxy of another object than a dict")
        if self.is_old(proxy) or id(held) in self._ids:
            self._known[id(held)] = held
        return held

    def contains(self, container: Any, item: Any) -> None:
        """`item in container`."""
        kind = type(container)
        if self.numbers.are_compared(container, item):
            return self.number_key(container, item)
        if isinstance(container, dict) and kind.__contains__ in _DICT_CONTAINS:
            self.operand(item)
            self.entry(container, item, dict.get(container, item, MISSING))
        elif kind is types.MappingProxyType:
            self.contains(self.proxied(container), item)
        elif kind in (str, bytes, range):
            return
        elif kind in _VIEWS:
            self.operand(container)
            self.operand(item)
        elif isinstance(container, (*_CONTAINERS, tuple)):
            self.items(container)
            if self.is_old(container):
                self.old_key(item)
            self.operand(item)
            parts: list[Any] = [*cast(Iterable[Any], container)]
            for part in parts:
                self.operand(part)
        elif is_python_class(kind):
            self.type_of(container)
        else:
            raise Refused(f"asks whether a {kind.__name__} contains an object")

    def attribute(self, item: Any, name: str, frame: Any = None) -> None:
        """`item.name`."""
        kind = type(item)
        if item in self.numbers:
            raise Refused(f"reads the attribute '{name}' of a number that changes")
        if isinstance(item, Tensor):
            return self.tensor_attribute(item, name, frame)
        if isinstance(item, type):
            return self.class_attribute(item, name)
        if kind in IMMUTABLE:
            return
        if kind is super:
            return self.look_up(item.__self_class__)
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
        self.look_up(item)
        self.look_up(meta)
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
            if id(tensor) in self._arguments:
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
        place = place_of(held, key)
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
                self.on_gradient(tensor)
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
        if self.numbers.are_compared(container, key):
            return self.number_key(container, key)
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
_EQUAL = dis.cmp_op.index("==")
_CONTAINERS: tuple[type[Any], ...] = (list, dict, set, frozenset, deque)
_VIEWS: set[type] = {type({}.keys()), type({}.values()), type({}.items())}
_VIEWS |= {type(OrderedDict().keys()), type(OrderedDict().values()), type(OrderedDict().items())}
_EMPTY: tuple[Any, ...] = (
    [], (), {}, set(), "", b"", range(0), deque(), {}.values(), {}.items(), OrderedDict(),
)  # fmt: skip
_ITERATORS: set[type] = {
    type(iter(x)) for x in _EMPTY
} | {
    enumerate, zip, map, filter, reversed, types.GeneratorType, type(reversed([])), type(reversed({})),
    type(iter(OrderedDict().items())), type(iter(OrderedDict().values())),
}  # fmt: skip
# Types in C whose attributes are found as those of all objects are.
_GENERIC: tuple[type[Any], ...] = (
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


def place_of(held: Any, key: Any) -> Any:
    """The place of an entry of a dict, among the keys of `Watch.guards`."""
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
