"""Bad input: a clear error that names the operator, the argument, what was expected and what came."""

import pytest
import rabbet

X = rabbet.arange(6, dtype=rabbet.float32).reshape(2, 3)

BAD = [
    (
        lambda: rabbet.matmul(X, X),
        RuntimeError,
        r"matmul: k differs: input has 3, other 2 \(input is \(2, 3\), other is \(2, 3\)\)",
    ),
    (
        lambda: X + rabbet.zeros(4),
        RuntimeError,
        r"add: shapes \(2, 3\) and \(4,\) do not broadcast",
    ),
    (lambda: X.view(4), RuntimeError, r"view: size \(4,\) does not fit an input of 6 elements"),
    (lambda: X.t().view(6), RuntimeError, "use reshape"),
    (lambda: X.view(-1, -1), RuntimeError, "only one size can be -1"),
    (
        lambda: X.sum(2),
        IndexError,
        "sum: dim 2 is out of range for a tensor of 2 dimensions, expected -2 to 1",
    ),
    (lambda: X.sum((0, 0)), RuntimeError, "sum: dimension 0 appears twice in 'dim'"),
    (lambda: X[5], IndexError, "select: index 5 is out of range for dimension 0 of size 2"),
    (lambda: X[0, 0, 0], IndexError, "too many indices"),
    (lambda: X[::-1], ValueError, "slice step must be positive"),
    (lambda: X[1.5], IndexError, "an index must be"),
    (lambda: X[rabbet.tensor([0, 7])], IndexError, "7"),
    (lambda: X.gather(1, rabbet.tensor([[9, 0, 0]])), IndexError, "gather"),
    (
        lambda: X.gather(1, X),
        TypeError,
        "gather: 'index' must have dtype int64 or int32, got float32",
    ),
    (
        lambda: rabbet.arange(4).mean(),
        TypeError,
        "mean: expected a floating or complex dtype, got int64",
    ),
    (lambda: X & 1.0, TypeError, "bitwise_and: expected int or bool dtypes, got float32"),
    (
        lambda: rabbet.zeros(2, dtype=rabbet.complex64) < 0,
        TypeError,
        "lt: expected real or bool dtypes",
    ),
    (
        lambda: rabbet.arange(3).div(0, rounding_mode="floor"),
        RuntimeError,
        "integer division by zero",
    ),
    (
        lambda: rabbet.arange(3).add_(0.5),
        TypeError,
        "float32 cannot be written to a destination of dtype int64",
    ),
    (lambda: X.add_(rabbet.zeros(2, 2, 3)), RuntimeError, r"the destination has shape \(2, 3\)"),
    (
        lambda: rabbet.zeros(1).expand(3).add_(1),
        RuntimeError,
        "several elements of the destination refer to one place",
    ),
    (lambda: rabbet.zeros(0).max(), RuntimeError, "amax: dimension 0 of shape"),
    (lambda: rabbet.cat([]), RuntimeError, "cat: expected at least one tensor"),
    (
        lambda: rabbet.cat([X, rabbet.zeros(2, 4)]),
        RuntimeError,
        "cat: sizes must match except in dimension 0",
    ),
    (lambda: rabbet.zeros(-1), RuntimeError, "must not be negative"),
    (lambda: rabbet.zeros(2**40, 2**40), MemoryError, "too large"),
    (
        lambda: rabbet.zeros(2, device="nowhere"),
        RuntimeError,
        r"no backend for device 'nowhere' is installed; installed devices: (?!.*(autograd|vmap)).*cpu.*meta",
    ),
    (
        lambda: rabbet.device("autograd"),
        RuntimeError,
        r"no backend for device 'autograd' is installed; installed devices: (?!.*autograd)",
    ),
    (
        lambda: rabbet.zeros(2, device="cpu:1"),
        RuntimeError,
        "there is no device cpu:1: 'cpu' has 1 device, cpu:0",
    ),
    (lambda: X.to("cpu:3"), RuntimeError, "there is no device cpu:3: "),
    (
        lambda: X + rabbet.zeros(2, 3, device="meta"),
        RuntimeError,
        "'input' is on cpu and 'other' is on meta",
    ),
    (lambda: rabbet.zeros(2, device="meta").item(), RuntimeError, "item"),
    (
        lambda: rabbet.tensor([[1, 2], [3]]),
        ValueError,
        r"^expected sequence of length 2 at dim 1 \(got 1\): the data is ragged, \[0\] has length 2 and "
        r"\[1\] has length 1$",
    ),
    (
        lambda: rabbet.tensor([[[1], [2]], [[1], (2, 3)]]),
        ValueError,
        r"length 1 at dim 2 \(got 2\): .* \[0\]\[0\] has length 1 and \[1\]\[1\] has length 2$",
    ),
    (lambda: rabbet.tensor([[], [1]]), ValueError, r"length 0 at dim 1 \(got 1\)"),
    (
        lambda: rabbet.tensor([[1, 2], 3]),
        TypeError,
        r"ragged: \[0\] is a sequence, but \[1\] is a number$",
    ),
    (
        lambda: rabbet.tensor([[1, 2], [[3], 4]]),
        TypeError,
        r"ragged: \[0\]\[0\] is a number, but \[1\]\[0\] is a sequence$",
    ),
    (lambda: rabbet.tensor([[1], None]), TypeError, "must be numbers .*, got NoneType"),
    (lambda: rabbet.stack([]), RuntimeError, "stack expects a non-empty list of tensors"),
    (
        lambda: rabbet.stack([rabbet.zeros(3, 4), rabbet.zeros(3, 4), rabbet.zeros(3, 5)], 2),
        RuntimeError,
        r"stack expects each tensor to be equal size, but got \(3, 4\) at entry 0 and \(3, 5\) at entry 2",
    ),
    (
        lambda: rabbet.stack([X, X[0]], out=rabbet.zeros(2)),
        RuntimeError,
        r"got \(2, 3\) at entry 0 and \(3,\) at entry 1",
    ),
    (lambda: rabbet.stack([X, X], 4), IndexError, "dim 4 is out of range"),
    (
        lambda: rabbet.vstack([rabbet.zeros(3), rabbet.zeros(4)]),
        RuntimeError,
        r"vstack: tensors of shapes \(3,\), \(4,\) do not fit together",
    ),
    (
        lambda: rabbet.column_stack([X, rabbet.zeros(3)]),
        RuntimeError,
        r"column_stack: tensors of shapes \(2, 3\), \(3,\) do not fit together",
    ),
    (lambda: rabbet.tensor("text"), TypeError, "numbers"),
    (lambda: rabbet.tensor([300], dtype=rabbet.uint8), RuntimeError, "300"),
    (lambda: rabbet.gt(2, X), TypeError, "argument 'input' must be Tensor, not int"),
    (lambda: rabbet.rsub(2, X), TypeError, "argument 'input' must be Tensor, not int"),
    (lambda: rabbet.clamp_max(2.5, X), TypeError, "argument 'input' must be Tensor, not float"),
    (lambda: rabbet.linspace(X, 1, 3), RuntimeError, "linspace: 'start' must be .* 0-dimension"),
    (lambda: rabbet.logspace(0, X, 3), RuntimeError, "logspace: 'end' must be .* 0-dimension"),
    (lambda: rabbet.roll(X, []), RuntimeError, "roll: `shifts` required"),
    (
        lambda: rabbet.linalg.cross(X, X[:, :1]),
        RuntimeError,
        "inputs dimension -?1 must have length 3. Got 3 and 1",
    ),
    (
        lambda: rabbet.linalg.cross(X, X[0]),
        RuntimeError,
        "inputs must have the same number of dimensions",
    ),
    (lambda: rabbet.add(X), TypeError, "other"),
    (lambda: rabbet.add(X, "a"), TypeError, "argument 'other' must be"),
    (lambda: rabbet.add(X, X, beta=1), TypeError, "beta"),
    (
        lambda: rabbet.ops.convolution(X, X),
        RuntimeError,
        "convolution: 'weight' must have 3, 4 or 5 dimensions",
    ),
    (
        lambda: rabbet.ops.linear(X, rabbet.zeros(4, 4)),
        RuntimeError,
        "linear: in_features differs: input has 3, weight 4",
    ),
    (lambda: rabbet.einsum("ij,jk", X), RuntimeError, "einsum"),
    (lambda: bool(X), ValueError, "ambiguous"),
    (lambda: rabbet.arange(1, 5, -1), RuntimeError, "arange"),
    (lambda: rabbet.set_num_threads(0), RuntimeError, "set_num_threads: expected 1 to"),
    (lambda: rabbet.no_such_thing, AttributeError, "no attribute 'no_such_thing'$"),
    (lambda: rabbet.zeross(2), AttributeError, r"no attribute 'zeross'; did you mean 'zeros'\?$"),
    (lambda: rabbet.Tensr, AttributeError, r"did you mean 'Tensor'\?$"),
]


@pytest.mark.parametrize("call,error,message", BAD, ids=range(len(BAD)))
def test_bad_input_raises_a_clear_error(call, error, message):
    before = X.clone()
    with pytest.raises(error, match=message):
        call()
    assert rabbet.equal(X, before)


def test_an_error_names_the_operator_and_what_was_running():
    with pytest.raises(rabbet.RabbetError) as caught:
        X.gather(1, rabbet.tensor([[9, 0, 0]]))
    assert "while running gather on cpu [rabbet-backend-cpu" in str(caught.value)


def test_a_failed_write_leaves_the_target_as_it_was():
    x = rabbet.zeros(3)
    with pytest.raises(IndexError):
        x.scatter_add_(0, rabbet.tensor([0, 1, 5]), rabbet.ones(3))
    assert x.tolist() == [0, 0, 0]


def test_errors_can_be_caught_as_pytorch_users_do_and_by_their_nature():
    with pytest.raises(RuntimeError):
        rabbet.matmul(X, X)
    with pytest.raises(ValueError):
        rabbet.matmul(X, X)
    with pytest.raises(rabbet.ArgumentError):
        rabbet.matmul(X, X)


def test_read_only_memory_is_not_written():
    np = pytest.importorskip("numpy")
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        rabbet.from_numpy(array).add_(1)
