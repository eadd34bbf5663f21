"""Every record with test cases, written in place and with `out=`, through views of a larger tensor."""

import pytest
import rabbet
from observer import check_functional, observed
from rabbet import _C, Tensor
from rabbet._pytree import tree_map
from rabbet.func import functionalize
from rabbet_testing import assert_close
from rabbet_testing.cases import cases, op_names

MODES = ["mutations", "mutations_and_views"]


def calls():
    """(label, record, arguments, keywords) of the calls with a tensor in front."""
    for name in op_names():
        # Calls that draw numbers, or that write lists, have tests of their own.
        info = _C.op_info(name)
        apart = info["kind"] == "random" or any(p["mutated"] for p in info["params"])
        for case in [] if apart else cases(name):
            if case.args and isinstance(case.args[0], Tensor):
                yield str(case), name, case.args, case.kwargs


def inplace_methods():
    """Of each in-place method the calls that its records have."""
    by_record = {}
    for label, name, args, kwargs in calls():
        by_record.setdefault(name, []).append((label, args, kwargs))
    for method in dir(Tensor):
        found = getattr(Tensor, method)
        if not method.endswith("_") or not getattr(found, "inplace", False):
            continue
        for record in found.overloads:
            for label, args, kwargs in by_record.get(record, []):
                yield pytest.param(method, args, kwargs, id=f"{method}-{label}")


def with_out():
    for label, name, args, kwargs in calls():
        info = _C.op_info(name)
        if len(info["rets"]) == 1 and not info["view"] and not info["returns_list"]:
            yield pytest.param(name, args, kwargs, id=label)


def outcome(run):
    try:
        return run(), None
    except Exception as error:  # any error of plain execution must come out again
        return None, error


def fresh(tree):
    return tree_map(lambda x: x.detach().clone() if isinstance(x, Tensor) else x, tree)


def compare(f, base, args):
    """`f(base, *args)` writes to part of `base`."""
    a = base.clone()
    rabbet.manual_seed(0)
    expected, error = outcome(lambda: f(a, *fresh(args)))
    for remove in MODES:
        b, given = base.clone(), fresh(args)
        rabbet.manual_seed(0)
        with observed() as seen:
            got, raised = outcome(lambda: functionalize(f, remove=remove)(b, *given))  # noqa: B023
        assert type(raised) is type(error), (raised, error)
        if error:
            assert str(raised).splitlines()[0] == str(error).splitlines()[0]
            assert_close(b, base, rtol=0, atol=0)
            continue
        check_functional(seen, 1, remove == "mutations_and_views")
        for ours, theirs in zip([*got, b], [*expected, a], strict=True):
            assert_close(ours, theirs, rtol=0, atol=0)


def around(x):
    """A tensor with `x` in the middle, and what takes it out."""
    base = rabbet.zeros(3, 2, *x.shape, dtype=x.dtype)
    base[1, 1] = x.detach()
    return base, lambda b: b.transpose(0, 1)[1, 1]


@pytest.mark.parametrize(("method", "args", "kwargs"), list(inplace_methods()))
def test_in_place(method, args, kwargs):
    base, part = around(args[0])

    def f(b, *rest):
        x = part(b)
        y = getattr(x, method)(*rest, **kwargs)
        assert y is x
        return x * 1, b[1].clone()

    compare(f, base, args[1:])


@pytest.mark.parametrize(("name", "args", "kwargs"), list(with_out()))
def test_out(name, args, kwargs):
    result, error = outcome(lambda: rabbet.ops(name)(*fresh(args), **kwargs))
    if error or not isinstance(result, Tensor):
        pytest.skip(f"{name}: no result of one tensor: {error}")
    base, part = around(result)

    def f(b, *given):
        rabbet.ops(name)(*given, **kwargs, out=part(b))
        return b[1], b.sum((0, 1))

    compare(f, base, args)


def test_that_there_are_many():
    assert len(list(inplace_methods())) > 80 and len(list(with_out())) > 200
