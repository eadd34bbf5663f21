"""Records and functions of plugins, wrong at random: refused by the wheel's name and the operator's, or right."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import rabbet
import rabbet.func

# Right records, of which some words are replaced; NS is the namespace.
RECORDS = (
    "NS::scale(Tensor input, float a=2.0) -> Tensor\n  dtypes  float\n  decomp  input * a\n  vjp input  grad * a\n"
    "  example (3,4), 1.5; ()\n  doc     Scaled.\n",
    "NS::middle(Tensor input, dim dim=-1, bool keepdim=False) -> Tensor\n  kind    composite\n"
    "  let     low = amin(input, [dim], keepdim)\n  decomp  (low + amax(input, [dim], keepdim)) / 2\n"
    "  example (3,4); (3,4), 0, True\n",
    "NS::outer_sum(Tensor x, Tensor y) -> Tensor\n  core    (m),(n)->(m,n)\n"
    "  decomp  unsqueeze(x, -1) + unsqueeze(y, -2)\n  check   x.dtype == y.dtype : TypeError: one dtype, got {y.dtype}\n"
    "  example (3), (4)\n",
    "NS::parts(Tensor input, int n) -> (Tensor head, Tensor tail)\n  kind    composite\n"
    "  def     cut(k) = k if k < input.shape[0] else input.shape[0]\n"
    "  decomp  [slice(input, 0, 0, cut(n)), slice(input, 0, cut(n), None)]\n  example (5,3), 2\n",
    "NS::choose(Tensor condition, Tensor input, *, str{'keep','drop'} mode='keep') -> Tensor\n  nocast  condition\n"
    "  dtype   input\n  shape   input.shape\n"
    "  decomp  where(condition, input, 0.0) if mode == 'keep' else where(condition, 0.0, input)\n"
    "  jvp     choose(condition, dot_input)\n  batch   leading condition, input\n  example mask(3), (3)\n",
)  # fmt: skip
WORDS = ("Tensor", "Tensor?", "Tensor[]", "int", "float", "dim", "str", "->", "(", ")", "[", "]", ",", ":", "=", "*",
         "+", "if", "else", "for", "in", "grad", "out", "input", "input.shape", "input.shape[9]", "input.dtype", "None",
         "1e400", "99999999999999999999", "-1", "0", "''", "decomp", "vjp", "jvp", "let", "def", "check", "example",
         "core", "batch", "kind", "elementwise", "reduction", "movement", "dtype", "shape", "data", "function nowhere",
         "sum", "amax", "reshape", "{x}", "(3,4)", "nan(4)", "\n", "\n  ", "\t", "\u00e9", "x" * 300)  # fmt: skip


def call(seed: int, index: int) -> dict[str, Any]:
    """The description of a wrong plugin."""
    return {"op": "plugin", "form": "plugin", "context": "plain", "draw": f"{seed} {index}"}


def run(call: dict[str, Any]) -> dict[str, Any]:
    """Register, and if that is taken, call the operator."""
    draw = random.Random(call["draw"])
    space = "fz" + re.sub(r"\W", "_", call["draw"])
    attempt = _record if draw.random() < 0.7 else _function
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt(space, draw)
        except rabbet.InternalError as error:
            return {"fault": f"InternalError: {error}"}
        except (RuntimeError, TypeError, ValueError, IndexError, _Own):
            pass
        except Exception as error:
            return {"fault": f"{type(error).__name__}: {error}"}
    return {"result": None}


def _record(space: str, draw: random.Random) -> None:
    words = re.split(r"(\s+|\W)", draw.choice(RECORDS).replace("NS", space))
    for _ in range(draw.choice((1, 1, 2, 3, 6))):
        at = draw.randrange(3, len(words))
        how = draw.randrange(3)
        if how == 0:
            words[at] = draw.choice(WORDS)
        elif how == 1:
            words[at:at] = [" ", draw.choice(WORDS), " "]
        else:
            del words[at]
    rabbet.library.register_records("".join(words), f"{space}.rec")
    for name in [n for n in rabbet._C.record_names() if n.startswith(space + "::")]:
        _called(rabbet.ops(name), draw)


def _called(op: Any, draw: random.Random) -> None:
    x, y = rabbet.rand(3, 4), rabbet.rand(4)
    for args in ((x,), (x, y), (y, y), (x > 0.5, x), (x, 2), (x, draw.choice((-9, 1 << 40)))):
        for way in (op, lambda *a: rabbet.func.vmap(op)(*a), lambda *a: op(a[0].to("meta"), *a[1:]),
                    lambda *a: rabbet.func.grad(lambda t: op(t, *a[1:]).sum())(*a[:1])):  # fmt: skip
            try:
                way(*args)
            except rabbet.InternalError:
                raise
            except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
                continue


class _Own(Exception):
    """What a plugin's function raises."""


def _raise(*args: Any) -> Any:
    raise _Own("from the plugin")


def _keep(x: Any, *args: Any) -> Any:
    return x


# What a function may do instead of giving a new tensor of the right kind.
DEEDS: tuple[Callable[..., Any], ...] = (
    lambda x, *a: x.sum(), lambda x, *a: x.double(), lambda x, *a: x.to("meta"), lambda x, *a: None,
    lambda x, *a: [x, x], lambda x, *a: (x,), lambda x, *a: 3, lambda x, *a: x.numpy(), _keep, _raise,
    lambda x, *a: x.add_(1), lambda x, *a: x[:1], lambda x, *a: x.expand(2, *x.shape), lambda x, *a: x * 2,
    lambda: None, lambda x, *a: x.detach(), lambda x, *a: x.reshape(-1), lambda x, *a: x.requires_grad_(),
)  # fmt: skip


def _function(space: str, draw: random.Random) -> None:
    schema = draw.choice((
        "(Tensor input) -> Tensor", "(Tensor input) -> (Tensor a, Tensor b)", "(Tensor input) -> Tensor[]",
        "(Tensor input, float a=2.0) -> Tensor", "(Tensor input) -> Tensor view(input)",
        "(Tensor(a!) input) -> ()", "(Tensor input) -> Tensor view?(input)",
    ))  # fmt: skip
    name = f"{space}::f"
    rabbet.library.define(name + schema)
    rabbet.library.impl(name, "cpu")(draw.choice(DEEDS))
    if draw.random() < 0.5:
        rabbet.library.vjp(name, lambda ctx, *grads: draw.choice(DEEDS)(*grads))
    if draw.random() < 0.5:
        rabbet.library.shape(name, lambda x, *a: draw.choice((x, x.sum(), None, [x], 7)))
    if draw.random() < 0.3:
        rabbet.library.batch(name, lambda *a, **k: draw.choice((None, a, (a, 0), 5)))
    strict = rabbet.library.strict(draw.random() < 0.5)
    with strict:
        _called(rabbet.ops(name), draw)
        x = rabbet.rand(3, 4, requires_grad=True)
        result = rabbet.ops(name)(x)
        result.sum().backward()
