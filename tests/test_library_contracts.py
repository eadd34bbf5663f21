"""What functions of packs hand over is checked against their records: at registration, or at the call, with the operator,
who registered it and what was expected."""

import itertools

import numpy as np
import pytest
import rabbet
from rabbet import library

count = itertools.count()
X = rabbet.ones(2, 3)


def op(function, result="Tensor", argument="Tensor x", **options):
    """An operator of a name of its own."""
    return library.op(f"contracts::f{next(count)}({argument}) -> {result}", **options)(function)


@pytest.mark.parametrize("kind", ["opaque", "composite"])
@pytest.mark.parametrize(
    "function, error, said",
    [
        (lambda x: rabbet.empty(x.shape, device="meta"), rabbet.PluginError, "out on meta, but 'x' is on cpu"),
        (lambda x: x.add_(1).clone(), rabbet.PluginError, r"wrote to its argument 'x'.*Tensor\(a!\) x"),
        (lambda x: x, ValueError, "shares memory with the argument 'x'"),
        (lambda x: None, TypeError, "must return a Tensor, got None"),
    ],
)  # fmt: skip
def test_a_function_that_breaks_its_schema(kind, function, error, said):
    with pytest.raises(error, match=rf"(?s)contracts::f\d+: .*{said}") as raised:
        op(function, kind=kind)(X.clone())
    assert isinstance(raised.value, rabbet.RabbetError)
    where = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    assert "test_library_contracts.py" in "".join(where)


def test_shapes_and_dtypes_of_an_elementwise_function():
    with pytest.raises(
        rabbet.PluginError, match=r"returned out of shape \(\).*by the record it has shape \(2, 3\)"
    ):
        op(lambda x: x.sum(), kind="elementwise")(X)
    with pytest.raises(
        rabbet.PluginError, match=r"dtype float64; by the record it has .* dtype float32"
    ):
        op(lambda x: x.double(), kind="elementwise")(X)


def test_a_shape_rule_holds_for_the_function():
    mine = op(lambda x: x.sum(), kind="opaque")
    library.shape(mine, lambda x: rabbet.empty(x.shape, device="meta"))
    with pytest.raises(rabbet.PluginError, match=r"returned out of shape \(\)"):
        mine(X)


def test_a_written_argument_that_the_schema_names_is_no_error():
    bump = op(lambda x: x.add_(1) and None, "()", "Tensor(a!) x", kind="opaque")
    x = rabbet.zeros(1)
    bump(x)
    assert x.tolist() == [1]


def test_a_view_that_copies():
    with pytest.raises(
        rabbet.PluginError, match="memory of its own, but by the schema it is a view of 'x'"
    ):
        op(lambda x: x.clone(), "Tensor view(x)", kind="composite")(X)
    view = op(lambda x: x[0], "Tensor view(x)", kind="composite")(X)
    assert view._storage_id() == X._storage_id()


def test_a_derivative_of_another_shape():
    mine = op(lambda x: x * 2, kind="opaque")
    library.vjp(mine, lambda ctx, grad: rabbet.ones(5, 2, 3))
    x = X.clone().requires_grad_()
    with pytest.raises(
        rabbet.PluginError, match=r"gave 'x' a gradient of shape \(5, 2, 3\), expected \(2, 3\)"
    ):
        mine(x).sum().backward()


def test_a_derivative_of_the_shape_that_the_argument_was_broadcast_to_is_summed():
    mine = op(lambda x, y: x * y, argument="Tensor x, Tensor y", kind="elementwise")
    library.vjp(mine, lambda ctx, grad: (grad * ctx.inputs[1], grad * ctx.inputs[0]))
    x, y = X.clone().requires_grad_(), rabbet.ones(3).requires_grad_()
    mine(x, y).sum().backward()
    assert y.grad.tolist() == [2, 2, 2] and x.grad.tolist() == X.tolist()


@pytest.mark.parametrize(
    "argument, said",
    [
        ("int n='a'", "the default value 'a' of 'n' is no int"),
        ("int n=2.5", "the default value 2.5 of 'n' is no int"),
        ("bool n=5", "the default value 5 of 'n' is no bool"),
        ("str n=5", "the default value 5 of 'n' is no str"),
        ("float n='1'", "the default value '1' of 'n' is no float"),
        ("int n=None", "the default value None of 'n' is no int"),
        ("int[] n=[1, a]", "cannot read the default value"),
    ],
)
def test_default_values_are_of_their_type(argument, said):
    with pytest.raises(rabbet.PluginError, match=said):
        library.define(f"contracts::d{next(count)}(Tensor x, {argument}) -> Tensor")


def test_strict_finds_functions_that_do_not_fill_their_result():
    mine = op(lambda x: x * 2, kind="elementwise")

    @library.impl(mine, "cpu")
    def rebinds(x, out):
        out = x * 2  # noqa: F841

    with library.strict(), pytest.raises(rabbet.PluginError, match="wrote nothing to `out`"):
        mine(X)
    filling = op(lambda x: x * 2, kind="elementwise")

    @library.impl(filling, "cpu")
    def fills(x, out):
        np.multiply(x.numpy(), 2, out=out.numpy())

    with library.strict():
        assert filling(X).tolist() == (X * 2).tolist()
    assert library.strict(False)._before is False
