"""Calls drawn from the examples of records; equal (seed, index) give equal calls."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import rabbet
from rabbet import _C

from rabbet_testing.cases import examples_of, op_names

DTYPES = ("float32", "float64", "float16", "complex64", "int64", "int32", "uint8", "bool")
NUMBERS = (0, 1, -1, 2, 7, 255, 300, 1 << 31, 1 << 62, -(1 << 62), 0.5, "nan", "inf", "-inf", True)
LAYOUTS = ("plain", "plain", "transposed", "expanded", "strided")


@cache
def names() -> list[str]:
    """Operators with a public function or method, and examples that need no other operator."""
    found = [
        n
        for n in op_names()
        if "." not in n and "::" not in n and _C.op_info(n)["kind"] != "random"
    ]
    return sorted(n for n in found if hasattr(rabbet, n) or hasattr(rabbet.Tensor, n))


def call(seed: int, index: int) -> dict[str, Any] | None:
    """The call as plain data, None if the drawn example cannot be written so."""
    draw = random.Random(f"{seed} {index}")
    name = draw.choice(names())
    examples = examples_of(name)
    if not examples:
        return None
    _, args, kwargs = draw.choice(examples)
    dtype = draw.choice(DTYPES)
    try:
        given = [_value(a, dtype, draw) for a in args]
        named = {k: _value(a, dtype, draw) for k, a in kwargs.items()}
    except LookupError:
        return None
    forms = [f for f, there in (
        ("function", hasattr(rabbet, name)),
        ("method", hasattr(rabbet.Tensor, name)),
        ("in_place", hasattr(rabbet.Tensor, name + "_")),
    ) if there]  # fmt: skip
    return {"op": name, "form": draw.choice(forms), "args": given, "kwargs": named}


def _value(node: Any, dtype: str, draw: random.Random) -> Any:
    if isinstance(node, list):
        return {"list": [_value(item, dtype, draw) for item in node]}
    if isinstance(node, tuple):
        if node[0] == "name":
            return {"dtype": dtype if node[1] == "dtype" else node[1]}
        if node[0] != "tensor":
            raise LookupError(node[0])
        _, maker, given, shape = node
        if maker not in ("", "ties", "nan", "index", "mask", "positive"):
            raise LookupError(maker)
        shape = list(shape)
        if shape and draw.random() < 0.1:
            shape[draw.randrange(len(shape))] = draw.choice((0, 1, 2, 5))
        kind = {"index": "int64", "mask": "bool"}.get(maker, dtype)
        if draw.random() < 0.1:
            kind = draw.choice(DTYPES)
        return {"shape": shape, "dtype": kind, "below": given[0] if maker == "index" else 0,
                "layout": draw.choice(LAYOUTS), "seed": draw.randrange(1 << 30),
                "special": draw.random() < 0.2}  # fmt: skip
    is_number = isinstance(node, (int, float))
    if is_number and draw.random() < 0.2:
        return {"number": draw.choice(NUMBERS)}
    return {"number": str(node) if is_number and node != node else node} if node in (
        float("inf"), float("-inf")) else {"value": node}  # fmt: skip
