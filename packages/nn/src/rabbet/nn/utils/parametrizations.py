"""Parametrizations of weights: weight normalisation and spectral normalisation."""

from __future__ import annotations

import rabbet
from rabbet import Tensor

from ..functional import normalize
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from . import parametrize

__all__ = ["spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dimensions but `dim`, which stay as size 1; -1: over all."""
    if dim == -1:
        return (v * v).sum().sqrt()
    return (v * v).sum([d for d in range(v.ndim) if d != dim], keepdim=True).sqrt()


class _WeightNorm(Module):
    """`g * v / norm(v)` (Salimans and Kingma 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self._dim(weight_v)))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of the weight."""
        return norm_except_dim(weight, self._dim(weight)), weight

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


def _expect_tensor(module: Module, name: str) -> Tensor:
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return value
