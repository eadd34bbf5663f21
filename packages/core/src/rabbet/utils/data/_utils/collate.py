"""Batches out of lists of samples."""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import rabbet

from .... import _C
from ...._C import Tensor
from .slots import LARGE, destination, is_plain, staged

__all__ = ["collate", "default_collate", "default_collate_err_msg_format", "default_convert", "np_str_obj_array_pattern"]  # fmt: skip

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)
np_str_obj_array_pattern = re.compile(r"[SaUO]")  # NumPy's kinds of dtypes that no tensor has
_Functions = dict[Any, Callable[..., Any]]


def _is_numpy(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _rebuilt_mapping(elem: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """A mapping of the class of `elem` with other values; a dict where the class cannot be filled."""
    try:
        if isinstance(elem, MutableMapping):
            made = copy.copy(elem)
            made.update(values)
            return made
        return type(elem)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def _rebuilt_sequence(elem: Sequence[Any], values: list[Any]) -> Any:
    """A sequence of the class of `elem`; a list where the class cannot be filled."""
    try:
        if isinstance(elem, MutableSequence):
            made = copy.copy(elem)
            for i, value in enumerate(values):
                made[i] = value
            return made
        return type(elem)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """Make tensors of NumPy arrays and numbers, also inside of mappings and sequences; the rest stays."""
    if isinstance(data, Tensor):
        return data
    if _is_numpy(data):
        return data if np_str_obj_array_pattern.search(data.dtype.str) else _C.as_tensor(data)
    if isinstance(data, Mapping):
        return _rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rebuilt_sequence(data, [default_convert(d) for d in data])
    return data


def _function_for(elem: Any, functions: _Functions) -> Callable[..., Any] | None:
    if type(elem) in functions:
        return functions[type(elem)]
    return next((f for kind, f in functions.items() if isinstance(elem, kind)), None)


def _collate_sequences(batch: Any, elem: Any, functions: _Functions | None) -> Any:
    size = len(elem)
    if not all(len(sample) == size for sample in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    columns = [collate(column, collate_fn_map=functions) for column in zip(*batch, strict=True)]
    if isinstance(elem, tuple):
        return columns  # a list, as PyTorch has it
    return _rebuilt_sequence(elem, columns)


def collate(batch: Any, *, collate_fn_map: _Functions | None = None) -> Any:
    """Join samples: mappings and sequences element by element, the rest by the functions for their types.

    Args:
        batch: samples of one structure.
        collate_fn_map: type or tuple of types to a function of (batch, *, collate_fn_map).

    Raises:
        TypeError: for a type without a function.
        RuntimeError: if sequences differ in length.
    """
    elem = batch[0]
    function = _function_for(elem, collate_fn_map or {})
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, Mapping):
        values = {
            key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in elem
        }
        return _rebuilt_mapping(elem, values)
    if isinstance(elem, tuple) and hasattr(elem, "_fields"):
        columns = zip(*batch, strict=True)
        return type(elem)(*(collate(c, collate_fn_map=collate_fn_map) for c in columns))
    if isinstance(elem, Sequence):
        return _collate_sequences(batch, elem, collate_fn_map)
    raise TypeError(default_collate_err_msg_format.format(type(elem)))


def collate_tensor_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """Tensors of one shape, stacked."""
    first = batch[0].shape
    odd = next((i for i, sample in enumerate(batch) if sample.shape != first), None)
    if odd is not None:
        raise _C.ArgumentError(
            "default_collate: the tensors of a batch must have one shape, but that of sample 0 has shape "
            f"{tuple(first)} and that of sample {odd} has shape {tuple(batch[odd].shape)}; pad them, or give the "
            "DataLoader a collate_fn"
        )
    if all(type(sample) is Tensor for sample in batch) and _is_plain(batch):
        memory = staged(batch)
        if memory is not None:
            return memory
        memory = destination(batch[0].dtype, (len(batch), *first))
        if memory is not None:
            return _stack_into(memory, batch)
    return rabbet.stack(list(batch))


def _stack_into(memory: Tensor, batch: Any) -> Tensor:
    if batch[0].numel() * batch[0].element_size() < LARGE:
        return rabbet.stack(list(batch), out=memory)
    for row, sample in zip(memory.unbind(0), batch, strict=True):
        row.copy_(sample)
    return memory


def _is_plain(batch: Any) -> bool:
    """Whether the samples can be stacked into memory that is there."""
    dtype = batch[0].dtype
    return all(x.dtype is dtype and is_plain(x) for x in batch)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Any:
    """NumPy arrays of one shape, stacked; numbers as a vector."""
    elem = batch[0]
    if np_str_obj_array_pattern.search(elem.dtype.str):
        raise TypeError(default_collate_err_msg_format.format(elem.dtype))
    return collate([_C.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_float_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """Floats as float64."""
    return _C.tensor(list(batch), _C.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Tensor:
    """Integers as int64, bools as bool."""
    return _C.tensor(list(batch))


def collate_str_fn(batch: Any, *, collate_fn_map: _Functions | None = None) -> Any:
    """Texts stay a list."""
    return batch


_default_functions: _Functions = {
    Tensor: collate_tensor_fn, float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn
}  # fmt: skip


def _functions_by_default() -> _Functions:
    """With those for NumPy's types once the program has imported NumPy, which would take a worker longer than rabbet."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ndarray") and numpy.ndarray not in _default_functions:
        later = {kind: _default_functions.pop(kind) for kind in list(_default_functions)}
        if Tensor in later:
            _default_functions[Tensor] = later.pop(Tensor)
        _default_functions[numpy.ndarray] = collate_numpy_array_fn
        scalars = numpy.bool_, numpy.number, numpy.object_  # before float: float64 is one, too
        _default_functions[scalars] = collate_numpy_array_fn
        _default_functions.update(later)
    return _default_functions


def __getattr__(name: str) -> Any:
    """`default_collate_fn_map`, in which programs look NumPy's types up and put functions of their own."""
    if name != "default_collate_fn_map":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with contextlib.suppress(ImportError):  # NumPy may not be installed
        import numpy  # noqa: F401
    return _functions_by_default()


def default_collate(batch: Any) -> Any:
    """Join a list of samples into a batch.

    Tensors and NumPy arrays are stacked along a new first dimension, numbers become a tensor, texts a list; mappings
    and sequences are joined element by element. Tuples become lists.

    Raises:
        TypeError: for samples of other types.
        RuntimeError: if tensors or sequences differ in size.
    """
    return collate(batch, collate_fn_map=_functions_by_default())
