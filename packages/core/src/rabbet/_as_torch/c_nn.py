"""`torch._C._nn`: functions that PyTorch binds natively and shows under `torch.nn.functional`."""

from typing import Any

from .. import _C


def _parse_to(
    *args: Any,
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> tuple[Any, Any, bool, Any]:
    """The arguments of `Module.to` as (device, dtype, non_blocking, memory_format).

    Raises:
        TypeError: for what `Tensor.to` does not take.
    """
    values = list(args)
    if values and isinstance(values[0], _C.Tensor):
        other = values.pop(0)
        device, dtype = other.device, other.dtype
    elif values and isinstance(values[0], _C.dtype):
        dtype = values.pop(0)
    elif values:
        first = values.pop(0)
        device = None if first is None else _C.device(first)
        if values and (values[0] is None or isinstance(values[0], _C.dtype)):
            dtype = values.pop(0)
    if values and isinstance(values[0], bool):
        non_blocking = values.pop(0)
    if values and isinstance(values[0], bool):
        values.pop(0)  # copy, which is no part of the answer
    if values:
        raise TypeError(
            f"to() received an invalid combination of arguments: {', '.join(map(repr, args))}"
        )
    if device is not None and not isinstance(device, _C.device):
        device = _C.device(device)
    return device, dtype, non_blocking, memory_format


def __getattr__(name: str) -> Any:
    import rabbet.nn.functional as functional

    try:
        return getattr(functional, name)
    except AttributeError:
        raise AttributeError(f"torch._C._nn.{name} is not in rabbet yet", name=name) from None
