"""Tensors to and from several devices of one process, by ordinary copies."""

from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from . import _devices

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]


def _places(function: str, devices: Any) -> list[_C.device]:
    if devices is None:
        raise RuntimeError(f"{function}: devices must be given, or out")
    return [_devices.checked(f"comm.{function}", d) for d in devices]


def _exclusive(function: str, devices: Any, out: Any) -> None:
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )


def broadcast(tensor: Tensor, devices: Any = None, *, out: Any = None) -> tuple[Tensor, ...]:
    """A copy on each device; the tensor itself where it is there already.

    Args:
        devices: devices or indices, of which the first one should be the tensor's.
        out: tensors to write to, instead of `devices`.
    """
    _exclusive("broadcast", devices, out)
    if out is not None:
        for target in out:
            target.copy_(tensor)
        return tuple(out)
    return tuple(tensor.to(place) for place in _places("broadcast", devices))


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Any, buffer_size: int = 10485760
) -> list[tuple[Tensor, ...]]:
    """Copies of several tensors on each device, a tuple for each; `buffer_size` is taken for PyTorch's sake."""
    places = _places("broadcast_coalesced", devices)
    return [tuple(t.to(place) for t in tensors) for place in places]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape on several devices.

    Args:
        destination: device of the result; None: the current one.
    """
    place = _devices.checked("comm.reduce_add", destination)
    for t in inputs:
        if not t.is_cuda:
            raise AssertionError("reduce_add expects all inputs to be on GPUs")
        if t.shape != inputs[0].shape:
            raise ValueError(
                f"input has a different size: got {'x'.join(map(str, t.shape))}, "
                f"but expected {'x'.join(map(str, inputs[0].shape))}"
            )
    total = inputs[0].to(place)
    if len(inputs) == 1:
        return total
    total = total + inputs[1].to(place)
    for t in inputs[2:]:
        total += t.to(place)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """The sums of the tensors at each place of several lists; `buffer_size` is taken for PyTorch's sake."""
    return tuple(reduce_add(column, destination) for column in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Any] | None = None,
    *,
    out: Any = None,
) -> tuple[Tensor, ...]:
    """Parts of a tensor along a dimension, each on a device.

    Args:
        chunk_sizes: sizes of the parts; None: as equal as possible.
        streams: of the devices, on which the copies run; None: their current ones.
        out: tensors to write to, instead of `devices` and `chunk_sizes`.
    """
    _exclusive("scatter", devices, out)
    if out is not None:
        if chunk_sizes is not None:
            raise RuntimeError(
                f"'chunk_sizes' must not be specified when 'out' is specified, but got chunk_sizes={chunk_sizes}"
            )
        parts = tensor.split([target.shape[dim] for target in out], dim)
        for target, part in zip(out, parts, strict=True):
            target.copy_(part)
        return tuple(out)
    places = _places("scatter", devices)
    parts = (
        tensor.chunk(len(places), dim)
        if chunk_sizes is None
        else tensor.split(list(chunk_sizes), dim)
    )
    from .streams import stream as on_stream

    found = []
    for i, (part, place) in enumerate(zip(parts, places, strict=False)):
        with on_stream(streams[i] if streams else None):
            found.append(part.to(place).contiguous())
    return tuple(found)


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None
) -> Tensor:
    """Tensors of several devices joined along a dimension.

    Args:
        destination: device of the result, also "cpu" or -1 for it; None: the current one.
        out: tensor to write to, instead of `destination`.
    """
    if out is not None:
        if destination is not None:
            raise RuntimeError(
                f"'destination' must not be specified when 'out' is specified, but got destination={destination}"
            )
        joined = _C.op("cat")([t.to(out.device) for t in tensors], dim)
        return out.copy_(joined)
    on_cpu = destination == -1 or (
        isinstance(destination, (str, _C.device)) and _C.device(destination).type == "cpu"
    )
    place = _C.device("cpu") if on_cpu else _devices.checked("comm.gather", destination)
    return _C.op("cat")([t.to(place) for t in tensors], dim)
