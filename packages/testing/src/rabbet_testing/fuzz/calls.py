"""Calls drawn from the examples of records; equal (seed, index) give equal calls.

A call is plain data: `op`, `form` (how it is called; `record`: as rabbet.ops(op)), `method` (its name, if it is one),
`context` (what is asked of it), `args`, `kwargs`, `out`.
An argument is {"shape", "dtype", "below", "layout", "seed", "special"} of a tensor, {"list"}, {"dtype"}, {"number"}
or {"value"}.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import rabbet
from rabbet import _C

from rabbet_testing.cases import examples_of

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "int64", "int32", "int16",
          "uint8", "bool")  # fmt: skip
EDGES = (0, 1, -1, 2, 7, 255, 300, 1 << 31, 1 << 62, -(1 << 62), 0.5, "nan", "inf", "-inf", True)
LAYOUTS = ("plain", "plain", "transposed", "expanded", "strided")
# What is asked of a call: its result, or that it agrees with another way to the same result.
CONTEXTS = ("plain",) * 12 + ("meta", "vmap", "jvp", "grad", "functionalize", "vmap vmap", "vmap grad",
                              "grad vmap")  # fmt: skip
IN_CONTEXT = ("function", "method", "in_place")  # forms that transforms are tried with
NEED_TENSOR = ("method", "in_place", "operator")  # as their first argument
OPERATORS = {
    name: f"__{word or name}__"
    for name, word in {
        "add": "", "sub": "", "mul": "", "div": "truediv", "floor_divide": "floordiv", "remainder": "mod",
        "pow": "", "matmul": "", "eq": "", "ne": "", "lt": "", "le": "", "gt": "", "ge": "",
        "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "neg": "", "abs": "",
        "bitwise_not": "invert",
    }.items()
}  # fmt: skip


@cache
def names() -> list[str]:
    """Operators whose results the arguments determine, hidden ones included."""
    drawn = (n for n in _C.record_names() if "." not in n and "::" not in n)
    return sorted(n for n in drawn if "empty" not in n and not _random(n))


def _random(name: str) -> bool:
    info = _C.op_info(name)
    drawn = any(p["type"] == "Generator" for p in info["params"])
    return info["kind"] == "random" or drawn or name.startswith(("rand", "dropout"))


def call(seed: int, index: int) -> dict[str, Any] | None:
    """The call as plain data, None if the drawn example cannot be written so."""
    draw = random.Random(f"{seed} {index}")
    name = draw.choice(names())
    examples = examples_of(name)
    if not examples:
        return None
    _, args, kwargs = draw.choice(examples)
    params = {p["name"]: p for p in _C.op_info(name)["params"]}
    types = [p["type"] for p in params.values()]
    drawn = _Draw(draw)
    try:
        given = [drawn.argument(a, t) for a, t in zip(args, types, strict=False)]
        named = {k: drawn.argument(a, params[k]["type"]) for k, a in kwargs.items()}
    except LookupError:
        return None
    left = [p for p in [*params.values()][len(args) :] if p["name"] not in named]
    if left and draw.random() < 0.15:
        p = draw.choice(left)
        value = drawn.fitting(p)
        if value is not None:
            named[p["name"]] = value
    receiver = bool(given) and "shape" in given[0]
    form = draw.choice(
        [f for f in forms(name, named) if receiver or f not in NEED_TENSOR] or ["record"]
    )
    return {
        "op": name,
        "form": form,
        "method": _method(name, form),
        "context": draw.choice(CONTEXTS) if form in IN_CONTEXT else "plain",
        "args": given,
        "kwargs": named,
        "out": drawn.tensor("", [], draw.choice(([], [0], [3, 4]))) if form == "out" else None,
    }


def forms(name: str, kwargs: dict[str, Any]) -> list[str]:
    """How an operator can be called with these keyword arguments."""
    is_public = hasattr(rabbet, name) or _C.op_info(name)["method"]
    there = {
        "function": hasattr(rabbet, name),
        "method": is_public and hasattr(rabbet.Tensor, name),
        "in_place": hasattr(rabbet.Tensor, name + "_"),
        "out": hasattr(rabbet, name) and _C.op_info(name)["rets"] == ["out"],
        "operator": name in OPERATORS and not kwargs,
    }
    return [form for form, has in there.items() if has] or ["record"]


def _method(name: str, form: str) -> str:
    named = {"method": name, "in_place": name + "_", "operator": OPERATORS.get(name, "")}
    return named.get(form, "")


class _Draw:
    """Draws the arguments of one call, most of them in one dtype."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.dtype = draw, draw.choice(DTYPES)

    def argument(self, node: Any, kind: str) -> Any:
        """What stands for an argument of an example (rabbet_testing.cases); `kind` is its type."""
        draw = self.draw
        if isinstance(node, list):
            return {"list": [self.argument(item, kind.removesuffix("[]")) for item in node]}
        if isinstance(node, tuple):
            if node[0] == "name":
                return {"dtype": self.dtype if node[1] == "dtype" else node[1]}
            if node[0] != "tensor":
                raise LookupError(node[0])
            if draw.random() < 0.03:
                return {"number": draw.choice(EDGES)}
            _, maker, given, shape = node
            return self.tensor(maker, given, shape)
        if isinstance(node, (int, float)) and not isinstance(node, bool):
            return self.number(node, kind)
        return {"value": node}

    def number(self, node: float, kind: str) -> Any:
        """The example's number, one near to it, one at the edges, or a 0-d tensor of one."""
        draw, how = self.draw, self.draw.random()
        if how < 0.02:
            return self.tensor("", [], [])
        if how < 0.12:
            return {"number": draw.choice(EDGES)}
        if how < 0.3:
            whole = kind in ("int", "dim", "newdim", "size")
            return {
                "number": draw.randrange(-4, 5) if whole else draw.choice((-1.5, 0.0, 0.25, 2.5, 3))
            }
        return {"number": node if abs(node) < float("inf") else str(float(node))}

    def tensor(self, maker: str, given: list[Any], shape: list[int]) -> Any:
        """A tensor as the example has it, sometimes of another shape or dtype."""
        if maker not in ("", "ties", "nan", "index", "mask", "positive", "wide"):
            raise LookupError(maker)
        draw, shape = self.draw, list(given) if maker == "wide" else list(shape)
        how = draw.random()
        if shape and how < 0.12:
            shape[draw.randrange(len(shape))] = draw.choice((0, 1, 2, 5))
        elif how < 0.15:
            shape = draw.choice(([], [1], [3], [2, 3], [2, 0, 3]))
        dtype = {"index": "int64", "mask": "bool"}.get(maker, self.dtype)
        if draw.random() < 0.1:
            dtype = draw.choice(DTYPES)
        return {"shape": shape, "dtype": dtype, "below": given[0] if maker == "index" else 0,
                "layout": draw.choice(LAYOUTS), "seed": draw.randrange(1 << 30),
                "special": draw.random() < 0.2}  # fmt: skip

    def fitting(self, param: dict[str, Any]) -> Any:
        """A value for a parameter that the example leaves out, None if its type has none here."""
        draw, kind = self.draw, param["type"]
        if param["choices"]:
            return {"value": draw.choice(param["choices"])}
        if kind == "bool":
            return {"value": draw.random() < 0.5}
        if kind == "dtype":
            return {"dtype": draw.choice(DTYPES)}
        if kind in ("int", "dim", "newdim"):
            return {"number": draw.randrange(-3, 4)}
        if kind in ("Scalar", "float"):
            return {"number": draw.choice((-1.5, 0.0, 0.25, 2, 3))}
        return {"list": [{"number": draw.randrange(-2, 3)}]} if kind in ("dim[]", "int[]") else None
