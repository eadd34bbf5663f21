"""Finds expressions for numbers that a program computed from the sizes of its inputs.

A capture with dynamic sizes runs the program at several sizes. A number that differs between the runs is a function of
the sizes; a formula is accepted where it gives all of the numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from ._sizes import Number, Size, Symbol, binary, const, symbol

Point = Mapping[str, Number]

# Steps from the size at the capture for each symbol, so irregular that sizes, their halves, sums and products differ.
_STEPS = (
    (3, 10, 1), (5, 2, 13), (11, 17, 4), (7, 1, 9), (2, 12, 21), (13, 5, 8), (9, 19, 3), (4, 8, 15),
)  # fmt: skip
OTHERS = 3  # further sizes at which a program with dynamic sizes runs


def within(s: Symbol, size: int) -> bool:
    """Whether a symbol can have this size."""
    return size >= max(s.low, 2) and (s.high is None or size <= s.high)


def other_sizes(
    symbols: Mapping[str, Symbol], multiples: bool = False, start: int = 0
) -> list[dict[str, int]]:
    """More points: sizes of all symbols that differ from those at the capture and from each other.

    Args:
        multiples: take multiples of the captured sizes, for programs that divide sizes.
        start: take other steps than with another number.
    """
    points: list[dict[str, int]] = [{} for _ in range(OTHERS)]
    for i, s in enumerate(symbols.values()):
        steps = _STEPS[(i + 3 * start) % len(_STEPS)]
        taken = {s.hint}
        for k, point in enumerate(points):
            if multiples:
                wanted = [s.hint * n for n in (2 + (i + k) % 3, 5 + k + start, 2 + k, 9 + i)]
                wanted += [s.hint // n for n in (2, 3, 4, 5, 6)]
            else:
                wanted = [
                    s.hint + steps[k] + start,
                    s.hint - steps[k],
                    s.hint + 1 + k,
                    s.hint - 1 - k,
                ]
            size = next((n for n in wanted if within(s, n) and n not in taken), s.hint)
            taken.add(size)
            point[s.name] = size
    return points


def matches(size: Size, numbers: Sequence[Number], points: Sequence[Point]) -> bool:
    """Whether an expression without dimensions of values gives these numbers, of the same types."""
    try:
        found = [size.evaluate(point) for point in points]
    except (ArithmeticError, ValueError):
        return False
    return found == list(numbers) and [type(n) for n in found] == [type(n) for n in numbers]


def exact(
    numbers: Sequence[Number], points: Sequence[Point], candidates: Iterable[Size] = ()
) -> Size | None:
    """Return a constant, an expression that the program computed, or a symbol, if it yields all the numbers."""
    if len({(type(n), n) for n in numbers}) == 1:
        return const(numbers[0])
    for size in [*candidates, *map(symbol, points[0])]:
        if matches(size, numbers, points):
            return size
    return None


def fit(numbers: Sequence[Number], points: Sequence[Point]) -> Size | None:
    """Find an expression over the symbols that yields the number at each point; None if no simple one does."""
    found = exact(numbers, points)
    if found is not None:
        return found
    if all(type(n) is float for n in numbers):
        return _reciprocal(numbers, points)
    if any(type(n) is not int for n in numbers):
        return None
    names = list(points[0])
    for size in _simple(numbers, points, names):
        if matches(size, numbers, points):
            return size
    return None


def _reciprocal(numbers: Sequence[Number], points: Sequence[Point]) -> Size | None:
    """The reciprocal of a number of elements, as backward passes of means have it."""
    if any(n == 0 or abs(n) > 1 for n in numbers):
        return None
    counts = fit([round(1 / n) for n in numbers], points)
    if counts is None:
        return None
    size = binary("/", const(1), counts)
    return size if matches(size, numbers, points) else None


def _simple(numbers: Sequence[Number], points: Sequence[Point], names: list[str]) -> Iterable[Size]:
    first, second = numbers[0], numbers[1]
    for count in (1, 2, 3):
        for subset in itertools.combinations_with_replacement(names, count):
            product = symbol(subset[0])
            for name in subset[1:]:
                product = binary("*", product, symbol(name))
            at = product.evaluate(points[0])
            if at and first % at == 0:
                yield binary("*", product, const(first // at))
            step = product.evaluate(points[1]) - at
            if step and (second - first) % step == 0:
                slope = (second - first) // step
                yield _affine(product, slope, first - slope * at)
    for a, b in itertools.combinations_with_replacement(names, 2):
        total = binary("+", symbol(a), symbol(b))
        rest = first - total.evaluate(points[0])
        yield _affine(total, 1, rest)


def _affine(size: Size, slope: Number, rest: Number) -> Size:
    scaled = binary("*", size, const(slope))
    return binary("-", scaled, const(-rest)) if rest < 0 else binary("+", scaled, const(rest))
