"""What training or inference needs of a device: `python -m rabbet doctor --device NAME --for training`.

Small programs run on meta tensors, which need no kernels. The operators that they call, and those that the
decompositions of these call where the device has no kernel, are looked up in the device's kernels.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import rabbet

from . import _C, _plugins, library
from ._doctor_text import wrapped

PURPOSES = ("inference", "training")
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad")


# ---- the programs


def _wheel(module: str) -> Any:
    """A module that another wheel has; ImportError names it where it is missing."""
    return importlib.import_module(f"rabbet.{module}")


def _mlp() -> tuple[Any, Any]:
    nn = _wheel("nn")
    model = nn.Sequential(nn.Linear(8, 8, **_META), nn.ReLU(), nn.Linear(8, _CLASSES, **_META))
    return model, rabbet.empty(2, 8, **_META)


def _cnn() -> tuple[Any, Any]:
    nn = _wheel("nn")
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, **_META), nn.BatchNorm2d(4, **_META), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, **_META), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, _CLASSES, **_META),
    )  # fmt: skip
    return model, rabbet.empty(2, 3, 12, 12, **_META)


def _transformer() -> tuple[Any, Any]:
    nn = _wheel("nn")
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.1, activation="gelu", batch_first=True, norm_first=True, **_META
    )
    model = nn.Sequential(
        nn.Embedding(10, 8, **_META), layer, nn.LayerNorm(8, **_META), nn.Linear(8, _CLASSES, **_META)
    )  # fmt: skip
    return model, rabbet.zeros(2, 6, dtype=rabbet.int64, **_META)


_META: dict[str, Any] = {"device": "meta"}
_CLASSES = 4
_MODELS = {"MLP": _mlp, "CNN": _cnn, "transformer": _transformer}


def _run_model(make: Callable[[], tuple[Any, Any]], purpose: str) -> _Calls:
    model, x = make()
    model.train(purpose == "training")
    if purpose == "inference":
        with _called() as calls, rabbet.no_grad():
            model(x)
        return calls
    with _called() as calls:
        scores = model(x).reshape(-1, _CLASSES)
        labels = rabbet.zeros(len(scores), dtype=rabbet.int64, **_META)
        _wheel("nn").functional.cross_entropy(scores, labels).backward()
    return calls


def _run_optimizer(name: str) -> _Calls:
    parameters = [_wheel("nn").Parameter(rabbet.empty(3, 4, **_META)) for _ in range(2)]
    for p in parameters:
        p.grad = rabbet.empty(3, 4, **_META)
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    optimizer = getattr(_wheel("optim"), name)(parameters, lr=0.1, weight_decay=0.01, **options)
    with _called() as calls:
        optimizer.step()
    return calls


class _Calls:
    """The records that a block called itself, and for each record those that its calls called."""

    def __init__(self) -> None:
        self.own: set[str] = set()
        self.inside: dict[str, set[str]] = {}

    def add(self, events: list[dict[str, Any]]) -> None:
        running: dict[int, list[str]] = {}  # by thread
        for event in events:
            stack = running.setdefault(event["thread"], [])
            if event["kind"] == "end":
                stack.pop()
                continue
            if not stack:
                self.own.add(event["op"])
            elif stack[-1] != event["op"]:  # not what a layer passes on
                self.inside.setdefault(stack[-1], set()).add(event["op"])
            stack.append(event["op"])


@contextmanager
def _called() -> Iterator[_Calls]:
    calls = _Calls()
    with warnings.catch_warnings(), library.events(memory=False) as found:
        warnings.simplefilter("ignore")
        yield calls
    calls.add([e for e in found if e["kind"] in ("begin", "end")])


# ---- what a device does with an operator


@cache
def _parts(op: str) -> frozenset[str]:
    """The records that the decomposition of `op` calls, in the calls that its record has as examples."""
    found: set[str] = set()
    info = _C.op_info(op)
    names = [p["name"] for p in info["params"]]
    defaults = {p["name"]: p["default"] for p in info["params"] if p["has_default"]}
    creates = any(p["name"] == "device" for p in info["params"])
    for _, args, kwargs in info["examples"]:
        made: dict[str, Any] = {}
        items = [*zip(names, args, strict=False), *kwargs.items()]
        # Some examples are of other dtypes, and some decompositions read the values of tensors.
        with suppress(RuntimeError, TypeError, ValueError, IndexError):
            for name, argument in sorted(items, key=lambda item: _is_result(item[1])):
                made[name] = _made(argument, defaults | made)
            given = [made.pop(name) for name in names[: len(args)]]
            with _called() as calls:
                _C.decomposed(rabbet.ops(op), tuple(given), made | (_META if creates else {}))
            found |= calls.own
    return frozenset(found - {op})


def _is_result(argument: Any) -> bool:
    """Whether another operator makes it, perhaps of the other arguments."""
    return isinstance(argument, tuple) and argument[0] == "result"


def _shape_of(numbers: Any) -> tuple[list[int], bool]:
    """The shape of nested lists, and whether all numbers are whole."""
    if not isinstance(numbers, list):
        return [], isinstance(numbers, int)
    inner = [_shape_of(n) for n in numbers]
    return [len(numbers), *(inner[0][0] if inner else [])], all(whole for _, whole in inner)


def _made(argument: Any, others: dict[str, Any]) -> Any:
    """An argument of an example, where `others` are made already; tensors as meta tensors."""
    if isinstance(argument, list):
        return [_made(a, others) for a in argument]
    if not isinstance(argument, tuple):
        return argument
    kind, name, *rest = argument
    if kind == "tensor":
        numbers, shape = rest
        dtype = {"index": rabbet.int64, "mask": rabbet.bool}.get(name, rabbet.float32)
        if name == "data":
            shape, whole = _shape_of(numbers[0])
            dtype = rabbet.int64 if whole else dtype
        elif name in ("sorted", "wide", "spd", "orthogonal"):
            shape = numbers * (1 if name in ("sorted", "wide") else 2)
        return rabbet.empty(shape, dtype=dtype, **_META)
    if kind == "name":
        return others[name] if name in others else getattr(rabbet, name, rabbet.float32)
    of, named, at = rest
    given = {key: _made(a, others) for key, a in named.items()}
    results = rabbet.ops(name)(*(_made(a, others) for a in of), **given)
    return results[at] if isinstance(results, tuple) else results


def _sort(device: str, calls: _Calls) -> dict[str, list[str]]:
    """How a device runs what a program called: by kernels, by decompositions, or not at all."""
    kernels, made, missing = set(), set(), set()
    todo, seen = list(calls.own), set(calls.own)
    while todo:
        op = todo.pop()
        info = _C.op_info(op)
        if device in info["kernels"]:
            kernels.add(op)
        elif info["has_decomp"] or "decomp" in info["rules"]:
            made.add(op)
            parts = calls.inside.get(op) or _parts(op)  # elementwise ones call nothing on meta
            todo += parts - seen
            seen |= parts
        elif not (info["view"] or info["in_core"]):
            missing.add(op)
    return {"kernels": sorted(kernels), "decomposed": sorted(made), "missing": sorted(missing)}


def needs(device: str, purpose: str) -> dict[str, dict[str, list[str]]]:
    """For each kind of program the records that it needs: `kernels` that the device has, `decomposed`, `missing`.

    Args:
        purpose: "inference" or "training".

    Raises:
        PluginError: if there is no such device.
        ImportError: naming the wheel that the programs need.
    """
    rabbet.device(device)
    _plugins.require_backend(device)
    found = {name: _sort(device, _run_model(make, purpose)) for name, make in _MODELS.items()}
    if purpose == "training":
        for name in _OPTIMIZERS:
            found[f"optimizer {name}"] = _sort(device, _run_optimizer(name))
    return found


def text(device: str, purpose: str, found: dict[str, dict[str, list[str]]]) -> str:
    """What `needs` found, for people."""
    lines = [f"{purpose} on '{device}', float32"]
    for name, ways in found.items():
        runs = "cannot run" if ways["missing"] else "runs"
        lines.append(f"{name}: {runs}, kernels of {len(ways['kernels'])} operators")
        if ways["missing"]:
            lines += wrapped(f"no kernel and no decomposition: {', '.join(ways['missing'])}", 2)
        if ways["decomposed"]:
            lines += wrapped(f"by decomposition: {', '.join(ways['decomposed'])}", 2)
    return "\n".join(lines)
