"""Functions beside the op records: creation from data, joins, comparisons, einsum and other compositions."""

import builtins
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _C
from ._C import Size, Tensor

_ops: Callable[[str], Any] = _C.op

__all__ = [
    "allclose", "as_tensor", "asarray", "atleast_1d", "atleast_2d", "atleast_3d", "bincount", "block_diag",
    "broadcast_shapes", "broadcast_tensors", "broadcast_to", "can_cast", "cartesian_prod", "clamp_max", "clamp_min",
    "column_stack", "cov", "diag", "diff", "dsplit", "dstack", "einsum", "empty_strided", "equal",
    "finfo", "from_dlpack", "from_numpy", "frombuffer", "get_default_dtype", "get_num_threads", "hsplit", "hstack",
    "iinfo", "is_complex", "is_floating_point", "is_tensor", "isclose", "kron", "logspace", "meshgrid", "nan_to_num",
    "norm", "numel", "promote_types", "result_type", "scalar_tensor", "set_default_dtype", "set_num_threads",
    "set_printoptions", "std_mean", "tensor", "tensor_split", "tensordot", "tile", "trace", "unique", "var_mean",
    "vsplit", "vstack",
]  # fmt: skip

get_default_dtype = _C.get_default_dtype
set_default_dtype = _C.set_default_dtype
get_num_threads = _C.get_num_threads
set_num_threads = _C.set_num_threads
promote_types = _C.promote_types
can_cast = _C.can_cast
from_dlpack = _C.from_dlpack


def set_printoptions(**options: Any) -> None:
    """Set how tensors are printed; see rabbet._printing.set_printoptions."""
    from ._printing import set_printoptions as set_options

    set_options(**options)


# ---- creation from data


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Copy `data` (numbers, nested sequences, arrays, tensors) into a new tensor.

    Raises:
        ValueError: if nested sequences differ in length.
        TypeError: for elements that are no numbers.
    """
    if pin_memory:
        raise _C.NotImplementedForError(
            "tensor: pin_memory=True needs a backend with pinned memory"
        )
    made = _C.tensor(data, dtype, device)
    if requires_grad:
        made.requires_grad = True
    return made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return `data` as a tensor, without copying where dtype and device allow it."""
    return _C.as_tensor(data, dtype, device)


def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: builtins.bool | None = None
) -> Tensor:
    """Return `obj` as a tensor; copy=True always copies, copy=False raises if a copy is needed."""
    if copy:
        return _C.tensor(obj, dtype, device)
    made = _C.as_tensor(obj, dtype, device)
    if copy is False and made is not obj and not hasattr(obj, "__array_interface__"):
        raise ValueError("asarray: copy=False, but this data cannot be shared")
    return made


def from_numpy(array: Any) -> Tensor:
    """Share the memory of a NumPy array; writes are seen on both sides.

    Raises:
        TypeError: if it is no array, or its dtype has no counterpart.
    """
    if not hasattr(array, "__array_interface__"):
        raise TypeError(f"from_numpy: expected a numpy.ndarray, got {type(array).__name__}")
    return _C.from_buffer(array)


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0) -> Tensor:
    """Read a 1-d tensor out of an object with the buffer protocol, sharing its memory; `offset` in bytes."""
    return _C.from_buffer(buffer, dtype, None, offset, count)


def scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A 0-d tensor of the default dtype."""
    return _C.tensor(value, dtype or get_default_dtype(), device)


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None
) -> Tensor:
    """Uninitialised, with the given strides in elements."""
    extent = 1 + sum((s - 1) * t for s, t in zip(size, stride, strict=True)) if all(size) else 0
    return _ops("empty")(extent, dtype=dtype, device=device).as_strided(size, stride)


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """`steps` powers of `base` with exponents from `start` to `end`."""
    exponents = _ops("linspace")(start, end, steps, dtype=dtype, device=device)
    return _ops("exp")(exponents * math.log(base))


# ---- queries


def is_tensor(obj: Any) -> builtins.bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> builtins.bool:
    """Whether the dtype is floating."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> builtins.bool:
    """Whether the dtype is complex."""
    return input.is_complex()


def numel(input: Tensor) -> int:
    """Number of elements."""
    return input.numel()


def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype that an operator on the two would compute in."""

    def probe(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return _ops("empty")([1] * x.ndim, dtype=x.dtype, device="meta")

    a, b = probe(tensor1), probe(tensor2)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = _C.tensor(a, None, "meta")
    return (a + b).dtype if isinstance(a, Tensor) else (b + a).dtype


class _TypeInfo:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v}" for k, v in self.__dict__.items())
        return f"{type(self).__name__}({inner})"


class finfo(_TypeInfo):
    """Limits of a floating dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    max: builtins.float
    min: builtins.float
    eps: builtins.float
    tiny: builtins.float

    def __init__(self, type: Any = None) -> None:
        dtype = type or get_default_dtype()
        limits = _C.float_limits(dtype) if isinstance(dtype, _C.dtype) else None
        if limits is None:
            raise TypeError(f"finfo: expected a floating dtype, got {dtype}; use iinfo")
        bits, eps, largest, tiny, name = limits
        super().__init__(
            bits=bits,
            eps=eps,
            max=largest,
            min=-largest,
            tiny=tiny,
            smallest_normal=tiny,
            resolution=10.0 ** -int(-math.log10(eps)),
            dtype=name,
        )


class iinfo(_TypeInfo):
    """Limits of an integer dtype: bits, max, min."""

    max: builtins.int
    min: builtins.int

    def __init__(self, type: Any) -> None:
        name = str(type)[7:]
        if not name.lstrip("u").startswith("int"):
            raise TypeError(f"iinfo: expected an integer dtype, got {type}; use finfo")
        bits = int(name.lstrip("uint"))
        unsigned = name.startswith("u")
        super().__init__(
            bits=bits,
            max=2 ** (bits if unsigned else bits - 1) - 1,
            min=0 if unsigned else -(2 ** (bits - 1)),
            dtype=name,
        )


def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: builtins.bool = False,
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, element by element."""
    close = (input == other) | (
        ((input - other).abs() <= atol + rtol * other.abs())
        & _ops("isfinite")(other)
        & _ops("isfinite")(input)
    )
    return close | (_ops("isnan")(input) & _ops("isnan")(other)) if equal_nan else close


def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: builtins.bool = False,
) -> builtins.bool:
    """Whether isclose() holds everywhere."""
    return builtins.bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether shape and elements are the same."""
    return input.shape == other.shape and builtins.bool((input == other).all())


# ---- shapes and joins


def broadcast_shapes(*shapes: Sequence[int] | int) -> Size:
    """The shape to which all of `shapes` broadcast."""
    given = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    out: list[int] = []
    for i in range(1, max((len(s) for s in given), default=0) + 1):
        sizes = {s[-i] for s in given if len(s) >= i} - {1}
        if len(sizes) > 1:
            raise RuntimeError(f"broadcast_shapes: {', '.join(map(str, given))} do not broadcast")
        out.append(sizes.pop() if sizes else 1)
    return Size(reversed(out))


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """`input` expanded to `size`."""
    return input.expand(size)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


def _each(tensors: tuple[Any, ...]) -> Sequence[Tensor]:
    return tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors


def _at_least(x: Tensor, ndim: int) -> Tensor:
    if ndim >= 1 and x.ndim == 0:
        x = x.reshape(1)
    if ndim >= 2 and x.ndim == 1:
        x = x.unsqueeze(0)
    if ndim >= 3 and x.ndim == 2:
        x = x.unsqueeze(-1)
    return x


def _at_least_all(tensors: tuple[Any, ...], ndim: int) -> Any:
    made = tuple(_at_least(t, ndim) for t in _each(tensors))
    return made[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else made


def atleast_1d(*tensors: Any) -> Any:
    """With at least 1 dimension."""
    return _at_least_all(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """With at least 2 dimensions."""
    return _at_least_all(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """With at least 3 dimensions."""
    return _at_least_all(tensors, 3)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1 (0 for 1-d tensors)."""
    parts = [_at_least(t, 1) for t in tensors]
    return _ops("cat")(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 0; 1-d tensors are rows."""
    return _ops("cat")([_at_least(t, 2) for t in tensors], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 2."""
    return _ops("cat")([_at_least(t, 3) for t in tensors], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined as columns; 1-d tensors are columns."""
    return hstack([t.reshape(-1, 1) if t.ndim <= 1 else t for t in tensors])


_MOST_SECTIONS = 1 << 24  # as of split() and chunk() in core


def tensor_split(
    input: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Split into sections as equal as possible, or before the given indices."""
    n = input.size(dim)
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise RuntimeError(
                f"tensor_split: the number of sections must be positive, got {sections}"
            )
        if sections > _MOST_SECTIONS:
            raise RuntimeError(
                f"tensor_split: {sections} sections are too many, at most {_MOST_SECTIONS} can be made"
            )
        sizes = [n // sections + (i < n % sections) for i in range(sections)]
        return input.split(sizes, dim)
    bounds = [0, *(max(0, min(n, i + n if i < 0 else i)) for i in indices_or_sections), n]
    return tuple(input.narrow(dim, a, max(b - a, 0)) for a, b in itertools.pairwise(bounds))


def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """tensor_split along dimension 1 (0 for 1-d tensors)."""
    return tensor_split(input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """tensor_split along dimension 0."""
    return tensor_split(input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """tensor_split along dimension 2."""
    return tensor_split(input, indices_or_sections, 2)


def tile(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Repeated `dims` times; missing leading entries count as 1."""
    return input.repeat([1] * (input.ndim - len(dims)) + list(dims))


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors; indexing 'ij' or 'xy'."""
    axes = list(_each(tensors))
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    swap = indexing == "xy" and len(axes) >= 2
    if swap:
        axes[:2] = axes[1::-1]
    shape = [a.numel() for a in axes]
    grids = [
        a.reshape([-1 if j == i else 1 for j in range(len(axes))]).expand(shape)
        for i, a in enumerate(axes)
    ]
    if swap:
        grids = [g.transpose(0, 1) for g in grids]
        grids[:2] = grids[1::-1]
    return tuple(grids)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of 1-d tensors, one row each."""
    if len(tensors) == 1:
        return tensors[0]
    return _ops("stack")([g.reshape(-1) for g in meshgrid(*tensors)], -1)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices on its diagonal."""
    parts = [_at_least(t, 2) for t in tensors]
    out = _ops("zeros")(
        sum(p.size(0) for p in parts), sum(p.size(1) for p in parts), dtype=parts[0].dtype
    )
    row = col = 0
    for p in parts:
        out[row : row + p.size(0), col : col + p.size(1)] = p
        row, col = row + p.size(0), col + p.size(1)
    return out


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with a 1-d input on its diagonal."""
    if input.ndim == 2:
        return input.diagonal(diagonal).clone()
    if input.ndim != 1:
        raise RuntimeError(f"diag: expected 1 or 2 dimensions, got {input.ndim}")
    n = input.numel() + abs(diagonal)
    empty = _ops("zeros")(n, n, dtype=input.dtype, device=input.device)
    return _ops("diagonal_scatter")(empty, input, diagonal)


# ---- arithmetic


def clamp_min(input: Tensor, min: Any) -> Tensor:
    """`input` limited from below."""
    return _ops("clamp")(input, min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    """`input` limited from above."""
    return _ops("clamp")(input, max=max)


def nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and infinities replaced, the latter by the dtype's limits by default."""
    if not input.is_floating_point():
        return input.clone()
    limits = finfo(input.dtype)
    where = _ops("where")
    out = where(_ops("isnan")(input), nan, input)
    out = where(input == math.inf, limits.max if posinf is None else posinf, out)
    return where(input == -math.inf, limits.min if neginf is None else neginf, out)


def std_mean(
    input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: builtins.bool = False
) -> tuple[Tensor, Tensor]:
    """(std, mean) over `dim`."""
    return (
        _ops("std")(input, dim, correction=correction, keepdim=keepdim),
        input.mean(dim, keepdim),
    )


def var_mean(
    input: Tensor, dim: Any = None, *, correction: int = 1, keepdim: builtins.bool = False
) -> tuple[Tensor, Tensor]:
    """(var, mean) over `dim`."""
    return (
        _ops("var")(input, dim, correction=correction, keepdim=keepdim),
        input.mean(dim, keepdim),
    )


def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: builtins.bool = False,
    dtype: Any = None,
) -> Tensor:
    """Vector norm of order `p` over `dim` (all by default): a number, inf, -inf or 'fro' (2)."""
    x = input if dtype is None else input.to(dtype)
    if not (x.is_floating_point() or x.is_complex()):
        raise _C.DTypeError(f"norm: expected a floating or complex dtype, got {x.dtype}")
    order = 2.0 if p in ("fro", None) else float(p)
    size = x.abs()
    if order == math.inf:
        return size.amax(dim, keepdim)
    if order == -math.inf:
        return size.amin(dim, keepdim)
    if order == 0:
        return (size != 0).to(size.dtype).sum(dim, keepdim)
    if order == 1:
        return size.sum(dim, keepdim)
    if order == 2:
        return (size * size).sum(dim, keepdim).sqrt()
    return (size**order).sum(dim, keepdim) ** (1 / order)


def trace(input: Tensor) -> Tensor:
    """Sum of a matrix's diagonal."""
    if input.ndim != 2:
        raise _C.ArgumentError(f"trace: expected a matrix, got shape {tuple(input.shape)}")
    return input.diagonal().sum()


def diff(input: Tensor, n: int = 1, dim: int = -1) -> Tensor:
    """Differences of neighbours along `dim`, taken `n` times."""
    for _ in range(n):
        length = input.size(dim) - 1
        input = input.narrow(dim, 1, length) - input.narrow(dim, 0, length)
    return input


def cov(input: Tensor, *, correction: int = 1) -> Tensor:
    """Covariance matrix of variables in rows."""
    x = _at_least(input, 2)
    centred = x - x.mean(1, True)
    return (
        (centred @ centred.mH / (x.size(1) - correction)).squeeze()
        if input.ndim < 2
        else (centred @ centred.mH / (x.size(1) - correction))
    )


def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product."""
    ndim = max(input.ndim, other.ndim)
    a = input.reshape([1] * (ndim - input.ndim) + list(input.shape))
    b = other.reshape([1] * (ndim - other.ndim) + list(other.shape))
    left = a.reshape([s for size in a.shape for s in (size, 1)])
    right = b.reshape([s for size in b.shape for s in (1, size)])
    return (left * right).reshape([s * t for s, t in zip(a.shape, b.shape, strict=True)])


def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sum of products over `dims`: a number of last/first dimensions, or two lists of dimensions."""
    if isinstance(dims, int):
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    left, right = [d % a.ndim for d in left], [d % b.ndim for d in right]
    if [a.size(d) for d in left] != [b.size(d) for d in right]:
        raise RuntimeError(
            f"tensordot: sizes differ: {tuple(a.shape)} over {left}, {tuple(b.shape)} over {right}"
        )
    keep_a = [d for d in range(a.ndim) if d not in left]
    keep_b = [d for d in range(b.ndim) if d not in right]
    inner = math.prod(a.size(d) for d in left)
    rows = a.permute(keep_a + left).reshape(-1, inner) if a.ndim else a.reshape(1, 1)
    columns = b.permute(right + keep_b).reshape(inner, -1) if b.ndim else b.reshape(1, 1)
    return (rows @ columns).reshape([a.size(d) for d in keep_a] + [b.size(d) for d in keep_b])


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer occurs in a 1-d tensor, or the sum of its weights."""
    if input.ndim != 1 or (input.numel() and int(input.min()) < 0):
        raise RuntimeError("bincount: expected a 1-d tensor of non-negative integers")
    size = max(int(input.max()) + 1 if input.numel() else 0, minlength)
    values = _ops("ones_like")(input) if weights is None else weights
    return _ops("zeros")(size, dtype=values.dtype).index_add(0, input.long(), values)


def unique(
    input: Tensor,
    sorted: builtins.bool = True,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements in ascending order, with inverse indices and counts if asked for."""
    if dim is not None:
        raise _C.NotImplementedForError("unique: dim= is not supported; pass a 1-d tensor")
    flat = input.reshape(-1)
    values, order = flat.sort(stable=True)
    fresh = _ops("ones_like")(values, dtype=_C.bool)
    if values.numel() > 1:
        fresh[1:] = values[1:] != values[:-1]
    made: list[Tensor] = [values[fresh]]
    group = fresh.long().cumsum(0) - 1
    if return_inverse:
        inverse = _ops("empty_like")(order)
        inverse[order] = group
        made.append(inverse.reshape(input.shape))
    if return_counts:
        made.append(bincount(group, minlength=made[0].numel()))
    return made[0] if len(made) == 1 else tuple(made)


# ---- einsum


def _parse_einsum(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[Any]], list[Any]]:
    """Labels of each operand and of the result; the dimensions of an ellipsis get numbers as labels."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise RuntimeError(
            f"einsum: the equation '{equation}' has {len(terms)} operands, got {len(tensors)} tensors"
        )
    labels = []
    for term, t in zip(terms, tensors, strict=True):
        before, dots, after = term.partition("...")
        spare = t.ndim - len(before) - len(after)
        if spare < 0 or (spare > 0 and not dots):
            raise RuntimeError(
                f"einsum: the operand '{term}' does not fit a tensor of {t.ndim} dimensions"
            )
        for label in before + after:
            if not label.isalpha():
                raise RuntimeError(
                    f"einsum: a label must be a letter, got {label!r} in '{equation}'"
                )
        labels.append([*before, *range(-spare, 0), *after])
    ellipsis = builtins.sorted({x for row in labels for x in row if isinstance(x, int)})
    if arrow:
        before, dots, after = right.partition("...")
        out: list[Any] = [*before, *(ellipsis if dots else []), *after]
    else:
        flat = [x for row in labels for x in row if isinstance(x, str)]
        out = [*ellipsis, *builtins.sorted(x for x in set(flat) if flat.count(x) == 1)]
    unknown = [x for x in out if not any(x in row for row in labels)]
    if unknown or len(set(out)) != len(out):
        raise RuntimeError(
            f"einsum: the result of '{equation}' repeats a label or has one that no operand has"
        )
    return labels, out


def _take_diagonals(t: Tensor, labels: list[Any]) -> tuple[Tensor, list[Any]]:
    for label in list(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            t = t.diagonal(0, first, second)
            labels = [x for i, x in enumerate(labels) if i not in (first, second)] + [label]
    return t, labels


def _contract(
    a: Tensor, la: list[Any], b: Tensor, lb: list[Any], keep: set[Any]
) -> tuple[Tensor, list[Any]]:
    """Product of two operands, summed over what nobody needs any more, as one batched matrix product."""
    for labels, other in ((la, lb), (lb, la)):
        gone = [x for x in labels if x not in other and x not in keep]
        if gone:
            dims = [labels.index(x) for x in gone]
            if labels is la:
                a, la = a.sum(dims), [x for x in la if x not in gone]
            else:
                b, lb = b.sum(dims), [x for x in lb if x not in gone]
    shared = [x for x in la if x in lb]
    batch = [x for x in shared if x in keep]
    inner = [x for x in shared if x not in keep]
    rows, columns = [x for x in la if x not in shared], [x for x in lb if x not in shared]
    sizes: dict[Any, int] = {}
    for t, labels in ((a, la), (b, lb)):
        for d, x in enumerate(labels):
            sizes[x] = max(sizes.get(x, 1), t.size(d))
            if t.size(d) not in (1, sizes[x]):
                raise RuntimeError(f"einsum: the label {x!r} has sizes {sizes[x]} and {t.size(d)}")

    def arranged(t: Tensor, labels: list[Any], order: list[list[Any]]) -> Tensor:
        t = t.permute([labels.index(x) for group in order for x in group])
        t = t.expand([sizes[x] for group in order for x in group])
        return t.reshape([math.prod(sizes[x] for x in group) for group in order])

    out = arranged(a, la, [batch, rows, inner]) @ arranged(b, lb, [batch, inner, columns])
    labels = batch + rows + columns
    return out.reshape([sizes[x] for x in labels]), labels


def einsum(equation: str, *operands: Any) -> Tensor:
    """Sum of products in Einstein's notation, e.g. einsum('bij,bjk->bik', a, b); operands left to right.

    Raises:
        RuntimeError: if the equation does not fit the operands.
    """
    tensors = list(_each(operands))
    labels, out = _parse_einsum(equation, tensors)
    current, la = _take_diagonals(tensors[0], labels[0])
    for i in range(1, len(tensors)):
        other, lb = _take_diagonals(tensors[i], labels[i])
        keep = set(out) | {x for row in labels[i + 1 :] for x in row}
        current, la = _contract(current, la, other, lb, keep)
    gone = [d for d, x in enumerate(la) if x not in out]
    if gone:
        current, la = current.sum(gone), [x for x in la if x in out]
    return current.permute([la.index(x) for x in out])
