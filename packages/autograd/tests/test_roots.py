"""backward and grad: roots, gradients, inputs, and what is refused, with PyTorch's words."""

import pytest
import rabbet
from rabbet import autograd
from rabbet.autograd import backward, grad

F64 = rabbet.float64


def leaf(*values, dtype=F64):
    return rabbet.tensor(values, dtype=dtype, requires_grad=True)


def test_several_roots_add_up():
    x = leaf(1.0, 2.0)
    a, b = x * 2, (x * x).sum()
    backward([a, b], [rabbet.tensor([1.0, 10.0], dtype=F64), None])
    assert x.grad.tolist() == [2 + 2, 20 + 4]
    y = x.sum() * 3
    assert grad([y, y], x)[0].tolist() == [6, 6]
    (g,) = grad([x * 2, x * 5], x, [rabbet.ones(2, dtype=F64)] * 2)
    assert g.tolist() == [7, 7]


def test_inputs_say_whose_gradients_are_accumulated():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    h = x * w
    backward((h * h).sum(), inputs=[w, h])
    assert x.grad is None
    assert h.retains_grad is False
    assert w.grad.tolist() == [2 * 3 * 1, 2 * 8 * 2]
    backward((x * w).sum(), inputs=x)
    assert x.grad.tolist() == [3, 4] and w.grad.tolist() == [6, 32]


def test_an_input_may_be_named_twice():
    x = leaf(2.0)
    assert [g.item() for g in grad((x * x).sum(), [x, x])] == [4, 4]


def test_unused_inputs_are_none_or_zeros_when_asked_for():
    x, z = leaf(1.0), leaf(2.0, 3.0)
    assert grad((x * 2).sum(), (x, z), allow_unused=True)[1] is None
    zeros = grad((x * 2).sum(), (x, z), materialize_grads=True)[1]
    assert zeros.tolist() == [0, 0] and not zeros.requires_grad


def test_the_former_name_of_grad_tensors_warns():
    x = leaf(1.0, 2.0)
    with pytest.warns(FutureWarning, match="`grad_variables` is deprecated"):
        backward(x * 2, grad_variables=rabbet.ones(2, dtype=F64))
    assert x.grad.tolist() == [2, 2]
    with (
        pytest.warns(FutureWarning, match="grad_variables"),
        pytest.raises(RuntimeError, match=r"both passed to `backward\(\)`"),
    ):
        backward(x * 2, rabbet.ones(2), grad_variables=rabbet.ones(2))
    with pytest.warns(FutureWarning, match="only_inputs argument is deprecated"):
        grad((x * 2).sum(), x, only_inputs=False)


def twice():
    y = (leaf(1.0) ** 2).sum()
    y.backward()
    y.backward()


def modified():
    x = leaf(1.0, 2.0) * 1
    y = x * x
    x.add_(1)
    y.sum().backward()


def cleared():
    (leaf(1.0) * 1).requires_grad = False


X, Z = leaf(1.0, 2.0), leaf(3.0)
ONES = rabbet.ones(2, dtype=F64)
REFUSED = [
    (lambda: grad(X * 2, X), RuntimeError, r"only for scalar outputs, output 0 has shape \(2,\)"),
    (lambda: grad([X.sum(), X * 2], X), RuntimeError, "scalar outputs, output 1 has shape"),
    (
        lambda: (X.sum() * 1j).backward(),
        RuntimeError,
        "only for real scalar outputs but got .*complex128",
    ),
    (
        lambda: ONES.sum().backward(),
        RuntimeError,
        "element 0 of tensors does not require grad and does",
    ),
    (
        lambda: backward([X.sum(), ONES.sum()]),
        RuntimeError,
        "element 1 of tensors does not require",
    ),
    (lambda: rabbet.arange(3).sum().backward(), RuntimeError, "does not require grad"),
    (
        lambda: rabbet.ones(2, dtype=rabbet.int64, requires_grad=True),
        RuntimeError,
        "got rabbet.int64",
    ),
    (
        lambda: grad(X.sum(), ONES),
        RuntimeError,
        "One of the differentiated Tensors does not require",
    ),
    (
        lambda: grad(X.sum(), (X, Z)),
        RuntimeError,
        "The differentiated Tensor at index 1 appears to not",
    ),
    (lambda: grad([], X), RuntimeError, "index 0 appears to not have been used"),
    (lambda: grad(X.sum(), []), RuntimeError, r"`inputs` argument to `grad\(\)` cannot be empty"),
    (
        lambda: backward(X.sum(), inputs=[]),
        RuntimeError,
        r"argument to `backward\(\)` cannot be empty",
    ),
    (
        lambda: X.sum().backward(inputs=[]),
        RuntimeError,
        r"argument to `backward\(\)` cannot be empty",
    ),
    (
        lambda: X.sum().backward(inputs=[3]),
        RuntimeError,
        "to be Tensors or GradientEdges, but got int",
    ),
    (lambda: grad(X.sum(), [3]), RuntimeError, "have to be Tensors or GradientEdges, but got int"),
    (lambda: grad([3], X), TypeError, "Expected output to be a Tensor or a GradientEdge, got int"),
    (lambda: backward([X * 2], [3.0]), TypeError, "either Tensors or None, but got float"),
    (lambda: (X * 2).backward(3.0), TypeError, "gradient must be a Tensor or None, not float"),
    (lambda: grad([X * 2, X * 3], X, [ONES]), RuntimeError, "got 2 tensors and 1 gradients"),
    (lambda: grad(X * 2, X, Z.detach()), RuntimeError, r"grad_output\[0\] has a shape of \(1,\)"),
    (
        lambda: (X * 2).backward(ONES * 1j),
        RuntimeError,
        r"grad_output\[0\] has a dtype of .*complex128",
    ),
    (lambda: grad(X * 2, X, ONES.to("meta")), RuntimeError, "expected device cpu but got meta"),
    (lambda: (X * 2).backward(ONES.to("meta")), RuntimeError, "invalid gradient at index 0"),
    (
        lambda: grad(X.sum(), Z, allow_unused=False, materialize_grads=True),
        ValueError,
        "but got: allow_unused=False",
    ),
    (twice, RuntimeError, "Trying to backward through the graph a second time"),
    (modified, RuntimeError, "modified by an inplace operation: MulBackward0 saved 'input'"),
    (cleared, RuntimeError, "only change requires_grad flags of leaf variables"),
    (
        lambda: X.add_(1),
        RuntimeError,
        "add_: a leaf Variable that requires grad is being used in an in-",
    ),
    (lambda: X[0].mul_(2), RuntimeError, "mul_: a view of a leaf Variable that requires grad"),
    (
        lambda: setattr(X, "grad", Z.detach()),
        RuntimeError,
        r"gradient of size '\(1,\)' to a tensor of s",
    ),
    (
        lambda: setattr(X, "grad", ONES.float()),
        RuntimeError,
        "gradient with dtype 'rabbet.float32'",
    ),
    (
        lambda: setattr(X, "grad", ONES.to("meta")),
        RuntimeError,
        "on another device than the tensor's",
    ),
    (lambda: setattr(X, "grad", X), RuntimeError, "can't assign Variable as its own grad"),
    (lambda: setattr(X, "grad", 3), TypeError, "a Tensor or None but got grad of type int"),
]


@pytest.mark.parametrize("call,error,message", REFUSED, ids=range(len(REFUSED)))
def test_misuse_is_explained(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert X.grad is None and X.tolist() == [1, 2]


def test_gradients_of_other_real_dtypes_are_cast():
    x = leaf(1.0, 2.0)
    for g in (rabbet.ones(2), rabbet.ones(2, dtype=rabbet.int64)):
        (got,) = autograd.grad(x * 2, x, g)
        assert got.dtype == F64 and got.tolist() == [2, 2]
