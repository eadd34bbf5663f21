"""Decompositions of products: einsum, tensordot, Kronecker products, covariance."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from .._functions import broadcast_shapes

_ops = _C.op


def kron(input: Tensor, other: Tensor) -> Tensor:
    ndim = max(input.ndim, other.ndim)
    a = input.reshape([1] * (ndim - input.ndim) + list(input.shape))
    b = other.reshape([1] * (ndim - other.ndim) + list(other.shape))
    shape = [s * t for s, t in zip(a.shape, b.shape, strict=True)]
    if ndim > 1 and 1 < b.shape[-1] < _SHORT_ROW and min(_rows(a), _rows(b)) > _FEW_ROWS:
        # Short rows make slow loops: the factors have rows as long as the result's.
        a = a.unsqueeze(-1).expand([*a.shape, b.shape[-1]])
        b = b.unsqueeze(-2).expand([*b.shape[:-1], *a.shape[-2:]])
        a, b = a.flatten(-2), b.flatten(-2)
        ndim -= 1
    left = a.reshape([s for size in a.shape[:ndim] for s in (size, 1)] + list(a.shape[ndim:]))
    right = b.reshape([s for size in b.shape[:ndim] for s in (1, size)] + list(b.shape[ndim:]))
    return (left * right).reshape(shape)


_SHORT_ROW = 64
_FEW_ROWS = 4


def _rows(t: Tensor) -> int:
    return math.prod(t.shape[:-1])


def tensordot(a: Tensor, b: Tensor, dims_a: Sequence[int], dims_b: Sequence[int]) -> Tensor:
    if len(dims_a) != len(dims_b):
        raise _C.ArgumentError(
            f"tensordot: both lists of dimensions must be of one length, got {list(dims_a)} and {list(dims_b)}"
        )
    if a.dtype is not b.dtype:
        raise _C.DTypeError(
            f"tensordot: expected tensors of one dtype, got {a.dtype} and {b.dtype}"
        )
    left, right = (_wrapped(t, dims) for t, dims in ((a, dims_a), (b, dims_b)))
    for i, j in zip(left, right, strict=True):
        if a.size(i) == b.size(j):
            continue
        if 1 not in (a.size(i), b.size(j)):
            raise _C.ArgumentError(
                f"tensordot: contracted sizes differ: {a.size(i)} in dim {i} of a, {b.size(j)} in dim {j} of b"
            )
        if a.size(i) == 1:  # a size of 1 broadcasts
            b = b.sum(j, True, dtype=b.dtype)
        else:
            a = a.sum(i, True, dtype=a.dtype)
    keep_a = [d for d in range(a.ndim) if d not in left]
    keep_b = [d for d in range(b.ndim) if d not in right]
    inner = math.prod(a.size(d) for d in left)
    shape = [a.size(d) for d in keep_a] + [b.size(d) for d in keep_b]
    rows = a.permute(keep_a + left).reshape(math.prod(a.size(d) for d in keep_a), inner)
    columns = b.permute(right + keep_b).reshape(inner, math.prod(b.size(d) for d in keep_b))
    return (rows @ columns).reshape(shape)


def _wrapped(t: Tensor, dims: Sequence[int]) -> list[int]:
    wrapped = []
    for d in dims:
        if not -t.ndim <= d < t.ndim:
            raise _C.OutOfRangeError(
                f"tensordot: dim {d} is out of range for a tensor of {t.ndim} dimensions"
            )
        if d % t.ndim in wrapped:
            raise _C.ArgumentError(f"tensordot: dim {d} appears twice in {list(dims)}")
        wrapped.append(d % t.ndim)
    return wrapped


def cov(
    input: Tensor, *, correction: int, fweights: Tensor | None, aweights: Tensor | None
) -> Tensor:
    if input.ndim > 2:
        raise _C.ArgumentError(
            f"cov: expected at most 2 dimensions, got shape {tuple(input.shape)}"
        )
    if input.dtype is _C.bool:
        raise _C.DTypeError("cov: bool is not supported")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    n = x.size(1)
    weight = _observation_weights(fweights, aweights, n, input)
    total: Any = n if weight is None else weight.sum()
    mean = x.mean(1, True) if weight is None and x.is_floating_point() else None
    if mean is None:
        x = x if x.is_floating_point() or x.is_complex() else x.to(_C.get_default_dtype())
        mean = (x if weight is None else x * weight).sum(1, True) / total
    freedom: Any = total - correction
    if aweights is not None and correction and weight is not None:
        freedom = total - correction * (weight * aweights).sum() / total
    if _seen(freedom <= 0):
        warnings.warn(
            "cov: no degrees of freedom are left: correction must be less than the number of observations",
            UserWarning,
            stacklevel=2,
        )
    freedom = freedom.clamp(min=0) if isinstance(freedom, Tensor) else max(freedom, 0)
    x = x - mean
    product = x @ (x if weight is None else x * weight).mH
    return (product / freedom).squeeze()


def _seen(condition: Any) -> bool:
    """Whether a condition on values holds; False where nobody can look, as inside vmap."""
    try:
        return bool(condition)
    except _C.StateError:
        return False


def _observation_weights(
    fweights: Tensor | None, aweights: Tensor | None, n: int, input: Tensor
) -> Tensor | None:
    """The product of both, checked; None: there are none."""
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is None:
            continue
        if w.ndim > 1 or w.numel() != n:
            raise _C.ArgumentError(
                f"cov: {name} must hold one number for each of the {n} observations, got shape {tuple(w.shape)}"
            )
        if name == "fweights" and (w.is_floating_point() or w.is_complex() or w.dtype is _C.bool):
            raise _C.DTypeError(f"cov: fweights must be integers, got {w.dtype}")
        if name == "aweights" and not w.is_floating_point():
            raise _C.DTypeError(f"cov: aweights must be floating, got {w.dtype}")
        if _seen((w < 0).any()):
            raise _C.ArgumentError(f"cov: {name} must not be negative")
    if fweights is None or aweights is None:
        return aweights if fweights is None else fweights
    return fweights * aweights


# ---- einsum


def _parse_einsum(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[Any]], list[Any]]:
    """Labels of each operand and of the result; the dimensions of an ellipsis get numbers as labels."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise _C.ArgumentError(
            f"einsum: the equation '{equation}' has {len(terms)} operands, got {len(tensors)} tensors"
        )
    labels = []
    for term, t in zip(terms, tensors, strict=True):
        before, dots, after = term.partition("...")
        spare = t.ndim - len(before) - len(after)
        if spare < 0 or (spare > 0 and not dots):
            raise _C.ArgumentError(
                f"einsum: the operand '{term}' does not fit a tensor of {t.ndim} dimensions"
            )
        for label in before + after:
            if not label.isalpha():
                raise _C.ArgumentError(
                    f"einsum: a label must be a letter, got {label!r} in '{equation}'"
                )
        labels.append([*before, *range(-spare, 0), *after])
    ellipsis = sorted({x for row in labels for x in row if isinstance(x, int)})
    if arrow:
        before, dots, after = right.partition("...")
        out: list[Any] = [*before, *(ellipsis if dots else []), *after]
    else:
        flat = [x for row in labels for x in row if isinstance(x, str)]
        out = [*ellipsis, *sorted(x for x in set(flat) if flat.count(x) == 1)]
    unknown = [x for x in out if not any(x in row for row in labels)]
    if unknown or len(set(out)) != len(out):
        raise _C.ArgumentError(
            f"einsum: the result of '{equation}' repeats a label or has one that no operand has"
        )
    return labels, out


def _take_diagonals(t: Tensor, labels: list[Any]) -> tuple[Tensor, list[Any]]:
    for label in list(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if t.shape[first] != t.shape[second]:
                raise _C.ArgumentError(
                    f"einsum: subscript {label} is repeated for an operand, but the sizes "
                    f"{t.shape[first]} and {t.shape[second]} differ"
                )
            t = t.diagonal(0, first, second)
            labels = [x for i, x in enumerate(labels) if i not in (first, second)] + [label]
    return t, labels


def _aligned_product(
    a: Tensor, la: list[Any], b: Tensor, lb: list[Any], order: list[Any]
) -> tuple[Tensor, list[Any]]:
    """Elementwise product of two operands that share no label to sum over, with the labels in `order`."""
    labels = [x for x in order if x in la or x in lb]

    def aligned(t: Tensor, own: list[Any]) -> Tensor:
        t = t.permute([own.index(x) for x in labels if x in own])
        return t[tuple(slice(None) if x in own else None for x in labels)]

    return aligned(a, la) * aligned(b, lb), labels


def _contract(
    a: Tensor, la: list[Any], b: Tensor, lb: list[Any], keep: set[Any], order: list[Any]
) -> tuple[Tensor, list[Any]]:
    """Product of two operands, summed over the labels that are not in `keep`.

    Without such labels it is an elementwise product, else one batched matrix product.
    """
    for labels, other in ((la, lb), (lb, la)):
        gone = [x for x in labels if x not in other and x not in keep]
        if gone:
            dims = [labels.index(x) for x in gone]
            if labels is la:
                a, la = a.sum(dims), [x for x in la if x not in gone]
            else:
                b, lb = b.sum(dims), [x for x in lb if x not in gone]
    shared = [x for x in la if x in lb]
    batch = [x for x in order if x in shared and x in keep]
    inner = [x for x in order if x in shared and x not in keep]
    rows, columns = ([x for x in order if x in own and x not in shared] for own in (la, lb))
    sizes: dict[Any, int] = {}
    for t, labels in ((a, la), (b, lb)):
        for d, x in enumerate(labels):
            if sizes.get(x, 1) == 1:
                sizes[x] = t.size(d)
            if t.size(d) not in (1, sizes[x]):
                raise _C.ArgumentError(
                    f"einsum: the label {x!r} has sizes {sizes[x]} and {t.size(d)}"
                )

    if not inner:
        return _aligned_product(a, la, b, lb, order)

    def arranged(t: Tensor, labels: list[Any], groups: list[list[Any]]) -> Tensor:
        t = t.permute([labels.index(x) for group in groups for x in group])
        t = t.expand([sizes[x] for group in groups for x in group])
        return t.reshape([math.prod(sizes[x] for x in group) for group in groups])

    out = arranged(a, la, [batch, rows, inner]) @ arranged(b, lb, [batch, inner, columns])
    labels = batch + rows + columns
    return out.reshape([sizes[x] for x in labels]), labels


def _columns_come_first(la: list[Any], lb: list[Any], order: list[Any]) -> bool:
    """Whether the labels that only the second operand has precede those that only the first has.

    The two operands are then exchanged, so that their product is contiguous in this order.
    """
    rows = [d for d, x in enumerate(order) if x in la and x not in lb]
    columns = [d for d, x in enumerate(order) if x in lb and x not in la]
    return bool(rows and columns) and columns[-1] < rows[0]


def einsum(equation: str, tensors: Sequence[Tensor]) -> Tensor:
    labels, out = _parse_einsum(equation, tensors)
    order = [*out, *dict.fromkeys(x for row in labels for x in row if x not in out)]
    if len(tensors) > 1 and _columns_come_first(labels[0], labels[1], order):
        tensors = [tensors[1], tensors[0], *tensors[2:]]
        labels = [labels[1], labels[0], *labels[2:]]
    current, la = _take_diagonals(tensors[0], labels[0])
    for i in range(1, len(tensors)):
        other, lb = _take_diagonals(tensors[i], labels[i])
        keep = set(out) | {x for row in labels[i + 1 :] for x in row}
        current, la = _contract(current, la, other, lb, keep, order)
    gone = [d for d, x in enumerate(la) if x not in out]
    if gone:
        current, la = current.sum(gone), [x for x in la if x in out]
    return current.permute([la.index(x) for x in out])


def cross(input: Tensor, other: Tensor, dim: int | None) -> Tensor:
    if dim is None:
        dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise _C.ArgumentError(
                f"cross: no dimension of size 3 in input, got {list(input.shape)}"
            )
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise _C.ArgumentError(
            f"cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}"
        )
    shape = broadcast_shapes(input.shape, other.shape)
    a, b = input.expand(shape), other.expand(shape)

    a0, a1, a2 = (a.select(dim, i) for i in range(3))
    b0, b1, b2 = (b.select(dim, i) for i in range(3))
    return _ops("stack")([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], dim)


def cdist(x1: Tensor, x2: Tensor, p: float, compute_mode: str | None) -> Tensor:
    d = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    # Without columns every distance is 0, including the largest of no differences.
    return d.sum(-1) if x1.shape[-1] == 0 else _ops("norm")(d, p, -1)


def cdist_backward(g: Tensor, x1: Tensor, x2: Tensor, p: float, distances: Tensor) -> Tensor:
    d = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p == 0:
        return (d * 0.0 * g.unsqueeze(-1)).sum(-2)
    if p == 1:
        return (d.sgn() * g.unsqueeze(-1)).sum(-2)
    if p == math.inf:
        largest = d.abs() >= distances.unsqueeze(-1)
        return (_ops("where")(largest, d.sgn(), 0.0) * g.unsqueeze(-1)).sum(-2)
    where = _ops("where")
    equal = distances == 0
    factor = where(equal, 0.0, g / where(equal, 1.0, distances) ** (p - 1))
    if p != 2:
        zero = d == 0
        d = where(zero, 0.0, d.sgn() * where(zero, 1.0, d.abs()) ** (p - 1))
    return (d * factor.unsqueeze(-1)).sum(-2)


def _widened(op: str, tensors: Sequence[Tensor], out_dtype: Any) -> list[Tensor]:
    """The operands of a matrix product in the dtype of its result.

    Raises:
        RuntimeError: for a wider dtype, other than float32 from 16 bits, and for one of another kind. (PyTorch refuses
            narrower ones as well.)
    """
    first = tensors[0]
    widens = out_dtype is _C.float32 and first.dtype in (_C.float16, _C.bfloat16)
    is_like = (
        out_dtype.is_floating_point == first.dtype.is_floating_point
        and out_dtype.is_complex == first.dtype.is_complex
        and out_dtype.itemsize <= first.dtype.itemsize
    )
    if not (widens or is_like):
        raise RuntimeError(
            f"{op}: out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, got {out_dtype} "
            f"for {first.dtype}"
        )
    return [x.to(out_dtype) for x in tensors]


def mm_dtype(input: Tensor, mat2: Tensor, out_dtype: Any) -> Tensor:
    return _ops("mm")(*_widened("mm", (input, mat2), out_dtype))


def bmm_dtype(input: Tensor, mat2: Tensor, out_dtype: Any) -> Tensor:
    return _ops("bmm")(*_widened("bmm", (input, mat2), out_dtype))


def addmm_dtype(
    input: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: Any, *, beta: Any, alpha: Any
) -> Tensor:
    a, b = _widened("addmm", (mat1, mat2), out_dtype)
    return _ops("addmm")(input.to(out_dtype), a, b, beta=beta, alpha=alpha)


def baddbmm_dtype(
    input: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: Any, *, beta: Any, alpha: Any
) -> Tensor:
    a, b = _widened("baddbmm", (batch1, batch2), out_dtype)
    return _ops("baddbmm")(input.to(out_dtype), a, b, beta=beta, alpha=alpha)
