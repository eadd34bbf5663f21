"""Functions that make arrays."""

from typing import Any, Literal

import rabbet

from .._C import Tensor
from ._arguments import Device, DType, Number, need_matrices, need_tensors

Shape = int | tuple[int, ...]


def _sizes(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _diagonal(k: int, rows: int, columns: int) -> int:
    """The number of a diagonal, no farther outside of the matrix than the first one there."""
    return max(-rows, min(k, columns))


def asarray(
    obj: Any,
    /,
    *,
    dtype: DType | None = None,
    device: Device = None,
    copy: bool | None = None,
) -> Tensor:
    """`obj` as a tensor: a tensor, a number, nested sequences of numbers, or an object with a buffer or DLPack.

    Args:
        dtype: None: the object's own; of numbers bool, int64, or the default floating or complex dtype.
        copy: True: always copy; False: never; None: only where dtype, device or the object make it necessary.

    Raises:
        ValueError: for copy=False if a copy is necessary.
        TypeError: for objects that hold no numbers.
    """
    if not isinstance(obj, Tensor):
        return rabbet.asarray(obj, dtype=dtype, device=device, copy=copy)
    found = obj.to(
        device=obj.device if device is None else device,
        dtype=obj.dtype if dtype is None else dtype,
        copy=copy is True,
    )
    if copy is False and found is not obj:
        raise ValueError(
            f"asarray: copy=False, but a tensor of {obj.dtype.name} on {obj.device} must be copied to have "
            f"{found.dtype.name} on {found.device}"
        )
    return found


def from_dlpack(x: Any, /, *, device: Device = None, copy: bool | None = None) -> Tensor:
    """A tensor that shares the memory of an object with `__dlpack__`, or a copy.

    Args:
        device: where the result is; None: where the object is.
        copy: True: always copy; False: never; None: only if the device makes it necessary.

    Raises:
        TypeError: if the object has no `__dlpack__`.
        BufferError: for copy=False if a copy is necessary.
    """
    return rabbet.from_dlpack(x, device=device, copy=copy)


def empty(shape: Shape, *, dtype: DType | None = None, device: Device = None) -> Tensor:
    """Uninitialised, of the default dtype unless another is given."""
    return rabbet.empty(_sizes(shape), dtype=dtype, device=device)


def zeros(shape: Shape, *, dtype: DType | None = None, device: Device = None) -> Tensor:
    """Zeros, of the default dtype unless another is given."""
    return rabbet.zeros(_sizes(shape), dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: DType | None = None, device: Device = None) -> Tensor:
    """Ones, of the default dtype unless another is given."""
    return rabbet.ones(_sizes(shape), dtype=dtype, device=device)


def full(
    shape: Shape, fill_value: Number, *, dtype: DType | None = None, device: Device = None
) -> Tensor:
    """One number everywhere; the dtype follows the number unless it is given."""
    return rabbet.full(_sizes(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Device = None) -> Tensor:
    """Uninitialised, with the shape of `x`, and its dtype and device unless others are given."""
    return rabbet.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Device = None) -> Tensor:
    """Zeros with the shape of `x`, and its dtype and device unless others are given."""
    return rabbet.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Device = None) -> Tensor:
    """Ones with the shape of `x`, and its dtype and device unless others are given."""
    return rabbet.ones_like(x, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: Number, *, dtype: DType | None = None, device: Device = None
) -> Tensor:
    """One number everywhere, with the shape of `x`, and its dtype and device unless others are given."""
    return rabbet.full_like(x, fill_value, dtype=dtype, device=device)


def arange(
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: DType | None = None,
    device: Device = None,
) -> Tensor:
    """Numbers from `start` up to but not including `stop`, `step` apart; from 0 to `start` if `stop` is None.

    The result is empty if no step leads from `start` to `stop`. It is int64 if all arguments are ints.

    Raises:
        ValueError: if `step` is 0.
    """
    if step == 0:
        raise ValueError("arange: step must not be 0")
    given = [x for x in (start, stop, step) if x is not None]
    if stop is None:
        start, stop = 0, start
    if (stop - start) * (1 if step > 0 else -1) <= 0:
        stop = start
    if dtype is None:
        is_whole = all(isinstance(x, int) for x in given)
        dtype = rabbet.int64 if is_whole else rabbet.get_default_dtype()
    return rabbet.arange(start, stop, step, dtype=dtype, device=device)


def linspace(
    start: int | float | complex,
    stop: int | float | complex,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: Device = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, which is the last one if `endpoint` is set.

    Raises:
        ValueError: if `num` is negative.
    """
    if num < 0:
        raise ValueError(f"linspace: num must not be negative, got {num}")
    if endpoint:
        return rabbet.linspace(start, stop, num, dtype=dtype, device=device)
    return rabbet.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DType | None = None,
    device: Device = None,
) -> Tensor:
    """Ones on the `k`-th diagonal of a matrix (n_rows, n_cols), zeros elsewhere; positive `k` lie above the main one."""
    width = n_rows if n_cols is None else n_cols
    offset = _diagonal(k, n_rows, width)
    rows = rabbet.arange(n_rows, device=device).unsqueeze(1)
    columns = rabbet.arange(width, device=device)
    found: Tensor = (rows + offset == columns).to(
        rabbet.get_default_dtype() if dtype is None else dtype
    )
    return found


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The matrices (..., M, N) with zeros above their `k`-th diagonals.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("tril", x=x)
    return rabbet.tril(x, _diagonal(k, *x.shape[-2:]))


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The matrices (..., M, N) with zeros below their `k`-th diagonals.

    Raises:
        ValueError: for fewer than two dimensions.
    """
    need_matrices("triu", x=x)
    return rabbet.triu(x, _diagonal(k, *x.shape[-2:]))


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid: for N vectors of lengths n1, n2, ... N tensors of N dimensions.

    Args:
        indexing: 'ij': shapes are (n1, n2, n3, ...); 'xy': (n2, n1, n3, ...).

    Raises:
        ValueError: for another `indexing`, and for tensors with more than one dimension.
        RuntimeError: if the dtypes differ.
    """
    need_tensors("meshgrid", **{f"arrays[{i}]": x for i, x in enumerate(arrays)})
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    for i, x in enumerate(arrays):
        if x.ndim > 1:
            raise ValueError(
                f"meshgrid: arrays[{i}] must have at most 1 dimension, got shape {tuple(x.shape)}"
            )
    return tuple(rabbet.meshgrid(*arrays, indexing=indexing)) if arrays else ()
