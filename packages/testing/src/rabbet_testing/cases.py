"""Calls of every operator, read from the `example` and `domain` lines of its record (docs/reference/records.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import rabbet
from rabbet import _C


@dataclass
class Case:
    """One call: `rabbet.ops(op)(*args, **kwargs)`.

    Attributes:
        label: the call as the record writes it.
        smooth: whether finite differences make sense: no ties, no NaN, not the whole range.
        dependent: whether some arguments are results for others, which cannot be changed alone.
    """

    op: str
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    smooth: bool = True
    dependent: bool = False

    def run(self, *args: Any) -> Any:
        """Call the operator, with other arguments if given."""
        return rabbet.ops(self.op)(*(args or self.args), **self.kwargs)

    def with_arguments(self, args: list[Any], kwargs: dict[str, Any] | None = None) -> Case:
        """The same call with other arguments."""
        given = self.kwargs if kwargs is None else kwargs
        return Case(self.op, args, given, self.label, self.smooth, self.dependent)

    def __str__(self) -> str:
        return f"{self.op}[{self.label}]" if self.label else self.op


class NoCase(LookupError):
    """An example has no meaning in a dtype; the message says why."""


def op_names() -> list[str]:
    """All records whose calls take tensors."""
    return [n for n in _C.record_names() if _C.op_info(n)["kind"] != "creation"]


def creation_names() -> list[str]:
    """The records that make tensors."""
    return [n for n in _C.record_names() if _C.op_info(n)["kind"] == "creation"]


# ---- values

_COMPLEX_ONLY = rabbet.complex64.name.removesuffix("64")  # the class of dtypes, as a record says it

# What a domain allows: (low, low is allowed, high, high is allowed, 0 is not), None where there is no bound.
Bounds = tuple[float | None, bool, float | None, bool, bool]
ANYWHERE: Bounds = (None, False, None, False, False)
POSITIVE: Bounds = (0.0, False, None, False, False)


class Maker:
    """Draws tensors; equal seeds give equal tensors."""

    def __init__(self, seed: int, dtype: Any, requires_grad: bool) -> None:
        rabbet.manual_seed(seed)
        self.dtype, self.requires_grad = dtype, requires_grad
        self.inexact = dtype.is_floating_point or dtype.is_complex
        self.made = 0  # tensors of this call, so that no two hold the same numbers

    def tensor(self, *shape: int, bounds: Bounds = ANYWHERE) -> Any:
        """Values in about [-2, 2], away from the kinks at 0 and from each other; of integers 1 to 7 in size."""
        n = math.prod(shape)
        if not self.inexact:
            return self._whole(n, bounds).reshape(shape).to(self.dtype)
        grid = rabbet.linspace(-1.9, 2.1, max(n, 1), dtype=rabbet.float64)[:n]
        grid = grid * (1 - 0.037 * self.made)
        self.made += 1
        x = _between(grid[rabbet.randperm(n)], bounds).reshape(shape).to(self.dtype)
        if self.dtype.is_complex:
            x = x + 0.3j * x.flip(list(range(x.ndim))) if x.ndim else x + 0.2j
        return self._finished(x)

    def _finished(self, x: Any) -> Any:
        return x.requires_grad_() if self.requires_grad and self.inexact else x

    def _whole(self, n: int, bounds: Bounds) -> Any:
        order = rabbet.randperm(max(n, 1))[:n]
        low, _, high, _, _ = bounds
        if self.dtype is rabbet.bool:
            allowed = [v for v in (0, 1) if _allows(bounds, v)]
            order = rabbet.randint(0, 97, (n,))
        elif low is None and high is None:
            x = order % 7 + 1
            return x * (1 - 2 * rabbet.randint(0, 2, (n,))) if self.dtype.is_signed else x
        else:
            least = -7 if low is None else math.floor(low)
            most = least + 8 if high is None else math.ceil(high)
            fitting = range(least if self.dtype.is_signed else max(least, 0), most + 1)
            allowed = [v for v in fitting if _allows(bounds, v)]
        if not allowed:
            raise NoCase(f"no {self.dtype} lies in the domain")
        return rabbet.tensor(allowed)[order % len(allowed)]

    def index(self, size: int, *shape: int) -> Any:
        """int64 indices below `size`."""
        return rabbet.randint(0, size, shape)

    def mask(self, *shape: int) -> Any:
        """Bools, True on the diagonal of the last two dimensions."""
        x = rabbet.randint(0, 2, shape) > 0
        return x | (rabbet.eye(*shape[-2:]) > 0) if len(shape) > 1 else x

    def ties(self, *shape: int, bounds: Bounds = ANYWHERE) -> Any:
        """As `tensor`, of three values, one of which is 0 where the domain allows that."""
        n = math.prod(shape)
        values = self.tensor(3, bounds=bounds).detach()
        if _allows(bounds, 0):
            values = values * rabbet.tensor([1, 0, 1]).to(values.dtype)
        return self._finished(values[rabbet.arange(n) % 3].reshape(shape))

    def nan(self, *shape: int, bounds: Bounds = ANYWHERE) -> Any:
        """As `tensor`, with NaN at every third place; integers have none."""
        x = self.tensor(*shape, bounds=bounds).detach()
        if not self.inexact:
            return x
        return self._finished(
            x.masked_fill((rabbet.arange(x.numel()) % 3 == 1).reshape(shape), math.nan)
        )

    def wide(self, n: int, bounds: Bounds = ANYWHERE) -> Any:
        """The whole range of the dtype: all magnitudes, both signs, 0."""
        if not self.inexact:
            if self.dtype is rabbet.bool:
                return self.tensor(n)
            info = rabbet.iinfo(self.dtype)
            least, most = max(info.min, -(1 << 53)), min(info.max, 1 << 53)
            return rabbet.linspace(least, most, n, dtype=rabbet.float64).to(self.dtype)
        limits = rabbet.finfo(self.dtype)
        powers = rabbet.linspace(
            math.log2(limits.tiny),
            math.log2(limits.max) - 1e-3,
            max(n - 1, 1),
            dtype=rabbet.float64,
        )
        signs = 1 - 2 * (rabbet.arange(max(n - 1, 1)) % 2)
        x = rabbet.cat([rabbet.zeros(1, dtype=rabbet.float64), powers.exp2() * signs])[:n]
        low, _, high, _, _ = bounds
        x = x.abs() if low is not None and low >= 0 else x
        if high is not None:
            x = x.clamp(max=high) if low is None else _between(x.tanh() * 2, bounds)
        return self._finished(x.to(self.dtype))

    def exact(self, *shape: int) -> Any:
        """Integers of both signs that a float of the same size rounds: odd ones, beyond 2 ** 54 and 2 ** 26."""
        bits = {rabbet.int64: 54, rabbet.int32: 26}.get(self.dtype)
        if bits is None:
            raise NoCase(f"of {self.dtype} a float holds every number")
        n = math.prod(shape)
        x = (1 << bits) + 2 * rabbet.randperm(max(n, 1))[:n] + 1
        return (x * (1 - 2 * (rabbet.arange(n) % 3 == 1).to(x.dtype))).reshape(shape).to(self.dtype)

    def signed_zeros(self, *shape: int, bounds: Bounds = ANYWHERE) -> Any:
        """As `tensor`, with 0 and -0 at two of four places."""
        if not self.dtype.is_floating_point:
            raise NoCase(f"of {self.dtype} zero has no sign")
        if not _allows(bounds, 0):
            raise NoCase("0 does not lie in the domain")
        x = self.tensor(*shape, bounds=bounds).detach()
        place = (rabbet.arange(x.numel()) % 4).reshape(shape)
        return self._finished(x.masked_fill(place == 1, 0.0).masked_fill(place == 3, -0.0))

    def positive(self, *shape: int) -> Any:
        """As `tensor`, above 0."""
        return self.tensor(*shape, bounds=POSITIVE)

    def spd(self, n: int) -> Any:
        """A symmetric positive definite matrix (Hermitian of complex numbers) of condition below 4."""
        if not self.inexact:
            return rabbet.eye(n, dtype=self.dtype)
        x = self.tensor(n, n).detach()
        return self._finished(
            x @ x.mT.conj() * (0.5 / max(n, 1)) + rabbet.eye(n, dtype=self.dtype) * max(n, 1)
        )

    def hermitian(self, n: int) -> Any:
        """As `spd`, but never requiring grad: operators that read one triangle ignore a change of the other."""
        return self.spd(n).detach()

    def fixed(self, *shape: int, bounds: Bounds = ANYWHERE) -> Any:
        """As `tensor`, but never requiring grad: for results that are unique only up to signs or phases."""
        return self.tensor(*shape, bounds=bounds).detach()

    def orthogonal(self, n: int) -> Any:
        """A reflection."""
        v = self.tensor(n, 1).detach()
        reflected = rabbet.eye(n, dtype=self.dtype) - 2 * (v @ v.mT.conj()) / (v.mT.conj() @ v).real
        return self._finished(reflected)

    def sorted(self, n: int) -> Any:
        """`n` ascending numbers."""
        if self.dtype is rabbet.bool or self.dtype.is_complex:
            raise NoCase(f"numbers of {self.dtype} have no order")
        low = -n // 2 if self.dtype.is_signed else 0
        x = rabbet.arange(low, low + n)
        return self._finished(x.to(self.dtype) * 0.45 if self.inexact else x.to(self.dtype))

    def data(self, values: list[Any]) -> Any:
        """These numbers: whole ones as int64, others in the dtype under test; they never require grad."""
        made = rabbet.tensor(values)
        return made.to(self.dtype) if made.is_floating_point() and self.inexact else made


def _allows(bounds: Bounds, value: float) -> bool:
    low, low_closed, high, high_closed, nonzero = bounds
    above = low is None or value > low or (low_closed and value == low)
    below = high is None or value < high or (high_closed and value == high)
    return above and below and not (nonzero and value == 0)


def _between(x: Any, bounds: Bounds) -> Any:
    """Numbers of about [-2, 2] moved into the inner part of an interval."""
    low, _, high, _, _ = bounds
    if low is not None and high is not None:
        return x * (0.2 * (high - low)) + (low + high) / 2
    if low is not None:
        return x.abs() + (low + 0.3)
    return x if high is None else (high - 0.3) - x.abs()


# ---- examples

_SPECIAL = {"ties", "nan", "wide", "signed_zeros"}


class _Reader:
    """Makes the arguments of one example."""

    def __init__(self, op: str, maker: Maker) -> None:
        self.info, self.maker = _C.op_info(op), maker
        maker.made = 0
        self.bounds: dict[str, Bounds] = self.info["domain"]
        self.names = [p["name"] for p in self.info["params"]]
        self.made: dict[str, Any] = {}
        self.smooth, self.dependent = True, False

    def read(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments in the order of the signature, whose results may be for others."""
        written = [*zip(self.names, args, strict=False), *kwargs.items()]
        # Results are made when all that they are of is there.
        for name, node in sorted(written, key=lambda item: _is_result(item[1])):
            self.made[name] = self.value(node, self.bounds.get(name, ANYWHERE))
        return [self.made[n] for n in self.names[: len(args)]], {k: self.made[k] for k in kwargs}

    def value(self, node: Any, bounds: Bounds = ANYWHERE) -> Any:
        if isinstance(node, list):
            return [self.value(item, bounds) for item in node]
        if not isinstance(node, tuple):
            return node
        what, *parts = node
        if what == "name":
            return self._named(parts[0])
        if what == "result":
            return self._result(*parts)
        maker, given, shape = parts
        return self._tensor(maker, given, shape, bounds)

    def _named(self, name: str) -> Any:
        if name == "dtype":
            return self.maker.dtype
        if name in self.names:
            value = self.made[name]
            return value.detach() if isinstance(value, rabbet.Tensor) else value
        dtype = getattr(rabbet, name)
        if self.maker.dtype.is_complex and not dtype.is_complex:
            raise NoCase(f"{self.maker.dtype} is cast to no {dtype}")
        return dtype

    def _tensor(self, maker: str, given: list[Any], shape: list[int], bounds: Bounds) -> Any:
        self.smooth &= maker not in _SPECIAL
        make = getattr(self.maker, maker or "tensor")
        if maker in ("", "wide", "ties", "nan", "fixed", "signed_zeros"):
            return make(*given, *shape, bounds=bounds)
        return make(*given, *shape)

    def _result(self, op: str, args: list[Any], kwargs: dict[str, Any], which: int) -> Any:
        self.dependent = True
        given = [self.value(a) for a in args]
        try:
            found = rabbet.ops(op)(*given, **{k: self.value(v) for k, v in kwargs.items()})
        except (TypeError, NotImplementedError) as error:
            raise NoCase(f"its argument is a result of {op}, which is refused: {error}") from error
        found = found if isinstance(found, rabbet.Tensor) else found[which]
        return self.maker._finished(found.detach().clone()) if found.is_floating_point() else found


def _is_result(node: Any) -> bool:
    return isinstance(node, tuple) and node[0] == "result"


# What fits an argument of an operator of others that gives no examples: values as op_info has them.
_FITTING: dict[str, Any] = {
    "Scalar": 0.75,
    "float": 0.75,
    "int": 1,
    "bool": True,
    "dim": -1,
    "newdim": -1,
    "dim[]": [0],
}


def examples_of(name: str) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """The examples of a record as text, arguments and keyword arguments.

    Where it gives none the types say what fits: tensors of shapes (3, 4) and (4), numbers, dimensions.
    """
    info = _C.op_info(name)
    written: list[tuple[str, list[Any], dict[str, Any]]] = info["examples"]
    if written:
        return written
    args: list[Any] = []
    for p in info["params"]:
        if p["keyword_only"] or (p["has_default"] and p["type"] != "Tensor"):
            break
        if p["type"] == "Tensor":
            args.append(("tensor", "", [], [4] if args else [3, 4]))
        elif p["type"] in _FITTING:
            args.append(_FITTING[p["type"]])
        else:
            return []
    made: list[Any] = [("", args, {})]
    if info["kind"] == "elementwise" and len(args) == 2:
        made.append(("number", [args[0], 1.25], {}))
    return made


# Of operators that take tensors of any shape. More elements than a block or a group of a device has, as
# many dimensions as images have, integers that lose digits in a float, and zeros of both signs.
_OTHERWISE = {
    "many": ("", [4, 1031]),
    "4-d": ("", [2, 3, 2, 3]),
    "exact": ("exact", [3, 4]),
    "signed zeros": ("signed_zeros", [2, 4]),
}
# More elements than 16 bits count, of the dtypes that a kernel is most likely to have loops of its own for.
_LARGE = {"large": ("", [3, 22_003])}
_LARGE_DTYPES = ("float32", "int64")
_ROUNDED = "to float32"
_ANY_SHAPE = ("", "mask", "positive")


def further_examples_of(name: str, dtype: Any) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """The first example of an elementwise operator, a reduction or a running one, with other tensors in place."""
    info = _C.op_info(name)
    written = examples_of(name)
    if info["kind"] not in ("elementwise", "reduction", "along") or not written:
        return []
    _, args, kwargs = written[0]
    makers = [node[1] for node in args if _is_tensor(node)]
    if not makers or not set(makers) <= set(_ANY_SHAPE):
        return []
    large = str(dtype).rpartition(".")[2] in _LARGE_DTYPES and info["kind"] != "along"
    otherwise = {**_OTHERWISE, **(_LARGE if large else {})}
    # A conversion; to fewer digits it rounds, so that no example of the record, whose derivatives are judged, has it.
    converts = info["kind"] == "elementwise" and "dtype" in [p["name"] for p in info["params"]]
    rounded: list[Any] = [(_ROUNDED, [args[0], ("name", "float32")], {})] if converts else []
    return rounded + [
        (
            label,
            [
                ("tensor", node[1] or maker, [], shape) if _is_tensor(node) else node
                for node in args
            ],
            kwargs,
        )
        for label, (maker, shape) in otherwise.items()
    ]


def _is_tensor(node: Any) -> bool:
    return isinstance(node, tuple) and node[0] == "tensor"


def cases(
    name: str,
    dtype: Any = None,
    seed: int = 0,
    requires_grad: bool = False,
    left_out: list[str] | None = None,
    further: bool = False,
) -> Iterator[Case]:
    """The examples of operator `name` with tensors of `dtype` (float64 by default), on the CPU.

    Args:
        further: whether those of `further_examples_of` follow.
        requires_grad: whether floating and complex tensors require grad; examples that are not smooth are left out.
        left_out: takes why an example has no meaning in this dtype.
    """
    m = Maker(seed, dtype or rabbet.float64, requires_grad)
    if _C.op_info(name)["dtypes"] == _COMPLEX_ONLY and not m.dtype.is_complex:
        if left_out is not None:
            left_out.append(f"{name}: it takes complex numbers only")
        return
    for text, args, kwargs in examples_of(name) + (
        further_examples_of(name, m.dtype) if further else []
    ):
        reader = _Reader(name, m)
        try:
            given, named = reader.read(args, kwargs)
        except NoCase as why:
            if left_out is not None and text not in (*_OTHERWISE, *_LARGE, _ROUNDED):
                left_out.append(f"{name}[{text}]: {why}")
            continue
        if reader.smooth or not requires_grad:
            yield Case(name, given, named, text, reader.smooth, reader.dependent)


# ---- derivatives


def differentiable_ops() -> list[str]:
    """Records that have a derivative of their own or by decomposition, and floating results."""
    names = []
    for name in op_names():
        info = _C.op_info(name)
        takes_tensors = any("Tensor" in p["type"] for p in info["params"])
        if info["detached"] or info["kind"] == "random" or not takes_tensors:
            continue
        if (info["has_vjp"] or info["has_decomp"]) and not _is_fixed(name):
            names.append(name)
    return names


def _is_fixed(name: str) -> bool:
    """Whether the examples of a record say that none of its tensors requires grad."""

    def makers(node: Any) -> Iterator[str]:
        if isinstance(node, list):
            for item in node:
                yield from makers(item)
        elif isinstance(node, tuple) and node[0] not in ("name", "result"):
            yield node[1]

    made = [m for _, args, kwargs in examples_of(name) for m in makers([*args, *kwargs.values()])]
    return bool({"fixed", "hermitian"} & {*made}) and {"fixed", "hermitian", "data"} >= {*made}


def differentiable_part(case: Case) -> tuple[Callable[..., tuple[Any, ...]], list[Any]]:
    """A function of the tensors in a case that require grad, and those tensors.

    It gives the case's floating and complex results as a tuple.
    """
    inputs: list[Any] = []
    places: list[tuple[Any, int | None]] = []
    given = [*enumerate(case.args), *case.kwargs.items()]
    for at, a in given:
        for k, t in enumerate(a if isinstance(a, list) else [a]):
            if isinstance(t, rabbet.Tensor) and t.requires_grad:
                inputs.append(t)
                places.append((at, k if isinstance(a, list) else None))

    def call(*tensors: Any) -> tuple[Any, ...]:
        values = {at: list(a) if isinstance(a, list) else a for at, a in given}
        for t, (at, k) in zip(tensors, places, strict=True):
            if k is None:
                values[at] = t
            else:
                values[at][k] = t
        args = [values[i] for i in range(len(case.args))]
        result = rabbet.ops(case.op)(*args, **{k: values[k] for k in case.kwargs})
        results = [result] if isinstance(result, rabbet.Tensor) else list(result)
        return tuple(r for r in results if r.is_floating_point() or r.is_complex())

    return call, inputs
