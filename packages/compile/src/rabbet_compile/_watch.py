"""Turns the reads of a call into guards, and notes its writes.

Only objects that existed before the call, here called old, need guards: equal reads lead to equal new objects. A read or
write that this module does not know raises `Refused`, and the call is not recorded.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from rabbet import Tensor

from ._frames import Frames, Handler, Refused, next_instruction
from ._guards import MISSING, Guard, Kind
from ._known import (
    ATOMS,
    BASES,
    CONTAINERS,
    DICT_CONTAINS,
    DICT_STORE,
    DICT_SUBSCRIPT,
    GENERIC,
    HEAP,
    IMMUTABLE,
    IMMUTABLE_TYPE,
    ITERATORS,
    METADATA,
    OF_CLASSES,
    OPERATOR_TYPES,
    OWN_ITERATION,
    OWN_LENGTH,
    READABLE,
    VIEWS,
    dict_behind,
    dict_of,
    found_in,
    is_plain_data,
    is_python_class,
)
from ._numbers import Step, is_number

__all__ = ["Watch", "place_of"]


class Watch(Frames):
    """Collects the guards and the writes of one call.

    Attributes:
        guards: the guards by the place that was read.
        writes: (dict, key, value before, value now) by the place that was written.
        tensors: old tensors that are not arguments, by id.
        backward: whether a backward pass has run.
        varying: the places whose numbers are followed.
        on_data: called with each tensor made from Python data.
        is_made: whether an operator of the call has made a tensor.
        on_gradient: called with each old tensor before the program sets its gradient.
    """

    def __init__(
        self,
        on_tensor: Callable[[Tensor], None],
        handlers: Mapping[int, Handler],
        varying: Mapping[Any, Any],
    ) -> None:
        super().__init__(handlers)
        self.guards: dict[Any, Guard] = {}
        self.writes: dict[Any, tuple[dict[Any, Any], Any, Any, Any]] = {}
        self.tensors: dict[int, Tensor] = {}
        self.backward = False
        self.varying = varying
        self.on_data: Callable[[Tensor], None] = lambda tensor: None
        self.is_made: Callable[[Tensor], bool] = lambda tensor: False
        self.on_gradient: Callable[[Tensor], None] = lambda tensor: None
        self._known: dict[int, Any] = {}
        self._arguments: dict[int, Any] = {}
        self._on_tensor = on_tensor
        self._before: list[Any] = []
        self._ids: set[int] = set()

    def start(self) -> None:
        """Start to watch the calling thread. Every object that exists now is old."""
        self._before = gc.get_objects()
        self._ids = set(map(id, self._before))
        super().start()

    def stop(self) -> None:
        """Stop watching."""
        super().stop()
        self._before = []

    def argument(self, item: Any) -> None:
        """Note an argument or a container of arguments. A variant compares these itself, so they need no guards."""
        self._arguments[id(item)] = item

    def enters(self, function: Any) -> None:
        """Called when a Python function starts."""
        if self.is_old(function):
            self.function(function)

    # ---- old objects

    def is_old(self, item: Any) -> bool:
        """Whether an object existed before the call and is not an argument."""
        n = id(item)
        return n in self._known or (n in self._ids and n not in self._arguments)

    def know(self, item: Any) -> None:
        """Note an old object that the call has read from a guarded place."""
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
        """Whether the call has read the object from a guarded place."""
        return id(item) in self._known

    def guard(self, place: Any, *guard: Any) -> None:
        """Add a guard of a place, unless it has one."""
        if place not in self.guards:
            self.guards[place] = guard

    def tensor(self, tensor: Tensor) -> None:
        """Note an old tensor that is not an argument."""
        if id(tensor) in self._arguments or id(tensor) in self.tensors:
            return
        self.tensors[id(tensor)] = tensor
        self.guard(("tensor", id(tensor)), Kind.TENSOR, tensor)
        self._on_tensor(tensor)

    def function(self, function: types.FunctionType) -> None:
        """An old Python function is called."""
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
        """The call reads the class of an object and attributes of that class."""
        kind = type(item)
        if kind.__flags__ & HEAP:
            self.look_up(kind)
            if self.is_old(item) and not isinstance(item, type):
                self.guard(("class", id(item)), Kind.CLASS_OF, item, kind)

    def dict_of(self, item: Any) -> dict[str, Any] | None:
        """The `__dict__` of an object, guarded; None if it has none."""
        held = dict_of(item)
        if held is not None and self.is_old(item):
            self._known[id(held)] = held
            if not isinstance(item, types.ModuleType):
                self.guard(("dict", id(item)), Kind.DICT_OF, item, held)
        return held

    def look_up(self, kind: type) -> None:
        """The call looks up an attribute of a class."""
        if kind.__flags__ & HEAP and not kind.__flags__ & IMMUTABLE_TYPE:
            with contextlib.suppress(AttributeError):
                type.__getattribute__(
                    kind, "a name that no class has"
                )  # makes CPython give the class a version
            self.guard(("type", id(kind)), Kind.CLASS, kind)

    def entry(self, held: Any, key: Any, value: Any) -> None:
        """The call reads an entry of a dict; MISSING if the dict has no such key."""
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
        """Check a key with which the call reads or writes an old container: the next call must use the same key.

        Raises:
            Refused: if the key is an argument, or an object that the call has made.
        """
        if isinstance(key, tuple):
            for part in key:
                self.old_key(part)
        elif type(key) not in IMMUTABLE and not self.is_old(key):
            raise Refused(
                f"looks for a {type(key).__name__} that is an argument or new in a container"
            )

    def length(self, container: Any) -> None:
        """The call reads the length of a container."""
        if self.is_old(container):
            self._unwritten(container)
            self.guard(("length", id(container)), Kind.LENGTH, container, len(container))

    def items(self, container: Any) -> None:
        """The call reads all items of a container."""
        old = self.is_old(container)
        if isinstance(container, dict):
            pairs = tuple(part for pair in dict.items(container) for part in pair)
            if old:
                self._unwritten(container)
                if any(place[1] == id(container) for place in self.varying):
                    raise Refused("reads all of a dict with a number that changes")
                self.guard(("items", id(container)), Kind.PAIRS, container, pairs)
                if isinstance(container, OrderedDict):  # PyDict_Next does not see its order
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
        """The call iterates over an object."""
        kind = type(container)
        if kind in ATOMS or isinstance(container, Tensor):
            return
        if isinstance(container, (tuple, str, range)) and kind.__iter__ in OWN_ITERATION:
            return
        if isinstance(container, CONTAINERS) and kind.__iter__ in OWN_ITERATION:
            self.items(container)
        elif kind in VIEWS:
            self.items(dict_behind(container))
        elif kind in ITERATORS:
            if self.is_old(container):
                raise Refused(f"goes on with a {kind.__name__} that was there before")
        elif is_python_class(kind):
            self.type_of(container)
        else:
            raise Refused(f"reads a {kind.__name__}")

    def truth(self, item: Any) -> None:
        """The call tests whether an object is true."""
        kind = type(item)
        if item in self.numbers:
            return self.numbers.expect(Step.TRUTH, self.numbers.at(item), bool(item))
        if kind in ATOMS or isinstance(item, Tensor):
            return
        if isinstance(item, (*CONTAINERS, tuple)) and "__bool__" not in kind.__dict__:
            if isinstance(item, (tuple, frozenset)):
                return
            if kind.__len__ in OWN_LENGTH:
                self.length(item)
                return
        if is_python_class(kind):
            self.type_of(item)
        elif hasattr(kind, "__bool__") or hasattr(kind, "__len__"):
            raise Refused(f"asks whether a {kind.__name__} is true")

    def operand(self, item: Any) -> None:
        """An object is an operand of Python code: it is read, with all items if it is a container."""
        kind = type(item)
        if item in self.numbers:
            raise Refused("uses a number that changes in a way that cannot be followed")
        if kind in IMMUTABLE or isinstance(item, Tensor):
            return
        if isinstance(item, (tuple, frozenset)):
            for part in item:
                self.operand(part)
        elif isinstance(item, CONTAINERS):
            self.items(item)
            parts: list[Any] = [*item, *item.values()] if isinstance(item, dict) else [*item]
            for part in parts:
                self.operand(part)
        elif kind in VIEWS:
            self.operand(dict_behind(item))
        elif is_python_class(kind):
            self.type_of(item)
        elif found_in(kind, "__eq__") is not object.__dict__["__eq__"] and not isinstance(
            item, (type, types.FunctionType)
        ):
            raise Refused(f"compares or combines a {kind.__name__}")

    def index(self, item: Any) -> None:
        """An object is an index of a tensor, or is assigned to items of one."""
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
        if isinstance(container, dict) and kind.__getitem__ in DICT_SUBSCRIPT:
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
        """The dict behind a read-only proxy, such as the one of a class."""
        held = dict_behind(proxy)
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
        if isinstance(container, dict) and kind.__contains__ in DICT_CONTAINS:
            self.operand(item)
            self.entry(container, item, dict.get(container, item, MISSING))
        elif kind is types.MappingProxyType:
            self.contains(self.proxied(container), item)
        elif kind in (str, bytes, range):
            return
        elif kind in VIEWS:
            self.operand(container)
            self.operand(item)
        elif isinstance(container, (*CONTAINERS, tuple)):
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
        getter = found_in(kind, "__getattribute__")
        if isinstance(getter, types.FunctionType):
            return None  # Python code is watched itself
        if getter.__objclass__ not in BASES and not issubclass(kind, (*GENERIC, BaseException)):
            raise Refused(f"reads the attribute '{name}' of a {kind.__name__}")
        return self.generic_attribute(item, name)

    def generic_attribute(self, item: Any, name: str) -> None:
        """`object.__getattribute__(item, name)`."""
        kind = type(item)
        self.type_of(item)
        found = found_in(kind, name)
        if found is not MISSING:
            self.know(found)
            if type(found) is types.MemberDescriptorType:
                return self.slot(item, found)
            if type(found) is types.GetSetDescriptorType:
                if name == "__dict__":
                    self.dict_of(item)
                    return None
                if kind in READABLE and name in READABLE[kind]:
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
        """The call reads an attribute through a descriptor in C."""
        try:
            value = descriptor.__get__(item, type(item))
        except AttributeError:
            value = MISSING
        if self.is_old(item):
            self.know(value)
            self.guard(("slot", id(item), id(descriptor)), Kind.SLOT, item, descriptor, value)

    def class_attribute(self, item: type, name: str) -> None:
        """`item.name`, where `item` is a class."""
        meta = type(item)
        self.look_up(item)
        self.look_up(meta)
        found = found_in(meta, name)
        if isinstance(found, property) and not isinstance(found.fget, types.FunctionType):
            raise Refused(f"reads the attribute '{name}' of the class {item.__name__}")
        if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            if name not in OF_CLASSES:
                raise Refused(f"reads the attribute '{name}' of the class {item.__name__}")
            return
        for value in (found_in(item, name), found):
            if value is not MISSING:
                self.know(value)

    def tensor_attribute(self, tensor: Tensor, name: str, frame: Any = None) -> None:
        """`tensor.name`."""
        kind = type(tensor)
        self.type_of(tensor)
        found = found_in(kind, name)
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
        """`held[key] = value` for a dict; MISSING removes the entry."""
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
        """`item.name = value`, or `del item.name` if the value is MISSING."""
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
        elif not isinstance(found_in(kind, setter), types.FunctionType):
            raise Refused(f"sets the attribute '{name}' of a {kind.__name__}")
        return None

    def generic_set_attribute(self, item: Any, name: str, value: Any) -> None:
        """`object.__setattr__(item, name, value)`."""
        kind = type(item)
        self.type_of(item)
        found = found_in(kind, name)
        if found is not MISSING and hasattr(type(found), "__set__"):
            if isinstance(found, property):
                if not isinstance(found.fset, (types.FunctionType, type(None))):
                    raise Refused(f"sets the attribute '{name}' of a {kind.__name__}")
                return
            if type(found).__flags__ & HEAP:
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
        found = found_in(type(tensor), name)
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
        """The call changes a container that is not a dict, or all of a dict."""
        if self.is_old(container) or id(container) in self._arguments:
            raise Refused(f"changes a {type(container).__name__} that was there before the call")

    def store_item(self, container: Any, key: Any, value: Any) -> None:
        """`container[key] = value`, or `del container[key]` if the value is MISSING."""
        kind = type(container)
        if self.numbers.are_compared(container, key):
            return self.number_key(container, key)
        if isinstance(container, Tensor):
            self.index(key)
            return self.index(value)
        if isinstance(container, dict) and kind.__setitem__ in DICT_STORE:
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


def place_of(held: Any, key: Any) -> Any:
    """The key of `Watch.guards` and `Watch.writes` for an entry of a dict."""
    return ("entry", id(held), key if is_plain_data(key) else ("object", id(key)))


def _tests_none(frame: Any) -> bool:
    """Whether the next instruction only compares the result with None."""
    name = dis.opname[frame.code.co_code[2 * next_instruction(frame)]]
    return name.startswith("POP_JUMP") and name.endswith("NONE")
