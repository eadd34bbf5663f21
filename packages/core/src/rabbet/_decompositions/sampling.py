"""Decompositions of resizing and of sampling at points."""

import itertools
import math
from collections.abc import Sequence

from .. import _C
from .._C import Tensor
from .._functions import dense_format
from .._interpolation import KEYS, along, far, near

_op = _C.op


def _near_slope(d: Tensor) -> Tensor:
    return (3 * (KEYS + 2) * d - 2 * (KEYS + 3)) * d


def _far_slope(d: Tensor) -> Tensor:
    return (3 * KEYS * d - 10 * KEYS) * d + 8 * KEYS


def _cubic(part: Tensor) -> list[Tensor]:
    """The weights of the four neighbours of a point that lies `part` after the second one."""
    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _cubic_slopes(part: Tensor) -> list[Tensor]:
    return [
        _far_slope(part + 1),
        _near_slope(part),
        -_near_slope(1 - part),
        -_far_slope(2 - part),
    ]


# ---- resizing


def _taps(
    like: Tensor, n: int, out: int, step: float, mode: str, align_corners: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """The index, in a line of `n` elements, and the weight of each neighbour of the results."""
    device = like.device
    if mode in ("nearest", "nearest-exact"):
        # Always in float32, as in PyTorch: its rounding decides which neighbour is taken.
        places = _op("arange")(out, dtype=_C.float32, device=device)
        places = places + 0.5 if mode == "nearest-exact" else places
        scale = _op("full")([], step, dtype=_C.float32, device=device)
        return [((places * scale).floor().to(_C.int64).clamp(max=n - 1), None)]
    places = _op("arange")(out, dtype=like.dtype, device=device)
    scale = _op("full")([], step, dtype=like.dtype, device=device)
    source = places * scale if align_corners else (places + 0.5) * scale - 0.5
    if mode == "linear":
        source = source.clamp(min=0.0)
    low = source.floor()
    part = source - low
    weights = _cubic(part) if mode == "cubic" else [1 - part, part]
    first = low.to(_C.int64) - (1 if mode == "cubic" else 0)
    return [((first + k).clamp(0, n - 1), weight) for k, weight in enumerate(weights)]


def _check_steps(what: str, steps: Sequence[float], rank: int) -> None:
    if len(steps) != rank:
        raise _C.ArgumentError(f"{what}: `steps` must be {rank} floats, got {len(steps)}")


def _laid_out(x: Tensor, like: Tensor) -> Tensor:
    """`x` in the dtype and the memory format of `like`."""
    return x.to(like.dtype).contiguous(memory_format=dense_format(like))


def resample(
    input: Tensor, size: Sequence[int], steps: Sequence[float], mode: str, align_corners: bool
) -> Tensor:
    _check_steps("resample", steps, input.ndim - 2)
    x = input
    for d in reversed(range(2, input.ndim)):
        terms = []
        for index, weight in _taps(x, x.shape[d], size[d - 2], steps[d - 2], mode, align_corners):
            term = x.index_select(d, index)
            terms.append(term if weight is None else term * along(weight, d, x.ndim))
        x = _total(terms)
    return _laid_out(x, input)


def resample_dx(
    g: Tensor, shape: Sequence[int], steps: Sequence[float], mode: str, align_corners: bool
) -> Tensor:
    _check_steps("resample_dx", steps, g.ndim - 2)
    x = g
    for d in range(2, g.ndim):
        sizes = [*x.shape[:d], shape[d], *x.shape[d + 1 :]]
        total = x.new_zeros(sizes)
        for index, weight in _taps(x, shape[d], x.shape[d], steps[d - 2], mode, align_corners):
            term = x if weight is None else x * along(weight, d, x.ndim)
            total = total.index_add(d, index, term)
        x = total
    return _laid_out(x, g)


def _total(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# ---- sampling at points


def _inside(
    x: Tensor, slope: Tensor, n: int, padding_mode: str, align: bool
) -> tuple[Tensor, Tensor]:
    """Coordinates moved into the input as the padding mode asks, and their derivatives."""
    if padding_mode == "zeros":
        return x, slope
    if padding_mode == "reflection":
        low, span = (0.0, float(n - 1)) if align else (-0.5, float(n))
        if span == 0:
            return x * 0, slope * 0
        distance = (x - low).abs()
        turns = (distance.detach() / span).floor()
        odd = turns % 2 != 0
        rest = distance - turns * span
        slope = _op("where")((x < low) ^ odd, -slope, slope)
        x = _op("where")(odd, span - rest + low, rest + low)
    above, below = x > 0, x < n - 1
    slope = _op("where")(above & below, slope, 0.0)
    return _op("where")(above, _op("where")(below, x, float(n - 1)), 0.0), slope


class _Tap:
    """One neighbour of all points along one direction."""

    def __init__(self, place: Tensor, n: int, weight: Tensor, slope: Tensor) -> None:
        valid = (place >= 0) & (place <= n - 1)
        self.valid = valid
        self.index = _op("where")(valid, place, 0.0).to(_C.int64)
        self.weight = weight
        self.slope = slope


def _direction(x: Tensor, n: int, mode: str, padding_mode: str, align: bool) -> list[_Tap]:
    slope = (x * 0 + (n - 1) / 2) if align else (x * 0 + n / 2)
    x = (x + 1) * ((n - 1) / 2) if align else ((x + 1) * n - 1) / 2
    if mode != "bicubic":
        x, slope = _inside(x, slope, n, padding_mode, align)
    if mode == "nearest":
        ones = _op("ones_like")(x)
        return [_Tap(x.detach().round(), n, ones, ones * 0)]
    low = x.detach().floor()
    part = x - low
    if mode == "bilinear":
        return [_Tap(low, n, 1 - part, -slope), _Tap(low + 1, n, part, slope)]
    weights, slopes = _cubic(part), _cubic_slopes(part)
    found = []
    for k in range(4):
        place = _inside(low + (k - 1), slope, n, padding_mode, align)[0]
        found.append(_Tap(place, n, weights[k], slopes[k] * slope))
    return found


def _corners(
    sizes: Sequence[int], grid: Tensor, mode: str, padding_mode: str, align: bool
) -> list[tuple[Tensor, Tensor, tuple[_Tap, ...]]]:
    """Each neighbour of the points: its index in the flattened plane, whether it is inside, and its taps."""
    rank, points = len(sizes), [grid.shape[0], math.prod(grid.shape[1:-1])]
    taps = [
        _direction(grid.select(-1, rank - 1 - d).reshape(points), n, mode, padding_mode, align)
        for d, n in enumerate(sizes)
    ]
    found = []
    for corner in itertools.product(*taps):
        index, valid = corner[0].index, corner[0].valid
        for tap, n in zip(corner[1:], sizes[1:], strict=True):
            index = index * n + tap.index
            valid = valid & tap.valid
        found.append((_op("where")(valid, index, 0), valid, corner))
    return found


def _weight(corner: tuple[_Tap, ...], by: int | None = None) -> Tensor:
    """The product of the weights of the taps; in direction `by`, the slope replaces the weight."""
    weight = None
    for d, tap in enumerate(corner):
        factor = tap.slope if d == by else tap.weight
        weight = factor if weight is None else weight * factor
    assert weight is not None
    return weight


def _values(flat: Tensor, index: Tensor, valid: Tensor) -> Tensor:
    """The elements of the flattened planes at `index`, as (N, C, points); 0 where not `valid`."""
    batch, channels = flat.shape[:2]
    found = flat.gather(2, index.unsqueeze(1).expand([batch, channels, index.shape[1]]))
    return _op("where")(valid.unsqueeze(1), found, 0.0)


def grid_sample(
    input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
) -> Tensor:
    sizes = list(input.shape[2:])
    flat = input.reshape([*input.shape[:2], math.prod(sizes)])
    terms = [
        _values(flat, index, valid) * _weight(corner).unsqueeze(1)
        for index, valid, corner in _corners(sizes, grid, mode, padding_mode, align_corners)
    ]
    return _total(terms).reshape([*input.shape[:2], *grid.shape[1:-1]])


def grid_sample_dx(
    g: Tensor,
    grid: Tensor,
    shape: Sequence[int],
    mode: str,
    padding_mode: str,
    align_corners: bool,
) -> Tensor:
    batch, channels, *sizes = shape
    flat = g.reshape([batch, channels, math.prod(grid.shape[1:-1])])
    total = g.new_zeros([batch, channels, math.prod(sizes)])
    for index, valid, corner in _corners(sizes, grid, mode, padding_mode, align_corners):
        term = _op("where")(valid.unsqueeze(1), flat * _weight(corner).unsqueeze(1), 0.0)
        total = total.scatter_add(2, index.unsqueeze(1).expand(term.shape), term)
    return total.reshape(list(shape))


def grid_sample_dgrid(
    g: Tensor, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
) -> Tensor:
    sizes = list(input.shape[2:])
    batch, channels = input.shape[:2]
    flat = input.reshape([batch, channels, math.prod(sizes)])
    count = math.prod(grid.shape[1:-1])
    gradient = g.reshape([batch, channels, count])
    sums: list[list[Tensor]] = [[] for _ in sizes]
    for index, valid, corner in _corners(sizes, grid, mode, padding_mode, align_corners):
        shared = (_values(flat, index, valid) * gradient).sum(1)
        for d, terms in enumerate(sums):
            terms.append(shared * _weight(corner, d))
    return _op("stack")([_total(terms) for terms in reversed(sums)], -1).reshape(grid.shape)
