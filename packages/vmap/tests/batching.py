"""Batched forms of the generated cases, and the loop that they must agree with."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import rabbet
from rabbet._pytree import tree_flatten, tree_map, tree_unflatten
from rabbet_testing.cases import Case, Maker, cases, op_names
from rabbet_testing.compare import assert_close

B = 3
DATA_DEPENDENT = {"nonzero", "masked_select", "mask_indices"}
INTEGERS = {name for name in op_names() if name.startswith("bitwise")}
DEPENDENT = {"cross_entropy_backward", "batch_norm_backward"}  # arguments are results for others
OPS = [
    name
    for name in op_names()
    if name not in DATA_DEPENDENT | DEPENDENT and rabbet._C.op_info(name)["kind"] != "random"
]


def calls(name: str) -> Iterator[Case]:
    """The cases of an operator; those drawn from the schema need not fit it."""
    for case in cases(name, rabbet.int64 if name in INTEGERS else None):
        fits = case.label != "number" or name not in INTEGERS
        if fits and name not in ("softmax_vjp", "log_softmax_vjp"):
            yield case
    if name in ("softmax_vjp", "log_softmax_vjp"):
        m = Maker(0, rabbet.float64, False)
        yield Case(name, [m.tensor(3, 4), m.tensor(3, 4), 1])


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
        return [
            rabbet.stack(parts, self.dims[i]) if i in self.dims else parts[0]
            for i, parts in self.parts.items()
        ]

    def in_dims(self) -> tuple[Any, ...]:
        return tuple(self.dims.get(i) for i in self.parts)

    def expected(self) -> Any:
        results = [self.call(*(p[b] for p in self.parts.values())) for b in range(self.size)]
        return tree_map(lambda *each: rabbet.stack(list(each)), *results)

    def mapped(self, **options: Any) -> Callable[[], Any]:
        return lambda: rabbet.vmap(self.call, self.in_dims(), **options)(*self.inputs())

    def check(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "vmap: ", UserWarning)
            actual = self.mapped()()
        compare(actual, self.expected(), f"{self.case} in_dims={self.in_dims()}")


def compare(actual: Any, expected: Any, message: str = "") -> None:
    got, _ = tree_flatten(actual)
    want, _ = tree_flatten(expected)
    assert len(got) == len(want), message
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype, f"{message}: {a.dtype}, expected {b.dtype}"
        assert_close(a, b, message=message)


def tensor_places(case: Case) -> list[int]:
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
