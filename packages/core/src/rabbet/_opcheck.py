"""rabbet.library.opcheck: does an operator keep what its schema and its record say?"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import rabbet

from . import _C
from ._C import Op, Tensor
from ._pytree import tree_flatten, tree_unflatten

SUCCESS = "SUCCESS"


class OpCheckError(AssertionError):
    """An operator does not keep what it says; the message has a section for each test that failed."""


class _Skip(Exception):
    """The test says nothing about this operator."""


class _Missing(AssertionError):
    """What the test is of is not there, rather than wrong."""


class Sample:
    """An operator with arguments to call it with."""

    def __init__(
        self,
        op: Op,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        atol: float | None,
        rtol: float | None,
    ) -> None:
        self.op, self.args, self.kwargs, self.atol, self.rtol = op, args, kwargs, atol, rtol
        self.leaves, self.spec = tree_flatten((args, kwargs))
        self.record = _C.dispatch_plan(op, args, kwargs)["record"]
        self.info = _C.op_info(self.record)

    @property
    def tensors(self) -> list[int]:
        """Places of the tensors among the leaves."""
        return [i for i, x in enumerate(self.leaves) if isinstance(x, Tensor)]

    def call(self, leaves: list[Any]) -> Any:
        """Call the operator with other leaves."""
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.op(*args, **kwargs)

    def mapped(self, change: Callable[[Tensor], Any]) -> list[Any]:
        """The leaves, tensors changed."""
        return [change(x) if isinstance(x, Tensor) else x for x in self.leaves]

    def copies(self) -> list[Any]:
        """The leaves with tensors of their own, which require no grad."""
        return self.mapped(lambda x: x.detach().clone())

    def leaf_names(self) -> list[str]:
        """For each leaf the argument it belongs to."""
        params = [p["name"] for p in self.info["params"]]
        names = []
        for i, value in enumerate(self.args):
            names += [params[i] if i < len(params) else params[-1]] * len(tree_flatten(value)[0])
        for key, value in self.kwargs.items():
            names += [key] * len(tree_flatten(value)[0])
        return names

    def mutated(self) -> set[str]:
        """Arguments that the schema lets it write."""
        return {p["name"] for p in self.info["params"] if p["mutated"]}


def _results(value: Any) -> list[Tensor]:
    return [x for x in tree_flatten(value)[0] if isinstance(x, Tensor)]


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether the values are the same, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    equal = a == b
    if a.is_floating_point() or a.is_complex():
        equal = equal | (rabbet.isnan(a) & rabbet.isnan(b))
    return bool(equal.all())


def _shares(a: Tensor, b: Tensor) -> bool:
    return a.numel() > 0 and b.numel() > 0 and a._storage_id() == b._storage_id()


# ---- the tests


def _schema(s: Sample) -> None:
    leaves = s.copies()
    before = [x.clone() if isinstance(x, Tensor) else x for x in leaves]
    results = _results(s.call(leaves))
    names, writes = s.leaf_names(), s.mutated()
    for name, was, now in zip(names, before, leaves, strict=True):
        if isinstance(now, Tensor) and name not in writes and not _same(was, now):
            raise AssertionError(
                f"the call wrote to its argument '{name}', which the schema does not mark: write "
                f"`Tensor(a!) {name}`, or work on a copy\n  {s.info['schema']}"
            )
    if s.info["view"] or s.info["maybe_view"]:
        return
    for k, result in enumerate(results):
        for name, x in zip(names, leaves, strict=True):
            if isinstance(x, Tensor) and _shares(result, x):
                raise AssertionError(
                    f"result {k} shares memory with the argument '{name}', but by the schema it is a tensor of "
                    f"its own\n  {s.info['schema']}"
                )


def _shape(s: Sample) -> None:
    if s.info.get("data_shape"):
        raise _Skip("the shape of the result depends on the data")
    real = _results(s.call(s.copies()))
    try:
        meta = _results(s.call(s.mapped(lambda x: x.detach().to("meta"))))
    except _C.NotImplementedForError as error:
        raise _Missing(
            f"there is no shape rule, so that meta tensors and kernels that fill their results do not work: add "
            f"`shape=`, or a function with library.shape ({str(error).splitlines()[0]})"
        ) from None
    if len(real) != len(meta):
        raise AssertionError(f"{len(real)} results, but {len(meta)} of meta tensors")
    for k, (r, m) in enumerate(zip(real, meta, strict=True)):
        if m.device.type != "meta":
            raise AssertionError(f"result {k} of meta tensors is on '{m.device.type}'")
        if r.shape != m.shape or r.dtype != m.dtype:
            raise AssertionError(
                f"result {k} has shape {tuple(r.shape)} and dtype {r.dtype}; by the shape rule it has "
                f"shape {tuple(m.shape)} and dtype {m.dtype}"
            )


def _wants_grad(s: Sample) -> list[int]:
    return [i for i in s.tensors if s.leaves[i].requires_grad]


def _derivative(s: Sample) -> None:
    wanted = _wants_grad(s)
    if not wanted:
        raise _Skip("no argument requires grad")
    if s.info["detached"]:
        raise _Skip("its results never carry a gradient")
    if not any(r.is_floating_point() or r.is_complex() for r in _results(s.call(s.copies()))):
        raise _Skip("no result is floating")
    if not s.info["has_vjp"] and not s.info["has_decomp"]:
        raise _Missing(
            "an argument requires grad, but there is no derivative: add `vjp=`, or a function with library.vjp"
        )
    double = {rabbet.float64, rabbet.complex128}
    low = [s.leaves[i].dtype for i in wanted if s.leaves[i].dtype not in double]
    if low:
        raise AssertionError(
            f"the derivative is checked in float64 (or complex128): give tensors of it, got {low[0]}"
        )
    from rabbet.autograd import gradcheck

    _need_repeatable(s)
    leaves = s.copies()

    def call(*inputs: Tensor) -> Any:
        given = list(leaves)
        for i, x in zip(wanted, inputs, strict=True):
            given[i] = x
        results = s.call(given)
        return tuple(results) if isinstance(results, (tuple, list)) else results

    inputs = [s.leaves[i].detach().clone().requires_grad_() for i in wanted]
    gradcheck(call, inputs)


def _need_repeatable(s: Sample) -> None:
    first, again = _results(s.call(s.copies())), _results(s.call(s.copies()))
    if not all(_same(a, b) for a, b in zip(first, again, strict=True)):
        raise _Skip("its results differ from call to call")


def _vmap(s: Sample) -> None:
    names, writes = s.leaf_names(), s.mutated()
    if writes:
        raise _Skip(f"it writes {', '.join(sorted(writes))}")
    if s.info["kind"] in ("random", "creation"):
        raise _Skip(f"it is of kind {s.info['kind']}")
    if s.info.get("data_shape"):
        raise _Skip("the shape of the result depends on the data")
    floating = [i for i in s.tensors if s.leaves[i].is_floating_point()]
    if not floating:
        raise _Skip("no argument is a floating tensor")
    from rabbet.vmap import vmap

    base = s.copies()
    _need_repeatable(s)
    choices = [[i] for i in floating] + ([floating] if len(floating) > 1 else [])
    for chosen in choices:
        stacks = {i: rabbet.stack([base[i], base[i] * 0.5, base[i] * 0.75]) for i in chosen}

        def call(*inputs: Tensor, chosen: list[int] = chosen) -> Any:
            given = list(base)
            for i, x in zip(chosen, inputs, strict=True):
                given[i] = x
            return tuple(_results(s.call(given)))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # running example by example is right, if slow
            batched = vmap(call)(*stacks.values())
        looped = [call(*(x[k] for x in stacks.values())) for k in range(3)]
        which = ", ".join(names[i] for i in chosen)
        for k, got in enumerate(batched):
            want = rabbet.stack([example[k] for example in looped])
            _close(got, want, f"result {k} under vmap over {which} differs from the loop", s)


def _close(got: Tensor, want: Tensor, what: str, s: Sample) -> None:
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(
            f"{what}: shape {tuple(got.shape)}, dtype {got.dtype} in place of {tuple(want.shape)}, {want.dtype}"
        )
    loose = {rabbet.float16: 1e-2, rabbet.bfloat16: 2e-2, rabbet.float32: 1e-4}
    rtol = s.rtol if s.rtol is not None else loose.get(want.dtype, 1e-7)
    atol = s.atol if s.atol is not None else loose.get(want.dtype, 1e-9) * 0.1
    if not bool(rabbet.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True)):
        worst = (got.double() - want.double()).abs().max().item()
        raise AssertionError(f"{what}: by {worst:.3g} at most")


def _autocast(s: Sample) -> None:
    policy = s.info["autocast"]
    floating = [i for i in s.tensors if s.leaves[i].dtype == rabbet.float32]
    if not floating:
        raise _Skip("no argument is a float32 tensor")
    if s.mutated():
        raise _Skip("it writes an argument")
    _need_repeatable(s)
    leaves = s.copies()
    to = {
        "low": rabbet.bfloat16, "fp32": rabbet.float32, "promote": rabbet.float32, "pass": None,
        "float16": rabbet.float16, "bfloat16": rabbet.bfloat16, "float32": rabbet.float32,
    }[policy]  # fmt: skip
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        got = _results(s.call(leaves))
    if to is None:
        if s.info["kind"] == "composite" and s.info["has_decomp"] and not s.info["has_vjp"]:
            return  # what it is made of is cast by its own policies
        cast = leaves
    else:
        cast = [leaves[i].to(to) if i in floating else x for i, x in enumerate(leaves)]
    want = _results(s.call(cast))
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.dtype != w.dtype:
            raise AssertionError(
                f"result {k} under autocast has dtype {g.dtype}; the policy '{policy}' makes it {w.dtype}"
            )
        _close(g, w, f"result {k} under autocast differs from that of cast arguments", s)


_TESTS: dict[str, tuple[Callable[[Sample], None], str | None]] = {
    "test_schema": (_schema, None),
    "test_shape": (_shape, None),
    "test_derivative": (_derivative, "autograd"),
    "test_vmap": (_vmap, "vmap"),
    "test_autocast": (_autocast, "amp"),
}


def _ahead_of_time(s: Sample) -> None:
    raise _Skip("rabbet does not trace programs ahead of time")


# PyTorch's names of tests.
_PYTORCHS: dict[str, tuple[Callable[[Sample], None], str | None]] = {
    "test_autograd_registration": (_derivative, "autograd"),
    "test_faketensor": (_shape, None),
    "test_aot_dispatch_static": (_ahead_of_time, None),
    "test_aot_dispatch_dynamic": (_ahead_of_time, None),
}


def _chosen(names: str | Iterable[str] | None) -> Iterator[str]:
    if names is None:
        yield from _TESTS
        return
    for name in [names] if isinstance(names, str) else names:
        if name not in _TESTS and name not in _PYTORCHS:
            raise _C.ArgumentError(
                f"opcheck: there is no test '{name}'; the tests are {', '.join(_TESTS)}"
            )
        yield name


def judge(s: Sample, name: str) -> tuple[str, str]:
    """Run one test: "passed", "failed", "missing" (a shape rule, a derivative) or "skipped", and why."""
    test, wheel = _TESTS.get(name) or _PYTORCHS[name]
    if wheel is not None:
        try:
            importlib.import_module(f"rabbet.{wheel}")
        except ImportError as error:
            return "skipped", str(error)
    try:
        test(s)
    except _Skip as reason:
        return "skipped", str(reason)
    except _Missing as failure:
        return "missing", str(failure)
    except AssertionError as failure:
        return "failed", str(failure)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def _run(s: Sample, name: str) -> str:
    verdict, why = judge(s, name)
    return {"passed": SUCCESS, "skipped": f"SKIPPED: {why}"}.get(verdict, why)


def opcheck(
    op: str | Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    test_utils: str | Iterable[str] | None,
    raise_exception: bool,
    atol: float | None,
    rtol: float | None,
) -> dict[str, str]:
    """See rabbet.library.opcheck."""
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"opcheck: args must be a tuple, got {type(args).__name__}")
    if not isinstance(op, Op):
        from ._explain import _found

        op = _found(op)
    sample = Sample(op, tuple(args), dict(kwargs or {}), atol, rtol)
    report = {name: _run(sample, name) for name in _chosen(test_utils)}
    failures = {k: v for k, v in report.items() if v != SUCCESS and not v.startswith("SKIPPED")}
    if failures and raise_exception:
        text = "\n".join(f"{name}: {what}" for name, what in failures.items())
        raise OpCheckError(f"opcheck of '{sample.record}' failed:\n{text}")
    return report
