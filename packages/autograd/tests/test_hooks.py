"""Hooks on gradients: order, removal, replacement, what goes wrong in them, and cycles through them."""

import gc
import signal
import threading
import traceback
import weakref

import pytest
import rabbet
from rabbet.autograd import _C, Function, grad
from rabbet.autograd.graph import register_multi_grad_hook

F64 = rabbet.float64


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


# ---- order, removal, replacement


@pytest.mark.parametrize("of_leaf", [True, False])
def test_hooks_run_in_the_order_of_registration_each_on_what_the_last_one_returned(of_leaf):
    x = leaf(1.0, 2.0)
    y = x if of_leaf else x * 1
    seen = []

    def hook(name, factor):
        def called(g):
            seen.append((name, g.tolist()))
            return None if factor is None else g * factor

        return called

    y.register_hook(hook("a", 2))
    middle = y.register_hook(hook("b", None))
    y.register_hook(hook("c", 10))
    (y * 3).sum().backward()
    assert seen == [("a", [3, 3]), ("b", [6, 6]), ("c", [6, 6])]
    assert x.grad.tolist() == [60, 60]
    middle.remove()
    middle.remove()  # again: nothing
    del seen[:]
    x.grad = None
    (y * 3).sum().backward(retain_graph=True)
    assert [name for name, _ in seen] == ["a", "c"]


def test_a_handle_is_a_context_manager():
    x = leaf(1.0)
    seen = []
    with x.register_hook(lambda g: seen.append(1)):
        (x * 2).backward()
    (x * 2).backward()
    assert seen == [1]


def test_a_hook_removes_itself_and_others_while_it_runs():
    x = leaf(1.0)
    seen = []
    handles = {}

    def first(g):
        seen.append("first")
        handles["first"].remove()

    def second(g):
        seen.append("second")
        handles["third"].remove()

    handles["first"] = x.register_hook(first)
    handles["second"] = x.register_hook(second)
    handles["third"] = x.register_hook(lambda g: seen.append("third"))
    (x * 2).backward()
    (x * 2).backward()
    assert seen[:2] == ["first", "second"] and seen[-1] == "second"
    assert seen.count("first") == 1 and seen.count("second") == 2
    assert "third" not in seen[3:]


def test_post_accumulate_hooks_see_the_tensor_after_the_others():
    x = leaf(1.0, 2.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    x.register_hook(lambda g: seen.append("before") or g * 2)
    (x * 3).sum().backward()
    assert seen == ["before", (True, [6, 6])]

    def clear(t):
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(clear)
    (x * 3).sum().backward()
    assert x.grad is None
    handle.remove()
    grad((x * 3).sum(), x)  # nothing is accumulated
    assert len(seen) == 5 and seen[-1] == "before" and x.grad is None


def test_hooks_of_an_intermediate_result_outlive_its_object():
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    z = y * 3
    del y
    gc.collect()
    z.backward()
    assert seen == [3]


def test_hooks_of_a_tensor_that_is_then_written_in_place_follow_the_value():
    x = leaf(1.0, 2.0)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(("before", g.tolist())))
    y.mul_(5)
    y.register_hook(lambda g: seen.append(("after", g.tolist())))
    y.sum().backward()
    assert sorted(seen) == [("after", [1, 1]), ("before", [5, 5])]


def test_node_hooks_see_and_replace_gradients():
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.grad_fn.register_prehook(lambda gs: seen.append(gs[0].item()) or (gs[0] * 10,))
    handle = y.grad_fn.register_hook(lambda ins, outs: seen.append((ins[0].item(), outs[0].item())))
    y.backward(retain_graph=True)
    assert seen == [1, (20, 10)] and x.grad.item() == 20
    handle.remove()
    y.backward()
    assert len(seen) == 3


def test_hooks_under_create_graph_are_recorded():
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = grad(y, x, create_graph=True)
    assert g.item() == 8  # 2 x * x
    assert grad(g, x)[0].item() == 8  # 4 x


# ---- what goes wrong


def test_a_hook_runs_backward_through_the_graph_of_the_run():
    w = rabbet.tensor([2.0], requires_grad=True)
    a = w * 3
    b = a * w
    y = b * w  # 3 w^3
    inner = []

    def hook(gradient):
        if not inner:
            inner.append(None)  # the run below calls the hook, too
            inner[0] = grad(y, w, retain_graph=True)[0].item()

    b.register_hook(hook)
    y.backward(retain_graph=True)
    assert inner == [36.0] and w.grad.tolist() == [36.0]
    inner.clear()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()  # frees what the hook's run would read
    y = w * w
    other = w * 5
    y.register_hook(lambda gradient: other.backward())  # accumulates into a leaf of the run
    w.grad = None
    y.backward()
    assert w.grad.tolist() == [9.0]


def test_a_backward_function_runs_backward_through_leaves_of_the_run():
    class Product(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            with rabbet.enable_grad():
                x = x.detach().requires_grad_()
                return grad(x * w, (x, w), gradient)

    x = rabbet.tensor([5.0], requires_grad=True)
    w = rabbet.tensor([2.0], requires_grad=True)
    (Product.apply(x * w, w) * w).backward()  # x w^3
    assert x.grad.tolist() == [8.0] and w.grad.tolist() == [60.0]


def test_a_hook_that_raises_keeps_its_traceback_and_the_graph_stays_usable():
    x = leaf(1.0)
    y = x * 2

    class Mine(Exception):
        pass

    def deep():
        raise Mine("here")

    def hook(g):
        deep()

    for target in (x, y):
        handle = target.register_hook(hook)
        with pytest.raises(Mine, match="here") as error:
            y.backward(retain_graph=True)
        names = [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]
        assert names[-2:] == ["hook", "deep"]
        handle.remove()
    assert x.grad is None
    y.backward()
    assert x.grad.item() == 2


@pytest.mark.parametrize(
    "result, error, message",
    [
        (rabbet.ones(3, dtype=F64), ValueError, r"shape.*\(2\)|shape.*\(2,\)"),
        (rabbet.ones(2), RuntimeError, "dtype"),
        ("text", TypeError, "a gradient hook must return a Tensor or None, not str"),
    ],
)
@pytest.mark.parametrize("of_leaf", [True, False])
def test_results_that_do_not_fit_are_refused(of_leaf, result, error, message):
    x = leaf(1.0, 2.0)
    y = x if of_leaf else x * 1
    handle = y.register_hook(lambda g: result)
    z = (y * 2).sum()
    with pytest.raises((error, RuntimeError, TypeError, ValueError), match=message):
        z.backward(retain_graph=True)
    handle.remove()
    x.grad = None
    z.backward()
    assert x.grad.tolist() == [2, 2]


def test_bad_registrations():
    x = leaf(1.0)
    with pytest.raises(TypeError, match="register_hook: expected a callable, not int"):
        x.register_hook(3)
    with pytest.raises(RuntimeError, match="does not require grad"):
        x.detach().register_hook(print)
    with pytest.raises(RuntimeError, match="only leaf tensors accumulate"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(TypeError, match="expected a callable"):
        (x * 2).grad_fn.register_hook(None)
    node = (x * 2).grad_fn
    node.register_hook(lambda ins, outs: (1, 2, 3))
    y = x * 2
    y.grad_fn.register_hook(lambda ins, outs: (None, None, None))
    with pytest.raises(RuntimeError, match="a node hook returned 3 gradients, expected 1"):
        y.backward()


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt; whoever starts a process in the background lets it ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_keyboard_interrupt_in_the_middle_leaves_everything_usable():
    x = leaf(1.0)
    y = x * 2
    z = y * 3 * x

    def interrupt(g):
        signal.raise_signal(signal.SIGINT)
        return g

    handle = y.register_hook(interrupt)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            z.backward(retain_graph=True)
    handle.remove()
    x.grad = None
    z.backward()
    assert x.grad.item() == 12
    before = _C.live_nodes()
    del y, z, handle
    assert _C.live_nodes() < before
    found = []
    thread = threading.Thread(target=lambda: found.append(grad(x * x, x)[0].item()))
    thread.start()
    thread.join(30)
    assert found == [2]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_in_a_long_backward_arrives_when_it_is_over():
    x = leaf(1.0)
    y = x
    for _ in range(2000):
        y = y * 1.0
    timer = threading.Timer(0.0, signal.raise_signal, [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while True:
            y.backward(retain_graph=True)
    timer.join()
    x.grad = None
    y.backward()
    assert x.grad.item() == 1


# ---- cycles


def cycle_through_a_leaf():
    x = leaf(1.0)
    x.register_hook(lambda g: g * x)
    return x


def cycle_through_a_result():
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: g * y)
    return y


def cycle_further_up():
    x = leaf(1.0)
    y = x * 2
    hook = []
    y.register_hook(lambda g: hook)
    z = y.exp() + 1
    hook.append(z)
    z.register_hook(print)  # the collector looks at tensors with hooks
    return z


def cycle_through_the_leaf_of_a_graph():
    x = leaf(1.0)
    hook = []
    x.register_hook(lambda g: hook)
    y = x * 2
    hook.append(y)
    y.register_hook(print)
    return y


def cycle_through_the_handle():
    x = leaf(1.0)
    handle = x.register_hook(lambda g: handle.remove())
    return x


def cycle_through_a_post_hook():
    x = leaf(1.0)
    x.register_post_accumulate_grad_hook(lambda t: x)
    (x * 2).backward()
    return x


def cycle_through_a_node_hook():
    y = leaf(1.0) * 2
    y.register_hook(lambda g: None)
    y.grad_fn.register_hook(lambda ins, outs: y)
    return y


CYCLES = [
    cycle_through_a_leaf,
    cycle_through_a_result,
    cycle_further_up,
    cycle_through_the_leaf_of_a_graph,
    cycle_through_the_handle,
    cycle_through_a_post_hook,
    cycle_through_a_node_hook,
]


@pytest.mark.parametrize("make", CYCLES)
def test_cycles_through_hooks_are_collected(make):
    gc.collect()
    nodes = _C.live_nodes()
    gone = weakref.ref(make())
    gc.collect()
    assert gone() is None and _C.live_nodes() == nodes


@pytest.mark.parametrize("make", CYCLES[:2])
def test_hooks_in_cycles_work_after_a_collection(make):
    y = make()
    gc.collect()
    (y * 3).backward()
    gc.collect()
    (y.detach().requires_grad_() * 3).backward()


def test_memory_stays_flat_over_100000_cycles():
    counts = []
    for i in range(100_000):
        cycle_through_a_leaf()
        cycle_through_a_result()
        if i % 10_000 == 9_999:
            gc.collect()
            live = rabbet._C.live_counts()
            counts.append((live["tensors"], live["bytes"], _C.live_nodes()))
    assert len(set(counts)) == 1


# ---- several tensors


def test_all_gradients_at_once():
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    y = a * b
    seen = []
    handle = register_multi_grad_hook(
        [a, b, c, y], lambda gs: seen.append([None if g is None else g.item() for g in gs])
    )
    (y * 2).backward(retain_graph=True)
    assert seen == [[4, 2, None, 2]]
    (y * c).backward(retain_graph=True)
    assert seen[1:] == [[6, 3, 2, 3]]
    grad(y, b, retain_graph=True)
    assert seen[2:] == [[None, 1, None, 1]]
    handle.remove()
    y.backward()
    assert len(seen) == 3


def test_the_first_gradient_of_any():
    a, b = leaf(1.0), leaf(2.0)
    seen = []
    with register_multi_grad_hook([a, b], seen.append, mode="any"):
        y = (a * b) * 3
        y.backward(retain_graph=True)
        y.backward()
    assert [g.item() for g in seen] in ([6, 6], [3, 3])
    (a * b).backward()
    assert len(seen) == 2


def test_bad_arguments_of_multi_grad_hooks():
    with pytest.raises(ValueError, match=r"Expects mode to be one of \('all', 'any'\) but got x"):
        register_multi_grad_hook([leaf(1.0)], print, mode="x")
    with pytest.raises(TypeError, match="fn must be callable, got int"):
        register_multi_grad_hook([leaf(1.0)], 3)
    with pytest.raises(RuntimeError, match="does not require"):
        register_multi_grad_hook([leaf(1.0).detach()], print)
