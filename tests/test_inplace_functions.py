"""Functions that write their argument, methods that change a tensor's shape in place, operators on lists of tensors."""

import numpy as np
import pytest
import rabbet


@pytest.mark.parametrize("name", [n for n in rabbet._WRITING if hasattr(np, n[:-1])])
def test_functions_write_their_argument(name):
    x = rabbet.tensor([0.25, 0.5, 0.75]) + name.endswith("cosh_")
    arguments = {"clip_": (0.3, 0.6)}.get(name, ())
    if name in ("gcd_", "lcm_", "ldexp_"):
        x, arguments = rabbet.tensor([4, 6, 9]), (rabbet.tensor([6, 4, 3]),)
    if name == "ldexp_":
        x = x.double()
    want = getattr(np, name[:-1])(x.numpy().copy(), *arguments)
    assert getattr(rabbet, name)(x, *arguments) is x
    np.testing.assert_allclose(x.numpy(), want, 1e-6)


def test_each_name_is_the_method():
    for name in rabbet._WRITING:
        assert getattr(rabbet, name) is getattr(rabbet.Tensor, name)


def test_shapes_change_in_place():
    x = rabbet.arange(6.0).reshape(2, 3).clone()
    memory = x.data_ptr()
    assert x.t_() is x and x.shape == (3, 2) and x.stride() == (1, 3)
    assert x.unsqueeze_(0).shape == (1, 3, 2) and x.squeeze_().shape == (3, 2)
    assert x.transpose_(0, 1).swapaxes_(0, 1).swapdims_(0, 1).shape == (2, 3)
    assert x.as_strided_([3], [2]).tolist() == [0, 2, 4] and x.data_ptr() == memory


def test_shapes_change_in_place_beside_gradients():
    w = rabbet.arange(6.0).reshape(2, 3).clone().requires_grad_()
    y = w * 2
    y.unsqueeze_(0).transpose_(0, 2).mul_(rabbet.arange(6.0).reshape(3, 2, 1))
    y.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), 2 * np.arange(6.0).reshape(3, 2).T)
    with pytest.raises(RuntimeError, match="leaf"):
        w.t_()
    y = w * 1
    z = y * y
    y.t_()
    with pytest.raises(RuntimeError, match=r"version|modified|changed"):
        z.sum().backward()
    base = w * 1
    with pytest.raises(RuntimeError, match="view"):
        base[0].unsqueeze_(0)
    with rabbet.no_grad():
        assert (w * 1)[0].unsqueeze_(0).shape == (1, 3)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (7, 3), (8, 3), (9, 2), (3, 3, 3)])
def test_diagonals_are_filled(shape, wrap):
    x, want = rabbet.zeros(shape), np.zeros(shape)
    np.fill_diagonal(want, 5, wrap)
    assert x.fill_diagonal_(5, wrap) is x
    np.testing.assert_array_equal(x.numpy(), want)


def test_diagonals_refused():
    for x in (rabbet.zeros(3), rabbet.zeros(2, 3, 2)):
        with pytest.raises(RuntimeError, match="fill_diagonal_"):
            x.fill_diagonal_(1)


def lists():
    return [rabbet.tensor([1.0, 2.0]), rabbet.tensor([[3.0]])], [
        rabbet.tensor([5.0, 7.0]),
        rabbet.tensor([[2.0]]),
    ]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow"])
def test_lists_beside_lists_numbers_and_lists_of_numbers(name):
    for second in (lists()[1], 2.0, [2.0, 3.0]):
        xs = lists()[0]
        each = second if isinstance(second, list) else [second] * 2
        want = [
            getattr(rabbet, name)(x, rabbet.as_tensor(y)) for x, y in zip(xs, each, strict=True)
        ]
        got = getattr(rabbet, f"_foreach_{name}")(xs, second)
        assert isinstance(got, tuple)
        written = getattr(rabbet, f"_foreach_{name}_")(xs, second)
        assert written is xs
        for a, b, c in zip(got, xs, want, strict=True):
            assert rabbet.equal(a, c) and rabbet.equal(b, c)


def test_lists_with_factors():
    xs, ys = lists()
    assert rabbet._foreach_add(xs, ys, alpha=2)[0].tolist() == [11, 16]
    assert rabbet._foreach_addcmul(xs, ys, ys, 2.0)[1].tolist() == [[11]]
    assert rabbet._foreach_addcdiv(xs, ys, ys, value=3)[1].tolist() == [[6]]
    assert rabbet._foreach_addcdiv(xs, ys, ys, [1.0, 2.0])[1].tolist() == [[5]]
    assert rabbet._foreach_addcmul(xs, ys, ys, rabbet.tensor([0.0, 1.0]))[1].tolist() == [[7]]
    assert rabbet._foreach_lerp(xs, ys, 0.5)[0].tolist() == [3, 4.5]
    assert rabbet._foreach_pow(2.0, xs)[0].tolist() == [2, 4]
    assert [n.item() for n in rabbet._foreach_norm([rabbet.tensor([3.0, 4.0])])] == [5]
    rabbet._foreach_copy_(xs, ys)
    assert xs[0].tolist() == [5, 7]
    rabbet._foreach_sqrt_(rabbet._foreach_zero_(xs))
    assert xs[1].tolist() == [[0]]
    assert rabbet._foreach_clone(ys)[0] is not ys[0] and rabbet._foreach_max(ys)[0] == 7


def test_lists_have_gradients():
    x = rabbet.tensor([2.0], requires_grad=True)
    rabbet._foreach_mul([x, x], [x, rabbet.tensor([3.0])])[0].backward()
    assert x.grad == 4


def test_lists_refused():
    xs, ys = lists()
    with pytest.raises(RuntimeError, match="same number"):
        rabbet._foreach_add(xs, ys[:1])
    with pytest.raises(RuntimeError, match="at least one"):
        rabbet._foreach_add([], 1)
    with pytest.raises(TypeError, match="tuple of Tensors"):
        rabbet._foreach_add(xs[0], 1)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, y: x.div_(y), lambda x, y: x.mul_(y), lambda x, y: x.erfinv_(), lambda x, y: x.logit_(),
        lambda x, y: x.atan2_(y), lambda x, y: x.pow_(2),
    ],
)  # fmt: skip
def test_a_result_written_again_keeps_the_gradients_of_the_first_write(write):
    """PyTorch's formulas of these operators read their arguments, not the result that the second write changes."""
    x = rabbet.tensor([0.25, 0.5, 0.75], dtype=rabbet.float64, requires_grad=True)
    y = rabbet.tensor([0.5, 0.25, 0.75], dtype=rabbet.float64, requires_grad=True)

    def gradients(factor):
        written = write(x.clone(), y)
        result = written.mul_(2) if factor else written * 2
        return rabbet.autograd.grad(result.sum(), [x, y], allow_unused=True)

    for ours, expected in zip(gradients(True), gradients(False), strict=True):
        assert (ours is None) == (expected is None)
        if ours is not None:
            assert ours.tolist() == expected.tolist()
