"""library.custom_op and what PyTorch has beside it: schemas from annotations, kernels, derivatives, batching, Library."""

from collections.abc import Sequence
from typing import Optional, Union

import pytest
import rabbet
from rabbet import Tensor, library
from rabbet.library import custom_op, infer_schema


def scaled(x: Tensor, a: float = 2.0, *, k: int = 1) -> Tensor:
    return x * a * k


def plain(x: Tensor) -> Tensor:
    return x + 1


@pytest.fixture
def made():
    """Makes operators that are taken back after the test."""
    operators = []

    def make(name, function, **options):
        operators.append(custom_op(f"customs::{name}", function, **{"mutates_args": (), **options}))
        return operators[-1]

    yield make
    for operator in operators:
        operator._operator.handle.revoke()


# ---- schemas


def several(x: Tensor, n: int | None = None, q: Optional[Sequence[int]] = None, *, u: Union[int, float, bool] = 1,
            d: rabbet.dtype = rabbet.float32, s: str = "a", l: list[Tensor | None] | None = None) -> tuple[Tensor, Tensor]:  # fmt: skip
    raise NotImplementedError


def lists(x: list[Tensor], y: Tensor | None, f: Sequence[float]) -> None:
    raise NotImplementedError


def as_text(x: "Tensor", n: "list[int]") -> "list[Tensor]":
    raise NotImplementedError


@pytest.mark.parametrize(
    "function, mutates, schema",
    [
        (scaled, (), "(Tensor x, float a=2.0, *, SymInt k=1) -> Tensor"),
        (several, (), '(Tensor x, SymInt? n=None, SymInt[]? q=None, *, Scalar u=1, ScalarType d=float32, str s="a", '
                      "Tensor?[]? l=None) -> (Tensor, Tensor)"),
        (lists, ["x", "y"], "(Tensor(a0!)[] x, Tensor(a1!)? y, float[] f) -> ()"),
        (lists, "unknown", "(Tensor(a0!)[] x, Tensor(a1!)? y, float[] f) -> ()"),
        (as_text, (), "(Tensor x, SymInt[] n) -> Tensor[]"),
    ],
)  # fmt: skip
def test_schemas_follow_from_annotations(function, mutates, schema):
    assert infer_schema(function, mutates_args=mutates) == schema
    assert infer_schema(function, mutates_args=mutates, op_name="name") == "name" + schema


def bare(x):
    raise NotImplementedError


def without_result(x: Tensor):
    raise NotImplementedError


def of_dicts(x: dict) -> Tensor:
    raise NotImplementedError


def to_dict(x: Tensor) -> dict:
    raise NotImplementedError


def starred(*x: Tensor) -> Tensor:
    raise NotImplementedError


def with_list(x: Tensor, n: list[int] = [1]) -> Tensor:  # noqa: B006
    raise NotImplementedError


@pytest.mark.parametrize(
    "function, mutates, why",
    [
        (bare, (), "x must have a type annotation"), (without_result, (), "No return type annotation"),
        (of_dicts, (), "unsupported type"), (to_dict, (), "Return has unsupported type"),
        (starred, (), "positional-only args, varargs"), (with_list, (), "unsupported default"),
        (plain, "x", "sequence of the names"), (plain, ["z"], "not found"), (scaled, ["a"], "only Tensors"),
    ],
)  # fmt: skip
def test_functions_without_a_schema_are_refused(function, mutates, why):
    with pytest.raises(ValueError, match=why):
        infer_schema(function, mutates_args=mutates)


# ---- operators


def test_an_operator_is_called_like_its_function(made):
    op = made("scaled", scaled)
    x = rabbet.ones(2)
    assert (
        op(x).tolist() == [2, 2]
        and op(x, 3.0, k=2).tolist() == [6, 6]
        and op(x=x, a=1.0).tolist() == [1, 1]
    )
    assert (
        rabbet.ops.customs.scaled(x).tolist()
        == rabbet.ops.customs.scaled.default(x).tolist()
        == [2, 2]
    )
    assert repr(op) == "<CustomOpDef(customs::scaled)>" and op._name == "scaled"
    for call in (lambda: op(1), op, lambda: op(x, 1.0, 2)):
        with pytest.raises(TypeError):
            call()


def test_the_decorator_makes_an_operator():
    @custom_op("customs::decorated", mutates_args=())
    def decorated(x: Tensor) -> Tensor:
        """Twice."""
        return x * 2

    try:
        assert decorated(rabbet.ones(1)).item() == 2 and decorated.__doc__ == "Twice."
    finally:
        decorated._operator.handle.revoke()


def test_a_schema_may_be_given(made):
    op = made(
        "given", lambda x, n: (x * n, x + n), schema="(Tensor x, SymInt n) -> (Tensor, Tensor)"
    )
    first, second = op(rabbet.ones(1), 3)
    assert (first.item(), second.item()) == (3, 4)


def test_written_arguments_are_written(made):
    def fill(x: Tensor, y: Tensor) -> None:
        x.copy_(y)

    op = made("fill", fill, mutates_args={"x"})
    x = rabbet.zeros(2)
    before = x._version
    assert op(x, rabbet.ones(2)) is None and x.tolist() == [1, 1] and x._version > before
    with pytest.raises(RuntimeError, match="non-functional"):
        op.register_autograd(lambda ctx: (None, None))


def test_results_must_not_be_arguments(made):
    op = made("identity", lambda x: x, schema="(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="shares memory"):
        op(rabbet.ones(2))


def test_without_a_derivative_backward_says_so(made):
    y = made("scaled", scaled)(rabbet.ones(2, requires_grad=True))
    assert y.requires_grad
    with pytest.raises(RuntimeError, match="no derivative"):
        y.sum().backward()


def test_derivatives_get_keyword_only_inputs_apart(made):
    op = made("scaled", scaled)
    seen = []

    def setup(ctx, inputs, keyword_only_inputs, output):
        seen.append((len(inputs), keyword_only_inputs))
        ctx.factor = inputs[1] * keyword_only_inputs["k"]

    op.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=setup)
    x = rabbet.ones(2, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(lambda x: op(x, 3.0, k=2), (x,))
    assert seen[0] == (2, {"k": 2})
    with pytest.raises(TypeError, match="expected a function"):
        op.register_autograd(3)


def test_a_derivative_may_save_tensors(made):
    op = made("cube", lambda x: x**3, schema="(Tensor x) -> Tensor")

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2

    library.register_autograd("customs::cube", backward, setup_context=setup)
    x = rabbet.randn(3, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(op, (x,))


def test_fakes_give_shapes(made):
    op = made("plain", plain)
    with pytest.raises(NotImplementedError, match="shape"):
        op(rabbet.ones(2, device="meta"))
    op.register_fake(lambda x: rabbet.empty_like(x))
    assert op(rabbet.ones(2, 3, device="meta")).shape == (2, 3)
    with pytest.raises(NotImplementedError, match="depend on the data"):
        library.get_ctx().new_dynamic_size()


def test_kernels_of_devices(made):
    op = made("plain", plain, device_types="cuda")
    with pytest.raises(NotImplementedError, match="no kernel"):
        op(rabbet.ones(1))

    @op.register_kernel("cpu")
    def _(x):
        return x + 2

    assert op(rabbet.ones(1)).item() == 3
    op.register_kernel(["cpu"], lambda x: x + 3)
    assert op(rabbet.ones(1)).item() == 4


def test_kernels_can_be_switched_off(made):
    op = made("plain", plain)
    library.register_kernel(op, "cpu", lambda x: x + 10)
    x = rabbet.ones(1)
    assert op(x).item() == 11
    with op.set_kernel_enabled("cpu", False):
        assert op(x).item() == 2
        with op.set_kernel_enabled("cpu"):
            assert op(x).item() == 11
        assert op(x).item() == 2
    assert op(x).item() == 11
    with (
        pytest.warns(UserWarning, match="no kernel was registered"),
        op.set_kernel_enabled("cuda", False),
    ):
        assert op(x).item() == 11


def test_batching_rules(made):
    op = made("plain", plain)
    x = rabbet.ones(2, 3)
    with pytest.warns(UserWarning, match="no batching rule"):
        assert rabbet.func.vmap(op)(x).tolist() == [[2, 2, 2], [2, 2, 2]]

    @op.register_vmap
    def _(info, in_dims, x):
        assert info.batch_size == 2 and in_dims == (0,)
        return x + 100, in_dims[0]

    assert rabbet.func.vmap(op)(x).tolist() == [[101, 101, 101], [101, 101, 101]]


def test_autocast_policy(made):
    op = made("plain", plain)
    op.register_autocast("cpu", rabbet.bfloat16)
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        assert op(rabbet.ones(1)).dtype is rabbet.bfloat16


def test_opcheck_takes_the_definition(made):
    op = made("plain", plain)
    assert library.opcheck(op, (rabbet.ones(2),), test_utils="test_schema") == {
        "test_schema": "SUCCESS"
    }
    op.register_fake(lambda x: rabbet.empty_like(x))
    report = library.opcheck(
        op, (rabbet.ones(2),), test_utils=["test_faketensor", "test_aot_dispatch_dynamic"]
    )
    assert report["test_faketensor"] == "SUCCESS"
    assert report["test_aot_dispatch_dynamic"].startswith("SKIPPED")


@pytest.mark.parametrize("name", ["triton_op", "wrap_triton", "register_torch_dispatch"])
def test_what_is_not_there_is_refused_by_name(name):
    with pytest.raises(NotImplementedError, match=name):
        getattr(library, name)("customs::x", None)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: custom_op("customs::five", 5, mutates_args=()), TypeError),
        (lambda: custom_op("nameless", plain, mutates_args=()), RuntimeError),
        (lambda: custom_op("my.space::x", plain, mutates_args=()), RuntimeError),
        (lambda: custom_op("customs::n", bare, mutates_args=()), ValueError),
        (lambda: custom_op("customs::n", lambda x: 1, mutates_args=(), schema="(Tensor x) -> SymInt"), NotImplementedError),
        (lambda: custom_op("customs::n", lambda x: x, mutates_args=(), schema="(Tensor x -> Tensor"), RuntimeError),
        (lambda: custom_op("customs::n", lambda x, y: x, mutates_args=(), schema="(Tensor x) -> Tensor"), RuntimeError),
        (lambda: library.register_kernel("customs::none", "cpu", plain), RuntimeError),
        (lambda: library.register_autograd("customs::none", plain), RuntimeError),
        (lambda: library.register_vmap("customs::none", plain), RuntimeError),
    ],
)  # fmt: skip
def test_bad_definitions_are_refused(call, error):
    with pytest.raises(error):
        call()
    assert "customs::n" not in rabbet._C.record_names()


# ---- libraries


def tripled(x):
    return x * 3


def test_a_library_defines_and_implements():
    lib = library.Library("customlib", "DEF")
    try:
        assert lib.define("twice(Tensor x) -> Tensor") == "twice"
        lib.impl("twice", lambda x: x * 2, "CPU")
        x = rabbet.ones(1)
        assert (
            rabbet.ops.customlib.twice(x).item()
            == rabbet.ops.customlib.twice.default(x).item()
            == 2
        )
        with pytest.raises(RuntimeError, match="registered already"):
            lib.impl("twice", tripled, "CPU")
        lib.impl("twice", tripled, "CPU", allow_override=True)
        assert rabbet.ops.customlib.twice(x).item() == 3
        lib.define("thrice(Tensor x) -> Tensor")
        lib.impl("thrice", lambda x: x * 3, "CompositeExplicitAutograd")
        lib.impl("thrice", lambda x: rabbet.empty_like(x), "Meta")
        assert rabbet.ops.customlib.thrice(x).item() == 3 and rabbet.ops.customlib.thrice(
            x.to("meta")
        ).shape == (1,)
        with pytest.raises(RuntimeError, match="Only a single library"):
            library.Library("customlib", "DEF")
        with pytest.raises(RuntimeError, match="defines no operators"):
            library.Library("customlib", "IMPL").define("x(Tensor x) -> Tensor")
        with pytest.raises(NotImplementedError, match="register_autograd"):
            lib.impl("twice", lambda x: x, "AutogradCPU")
    finally:
        lib._destroy()
    assert "customlib::twice" not in rabbet._C.record_names()
    for wrong in (("x", "BAD"), ("aten", "DEF")):
        with pytest.raises(ValueError):
            library.Library(*wrong)


def test_define_and_impl_by_pytorchs_arguments():
    op = library.define("customs::seven", "(Tensor x) -> Tensor")
    try:

        @library.impl("customs::seven", "default")
        def seven(x):
            return x * 7

        library.impl("customs::seven", ("cpu", "cuda"), lambda x: x * 8)
        assert rabbet.ops.customs.seven(rabbet.ones(1)).item() == 8
        assert seven(rabbet.ones(1)).item() == 7
    finally:
        op.handle.revoke()
