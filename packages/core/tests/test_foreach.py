"""Operators on lists: the same as the operator on each tensor, in every form of the operand."""

import pytest
import rabbet
from rabbet import _foreach

UNARY, BINARY = _foreach._UNARY, _foreach._BINARY


def a():
    return [rabbet.tensor([1.0, 4.0]), rabbet.tensor([9.0])]


def b():
    return [rabbet.tensor([2.0, 3.0]), rabbet.tensor([5.0])]


def fn(name):
    return getattr(rabbet, f"_foreach_{name}")


def lists(tensors):
    return [x.tolist() for x in tensors]


@pytest.mark.parametrize("name", UNARY)
def test_unary_operators(name):
    xs = [x / 16 for x in a()]
    want = lists([getattr(rabbet, name)(x) for x in xs])
    made = fn(name)(xs)
    assert type(made) is tuple and lists(made) == want
    assert fn(name + "_")(xs) is xs and lists(xs) == want


@pytest.mark.parametrize(
    "operand", [2, 2.5, [2, 3], (2.0, 3), b(), tuple(b()), rabbet.tensor(2.0)], ids=str
)
@pytest.mark.parametrize("name", BINARY)
def test_binary_operators(name, operand):
    columns = operand if isinstance(operand, (list, tuple)) else [operand] * 2
    want = lists([getattr(rabbet, name)(x, y) for x, y in zip(a(), columns, strict=True)])
    assert lists(fn(name)(a(), operand)) == want
    xs = a()
    assert fn(name + "_")(xs, operand) is xs and lists(xs) == want


def test_alpha_scales_tensors():
    assert lists(rabbet._foreach_add(a(), b(), alpha=2)) == [[5.0, 10.0], [19.0]]
    assert lists(rabbet._foreach_sub(a(), b(), alpha=2)) == [[-3.0, -2.0], [-1.0]]
    assert lists(rabbet._foreach_add(a(), rabbet.tensor(3.0), alpha=2)) == [[7.0, 10.0], [15.0]]
    with pytest.raises(TypeError):
        rabbet._foreach_add(a(), 1, alpha=2)


def test_operands_by_keyword():
    assert lists(rabbet._foreach_add(a(), scalar=1)) == lists(
        rabbet._foreach_add(self=a(), scalars=[1, 1])
    )
    assert lists(rabbet._foreach_mul(a(), other=b())) == [[2.0, 12.0], [45.0]]
    assert lists(rabbet._foreach_pow(a(), exponent=2)) == [[1.0, 16.0], [81.0]]


def test_powers_of_lists_and_to_lists():
    assert lists(rabbet._foreach_pow(a(), [2, 0.5])) == [[1.0, 16.0], [3.0]]
    assert lists(rabbet._foreach_pow(a(), b())) == [[1.0, 64.0], [9.0**5]]
    assert lists(rabbet._foreach_pow(2, a())) == [[2.0, 16.0], [512.0]]
    xs = a()
    assert rabbet._foreach_pow_(xs, 2) is xs and lists(xs) == [[1.0, 16.0], [81.0]]


@pytest.mark.parametrize("factor", [2, [2, 2], rabbet.tensor([2.0, 2.0])], ids=str)
@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_pointwise_operators(name, factor):
    run = getattr(rabbet, name)
    want = lists([run(x, y, y, value=2) for x, y in zip(a(), b(), strict=True)])
    assert lists(fn(name)(a(), b(), b(), factor)) == want
    xs = a()
    assert fn(name + "_")(xs, b(), b(), factor) is xs and lists(xs) == want
    assert lists(fn(name)(a(), b(), b())) == lists(
        [run(x, y, y) for x, y in zip(a(), b(), strict=True)]
    )


@pytest.mark.parametrize("weight", [0.5, [0.5, 0.25], b(), rabbet.tensor(0.5)], ids=str)
def test_lerp(weight):
    columns = weight if isinstance(weight, list) else [weight] * 2
    want = lists([rabbet.lerp(x, y, w) for x, y, w in zip(a(), b(), columns, strict=True)])
    assert lists(rabbet._foreach_lerp(a(), b(), weight)) == want
    xs = a()
    assert rabbet._foreach_lerp_(xs, b(), weight) is xs and lists(xs) == want


def test_reductions():
    assert rabbet.stack(rabbet._foreach_norm(a())).tolist() == pytest.approx([17**0.5, 9.0])
    assert [x.item() for x in rabbet._foreach_norm(a(), ord=float("inf"))] == [4.0, 9.0]
    assert rabbet._foreach_norm(a(), 1, rabbet.float64)[0].dtype is rabbet.float64
    assert [x.item() for x in rabbet._foreach_powsum(a(), 3)] == [65.0, 729.0]
    assert [x.item() for x in rabbet._foreach_powsum([rabbet.full((300,), 14.0).half()])] == [
        58816.0
    ]
    assert [x.item() for x in rabbet._foreach_max(a())] == [4.0, 9.0]
    (product,) = rabbet._foreach_mm([rabbet.ones(2, 2)], [rabbet.ones(2, 2)])
    assert product.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_copies():
    xs = a()
    assert rabbet._foreach_copy_(xs, src=b(), non_blocking=True) is xs and lists(xs) == lists(b())
    clones = rabbet._foreach_clone(xs, memory_format=rabbet.preserve_format)
    assert rabbet._foreach_zero_(xs) is xs and lists(xs) == [[0.0, 0.0], [0.0]]
    assert lists(clones) == lists(b())


def test_gradients_pass_and_writes_are_versioned():
    leaf = rabbet.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        rabbet._foreach_mul_([leaf], 2)
    ys = rabbet._foreach_mul([leaf], 3)
    rabbet._foreach_add_(list(ys), 1)
    ys[0].sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0]
    before = leaf._version
    with rabbet.no_grad():
        rabbet._foreach_mul_([leaf], 2)
        rabbet._foreach_maximum_([leaf], [1])
    assert leaf.tolist() == [2.0, 2.0] and leaf._version == before + 2


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: rabbet._foreach_add([], 1), RuntimeError),
        (lambda: rabbet._foreach_exp([]), RuntimeError),
        (lambda: rabbet._foreach_add(a(), [1]), RuntimeError),
        (lambda: rabbet._foreach_add(a(), b()[:1]), RuntimeError),
        (lambda: rabbet._foreach_add(a(), rabbet.tensor([3.0])), RuntimeError),
        (lambda: rabbet._foreach_add(a(), [rabbet.ones(3), rabbet.ones(1)]), RuntimeError),
        (lambda: rabbet._foreach_add_([rabbet.tensor([1])], 1.5), RuntimeError),
        (lambda: rabbet._foreach_sqrt_([rabbet.tensor([1])]), RuntimeError),
        (lambda: rabbet._foreach_addcmul(a(), b(), b(), rabbet.tensor(2.0)), RuntimeError),
        (lambda: rabbet._foreach_addcmul(a(), b(), b(), rabbet.tensor([2.0])), RuntimeError),
        (lambda: rabbet._foreach_copy_(a(), b()[:1]), RuntimeError),
        (lambda: rabbet._foreach_norm([rabbet.tensor([1])]), RuntimeError),
        (lambda: rabbet._foreach_norm([rabbet.zeros(0)], float("inf")), RuntimeError),
        (lambda: rabbet._foreach_max([rabbet.zeros(0)]), RuntimeError),
        (lambda: rabbet._foreach_add(a()), TypeError),
        (lambda: rabbet._foreach_add(a(), None), TypeError),
        (lambda: rabbet._foreach_add(a(), "x"), TypeError),
        (lambda: rabbet._foreach_add(a(), [rabbet.tensor(1.0), 2]), TypeError),
        (lambda: rabbet._foreach_add(a()[0], 1), TypeError),
        (lambda: rabbet._foreach_add([1, 2], 1), TypeError),
        (lambda: rabbet._foreach_mul(a(), 2, alpha=2), TypeError),
        (lambda: rabbet._foreach_exp(2), TypeError),
        (lambda: rabbet._foreach_erf(a(), 1), TypeError),
        (lambda: rabbet._foreach_copy_(a(), 2), TypeError),
    ],
)
def test_bad_arguments_are_refused(call, error):
    with pytest.raises(error):
        call()
