"""Does a layer keep what it promises? Operators with the layer on beside the same ones without it.

The plugin says how its layer is switched on, see `Through`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import rabbet
from rabbet import _C
from rabbet._pytree import tree_flatten, tree_unflatten

from ..cases import Case, cases, differentiable_ops
from ..compare import assert_close
from .calls import REFUSALS, first_line, shape_depends_on_data, tensors
from .reasons import Reason, skip
from .reference import array, difference

CHANGES = ("nothing", "rounding", "dtype")
LOW = 24 * 2.0**-8  # of a result that was computed in a lower precision, relative to 1 + |expected|


@dataclass
class Through:
    """How calls go through a layer: what `rabbet_conformance_params("layer")` returns, checked.

    Attributes:
        enter: makes a context manager inside which the layer is on for the thread; or
        call: runs `f(*tensors)`, which returns a tuple of tensors, through the layer: `call(f, *tensors)`.
        make: `make(tensor)` gives a composite of the layer with the tensor's shape, dtype and device and about its
            values, or None if it has none for such a tensor. A layer of nothing but composites needs no more.
        changes: "nothing" (results are the same bit for bit), "rounding" (the same dtype, but computed otherwise) or
            "dtype" (floating results may have another floating dtype).
        refuses: operators that the layer cannot take and says so by an error, with the reason.
        lenient: operators that take with the layer what they refuse without it, with the reason.
        replaces: operators of which the layer changes the results on purpose, with the reason.
        dtype: of the tensors that it is judged with.
    """

    name: str
    enter: Callable[[], AbstractContextManager[Any]] | None = None
    call: Callable[..., Any] | None = None
    make: Callable[[Any], Any] | None = None
    changes: str = "nothing"
    refuses: dict[str, str] | None = None
    lenient: dict[str, str] | None = None
    replaces: dict[str, str] | None = None
    dtype: str = "float64"

    def __call__(self, f: Callable[..., Any], *xs: Any) -> Any:
        """`f(*xs)` through the layer."""
        if self.call is not None:
            return self.call(f, *xs)
        assert self.enter is not None, f"{self.name} has composites and is not switched on"
        with self.enter():
            return f(*xs)


HOW = """say how it is switched on by a function in the plugin's package:
  def rabbet_conformance_params(level):
      return {"enter": my_context_manager, "changes": "nothing"} if level == "layer" else {}
a layer of composite tensors says how they are made: {"make": my_function}"""


def through(name: str, given: dict[str, Any]) -> Through:
    """From what the hook returned; raises ValueError that says what is wrong with it."""
    own = given.get("layers", {}).get(name, given if "layers" not in given else {})
    if not own:
        raise ValueError(f"the plugin does not say how to judge the layer '{name}': {HOW}")
    unknown = set(own) - {
        "enter",
        "call",
        "make",
        "changes",
        "refuses",
        "lenient",
        "replaces",
        "dtype",
    }
    if unknown:
        raise ValueError(f"rabbet_conformance_params('layer'): unknown key '{sorted(unknown)[0]}'")
    for key in ("enter", "call", "make"):
        if not callable(own.get(key, len)):
            raise ValueError(f"rabbet_conformance_params('layer'): '{key}' must be a callable")
    ways = {"enter", "call"} & set(own)
    if len(ways) > 1 or not (ways or "make" in own):
        raise ValueError(
            "rabbet_conformance_params('layer'): give one of 'enter' and 'call', or 'make'"
        )
    if own.get("changes", "nothing") not in CHANGES:
        raise ValueError(
            f"rabbet_conformance_params('layer'): 'changes' must be one of {', '.join(CHANGES)}, got {own['changes']!r}"
        )
    for op in own.get("replaces") or {}:
        if op not in _C.record_names():
            raise ValueError(
                f"rabbet_conformance_params('layer'): 'replaces' names '{op}', which is no operator"
            )
    return Through(name, **own)


# ---- results


def function_of(case: Case, inplace: bool = False) -> tuple[Callable[..., Any], list[Any]]:
    """A case as a function of its tensors, which gives a tuple of tensors."""
    leaves, spec = tree_flatten((case.args, case.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, rabbet.Tensor)]
    base = _C.op_info(case.op)["base"]

    def call(*xs: Any) -> Any:
        given = list(leaves)
        for i, x in zip(places, xs, strict=True):
            given[i] = x
        args, kwargs = tree_unflatten(given, spec)
        if inplace:
            target = args[0].clone()
            before = target._version
            getattr(target, f"{base}_")(*args[1:], **kwargs)
            assert target._version > before, (
                f"{case}, in place: the version of what it writes is {before} before and after"
            )
            return (target,)
        return tuple(tensors(rabbet.ops(case.op)(*args, **kwargs)))

    return call, [leaves[i].detach() for i in places]


@contextmanager
def quietly() -> Iterator[None]:
    """Without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a transform may warn that it is slow
        yield


def compare(got: Any, want: Any, t: Through, what: str) -> None:
    """Raise AssertionError unless `got` is `want`, but for what the layer declares that it changes."""
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want), f"{what}: expected {len(want)} results, got {len(got)}"
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        name = f"{what}, result {k}" if len(want) > 1 else what
        assert tuple(g.shape) == tuple(w.shape), (
            f"{name}: expected shape {tuple(w.shape)}, got {tuple(g.shape)}"
        )
        if t.changes == "dtype":
            real = g.is_floating_point() == w.is_floating_point()
            assert real, f"{name}: expected a dtype like {w.dtype}, got {g.dtype}"
            if not w.is_floating_point():
                continue  # an index may differ where values round to one
        else:
            assert g.dtype is w.dtype, f"{name}: expected dtype {w.dtype}, got {g.dtype}"
        if t.changes == "rounding":
            assert_close(g, w, message=name)
        else:
            found = difference(array(g), array(w), LOW if t.changes == "dtype" else 0.0)
            assert not found, f"{name}: {found}"


def result_of(f: Callable[..., Any], xs: list[Any]) -> Any:
    """What the call gives without the layer, or None where it is refused."""
    try:
        rabbet.manual_seed(0)
        return f(*xs)
    except (*REFUSALS, AttributeError):
        return None


def _judge_case(t: Through, op: str, case: Case, inplace: bool) -> bool:
    f, xs = function_of(case, inplace)
    want = result_of(f, [x.clone() for x in xs])
    if not want:
        return False
    what = f"{case} with the layer {t.name} on" + (", in place" if inplace else "")
    refused = op in (t.refuses or {})
    try:
        rabbet.manual_seed(0)
        got = t(f, *[x.clone() for x in xs])
    except NotImplementedError as error:
        skip(Reason.REFUSED_BY_LAYER, first_line(error))
    except Exception as error:
        if refused:
            skip(Reason.REFUSED_BY_LAYER, f"{op} is refused: {first_line(error)}")
        raise AssertionError(
            f"{what}: raised {first_line(error)}, and nothing without it"
        ) from error
    compare(got, want, t, what)
    return True


def judge_results(t: Through, op: str, inplace: bool = False) -> None:
    """Every case of an operator gives what it gives without the layer, but for what the layer declares."""
    if inplace and not _C.op_info(op)["inplace"]:
        skip(Reason.NO_SUCH_FORM, f"{op} has no in-place form")
    if op in (t.replaces or {}):
        return _judge_replaced(t, op)
    judged = False
    with quietly():
        for case in cases(op, getattr(rabbet, t.dtype)):
            judged |= _judge_case(t, op, case, inplace)
    if not judged:
        skip(Reason.NO_EXAMPLE, f"{op} has no case in {t.dtype}")


def _judge_replaced(t: Through, op: str) -> None:
    """What is declared as changed is not compared; but nothing is declared without need."""
    reason = (t.replaces or {})[op]
    with quietly():
        for case in cases(op, getattr(rabbet, t.dtype)):
            try:
                _judge_case(t, op, case, False)
            except AssertionError:
                skip(Reason.CHANGED_BY_LAYER, f"{op}: {reason}")
    raise AssertionError(
        f"{op} is declared as changed by {t.name} ({reason}), but gives what it gives without the layer"
    )


def judge_errors(t: Through, op: str) -> None:
    """What is refused without the layer is refused with it, by an error of the same kind."""
    found = False
    if op in (t.lenient or {}):
        skip(Reason.REFUSED_BY_LAYER, f"{op} takes more: {(t.lenient or {})[op]}")
    with quietly():
        for case in cases(op, getattr(rabbet, t.dtype)):
            f, xs = function_of(case)
            odd = [x.new_zeros((7, 5, 3, 2)) if i == 0 else x for i, x in enumerate(xs)]
            want = error_of(partial(f, *odd))
            if not isinstance(want, REFUSALS) or not xs:
                continue
            found = True
            got = error_of(partial(t, f, *odd))
            what = f"{case} with a tensor of shape (7, 5, 3, 2) and the layer {t.name} on"
            assert got is not None, f"{what}: expected {first_line(want)}, got a result"
            alike = isinstance(got, (type(want), NotImplementedError)) or op in (t.refuses or {})
            assert alike, f"{what}: expected {first_line(want)}, got {first_line(got)}"
            break
    if not found:
        skip(Reason.NO_SUCH_FORM, f"{op} takes any shape")
    judge_off(t)


def error_of(call: Callable[[], Any]) -> Exception | None:
    """What a call raises, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


# ---- nests


def judge_nests(t: Through, op: str) -> None:
    """The layer around and inside grad and vmap gives what they give without it."""
    from rabbet.func import grad, vmap

    if op not in differentiable_ops():
        skip(Reason.NOT_DIFFERENTIABLE, f"{op} has no derivative")
    if op in (t.refuses or {}):
        skip(Reason.REFUSED_BY_LAYER, f"{op} is refused: {(t.refuses or {})[op]}")
    if op in (t.replaces or {}):
        skip(Reason.CHANGED_BY_LAYER, f"{op}: {(t.replaces or {})[op]}")
    for case in cases(op, getattr(rabbet, t.dtype)):
        f, xs = function_of(case)
        want = result_of(f, xs)
        if not want or not xs or not xs[0].is_floating_point() or not _smooth(f, xs):
            continue
        x, loss = xs[0], _loss(f, xs[1:])
        with quietly():
            _nest(t, f"{case}", "grad", lambda g, x=x: grad(g)(x), loss)
            if not shape_depends_on_data(op):
                rows = rabbet.stack([x, x * 0.97])
                _nest(t, f"{case}", "vmap", lambda g, rows=rows: vmap(g)(rows), loss)
        return
    skip(Reason.NOT_DIFFERENTIABLE, f"{op} has no case with something to differentiate")


def _smooth(f: Callable[..., Any], xs: list[Any]) -> bool:
    results = f(xs[0].requires_grad_(), *xs[1:])
    xs[0].requires_grad_(False)
    return any(r.requires_grad for r in results)


def total(results: Any, dtype: Any) -> Any:
    """The sum of all elements that have a gradient."""
    found = rabbet.zeros((), dtype=dtype)
    for r in results:
        if r.is_floating_point() or r.is_complex():
            found = found + (r.real if r.is_complex() else r).to(dtype).sum()
    return found


def _loss(f: Callable[..., Any], rest: list[Any]) -> Callable[[Any], Any]:
    return lambda x: total(f(x, *rest), x.dtype)


def _nest(
    t: Through, what: str, name: str, outer: Callable[..., Any], loss: Callable[[Any], Any]
) -> None:
    try:
        want = outer(loss)
    except NotImplementedError as error:  # what it is made of has no derivative
        skip(Reason.NOT_DIFFERENTIABLE, f"{name} of {what}: {first_line(error)}")
    loose = Through(t.name, changes="rounding" if t.changes == "nothing" else t.changes)
    try:
        outside = t(lambda: (outer(loss),))
        compare(outside, [want], loose, f"{t.name} around {name} of {what}")
        inside = outer(lambda x: t(lambda y: (loss(y),), x)[0])
        compare([inside], [want], loose, f"{name} of {t.name} around {what}")
    except NotImplementedError as error:
        skip(Reason.REFUSED_BY_LAYER, first_line(error))


# ---- the switch


def _steps(recorded: bool) -> list[tuple[str, str]]:
    """What each layer does with a call. `recorded`: a call that autograd records, if autograd is installed."""
    autograd = any(layer["name"] == "autograd" for layer in _C.layers())
    x = rabbet.ones(2, requires_grad=recorded and autograd)
    plan = _C.dispatch_plan(rabbet.ops("add"), (x, x), {})
    return [(s["name"], s["does"]) for s in plan["steps"]]


def judge_off(t: Through) -> None:
    """Outside, no call is touched: no level is entered, and the layer does not act."""
    assert _C.transform_depth() == 0, f"{t.name}: {_C.transform_depth()} levels are still entered"
    acts = [name for name, does in _steps(False) if name == t.name and does != "passes"]
    assert not acts, f"{t.name}: the layer acts on calls outside of its context"
    untouched: list[list[tuple[str, str]]] = []
    thread = threading.Thread(target=lambda: untouched.append(_steps(True)))
    thread.start()
    thread.join()
    here = _steps(True)
    assert here == untouched[0], (
        f"{t.name}: it leaves layers of the thread on or off: a call goes through {here}, on a new thread through "
        f"{untouched[0]}"
    )


class Boom(Exception):
    """Raised inside a layer, to see what is left of it afterwards."""


def judge_exceptions(t: Through) -> None:
    """An exception passes unchanged, and leaves nothing switched on; also out of nested uses."""

    def fail(*xs: Any) -> Any:
        xs[0] + 1
        raise Boom("from inside")

    x = rabbet.ones(3, dtype=getattr(rabbet, t.dtype))
    for nested in (False, True):
        inside = partial(t, fail) if nested else fail
        error = error_of(partial(t, inside, x))
        assert type(error) is Boom and str(error) == "from inside", (
            f"{t.name}: expected Boom, got {error!r}"
        )
        judge_off(t)


def judge_threads(t: Through) -> None:
    """The layer is on in the thread that has switched it on, and in no other."""
    inside, leave, errors = threading.Event(), threading.Event(), list[Exception]()

    def hold(*xs: Any) -> Any:
        result = xs[0] + xs[0]
        inside.set()
        assert leave.wait(30)
        return (result,)

    def work() -> None:
        try:
            t(hold, rabbet.ones(3, dtype=getattr(rabbet, t.dtype)))
        except Exception as error:
            errors.append(error)
        inside.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(30), f"{t.name}: a call in another thread did not arrive"
    try:
        judge_off(t)
    finally:
        leave.set()
        thread.join()
    assert not errors, f"{t.name} in a thread: {errors[0]!r}"


def judge_nesting(t: Through) -> None:
    """The layer inside itself gives the same results."""
    x = rabbet.linspace(0.5, 2.0, 5, dtype=getattr(rabbet, t.dtype))

    def f(y: Any) -> Any:
        return ((y * y).log().sum() + y,)

    with quietly():
        compare(t(lambda y: t(f, y), x), f(x), t, f"{t.name} inside {t.name}")
    judge_off(t)


def judge_unknown_operator(t: Through, op: Any) -> None:
    """An operator that nobody has rules for gives its result, or an error that names it."""
    x = rabbet.linspace(0.5, 2.0, 6, dtype=getattr(rabbet, t.dtype)).reshape(2, 3)
    name = op.__name__
    try:
        with quietly():
            got = t(lambda y: (op(y),), x)
    except Exception as error:
        named = name.partition("::")[2] in str(error)
        assert named, (
            f"{t.name}: the error for an operator without rules does not name {name}: {error}"
        )
        skip(Reason.REFUSED_BY_LAYER, first_line(error))
    compare(got, [op(x)], t, f"{name}, which has no rules, with the layer {t.name} on")


def judge_kernel_errors(t: Through, op: Any) -> None:
    """An exception out of a kernel in Python is the same exception with the layer on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no rule, say
        x = rabbet.ones(2, dtype=getattr(rabbet, t.dtype))
        error = error_of(lambda: t(lambda y: (op(y),), x))
    passed = type(error) is Boom and str(error) == "from a kernel"
    assert passed or isinstance(error, NotImplementedError), (
        f"{t.name}: expected Boom, got {error!r}"
    )
    judge_off(t)


# ---- what it costs where it does nothing

_COST = """
import sys, time, rabbet
from rabbet_testing.conformance.subject import find_layer
from rabbet_testing.judges import composites, layers
x = rabbet.ones(4)
x + x
if len(sys.argv) > 1:
    subject = find_layer(sys.argv[1])
    t = layers.through(subject.name, subject.params("layer"))
    if t.make:
        composites.samples(t)[0].clone()
    else:
        t(lambda y: (y + y,), rabbet.ones(4, dtype=getattr(rabbet, t.dtype)))
def once():
    start = time.perf_counter()
    for _ in range(5000):
        x + x
    return (time.perf_counter() - start) / 5000 * 1e9
print(min(once() for _ in range(60)))
"""


def _cost(*arguments: str) -> float:
    command = [sys.executable, "-c", _COST, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def judge_cost(layer: str, note: Callable[[str], None]) -> None:
    """The best of many rounds, in processes of their own, with a bound for noisy machines."""
    without, off = min(_cost() for _ in range(2)), min(_cost(layer) for _ in range(2))
    note(
        f"an addition takes {without:.0f} ns; after {layer} was used and switched off {off:.0f} ns"
    )
    assert off <= 1.5 * without + 50, (
        f"{layer} is off, but an addition takes {off:.0f} ns instead of {without:.0f}"
    )
