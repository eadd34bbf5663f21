"""Orthogonal matrices: by reflections, as exponentials, and by Cayley's transform."""

from __future__ import annotations

import math

import rabbet
from rabbet import Tensor

_TAYLOR_ORDER = 18
_TAYLOR_RADIUS = (
    1.09  # the 1-norm up to which that order is exact in float64 (Bader, Blanes, Casas 2019)
)


def reflections(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Householder's reflections that make matrices triangular (Golub and Van Loan 2013, 5.2.2).

    Args:
        a: (..., m, n) with m >= n.

    Returns:
        `v` (..., m, n), `tau` (..., n) and `diagonal` (..., n): reflection k is I - tau[k] v[:, k] v[:, k]^H, where
        column k of `v` has zeros above a 1 in row k, and R of QR has that diagonal. `tau` is 0 where a column
        needs no reflection.
    """
    r = a.clone()
    vectors, taus, diagonal = rabbet.zeros_like(a), [], []
    for k in range(a.shape[-1]):
        x = r[..., k:, k]
        first = x[..., 0]
        done = x[..., 1:].norm(dim=-1) == 0
        phase = rabbet.where(first == 0, 1, first.sgn())
        image = rabbet.where(done, first, -phase * x.norm(dim=-1))
        v = x / rabbet.where(done, 1, first - image).unsqueeze(-1)
        v[..., 0] = 1
        tau = rabbet.where(done, 0, 2 / (v * v.conj()).sum(-1))
        r[..., k:, k:] -= _outer(tau.unsqueeze(-1) * v, v.conj().unsqueeze(-2) @ r[..., k:, k:])
        vectors[..., k:, k] = v
        taus.append(tau)
        diagonal.append(image)
    return vectors, rabbet.stack(taus, -1), rabbet.stack(diagonal, -1)


def reflected(v: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of the product of n reflections, (..., m, n) as `v`."""
    q = rabbet.eye(*v.shape[-2:], dtype=v.dtype, device=v.device)
    for k in reversed(range(v.shape[-1])):
        column = v[..., k]
        q = q - _outer(tau[..., k].unsqueeze(-1) * column, column.conj().unsqueeze(-2) @ q)
    return q


def _outer(column: Tensor, row: Tensor) -> Tensor:
    return column.unsqueeze(-1) * row


def orthonormal(a: Tensor) -> Tensor:
    """Q of A = QR with R's diagonal positive.

    Args:
        a: (..., m, n) with m >= n, of full rank.
    """
    v, tau, diagonal = reflections(a)
    return reflected(v, tau) * diagonal.sgn().unsqueeze(-2)


def exponential(a: Tensor) -> Tensor:
    """exp(A) of square matrices, by Taylor's series of a scaled matrix that is squared again."""
    norm = float(a.detach().abs().sum(-2).amax()) if a.numel() else 0.0
    halvings = max(0, math.ceil(math.log2(norm / _TAYLOR_RADIUS))) if norm > 0 else 0
    scaled = a / 2**halvings
    one = rabbet.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    result = one
    for k in range(_TAYLOR_ORDER, 0, -1):
        result = one + scaled @ result / k
    for _ in range(halvings):
        result = result @ result
    return result


def cayley(a: Tensor) -> Tensor:
    """(I - A/2)^-1 (I + A/2) of skew-Hermitian matrices."""
    one = rabbet.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return _inverse(one - a / 2) @ (one + a / 2)


def _inverse(m: Tensor) -> Tensor:
    """By blocks, without pivots: for matrices whose Hermitian part is positive definite, as all their blocks' then is."""
    n = m.shape[-1]
    if n <= 1:
        return 1 / m
    h = n // 2
    a, b, c, d = m[..., :h, :h], m[..., :h, h:], m[..., h:, :h], m[..., h:, h:]
    inverse = _inverse(a)
    left, right = c @ inverse, inverse @ b
    rest = _inverse(d - c @ right)
    upper = rabbet.cat([inverse + right @ rest @ left, -right @ rest], -1)
    return rabbet.cat([upper, rabbet.cat([-rest @ left, rest], -1)], -2)
