"""The array API standard, edition 2024.12.

It has all that `rabbet.array_api` has, with three differences: `meshgrid`, `broadcast_arrays` and the list of devices are
lists, where edition 2025.12 has tuples.
"""

from typing import Literal

import rabbet
from rabbet import array_api as _latest

from .._C import Tensor
from ._info import NamespaceInfo as _LatestInfo

globals().update((name, getattr(_latest, name)) for name in _latest.__all__)

__all__ = list(_latest.__all__)
__array_api_version__ = "2024.12"


class NamespaceInfo(_LatestInfo):
    """The result of `__array_namespace_info__`."""

    def devices(self) -> list[rabbet.device]:  # type: ignore[override]
        """The CPU, and the devices of the backends that are loaded."""
        return list(super().devices())


def __array_namespace_info__() -> NamespaceInfo:
    """The inspection object: capabilities, devices, dtypes."""
    return NamespaceInfo()


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """As `rabbet.array_api.broadcast_arrays`, but a list."""
    return list(_latest.broadcast_arrays(*arrays))


def meshgrid(*arrays: Tensor, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """As `rabbet.array_api.meshgrid`, but a list."""
    return list(_latest.meshgrid(*arrays, indexing=indexing))


def __dir__() -> list[str]:
    """The names of the standard."""
    return __all__
