"""Dimensions split, merged and moved by a pattern of names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor

_ELLIPSIS = "..."
_TOKEN = re.compile(r"\.\.\.|[()]|[^\s().]+|\.")


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Return a tensor with its dimensions reordered, split and merged as the pattern says.

    Args:
        tensor: the tensor, or several, which are stacked along a new first dimension.
        pattern: names of the dimensions before and after, `"b (h w) c -> b c h w"`. Names in brackets make one
            dimension, `...` stands for those that are not named, 1 for one of one element.
        axes_lengths: lengths of names that the tensor does not tell.

    Raises:
        ValueError: if the pattern does not fit itself, the tensor or the lengths.
    """
    if not isinstance(tensor, Tensor):
        tensor = rabbet.stack(list(tensor))
    if pattern.count("->") != 1:
        raise ValueError(
            f"rearrange: Pattern must contain a single '->' separator, got {pattern!r}"
        )
    left, right = (_parse(side, pattern) for side in pattern.split("->"))
    _check(left, right, pattern, axes_lengths)
    lengths, rest = _lengths(tensor, left, pattern, dict(axes_lengths))
    before, after = (_flat(side, len(rest)) for side in (left, right))
    split = tensor.reshape([lengths[name] for name in before])
    moved = split.permute([before.index(name) for name in after])
    shape = []
    for group in right:
        if group == [_ELLIPSIS]:
            shape += rest
        else:
            names = _flat([group], len(rest))
            shape.append(math.prod(lengths[name] for name in names))
    return moved.reshape(shape)


def _parse(side: str, pattern: str) -> list[list[str]]:
    """The names of each dimension; none for one of a single element."""
    groups: list[list[str]] = []
    inside = False
    for token in _TOKEN.findall(side):
        if token in "()":
            if (token == "(") == inside:
                raise ValueError(
                    f"rearrange: Imbalanced or nested parentheses in expression: {pattern!r}"
                )
            inside = token == "("
            if inside:
                groups.append([])
            continue
        if token.isdigit():
            if token != "1":
                raise ValueError(
                    f"rearrange only supports unnamed axes of size 1, got {token} in {pattern!r}"
                )
            names = []
        else:
            if token != _ELLIPSIS and not token.isidentifier():
                raise ValueError(f"rearrange: Invalid axis identifier: {token} in {pattern!r}")
            names = [token]
        if inside:
            groups[-1] += names
        else:
            groups.append(names)
    if inside:
        raise ValueError(f"rearrange: Imbalanced or nested parentheses in expression: {pattern!r}")
    return groups


def _check(
    left: list[list[str]], right: list[list[str]], pattern: str, given: dict[str, Any]
) -> None:
    sides = [[name for group in side for name in group] for side in (left, right)]
    for names in sides:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"rearrange: Indexing expression contains duplicate dimension {twice[0]!r}: {pattern!r}"
            )
    alone = set(sides[0]) ^ set(sides[1])
    if alone:
        raise ValueError(
            f"rearrange: Identifiers only on one side of expression (should be on both): {sorted(alone)}"
        )
    if any(_ELLIPSIS in group and group != [_ELLIPSIS] for group in left):
        raise ValueError(
            f"rearrange: Ellipsis inside parenthesis in the left side is not allowed: {pattern!r}"
        )
    unknown = sorted(set(given) - set(sides[0]))
    if unknown:
        raise ValueError(f"rearrange: Identifiers not found in expression: {unknown}")


def _lengths(
    tensor: Tensor, left: list[list[str]], pattern: str, lengths: dict[str, int]
) -> tuple[dict[str, int], list[int]]:
    """The length of each name, and of the dimensions that the ellipsis stands for."""
    shape = list(tensor.shape)
    at = left.index([_ELLIPSIS]) if [_ELLIPSIS] in left else None
    named = len(left) - (at is not None)
    if named > len(shape) or (at is None and named != len(shape)):
        raise ValueError(
            f"rearrange: Number of dimensions in pattern ({named}) must be equal to the number of dimensions in the "
            f"tensor ({len(shape)}): {pattern!r}"
        )
    rest: list[int] = []
    if at is not None:
        count = len(shape) - named
        rest = shape[at : at + count]
        shape[at : at + count] = []
        left = left[:at] + left[at + 1 :]
    for size, group in zip(shape, left, strict=True):
        unknown = [name for name in group if name not in lengths]
        known = math.prod(lengths[name] for name in group if name in lengths)
        if len(unknown) > 1:
            raise ValueError(f"rearrange: cannot infer the sizes of {unknown} at once: {pattern!r}")
        if unknown and known and size % known == 0:
            lengths[unknown[0]] = size // known
        elif unknown or known != size:
            raise ValueError(
                f"rearrange: the lengths of ({' '.join(group)}) do not make up a dimension of {size} elements: "
                f"{pattern!r}"
            )
    lengths.update({f"{_ELLIPSIS}{i}": size for i, size in enumerate(rest)})
    return lengths, rest


def _flat(side: list[list[str]], rest: int) -> list[str]:
    """All names in order, those of the ellipsis numbered."""
    names: list[str] = []
    for group in side:
        for name in group:
            names += [f"{_ELLIPSIS}{i}" for i in range(rest)] if name == _ELLIPSIS else [name]
    return names
