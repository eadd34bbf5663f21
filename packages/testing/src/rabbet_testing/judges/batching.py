"""Batched forms of the generated cases, and the loop that they must agree with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import rabbet
from rabbet._pytree import tree_flatten, tree_map, tree_unflatten

from ..cases import Case, cases, op_names
from ..compare import assert_close
from .calls import moved, shape_depends_on_data, takes_integers_only
from .gradients import floating_dtype, loosely, offered
from .reasons import Reason, skip
from .reference import declared_dtypes
from .references import OF_STORAGE

B = 3
OPS = [
    name
    for name in op_names()
    if rabbet._C.op_info(name)["kind"] != "random"
    # what draws by a decomposition is refused by vmap, unless told how; test_random.py has those
    and all(p["name"] != "generator" for p in rabbet._C.op_info(name)["params"])
    and not any(p["mutated"] for p in rabbet._C.op_info(name)["params"])
    and not shape_depends_on_data(name)
]


def calls(name: str, dtype: Any = None) -> Iterator[Case]:
    """The cases of an operator, in float64 unless it takes integers or another dtype is given."""
    for case in cases(name, rabbet.int64 if takes_integers_only(name) else dtype):
        if not case.dependent:  # of which no argument can be changed alone
            yield case


def examples(t: Any, n: int = B) -> list[Any]:
    """`n` tensors like `t`, in its domain: scaled towards 0.5, or in another order."""
    if t.is_floating_point() or t.is_complex():
        return [t * (1 - 0.1 * b) + 0.05 * b for b in range(n)]
    return [t.flip(list(range(t.ndim))) if b % 2 and t.ndim else t for b in range(n)]


class Batched:
    """A case as a function of its tensors, some of which are batched."""

    def __init__(self, case: Case, dims: dict[int, int], size: int = B) -> None:
        self.case, self.dims, self.size = case, dims, size
        leaves, self.spec = tree_flatten((case.args, case.kwargs))
        self.leaves = leaves
        self.parts = {
            i: [leaves[i].detach()] * size if i not in dims else examples(leaves[i].detach(), size)
            for i in tensor_places(case)
        }

    def call(self, *tensors: Any) -> Any:
        """The operator on tensors in place of those of the case."""
        leaves = list(self.leaves)
        for i, t in zip(self.parts, tensors, strict=True):
            leaves[i] = t
        args, kwargs = tree_unflatten(leaves, self.spec)
        return rabbet.ops(self.case.op)(*args, **kwargs)

    def inputs(self) -> list[Any]:
        """The tensors, stacked where they are batched."""
        return [
            self._stacked(parts, self.dims[i]) if i in self.dims else parts[0]
            for i, parts in self.parts.items()
        ]

    def _stacked(self, parts: list[Any], dim: int) -> Any:
        op = self.case.op
        if op not in OF_STORAGE or rabbet._C.op_info(op)["kind"] != "movement":
            return rabbet.stack(parts, dim)
        return rabbet.stack(parts).movedim(0, dim)  # a view that asks for dense examples

    def in_dims(self) -> tuple[Any, ...]:
        """As vmap takes them."""
        return tuple(self.dims.get(i) for i in self.parts)

    def expected(self) -> Any:
        """The loop over the slices of what is batched: as_strided sees the strides of what it is given."""
        given = [
            [t] * self.size if dim is None else slices(t, dim, self.case.op)
            for t, dim in zip(self.inputs(), self.in_dims(), strict=True)
        ]
        results = [self.call(*each) for each in zip(*given, strict=True)]
        return tree_map(lambda *each: rabbet.stack(list(each)), *results)

    def mapped(self, **options: Any) -> Callable[[], Any]:
        """The batched call, to be made."""
        from rabbet.func import vmap

        return lambda: vmap(self.call, self.in_dims(), **options)(*self.inputs())

    def check(self) -> None:
        """vmap is the loop."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "vmap: ", UserWarning)
            actual = self.mapped()()
        compare(actual, self.expected(), f"{self.case} in_dims={self.in_dims()}")


def slices(t: Any, dim: int, op: str) -> list[Any]:
    """The examples of a batched tensor; where `op` sees the storage, each begins its own, as inside vmap."""
    parts = [t.select(dim, b) for b in range(t.shape[dim])]
    return [_of_its_own(part) for part in parts] if op in OF_STORAGE else parts


def _of_its_own(t: Any) -> Any:
    """A tensor with the same strides and a copy of the memory from its first element on."""
    rest = max(t._storage_nbytes() // t.itemsize - t.storage_offset(), 0)
    return t.as_strided([rest], [1]).clone().as_strided(t.shape, t.stride())


def compare(actual: Any, expected: Any, message: str = "") -> None:
    """Each result of one call against that of another, dtypes included."""
    got, _ = tree_flatten(actual)
    want, _ = tree_flatten(expected)
    assert len(got) == len(want), message
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype, f"{message}: {a.dtype}, expected {b.dtype}"
        loose = {} if a.device.type == "cpu" else loosely(a.dtype)
        assert_close(a.cpu(), b.cpu(), message=message, **loose)


def tensor_places(case: Case) -> list[int]:
    """Which of the leaves of a call are tensors."""
    leaves, _ = tree_flatten((case.args, case.kwargs))
    return [i for i, leaf in enumerate(leaves) if isinstance(leaf, rabbet.Tensor)]


def choices(case: Case) -> Iterator[dict[int, int]]:
    """Each tensor batched alone, in front and elsewhere, and all of them."""
    places = tensor_places(case)
    for i in places:
        yield {i: 0}
        yield {i: -1}
    if len(places) > 1:
        yield dict.fromkeys(places, 0)
        yield {i: (-1, 0)[k % 2] for k, i in enumerate(places)}


def judge_complex(op: str, device: str) -> None:
    """As `judge`, with complex128 numbers."""
    if "complex128" not in declared_dtypes(device):
        skip(Reason.NO_KERNEL, f"{device} declares no complex128")
    judge(op, device, rabbet.complex128)


def judge(op: str, device: str, dtype: Any = None) -> None:
    """Every case of an operator, batched in every way, on a device."""
    if op not in OPS:
        skip(Reason.NOT_BATCHED, f"{op}: no loop of calls stands for its batch")
    found = False
    with offered(op):
        for case in calls(op, dtype or floating_dtype(device)):
            for dims in choices(case):
                found = True
                Batched(moved(case, device), dims).check()
    if not found:
        skip(Reason.NO_EXAMPLE, f"{op} has no case")
