"""The standard's inspection functions: capabilities, devices, dtypes."""

from typing import Any

import rabbet

from .. import _C
from ._arguments import Device, DType
from ._dtypes import NAMES, isdtype

_MAX_DIMENSIONS = 32


def _checked(function: str, device: Device) -> None:
    """Check that there is such a device.

    Raises:
        RuntimeError: if there is none.
    """
    if device is not None:
        rabbet.empty((0,), device=device)


class NamespaceInfo:
    """The result of `__array_namespace_info__`.

    Example:
        >>> x.__array_namespace__().__array_namespace_info__().default_dtypes()["integral"]
        rabbet.int64
    """

    def capabilities(self) -> dict[str, Any]:
        """Boolean indices and results whose shapes depend on values work; tensors have at most 32 dimensions."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MAX_DIMENSIONS,
        }

    def default_device(self) -> _C.device:
        """The device where tensors are made unless one is given; see `rabbet.set_default_device`."""
        return rabbet.get_default_device()

    def default_dtypes(self, *, device: Device = None) -> dict[str, DType]:
        """The dtypes of tensors that are made without one.

        Raises:
            RuntimeError: if there is no such device.
        """
        _checked("default_dtypes", device)
        real = rabbet.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": rabbet.int64,
            "indexing": rabbet.int64,
        }

    def dtypes(
        self, *, device: Device = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The standard's dtypes, of a kind as `isdtype` takes it or all, by name.

        Raises:
            ValueError: for a kind of another name.
            RuntimeError: if there is no such device.
        """
        _checked("dtypes", device)
        found = {name: getattr(rabbet, name) for name in NAMES}
        return {n: dtype for n, dtype in found.items() if kind is None or isdtype(dtype, kind)}

    def devices(self) -> tuple[_C.device, ...]:
        """The CPU, and the devices of the backends that are loaded."""
        found = [_C.device("cpu")]
        for backend in _C.backends():
            if backend["name"] not in ("cpu", "meta"):
                found += [_C.device(backend["name"], i) for i in range(int(backend["devices"]))]
        return tuple(found)
