"""Functions that rearrange, join and repeat arrays."""

from collections.abc import Sequence
from typing import Any

import rabbet

from .._C import Tensor
from ._arguments import Axis, need_tensors, one_axis, several_axes
from ._dtypes import common_dtype


def _several(function: str, arrays: Any) -> list[Tensor]:
    """The tensors in their common dtype."""
    listed = list(arrays)
    if not listed:
        raise ValueError(f"{function}: expected at least one tensor")
    need_tensors(function, **{f"arrays[{i}]": x for i, x in enumerate(listed)})
    dtype = common_dtype(function, *listed)
    return [x.to(dtype) for x in listed]


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Views of the tensors with the shape to which they broadcast.

    Raises:
        TypeError: for values that are not tensors.
        RuntimeError: if the shapes do not broadcast.
    """
    need_tensors("broadcast_arrays", **{f"arrays[{i}]": x for i, x in enumerate(arrays)})
    return tuple(rabbet.broadcast_tensors(*arrays)) if arrays else ()


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which all of `shapes` broadcast; without arguments the empty one.

    Raises:
        ValueError: if they do not broadcast.

    Example:
        >>> broadcast_shapes((3, 1), (4,))
        (3, 4)
    """
    try:
        return tuple(rabbet.broadcast_shapes(*shapes))
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """A view of `x` with `shape`, to which it broadcasts.

    Raises:
        RuntimeError: if it does not.
    """
    return rabbet.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The tensors one after the other along `axis`, in their common dtype; flattened first if `axis` is None.

    Raises:
        TypeError: for values that are not tensors.
        ValueError: without tensors, and for 0-d ones unless `axis` is None.
        IndexError: if there is no such axis.
        RuntimeError: if the shapes differ in another dimension.
    """
    parts = _several("concat", arrays)
    if axis is None:
        return rabbet.cat([x.reshape([-1]) for x in parts], 0)
    for i, x in enumerate(parts):
        if x.ndim == 0:
            raise ValueError(f"concat: arrays[{i}] has no dimensions; use axis=None or stack()")
        if x.ndim != parts[0].ndim:
            raise ValueError(
                f"concat: arrays[{i}] has {x.ndim} dimensions, arrays[0] has {parts[0].ndim}"
            )
    return rabbet.cat(parts, one_axis("concat", axis, parts[0].ndim))


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """A view with dimensions of size 1 at the positions `axis` of the result.

    Raises:
        IndexError: for a position outside the result.
        ValueError: for a position that occurs twice.
    """
    need_tensors("expand_dims", x=x)
    count = len(axis) if isinstance(axis, tuple) else 1
    for place in sorted(several_axes("expand_dims", axis, x.ndim + count)):
        x = x.unsqueeze(place)
    return x


def flip(x: Tensor, /, *, axis: Axis = None) -> Tensor:
    """The order of the elements reversed along `axis`, or along all.

    Raises:
        IndexError: if there is no such axis.
    """
    need_tensors("flip", x=x)
    return rabbet.flip(x, range(x.ndim) if axis is None else several_axes("flip", axis, x.ndim))


def moveaxis(
    x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Tensor:
    """A view with the axes `source` at the positions `destination`; the other axes keep their order.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis that occurs twice, or different numbers of axes.
    """
    need_tensors("moveaxis", x=x)
    old = several_axes("moveaxis", source, x.ndim, "source")
    new = several_axes("moveaxis", destination, x.ndim, "destination")
    if len(old) != len(new):
        raise ValueError(
            f"moveaxis: source and destination must have as many axes, got {len(old)} and {len(new)}"
        )
    return rabbet.movedim(x, old, new)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """A view whose axis i is the axis `axes[i]` of `x`.

    Raises:
        IndexError: if there is no such axis.
        ValueError: if `axes` is no permutation of the axes.
    """
    need_tensors("permute_dims", x=x)
    order = several_axes("permute_dims", axes, x.ndim, "axes")
    if len(order) != x.ndim:
        raise ValueError(f"permute_dims: axes must name each of {x.ndim} axes, got {tuple(axes)}")
    return rabbet.permute(x, order)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element, or each slice along `axis`, `repeats` times; flattened first if `axis` is None.

    Args:
        repeats: one number for all, or a vector of integers with one for each.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for negative numbers.
    """
    need_tensors("repeat", x=x)
    if axis is None:
        x, axis = x.reshape([-1]), 0
    axis = one_axis("repeat", axis, x.ndim)
    if isinstance(repeats, Tensor):
        repeats = repeats.to(rabbet.int64).broadcast_to([x.shape[axis]])
        if repeats.numel() and bool((repeats < 0).any()):
            raise ValueError("repeat: repeats must not be negative")
    elif repeats < 0:
        raise ValueError(f"repeat: repeats must not be negative, got {repeats}")
    return rabbet.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in row-major order in another shape; one size may be -1.

    Args:
        copy: True: always copy; False: never; None: only where the strides make it necessary.

    Raises:
        ValueError: for copy=False if a copy is necessary.
        RuntimeError: if the number of elements differs.
    """
    need_tensors("reshape", x=x)
    found = rabbet.reshape(x, shape)
    if copy is None:
        return found
    shares = found.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    if copy:
        return found.clone() if shares else found
    if not shares:
        raise ValueError(
            f"reshape: copy=False, but strides {x.stride()} cannot show shape {tuple(x.shape)} as {tuple(shape)}"
        )
    return found


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axis = None) -> Tensor:
    """The elements moved by `shift` along `axis`; what leaves at one end enters at the other.

    If `axis` is None the elements move in row-major order. A single `shift` serves for several axes.

    Raises:
        IndexError: if there is no such axis.
        ValueError: if the numbers of shifts and axes differ.
    """
    need_tensors("roll", x=x)
    if axis is None:
        return rabbet.roll(x, shift)
    places = [axis] if isinstance(axis, int) else list(axis)
    places = [one_axis("roll", place, x.ndim) for place in places]
    shifts = [shift] * len(places) if isinstance(shift, int) else list(shift)
    if len(shifts) != len(places):
        raise ValueError(f"roll: got {len(shifts)} shifts for {len(places)} axes")
    return rabbet.roll(x, shifts, places)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """A view without the axes `axis`, whose sizes are 1.

    Raises:
        IndexError: if there is no such axis.
        ValueError: for an axis of another size, or one that occurs twice.
    """
    need_tensors("squeeze", x=x)
    places = several_axes("squeeze", axis, x.ndim)
    for place in places:
        if x.shape[place] != 1:
            raise ValueError(
                f"squeeze: axis {place} has size {x.shape[place]}, expected 1; the shape is {tuple(x.shape)}"
            )
    return x.squeeze(tuple(places)) if places else x


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The tensors along a new axis, in their common dtype.

    Raises:
        TypeError: for values that are not tensors.
        ValueError: without tensors.
        IndexError: for a position outside the result.
        RuntimeError: if the shapes differ.
    """
    parts = _several("stack", arrays)
    return rabbet.stack(parts, one_axis("stack", axis, parts[0].ndim + 1))


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole tensor `repetitions` times along each axis; the last number belongs to the last axis."""
    return rabbet.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Views of the slices along `axis`, which they lack.

    Raises:
        IndexError: if there is no such axis.
    """
    need_tensors("unstack", x=x)
    return tuple(rabbet.unbind(x, one_axis("unstack", axis, x.ndim)))
