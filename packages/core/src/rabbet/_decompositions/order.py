"""Decompositions of operators that pick elements by their order.

Where an element stands is found without derivatives; the values are gathered there, which carries them.
"""

from collections.abc import Callable

from .. import _C
from .._C import Tensor

_ops = _C.op


def _need_elements(name: str, input: Tensor, dim: int) -> int:
    """The size of `dim`, which must hold something."""
    size = input.shape[dim] if input.ndim else 1
    if size == 0:
        raise _C.OutOfRangeError(
            f"{name}: expected reduction dim {dim} to have non-zero size, got shape {tuple(input.shape)}"
        )
    return size


def _picked(input: Tensor, dim: int, keepdim: bool, place: Tensor) -> tuple[Tensor, Tensor]:
    """The elements at `place`, whose size in `dim` is 1, and their indices."""
    values = _ops("gather")(input, dim, place)
    if keepdim or input.ndim == 0:
        return values, place
    return values.squeeze(dim), place.squeeze(dim)


def _middle(name: str, input: Tensor, dim: int, skip_nan: bool) -> Tensor:
    """Where the median along `dim` stands."""
    size = _need_elements(name, input, dim)
    x = input.detach()
    order = x.argsort(dim, stable=True)
    count = x.isnan().sum(dim, keepdim=True)
    middle = ((size - 1 - count).clamp(min=0) if skip_nan else count * 0 + (size - 1)) // 2
    if not skip_nan:  # NaNs come last: the first of them
        middle = _ops("where")(count > 0, size - count, middle)
    return _ops("gather")(order, dim, middle)


def median_along(input: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return _picked(input, dim, keepdim, _middle("median", input, dim, False))


def nanmedian_along(input: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return _picked(input, dim, keepdim, _middle("nanmedian", input, dim, True))


def kthvalue(input: Tensor, k: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    size = _need_elements("kthvalue", input, dim)
    if not 1 <= k <= size:
        raise _C.ArgumentError(
            f"kthvalue: selected number k out of range for dimension {dim}: expected 1 to {size}, got {k}"
        )
    order = input.detach().argsort(dim, stable=True)
    place = order.narrow(dim, k - 1, 1).contiguous() if input.ndim else order
    return _picked(input, dim, keepdim, place)


def mode(input: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    size = _need_elements("mode", input, dim)
    x = input.detach().movedim(dim, -1) if input.ndim else input.detach().reshape([1])
    values, order = x.sort(-1, stable=True)
    at = _ops("arange")(size, device=input.device)
    starts = _ops("where")(values[..., 1:] != values[..., :-1], at[1:], 0)
    starts = _ops("cat")([_ops("zeros_like")(order[..., :1]), starts], -1)
    length = at - _ops("cummax")(starts, -1)[0]  # how many equal ones stand before
    place = order.gather(-1, length.argmax(-1, keepdim=True))
    place = place.movedim(-1, dim).contiguous() if input.ndim else place.reshape([])
    return _picked(input, dim, keepdim, place)


def _interpolated(ranks: Tensor, values: Tensor, interpolation: str) -> Tensor:
    """The elements of ascending `values` (*, n) at `ranks` (*, k), which need not be whole."""
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation]
        return values.gather(-1, _ops(rounded)(ranks).long())
    low = ranks.long()
    weight = _ops("full_like")(ranks, 0.5) if interpolation == "midpoint" else ranks - low
    below, above = values.gather(-1, low), values.gather(-1, ranks.ceil().long())
    return _ops("lerp")(below, above, weight)


def _quantile(
    name: str, input: Tensor, q: Tensor, dim: int | None, keepdim: bool, interpolation: str
) -> Tensor:
    if input.numel() == 0:
        raise _C.ArgumentError(
            f"{name}: input tensor must be non-empty, got shape {tuple(input.shape)}"
        )
    if q.ndim > 1:
        raise _C.ArgumentError(
            f"{name}: q must be a scalar or 1D tensor, got shape {tuple(q.shape)}"
        )
    if input.dtype not in (_C.float32, _C.float64):
        raise _C.ArgumentError(
            f"{name}: input tensor must be either float or double dtype, got {input.dtype}"
        )
    if q.dtype is not input.dtype:
        raise _C.ArgumentError(
            f"{name}: q tensor must be same dtype as the input tensor, {input.dtype}, got {q.dtype}"
        )
    if q.device != input.device:
        raise _C.ArgumentError(
            f"{name}: q tensor must be on the same device as the input tensor, {input.device}, got {q.device}"
        )
    _ops("assert_all")((q >= 0) & (q <= 1), f"{name}: q values must be in the range [0, 1]")
    along = input.ndim - 1 if dim is None else dim
    if dim is None or input.ndim == 0:
        x = input.reshape([-1])
    elif keepdim:
        x = input.unsqueeze(-1).transpose(along, -1)
    else:
        x = input.movedim(along, -1)
    values = x.sort(-1)[0]
    nans = x.isnan()
    last = x.shape[-1] - 1
    if name == "nanquantile":
        ranks = q.reshape([-1]) * (last - nans.sum(-1, keepdim=True)).clamp(min=0)
    else:
        ranks = _ops("where")(nans.any(-1, keepdim=True), last, q.reshape([-1]) * last)
    out = _interpolated(ranks.to(x.dtype), values, interpolation)
    if keepdim and dim is None:
        out = out.reshape([1] * input.ndim + [-1])
    return out.unsqueeze(0).transpose(0, -1).squeeze(-1) if q.ndim else out.squeeze(-1)


def quantile(
    input: Tensor, q: Tensor, dim: int | None, keepdim: bool, *, interpolation: str
) -> Tensor:
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


def nanquantile(
    input: Tensor, q: Tensor, dim: int | None, keepdim: bool, *, interpolation: str
) -> Tensor:
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


def _number(name: str, q: float, input: Tensor) -> Tensor:
    if not 0 <= q <= 1:
        raise _C.ArgumentError(f"{name}: q must be in the range [0, 1] but got {q}")
    return _ops("full")([], q, dtype=input.dtype, device=input.device)


def quantile_number(
    input: Tensor, q: float, dim: int | None, keepdim: bool, *, interpolation: str
) -> Tensor:
    part = _number("quantile", q, input)
    return _quantile("quantile", input, part, dim, keepdim, interpolation)


def nanquantile_number(
    input: Tensor, q: float, dim: int | None, keepdim: bool, *, interpolation: str
) -> Tensor:
    part = _number("nanquantile", q, input)
    return _quantile("nanquantile", input, part, dim, keepdim, interpolation)


def _extremes(
    input: Tensor, dim: int, better: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Running extremes: after the step of length s each element knows the 2 * s elements up to itself."""
    if input.ndim == 0:
        return input.clone(), _ops("zeros_like")(input, dtype=_C.int64)
    x = input.detach()
    size = input.shape[dim]
    places = _ops("arange")(size, device=input.device)
    shape = [1] * input.ndim
    shape[dim] = size
    places = places.reshape(shape).expand(input.shape)
    step = 1
    while step < size:
        before, at = x.narrow(dim, 0, size - step), x.narrow(dim, step, size - step)
        stays = better(at, before) | at.isnan()
        chosen = [
            _ops("where")(stays, t.narrow(dim, step, size - step), t.narrow(dim, 0, size - step))
            for t in (x, places)
        ]
        x, places = (
            _ops("cat")([t.narrow(dim, 0, step), c], dim)
            for t, c in zip((x, places), chosen, strict=True)
        )
        step *= 2
    places = places.contiguous()
    return _ops("gather")(input, dim, places), places


def cummax(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _extremes(input, dim, _ops("ge"))


def cummin(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _extremes(input, dim, _ops("le"))


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Sums by doubling: after the step of length s each element is the sum of the 2 * s up to itself."""
    if input.ndim == 0:
        return input.clone()
    size = input.shape[dim]
    x, step = input.clone(), 1
    while step < size:
        before, at = x.narrow(dim, 0, size - step), x.narrow(dim, step, size - step)
        x = _ops("cat")([x.narrow(dim, 0, step), _ops("logaddexp")(at, before)], dim)
        step *= 2
    return x
