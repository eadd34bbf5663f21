"""Masked tensors as arguments of the functions of `rabbet.masked`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

from .._C import Tensor
from ._ops import _input_mask
from .maskedtensor import is_masked_tensor

P = ParamSpec("P")


def combined_masks(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Let `function` take MaskedTensors: it gets their data, and the intersection of their mask and the given one."""
    signature = inspect.signature(function)
    # The argument that each mask is for.
    masks = {
        name.removesuffix("_mask") if name != "mask" else "input": name
        for name in signature.parameters
        if name.endswith("mask")
    }

    @functools.wraps(function)
    def combining(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if not any(map(is_masked_tensor, (*args, *kwargs.values()))):
            return function(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        for name, mask_name in masks.items():
            value = given.arguments[name]
            if not is_masked_tensor(value):
                continue
            data, own = value.get_data(), value.get_mask()
            mask = given.arguments.get(mask_name)
            both = own if mask is None else own & _input_mask(data, mask=mask)
            given.arguments |= {name: data, mask_name: both}
        return function(*given.args, **given.kwargs)

    return combining
