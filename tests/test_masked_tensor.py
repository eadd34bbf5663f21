"""MaskedTensor: NumPy's masked arrays are the oracle for values, masks and printing are stated."""

import copy
import operator
import pickle

import numpy as np
import pytest
import rabbet
from rabbet.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

DATA = np.array([[1.0, -2.0, 3.0, 0.5], [4.0, 5.0, -6.0, 2.0], [7.0, 8.0, 9.0, 1.5]])
MASK = np.array([[1, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]], bool)  # True: kept
ALL = tuple(rabbet.tensor(a) for a in (DATA, MASK))


def masked(data=DATA, mask=MASK, **options):
    return masked_tensor(rabbet.tensor(data), rabbet.tensor(mask), **options)


def array(data=DATA, mask=MASK):
    return np.ma.masked_array(data, ~mask)


def assert_same(got, wanted):
    """A MaskedTensor and a masked array, or a number that is masked or not."""
    assert type(got) is MaskedTensor
    wanted = np.ma.masked_array(wanted)
    kept = ~np.ma.getmaskarray(wanted)
    np.testing.assert_array_equal(got.get_mask().numpy(), kept)
    np.testing.assert_allclose(got.get_data().detach().numpy()[kept], wanted.data[kept], rtol=1e-12)


# ---- construction


def test_data_and_mask_are_copied():
    data, mask = rabbet.tensor(DATA), rabbet.tensor(MASK)
    x = MaskedTensor(data, mask)
    data.zero_()
    mask.zero_()
    assert_same(x, array())
    assert x.shape == (3, 4) and x.dtype == rabbet.float64 and x.ndim == 2 and len(x) == 3
    assert x.numel() == 12 and x.size(1) == 4 and x.device.type == "cpu" and x.is_contiguous()
    assert is_masked_tensor(x) and isinstance(x, rabbet.Tensor) and not is_masked_tensor(data)
    assert not (x.is_sparse or x.is_sparse_coo() or x.is_sparse_csr()) and x.to_dense() is x


BAD = {
    "data is a list": (lambda d, m: masked_tensor([1.0], m), TypeError, "data must be a Tensor"),
    "mask is a list": (lambda d, m: masked_tensor(d, [True]), TypeError, "mask must be a Tensor"),
    "data is masked": (lambda d, m: MaskedTensor(MaskedTensor(d, m), m), TypeError, "data must be"),
    "mask is masked": (lambda d, m: MaskedTensor(d, MaskedTensor(m, m)), TypeError, "mask must be"),
    "mask of floats": (lambda d, m: masked_tensor(d, d), TypeError, "mask must have dtype bool"),
    "dims": (lambda d, m: masked_tensor(d, m[0]), ValueError, r"data.dim\(\) must equal"),
    "sizes": (lambda d, m: masked_tensor(d, m.t()), ValueError, r"data.size\(\) must equal"),
    "complex": (lambda d, m: masked_tensor(d + 1j, m), TypeError, "complex128 is not supported"),
    "bfloat16": (lambda d, m: masked_tensor(d.bfloat16(), m), TypeError, "not supported"),
    "to bfloat16": (lambda d, m: masked_tensor(d, m).bfloat16(), TypeError, "no implementation"),
    "integer gradients": (lambda d, m: masked_tensor(d.long(), m, True), RuntimeError, "floating"),
    "sparse": (lambda d, m: masked_tensor(d, m).to_sparse(), NotImplementedError, "no sparse"),
    "csr": (lambda d, m: masked_tensor(d, m).to_sparse_csr(), NotImplementedError, "no sparse"),
    "masks of a sum": (lambda d, m: masked_tensor(d, m) + masked_tensor(d, ~m), ValueError, "add: .*match"),
    "masks in place": (lambda d, m: masked_tensor(d, m).mul_(masked_tensor(d, ~m)), ValueError, "match"),
    "masks of a copy": (lambda d, m: masked_tensor(d, m).copy_(masked_tensor(d, ~m)), ValueError, "match"),
    "masks of an item": (lambda d, m: operator.setitem(masked_tensor(d, m), 0, masked_tensor(d, m)[1]), ValueError, "match"),
    "into a plain tensor": (lambda d, m: d.add_(masked_tensor(d, m)), TypeError, "cannot be overwritten"),
    "alpha": (lambda d, m: rabbet.add(masked_tensor(d, m), 1, alpha=2), ValueError, "'alpha'"),
    "decimals": (lambda d, m: masked_tensor(d, m).round(decimals=1), ValueError, "'decimals'"),
    "limits": (lambda d, m: rabbet.clamp(masked_tensor(d, m), d), TypeError, "additional Tensor"),
    "cat with a plain one": (lambda d, m: rabbet.cat([masked_tensor(d, m), d]), TypeError, "without a mask"),
    "matmul": (lambda d, m: masked_tensor(d, m) @ d.t(), TypeError, "unsupported operand"),
    "relu": (lambda d, m: rabbet.relu(masked_tensor(d, m)), TypeError, "no implementation"),
    "masked item": (lambda d, m: masked_tensor(d, m)[0, 1].item(), ValueError, "masked out"),
    "masked float": (lambda d, m: float(masked_tensor(d, m)[0, 1]), ValueError, "masked out"),
    "tolist": (lambda d, m: masked_tensor(d, m).tolist(), RuntimeError, "get_data"),
    "numpy": (lambda d, m: masked_tensor(d, m).numpy(), RuntimeError, "get_data"),
    "where": (lambda d, m: rabbet.where(m, masked_tensor(d, m)), ValueError, "3 positional"),
    "correction": (lambda d, m: masked_tensor(d, m).var(0, correction=2), ValueError, "0 or 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_has_no_meaning_is_refused(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call(*(t.clone() for t in ALL))


def test_data_with_a_history_is_warned_of():
    data = rabbet.tensor(DATA, requires_grad=True)
    with pytest.warns(UserWarning, match="not recommended"):
        x = masked_tensor(data, ALL[1])
    assert not x.requires_grad and x.is_leaf


# ---- printing


def test_printing():
    assert repr(masked()) == (
        "MaskedTensor(\n  [\n    [  1.0000,       --,   3.0000,   0.5000],\n"
        "    [      --,       --,  -6.0000,   2.0000],\n"
        "    [      --,       --,       --,       --]\n  ]\n)"
    )
    x = masked(np.array([5, 70]), np.array([True, False]))
    assert str(x) == f"{x}" == "MaskedTensor(\n  [5,       --]\n)"
    assert repr(x[0]) == "MaskedTensor(5, True)" and repr(x[1]) == "MaskedTensor(--, False)"
    assert repr(masked()[0, 3]) == "MaskedTensor(  0.5000, True)"
    assert repr(x[:0]) == "MaskedTensor(\n  []\n)"


# ---- functions of one and of two arguments


UNARY = {
    "abs": np.abs, "neg": np.negative, "exp": np.exp, "sin": np.sin, "square": np.square, "floor": np.floor,
    "sign": np.sign, "tanh": np.tanh, "isnan": np.isnan, "reciprocal": np.reciprocal, "signbit": np.signbit,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "ge": np.greater_equal, "maximum": np.maximum, "minimum": np.minimum,
    "fmax": np.fmax, "atan2": np.arctan2, "logaddexp": np.logaddexp, "remainder": np.remainder,
}  # fmt: skip
OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.floordiv, operator.lt,
    operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
)  # fmt: skip


def kept(values):
    return np.ma.masked_array(values, ~MASK)


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_keep_the_mask(name):
    wanted = kept(UNARY[name](DATA))
    assert_same(getattr(rabbet, name)(masked()), wanted)
    assert_same(getattr(masked(), name)(), wanted)


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_need_equal_masks_or_one(name):
    other = np.abs(DATA.T.reshape(3, 4)) + 1
    with np.errstate(invalid="ignore"):
        wanted, reverse = BINARY[name](np.abs(DATA), other), BINARY[name](other, np.abs(DATA))
    function = getattr(rabbet, name)
    x, y, plain = masked(np.abs(DATA)), masked(other), rabbet.tensor(other)
    assert_same(function(x, y), kept(wanted))
    assert_same(function(x, plain), kept(wanted))
    assert_same(function(plain, x), kept(reverse))


@pytest.mark.parametrize("function", OPERATORS)
def test_operators(function):
    assert_same(function(masked(), 2.0), kept(function(DATA, 2.0)))
    assert_same(function(3.0, masked()), kept(function(3.0, DATA)))
    assert_same(function(masked(), masked(DATA + 1)), kept(function(DATA, DATA + 1)))


def test_bits_of_integers_and_bools():
    x = masked((DATA > 2), MASK)
    assert_same(~x, kept(~(DATA > 2)))
    assert_same(x & x, kept(DATA > 2))
    assert_same(x ^ x, kept(DATA != DATA))
    i = masked(DATA.astype(np.int64))
    assert_same(i | 1, kept(DATA.astype(np.int64) | 1))


def test_an_operand_that_broadcasts():
    assert_same(masked() * rabbet.tensor(DATA[0]), kept(DATA * DATA[0]))
    row = masked(DATA[0], MASK[0])
    assert_same(row + rabbet.tensor(DATA), np.ma.masked_array(DATA[0] + DATA, ~MASK[[0, 0, 0]]))


def test_writing_in_place():
    x = masked()
    assert x.add_(1) is x
    assert_same(x, kept(DATA + 1))
    x.mul_(masked()).clamp_(-3, 9)
    assert_same(x, kept(np.clip((DATA + 1) * DATA, -3, 9)))
    x.copy_(masked())
    x[0, :2] = 5.0
    x[1] = masked()[1] * 2
    wanted = DATA.copy()
    wanted[0, :2], wanted[1] = 5, 2 * DATA[1]
    assert_same(x, kept(wanted))
    x -= 1
    assert_same(x, kept(wanted - 1))


def test_unary_makes_a_masked_tensor():
    assert_same(MaskedTensor.unary(rabbet.exp, *ALL), kept(np.exp(DATA)))


# ---- reductions


REDUCTIONS = {
    "sum": np.ma.sum, "mean": np.ma.mean, "amax": np.ma.max, "amin": np.ma.min, "prod": np.ma.prod,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_leave_out_what_the_mask_does(name):
    for dim in (None, 0, 1, -1, (0, 1)):
        for keepdim in (False, True) if dim is not None else (False,):
            wanted = REDUCTIONS[name](array(), axis=dim, keepdims=keepdim)
            x = masked()
            given = () if dim is None else (dim, keepdim)
            assert_same(getattr(x, name)(*given), wanted)
            named = {} if dim is None else {"dim": dim, "keepdim": keepdim}
            assert_same(getattr(rabbet, name)(input=x, **named), wanted)


def test_positions_norms_spreads_and_truth():
    x = masked()
    assert x.argmax().item() == 2 and x.argmin().item() == 6
    assert x.argmax(1).get_data()[:2].tolist() == [2, 3]
    assert x.argmax(1).get_mask().tolist() == [True, True, False]
    assert_same(x.norm(), np.sqrt((array() ** 2).sum()))
    assert_same(x.norm(2, 0), np.ma.sqrt((array() ** 2).sum(0)))
    assert_same(x.var(), array().var(ddof=1))
    assert_same(x.std(1, unbiased=False), array().std(1))
    assert_same(x.var(1, correction=1)[:2], array()[:2].var(1, ddof=1))
    assert_same((x > -7).all(), True)
    assert_same((x > 0).all(1), (array() > 0).all(1))
    assert x.long().sum().item() == int(array().astype(int).sum())


def test_nothing_left_is_masked():
    x = masked(DATA, np.zeros_like(MASK))
    for found in (x.sum(), x.mean(), x.amax(), x.prod(0), x.softmax(1)):
        assert not found.get_mask().any()


def test_softmax_over_what_counts():
    exps = np.ma.exp(array())
    for found in (
        masked().softmax(1),
        rabbet.softmax(masked(), 1),
        rabbet.nn.functional.softmax(masked(), dim=1),
    ):
        assert_same(found, exps / exps.sum(1, keepdims=True))


def test_functions_of_the_module_take_masked_tensors():
    x, more = masked(), rabbet.tensor([True, True, True, False])
    np.testing.assert_allclose(rabbet.masked.sum(x, 1).numpy(), array().sum(1).filled(0))
    both = np.ma.masked_array(DATA, ~(MASK & more.numpy()))
    for found in (
        rabbet.masked.sum(x, 0, mask=more),
        rabbet.masked.sum(input=x, dim=0, mask=more),
        rabbet.masked.sum(rabbet.tensor(DATA), 0, mask=ALL[1] & more),
    ):
        assert type(found) is rabbet.Tensor
        np.testing.assert_allclose(found.numpy(), both.sum(0).filled(0))
    found = rabbet.masked.logaddexp(x, x)
    np.testing.assert_allclose(found.numpy(), np.where(MASK, DATA + np.log(2), -np.inf))
    np.testing.assert_allclose(
        rabbet.masked.cumsum(x, 1).numpy(), np.where(MASK, DATA, 0).cumsum(1)
    )


# ---- views and copies

VIEWS = {
    "row": (lambda x: x[1], lambda a: a[1]),
    "slices": (lambda x: x[1:, ::2], lambda a: a[1:, ::2]),
    "mask": (lambda x: x[ALL[1]], lambda a: a[MASK]),
    "list": (lambda x: x[[2, 0]], lambda a: a[[2, 0]]),
    "tensor": (lambda x: x[rabbet.tensor([1, 1])], lambda a: a[[1, 1]]),
    "None": (lambda x: x[None, ..., 0], lambda a: a[None, ..., 0]),
    "t": (lambda x: x.t(), lambda a: a.T),
    "T": (lambda x: x.T, lambda a: a.T),
    "mT": (lambda x: x.mT, lambda a: a.T),
    "transpose": (lambda x: x.transpose(0, 1), lambda a: a.T),
    "permute": (lambda x: x.permute(1, 0), lambda a: a.T),
    "view": (lambda x: x.view(4, 3), lambda a: a.reshape(4, 3)),
    "reshape": (lambda x: x.reshape(-1), lambda a: a.reshape(-1)),
    "flatten": (lambda x: x.flatten(), lambda a: a.reshape(-1)),
    "unsqueeze": (lambda x: x.unsqueeze(0), lambda a: a[None]),
    "expand": (lambda x: x.expand(2, 3, 4), lambda a: np.ma.stack([a, a])),
    "narrow": (lambda x: x.narrow(1, 1, 2), lambda a: a[:, 1:3]),
    "select": (lambda x: x.select(1, 2), lambda a: a[:, 2]),
    "split": (lambda x: x.split(2, 1)[1], lambda a: a[:, 2:]),
    "chunk": (lambda x: x.chunk(2, 1)[0], lambda a: a[:, :2]),
    "unbind": (lambda x: x.unbind()[1], lambda a: a[1]),
    "cat": (lambda x: rabbet.cat([x, x], 1), lambda a: np.ma.concatenate([a, a], 1)),
    "stack": (lambda x: rabbet.stack([x, x]), lambda a: np.ma.stack([a, a])),
    "unfold": (lambda x: x.unfold(1, 2, 2), lambda a: a.reshape(3, 2, 2)),
    "iteration": (lambda x: [*x][2], lambda a: a[2]),
    "clone": (lambda x: x.clone(), lambda a: a),
    "detach": (lambda x: x.detach(), lambda a: a),
    "data": (lambda x: x.data, lambda a: a),
    "contiguous": (lambda x: x.t().contiguous(), lambda a: a.T),
    "to": (lambda x: x.to(rabbet.float32), lambda a: a.astype(np.float32)),
    "int": (lambda x: x.int(), lambda a: a.astype(np.int32)),
    "ones_like": (rabbet.ones_like, lambda a: a * 0 + 1),
    "deepcopy": (copy.deepcopy, lambda a: a),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), lambda a: a),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_copies_have_the_view_of_the_mask(name):
    of_tensor, of_array = VIEWS[name]
    assert_same(of_tensor(masked()), of_array(array()))


def test_where():
    x, condition = masked(), rabbet.tensor(DATA > 2)
    plain = rabbet.tensor(-DATA)
    wanted = np.ma.masked_array(np.where(DATA > 2, DATA, -DATA), ~np.where(DATA > 2, MASK, True))
    assert_same(rabbet.where(condition, x, plain), wanted)
    assert_same(x.where(condition, plain), wanted)
    assert_same(rabbet.where(condition, x, x * 2), kept(np.where(DATA > 2, DATA, 2 * DATA)))
    assert rabbet.where(condition, x, 0.0).get_mask().sum().item() == 7


def test_plain_tensors_come_out():
    x = masked()
    np.testing.assert_array_equal(x.to_tensor(-1).numpy(), array().filled(-1))
    assert type(x.get_data()) is type(x.get_mask()) is type(x.to_tensor(0)) is rabbet.Tensor
    assert x[0, 2].item() == float(x[0, 2]) == 3.0 and bool(x[0, 0] > 0)


# ---- gradients


GRADIENTS = {
    "sum": (lambda x: x.sum(), lambda d: d * 0 + 1),
    "mean": (lambda x: x.mean(), lambda d: d * 0 + 1 / MASK.sum()),
    "of products": (lambda x: (x * x).sum(), lambda d: 2 * d),
    "of rows": (lambda x: x.exp().sum(1).sum(), np.exp),
    "with a plain tensor": (lambda x: (x * rabbet.tensor(DATA)).sum(), lambda d: d),
    "to_tensor": (lambda x: (x.to_tensor(0) ** 2).sum(), lambda d: 2 * d),
    "get_data": (lambda x: (x.get_data() ** 2).sum(), lambda d: 2 * d),
    "view": (lambda x: (x.view(-1) ** 2).sum(), lambda d: 2 * d),
    "cat": (lambda x: rabbet.cat([x, x * 2]).sum(), lambda d: d * 0 + 3),
    "where": (lambda x: rabbet.where(x > 2, x * x, x).sum(), lambda d: np.where(d > 2, 2 * d, 1)),
    "in place": (lambda x: (x * 1).mul_(x).sum(), lambda d: 2 * d),
    "of amax": (lambda x: x.amax(), lambda d: (d == 3) * 1.0),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_masked_tensors(name):
    function, gradient = GRADIENTS[name]
    x = masked(requires_grad=True)
    assert x.is_leaf and x.requires_grad
    function(x).backward()
    assert_same(x.grad, kept(gradient(DATA)))
    (found,) = rabbet.autograd.grad(function(x), [x])
    assert_same(found, kept(gradient(DATA)))


def test_gradients_reach_the_data_of_as_masked_tensor():
    data = rabbet.tensor(np.where(MASK, np.abs(DATA), -1.0), requires_grad=True)
    x = as_masked_tensor(data, ALL[1])
    assert x.requires_grad and not x.is_leaf
    x.log().sum().backward()  # masked elements have no logarithm
    np.testing.assert_allclose(data.grad.numpy(), np.where(MASK, 1 / np.abs(DATA), 0))
    assert not as_masked_tensor(*ALL).requires_grad


def test_a_gradient_is_given_or_of_one_element():
    x = masked(requires_grad=True)
    with pytest.raises(RuntimeError, match="scalar outputs"):
        x.exp().backward()
    x.square().backward(masked())
    assert_same(x.grad, kept(2 * DATA * DATA))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.sqrt_()
