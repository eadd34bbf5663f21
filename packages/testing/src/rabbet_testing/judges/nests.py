"""Two transforms deep over an operator, against loops of plain calls and another order of the same derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rabbet

from ..compare import assert_close
from .calls import shape_depends_on_data
from .gradients import differentiable_cases, floating_dtype, loosely, offered
from .reasons import Reason, skip

EXAMPLES = 2


def _ramp(first: float, last: float, like: Any) -> Any:
    n = like.numel()
    ramp = rabbet.linspace(first, last, max(n, 1), dtype=like.dtype)[:n]
    return ramp.reshape(tuple(like.shape)).to(like.device)


class Scalar:
    """A weighted sum of an operator's results as a function of its first tensor, and points to evaluate it at."""

    def __init__(self, call: Callable[..., Any], inputs: list[Any]) -> None:
        self.call, self.rest = call, [t.detach() for t in inputs[1:]]
        self.point = inputs[0].detach()
        self.weights = [_ramp(0.5, 1.5, r) for r in self.results(self.point)]
        self.direction = _ramp(1.0, -0.7, self.point)

    def results(self, x: Any) -> Any:
        return self.call(x, *self.rest)

    def __call__(self, x: Any) -> Any:
        terms = [r * w for r, w in zip(self.results(x), self.weights, strict=True)]
        return sum((t.real if t.is_complex() else t).sum() for t in terms)

    def points(self, *shape: int) -> Any:
        """Points a little apart, which share the sign and the order of the entries."""
        if not shape:
            return self.point
        return rabbet.stack([self.points(*shape[1:]) * (1 - 0.03 * k) for k in range(shape[0])])


@contextmanager
def scalar(op: str, device: str) -> Iterator[Scalar]:
    """The operator's first case with something to differentiate; skips where there is none."""
    dtype = floating_dtype(device)
    with warnings.catch_warnings(), offered(op):
        warnings.filterwarnings("ignore", "vmap: ", UserWarning)
        for _, call, inputs in differentiable_cases(op, dtype, device):
            yield Scalar(call, inputs)
            return
        skip(Reason.NOT_DIFFERENTIABLE, f"{op} has no case with something to differentiate")


def _close(got: Any, want: Any, what: str) -> None:
    assert_close(got.cpu(), want.cpu(), message=what, **loosely(got.dtype))


def judge_vmap_of_vmap(op: str, device: str) -> None:
    """vmap(vmap(f)) is the loop of loops, along any dimensions."""
    from rabbet.func import vmap

    if shape_depends_on_data(op):
        skip(Reason.NOT_BATCHED, f"{op}: its results do not fit one tensor")
    with scalar(op, device) as f:
        xs = f.points(EXAMPLES, EXAMPLES)
        got = vmap(vmap(f.results))(xs)
        for i, result in enumerate(got):
            want = rabbet.stack([rabbet.stack([f.results(x)[i] for x in row]) for row in xs])
            _close(result, want, f"vmap of vmap of {op} on {device}")
        turned = vmap(vmap(f, in_dims=-1), in_dims=0, out_dims=0)(xs.movedim(1, -1))
        want = rabbet.stack([rabbet.stack([f(x) for x in row]) for row in xs])
        _close(turned, want, f"vmap of vmap of a sum of {op} on {device}")


def judge_grad_and_vmap(op: str, device: str) -> None:
    """vmap(grad(f)) and grad(vmap(f)) are the loop of grad(f)."""
    from rabbet.func import grad, vmap

    if shape_depends_on_data(op):
        skip(Reason.NOT_BATCHED, f"{op}: its results do not fit one tensor")
    with scalar(op, device) as f:
        xs = f.points(EXAMPLES)
        expected = rabbet.stack([grad(f)(x) for x in xs])
        _close(vmap(grad(f))(xs), expected, f"vmap of grad of {op} on {device}")
        _close(
            grad(lambda xs: vmap(f)(xs).sum())(xs), expected, f"grad of vmap of {op} on {device}"
        )


def judge_second_derivatives(op: str, device: str) -> None:
    """grad of grad, jvp of grad, grad of jvp and jacfwd of jacrev agree."""
    from rabbet.func import grad, jacfwd, jacrev, jvp

    with scalar(op, device) as f:
        x, t = f.point, f.direction
        expected = grad(lambda x: (grad(f)(x) * t).sum())(x)
        _close(jvp(grad(f), (x,), (t,))[1], expected, f"jvp of grad of {op} on {device}")
        _close(
            grad(lambda x: jvp(f, (x,), (t,))[1])(x), expected, f"grad of jvp of {op} on {device}"
        )
        hessian = jacfwd(jacrev(f))(x).reshape(x.numel(), x.numel())
        _close(
            hessian @ t.reshape(-1), expected.reshape(-1), f"jacfwd of jacrev of {op} on {device}"
        )


def judge_second_derivatives_of_examples(op: str, device: str) -> None:
    """vmap of jvp of grad is the loop of grad of grad."""
    from rabbet.func import grad, jvp, vmap

    with scalar(op, device) as f:
        xs, t = f.points(EXAMPLES), f.direction
        expected = rabbet.stack([grad(lambda x: (grad(f)(x) * t).sum())(x) for x in xs])
        got = vmap(lambda x: jvp(grad(f), (x,), (t,))[1])(xs)
        _close(got, expected, f"vmap of jvp of grad of {op} on {device}")
