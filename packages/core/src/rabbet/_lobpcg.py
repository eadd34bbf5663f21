"""Extreme eigenpairs of large symmetric matrices by LOBPCG."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rabbet

from . import _C, linalg
from ._C import Tensor

__all__ = ["LOBPCG", "lobpcg"]

_TOLERANCES = {rabbet.float32: math.sqrt(1.2e-7), rabbet.float64: math.sqrt(2.23e-16)}


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Callable[[LOBPCG], None] | None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The `k` largest or smallest eigenvalues of symmetric matrices, and their vectors, by block conjugate gradients.

    Solves `A x = e B x`, where B is positive definite. A gradient for A needs distinct eigenvalues and no B; it is
    that of the symmetric part of A.

    Args:
        A: float32 or float64, (*, m, m).
        k: number of pairs; by default the columns of X, or 1.
        B: of the shape of A; the identity if None.
        X: start vectors (*, m, n), random ones if None.
        n: number of vectors that iterate, at least `k` and at most m / 3; ignored where X is given.
        iK: preconditioner (m, m), an approximation of the inverse of A.
        niter: maximum number of iterations, 1000 if None; -1 sets no limit.
        tol: residual, relative to the matrices, at which a pair has converged; the square root of the dtype's epsilon
            if None.
        largest: whether the largest eigenvalues are wanted, True if None.
        method: 'ortho' (None), which keeps an orthonormal basis (Duersch et al. 2018), or 'basic', which does not
            (Knyazev 2001) and may fail in a Cholesky factorization.
        tracker: called with the state (`LOBPCG`) after each iteration. It must copy the tensors that it keeps, and
            stops the iteration by `bvars["force_stop"] = True`.
        ortho_iparams: 'ortho_i_max' and 'ortho_j_max', the rounds of orthogonalization.
        ortho_fparams: 'ortho_tol', 'ortho_tol_drop' and 'ortho_tol_replace', its tolerances.
        ortho_bparams: 'ortho_use_drop', whether dependent directions are dropped instead of replaced.

    Returns:
        Eigenvalues (*, k) and vectors (*, m, k), the most extreme first.

    Raises:
        ValueError: for m below 3 * n, and for a backward pass through B.

    Example:
        >>> E, X = rabbet.lobpcg(rabbet.diag(rabbet.arange(1.0, 13.0)), k=2)
        >>> rabbet.allclose(E, rabbet.tensor([12.0, 11.0]), atol=1e-4)
        True
    """
    if A.requires_grad or (B is not None and B.requires_grad):
        symmetric = (A + A.mT) / 2
        other = None if B is None else (B + B.mT) / 2
    else:
        symmetric, other = A, B
    _check_matrices(A, B)
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    if k < 1 or n < 1:
        raise ValueError(f"lobpcg: expected k and n to be at least 1, got k={k} and n={n}")
    if m < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m})"
            f" is smaller than 3 x the number of requested eigenpairs (={n})"
        )
    method = "ortho" if method is None else method
    if method not in ("basic", "ortho"):
        raise ValueError(f"lobpcg: expected method 'basic' or 'ortho', got {method!r}")
    tol = _TOLERANCES[A.dtype] if tol is None else tol
    iparams = {"m": m, "n": n, "k": k, "niter": 1000 if niter is None else niter}
    fparams = {"tol": tol}
    bparams = {"largest": True if largest is None else largest}
    if method == "ortho":
        iparams |= {"ortho_i_max": 3, "ortho_j_max": 3} | (ortho_iparams or {})
        names = ("ortho_tol", "ortho_tol_drop", "ortho_tol_replace")
        fparams |= dict.fromkeys(names, tol) | (ortho_fparams or {})
        bparams |= {"ortho_use_drop": False} | (ortho_bparams or {})

    def solve(A: Tensor, B: Tensor | None) -> tuple[Tensor, Tensor]:
        return _solve_each(A, B, X, iK, iparams, fparams, bparams, method, tracker)

    if rabbet.is_grad_enabled() and (A.requires_grad or (B is not None and B.requires_grad)):
        return _differentiable(solve, symmetric, other)
    with rabbet.no_grad():
        return solve(symmetric, other)


def _check_matrices(A: Tensor, B: Tensor | None) -> None:
    if A.ndim < 2 or A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"A must be square, got shape {A.shape}")
    if B is not None and A.shape != B.shape:
        raise AssertionError(f"A and B must have same shape, got {A.shape} vs {B.shape}")
    for name, matrix in (("A", A), ("B", B)):
        if matrix is not None and (matrix.dtype not in _TOLERANCES or matrix.dtype != A.dtype):
            wanted = "float32 or float64" if name == "A" else f"the dtype of A, {A.dtype}"
            raise _C.DTypeError(f"lobpcg: expected {name} of {wanted}, got {matrix.dtype}")


def _solve_each(
    A: Tensor, B: Tensor | None, X: Tensor | None, iK: Tensor | None, iparams: dict[str, int],
    fparams: dict[str, float], bparams: dict[str, bool], method: str,
    tracker: Callable[[LOBPCG], None] | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pairs of each matrix of a batch."""
    m, n, k = iparams["m"], iparams["n"], iparams["k"]
    batch = list(A.shape[:-2])
    if X is not None and list(X.shape) != [*batch, m, n]:
        raise AssertionError(f"X shape mismatch: got {X.shape}, expected {(*batch, m, n)}")
    if iK is not None and list(iK.shape) != [m, m]:
        raise RuntimeError(f"lobpcg: expected iK of shape {(m, m)}, got {tuple(iK.shape)}")
    values = rabbet.empty([math.prod(batch), min(k, n)], dtype=A.dtype, device=A.device)
    vectors = rabbet.empty([math.prod(batch), m, min(k, n)], dtype=A.dtype, device=A.device)
    flat = [None if t is None else t.reshape([math.prod(batch), *t.shape[-2:]]) for t in (A, B, X)]
    for i in range(math.prod(batch)):
        a, b, x = (None if t is None else t[i] for t in flat)
        assert a is not None
        if x is None:
            x = rabbet.randn([m, n], dtype=A.dtype, device=A.device)
        own = iparams | {"batch_index": i} if batch else iparams
        worker = LOBPCG(a, b, x, iK, own, fparams, bparams, method, tracker)
        worker.run()
        values[i] = worker.E[:k]
        vectors[i] = worker.X[:, :k]
    return values.reshape([*batch, min(k, n)]), vectors.reshape([*batch, m, min(k, n)])


class LOBPCG:
    """State of the iteration on one matrix.

    Attributes:
        A, B, iK: the arguments.
        X, E, R: vectors, eigenvalues and residuals.
        S: basis of the subspace, which holds X, new directions and the last steps.
        iparams, fparams, bparams: integer, float and bool parameters.
        ivars, fvars, bvars, tvars: integer, float, bool and tensor variables, such as `ivars["istep"]`,
            `ivars["converged_count"]`, `tvars["rerr"]` and `bvars["force_stop"]`.
    """

    def __init__(
        self,
        A: Tensor,
        B: Tensor | None,
        X: Tensor,
        iK: Tensor | None,
        iparams: dict[str, int],
        fparams: dict[str, float],
        bparams: dict[str, bool],
        method: str,
        tracker: Callable[[LOBPCG], None] | None,
    ) -> None:
        self.A, self.B, self.iK = A, B, iK
        self.iparams, self.fparams, self.bparams = dict(iparams), dict(fparams), dict(bparams)
        self.method, self.tracker = method, tracker
        self.X = X
        self.E = X.new_zeros([X.shape[1]])
        self.R = rabbet.zeros_like(X)
        self.S = X
        self._P = X[:, :0]
        self.tvars: dict[str, Tensor] = {}
        self.bvars: dict[str, bool] = {"force_stop": False}
        self.ivars = {"istep": 0, "iterations_left": iparams["niter"],
                      "converged_count": 0, "converged_end": 0}  # fmt: skip
        norm = max(linalg.norm(X).item(), math.ulp(0.0))
        self.fvars: dict[str, float] = {
            "X_norm": norm,
            "A_norm": linalg.norm(A @ X).item() / norm,
            "B_norm": 1.0 if B is None else linalg.norm(B @ X).item() / norm,
        }

    def run(self) -> None:
        """Iterate until the wanted pairs have converged, `niter` is reached, or the tracker stops."""
        self._rotate(self.X)
        self._measure()
        while True:
            if not self._is_done():
                self._advance()
                self._measure()
            self.ivars["istep"] += 1
            self.ivars["iterations_left"] -= 1
            if self.tracker is not None:
                self.tracker(self)
            if self.bvars["force_stop"] or self._is_done() or not self.ivars["iterations_left"]:
                return

    def _is_done(self) -> bool:
        return self.ivars["converged_count"] >= min(self.iparams["k"], self.iparams["n"])

    def _times_b(self, U: Tensor) -> Tensor:
        return U if self.B is None else self.B @ U

    def _measure(self) -> None:
        """Residuals, and how many of the leading pairs have converged."""
        self.R = self.A @ self.X - self._times_b(self.X) * self.E
        size = self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"]
        residual = linalg.vector_norm(self.R, dim=0)
        scale = linalg.vector_norm(self.X, dim=0) * size
        rerr = rabbet.where(residual == 0, residual, residual / scale)
        self.tvars["rerr"] = rerr
        converged = (rerr < self.fparams["tol"]).tolist()
        count = converged.index(False) if False in converged else len(converged)
        self.ivars["converged_count"] = count

    def _rotate(self, S: Tensor) -> Tensor:
        """Replace X by the best vectors in the span of `S`; returns the coefficients of all of them.

        The Rayleigh-Ritz procedure with a Cholesky factor of the scaled matrix of inner products.
        """
        gram = S.mT @ self._times_b(S)
        scale = gram.diagonal().clamp(min=rabbet.finfo(S.dtype).tiny).rsqrt()
        factor = linalg.cholesky(gram * scale.unsqueeze(1) * scale)
        projected = (S.mT @ (self.A @ S)) * scale.unsqueeze(1) * scale
        half = linalg.solve_triangular(factor, projected, upper=False)
        small = linalg.solve_triangular(factor, half.mT, upper=False)
        values, Z = self._ordered((small + small.mT) / 2)
        Z = linalg.solve_triangular(factor.mT, Z, upper=True) * scale.unsqueeze(1)
        self._take(S, values, Z)
        return Z

    def _ordered(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Eigenpairs, the wanted end first."""
        values, Z = linalg.eigh(matrix)
        return (values.flip(0), Z.flip(1)) if self.bparams["largest"] else (values, Z)

    def _take(self, S: Tensor, values: Tensor, Z: Tensor) -> None:
        n = self.iparams["n"]
        self.S, self.E, self.X = S, values[:n], S @ Z[:, :n]

    def _advance(self) -> None:
        first = self.ivars["converged_count"]
        W = self.R[:, first:]
        W = W if self.iK is None else self.iK @ W
        if self.method == "basic":
            self._advance_basic(W, first)
        else:
            self._advance_ortho(W, first)
        self.ivars["converged_end"] = first + W.shape[1] + self._P.shape[1]

    def _advance_basic(self, W: Tensor, first: int) -> None:
        """A step of Knyazev 2001: the span of X, the residuals and the last step."""
        n = self.iparams["n"]
        length = linalg.vector_norm(W, dim=0).clamp(min=rabbet.finfo(W.dtype).tiny)
        S = rabbet.cat([self.X, W / length, self._P], 1)
        Z = self._rotate(S)
        step = S[:, n:] @ Z[n:, first:n]
        self._P = step / linalg.vector_norm(step, dim=0).clamp(min=rabbet.finfo(W.dtype).tiny)

    def _advance_ortho(self, W: Tensor, first: int) -> None:
        """A step of Duersch et al. 2018: the same span by an orthonormal basis."""
        n = self.iparams["n"]
        kept = rabbet.cat([self.X, self._P], 1)
        S = rabbet.cat([kept, self._orthogonal(W, kept)], 1)
        projected = S.mT @ (self.A @ S)
        values, Z = self._ordered((projected + projected.mT) / 2)
        self._take(S, values, Z)
        # The components that X gains from the other directions, orthogonal to X in coordinates of the orthonormal basis.
        gain = Z[:, first:n].clone()
        gain[:n] = 0
        gain = gain - Z[:, :n] @ (Z[:, :n].mT @ gain)
        basis, sizes, _ = linalg.svd(gain, full_matrices=False)
        basis = basis[:, sizes > rabbet.finfo(S.dtype).eps]
        self._P = S @ linalg.qr(basis - Z[:, :n] @ (Z[:, :n].mT @ basis))[0]

    def _orthogonal(self, U: Tensor, V: Tensor) -> Tensor:
        """Columns with the span of U, orthonormal and orthogonal to V by B (Stathopoulos and Wu 2002)."""
        eps, tol = rabbet.finfo(U.dtype).eps, self.fparams["ortho_tol"]
        drops = self.bparams["ortho_use_drop"]
        tau = self.fparams["ortho_tol_drop" if drops else "ortho_tol_replace"]
        self.ivars["ortho_i"] = self.ivars["ortho_j"] = 0
        for i in range(self.iparams["ortho_i_max"]):
            self.ivars["ortho_i"] = i
            U = U - V @ (V.mT @ self._times_b(U))
            for j in range(self.iparams["ortho_j_max"]):
                self.ivars["ortho_j"] = j
                U = self._normalized(U, drops, max(tau * tau, eps))
                if not U.shape[1]:
                    return U
                gram = U.mT @ self._times_b(U)
                ones = rabbet.eye(U.shape[1], dtype=U.dtype, device=U.device)
                if linalg.norm(gram - ones).item() < tol:
                    break
            if linalg.norm(V.mT @ self._times_b(U)).item() < min(tol, math.sqrt(eps)):
                break
        return U

    def _normalized(self, U: Tensor, drops: bool, least: float) -> Tensor:
        """Orthonormal columns by the eigenvalues of the inner products; small ones are dropped or raised to `least`."""
        gram = U.mT @ self._times_b(U)
        size = gram.diagonal()
        if drops:
            U = U[:, size > 0]
            gram, size = gram[size > 0][:, size > 0], size[size > 0]
        scale = size.clamp(min=rabbet.finfo(U.dtype).tiny).rsqrt()
        values, Z = linalg.eigh(gram * scale.unsqueeze(1) * scale)
        floor = least * values.abs().amax().item() if values.numel() else 0.0
        if drops:
            values, Z = values[values > floor], Z[:, values > floor]
        return U @ (scale.unsqueeze(1) * Z * values.clamp(min=max(floor, 5e-324)).rsqrt())


def _differentiable(
    solve: Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor]], A: Tensor, B: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`solve` with a derivative."""

    class Solve(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx: Any, A: Tensor, B: Tensor | None) -> tuple[Tensor, Tensor]:
            values, vectors = solve(A, B)
            ctx.save_for_backward(A, values, vectors)
            ctx.has_b = B is not None
            return values, vectors

        @staticmethod
        def backward(ctx: Any, d_values: Tensor, d_vectors: Tensor) -> tuple[Tensor | None, None]:
            if ctx.has_b:
                raise ValueError("lobpcg.backward does not support backward with B != I yet.")
            A, values, vectors = ctx.saved_tensors
            return _gradient(A, values, vectors, d_values, d_vectors), None

    return Solve.apply(A, B)


def _gradient(A: Tensor, E: Tensor, U: Tensor, d_values: Tensor, d_vectors: Tensor) -> Tensor:
    """The gradient for A from those for some of its eigenpairs.

    Inside the span of U the derivative of a vector is a sum over the other vectors; outside it solves
    `(e - A) w = d` on the orthogonal complement.
    """
    m, k = U.shape[-2:]
    gaps = E.unsqueeze(-2) - E.unsqueeze(-1)
    itself = rabbet.eye(k, dtype=rabbet.bool, device=A.device)
    inner = (U.mT @ d_vectors) / gaps.masked_fill(itself, math.inf)
    inner = inner + rabbet.diag_embed(d_values)
    # One system for each vector. On the span of U its matrix is the identity.
    inside = U @ U.mT
    outside = rabbet.eye(m, dtype=A.dtype, device=A.device) - inside
    shifted = E[..., None, None] * outside.unsqueeze(-3) - (outside @ A @ outside).unsqueeze(-3)
    rest = (outside @ d_vectors).mT.unsqueeze(-1)
    w = linalg.solve(shifted + inside.unsqueeze(-3), rest).squeeze(-1)
    return U @ inner @ U.mT + w.mT @ U.mT
