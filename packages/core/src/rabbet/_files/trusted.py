"""Pickles of any objects, by Python's own pickle: reading one imports and calls whatever it names.

Only files that the user trusts are read so (`weights_only=False`). Tensors and storages are stored as in all files of
PyTorch's; classes and functions of rabbet have their names of PyTorch, so that either framework reads the file.
"""

import contextlib
import functools
import io
import pickle
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import _C
from .._as_torch import names
from .._C import Tensor
from ..storage import TypedStorage, UntypedStorage
from . import SerializationError, safe, structure, torch_names
from .pickling import Global, HooksMark, StorageMark, Storages, tensor_recipe
from .torch_names import BUFFER, PARAMETER, StorageKey
from .unpickling import UnpicklingError

# ---- reading


def _of_torch(module: str, name: str) -> Any:
    """What PyTorch's `module.name` is in rabbet, where a class may stand in a module above.

    Raises:
        UnpicklingError: if rabbet has nothing of that name.
    """
    path = module.partition(".")[2]
    while path:
        owner = names.module_of(path)  # a function of that name may hide it in the module above
        with contextlib.suppress(AttributeError):
            found = functools.reduce(getattr, name.split("."), owner)
            if f"torch.{path}" == module or isinstance(found, type):
                return found
        path = path.rpartition(".")[0]
    with contextlib.suppress(AttributeError):
        found = names.resolve(f"torch.{name}")
        if module == "torch" or isinstance(found, type):
            return found
    raise UnpicklingError(f"the file names {module}.{name}, which is not in rabbet yet")


def _rebuild_from_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
    """A tensor of a class with attributes."""
    made = function(*args)
    is_buffer = isinstance(state, dict) and state.get("_is_buffer") is True
    if is_buffer and cls is Tensor:
        cls = structure.class_of_name(BUFFER, "load")
        state = {key: value for key, value in state.items() if key != "_is_buffer"}
    if type(made) is not cls:
        made = Tensor._make_subclass(cls, made.detach(), made.requires_grad)
    if cls.__dict__.get("__setstate__") is not None:
        made.__setstate__(state)
    else:
        torch_names.set_state(made, state)
    return made


def _refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose errors are damage of the file."""

    @functools.wraps(function)
    def make(*args: Any) -> Any:
        with structure.refusing("the pickle is damaged", UnpicklingError):
            return function(*args)

    return make


def _refuse_generator(*args: Any) -> Any:
    raise UnpicklingError(
        "the file holds a Generator of PyTorch's, whose random numbers rabbet has not: save its initial_seed()"
    )


_SPECIAL = {
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch._C.Generator": _refuse_generator,
}


class Reading(NamedTuple):
    """How to read the parts of a pickle that only packages have."""

    # The object of a module and a name outside PyTorch.
    find: Callable[[str, str], Any]
    # The object of a persistent id, if that is not the id of a storage.
    persistent: Callable[[tuple[Any, ...]], Any]


def unpickle(
    file: Any,
    storage: Callable[[StorageKey], Any],
    module: Any,
    encoding: str,
    more: Reading | None = None,
) -> Any:
    """The value of the pickle that begins at the file's position; whatever it names is executed.

    Args:
        storage: the storage of a persistent id.
        module: whose `Unpickler` runs; None: Python's pickle.
        more: for the pickles of packages.
    """
    base: Any = (pickle if module is None else module).Unpickler

    class Unpickler(base):  # type: ignore[misc]
        def find_class(self, module: str, name: str) -> Any:
            full = f"{module}.{name}"
            if full in _SPECIAL:
                return _SPECIAL[full]
            special = torch_names.special(full)
            if special is not None:
                return _refusing(special) if isinstance(special, types.FunctionType) else special
            if module.partition(".")[0] == "torch":
                return _of_torch(module, name)
            if more is not None:
                return more.find(module, name)
            return super().find_class(module, name)

        def persistent_load(self, key: Any) -> Any:
            if isinstance(key, tuple) and len(key) > 1 and key[0] == "module":
                return key[1]  # a class beside its source, as PyTorch wrote it once
            if more is not None and isinstance(key, tuple):
                if key[:1] != ("storage",):
                    return more.persistent(key)
                # Packages number their storages; other files give them names.
                key = (*key[:2], *(str(part) for part in key[2:3]), *key[3:])
            with structure.refusing("a persistent id of the file is damaged", UnpicklingError):
                checked = StorageKey.of(key)
            return storage(checked)

    try:
        return Unpickler(file, encoding=encoding).load()
    except SerializationError:
        raise
    except Exception as error:
        # What the pickle's own objects raise has frames below this one; the rest is damage.
        if isinstance(error, (pickle.UnpicklingError, EOFError)) or (
            error.__traceback__ is not None and error.__traceback__.tb_next is None
        ):
            raise UnpicklingError(
                f"the pickle is damaged, or a call in it failed: {type(error).__name__}: {error}"
            ) from error
        raise


# ---- writing


class Writing(NamedTuple):
    """How to write the parts of a pickle that only packages have."""

    # The module and the name of an object outside rabbet, and the class that has it as an attribute; None: the module.
    name: Callable[[Any, str | None], tuple[str, str, Any]]
    # Called with each module and name that is written.
    written: Callable[[str, str], None]
    # The persistent id of an object; None: it is pickled as usual.
    persistent: Callable[[Any], tuple[Any, ...] | None]


def pickled(
    value: Any,
    storages: Storages,
    suffix: tuple[Any, ...],
    module: Any,
    protocol: int,
    more: Writing | None = None,
) -> bytes:
    """The pickle of a value of any class.

    Args:
        storages: takes the storages that the value's tensors show.
        suffix: what ends each persistent id.
        module: whose `Pickler` writes; None: Python's pickle. Only that one gives rabbet's names as PyTorch's.
        more: for the pickles of packages; only with Python's pickle.
    """
    is_usual = module is None or module is pickle
    base: Any = pickle._Pickler if is_usual else module.Pickler
    written: dict[Global, Global] = {}  # one object of each, which is written once

    def named(name: Global) -> Any:
        if is_usual:
            return written.setdefault(name, name)
        full = f"{name.module}.{name.name}"
        return _SPECIAL.get(full) or torch_names.special(full)

    class Pickler(base):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, StorageMark):
                key = obj.key
            elif isinstance(obj, (TypedStorage, UntypedStorage)):
                key = storages.key_of(obj)
            else:
                return None if more is None else more.persistent(obj)
            return (key[0], named(key[1]), *key[2:], *suffix)

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, Tensor):
                return _reduced(obj, storages, named)
            if isinstance(obj, HooksMark):
                return OrderedDict, ()
            if is_usual and isinstance(obj, (Global, _C.dtype)):
                return obj.name
            if is_usual and isinstance(obj, _C.Op) and _module_of_operator(obj) is not None:
                return obj.__name__
            inherited = getattr(super(), "reducer_override", None)
            return NotImplemented if inherited is None else inherited(obj)

        if is_usual:

            def save_global(self, obj: Any, name: str | None = None) -> None:
                owner = _module_of(obj, name)
                if owner is None and more is None:
                    super().save_global(obj, name)
                    return
                parent = None
                if owner is None and more is not None:
                    owner, name, parent = more.name(obj, name)
                label: str = name or getattr(obj, "__qualname__", None) or obj.__name__
                if more is not None:
                    more.written(str(owner), label)
                if parent is not None and self.proto < 4:
                    self.save_reduce(getattr, (parent, label.rpartition(".")[2]), obj=obj)
                    return
                if self.proto >= 4:
                    self.save(owner)
                    self.save(label)
                    self.write(pickle.STACK_GLOBAL)
                else:
                    self.write(pickle.GLOBAL + f"{owner}\n{label}\n".encode())
                self.memoize(obj)

            dispatch = {**base.dispatch, types.FunctionType: save_global}

    out = io.BytesIO()
    try:
        Pickler(out, protocol=protocol).dump(value)
    except RecursionError:
        raise SerializationError("save: the value is nested too deeply") from None
    return out.getvalue()


def _module_of(obj: Any, name: str | None) -> str | None:
    """PyTorch's module of something of rabbet's; None: it is not of rabbet."""
    if isinstance(obj, Global):
        return obj.module
    if isinstance(obj, _C.dtype):
        return "torch"
    if obj is _C.Generator:
        return "rabbet"  # PyTorch's has another state
    if isinstance(obj, _C.Op):
        return _module_of_operator(obj)
    module = getattr(obj, "__module__", None)
    if not isinstance(module, str):
        module = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]
    module = names.own_name(module)
    return names.home_of(module) if module.partition(".")[0] == "rabbet" else None


def _module_of_operator(op: _C.Op) -> str | None:
    """Where PyTorch has an operator: in `torch`, or among the functions of `nn`; None: nowhere."""
    for module in ("rabbet.nn.functional", "rabbet"):
        if getattr(sys.modules.get(module), op.__name__, None) is op:
            return names.home_of(module)
    return None


def _reduced(t: Tensor, storages: Storages, named: Callable[[Global], Any]) -> Any:
    """How a tensor is made again: a function and its arguments."""
    cls = type(t)
    name, state = safe.name_of(cls), vars(t)
    is_own = name in (PARAMETER, BUFFER) or (
        cls.__reduce_ex__ is Tensor.__reduce_ex__ and cls.__reduce__ is Tensor.__reduce__
    )
    if not is_own:
        return NotImplemented
    if name == PARAMETER:
        parts: tuple[Any, ...] = (t.detach(), t.requires_grad, OrderedDict())
        if state:
            maker = Global("torch._utils", "_rebuild_parameter_with_state")
            return named(maker), (*parts, dict(state))
        return named(Global("torch._utils", "_rebuild_parameter")), parts
    function, args = tensor_recipe(storages, t, t.requires_grad, "a tensor")
    if cls is Tensor and not state:
        return named(function), tuple(args)
    if name == BUFFER:
        cls, state = Tensor, {**state, "_is_buffer": True}
    rebuild = named(Global("torch._tensor", "_rebuild_from_type_v2"))
    return rebuild, (named(function), cls, tuple(args), dict(state))
