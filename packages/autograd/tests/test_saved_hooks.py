"""Hooks on saved tensors: what they see, what backward gets back, and what goes wrong."""

import gc
import math
import threading

import pytest
import rabbet
from rabbet.autograd import _C, Function, grad
from rabbet.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks

F64 = rabbet.float64


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


def by_list(x):
    return x.tolist()


def from_list(values):
    return rabbet.tensor(values, dtype=F64)


def test_hooks_see_each_saved_tensor_and_backward_uses_what_they_return():
    x, y = leaf(2.0, 3.0), leaf(5.0, 7.0)
    seen = []

    def pack(t):
        seen.append(t.tolist())
        return by_list(t)

    with saved_tensors_hooks(pack, lambda packed: from_list([10 * v for v in packed])):
        z = (x * y).exp()
    assert seen[:2] == [[2, 3], [5, 7]] and len(seen) == 3  # exp saves its result
    z.backward(rabbet.tensor([1e-9, 0.0], dtype=F64))
    expected = 1e-9 * 10 * math.exp(10.0)
    assert x.grad.tolist() == pytest.approx([expected * 50, 0])
    assert y.grad.tolist() == pytest.approx([expected * 20, 0])


@pytest.mark.parametrize("hooks", [(by_list, from_list), (lambda t: t, lambda t: t)])
def test_second_derivatives_keep_their_history(hooks):
    def second(inside):
        x = leaf(0.3, 0.7)
        if inside:
            with saved_tensors_hooks(*hooks):
                y = (x * x).sin().exp().sum()
        else:
            y = (x * x).sin().exp().sum()
        (g,) = grad(y, x, create_graph=True)
        (h,) = grad((g * g).sum(), x)
        return h.tolist()

    assert second(True) == pytest.approx(second(False))


def test_lists_of_tensors_and_in_place_calls_are_packed():
    x = leaf(2.0, 3.0)
    packed = []
    with saved_tensors_hooks(lambda t: packed.append(1) or t.tolist(), from_list):
        y = x * 1
        y.mul_(x)
        z = rabbet.cat([y, y * x])
    z.sum().backward()
    assert x.grad.tolist() == pytest.approx([2 * 2 + 3 * 4, 2 * 3 + 3 * 9]) and packed


def test_the_innermost_pair_counts_and_hooks_run_without_hooks():
    x = leaf(2.0)
    outer, inner = [], []
    with saved_tensors_hooks(lambda t: outer.append(1) or t, lambda t: t):
        pack = lambda t: inner.append(t * t) or t  # noqa: E731
        with saved_tensors_hooks(pack, lambda t: t):
            (x * x).sum().backward()
        assert (len(outer), len(inner)) == (0, 2)
        assert not inner[0].requires_grad
        (x * x).sum()
    assert len(outer) == 2


def test_other_threads_have_their_own_hooks():
    x = leaf(2.0)
    seen = []
    with saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        thread = threading.Thread(target=lambda: (x * x).sum().backward())
        thread.start()
        thread.join()
    assert not seen and x.grad.item() == 4


def test_user_functions_pack_what_they_save():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * x

        @staticmethod
        def backward(ctx, g):
            x, nothing = ctx.saved_tensors
            assert nothing is None
            return 2 * x * g

    x = leaf(3.0)
    with saved_tensors_hooks(by_list, lambda v: from_list([10 * i for i in v])):
        y = Square.apply(x)
    y.sum().backward()
    assert x.grad.item() == 60


def test_save_on_cpu_gives_the_same_gradients():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with save_on_cpu(pin_memory=True):
        y = (x * w).tanh().sum()
    y.backward()
    expected = [(1 - rabbet.tanh(rabbet.tensor(v, dtype=F64)).item() ** 2) for v in (3.0, 8.0)]
    assert x.grad.tolist() == pytest.approx([3 * expected[0], 4 * expected[1]])


def test_what_is_packed_goes_with_the_graph():
    class Packed:
        alive = 0

        def __init__(self, t):
            self.t = t
            Packed.alive += 1

        def __del__(self):
            Packed.alive -= 1

    before = _C.live_nodes()
    x = leaf(2.0)
    with saved_tensors_hooks(Packed, lambda p: p.t):
        y = (x * x).exp()
    assert Packed.alive == 3
    del y
    gc.collect()
    assert Packed.alive == 0 and _C.live_nodes() <= before + 1
    with saved_tensors_hooks(Packed, lambda p: p.t):
        (x * x).sum().backward()
    gc.collect()
    assert Packed.alive == 0


def boom(*_):
    raise KeyError("boom")


def test_exceptions_of_hooks_reach_the_caller():
    x = leaf(2.0)
    with saved_tensors_hooks(boom, lambda t: t), pytest.raises(KeyError, match="boom"):
        x * x
    with saved_tensors_hooks(lambda t: t, boom):
        y = x * x
    with pytest.raises(KeyError, match="boom"):
        y.backward()
    with saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x * x
    with pytest.raises(TypeError, match="unpack_hook must return a Tensor, not int"):
        y.backward()
    (x * x).sum().backward()
    assert x.grad.item() == 4


def test_misuse():
    with pytest.raises(TypeError, match="pack_hook must be callable, got int"):
        saved_tensors_hooks(3, 4)
    refusal = pytest.raises(RuntimeError, match="not here")
    with disable_saved_tensors_hooks("not here"), refusal, save_on_cpu():
        pass
    with (
        save_on_cpu(),
        pytest.raises(RuntimeError, match="now"),
        disable_saved_tensors_hooks("now"),
    ):
        pass
