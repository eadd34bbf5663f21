"""Parametrizations of weights: weight and spectral normalisation, orthogonal matrices."""

from __future__ import annotations

import rabbet
from rabbet import Tensor

from .._accumulate import accumulated
from .._orthogonal_matrices import cayley, exponential, orthonormal, reflected, reflections
from ..flat import norm_except_dim
from ..functional import normalize
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from . import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


@accumulated
def _scaled(length: Tensor, direction: Tensor, dim: int) -> Tensor:
    return direction * (length / norm_except_dim(direction, 2, dim))


class _WeightNorm(Module):
    """`g * v / norm(v)` (Salimans and Kingma 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _scaled(weight_g, weight_v, self._dim(weight_v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of the weight."""
        return norm_except_dim(weight, 2, self._dim(weight)), weight

    def _dim(self, weight: Tensor) -> int:
        return self.dim if self.dim == -1 else self.dim % weight.ndim


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Learn length and direction of a weight apart (Salimans and Kingma 2016); returns `module`.

    Args:
        module: holds the weight.
        name: its name.
        dim: the dimension whose slices each have a length; None: the whole weight has one.
    """
    _expect_tensor(module, name)
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """The slices along `dim` as rows."""
    order = [dim, *(d for d in range(weight.ndim) if d != dim)]
    return weight.permute(order).reshape([weight.shape[dim], -1])


def power_iteration(matrix: Tensor, left: Tensor, right: Tensor, count: int, eps: float) -> None:
    """Bring `left` and `right`, in place, `count` steps nearer to the first singular vectors; `left` first."""
    with rabbet.no_grad():
        for _ in range(count):
            left.copy_(normalize(matrix @ right, dim=0, eps=eps))
            right.copy_(normalize(matrix.t() @ left, dim=0, eps=eps))


def spectral_dim(module: Module, dim: int | None) -> int:
    """`dim`, or for None the dimension of the outputs in the weight of `module`."""
    if dim is not None:
        return dim
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


class _SpectralNorm(Module):
    """The weight divided by its largest singular value, by power iteration (Miyato et al. 2018)."""

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but "
                f"got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim % weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            with rabbet.no_grad():
                matrix = as_matrix(weight, self.dim)
                height, width = matrix.shape
                for vector, size in (("_u", height), ("_v", width)):
                    start = rabbet.empty([size], dtype=weight.dtype, device=weight.device)
                    self.register_buffer(vector, normalize(start.normal_(), dim=0, eps=eps))
                power_iteration(matrix, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iteration(matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps)
        # Clones: the vectors change in place before the backward pass of an earlier call.
        u, v = self._u.clone(), self._v.clone()
        return weight / (u @ (matrix @ v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself: it is taken as it is."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al. 2018); returns `module`.

    Args:
        module: holds the weight.
        name: its name.
        n_power_iterations: steps of power iteration for each call in training.
        eps: least norm in the iteration.
        dim: the dimension of the outputs; None: 1 of transposed convolutions, else 0.
    """
    weight = _expect_tensor(module, name)
    norm = _SpectralNorm(weight, n_power_iterations, spectral_dim(module, dim), eps)
    return parametrize.register_parametrization(module, name, norm)


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """Matrices with orthonormal columns, or rows where these are fewer (Lezcano-Casado 2019).

    Args:
        weight: (..., n, k), whose shape and dtype count.
        orthogonal_map: 'matrix_exp', 'cayley' or 'householder'.
        use_trivialization: multiply by a buffer `base` that assignments set.
    """

    base: Tensor | None

    def __init__(
        self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        rows, cols = x.shape[-2:]
        if self.orthogonal_map == "householder":
            v = x.tril(-1)
            tau = 2 / (1 + (v * v).sum(-2))
            one = rabbet.eye(rows, cols, dtype=x.dtype, device=x.device)
            # The diagonal has the signs and no derivative.
            signs = x.detach().diagonal(dim1=-2, dim2=-1).sign()
            q = reflected(v + one, tau) * signs.unsqueeze(-2)
        else:
            lower = x.tril()
            if rows != cols:
                lower = rabbet.cat([lower, x.new_zeros(*x.shape[:-1], rows - cols)], -1)
            skew = lower - lower.mH
            square = exponential(skew) if self.orthogonal_map == "matrix_exp" else cayley(skew)
            q = square[..., :cols]
        if self.use_trivialization and self.base is not None:
            q = self.base @ q
        return q.mT if wide else q

    @rabbet.no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        """What gives `q`, made orthogonal if it is not."""
        if q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {q.shape}."
            )
        wide = q.shape[-2] < q.shape[-1]
        tall = q.mT if wide else q
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    "parametrizations when use_trivialization=False."
                )
            v, tau, diagonal = reflections(tall)
            # A column without reflection counts as reflected by `forward`, whose tau is never 0.
            signs = rabbet.where(tau == 0, -diagonal.sign(), diagonal.sign())
            inverse = v.tril(-1)
            inverse.diagonal(dim1=-2, dim2=-1).copy_(signs)
            return inverse.mT if wide else inverse
        rows, cols = tall.shape[-2:]
        if rows != cols:
            rest = rabbet.randn(*tall.shape[:-1], rows - cols, dtype=tall.dtype, device=tall.device)
            tall = orthonormal(rabbet.cat([tall, rest], -1))
        else:
            tall = tall.clone() if _is_orthogonal(tall) else orthonormal(tall)
        self.base = tall
        # The diagonal is -1 because a reflection with v = e_k is.
        start = rabbet.zeros_like(q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1)
        return start


def _is_orthogonal(q: Tensor) -> bool:
    one = rabbet.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    eps = 10 * q.shape[-2] * rabbet.finfo(q.dtype).eps
    return bool(rabbet.allclose(q.mH @ q, one, atol=eps))


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep matrices orthogonal, or unitary where they are complex (Lezcano-Casado 2019); returns `module`.

    Args:
        module: holds the weight (..., n, k): Q^H Q = I where n >= k, else Q Q^H = I.
        name: its name.
        orthogonal_map: 'matrix_exp' (of a skew-Hermitian matrix), 'cayley' ((I + A/2)(I - A/2)^-1) or 'householder'
            (a product of reflections, real matrices only); None: 'matrix_exp' for square and complex matrices, else
            'householder'.
        use_trivialization: multiply by a fixed orthogonal matrix, which assignments to the weight set.
    """
    weight = _expect_tensor(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    norm = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, norm, unsafe=True)


def _expect_tensor(module: Module, name: str) -> Tensor:
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return value
