"""check_numerics: where the first NaN or Inf comes from, in forward or backward."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import rabbet
from rabbet import _C as core
from rabbet import Tensor

from . import _C
from .graph import Node, call_mode, keep_lines

__all__ = ["NumericsError", "check_numerics"]


class NumericsError(RuntimeError):
    """A NaN or Inf was made.

    Attributes:
        op: the operator, or the node of the graph.
        line: where the program called it ("file.py:12 in name"), None where nobody knows.
        in_backward: whether backward made it.
    """

    def __init__(self, text: str, op: str, line: str | None, in_backward: bool) -> None:
        super().__init__(text)
        self.op = op
        self.line = line
        self.in_backward = in_backward


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _tensors(entry)


def _is_checked(x: Tensor) -> bool:
    return (x.is_floating_point() or x.is_complex()) and x.numel() > 0 and x.device.type != "meta"


def _has(test: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    return _is_checked(x) and bool(test(x).any().item())


def _holds_inf(value: Any) -> bool:
    if isinstance(value, (float, complex)):
        return math.isinf(abs(value))
    return any(_has(rabbet.isinf, x) for x in _tensors(value))


def _statistics(x: Tensor) -> str:
    """Shape, dtype, how many elements are not finite, and the range of those that are."""
    kind = f"{x.dtype.name}{tuple(x.shape)}"
    if not _is_checked(x):
        return kind
    nan, inf = int(rabbet.isnan(x).sum()), int(rabbet.isinf(x).sum())
    finite = x[rabbet.isfinite(x)]
    text = f"{kind}: {nan} NaN and {inf} Inf of {x.numel()}"
    if finite.numel() == 0:
        return text
    size = finite.abs() if x.is_complex() else finite.double()
    what = "absolute values" if x.is_complex() else "the others"
    return (
        f"{text}, {what} from {size.min().item():g} to {size.max().item():g}, "
        f"mean {size.mean().item():g}"
    )


class check_numerics:
    """Context manager: the first NaN or Inf of forward or backward raises NumericsError.

    The error names the operator and the line that called it, and has statistics of its arguments and results. A
    result that holds Inf is accepted where an argument holds Inf, too (a mask of -inf, say); NaN never is. A node
    of the graph is named in backward; the line is that of its forward call, if that was inside as well. Each
    check reads the values, so the program runs slower.

    Args:
        forward: check the results of operators.
        backward: check the gradients of nodes.
        inf: look for Inf, too.
        ignore: names of operators and nodes that are not checked.
    """

    def __init__(
        self,
        *,
        forward: bool = True,
        backward: bool = True,
        inf: bool = True,
        ignore: Iterable[str] = (),
    ) -> None:
        if isinstance(ignore, str):
            raise TypeError("check_numerics: ignore must hold names, got a single str")
        self._inf = inf
        self._backward = backward
        self._ignore = frozenset(ignore)
        self._mode = call_mode(self._check_call) if forward else None
        self._lines = keep_lines()

    def __enter__(self) -> Self:
        self._lines.__enter__()
        if self._mode is not None:
            self._mode.__enter__()
        if self._backward:
            self._before = _C.watch_nodes(self._check_node)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._backward:
            _C.watch_nodes(self._before)
        if self._mode is not None:
            self._mode.__exit__(*exc)
        self._lines.__exit__(*exc)

    def _fault(self, results: Iterable[Tensor], args: Any) -> str | None:
        found = list(results)
        if any(_has(rabbet.isnan, x) for x in found):
            return "NaN"
        if self._inf and any(_has(rabbet.isinf, x) for x in found) and not _holds_inf(args):
            return "Inf"
        return None

    def _check_call(
        self, op: str, args: tuple[Any, ...], targets: Any, run: Callable[[], Any]
    ) -> None:
        # Inside of backward the nodes are checked; what is not yet written holds anything.
        if _C.current_run() or op in self._ignore or op.startswith(("empty", "new_empty")):
            return
        values = [a if isinstance(a, float) else list(_tensors(a)) for a in args]
        before = [_statistics(x) for x in _tensors(values)] if targets else None
        holds_inf = self._inf and any(map(_holds_inf, values))
        results = list(_tensors(run()))
        fault = self._fault(results, math.inf if holds_inf else None)
        if fault is None:
            return
        line = core.source()
        lines = [f"{op} made {fault}" + (f" at {line}" if line else "")]
        given = before or [_statistics(x) for x in _tensors(values)]
        lines += [f"  argument {i}: {text}" for i, text in enumerate(given)]
        lines += [f"  result {i}: {_statistics(x)}" for i, x in enumerate(results)]
        raise NumericsError("\n".join(lines), op, line, False)

    def _check_node(self, node: Node, grads: tuple[Tensor | None, ...]) -> None:
        if node.name() in self._ignore:
            return
        with rabbet.no_grad():
            fault = self._fault([g for g in grads if g is not None], None)
            if fault is None:
                return
            line = node._source()
            lines = [
                f"{node.name()} made {fault} in backward"
                + (f"; its forward call is at {line}" if line else "")
            ]
            lines += [
                f"  gradient of input {i}: {_statistics(g)}"
                for i, g in enumerate(grads)
                if g is not None
            ]
        raise NumericsError("\n".join(lines), node.name(), line, True)
