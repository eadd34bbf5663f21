"""What vmap refuses, and how it says so."""

import pytest
import rabbet
from rabbet import vmap

X = rabbet.zeros(3, 2)


@pytest.mark.parametrize(
    "in_dims,message",
    [
        ("0", "in_dims: expected an int or a .nested. tuple"),
        (True, "in_dims: expected an int or a .nested. tuple"),
        ((0, 0), "an entry for each of the 1 positional arguments, got 2"),
        (((0, 0),), "in_dims must have the structure of the arguments"),
        ((1.5,), "expected an int or None for input 0, got 1.5"),
        (2, "in_dims has 2 for input 0, a Tensor of 2 dimensions; expected -2 <= dim < 2"),
        (-3, "in_dims has -3 for input 0"),
        (None, "expected an int or a .nested. tuple"),
        ((None,), "no input is batched"),
    ],
)
def test_in_dims(in_dims, message):
    with pytest.raises(ValueError, match=message):
        vmap(lambda x: x, in_dims)(X)


def test_inputs():
    with pytest.raises(ValueError, match="got no inputs"):
        vmap(lambda: X)()
    with pytest.raises(ValueError, match="input 1, which is of type float and not a Tensor"):
        vmap(lambda x, y: x)(X, 1.0)
    with pytest.raises(ValueError, match="one size, but input 0 has 3, input 1 has 2"):
        vmap(lambda x, y: x)(X, rabbet.zeros(2))
    with pytest.raises(ValueError, match="input 0 has 3, input 2 has 4"):
        vmap(lambda x, y, k: x, (0, None, 0))(X, X, rabbet.zeros(4))
    with pytest.raises(ValueError, match="in_dims has 0 for input 0, a Tensor of 0 dimensions"):
        vmap(lambda x: x)(rabbet.tensor(1.0))


@pytest.mark.parametrize(
    "out_dims,message",
    [
        ((0, 0), "out_dims must have the structure of the results"),
        ("0", "out_dims: expected ints"),
        (None, "result 0 differs between examples"),
    ],
)
def test_out_dims(out_dims, message):
    with pytest.raises(ValueError, match=message):
        vmap(lambda x: x, out_dims=out_dims)(X)


@pytest.mark.parametrize("dim", [2, -3])
def test_out_dims_that_a_result_has_not(dim):
    with pytest.raises(IndexError, match=f"out_dims has {dim} for a result of 2 dimensions"):
        vmap(lambda x: x, out_dims=dim)(X)


def test_options():
    with pytest.raises(TypeError, match="expected a function, got int"):
        vmap(3)
    with pytest.raises(RuntimeError, match="Only allowed values for randomness"):
        vmap(lambda x: x, randomness="some")
    with pytest.raises(ValueError, match="chunk_size should be None or greater than 0"):
        vmap(lambda x: x, chunk_size=0)


@pytest.mark.parametrize("result", [1.0, None, "text", (X, 2)])
def test_results_that_are_no_tensors(result):
    with pytest.raises(ValueError, match="return Tensors only, got type"):
        vmap(lambda x: result)(X)


@pytest.mark.parametrize(
    "read", [lambda x: x.sum().item(), lambda x: bool(x.sum() > 0), lambda x: x.tolist()]
)
def test_values_cannot_be_read(read):
    with pytest.raises(RuntimeError, match="inside 'vmap'"):
        vmap(lambda x: rabbet.tensor(read(x)))(X)


@pytest.mark.parametrize("op", ["nonzero", "masked_select"])
def test_shapes_that_depend_on_data(op):
    def f(x):
        return rabbet.nonzero(x) if op == "nonzero" else rabbet.masked_select(x, x > 0)

    with pytest.raises(NotImplementedError, match=f"{op}: vmap: the shape of the result depends"):
        vmap(f)(X)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: rabbet.bincount(x, minlength=3),
        lambda x: rabbet.argwhere(x > 1),
        lambda x: rabbet.repeat_interleave(rabbet.arange(3), x),
        rabbet.repeat_interleave,
    ],
)
def test_shapes_that_depend_on_data_and_are_the_same_for_all_examples(f):
    x = rabbet.tensor([[0, 2, 2], [2, 2, 0]])
    with pytest.warns(UserWarning, match="runs once per example"):
        found = vmap(f)(x)
    assert rabbet.equal(found, rabbet.stack([f(t) for t in x]))


@pytest.mark.filterwarnings("ignore:vmap")
def test_shapes_that_depend_on_data_and_differ_between_examples():
    x = rabbet.tensor([[0, 2, 2], [2, 5, 1]])
    for f in (rabbet.bincount, rabbet.argwhere):
        with pytest.raises(NotImplementedError, match="the shape of the result depends"):
            vmap(f)(x)
    with pytest.raises(NotImplementedError, match="the shape of the result depends"):
        vmap(rabbet.argwhere, strict=True)(x)
    with pytest.raises(RuntimeError, match="bincount"):
        vmap(rabbet.bincount)(x - 1)


def test_a_write_to_a_tensor_that_is_not_batched():
    y = rabbet.zeros(2)
    with pytest.raises(RuntimeError, match="add: vmap: the tensor that is written is not batched"):
        vmap(lambda x: y.add_(x))(X)
    with pytest.raises(RuntimeError, match="addcmul: vmap: the tensor that is written"):
        vmap(lambda x: y.addcmul_(x, x))(X)
    with pytest.raises(RuntimeError, match="copy: vmap: the tensor that is written"):
        vmap(lambda x: y.copy_(x))(X)
    assert y.tolist() == [0, 0]


def test_a_batched_tensor_must_not_leave():
    kept = []
    vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(RuntimeError, match="must not leave the function"):
        kept[0] + 1
    with pytest.raises(RuntimeError, match="must not leave"):
        vmap(lambda x: x + kept[0])(X)
    with pytest.raises(RuntimeError, match="has left"):
        vmap(lambda x: kept[0])(X)
    assert "wrapped" in repr(kept[0])


def test_an_error_leaves_the_level():
    def fail(x):
        raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            vmap(vmap(fail))(X)
    assert vmap(lambda x: x + 1)(X).tolist() == (X + 1).tolist()


def test_errors_of_operators_pass():
    with pytest.raises(RuntimeError, match="matmul"):
        vmap(lambda x: x @ rabbet.zeros(3))(X)
    with pytest.raises(IndexError):
        vmap(lambda x: x[5])(X)
    with pytest.raises((IndexError, RuntimeError), match="sum"):
        vmap(lambda x: x.sum(1))(X)
    with pytest.raises((IndexError, RuntimeError)):
        vmap(lambda x: x.sum().select(0, 0))(X)
    with pytest.raises(RuntimeError, match="expand"):
        vmap(lambda x: x.expand(-1, 2))(X)
    with pytest.raises(RuntimeError):
        vmap(lambda x: x.view(3))(X)
    with pytest.raises(RuntimeError, match="storage"):
        vmap(lambda x: x.as_strided((1,), (1,), X.numel()))(X)


A, B = rabbet.ones(5, 2, 3, 1), rabbet.ones(5, 1, 2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: a * b, r"mul: shapes \(2, 3, 1\) and \(1, 2, 3\) do not broadcast"),
        (lambda a, b: a.add_(b), r"add: shapes \(2, 3, 1\) and \(1, 2, 3\) do not broadcast"),
        (lambda a, b: b.add_(a[:, :2]), r"destination has shape \(1, 2, 3\).* shape \(2, 2, 3\)"),
        (lambda a, b: rabbet.cat([a, b]), r"cat: .* shape \(2, 3, 1\), tensor 1 has .*\(1, 2, 3\)"),
        (
            lambda a, b: a @ a,
            r"matmul: k differs: input has 1, other 3 \(input is \(2, 3, 1\), other is \(2, 3, 1\)\)",
        ),
        (lambda a, b: a.expand(2, 2, 1), r"expand: .* the input \(2, 3, 1\)"),
        (lambda a, b: rabbet.bmm(a, b), r"bmm: .*\(2, 3, 1\).*\(1, 2, 3\)"),
        (
            lambda a, b: rabbet.nn.functional.linear(a, b[0]),
            r"input is \(2, 3, 1\), weight is \(2, 3\)",
        ),
        (lambda a, b: a.gather(0, (b[0, :1] + 8).long()[..., None]), "index 9 is out of range"),
    ],
)
def test_errors_speak_of_one_example(call, message):
    """What the user has written for one example is told of one, at any depth and in a gradient."""
    inputs = [A.clone(), B.clone()]
    with pytest.raises((RuntimeError, IndexError), match=message):
        vmap(call)(*inputs)
    with pytest.raises((RuntimeError, IndexError), match=message):
        vmap(vmap(call))(A[None].clone(), B[None].clone())
    with pytest.raises((RuntimeError, IndexError), match=message):
        vmap(rabbet.func.grad(lambda a, b: call(a * 1, b).sum()))(*inputs)


def test_an_error_that_one_example_does_not_have():
    index = rabbet.tensor([[0], [7]])
    with pytest.raises(IndexError, match="gather: index 7 is out of range"):
        vmap(lambda x, i: x.gather(0, i))(rabbet.zeros(2, 3), index)
    with pytest.raises(RuntimeError, match="do not broadcast"):
        vmap(lambda a, b: a * b)(A[:0], B[:0])
    with pytest.raises(RuntimeError, match="at most 32 dimensions"):
        vmap(lambda x: x[0].view(*[1] * 32))(X)


def test_strict(monkeypatch):
    f = lambda x: rabbet.ops.searchsorted(x, rabbet.zeros(2))  # noqa: E731
    with pytest.raises(
        NotImplementedError, match=r"searchsorted: vmap: there is no batching rule.*strict"
    ):
        vmap(f, strict=True)(X)


def test_a_loop_warns_once_and_names_the_operator():
    import subprocess
    import sys

    code = """
import warnings, rabbet
f = rabbet.vmap(lambda x: rabbet.ops.searchsorted(x, rabbet.zeros(2)))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        f(rabbet.arange(6.0).reshape(3, 2))
assert len(caught) == 1 and caught[0].category is UserWarning, caught
assert "vmap: 'searchsorted' has no batching rule" in str(caught[0].message)
print("ok")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


def test_shapes_that_an_operator_refuses_are_refused_where_it_is_made_of_others():
    a, b = rabbet.ones(3, 2, 4), rabbet.ones(3, 4, 5)
    with pytest.raises(ValueError, match=r"addmm: 'input' of shape \(7, 2, 5\) does not broadcast"):
        vmap(rabbet.addmm)(rabbet.ones(3, 7, 2, 5), a, b)
