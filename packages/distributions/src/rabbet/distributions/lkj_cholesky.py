"""The Lewandowski-Kurowicka-Joe distribution of Cholesky factors of correlation matrices."""

import math
from typing import Any

import rabbet
from rabbet import Size, Tensor

from . import constraints
from ._linalg import identity
from .beta import Beta
from .distribution import Distribution
from .utils import broadcast_all, multigammaln

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Factors L of correlation matrices, with densities of L @ L.mT in proportion to det ** (concentration - 1).

    Sampled by the onion method of Lewandowski, Kurowicka and Joe 2009, "Generating random correlation matrices".
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, Size((dim, dim)), validate_args=validate_args)
        # Squared lengths of the rows below the diagonal.
        rows = rabbet.arange(
            dim - 1, dtype=self.concentration.dtype, device=self.concentration.device
        )
        half = self.concentration.unsqueeze(-1) + 0.5 * (dim - 2)
        self._beta = Beta(0.5 * (rows + 1), half - 0.5 * rows)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.dim = self.dim
        new._beta = self._beta.expand(Size(batch_shape) + self._beta.batch_shape[-1:])
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with rabbet.no_grad():
            square = self._beta.sample(sample_shape)
            square = rabbet.cat([square.new_zeros(square.shape[:-1] + (1,)), square], -1)
            direction = rabbet.randn(
                self._extended_shape(sample_shape), dtype=square.dtype, device=square.device
            ).tril(-1)
            norm = direction.square().sum(-1, keepdim=True).sqrt()
            direction = direction / norm.masked_fill(norm == 0, 1.0)
            below = square.sqrt().unsqueeze(-1) * direction
            tiny = rabbet.finfo(below.dtype).tiny
            diagonal = (1 - below.square().sum(-1)).clamp(min=tiny).sqrt()
            return below + diagonal.unsqueeze(-1) * identity(below)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check(value)
        n = self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        orders = rabbet.arange(2, self.dim + 1, dtype=value.dtype, device=value.device)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - orders
        density = (powers * diagonal.log()).sum(-1)
        # The integral (page 1999 of the article); its sum of gamma functions lacks n / 2 * log(pi).
        alpha = self.concentration + 0.5 * n
        integral = 0.5 * n * math.log(math.pi) + multigammaln(alpha - 0.5, n) - n * alpha.lgamma()
        return density - integral
