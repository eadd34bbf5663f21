"""Reductions of losses by number, which packages for PyTorch import."""

from __future__ import annotations

import warnings

from .functional.loss import reduction_name

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number of a reduction: 0 'none', 1 'mean', 2 'sum'."""
    return _NUMBERS[reduction_name(reduction, None, None)]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """The reduction that the two former flags mean; None counts as True."""
    average = True if size_average is None else bool(size_average)
    reduction = reduction_name("mean", average, True if reduce is None else bool(reduce))
    if emit_warning:
        warnings.warn(
            "size_average and reduce args will be deprecated, "
            f"please use reduction='{reduction}' instead.",
            stacklevel=2,
        )
    return reduction


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """The number of the reduction that the two former flags mean."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
