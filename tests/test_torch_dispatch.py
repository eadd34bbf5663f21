"""The protocol of __torch_dispatch__: wrapper subclasses, subclasses with memory, and modes."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import Tensor, nn
from rabbet.utils._python_dispatch import (
    TorchDispatchMode,
    get_alias_info,
    is_in_torch_dispatch_mode,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)
from rabbet.utils._pytree import tree_map

aten = rabbet.ops.aten
disabled_function = rabbet._C._disabled_torch_function_impl


class Wrapper(Tensor):
    """Holds another tensor, answers every call by the same call on it, and notes the call."""

    calls: list = []

    @staticmethod
    def __new__(cls, inner, requires_grad=None):
        made = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            requires_grad=inner.requires_grad if requires_grad is None else requires_grad,
        )
        made.inner = inner.detach() if inner.requires_grad else inner
        return made

    def __init__(self, inner, requires_grad=None):
        pass

    __torch_function__ = disabled_function

    def __repr__(self):
        return f"Wrapper({self.inner})"

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner_tensors, context, outer_size, outer_stride):
        return Wrapper(inner_tensors["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(str(func))
        out = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {}))
        out = tree_map(lambda t: cls(t) if isinstance(t, Tensor) else t, out)
        return return_and_correct_aliasing(func, args, kwargs, out)


def unwrapped(t):
    return t.inner if isinstance(t, Wrapper) else t


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


def names_of(function):
    with Log() as log:
        function()
    return log.calls


@pytest.fixture(autouse=True)
def _no_calls():
    Wrapper.calls.clear()
    yield
    assert not is_in_torch_dispatch_mode()


def matrix():
    return rabbet.tensor([[1.0, 2.0], [3.0, 4.0]])


def answering(result):
    """A class whose handler returns `result`, and a tensor of it."""

    class Answering(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return result

    return Answering(matrix())


# ---- operators


# What PyTorch 2.13 hands to a TorchDispatchMode for these calls.
SAME_NAMES = {
    "x + y": ["add.Tensor"],
    "x + 1": ["add.Tensor"],
    "2 - x": ["rsub.Scalar"],
    "x / 2": ["div.Tensor"],
    "x // y": ["floor_divide.default"],
    "x % 2": ["remainder.Scalar"],
    "x ** 2": ["pow.Tensor_Scalar"],
    "2 ** x": ["pow.Scalar"],
    "x ** y": ["pow.Tensor_Tensor"],
    "x == y": ["eq.Tensor"],
    "x > 0": ["gt.Scalar"],
    "-x": ["neg.default"],
    "x.sum()": ["sum.default"],
    "x.sum(0)": ["sum.dim_IntList"],
    "x.mean((0, 1))": ["mean.dim"],
    "x.max()": ["max.default"],
    "x.max(0)": ["max.dim"],
    "x.prod(0)": ["prod.dim_int"],
    "x.any()": ["any.default"],
    "(x > 1).any(0)": ["gt.Scalar", "any.dim"],
    "x.var(0)": ["var.correction"],
    "x.argmax(1)": ["argmax.default"],
    "x.softmax(0)": ["_softmax.default"],
    "x.view(-1)": ["view.default"],
    "x.reshape(-1)": ["view.default"],
    "x.flatten()": ["view.default"],
    "x.t()": ["t.default"],
    "x.transpose(0, 1)": ["transpose.int"],
    "x.squeeze(0)": ["squeeze.dim"],
    "x[0]": ["select.int"],
    "x[0:1]": ["slice.Tensor"],
    "x.narrow(0, 0, 1)": ["slice.Tensor"],
    "x[i]": ["index.Tensor"],
    "x.split(1)": ["split.Tensor"],
    "x.split([1, 1])": ["split_with_sizes.default"],
    "x.unbind()": ["unbind.int"],
    "x.masked_fill(x > 1, 0.0)": ["gt.Scalar", "masked_fill.Scalar"],
    "rabbet.where(x > 1, x, y)": ["gt.Scalar", "where.self"],
    "rabbet.hstack([x, y])": ["cat.default"],
    "x @ y": ["mm.default"],
    "x @ y[0]": ["select.int", "mv.default"],
    "x[0] @ y[0]": ["select.int", "select.int", "dot.default"],
    "x[None] @ y[None]": ["unsqueeze.default", "unsqueeze.default", "bmm.default"],
    "F.linear(x, y)": ["t.default", "mm.default"],
    "x.detach()": ["detach.default"],
    "x.double()": ["_to_copy.default"],
    "x.fill_(1)": ["fill_.Scalar"],
    "x.add_(y)": ["add_.Tensor"],
    "x.copy_(y)": ["copy_.default"],
    "rabbet.add(x, y, out=z)": ["add.out"],
    "x.clamp(0, 1)": ["clamp.default"],
    "x.lerp(y, 0.5)": ["lerp.Scalar"],
    "x.round(decimals=1)": ["round.decimals"],
    "rabbet.ones(2)": ["ones.default"],
    "rabbet.empty(2)": ["empty.memory_format"],
    "rabbet.randn(2)": ["randn.default"],
    "rabbet.randint(0, 3, (2,))": ["randint.low"],
    "rabbet.arange(3)": ["arange.default"],
    "rabbet.arange(1, 3)": ["arange.start"],
    "rabbet.arange(0, 6, 2)": ["arange.start_step"],
    "rabbet.eye(2, 3)": ["eye.m"],
    "rabbet.zeros_like(x)": ["zeros_like.default"],
    "F.gelu(x)": ["gelu.default"],
    "F.embedding(i, x)": ["embedding.default"],
    "F.pad(x, (1, 1))": ["constant_pad_nd.default"],
    "x.scatter(0, i[None], 1.0)": ["unsqueeze.default", "scatter.value"],
    "x.index_fill(0, i, 1.0)": ["index_fill.int_Scalar"],
    "x.bernoulli_(0.5)": ["bernoulli_.float"],
}


@pytest.mark.parametrize("call", SAME_NAMES)
def test_calls_come_as_pytorchs_overloads(call):
    scope = {
        "x": matrix(),
        "y": matrix() + 1,
        "z": rabbet.empty(2, 2),
        "i": rabbet.tensor([0, 1]),
        "rabbet": rabbet,
        "F": F,
    }
    assert names_of(lambda: eval(call, scope)) == [f"aten.{name}" for name in SAME_NAMES[call]]


def test_an_overload_is_one_object_that_describes_itself():
    func = aten.add.Tensor
    assert func is rabbet.ops.aten.add.Tensor and func is not aten.add.Scalar
    assert (str(func), repr(func)) == (
        "aten.add.Tensor",
        "<OpOverload(op='aten.add', overload='Tensor')>",
    )
    assert (func.__name__, func.name(), func.namespace) == (
        "add.Tensor",
        "aten::add.Tensor",
        "aten",
    )
    assert (func._opname, func._overloadname) == ("add", "Tensor")
    assert func.overloadpacket is func._overloadpacket is aten.add
    assert repr(aten.add) == "<OpOverloadPacket(op='aten.add')>" and str(aten.add) == "aten.add"
    assert (
        str(func._schema)
        == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    )
    assert aten.mm.default.name() == "aten::mm" and "Tensor" in aten.add.overloads()
    assert copy.deepcopy(func) is func and pickle.loads(pickle.dumps(func)) is func
    assert {func: 1}[aten.add.Tensor] == 1


def test_schemas_say_what_is_written_and_what_is_a_view():
    assert aten.add_.Tensor._schema.is_mutable and not aten.add.Tensor._schema.is_mutable
    assert aten.add_.Tensor._schema.arguments[0].alias_info.is_write
    assert aten.add.out._schema.arguments[-1].is_write
    assert aten.view.default.is_view and not aten.add.Tensor.is_view
    assert get_alias_info(aten.add_.Tensor).outs[0].is_write


def test_overloads_can_be_called():
    x = matrix()
    assert aten.add.Tensor(x, 1).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert aten.mm.default(x, x).tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert aten._to_copy.default(x, dtype=rabbet.float64).dtype is rabbet.float64
    assert aten._softmax.default(x, 1, False).equal(x.softmax(1))
    assert aten.slice.Tensor(x, 0, 0, 1).tolist() == [[1.0, 2.0]]
    assert aten.split_with_sizes.default(x, [1, 1])[1].tolist() == [[3.0, 4.0]]
    assert aten.add_.Tensor(x, 1) is x and x[0, 0].item() == 2.0
    with pytest.raises(NotImplementedError, match=r"ops\.aten\.no_such\.default is not in rabbet"):
        aten.no_such.default(x)


def test_arguments_come_in_pytorchs_form():
    seen = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((args[1:], dict(kwargs or {})))
            return func(*args, **(kwargs or {}))

    x = matrix()
    with Note():
        x.add(x, alpha=2)
        x.add(x)
        x.sum(1, keepdim=True)
        x.sum(dtype=rabbet.float64)
        x.sort()
        x.double()
    assert seen[0][1] == {"alpha": 2} and seen[1][1] == {} and len(seen[1][0]) == 1
    assert seen[2] == (([1], True), {})
    assert seen[3] == ((), {"dtype": rabbet.float64})
    assert seen[4] == ((), {})
    assert seen[5] == ((), {"dtype": rabbet.float64})


# ---- wrappers


def test_a_wrapper_answers_calls_and_keeps_identity_in_place():
    w = Wrapper(matrix())
    assert type(w + 1) is Wrapper and (w + 1).inner.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert (1 - w).inner.tolist() == [[0.0, -1.0], [-2.0, -3.0]]
    assert w.mul_(2) is w and w.inner.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    w += 1
    assert w.inner[0, 0].item() == 3.0
    out = Wrapper(rabbet.empty(2, 2))
    assert rabbet.add(w, w, out=out) is out and out.inner[0, 0].item() == 6.0
    w[0] = 0.0
    assert w.inner[0].tolist() == [0.0, 0.0]


def test_a_wrapper_shows_the_shape_that_it_was_made_with():
    class Shown(Wrapper):
        @staticmethod
        def __new__(cls, *args, **options):
            return Tensor._make_wrapper_subclass(cls, *args, **options)

        def __init__(self, *args, **options):
            pass

    w = Shown((2, 3), dtype=rabbet.float16, device="cpu")
    assert (w.shape, w.dtype, w.stride(), w.numel()) == ((2, 3), rabbet.float16, (3, 1), 6)
    assert Shown((2, 3), strides=(1, 2)).stride() == (1, 2)
    image = Shown((1, 2, 3, 4), memory_format=rabbet.channels_last)
    assert image.stride() == (24, 1, 8, 2)
    assert (
        Shown([2], device="meta").device.type == "meta"
        and Shown((2,), requires_grad=True).requires_grad
    )
    assert w.data_ptr() == 0 and repr(Tensor.__repr__(w)).startswith("'Shown(..., size=(2, 3)")


@pytest.mark.parametrize(
    ("args", "options", "error", "text"),
    [
        ((Tensor, (2,)), {}, TypeError, "Tensor must define __torch_dispatch__"),
        ((int, (2,)), {}, TypeError, "does not inherit from Tensor"),
        ((Wrapper, "a"), {}, TypeError, "argument 'size' must be tuple of ints, not str"),
        ((Wrapper, (-2,)), {}, RuntimeError, "negative dimension"),
        (
            (Wrapper, (2,)),
            {"strides": (1, 2)},
            RuntimeError,
            r"sizes \(1\) must match .* strides \(2\)",
        ),
        ((Wrapper, (2,)), {"dtype": 3}, TypeError, "dtype"),
        ((Wrapper, (2,)), {"data_ptr": 1}, TypeError, "data_ptr"),
        ((Wrapper, (2,)), {"device": "nowhere"}, RuntimeError, "nowhere"),
        (
            (Wrapper, (2,)),
            {"dtype": rabbet.int32, "requires_grad": True},
            RuntimeError,
            "floating point",
        ),
        ((Wrapper, (2,)), {"dispatch_device": True}, NotImplementedError, "dispatch_device"),
        (
            (Wrapper, (2,)),
            {"dispatch_sizes_strides_policy": "sizes"},
            NotImplementedError,
            "policy",
        ),
    ],
)
def test_wrappers_are_refused_by_name(args, options, error, text):
    with pytest.raises(error, match=text):
        Tensor._make_wrapper_subclass(*args, **options)


def test_values_of_a_wrapper_are_read_through_its_class_only():
    w = Wrapper(matrix())
    assert w.sum().item() == 10.0 and float(w.sum()) == 10.0 and bool(w.sum() > 1)
    assert Wrapper.calls[:2] == ["aten.sum.default", "aten._local_scalar_dense.default"]
    with pytest.raises(
        RuntimeError, match=r"\.tolist\(\) is not supported for tensor subclasses, got Wrapper"
    ):
        w.tolist()
    with pytest.raises(RuntimeError, match=r"\.numpy\(\) is not supported for tensor subclasses"):
        w.numpy()
    with pytest.raises(RuntimeError, match="__dlpack__"):
        w.__dlpack__()
    with pytest.raises(RuntimeError, match="4 elements"):
        w.item()


def test_wrappers_can_hold_wrappers():
    w = Wrapper(Wrapper(matrix()))
    assert (w + 1).inner.inner.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert Wrapper.calls == ["aten.add.Tensor"] * 2
    assert w.sum().item() == 10.0


def test_methods_that_create_tensors_ask_the_class():
    w = Wrapper(matrix())
    for made in (w.new_zeros(2), w.new_ones((2,)), w.new_full((2,), 7.0), w.new_empty(2)):
        assert type(made) is Wrapper and made.shape == (2,)
    assert type(rabbet.zeros_like(w)) is Wrapper and Wrapper.calls[0] == "aten.new_zeros.default"
    assert w.new_full((2,), 7.0).inner.tolist() == [7.0, 7.0]


def test_lists_and_several_results_are_wrapped():
    w = Wrapper(matrix())
    assert [part.inner.tolist() for part in w.split(1)] == [[[1.0, 2.0]], [[3.0, 4.0]]]
    values, indices = w.max(0)
    assert type(values) is Wrapper and indices.inner.tolist() == [1, 1]
    assert rabbet.cat([w, matrix()]).inner.shape == (4, 2)


def test_flattening_and_transforming():
    w = Wrapper(matrix())
    assert is_traceable_wrapper_subclass(w) and not is_traceable_wrapper_subclass(matrix())
    doubled = transform_subclass(w, lambda name, t: t * 2)
    assert type(doubled) is Wrapper and doubled.inner.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    with pytest.raises(RuntimeError, match=r"Wrapper.__tensor_unflatten__ made a tensor of size"):
        transform_subclass(w, lambda name, t: t[0])


def test_copies_and_pickles():
    w = Wrapper(matrix(), requires_grad=True)
    for made in (copy.copy(w), copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        assert type(made) is Wrapper and made.requires_grad and made.is_leaf
        assert made.inner.tolist() == w.inner.tolist()
    assert copy.deepcopy(w).inner is not w.inner
    with pytest.raises(RuntimeError, match="default implementation of __deepcopy__"):
        copy.deepcopy(answering(matrix()))


def test_files_keep_wrappers(tmp_path):
    w = Wrapper(matrix(), requires_grad=True)
    rabbet.save({"w": w}, tmp_path / "w.pt")
    made = rabbet.load(tmp_path / "w.pt", weights_only=False)["w"]
    assert type(made) is Wrapper and made.requires_grad
    assert made.inner.tolist() == w.inner.tolist()
    with pytest.raises(pickle.UnpicklingError, match="Wrapper"):
        rabbet.load(tmp_path / "w.pt")


# ---- autograd


def test_gradients_of_wrappers_are_wrappers():
    w = Wrapper(matrix(), requires_grad=True)
    y = (w * w).sum()
    assert y.requires_grad and y.grad_fn is not None and w.grad_fn is None and w.is_leaf
    y.backward()
    assert type(w.grad) is Wrapper and w.grad.inner.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    (w * 3).sum().backward()
    assert w.grad.inner.tolist() == [[5.0, 7.0], [9.0, 11.0]]
    assert not w.detach().requires_grad and "aten.detach.default" in Wrapper.calls


def test_autograd_is_off_inside_the_handler():
    class Checking(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            leaf = rabbet.ones(2, requires_grad=True)
            assert not (leaf * 2).requires_grad
            return super().__torch_dispatch__(func, types, args, kwargs)

    assert (Checking(matrix(), requires_grad=True) * 2).requires_grad


def test_saved_results_keep_their_class():
    w = Wrapper(matrix(), requires_grad=True)
    y = w.exp()
    z = y.sigmoid().sum()
    del y
    gc.collect()
    (grad,) = rabbet.autograd.grad(z, w)
    x = matrix().requires_grad_()
    (plain,) = rabbet.autograd.grad(x.exp().sigmoid().sum(), x)
    assert type(grad) is Wrapper and rabbet.equal(grad.inner, plain)


def test_writes_to_views_reach_the_gradient_of_the_base():
    w = Wrapper(matrix(), requires_grad=True)
    y = w * 2
    view = y.view(-1)[1:3]
    assert view._version == y._version == 0
    view.mul_(3)
    assert view._version == y._version == 1
    (grad,) = rabbet.autograd.grad(y.sum(), w)
    assert grad.inner.tolist() == [[2.0, 6.0], [6.0, 2.0]]


def test_a_write_to_a_saved_wrapper_is_noticed():
    w = Wrapper(matrix(), requires_grad=True)
    y = w * 2
    square = y * y
    y[0].mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()


def test_a_write_to_one_of_many_views_is_refused_where_the_gradient_would_be_lost():
    y = Wrapper(matrix())
    part, _ = y.split(1)
    with pytest.raises(RuntimeError, match="the output of a function that returns multiple views"):
        part.mul_(rabbet.ones(2, requires_grad=True))
    with rabbet.no_grad():
        part.mul_(rabbet.full((2,), 2.0, requires_grad=True))
    assert y.inner.tolist() == [[2.0, 4.0], [3.0, 4.0]]


def test_transforms_work_above_wrappers():
    w = Wrapper(matrix())
    grad = rabbet.func.grad(lambda a: (a * a).sum())(w)
    assert type(grad) is Wrapper and grad.inner.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert rabbet.vmap(lambda a: a * 2)(w).inner.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def make_model():
    rabbet.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))


@pytest.mark.parametrize("make", [rabbet.optim.SGD, rabbet.optim.Adam])
def test_training_with_wrapped_parameters_gives_the_plain_numbers(make):
    x, target = rabbet.randn(5, 3), rabbet.tensor([0, 1, 1, 0, 1])
    plain, wrapped = make_model(), make_model()
    for module in wrapped.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(Wrapper(p.detach().clone())))
    assert all(isinstance(p, nn.Parameter) and type(p) is Wrapper for p in wrapped.parameters())
    for model in (plain, wrapped):
        optimizer = make(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), target).backward()
            optimizer.step()
    for p, q in zip(plain.parameters(), wrapped.parameters(), strict=True):
        rabbet.testing.assert_close(q.inner, p.detach(), atol=1e-5, rtol=1e-4)


def test_inputs_can_be_wrappers():
    model = make_model()
    x = rabbet.randn(5, 3)
    out = model(Wrapper(x))
    assert type(out) is Wrapper
    rabbet.testing.assert_close(out.inner, model(x).detach())
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_parameter_needs_detach_of_its_class():
    with pytest.raises(
        RuntimeError, match="Creating a Parameter from an instance of type Answering"
    ):
        nn.Parameter(answering(matrix()))


# ---- the examples of PyTorch's documentation


class Diagonal(Tensor):
    """A square matrix of which only the diagonal is kept."""

    @staticmethod
    def __new__(cls, diagonal):
        n = diagonal.shape[0]
        return Tensor._make_wrapper_subclass(cls, (n, n), dtype=diagonal.dtype)

    def __init__(self, diagonal):
        self.diagonal_values = diagonal

    __torch_function__ = disabled_function
    handlers: dict = {}

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in cls.handlers:
            return cls.handlers[func](*args, **(kwargs or {}))
        full = tree_map(lambda t: t.diagonal_values.diag() if isinstance(t, cls) else t, args)
        return func(*full, **(kwargs or {}))


def multiply(a, b):
    if isinstance(a, Diagonal) and isinstance(b, Diagonal):
        return Diagonal(a.diagonal_values * b.diagonal_values)
    return a.diagonal_values[:, None] * b if isinstance(a, Diagonal) else a * b.diagonal_values


Diagonal.handlers[aten.mm.default] = multiply


def test_a_table_of_handlers_by_overload():
    d, x = Diagonal(rabbet.tensor([2.0, 3.0])), matrix()
    assert type(d @ d) is Diagonal and (d @ d).diagonal_values.tolist() == [4.0, 9.0]
    assert (d @ x).tolist() == [[2.0, 4.0], [9.0, 12.0]] and (x @ d).tolist() == [
        [2.0, 6.0],
        [6.0, 12.0],
    ]
    assert (d + x).tolist() == [[3.0, 2.0], [3.0, 7.0]]


class Quantised(Tensor):
    """int8 numbers times one scale."""

    @staticmethod
    def __new__(cls, numbers, scale):
        return Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)

    def __init__(self, numbers, scale):
        self.numbers, self.scale = numbers, scale

    __torch_function__ = disabled_function

    @classmethod
    def of(cls, x):
        scale = x.abs().max() / 127
        return cls((x / scale).round().to(rabbet.int8), scale)

    def values(self):
        return self.numbers * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.detach.default:
            return cls(args[0].numbers, args[0].scale)
        if func in (aten.t.default, aten.view.default, aten.select.int):
            return cls(func(args[0].numbers, *args[1:]), args[0].scale)
        plain = tree_map(lambda t: t.values() if isinstance(t, cls) else t, args)
        return func(*plain, **(kwargs or {}))


def test_a_quantised_weight():
    model = nn.Linear(8, 4)
    x = rabbet.randn(3, 8, requires_grad=True)
    expected = model(x)
    model.weight = nn.Parameter(Quantised.of(model.weight.detach()), requires_grad=False)
    got = model(x)
    rabbet.testing.assert_close(got, expected, atol=0.05, rtol=0.05)
    got.sum().backward()
    rabbet.testing.assert_close(x.grad[0], model.weight.values().sum(0))
    assert type(model.weight) is Quantised and type(model.weight.t()) is Quantised


class Noted(Tensor):
    """Has memory of its own, and sees its calls."""

    calls: list = []
    __torch_function__ = disabled_function

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((str(func), types))
        with rabbet._torch_dispatch.without_dispatch():
            return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor._make_subclass(Noted, rabbet.ones(2)),
        lambda: rabbet.ones(2).as_subclass(Noted),
        lambda: Noted([1.0, 1.0]),
    ],
    ids=["_make_subclass", "as_subclass", "constructor"],
)
def test_objects_of_such_a_class_are_dispatched_however_they_are_made(make):
    t = make()
    Noted.calls.clear()
    assert (t + 1).tolist() == [2.0, 2.0] and Noted.calls == [("aten.add.Tensor", (Noted,))]
    assert t.tolist() == [1.0, 1.0]


def test_a_class_can_disable_the_protocol():
    class Disabled(Wrapper):
        __torch_dispatch__ = rabbet._C._disabled_torch_dispatch_impl

    assert Tensor.__torch_dispatch__ is rabbet._C._disabled_torch_dispatch_impl
    t = Tensor._make_subclass(Disabled, matrix())
    assert (t + 1).tolist() == [[2.0, 3.0], [4.0, 5.0]] and not Wrapper.calls


# ---- which handler


def test_subclasses_are_asked_before_their_bases_and_from_left_to_right():
    asked = []

    class Base(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            asked.append((cls.__name__, [t.__name__ for t in types]))
            return NotImplemented

    class Derived(Base):
        pass

    class Other(Base):
        pass

    with pytest.raises(
        TypeError, match=r"Multiple dispatch failed for 'torch.ops.aten.cat.default'"
    ):
        rabbet.cat([Base(matrix()), Other(matrix()), Derived(matrix())])
    assert [name for name, _ in asked] == ["Other", "Derived", "Base"]
    assert asked[0][1] == ["Other", "Derived", "Base"]


def test_a_mode_is_asked_before_classes():
    w = Wrapper(matrix())
    with Log() as log:
        w + 1
    assert log.calls == ["aten.add.Tensor"]
    assert Wrapper.calls == ["aten.add.Tensor"]


# ---- wrong handlers


@pytest.mark.parametrize("result", [1, None, "a", [1.0], (matrix(),)], ids=str)
def test_a_wrong_result_names_operator_and_class(result):
    with pytest.raises(
        RuntimeError,
        match=r"aten.exp.default: __torch_dispatch__ of Answering must return a Tensor",
    ):
        answering(result).exp()


def test_wrong_numbers_of_results():
    with pytest.raises(
        RuntimeError, match=r"aten.max.dim: .* must return 2 results \(values, indices\)"
    ):
        answering((matrix(),)).max(0)
    with pytest.raises(
        RuntimeError, match=r"aten.split.Tensor: .* must return a list of Tensors, got Tensor"
    ):
        answering(matrix()).split(1)
    one = type(answering([1]))(rabbet.tensor(1.0))
    with pytest.raises(RuntimeError, match="must return a number, got a list of 1"):
        one.item()


def test_an_operator_that_writes_returns_its_argument_whatever_the_handler_returns():
    for result in (None, 1, matrix()):
        w = answering(result)
        assert w.add_(1) is w


def test_errors_of_a_handler_come_through_as_they_are():
    class Failing(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    w = Failing(matrix(), requires_grad=True)
    with pytest.raises(KeyError, match="mine"):
        w + 1
    with pytest.raises(KeyError, match="mine"):
        w.sum().item()


def test_endless_recursion_is_an_error():
    class Endless(Wrapper):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(RecursionError):
        Endless(matrix()) + 1


def test_all_handlers_return_not_implemented():
    class Never(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(
        TypeError, match=r"(?s)aten.exp.default.*mode object .*Never.*tensor subclass .*Answering"
    ):
        w = answering(NotImplemented)
        with Never():
            w.exp()


# ---- what it costs


def test_wrappers_are_freed():
    w = Wrapper(matrix(), requires_grad=True)
    inner = weakref.ref(w.inner)
    (w * w).sum().backward()
    del w
    gc.collect()
    assert inner() is None


def test_the_layer_loads_when_a_program_uses_it():
    code = """
import sys, rabbet, rabbet.autograd
class Plain(rabbet.Tensor): pass
x = Plain([1.0]); (x + 1).sum(); repr(x)
rabbet.ones(2, requires_grad=True).sum().backward()
assert "rabbet._dispatch" not in sys.modules and "rabbet._aten" not in sys.modules
from rabbet.utils._python_dispatch import TorchDispatchMode
assert "rabbet._dispatch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_convolutions_come_with_all_arguments_of_pytorchs_operator():
    seen = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append((str(func), args[2:], kwargs))
            return func(*args, **(kwargs or {}))

    x, weight = rabbet.ones(1, 2, 4, 4), rabbet.ones(4, 1, 3, 3)
    expected = rabbet.nn.functional.conv2d(x, weight, None, 1, 1, 1, 2)
    with Seen():
        found = rabbet.nn.functional.conv2d(x, weight, None, 1, 1, 1, 2)
    options = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2)
    assert [(name, rest) for name, rest, _ in seen] == [("aten.convolution.default", options)]
    assert rabbet.equal(found, expected)
