"""Random programs with state that changes between their calls, for comparing replayed calls with eager ones.

A program is the source of a method of `World`. Two worlds with equal state run it: one as it is, one compiled. Between
two calls a random change is made to both worlds. Everything that a program can reach is compared after each call.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import rabbet
import rabbet.nn as nn
from rabbet import Tensor

STATEMENTS = [
    "t = t * self.scale",
    "t = t + G_SCALE",
    "t = G_FUNCTION(t)",
    "t = t * bound(t)",
    "t = helper(t, self.scale)",
    "t = helper(t, factor=self.table.get('a', 3.0))",
    "if self.flag: t = t.relu()",
    "t = -t if not self.flag else t + 1",
    "for w in self.weights: t = t + w.sum()",
    "for n in self.names: t = t * (n + 1)",
    "for key, value in self.table.items(): t = t + value * len(key)",
    "t = t + sum(self.names)",
    "t = t * max([*self.names, 1])",
    "t = t + sum([value for value in self.table.values() if value > 0.5])",
    "t = t - (2 if 'a' in self.table else 3)",
    "t = t + self.weights[0].mean() if self.weights else t",
    "t = t + k",
    "t = nested(t)",
    "t = self.module(t) if t.is_floating_point() else t",
    "t = self.tuned(t)",
    "x.add_(1)",
    "y.mul_(self.scale)",
    "t = t + y.sum()",
    "t = t + (1 if x is y else 2)",
    "self.buffer.add_(t.detach().float().mean())",
    "t = t + self.buffer",
    "self.last = t.detach()",
    "t = t + (0 if self.last is None else self.last.sum())",
    "self.note = 'seen'",
    "self.memo['shape'] = t.shape[0]",
    "self.names.append(1)\n    self.names.pop()",
    "self.count += 1",
    "self.record.append(t.shape[0])",
    "t = t + rabbet.rand(t.shape)",
    "t = rabbet.nn.functional.dropout(t, 0.5, self.module.training) if t.is_floating_point() else t",
    "if len(self.names) > 2: t = t.sin()",
    "if t.shape[0] > 3: t = t.cos()",
    "if t.dtype == rabbet.float32: t = t * 2",
    "if x.requires_grad: t = t * 1.5",
    "with rabbet.no_grad(): t = t * 2",
    "t = t if rabbet.is_grad_enabled() else t + 5",
    "t = t.to(self.dtype)",
    "t = t + 1 if t.sum().item() > 0 else t - 1",
    "try: t = t + self.missing\n    except AttributeError: t = t - 1",
    "t = t + getattr(self, 'maybe', 4)",
    "t = t * (2 if hasattr(self, 'maybe') else 3)",
    "if self.raises: raise ValueError(f'raised for {self.scale}')",
    "t = t + rabbet.tensor([1.0, self.scale]).sum()",
    "a, b = self.pair\n    t = t * a + b",
    "t = t[self.start:]",
    "t = t + self.limit",
    "t = t * self.computed",
    "t = t + len(self.module)",
    "t = rabbet.cat([t, t * self.scale])[: t.shape[0]]",
    "t = t.transpose(0, -1)",
    "t = t + (3 if isinstance(self.weights, list) else 4)",
    "t = t * rabbet.ones(2).sum()",
    "t = rabbet.nn.functional.embedding(rabbet.arange(2), self.embedding).sum() + t",
    "t = rabbet.nn.functional.embedding(self.index, self.embedding).sum() + t",
    "loss = self.module(x.float()).square().mean()\n    self.optimizer.zero_grad()\n    loss.backward()\n"
    "    self.optimizer.step()\n    t = t + loss.detach()",
    "self.module(x.float()).sum().backward()\n    t = t + (1 if self.module[0].weight.grad is None else 2)",
    "self.module[0].weight.grad = None",
    "t = t + rabbet.nn.functional.cross_entropy(self.normed(x.float())[:2], self.targets).detach()",
    "try: t = t + rabbet.nn.functional.cross_entropy(self.normed(x.float())[:2], self.targets).detach()\n"
    "    except (IndexError, RuntimeError, ValueError): self.note = 'failed'",
    "self.count += 1\n    t = t + self.count",
    "self.count += 2\n    self.rate = self.rate * 0.5 + self.count\n    t = t * self.rate",
    "if self.count % 3 == 1: t = t - 1",
    "self.table['a'] = self.table.get('a', 0.5) * 1.5",
    "t = t * max(self.count, 2)",
]  # fmt: skip
RESULTS = [
    "t",
    "(t, x)",
    "{'t': t, 'n': len(self.names)}",
    "[t, self.scale]",
    "t, self.weights",
    "x",
    "None",
    "t, self.last",
]

_PROLOGUE = """
G_SCALE = 1.5
def G_FUNCTION(t):
    return t + 0.5
def helper(t, factor=2.0):
    return t * factor
def make(k):
    def bound(t):
        return k + 1
    def nested(t):
        return (lambda u: u * k)(t)
    def step(self, x, y):
        t = x
"""
_EPILOGUE = """
    def set_k(value):
        nonlocal k
        k = value
    return step, set_k
"""


def program(rng: random.Random) -> str:
    """The source of a program."""
    lines = rng.sample(STATEMENTS, rng.randint(1, 6))
    body = "".join("        " + line.replace("\n    ", "\n        ") + "\n" for line in lines)
    return f"{_PROLOGUE}{body}        return {rng.choice(RESULTS)}\n{_EPILOGUE}"


class World:
    """The state that a program sees."""

    limit = 7

    @property
    def computed(self) -> float:
        return self.scale * 3

    def __init__(self, source: str, seed: int, optimizer: str) -> None:
        rabbet.manual_seed(seed)
        self.scale, self.flag, self.names = 1.25, True, [1, 2]
        self.table = {"a": 0.5, "bc": 1.5}
        self.weights = [rabbet.randn(3), rabbet.randn(2)]
        self.module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 4))
        options = {"momentum": 0.9} if optimizer == "SGD" else {}
        self.optimizer = getattr(rabbet.optim, optimizer)(
            self.module.parameters(), lr=0.1, **options
        )
        self.buffer = rabbet.zeros(())
        self.last, self.note, self.memo, self.count, self.record = None, "", {}, 0, []
        self.dtype, self.raises, self.pair, self.start = rabbet.float32, False, (2, 3), 0
        self.embedding, self.index = rabbet.randn(5, 3), rabbet.tensor([0, 4])
        self.normed, self.targets = (
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
            rabbet.tensor([0, 1]),
        )
        self.rate = 1.0
        self.tuned = lambda t: t + 0.25
        self.globals: dict[str, Any] = {"rabbet": rabbet}
        exec(compile(source, f"<program {seed}>", "exec"), self.globals)
        self.step, self.set_k = self.globals["make"](2)
        self.step = types.MethodType(self.step, self)

    def state(self) -> dict[str, Any]:
        """All that a program may have changed."""
        kept = [
            "scale",
            "flag",
            "names",
            "table",
            "weights",
            "buffer",
            "last",
            "note",
            "memo",
            "count",
            "record",
            "pair",
            "embedding",
            "rate",
        ]
        found = {name: getattr(self, name) for name in kept}
        for part in ("module", "normed"):
            for name, tensor in getattr(self, part).state_dict().items():
                found[f"{part}.{name}"] = tensor
        for name, parameter in self.module.named_parameters():
            found[f"grad.{name}"] = parameter.grad
        for i, entry in enumerate(self.optimizer.state.values()):
            found[f"optimizer.{i}"] = dict(entry)
        return found


def _replace_parameter(world: World, rng: random.Random) -> None:
    world.module[0].weight = nn.Parameter(world.module[0].weight.detach() * 2)
    world.optimizer.param_groups[0]["params"][0] = world.module[0].weight


def _hook(world: World, rng: random.Random) -> None:
    world.module[0].register_forward_hook(lambda module, args, result: result * 2)


def _tensor_hook(world: World, rng: random.Random) -> None:
    if world.module[0].weight.requires_grad:
        world.module[0].weight.register_hook(lambda grad: grad * 3)


def _new_class_attribute(world: World, rng: random.Random) -> None:
    World.limit = rng.randint(1, 9)


def _new_code(world: World, rng: random.Random) -> None:
    other: dict[str, Any] = {}
    exec(f"def helper(t, factor=2.0):\n    return t * factor + {rng.randint(1, 9)}", other)
    world.globals["helper"].__code__ = other["helper"].__code__


def _set_grads(world: World, rng: random.Random) -> None:
    for parameter in world.module.parameters():
        parameter.grad = None if rng.random() < 0.5 else rabbet.ones_like(parameter)


def _set(name: str, *choices: Any) -> Callable[[World, random.Random], None]:
    def change(world: World, rng: random.Random) -> None:
        setattr(world, name, rng.choice(choices))

    return change


CHANGES: list[Callable[[World, random.Random], None]] = [
    _set("scale", 1.25, 0.5, -1.0, 2),
    _set("flag", True, False),
    _set("raises", True, False, False),
    _set("dtype", rabbet.float32, rabbet.float64),
    _set("pair", (2, 3), (4.0, 1), [2, 3]),
    _set("start", 0, 1),
    _set("limit", 1, 2),
    _set("maybe", 1, 2.5),
    _set("missing", 3, 4),
    _set("last", None),
    lambda w, r: w.names.append(r.randint(0, 3)),
    lambda w, r: w.names and w.names.pop(),
    lambda w, r: w.names.__setitem__(slice(None), [2, 1]),
    lambda w, r: w.table.__setitem__(r.choice(["a", "d"]), r.choice([0.25, 2.5])),
    lambda w, r: w.table.pop("a", None),
    lambda w, r: w.table.update(dict(reversed(list(w.table.items())))),
    lambda w, r: w.weights.append(rabbet.ones(2)),
    lambda w, r: w.weights and w.weights.__setitem__(0, w.weights[0] * 2),
    lambda w, r: w.weights and w.weights[0].add_(1),
    lambda w, r: w.weights.clear(),
    lambda w, r: w.globals.__setitem__("G_SCALE", r.choice([1.5, 2.5])),
    lambda w, r: w.globals.__setitem__("G_FUNCTION", lambda t: t - 2),
    lambda w, r: w.globals["helper"].__setattr__("__defaults__", (r.choice([2.0, 4.0]),)),
    lambda w, r: w.set_k(r.choice([2, 3, 0.5])),
    lambda w, r: w.module.train(r.random() < 0.5),
    lambda w, r: w.module[0].weight.requires_grad_(r.random() < 0.5),
    lambda w, r: w.optimizer.param_groups[0].__setitem__("lr", r.choice([0.1, 0.01])),
    lambda w, r: w.__dict__.pop("maybe", None),
    lambda w, r: setattr(w, "tuned", lambda t: t * 4),
    lambda w, r: w.targets.fill_(r.choice([0, 1, 9])),
    lambda w, r: w.normed.train(r.random() < 0.5),
    lambda w, r: setattr(w, "count", r.choice([0, 7, 2.5, True])),
    lambda w, r: w.index.fill_(r.choice([1, 2, 9])),
    lambda w, r: setattr(w, "embedding", w.embedding.t().contiguous().t()),
    lambda w, r: w.module.__setitem__(1, r.choice([nn.GELU(), nn.ReLU()])),
    _replace_parameter, _hook, _tensor_hook, _new_class_attribute, _new_code, _set_grads,
]  # fmt: skip


def arguments(rng: random.Random) -> Callable[[], tuple[Tensor, Tensor]]:
    """A function that makes the arguments of a call, the same each time."""
    rows, kind, dtype = (
        rng.choice([2, 2, 2, 5]),
        rng.choice("nnnnnntgase"),
        rng.choice([rabbet.float32] * 5 + [rabbet.float64]),
    )
    seed = rng.randint(0, 1000)

    def make() -> tuple[Tensor, Tensor]:
        generator = rabbet.Generator().manual_seed(seed)
        x = rabbet.randn(rows, 4, generator=generator).to(dtype)
        y = rabbet.randn(3, generator=generator)
        if kind == "t":
            x = rabbet.randn(4, rows, generator=generator).t()
        if kind == "g":
            x.requires_grad_()
        if kind == "a":
            y = x
        if kind == "s":
            y = x[0]
        if kind == "e":
            x = x[:0]
        return x, y

    return make


# ---- comparing


def differences(where: str, eager: Any, other: Any) -> list[str]:
    """What differs between two objects, bit for bit."""
    if type(eager) is not type(other):
        return [f"{where}: {type(eager).__name__} and {type(other).__name__}"]
    if isinstance(eager, Tensor):
        return _of_tensors(where, eager, other)
    if isinstance(eager, dict):
        if list(eager) != list(other):
            return [f"{where}: keys {list(eager)} and {list(other)}"]
        return [
            d for key in eager for d in differences(f"{where}[{key!r}]", eager[key], other[key])
        ]
    if isinstance(eager, (list, tuple)):
        if len(eager) != len(other):
            return [f"{where}: {len(eager)} and {len(other)} items"]
        return [
            d
            for i, pair in enumerate(zip(eager, other, strict=True))
            for d in differences(f"{where}[{i}]", *pair)
        ]
    return [] if eager == other else [f"{where}: {eager!r} and {other!r}"]


def _of_tensors(where: str, eager: Tensor, other: Tensor) -> list[str]:
    def kind(t: Tensor) -> tuple[Any, ...]:
        return tuple(t.shape), t.stride(), t.dtype, t.requires_grad, t.is_leaf, t.is_contiguous()

    if kind(eager) != kind(other):
        return [f"{where}: {kind(eager)} and {kind(other)}"]
    if _bytes(eager) != _bytes(other):
        return [f"{where}: {eager} and {other}"]
    return []


def _bytes(t: Tensor) -> bytes:
    t = t.detach().contiguous()
    t = t.double() if t.dtype == rabbet.bfloat16 else t
    return bytes(t.numpy().tobytes())


def outcome(
    step: Callable[..., Any], make: Callable[[], tuple[Tensor, Tensor]], seed: int
) -> list[Any]:
    """The result of a call or its error, the arguments afterwards, and the state of the generator."""
    x, y = make()
    rabbet.manual_seed(seed)
    try:
        result: Any = step(x, y)
        same = result is x
    except Exception as error:
        result, same = (type(error).__name__, str(error)), False
    grads = backward(result)
    return [result, same, x, y, x.grad, grads, rabbet.get_rng_state()]


def backward(result: Any) -> Any:
    """The gradients of a result that requires grad, which its history gives."""
    if not isinstance(result, Tensor) or not result.requires_grad:
        return None
    try:
        result.sum().backward()
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return None
