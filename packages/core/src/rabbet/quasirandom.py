"""Low-discrepancy sequences: points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from typing import Any

import rabbet

from . import _destinations, _sobol_numbers
from ._C import Generator, Tensor

__all__ = ["SobolEngine"]


def _times(a: int, b: int, modulus: int, degree: int) -> int:
    """The product of two polynomials over GF(2), whose coefficients are bits."""
    found = 0
    while b:
        if b & 1:
            found ^= a
        b >>= 1
        a <<= 1
        if a >> degree & 1:
            a ^= modulus
    return found


def _power_of_x(exponent: int, modulus: int, degree: int) -> int:
    found, square = 1, 2 if degree > 1 else 2 ^ modulus
    while exponent:
        if exponent & 1:
            found = _times(found, square, modulus, degree)
        square = _times(square, square, modulus, degree)
        exponent >>= 1
    return found


def _prime_factors(n: int) -> set[int]:
    found, p = set(), 2
    while p * p <= n:
        while n % p == 0:
            found.add(p)
            n //= p
        p += 1
    return found | ({n} if n > 1 else set())


def _primitive_polynomials() -> Iterator[tuple[int, int]]:
    """(degree, coefficients) of the primitive polynomials over GF(2), in order: x has the order 2^degree - 1."""
    degree = 0
    while True:
        degree += 1
        order = 2**degree - 1
        parts = [order // p for p in _prime_factors(order)]
        for p in range(2**degree + 1, 2 ** (degree + 1), 2):
            if _power_of_x(order, p, degree) == 1 and all(
                _power_of_x(part, p, degree) != 1 for part in parts
            ):
                yield degree, p


@functools.cache
def _packed() -> tuple[int, int]:
    return int.from_bytes(
        base64.b85decode(_sobol_numbers.PACKED), "little"
    ), _sobol_numbers.DIMENSIONS


@functools.lru_cache(maxsize=8)
def _direction_numbers(dimension: int, bits: int) -> tuple[tuple[int, ...], ...]:
    """The direction numbers of each dimension, as integers of `bits` bits; Bratley and Fox, Algorithm 659, 1988."""
    numbers, _ = _packed()
    found = [tuple(1 << bits - 1 - i for i in range(bits))]
    polynomials = _primitive_polynomials()
    while len(found) < dimension:
        degree, polynomial = next(polynomials)
        m = [1]
        for i in range(2, degree + 1):
            m.append(2 * (numbers & (1 << i - 1) - 1) + 1)
            numbers >>= i - 1
        for i in range(degree, bits):
            value = m[i - degree] ^ m[i - degree] << degree
            for k in range(1, degree):
                if polynomial >> degree - k & 1:
                    value ^= m[i - k] << k
            m.append(value)
        found.append(tuple(v << bits - 1 - i for i, v in enumerate(m[:bits])))
    return tuple(found)


class SobolEngine:
    """The Sobol sequence: points of the unit cube, each new one where the others left the most room.

    The points are those of PyTorch. Scrambling draws from rabbet's generator, so that it gives other points.

    Args:
        dimension: of the cube, at most 1111.
        scramble: whether to scramble the sequence, randomly and keeping how even it is: a random lower triangular
            matrix over GF(2) per dimension, then a random shift (Matousek, 1998).
        seed: of the scrambling.

    Raises:
        ValueError: for other dimensions.

    Example:
        >>> engine = rabbet.quasirandom.SobolEngine(2)
        >>> engine.draw(3)
        tensor([[0.0000, 0.0000],
                [0.5000, 0.5000],
                [0.7500, 0.2500]])
    """

    MAXBIT = 30
    MAXDIM = 1111

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.seed = seed
        self.scramble = scramble
        self.dimension = dimension
        self.sobolstate = rabbet.tensor(
            _direction_numbers(dimension, self.MAXBIT), dtype=rabbet.int64, device="cpu"
        )
        self.shift = rabbet.zeros(dimension, dtype=rabbet.int64, device="cpu")
        if scramble:
            self._scramble()
        self.num_generated = 0

    def _scramble(self) -> None:
        generator: Any = None
        if self.seed is not None:
            generator = Generator("cpu")
            generator.manual_seed(self.seed)
        bits = self.MAXBIT

        def coins(*shape: int) -> Tensor:
            return rabbet.randint(
                0, 2, shape, generator=generator, dtype=rabbet.int64, device="cpu"
            )

        powers = 2 ** rabbet.arange(bits, dtype=rabbet.int64, device="cpu")
        self.shift = (coins(self.dimension, bits) * powers).sum(1)
        lower = coins(self.dimension, bits, bits).tril(-1)
        lower = lower + rabbet.eye(bits, dtype=rabbet.int64, device="cpu")
        # Bits of the direction numbers, the highest first, times the matrix over GF(2).
        places = rabbet.arange(bits - 1, -1, -1, dtype=rabbet.int64, device="cpu")
        columns = self.sobolstate.unsqueeze(1) >> places.reshape(1, bits, 1) & 1
        mixed = (lower.unsqueeze(-1) * columns.unsqueeze(1)).sum(2) % 2
        self.sobolstate = (mixed << places.reshape(1, bits, 1)).sum(1)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next `n` points, (n, dimension), in the default dtype unless another is given.

        Raises:
            ValueError: after 2^30 points.
        """
        if n < 0 or self.num_generated + n > 2**self.MAXBIT:
            raise ValueError(
                f"SobolEngine.draw: expected at most {2**self.MAXBIT - self.num_generated} points, got n={n}"
            )
        dtype = rabbet.get_default_dtype() if dtype is None else dtype
        index = rabbet.arange(
            self.num_generated, self.num_generated + n, dtype=rabbet.int64, device="cpu"
        )
        gray = index ^ index >> 1  # its bits choose the direction numbers; Antonov and Saleev, 1979
        points = self.shift.expand(n, self.dimension)
        for bit in range((self.num_generated + n).bit_length()):
            chosen = (gray >> bit & 1).unsqueeze(1)
            points = points ^ chosen * self.sobolstate[:, min(bit, self.MAXBIT - 1)]
        self.num_generated += n
        found = points.to(dtype) * 2.0**-self.MAXBIT
        return _destinations.write("SobolEngine.draw", found, out, cast=True)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2^m points; together with those before they must be a power of two.

        Raises:
            ValueError: if they are not, as the points are not balanced then.
        """
        n = 2**m
        total = self.num_generated + n
        if total & total - 1:
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}="
                f"{total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again with the first point."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next `n` points."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        text = f"SobolEngine(dimension={self.dimension}"
        if self.scramble:
            text += ", scramble=True"
        return text + (f", seed={self.seed})" if self.seed is not None else ")")
