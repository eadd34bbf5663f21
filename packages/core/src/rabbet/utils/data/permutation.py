"""Random orders that are computed index by index, for datasets whose list of indices would fill the memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, overload

import rabbet

from ... import _C
from ..._C import Tensor

__all__ = ["Permutation"]

_ROUNDS = 8
_TABLE = 1024  # below this size the order is a stored list, which is exactly uniform
_CHUNK = 4096  # indices that iteration computes at once
_LARGEST = (
    1 << 62
)  # the halves of an index have at most 31 bits, and products of two such numbers fit int64
_LOW = (1 << 31) - 1


def _numbers(seed: int, count: int) -> list[int]:
    """Numbers of 61 bits from a seed, the same on every machine."""
    text = str(seed).encode()
    digests = (
        hashlib.blake2b(text, digest_size=8, salt=i.to_bytes(8, "little")) for i in range(count)
    )
    return [int.from_bytes(d.digest(), "little") >> 3 for d in digests]


class _Feistel:
    """A keyed permutation of range(n): a Feistel network over pairs (x // b, x % b), with a * b just above n.

    Results of n or more go through the network again until they are below n. Fewer than one in sqrt(n) do.
    J. Black and P. Rogaway, "Ciphers with arbitrary finite domains", 2002.
    """

    def __init__(self, n: int, seed: int) -> None:
        self._n = n
        self._a = max(math.isqrt(n - 1) + 1, 1) if n else 1
        self._b = -(-n // self._a) or 1
        numbers = _numbers(seed, 6 * _ROUNDS)
        # Odd multipliers of 31 bits, and offsets of 61 bits.
        factors = [(k & _LOW) | 1 << 30 | 1 for k in numbers[: 3 * _ROUNDS]]
        offsets = numbers[3 * _ROUNDS :]
        pairs = list(zip(factors, offsets, strict=True))
        self._keys = [pairs[3 * r : 3 * r + 3] for r in range(_ROUNDS)]

    def _once(self, x: Any) -> Any:
        """The network, for an int or an int64 tensor."""
        high, low = x // self._b, x % self._b
        for number, keys in enumerate(self._keys):
            if number % 2:
                low = (low + _hash(high, keys)) % self._b
            else:
                high = (high + _hash(low, keys)) % self._a
        return high * self._b + low

    def at(self, x: int) -> int:
        x = int(self._once(x))
        while x >= self._n:
            x = int(self._once(x))
        return x

    def at_all(self, x: Tensor) -> Tensor:
        x = self._once(x)
        while (beyond := (x >= self._n).nonzero().flatten()).numel():
            x[beyond] = self._once(x[beyond])
        return x


def _hash(x: Any, keys: list[tuple[int, int]]) -> Any:
    """62 bits that depend on all of the at most 31 bits of x; no product exceeds 63 bits."""
    (c0, k0), (c1, k1), (c2, k2) = keys
    x = x * c0 + k0
    x = (x ^ (x >> 31)) & _LOW
    x = x * c1 + k1
    x = (x ^ (x >> 29)) & _LOW
    x = x * c2 + k2
    return x ^ (x >> 30)


class Permutation(Sequence[int]):
    """A random order of `range(n)` that takes the same small memory for every `n`.

    Each index is computed from its position, so that any part of the order is there at once. The order depends on `n` and
    `seed` only: it is the same on every machine and in every process. Orders of up to 1024 indices are uniformly random;
    longer ones come from a keyed network, which reaches only a part of all orders, but spreads indices evenly.

    Args:
        n: how many indices, 0 to 2**62.
        seed: any integer.

    Raises:
        TypeError: if `n` or `seed` is not an int.
        ValueError: if `n` is out of range.

    Example:
        >>> order = Permutation(10**9, seed=0)
        >>> order[5], order[10:13]          # any position, any part
        >>> for index in order.iter_from(500_000_000): ...
    """

    def __init__(self, n: int, seed: int) -> None:
        for name, value in (("n", n), ("seed", seed)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"Permutation: {name} must be an int, got {value!r}")
        if not 0 <= n <= _LARGEST:
            raise ValueError(f"Permutation: n must be from 0 to 2**62, got {n}")
        self.n = n
        self.seed = seed
        self._network = _Feistel(n, seed)
        self._table: Tensor | None = None
        if n <= _TABLE:
            generator = _C.Generator()
            generator.manual_seed(_numbers(seed, 1)[0])
            self._table = rabbet.randperm(n, generator=generator)

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: slice) -> list[int]: ...

    def __getitem__(self, position: int | slice) -> int | list[int]:
        if isinstance(position, slice):
            part = range(self.n)[position]
            positions = rabbet.arange(part.start, part.stop, part.step, dtype=_C.int64)
            return self._at(positions).tolist()
        try:
            at = range(self.n)[position]
        except IndexError:
            raise IndexError(
                f"Permutation: position {position} is out of range for {self.n} indices"
            ) from None
        if self._table is not None:
            return int(self._table[at])
        return self._network.at(at)

    def at(self, positions: Tensor) -> Tensor:
        """The indices at many positions.

        Args:
            positions: int64, of any shape, each from 0 to `n - 1`.

        Returns:
            int64, of the same shape.

        Raises:
            TypeError: if `positions` is not an int64 tensor.
            IndexError: if a position is out of range.
        """
        if not isinstance(positions, Tensor) or positions.dtype is not _C.int64:
            got = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
            raise TypeError(f"Permutation.at: expected an int64 tensor of positions, got {got}")
        if positions.numel():
            low, high = int(positions.min()), int(positions.max())
            if low < 0 or high >= self.n:
                bad = low if low < 0 else high
                raise IndexError(
                    f"Permutation.at: position {bad} is out of range for {self.n} indices"
                )
        return self._at(positions)

    def _at(self, positions: Tensor) -> Tensor:
        if self._table is not None:
            return self._table[positions]
        return self._network.at_all(positions)

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index < self.n

    def iter_from(self, position: int, step: int = 1) -> Iterator[int]:
        """The indices from a position on, or each `step`-th of them; to begin takes the same time everywhere.

        Raises:
            ValueError: if `position` is negative or `step` is less than 1.
        """
        if position < 0 or step < 1:
            raise ValueError(
                f"Permutation.iter_from: expected position >= 0 and step >= 1, got {position} and {step}"
            )
        return self._chunks(range(position, self.n, step))

    def _chunks(self, positions: range) -> Iterator[int]:
        size = 64  # a loop that stops early has not computed much in vain
        while positions:
            part, positions = positions[:size], positions[size:]
            at = rabbet.arange(part.start, part.stop, part.step, dtype=_C.int64)
            yield from self._at(at).tolist()
            size = min(2 * size, _CHUNK)

    def __repr__(self) -> str:
        return f"Permutation(n={self.n}, seed={self.seed})"
