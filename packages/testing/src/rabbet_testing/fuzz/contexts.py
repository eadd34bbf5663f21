"""What else than a result can be asked of a call: each context has another way to the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rabbet
import rabbet.func
from rabbet import _C
from rabbet._pytree import tree_flatten, tree_map, tree_unflatten

from rabbet_testing.compare import assert_close
from rabbet_testing.fuzz import child
from rabbet_testing.judges.batching import examples, slices
from rabbet_testing.judges.calls import first_line

STEPS = (1e-5, 1e-6)  # of finite differences, which are believed where both agree
LARGE = 1e6  # results in whose last digits such steps are lost

# Refusals that a context must give.
REFUSALS = (
    # A number or a shape is asked of data that it does not have.
    "depends on the data",
    "a meta tensor has no data",
    "the tensor stands for many values",
    # transpose_ and its kin move a tensor to other memory.
    "inside a transform a tensor cannot be given other memory",
    # PyTorch defines no derivative of geqrf and a few others either.
    "has no derivative",
)

Function = Callable[..., Any]


def judge(lib: Any, call: dict[str, Any]) -> str | None:
    """What is wrong with a call that has a result, in its context; None if nothing is."""
    args = [child.build(lib, a) for a in call["args"]]
    kwargs = {k: child.build(lib, a) for k, a in call["kwargs"].items()}
    leaves, spec = tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, rabbet.Tensor)]
    function = child.function_of(lib, call)

    def on_tensors(*tensors: Any) -> Any:
        given = list(leaves)
        for i, t in zip(places, tensors, strict=True):
            given[i] = t.clone() if call["form"] == "in_place" and i == 0 else t
        positional, named = tree_unflatten(given, spec)
        return function(*positional, **named)

    try:
        CONTEXT[call["context"]](on_tensors, [leaves[i] for i in places], call["op"])
    except AssertionError as error:
        return " ".join(str(error).split())[:300] or "differs"
    except Exception as error:
        said = first_line(error)
        return None if any(refusal in said for refusal in REFUSALS) else f"refused: {said[:300]}"
    return None


def _meta(f: Function, xs: list[Any], op: str) -> None:
    want = _tensors(f(*xs))
    got = _tensors(f(*(x.to("meta") for x in xs)))
    assert [(t.shape, t.dtype) for t in got] == [(t.shape, t.dtype) for t in want], (
        f"on meta {[(t.shape, t.dtype) for t in got]}, with data {[(t.shape, t.dtype) for t in want]}"
    )


def _vmap(f: Function, xs: list[Any], op: str) -> None:
    _mapped(f, xs, op)


def _vmap_vmap(f: Function, xs: list[Any], op: str) -> None:
    def inner(*ts: Any) -> Any:
        return rabbet.func.vmap(f)(*(rabbet.stack(examples(t, 2)) for t in ts))

    def loop(*ts: Any) -> Any:
        return _loop(f, [slices(rabbet.stack(examples(t, 2)), 0, op) for t in ts])

    _mapped(inner, xs, op, loop)


def _mapped(
    f: Function, xs: list[Any], op: str, loop: Function | None = None, rtol: float | None = None
) -> None:
    if _C.op_info(op)["data_shape"] or not xs:
        return
    stacked = [rabbet.stack(examples(x)) for x in xs]
    try:
        want = _loop(loop or f, [slices(t, 0, op) for t in stacked])
    except (RuntimeError, ValueError):
        return  # an example of its own is refused, or the results' shapes differ
    if rtol is None or not _is_large(want):
        _compare(rabbet.func.vmap(f)(*stacked), want, rtol)


def _is_large(gradients: Any) -> bool:
    """Whether gradients are too large to compare, such as those of factors of a nearly singular matrix."""
    return any(bool((g.abs() > LARGE).any()) for g in _tensors(gradients))


def _loop(f: Function, given: list[list[Any]]) -> Any:
    results = [f(*parts) for parts in zip(*given, strict=True)]
    return tree_map(lambda *each: rabbet.stack(list(each)), *results)


def _functionalize(f: Function, xs: list[Any], op: str) -> None:
    _compare(rabbet.func.functionalize(f)(*xs), f(*xs))


def _differentiable(f: Function, xs: list[Any], op: str) -> tuple[Function, list[Any]] | None:
    """The floating results as a function of the floating tensors in float64, None if there are none."""
    if _C.op_info(op)["detached"]:
        return None
    places = [i for i, x in enumerate(xs) if x.is_floating_point()]
    takes_numbers = any(p["type"] in ("Scalar", "float") for p in _C.op_info(op)["params"])
    if takes_numbers and any(x.ndim == 0 for x in xs):
        return None  # it may be read as a number, which has no tangent

    def on_places(*ts: Any) -> Any:
        given = list(xs)
        for i, t in zip(places, ts, strict=True):
            given[i] = t
        return tuple(r for r in _tensors(f(*given)) if r.is_floating_point())

    given = [xs[i].double() for i in places]
    if not all(bool(rabbet.isfinite(x).all()) for x in given):
        return None
    try:
        results = on_places(*given) if places else ()
    except Exception:  # mixed dtypes, which the operator takes as they were
        return None
    fits = results and all(r.dtype is rabbet.float64 for r in results)  # others are rounded
    return (on_places, given) if fits else None


def _directions(xs: list[Any]) -> tuple[Any, ...]:
    """Of every sign, and not sensitive to how large elements were rounded."""
    detached = (x.detach() for x in xs)
    return tuple(((x * x + 1).rsqrt() * x * 3 + 1).cos().nan_to_num() for x in detached)


def _jvp(f: Function, xs: list[Any], op: str) -> None:
    part = _differentiable(f, xs, op)
    if part is None:
        return
    g, given = part
    v = _directions(given)
    _, got = rabbet.func.jvp(g, tuple(given), v)
    first, second = (
        [
            (a - b) / (2 * h)
            for a, b in zip(
                g(*(x + h * d for x, d in zip(given, v, strict=True))),
                g(*(x - h * d for x, d in zip(given, v, strict=True))),
                strict=True,
            )
        ]
        for h in STEPS
    )
    h = STEPS[-1]
    ahead = g(*(x + h * d for x, d in zip(given, v, strict=True)))
    here = g(*given)
    for t, a, b, after, at in zip(got, first, second, ahead, here, strict=True):
        one_sided = (after - at) / h
        smooth = ((a - b).abs() <= 1e-5 * (1 + a.abs())) & (
            (one_sided - b).abs() <= 1e-2 * (1 + b.abs())
        )
        smooth &= at.abs() < LARGE
        if bool(smooth.all()):  # NaN and kinks are not judged
            assert_close(t, b, 1e-3, 1e-5, "jvp and finite differences")


def _grad(f: Function, xs: list[Any], op: str) -> None:
    part = _differentiable(f, xs, op)
    if part is None:
        return
    g, given = part
    v = _directions(given)
    results, tangents = rabbet.func.jvp(g, tuple(given), v)
    _, vjp = rabbet.func.vjp(g, *given)
    u = _directions(list(results))
    by_vjp = sum((a * b).sum() for a, b in zip(vjp(u), v, strict=True))
    by_jvp = sum((a * b).sum() for a, b in zip(u, tangents, strict=True))
    if bool(rabbet.isfinite(by_vjp) & rabbet.isfinite(by_jvp)) and not _is_large(by_vjp):
        assert_close(by_vjp, by_jvp, 1e-3, 1e-5, "vjp and jvp")


def _gradient(g: Function) -> Function:
    """The gradients of what `g` gives in all, in fixed directions."""

    def total(*ts: Any) -> Any:
        results = g(*ts)
        return sum((r * d).sum() for r, d in zip(results, _directions(list(results)), strict=True))

    return lambda *ts: rabbet.func.grad(total, tuple(range(len(ts))))(*ts)


def _vmap_grad(f: Function, xs: list[Any], op: str) -> None:
    part = _differentiable(f, xs, op)
    if part is not None:
        _mapped(_gradient(part[0]), part[1], op, rtol=1e-6)


def _grad_vmap(f: Function, xs: list[Any], op: str) -> None:
    part = _differentiable(f, xs, op)
    if part is None or _C.op_info(op)["data_shape"]:
        return
    given = [examples(x) for x in part[1]]
    count = len(given[0])

    def loop(*ts: Any) -> Any:
        return _loop(part[0], [[t[b] for b in range(count)] for t in ts])

    stacked = [rabbet.stack(parts) for parts in given]
    try:
        want = _gradient(loop)(*stacked)
    except (RuntimeError, ValueError):
        return
    if not _is_large(want):
        _compare(_gradient(rabbet.func.vmap(part[0]))(*stacked), want, 1e-6)


def _tensors(result: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, rabbet.Tensor)]


def _compare(got: Any, want: Any, rtol: float | None = None) -> None:
    ours, theirs = _tensors(got), _tensors(want)
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype is b.dtype, f"{a.dtype}, expected {b.dtype}"
        loose = a.dtype is not rabbet.float64
        assert_close(a, b, 2e-2 if loose else rtol, 1e-2 if loose else rtol)


CONTEXT: dict[str, Callable[[Function, list[Any], str], None]] = {
    "meta": _meta,
    "vmap": _vmap,
    "jvp": _jvp,
    "grad": _grad,
    "functionalize": _functionalize,
    "vmap vmap": _vmap_vmap,
    "vmap grad": _vmap_grad,
    "grad vmap": _grad_vmap,
}
