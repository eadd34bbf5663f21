"""The record language: what each part of it means, and how a wrong record is refused."""

import math
import warnings

import numpy as np
import pytest
import rabbet
from rabbet import _C, library

PROVIDER = "test-records 1.0"
META = rabbet.device("meta")


@pytest.fixture
def records():
    """Registers records for one test; calls give the operator `rabbet.ops.rec.NAME`."""
    made = []

    def add(text, file="rec.rec"):
        before = set(_C.record_names())
        _C.add_ops(text, file, PROVIDER)
        made.extend(set(_C.record_names()) - before)
        return rabbet.ops.rec

    yield add
    for name in made:
        _C.remove_op(name)


def refused(text, message, file="rec.rec"):
    before = set(_C.record_names())
    with pytest.raises(rabbet.PluginError, match=message):
        _C.add_ops(text, file, PROVIDER)
    assert set(_C.record_names()) == before


# ---- core: sizes with names


PRODUCT = """
rec::product(Tensor input, Tensor other) -> Tensor
  kind    batched
  core    (m,k),(k,n)->(m,n)
"""


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_core_gives_the_shape_of_the_result(records, device):
    product = records(PRODUCT).product

    @library.impl(product, "cpu")
    def on_cpu(input, other):
        return input @ other

    z = lambda *shape: rabbet.ones(shape, device=device)  # noqa: E731
    got = product(z(2, 3), z(3, 5))
    assert got.shape == (2, 5) and (device == "meta" or got.tolist() == [[3] * 5] * 2)
    with pytest.raises(
        ValueError,
        match=r"k differs: input has 3, other 4 \(input is \(2, 3\), other is \(4, 5\)\)",
    ):
        product(z(2, 3), z(4, 5))
    with pytest.raises(ValueError, match=r"'input' must have 2 dimensions, got shape \(2,\)"):
        product(z(2), z(4, 5))
    with pytest.raises(ValueError, match=r"must have 2 dimensions, got shape \(7, 2, 3\)"):
        product(z(7, 2, 3), z(3, 5))


def test_core_broadcasts_what_stands_in_front(records):
    ops = records("""
rec::stacked(Tensor input, Tensor other) -> (Tensor out, Tensor rows)
  kind    batched
  dtype   input, input
  core    (...,m,k),(...,k,n)->(...,m,n),(...,m)
""")
    z = lambda *shape: rabbet.zeros(shape, device=META)  # noqa: E731
    out, rows = ops.stacked(z(5, 1, 2, 3), z(4, 3, 7))
    assert out.shape == (5, 4, 2, 7) and rows.shape == (5, 4, 2)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        ops.stacked(z(3), z(3, 7))
    with pytest.raises(ValueError, match="do not broadcast"):
        ops.stacked(z(5, 2, 3), z(4, 3, 7))


def test_core_with_optional_fixed_and_any_sizes(records):
    ops = records("""
rec::maybe(Tensor a, Tensor b, Tensor c) -> Tensor
  kind    batched
  core    (...,m?,k),(3,k),*->(...,m?,3)
""")
    z = lambda *shape: rabbet.zeros(shape, device=META)  # noqa: E731
    assert ops.maybe(z(4), z(3, 4), z(9, 9)).shape == (3,)
    assert ops.maybe(z(5, 2, 4), z(3, 4), z()).shape == (5, 2, 3)
    with pytest.raises(ValueError, match="'b' must have size 3 where it has 2"):
        ops.maybe(z(4), z(2, 4), z())


@pytest.mark.parametrize(
    ("core", "message"),
    [
        ("(m,k)->(m)", "a group for each Tensor argument is needed"),
        ("(m),(m),(m)->(m)", "3 groups for 2 Tensor arguments"),
        ("(m),(m)->(m),(m)", "2 groups for 1 results"),
        ("(m),(m)->(n)", "the size 'n' of a result stands in no argument"),
        ("(m),m->(m)", r"expected '\(m,n\),...->\(m,n\)'"),
        ("(m),(m)", r"expected '\(m,n\),...->\(m,n\)'"),
        ("(m),(m)->*", r"expected '\(m,n\),...->\(m,n\)'"),
        ("(a,b,c,d,e,f,g),(m)->(m)", "more than 6 dimensions"),
    ],
)
def test_a_core_that_does_not_fit_is_refused(core, message):
    refused(f"rec::f(Tensor a, Tensor b) -> Tensor\n  kind batched\n  core {core}", message)


def test_batched_without_core_or_shape_is_refused():
    refused(
        "rec::f(Tensor a) -> Tensor\n  kind batched\n", "rec.rec:1: 'rec::f' is of kind batched"
    )


# ---- enums


CHOICE = """
rec::chosen(Tensor x, *, str{'up','down'} way='up', str{'a'}? other=None) -> Tensor
  kind    composite
  decomp  x + 1 if way == 'up' else x - 1
"""


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_choice_is_checked_before_any_kernel(records, device):
    chosen = records(CHOICE).chosen
    x = rabbet.zeros(2, device=device)
    assert chosen(x, way="down").shape == (2,)
    with pytest.raises(ValueError, match="rec::chosen: 'way' must be 'up' or 'down', got 'left'"):
        chosen(x, way="left")
    with pytest.raises(ValueError, match="'other' must be None, 'a', got 'b'"):
        chosen(x, other="b")
    for call in (
        lambda: rabbet.gelu(x, approximate="tahn"),
        lambda: rabbet.div(x, x, rounding_mode="nearest"),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()


def test_choices_are_told(records):
    chosen = records(CHOICE).chosen
    params = _C.op_info("rec::chosen")["params"]
    assert params[1]["choices"] == ["up", "down"] and params[0]["choices"] == []
    assert "str{'up','down'} way='up'" in chosen.__doc__


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("int{'a'} x", "only a str has values in braces"),
        ("str{a} x", "expected quoted values in braces"),
        ("str{} x", "no value in braces"),
        ("str{'a','a'} x", "the value 'a' stands twice"),
        ("str{'a','b'} x='c'", "the default value of 'x' is none of its values"),
    ],
)
def test_wrong_choices_are_refused(parameter, message):
    refused(f"rec::f(Tensor t, {parameter}) -> Tensor\n  decomp t\n", message)


def test_a_formula_with_a_wrong_choice_is_refused():
    refused(
        "rec::f(Tensor t) -> Tensor\n  kind composite\n  decomp gelu(t, approximate='x')\n",
        "'x' is no value of 'approximate' of 'gelu'",
    )


# ---- checks


CHECKED = """
rec::checked(Tensor input, Tensor index, int k=1) -> Tensor
  kind    composite
  check   index.dtype in (int32, int64) : TypeError: expected an index, got {index.dtype}
  check   index.ndim <= 1 : index must have 1 dimension, got {index.shape}
  check   k in (1, 2)
          and k != 3 : IndexError: k is {k}, of {input.shape} and {[k, k + 1]}
  check   data index < 5 : index {value} is too large
  decomp  input + k
"""


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_checks_run_before_any_kernel(records, device):
    checked = records(CHECKED).checked
    x, index = rabbet.zeros(3, device=device), rabbet.zeros(1, dtype=rabbet.int64, device=device)
    assert checked(x, index).shape == (3,)
    with pytest.raises(TypeError, match=r"rec::checked: expected an index, got float32$"):
        checked(x, x)
    with pytest.raises(ValueError, match=r"index must have 1 dimension, got \(1, 1\)$"):
        checked(x, index.reshape(1, 1))
    with pytest.raises(IndexError, match=r"k is 4, of \(3,\) and \(4, 5\)$"):
        checked(x, index, 4)
    info = _C.op_info("rec::checked")
    assert len(info["checks"]) == 3 and info["data_checks"] == [
        "index < 5 : index {value} is too large"
    ]


def test_checks_run_for_elementwise_kernels(records):
    ops = records("""
rec::ew(Tensor x, Tensor y) -> Tensor
  kind    elementwise
  check   x.ndim == 1 : x has {x.ndim} dimensions
  decomp  x * y
""")
    x = rabbet.ones(2)
    assert ops.ew(x, x).tolist() == [1, 1]
    for t in (rabbet.ones(2, 2), rabbet.ones(2, 2, device="meta")):
        with pytest.raises(ValueError, match="x has 2 dimensions"):
            ops.ew(t, t)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x.ndim == 1", "rec.rec:3: expected 'check CONDITION : MESSAGE'"),
        ("x.ndim == 1 : ", "expected 'check CONDITION : MESSAGE'|a check without a message"),
        ("y.ndim == 1 : no", "rec.rec:3: rec::f: unknown name 'y'"),
        ("x.ndim == 1 : {y}", "rec.rec:3: rec::f: unknown name 'y'"),
        ("x.ndim == 1 : {x", "a '{' without '}'"),
        ("x.ndim in 3 : no", "expected '\\(' or '\\[' after 'in'"),
    ],
)
def test_wrong_checks_are_refused(line, message):
    refused(f"rec::f(Tensor x) -> Tensor\n  kind composite\n  check {line}\n  decomp x\n", message)


# ---- dtypes, identity, reduce


def test_dtypes_by_class(records):
    ops = records("""
rec::whole(Tensor x) -> Tensor
  kind    elementwise
  dtypes  int bool
  dtype   x
rec::half(Tensor x) -> Tensor
  kind    composite
  dtypes  float complex
  decomp  x * 0.5
""")
    meta = {"device": META}
    assert ops.whole(rabbet.zeros(2, dtype=rabbet.int8, **meta)).dtype == rabbet.int8
    with pytest.raises(TypeError, match="rec::whole: expected int or bool dtypes, got float32"):
        ops.whole(rabbet.zeros(2, **meta))
    for device in ("cpu", "meta"):
        assert ops.half(rabbet.zeros(2, device=device)).shape == (2,)
        with pytest.raises(TypeError, match="expected float or complex dtypes, got int64"):
            ops.half(rabbet.zeros(2, dtype=rabbet.int64, device=device))
    refused(
        "rec::f(Tensor x) -> Tensor\n  dtypes quaternion\n", "rec.rec:2: dtypes: expected float"
    )
    refused("rec::f(Tensor x) -> Tensor\n  dtypes\n", "dtypes: expected float")


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_reduction_without_identity_refuses_what_is_empty(name, device):
    x = rabbet.zeros(2, 0, device=device)
    with pytest.raises(IndexError, match=r"dimension 1 of shape \(2, 0\) is empty, and the reduc"):
        getattr(rabbet, name)(x, 1)
    assert getattr(rabbet, name)(x, 0).shape == (0,)


def test_what_a_reduction_goes_over_needs_no_name(records):
    ops = records("""
rec::best(Tensor x, dim[]? over=None, bool keep=False) -> Tensor
  kind    reduction
  dtype   x
  identity none
rec::odd(Tensor x, dim first, dim second, bool flag=False, bool keep=False) -> Tensor
  kind    reduction
  dtype   x
  reduce  second, keep
""")
    x = rabbet.zeros(2, 3, device=META)
    assert ops.best(x).shape == () and ops.best(x, [1]).shape == (2,)
    assert ops.best(x, [1], True).shape == (2, 1)
    assert ops.odd(x, 0, 1, True).shape == (2,) and ops.odd(x, 0, 1, False, True).shape == (2, 1)
    with pytest.raises(IndexError, match="rec::best: dimension 0"):
        ops.best(rabbet.zeros(0, 3, device=META), [0])
    head = "rec::f(Tensor x, dim d, bool keep) -> Tensor\n  kind reduction\n"
    refused(head + "  reduce e\n", "rec.rec:3: reduce: 'rec::f' has no argument 'e'")
    refused(head + "  reduce keep\n", "reduce: 'keep' is no dim")
    refused(head + "  reduce d, d\n", "reduce: 'd' is no bool")
    refused(head + "  reduce d, keep, d\n", "expected 'reduce DIM'")
    refused(head + "  identity much\n", "identity: expected none, a number, True or False")


def test_a_dtype_argument_needs_no_name(records):
    ops = records("""
rec::typed(Tensor x, *, dtype? kind=None) -> Tensor
  kind    elementwise
  dtype   promote(x) if kind is None else kind
""")
    x = rabbet.zeros(2, device=META)
    assert ops.typed(x).dtype == rabbet.float32
    assert ops.typed(x, kind=rabbet.float64).dtype == rabbet.float64


def test_numbers_in_the_place_of_tensors_are_a_field(records):
    ops = records(
        """
rec::mixed(Tensor x, Tensor y) -> Tensor
  kind    composite
  numbers
  decomp  x + y
rec::strict(Tensor x, Tensor y) -> Tensor
  kind    composite
  decomp  x + y
""",
        "elementwise.rec",
    )
    assert ops.mixed(rabbet.ones(2), 1).tolist() == [2, 2]
    with pytest.raises(TypeError, match="argument 'y' must be Tensor"):
        ops.strict(rabbet.ones(2), 1)


# ---- long lines and definitions


def test_lines_go_on(records):
    ops = records("""
rec::long(Tensor x,
          *, float by=2.0)
    -> Tensor
  kind    composite
  # a comment between
  decomp  x * by
          # and one inside
          + 1
            + 2
""")
    assert ops.long(rabbet.ones(1)).tolist() == [5]
    assert _C.op_info("rec::long")["schema"] == "rec::long(Tensor x, *, float by=2.0) -> Tensor"


def test_definitions(records):
    ops = records("""
def shared(a, b) = square2(a) + b
def square2(a) = a * a
rec::f(Tensor x, Tensor y) -> Tensor
  kind    composite
  def     own(a) = a + y
  let     z = x * 2
  def     zed() = z
  decomp  own(shared(x + 1, b=1)) - zed()
  vjp x   grad * (2 * (x + 1) - 2)
rec::g(Tensor[] ts) -> Tensor[]
  kind    composite
  decomp  [shared(t, t) for t in ts]
""")
    x, y = np.array([1.0, -2.0]), np.array([3.0, 5.0])
    got = ops.f(rabbet.tensor(x), rabbet.tensor(y))
    np.testing.assert_array_equal(got.numpy(), (x + 1) ** 2 + 1 + y - 2 * x)
    got = ops.g([rabbet.tensor(x), rabbet.tensor(y)])
    np.testing.assert_array_equal(got[1].numpy(), y * y + y)


def test_a_number_given_to_a_definition_is_one_number(records):
    ops = records("""
def both(n, x) = -n * x + n
rec::f(Tensor x) -> Tensor
  kind    composite
  decomp  both(3, x)
""")
    assert ops.f(rabbet.ones(1)).tolist() == [0] and ops.f(rabbet.ones(1) * 2).tolist() == [-3]


def test_what_a_definition_is_given_is_evaluated_once(records):
    ops = records("""
rec::f(Tensor x) -> Tensor
  kind    composite
  def     gap(a) = a - a
  decomp  gap(bernoulli(x, 0.5))
""")
    assert ops.f(rabbet.zeros(1000)).tolist() == [0] * 1000


F = "rec::f(Tensor x) -> Tensor\n  kind composite\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            F + "  def a(y) = b(y)\n  def b(y) = a(y)\n  decomp a(x)\n",
            "made of itself: a -> b -> a",
        ),
        ("def a(y) = a(y)\n" + F + "  decomp x\n", "rec.rec:1: .*made of itself: a -> a"),
        (F + "  def a(y) = y\n  decomp a(x, x)\n", "def 'a' takes 1 argument, got 2"),
        (F + "  def a(y, z) = y\n  decomp a(x)\n", "def 'a' takes 2 arguments, 'z' is missing"),
        (F + "  def a(y) = y\n  decomp a(q=x)\n", "def 'a' has no argument 'q'"),
        (F + "  def a(y) = nowhere\n  decomp x\n", "rec.rec:3: .*unknown name 'nowhere'"),
        ("def a(y) = y + x\n" + F + "  decomp a(x)\n", "a def of a file sees only its arguments"),
        (F + "  def exp(y) = y\n  decomp x\n", "def 'exp' has the name of an operator"),
        (F + "  def a(y) = y\n  def a(z) = z\n  decomp x\n", "rec.rec:4: a second def 'a'"),
        (F + "  def a(y, y) = y\n  decomp x\n", "two arguments are called 'y'"),
        (F + "  def a(y)\n  decomp x\n", r"expected 'def NAME\(ARGUMENTS\) = FORMULA'"),
        (F + "  def 1(y) = y\n  decomp x\n", r"expected 'def NAME\(ARGUMENTS\) = FORMULA'"),
        ("def a y = y\n" + F + "  decomp x\n", "rec.rec:1: expected 'def NAME"),
        (F + "  decomp b(x)\n", "unknown operator 'b'"),
    ],
)
def test_wrong_definitions_are_refused(text, message):
    refused(text, message)


# ---- several forms


def test_other_forms_of_an_operator(records):
    ops = records("""
rec::scaled(Tensor x, float by=2.0, *, float plus=0.0) -> Tensor
  or      (Tensor x, str{'up','down'} way) : by = 3.0 if way == 'up' else 0.5, plus = 1.0
  kind    composite
  decomp  x * by + plus
""")
    x = rabbet.ones(2)
    assert ops.scaled(x).tolist() == [2, 2] and ops.scaled(x, 4.0).tolist() == [4, 4]
    assert ops.scaled(x, "up").tolist() == [4, 4] and ops.scaled(x, way="down").tolist() == [
        1.5,
        1.5,
    ]
    with pytest.raises(ValueError, match="'way' must be 'up' or 'down', got 'left'"):
        ops.scaled(x, way="left")


def test_std_and_var_take_unbiased_as_pytorch_does():
    x = rabbet.tensor([[1.0, 2.0, 4.0], [1.0, 5.0, 3.0]], dtype=rabbet.float64)
    for f, reference in ((rabbet.std, np.std), (rabbet.var, np.var)):
        for ddof in (0, 1):
            want = reference(x.numpy(), 1, ddof=ddof)
            np.testing.assert_allclose(f(x, 1, bool(ddof)).numpy(), want)
            np.testing.assert_allclose(f(x, dim=1, unbiased=bool(ddof)).numpy(), want)
            assert f(x, 1, bool(ddof), True).shape == (2, 1)
            whole = reference(x.numpy(), ddof=ddof)
            np.testing.assert_allclose(f(x, bool(ddof)).item(), whole)
            np.testing.assert_allclose(f(x, unbiased=bool(ddof)).item(), whole)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("Tensor x", "rec.rec:2: expected 'or "),
        ("(Tensor x", "rec.rec:2: expected 'or "),
        ("(Tensor x) by = 1", "rec.rec:2: expected 'or "),
        ("(Tensor x) : to = 1", "'to = 1' sets no argument of 'rec::f'"),
        ("(Tensor x) : by", "'by' sets no argument of 'rec::f'"),
        ("(Tensor y) : by = 1", "nothing gives the argument 'x' of 'rec::f'"),
        ("(Tensr x) : by = 1", "rec.rec:2: unknown type 'Tensr'"),
        ("(Tensor x) : by = z", "unknown name 'z'"),
    ],
)
def test_wrong_forms_are_refused(form, message):
    refused(
        f"rec::f(Tensor x, float by=1.0) -> Tensor\n  or {form}\n  kind composite\n  decomp x * by\n",
        message,
    )


# ---- other fields


@pytest.mark.parametrize("accumulate", ["accumulate", "accumulate decomp", ""])
def test_a_record_computes_in_the_accumulation_dtype_and_rounds_once(records, accumulate):
    """The squares of 300 leave the range of float16, what comes after them does not."""
    ops = records(f"""
rec::spread(Tensor x, *, dtype? dtype=None) -> Tensor
  kind    composite
  {accumulate}
  dtype   x if dtype is None else dtype
  decomp  sum(x * x, dtype=dtype) / 1200
  vjp x   grad * (x * x) / 300
""")
    x = rabbet.full((4,), 300.0, dtype=rabbet.float16, requires_grad=True)
    out = ops.spread(x)
    out.backward(rabbet.ones_like(out))
    assert out.dtype is rabbet.float16 and x.grad.dtype is rabbet.float16
    assert out.item() == (300 if accumulate else math.inf)
    assert x.grad.tolist() == [300 if accumulate == "accumulate" else math.inf] * 4
    wide = x.detach().float()
    assert ops.spread(wide).dtype is rabbet.float32 and ops.spread(wide).item() == 300
    into = ops.spread(wide, dtype=rabbet.float16)
    assert into.dtype is rabbet.float16 and into.item() == (300 if accumulate else math.inf)


def test_a_shape_for_each_result(records):
    ops = records("""
rec::two(Tensor x) -> (Tensor a, Tensor b)
  kind    opaque
  dtype   x, x
  shape   x.shape[:1], [x.ndim, max(x.shape)]
""")
    a, b = ops.two(rabbet.zeros(4, 7, device=META))
    assert a.shape == (4,) and b.shape == (2, 7)
    refused(
        "rec::f(Tensor x) -> (Tensor a, Tensor b)\n  kind opaque\n  dtype x, x\n"
        "  shape x.shape, x.shape, x.shape\n",
        "rec.rec:1: 'rec::f' has 2 results and 3 shapes",
    )
    ops = records("rec::neg(Tensor x) -> Tensor\n  kind opaque\n  shape [x.ndim - 2]\n")
    with pytest.raises(ValueError, match="rec::neg: the result would have the negative size -1"):
        ops.neg(rabbet.zeros(3, device=META))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  decomp x\n", "rec.rec:1: a field without a record"),
        ("rec::f(Tensor x) -> Tensor\n  kond x\n", "rec.rec:2: unknown field 'kond'"),
        (
            "rec::f(Tensor x) -> Tensor\n  kind composite\n  expose none\n  expose function\n",
            "rec.rec:4: a second line 'expose' of 'rec::f'",
        ),
        ("rec::f(Tensr x) -> Tensor\n", "rec.rec:1: unknown type 'Tensr'"),
        ("rec::f(Tensor x) -> Tensr\n", "rec.rec:1: expected a result"),
        ("rec::f(Tensor x\n", "rec.rec:1: expected 'name\\(parameters\\) -> result'"),
        ("family kond x\n", "rec.rec:1: expected 'family kind KIND'"),
        ("rec::f(Tensor x, int n) -> Tensor\n  numbers n\n", "numbers: 'n' is no Tensor"),
        (
            "rec::f(Tensor x) -> Tensor\n  accumulate vjp\n",
            "rec.rec:2: accumulate: expected nothing, decomp or none, got 'vjp'",
        ),
        (
            "rec::f(Tensor x) -> Tensor\n  kind reduction\n"
            "rec::g(int n) -> Tensor\n  kind reduction\n  dtype int64\n",
            "rec.rec:3: 'rec::g' is a reduction of no Tensor",
        ),
    ],
)
def test_malformed_records_are_refused_with_file_and_line(text, message):
    refused(text, message)


def test_chained_comparisons_are_refused():
    """`2 <= ndim <= 4` would compare a truth value with 4."""
    text = "rec::chained(Tensor x) -> Tensor\n  kind opaque\n  check 2 <= x.ndim <= 4 : no\n"
    with pytest.raises(
        rabbet.PluginError,
        match="rec::chained: comparisons are not chained: write 'a < b and b < c'",
    ):
        library.register_records(text)
    assert "rec::chained" not in rabbet._C.record_names()


@pytest.mark.parametrize("argument", ["a", "n", "missing"])
def test_only_tensors_behind_the_first_argument_may_be_elsewhere(argument):
    record = "rec::f(Tensor a, int n, Tensor[] more) -> Tensor\n  kind opaque\n  elsewhere "
    refused(record + argument, f"elsewhere.*'{argument}'")


def test_a_list_and_a_number_that_are_elsewhere_are_brought(records):
    ops = records("rec::f(Tensor a, Tensor[] more, Tensor n) -> Tensor\n  kind opaque\n  dtype a\n  shape a.shape\n"
                  "  elsewhere more, n\n  doc A.\n")  # fmt: skip
    x, y, n = rabbet.ones(2, device="meta"), rabbet.ones(3), rabbet.tensor(2.0)
    assert ops.f(x, [y, x], n).is_meta
    with pytest.raises(RuntimeError, match="device"):
        ops.f(x, [y], rabbet.ones(1))  # it has a dimension
    with pytest.raises(RuntimeError, match="device"):
        ops.f(rabbet.ones(2), [x], n)  # the first one is on the CPU


# ---- out: conditions on destinations, and their layout


def test_destinations_follow_the_record(records):
    ops = records("""
rec::turned(Tensor input) -> Tensor
  kind    composite
  decomp  mT(clone(input))
rec::rows(Tensor input) -> Tensor
  kind    composite
  out     rows
  decomp  mT(clone(input))
rec::columns(Tensor input) -> Tensor
  kind    composite
  out     columns
  decomp  mT(clone(input))
rec::lengths(Tensor input) -> Tensor
  kind    composite
  out     real
  decomp  abs(input)
""")
    x = rabbet.ones(3, 2)

    def strides(op, *shape):
        out = rabbet.empty(shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert op(x, out=out).shape == (2, 3)
        return out.stride()

    for op, empty, larger in (
        (ops.turned, (1, 2), (1, 2)),
        (ops.rows, (3, 1), (3, 1)),
        (ops.columns, (1, 2), (3, 1)),
    ):
        assert op(x).stride() == (1, 2)
        assert (strides(op, 0), strides(op, 7)) == (empty, larger)
        assert strides(op, 2, 3) == (3, 1)
    z = rabbet.ones(2, dtype=rabbet.complex64)
    with pytest.raises(rabbet.DTypeError, match="real destination for a result of dtype float32"):
        ops.lengths(z, out=rabbet.empty(2, dtype=rabbet.complex64))
    assert ops.lengths(z, out=rabbet.empty(2, dtype=rabbet.float64)).tolist() == [1, 1]
    refused(
        "rec::f(Tensor x) -> Tensor\n  kind composite\n  out upwards\n  decomp x",
        "out: expected exact, separate, real, rows or columns, got 'upwards'",
    )
