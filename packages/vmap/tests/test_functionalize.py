"""functionalize: the same results and final arguments as plain execution, from operators that write nothing."""

import gc

import numpy as np
import pytest
import rabbet
from observer import check_functional, observed
from rabbet import Tensor
from rabbet._pytree import tree_flatten, tree_map
from rabbet.func import functionalize, vmap
from rabbet_testing import assert_close

MODES = ["mutations", "mutations_and_views"]
each_mode = pytest.mark.parametrize("remove", MODES)


def same(got, expected, **tolerance):
    """Assert that two trees are equal: tensors close, other leaves equal."""
    (ours, spec), (theirs, other) = tree_flatten(got), tree_flatten(expected)
    assert spec == other
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, Tensor):
            assert_close(a, b, **tolerance)
        else:
            assert a == b


EXACT = {"rtol": 0, "atol": 0}


def fresh(x):
    return x.clone() if isinstance(x, Tensor) else x


def check(f, *args, remove, written=None):
    """Results, final arguments and, if given, the number of arguments that are written."""
    expected_args, got_args = tree_map(fresh, args), tree_map(fresh, args)
    expected = f(*expected_args)
    with observed() as seen:
        got = functionalize(f, remove=remove)(*got_args)
    same(got, expected, **EXACT)
    same(got_args, expected_args, **EXACT)
    if written is not None:
        check_functional(seen, written, remove == "mutations_and_views")
    return seen


def numbers(*shape):
    n = 1
    for s in shape:
        n *= s
    return rabbet.arange(float(n)).reshape(shape) / 7 - 0.4


def element(x):
    x[0, 1] = 5.0
    return x * 2


def views_of_views(x):
    v = x[1:].t()
    w = v.unsqueeze(0).permute(2, 0, 1)[0]
    w.mul_(-1)
    v.diagonal().add_(x[0, 0])
    return v + 1, w.sum(), x.clone()


def in_other_shapes(x):
    x.view(-1)[1:5].add_(1)
    x.reshape(4, -1)[2] = 0
    x.flatten(0, 1)[::2].neg_()
    x.unflatten(1, (1, 3)).squeeze(1).sub_(x)
    return x.unsqueeze(-1).expand(4, 3, 2).sum(-1)


def pieces(x):
    for i, part in enumerate(x.split(2)):
        part.add_(i)
    a, b, *_ = x.unbind(1)
    a.copy_(b)
    x.chunk(2)[1].fill_(3)
    return x.narrow(0, 1, 2)


def masks_and_indices(x):
    x[x > 0.5] = 9.0
    x[[0, 2]] += 1
    x[rabbet.tensor([1, 1]), 0] = rabbet.tensor([4.0, 4.0])
    x.index_put_([rabbet.tensor([0, 0])], x.new_ones(2, 3), accumulate=True)
    x.masked_fill_(x == 4, -1)
    return x.index_select(0, rabbet.tensor([2]))


def outs(x):
    y = rabbet.zeros(4, 3)
    rabbet.add(x, 1, out=y)
    rabbet.mul(y, x, out=y[:])
    values, places = rabbet.empty(4), rabbet.empty(4, dtype=rabbet.int64)
    rabbet.max(x, 1, out=(values, places))
    return y, values, places


def other_dtypes(x):
    n = x.to(rabbet.int32)
    n += 2
    h = x.to(rabbet.float16)
    h.add_(x)  # cast to the dtype of the destination
    x.copy_(n)
    return n, h, x > n


def strided(x):
    v = x.as_strided((2, 2), (1, 3), 1)
    v.mul_(10)
    x.as_strided((3,), (4,)).sub_(1)
    return v, x[1].as_strided((2,), (2,))


def through_detach(x):
    y = x.detach()
    y.add_(1)
    return x * y


def unused_writes(x):
    x.clone().zero_()
    y = rabbet.tensor([1.0, 2.0])
    y.mul_(2)
    return y, x


def swap(x):
    a, b = x[0], x[1]
    t = a.clone()
    a.copy_(b)
    b.copy_(t)
    x += x.flip(0)


def loop(x):
    m = rabbet.zeros_like(x)
    for step in range(5):
        g = 2 * x
        m.mul_(0.9).add_(g, alpha=0.1)
        x.addcdiv_(m, (g * g).sqrt_().add_(1.0), value=-0.1 / (step + 1))
    return m


def statistics(x):
    mean, var = rabbet.zeros(3), rabbet.ones(3)
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    var.mul_(0.9).add_(x.var(0), alpha=0.1)
    return (x - mean) / var.sqrt()


PROGRAMS = {element: 1, views_of_views: 1, in_other_shapes: 1, pieces: 1, masks_and_indices: 1, outs: 0,
            other_dtypes: 1, strided: 1, through_detach: 1, unused_writes: 0, swap: 1, loop: 1, statistics: 0}  # fmt: skip


@each_mode
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(f, remove):
    check(f, numbers(4, 3), remove=remove, written=None if f is unused_writes else PROGRAMS[f])


@each_mode
def test_layouts_of_arguments(remove):
    layouts = [lambda: numbers(3, 4).t(), lambda: numbers(4, 6)[:, ::2], lambda: numbers(6, 3)[2:]]
    for make in layouts:
        for f in (element, views_of_views, pieces, masks_and_indices):
            expected, got = make(), make()
            same(functionalize(f, remove=remove)(got), f(expected), **EXACT)
            same(got, expected, **EXACT)


def test_strides_shown_inside_are_those_of_plain_execution():
    seen = []

    def f(x):
        x.add_(1)
        for v in (x, x[1:], x.t(), x.t()[1:], x[:, :2].reshape(-1), x.contiguous(), x.view(6, 2)):
            seen.append((v.shape, v.stride(), v.is_contiguous()))

    for make in (lambda: numbers(4, 3), lambda: numbers(4, 6)[:, ::2]):
        f(make())
        functionalize(f)(make())
        half = len(seen) // 2
        assert seen[:half] == seen[half:]
        seen.clear()


# ---- several arguments, memory that is shared


def write_both(x, y):
    x.add_(1)
    y.mul_(2)
    x[0] = y.sum()
    return x * 1, y * 1


ALIASES = {
    "the same": lambda x: (x, x),
    "part and whole": lambda x: (x[1:], x),
    "whole and part": lambda x: (x, x[:, 1]),
    "parts that overlap": lambda x: (x[:3], x[1:]),
    "parts that do not": lambda x: (x[:2], x[2:]),
    "transposed": lambda x: (x.t(), x),
    "detached": lambda x: (x, x.detach()),
    "not aliases": lambda x: (x, x.clone()),
}


@each_mode
@pytest.mark.parametrize("make", ALIASES.values(), ids=ALIASES)
def test_arguments_that_share_memory(make, remove):
    a, b = numbers(4, 3), numbers(4, 3)
    expected = write_both(*make(a))
    same(functionalize(write_both, remove=remove)(*make(b)), expected, **EXACT)
    same(b, a, **EXACT)


def test_tensors_from_outside_are_written_too():
    a, b = numbers(4, 3), numbers(4, 3)

    def f(kept):
        def g(x):
            before = kept[0].clone()
            kept[1:] += x
            view = kept.t()
            view[0] = 3.0
            return before + kept[0] + view.sum(), kept

        return g

    x = numbers(3)
    expected = f(a)(x)
    with observed() as seen:
        got = functionalize(f(b))(x)
    check_functional(seen, 1, False)
    same(got, expected)
    same(b, a)


def test_trees_and_other_values_pass():
    def f(tree, scale, *, shift):
        tree["a"][0].mul_(scale).add_(shift)
        return {"r": [tree["a"][0], "text", None]}, 4

    x = numbers(3)
    result, four = functionalize(f)({"a": (x, 1)}, 2.0, shift=1)
    assert four == 4 and result["r"][1:] == ["text", None]
    same(result["r"][0], numbers(3) * 2 + 1)
    same(x, numbers(3) * 2 + 1)


def test_the_same_random_numbers():
    def f(x):
        x[0].uniform_(-1, 1)
        y = rabbet.rand(3).normal_().bernoulli_(0.3)
        return x + y, rabbet.randn(2), rabbet.randperm(5)

    for remove in MODES:
        a, b = numbers(4, 3), numbers(4, 3)
        rabbet.manual_seed(3)
        expected = f(a)
        rabbet.manual_seed(3)
        same(functionalize(f, remove=remove)(b), expected)
        same(b, a)


def test_values_can_be_read_inside():
    def f(x):
        v = x[1]
        before = x.sum().item()
        v.add_(1)
        assert x[1, 0].item() == v.tolist()[0] and "Tensor" not in repr(x)
        if x.sum() > before:
            x.neg_()
        return float(x[0, 0])

    check(f, numbers(4, 3), remove="mutations")


def test_gradients_of_the_plain_tape_pass_through():
    def f(x, w):
        y = x * w
        y[0].mul_(w[0])
        y.view(-1)[2:5] = w.sum()
        return (y**2).sum()

    x = numbers(4, 3)
    grads = []
    for g in (f, functionalize(f), functionalize(f, remove="mutations_and_views")):
        w = numbers(4, 3).requires_grad_()
        g(x, w).backward()
        grads.append(w.grad)
    same(grads[1], grads[0])
    same(grads[2], grads[0])


# ---- nests


def body(x):
    y = x.sin()
    v = y[1:]
    v.mul_(x[:-1])
    y.view(-1)[0] = x.sum()
    z = rabbet.zeros_like(x)
    z += y
    z[1] *= 2
    return z


def scalar(x):
    return (body(x) ** 2).sum()


@pytest.fixture
def derivatives():
    return pytest.importorskip("rabbet.func._differential")


def nests(F, d):
    x = numbers(3, 4).to(rabbet.float64)
    grad, jvp = d.grad, d.jvp
    return {
        "functionalize(vmap)": (F(vmap(body)), vmap(body), x),
        "vmap(functionalize)": (vmap(F(body)), vmap(body), x),
        "vmap along 1": (vmap(F(body), 1, 1), vmap(body, 1, 1), x),
        "grad(functionalize)": (grad(F(scalar)), grad(scalar), x),
        "functionalize(grad)": (F(grad(scalar)), grad(scalar), x),
        "jvp(functionalize)": (lambda x: jvp(F(body), (x,), (x.cos(),)), lambda x: jvp(body, (x,), (x.cos(),)), x),
        "functionalize(jvp)": (F(lambda x: jvp(body, (x,), (x.cos(),))), lambda x: jvp(body, (x,), (x.cos(),)), x),
        "vmap(functionalize(grad))": (vmap(F(grad(scalar))), vmap(grad(scalar)), x),
        "functionalize(vmap(grad))": (F(vmap(grad(scalar))), vmap(grad(scalar)), x),
        "grad(vmap(functionalize))": (grad(lambda x: vmap(F(body))(x).sum()), grad(lambda x: vmap(body)(x).sum()), x),
        "functionalize(functionalize)": (F(F(body)), body, x),
        "functionalize(hessian)": (F(d.hessian(scalar)), d.hessian(scalar), x[0]),
        "grad(grad(functionalize))": (
            grad(lambda x: grad(F(scalar))(x).cos().sum()), grad(lambda x: grad(scalar)(x).cos().sum()), x),
        "jacfwd(functionalize)": (d.jacfwd(F(body)), d.jacfwd(body), x[0]),
        "jacrev(functionalize)": (d.jacrev(F(body)), d.jacrev(body), x[0]),
    }  # fmt: skip


NESTS = [
    "functionalize(vmap)", "vmap(functionalize)", "vmap along 1", "grad(functionalize)", "functionalize(grad)",
    "jvp(functionalize)", "functionalize(jvp)", "vmap(functionalize(grad))", "functionalize(vmap(grad))",
    "grad(vmap(functionalize))", "functionalize(functionalize)", "functionalize(hessian)",
    "grad(grad(functionalize))", "jacfwd(functionalize)", "jacrev(functionalize)",
]  # fmt: skip


@each_mode
@pytest.mark.parametrize("name", NESTS)
def test_nests(name, remove, derivatives):
    F = lambda f: functionalize(f, remove=remove)  # noqa: E731
    got, expected, x = nests(F, derivatives)[name]
    with observed() as seen:
        value = got(x)
    same(value, expected(x))
    if name.startswith("functionalize"):  # nothing is above that could write or take views
        check_functional(seen, 0, remove == "mutations_and_views")


@each_mode
def test_arguments_written_inside_transforms(remove):
    def f(x, y):
        x[0].add_(y.sum())
        y *= 2
        return x.sum()

    for make in (
        lambda g: vmap(functionalize(g, remove=remove)),
        lambda g: functionalize(vmap(g), remove=remove),
    ):
        a, b = numbers(3, 4), numbers(3, 2)
        c, d = a.clone(), b.clone()
        same(make(f)(c, d), vmap(f)(a, b))
        same([c, d], [a, b])


@pytest.mark.parametrize("remove", MODES)
def test_the_program_of_pytorch(remove):
    torch = pytest.importorskip("torch")

    def f(x):
        y = x[1:]
        y.add_(x[0])
        y.t()[0].mul_(3)
        z = x.view(-1)
        z[2:5] = 1
        return x.sum(), y

    x, t = numbers(4, 3), torch.tensor(numbers(4, 3).tolist())
    ours = functionalize(f, remove=remove)(x)
    theirs = torch.func.functionalize(f, remove=remove)(t)
    for a, b in zip([*ours, x], [*theirs, t], strict=True):
        assert_close(a, b.numpy())


# ---- errors


def test_wrong_remove():
    with pytest.raises(
        RuntimeError, match="remove should be 'mutations' or 'mutations_and_views', got 'views'"
    ):
        functionalize(lambda x: x, remove="views")


def test_not_a_function():
    with pytest.raises(TypeError, match="functionalize: expected a function, got int"):
        functionalize(3)


def test_tensors_that_leave_the_function():
    kept = []

    def f(x):
        kept.append(x[0])
        return x

    functionalize(f)(numbers(4, 3))
    for use in (
        lambda t: t + 1,
        lambda t: t.add_(1),
        lambda t: t.tolist(),
        lambda t: functionalize(f)(t),
    ):
        with pytest.raises(RuntimeError, match=r"must not leave the function|cannot enter"):
            use(kept[0])
    with pytest.raises(RuntimeError, match=r"must not leave the function|has left"):
        functionalize(lambda x: x + kept[0])(numbers(4, 3))


def test_errors_are_those_of_plain_execution():
    def expanded(x):
        x.expand(2, 4, 3).add_(1)

    def shape(x):
        x[0].add_(x)

    def dtype(x):
        rabbet.ones(4, 3, dtype=rabbet.int64).add_(x)

    def place(x):
        x[7] = 1

    def not_viewable(x):
        x.add_(1)
        x.t().view(12)

    for f in (expanded, shape, dtype, place, not_viewable):
        with pytest.raises(Exception) as plain:
            f(numbers(4, 3))
        with pytest.raises(type(plain.value)) as got:
            functionalize(f)(numbers(4, 3))
        assert str(got.value).splitlines()[0] == str(plain.value).splitlines()[0]


def test_an_error_leaves_the_arguments_and_the_stack_as_they_were():
    x = numbers(4, 3)

    def f(x):
        x.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        functionalize(f)(x)
    same(x, numbers(4, 3))
    same(functionalize(element)(x), element(numbers(4, 3)))


def test_operators_without_a_form_that_writes_nothing():
    def f(x):
        rabbet.ops("foreach_clamp")([x], 2.0, 3.0)

    with pytest.raises(
        NotImplementedError, match="foreach_clamp: functionalize: the operator writes to its arg"
    ):
        functionalize(f)(numbers(3))


def test_destinations_are_not_resized():
    with pytest.raises(ValueError, match="a tensor cannot be resized"):
        functionalize(lambda x: rabbet.add(x, 1, out=rabbet.empty(0)))(numbers(3))


def test_writes_to_nothing():
    def f(x):
        y = x[6:].unsqueeze(0).expand(2, 0)
        y.mul_(2.0)
        return x + 1, y + 1

    assert functionalize(f)(rabbet.arange(6.0))[0].tolist() == [1, 2, 3, 4, 5, 6]


def test_no_other_memory():
    def f(x):
        x.data = x * 2

    with pytest.raises(
        RuntimeError, match="inside a transform a tensor cannot be given other memory"
    ):
        functionalize(f)(numbers(3))


def test_read_only_arguments():
    array = np.ones(3, dtype=np.float32)
    array.flags.writeable = False
    x = rabbet.from_numpy(array)
    same(functionalize(lambda x: x * 2)(x), 2 * rabbet.ones(3))
    with pytest.raises(RuntimeError, match="read-only memory"):
        functionalize(lambda x: x.add_(1))(x)


@each_mode
def test_no_memory_is_kept(remove):
    x = numbers(4, 3)

    def run():
        for f in (views_of_views, in_other_shapes, masks_and_indices, strided, loop):
            functionalize(f, remove=remove)(x)
        functionalize(write_both, remove=remove)(x, x[1:])

    run()
    gc.collect()
    before = rabbet._C.live_counts()["tensors"]
    for _ in range(3):
        run()
    gc.collect()
    assert rabbet._C.live_counts()["tensors"] == before


def test_memory_with_gaps_has_no_strided_views():
    with pytest.raises(
        NotImplementedError, match="as_strided: functionalize: the tensor's memory has gaps"
    ):
        functionalize(lambda x: x.as_strided((2,), (1,)))(numbers(4, 6)[:, ::2])
    with pytest.raises(ValueError, match="reach beyond the 6 elements"):
        functionalize(lambda x: x.as_strided((7,), (1,)))(numbers(6))
