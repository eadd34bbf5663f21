"""Reads pickles without executing anything: a stack machine of our own over an allow list of names.

A pickle is a program. Here its instructions build lists, dicts, tuples, sets, numbers and strings; a name, a call, a
new object, a state and a persistent id go to `Names`, which decides what each means. Nothing is imported by name.
"""

import pickle
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from . import SerializationError

_MOST_IN_KEY = 1000  # tuples in tuples; hashing them recurses in C
_DICTS = (dict, OrderedDict, defaultdict, Counter)


class UnpicklingError(SerializationError, pickle.UnpicklingError):
    """A pickle that holds what is not allowed, or is damaged."""

    __module__ = "rabbet.serialization"


class Names(Protocol):
    """What the names in a pickle mean."""

    def find(self, module: str, name: str) -> Any:
        """The value of a global name."""

    def call(self, function: Any, args: tuple[Any, ...]) -> Any:
        """The result of calling what `find` gave."""

    def new(self, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An object of a class that `find` gave."""

    def build(self, value: Any, state: Any) -> None:
        """Give an object its state."""

    def persistent(self, key: Any) -> Any:
        """What stands outside of the pickle."""


class Source:
    """The bytes of a pickle in a file, of which `size` are left."""

    def __init__(self, file: Any, size: int) -> None:
        self.file = file
        self.left = size

    def take(self, count: int) -> bytes:
        """That many bytes."""
        if count > self.left:
            raise ValueError(f"{count} bytes are wanted, {self.left} are left; it is truncated")
        data: bytes = self.file.read(count)
        if len(data) < count:
            raise ValueError(f"{count} bytes are wanted, {len(data)} are left; it is truncated")
        self.left -= count
        return data

    def line(self) -> str:
        """The text up to the end of the line."""
        data: bytes = self.file.readline(min(self.left, 10_000))
        if not data.endswith(b"\n"):
            raise ValueError("the end of a name is missing")
        self.left -= len(data)
        return data[:-1].decode()


def check_key(key: Any) -> Any:
    """The value if hashing it is cheap and safe."""
    inner, count = [key], 0
    while inner:
        value = inner.pop()
        if isinstance(value, tuple):
            count += len(value) + 1
            if count > _MOST_IN_KEY:
                raise ValueError("a key is a tuple of too many values")
            inner.extend(value)
    hash(key)
    return key


class Unpickler:
    """Runs one pickle.

    Args:
        names: decides about everything that is no plain value.
        encoding: of the byte strings of Python 2; "bytes" leaves them as they are.
    """

    def __init__(self, source: Source, names: Names, encoding: str = "utf-8") -> None:
        self._source = source
        self._names = names
        self._encoding = encoding
        self._stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._asking = False  # what `Names` raises is no damage

    def load(self) -> Any:
        """The value of the pickle.

        Raises:
            UnpicklingError: for what is not allowed, and for damage.
        """
        take, instructions = self._source.take, _INSTRUCTIONS
        try:
            while True:
                code = take(1)
                if code == pickle.STOP:
                    return self._stack.pop()
                instruction = instructions.get(code)
                if instruction is None:
                    raise UnpicklingError(f"Unsupported operand {code[0]}")
                instruction(self)
        except (LookupError, ValueError, TypeError, OverflowError, RuntimeError) as error:
            if self._asking or isinstance(error, SerializationError):
                raise
            what = "its stack is empty" if isinstance(error, IndexError) else error
            raise UnpicklingError(f"the pickle is damaged: {what}") from None

    # ---- numbers and strings

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._source.take(struct.calcsize(form)))[0]

    def _sized(self, form: str) -> bytes:
        return self._source.take(self._number(form))

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_text(self, data: bytes) -> None:
        self._push(data.decode("utf-8", "surrogatepass"))

    def _push_old_text(self, data: bytes) -> None:
        self._push(data if self._encoding == "bytes" else data.decode(self._encoding))

    # ---- the stack

    def _mark(self) -> None:
        self._marked.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._marked.pop()
        return items

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise IndexError
        self._stack[len(self._stack) - count :] = [tuple(self._stack[len(self._stack) - count :])]

    def _target(self, what: str, *kinds: type) -> Any:
        value = self._stack[-1]
        if type(value) not in kinds and not isinstance(value, Inert):
            raise UnpicklingError(
                f"Can only {what} for {', '.join(k.__name__ for k in kinds)}, but got {type(value).__name__}"
            )
        return value

    def _append(self) -> None:
        item = self._stack.pop()
        self._target("APPEND", list).append(item)

    def _appends(self) -> None:
        items = self._pop_mark()
        self._target("APPENDS", list).extend(items)

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._target("SETITEM", *_DICTS)[check_key(key)] = value

    def _set_items(self) -> None:
        items = self._pop_mark()
        if len(items) % 2:
            raise ValueError("a key has no value")
        target = self._target("SETITEMS", *_DICTS)
        for i in range(0, len(items), 2):
            target[check_key(items[i])] = items[i + 1]

    def _dict(self) -> None:
        items = self._pop_mark()
        self._push({})
        self._mark()
        self._stack.extend(items)
        self._set_items()

    def _add_items(self) -> None:
        items = self._pop_mark()
        self._target("ADDITEMS", set).update(map(check_key, items))

    # ---- the memo

    def _put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise ValueError(f"value {index} is used before it is made")
        self._push(self._memo[index])

    # ---- what is no plain value

    def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        self._asking = True
        result = function(*args)
        self._asking = False
        return result

    def _global(self) -> None:
        module, name = self._source.line(), self._source.line()
        self._push(self._ask(self._names.find, module, name))

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("a global's name is no string")
        self._push(self._ask(self._names.find, module, name))

    def _arguments(self) -> tuple[Any, ...]:
        args = self._stack.pop()
        if not isinstance(args, tuple):
            raise ValueError(f"the arguments of a call are no tuple but {type(args).__name__}")
        return args

    def _reduce(self) -> None:
        args = self._arguments()
        self._stack[-1] = self._ask(self._names.call, self._stack[-1], args)

    def _new(self) -> None:
        args = self._arguments()
        self._stack[-1] = self._ask(self._names.new, self._stack[-1], args, {})

    def _new_with_keywords(self) -> None:
        keywords = self._stack.pop()
        if type(keywords) is not dict:
            raise ValueError("the keywords of a call are no dict")
        args = self._arguments()
        self._stack[-1] = self._ask(self._names.new, self._stack[-1], args, keywords)

    def _build(self) -> None:
        state = self._stack.pop()
        self._ask(self._names.build, self._stack[-1], state)

    def _persistent(self) -> None:
        self._stack[-1] = self._ask(self._names.persistent, self._stack[-1])


def _constant(value: Callable[[], Any]) -> Callable[[Unpickler], None]:
    return lambda u: u._push(value())


_INSTRUCTIONS: dict[bytes, Callable[[Unpickler], Any]] = {
    pickle.PROTO: lambda u: u._number("<B"),
    pickle.FRAME: lambda u: u._number("<Q"),
    pickle.NONE: _constant(lambda: None),
    pickle.NEWTRUE: _constant(lambda: True),
    pickle.NEWFALSE: _constant(lambda: False),
    pickle.EMPTY_LIST: _constant(list),
    pickle.EMPTY_DICT: _constant(dict),
    pickle.EMPTY_TUPLE: _constant(tuple),
    pickle.EMPTY_SET: _constant(set),
    pickle.BININT: lambda u: u._push(u._number("<i")),
    pickle.BININT1: lambda u: u._push(u._number("<B")),
    pickle.BININT2: lambda u: u._push(u._number("<H")),
    pickle.BINFLOAT: lambda u: u._push(u._number(">d")),
    pickle.LONG1: lambda u: u._push(pickle.decode_long(u._sized("<B"))),
    pickle.LONG4: lambda u: u._push(pickle.decode_long(u._sized("<I"))),
    pickle.BINUNICODE: lambda u: u._push_text(u._sized("<I")),
    pickle.SHORT_BINUNICODE: lambda u: u._push_text(u._sized("<B")),
    pickle.BINUNICODE8: lambda u: u._push_text(u._sized("<Q")),
    pickle.BINSTRING: lambda u: u._push_old_text(u._sized("<I")),
    pickle.SHORT_BINSTRING: lambda u: u._push_old_text(u._sized("<B")),
    pickle.BINBYTES: lambda u: u._push(u._sized("<I")),
    pickle.SHORT_BINBYTES: lambda u: u._push(u._sized("<B")),
    pickle.BINBYTES8: lambda u: u._push(u._sized("<Q")),
    pickle.BYTEARRAY8: lambda u: u._push(bytearray(u._sized("<Q"))),
    pickle.MARK: Unpickler._mark,
    pickle.POP: Unpickler._pop,
    pickle.POP_MARK: Unpickler._pop_mark,
    pickle.DUP: lambda u: u._push(u._stack[-1]),
    pickle.TUPLE: lambda u: u._push(tuple(u._pop_mark())),
    pickle.TUPLE1: lambda u: u._tuple(1),
    pickle.TUPLE2: lambda u: u._tuple(2),
    pickle.TUPLE3: lambda u: u._tuple(3),
    pickle.LIST: lambda u: u._push(u._pop_mark()),
    pickle.DICT: Unpickler._dict,
    pickle.FROZENSET: lambda u: u._push(frozenset(map(check_key, u._pop_mark()))),
    pickle.APPEND: Unpickler._append,
    pickle.APPENDS: Unpickler._appends,
    pickle.SETITEM: Unpickler._set_item,
    pickle.SETITEMS: Unpickler._set_items,
    pickle.ADDITEMS: Unpickler._add_items,
    pickle.BINPUT: lambda u: u._put(u._number("<B")),
    pickle.LONG_BINPUT: lambda u: u._put(u._number("<I")),
    pickle.MEMOIZE: lambda u: u._put(len(u._memo)),
    pickle.BINGET: lambda u: u._get(u._number("<B")),
    pickle.LONG_BINGET: lambda u: u._get(u._number("<I")),
    pickle.GLOBAL: Unpickler._global,
    pickle.STACK_GLOBAL: Unpickler._stack_global,
    pickle.REDUCE: Unpickler._reduce,
    pickle.NEWOBJ: Unpickler._new,
    pickle.NEWOBJ_EX: Unpickler._new_with_keywords,
    pickle.BUILD: Unpickler._build,
    pickle.BINPERSID: Unpickler._persistent,
}


# ---- looking at a pickle without making its values


class Inert:
    """What a name, a call or a persistent id gives when nothing is made."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def _take(self, *items: Any) -> None:
        """Take what a pickle adds to a list, dict or set of a class of its own."""

    append = extend = update = __setitem__ = _take


class Skim:
    """Names that make nothing: they note which globals and persistent ids a pickle holds."""

    def __init__(self) -> None:
        self.globals: list[str] = []
        self.keys: list[Any] = []

    def find(self, module: str, name: str) -> Inert:
        """Note a name."""
        self.globals.append(f"{module}.{name}")
        return Inert(f"{module}.{name}")

    def call(self, function: Any, args: tuple[Any, ...]) -> Inert:
        """Call nothing; what is a container stays one, as items follow."""
        made = {"collections.OrderedDict": OrderedDict, "collections.defaultdict": defaultdict,
                "collections.Counter": Counter}.get(getattr(function, "name", ""))  # fmt: skip
        return made() if made else Inert()

    def new(self, cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Inert:
        """Make nothing."""
        return Inert()

    def build(self, value: Any, state: Any) -> None:
        """Change nothing."""

    def persistent(self, key: Any) -> Inert:
        """Note a key."""
        self.keys.append(key)
        return Inert()
