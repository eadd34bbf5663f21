"""Find the references that keep objects alive, as paths from the program's variables."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterable
from typing import Any

from ._find import HERE, locals_of, running_frames

__all__ = ["paths_to"]

_DEPTH = 10
_WIDTH = 300  # objects of one level
_TEXT = 160


def _where(frame: types.FrameType) -> str:
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"


def _key(key: Any) -> str:
    text = (
        repr(key) if isinstance(key, (str, int, float, bytes, bool)) else f"<{type(key).__name__}>"
    )
    return f"[{text if len(text) < 40 else text[:37] + '...'}]"


def _steps(holder: Any, child: Any) -> list[str]:
    """How `holder` refers to `child`, as what follows the holder's own text."""
    if isinstance(holder, dict):
        return [_key(k) for k, v in holder.items() if v is child]
    if isinstance(holder, (list, tuple)):
        return [f"[{n}]" for n, v in enumerate(holder) if v is child]
    if isinstance(holder, types.FrameType):
        return [f" {name!r}" for name, v in locals_of(holder).items() if v is child]
    attributes = _dict_of(holder)
    if isinstance(attributes, dict):
        return [f".{name}" for name, v in attributes.items() if v is child]
    return []


def _root(holder: Any) -> str | None:
    """The text of an object at which paths end."""
    if isinstance(holder, types.ModuleType):
        return holder.__name__
    if isinstance(holder, type):
        return f"class {holder.__qualname__}"
    if isinstance(holder, types.FrameType):
        return f"local of {_where(holder)}, kept by a traceback or generator:"
    return None


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT // 2] + " ... " + text[-_TEXT // 2 :]


class _Search:
    """Walks from objects to what refers to them, level by level, so that each level looks at all objects once."""

    def __init__(self, targets: list[Any], wanted: int) -> None:
        self._wanted = wanted
        self._found: dict[int, list[str]] = {id(t): [] for t in targets}
        self._seen = {id(t) for t in targets}
        # Of each object of the level: the object, and (target, text behind the object).
        self._level = {id(t): (t, [(id(t), "")]) for t in targets}
        self._namespaces = {id(vars(m)): name for name, m in list(sys.modules.items()) if m is not None and hasattr(m, "__dict__")}  # fmt: skip

    def run(self, hidden: Iterable[Any]) -> dict[int, list[str]]:
        self._seen.update(map(id, hidden))
        self._seen.update((id(self), id(self.__dict__), id(self._found), id(self._level)))
        for _ in range(_DEPTH):
            self._take_frames()
            if not self._level or all(len(p) >= self._wanted for p in self._found.values()):
                break
            self._climb()
        return self._found

    def _emit(self, root: str, ends: list[tuple[int, str]]) -> None:
        for target, text in ends:
            path = _short(root + text)
            if len(self._found[target]) < self._wanted and path not in self._found[target]:
                self._found[target].append(path)

    def _take_frames(self) -> None:
        for frame in running_frames():
            for name, value in locals_of(frame).items():
                if id(value) in self._level and frame.f_code.co_name != "<module>":
                    self._emit(f"local {name!r} of {_where(frame)}", self._level[id(value)][1])

    def _climb(self) -> None:
        level, self._level = self._level, {}
        entries = list(level.values())
        objects = [obj for obj, _ in entries]
        own = {id(level), id(entries), id(objects), id(self._level), *map(id, entries)}
        own.update(id(ends) for _, ends in entries)
        reached: set[int] = set()
        for holder in gc.get_referrers(*objects):
            if id(holder) in own or _is_own(holder):
                continue
            children = {id(c): c for c in gc.get_referents(holder) if id(c) in level}
            reached.update(children)
            if id(holder) in self._seen or len(self._level) >= _WIDTH:
                continue
            self._seen.add(id(holder))
            ends = [
                (target, step + _rest(holder, child, text))
                for key, child in children.items()
                for step in _steps(holder, child) or ("",)
                for target, text in level[key][1]
            ]
            self._take(holder, ends)
        for key, (obj, ends) in level.items():
            if key not in reached and not any(self._found[target] for target, _ in ends):
                self._emit(f"<{type(obj).__name__} that no variable holds>", ends)

    def _take(self, holder: Any, ends: list[tuple[int, str]]) -> None:
        namespace = self._namespaces.get(id(holder)) if isinstance(holder, dict) else None
        if namespace is not None:
            self._emit(namespace, [(target, _as_attribute(text)) for target, text in ends])
            return
        root = _root(holder)
        if root is not None:
            is_class = isinstance(holder, type)
            self._emit(
                root, [(target, _as_attribute(text) if is_class else text) for target, text in ends]
            )
        else:
            self._level[id(holder)] = (holder, ends[:20])


def _dict_of(holder: Any) -> Any:
    return None if isinstance(holder, type) else getattr(holder, "__dict__", None)


def _rest(holder: Any, child: Any, text: str) -> str:
    """The text behind a child that holds variables of its holder: its attributes or its closure."""
    if child is _dict_of(holder):
        return _as_attribute(text)
    if isinstance(holder, types.FunctionType) and child is holder.__closure__:
        number, _, rest = text[1:].partition("]")
        return f" of the closure of {holder.__qualname__}: {holder.__code__.co_freevars[int(number)]}{rest}"
    return text


def _is_own(holder: Any) -> bool:
    return isinstance(holder, types.FrameType) and holder.f_code.co_filename.startswith(HERE)


def _as_attribute(text: str) -> str:
    """The first step "['name']" of a namespace as ".name"."""
    if text.startswith("['"):
        name, _, rest = text[2:].partition("']")
        return f".{name}{rest}"
    return text


def paths_to(targets: list[Any], wanted: int = 3, hidden: Iterable[Any] = ()) -> list[list[str]]:
    """For each object the paths from variables, modules and tracebacks that keep it alive, at most `wanted`.

    `hidden` are objects that count for nothing, such as the caller's own lists.
    """
    search = _Search(list(targets), wanted)
    found = search.run([targets, *hidden])
    return [found[id(t)] for t in targets]
