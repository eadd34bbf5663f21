"""Functions that run at the end of the outermost backward pass."""

import threading

import pytest
import rabbet
from rabbet.autograd import Variable

queue = Variable._execution_engine.queue_callback


def hooked(hook):
    """A result whose gradient, when it arrives, runs `hook` in the middle of a backward pass; and its leaf."""
    with rabbet.enable_grad():  # a hook runs without
        leaf = rabbet.ones(2, requires_grad=True)
        middle = leaf * 2
        middle.register_hook(lambda grad: hook())
        return middle.sum(), leaf


def test_callbacks_run_once_after_the_last_gradient_in_their_order():
    said = []

    def hook():
        queue(lambda: said.append(("first", leaf.grad.tolist())))
        queue(lambda: said.append(("second", leaf.grad.tolist())))

    loss, leaf = hooked(hook)
    loss.backward()
    assert said == [("first", [2, 2]), ("second", [2, 2])]
    (leaf * 3).sum().backward()
    assert len(said) == 2


def test_a_pass_inside_a_pass_waits_for_the_outer_one():
    said = []

    def inner_hook():
        queue(lambda: said.append("end"))

    def outer_hook():
        inner, _ = hooked(inner_hook)
        inner.backward()
        said.append("inner pass is over")

    loss, leaf = hooked(outer_hook)
    loss.backward()
    assert said == ["inner pass is over", "end"] and leaf.grad.tolist() == [2, 2]


def test_a_callback_may_add_callbacks_and_run_passes():
    said = []

    def again():
        said.append("again")
        loss, leaf = hooked(lambda: queue(lambda: said.append("from inside")))
        loss.backward()
        said.append(leaf.grad.tolist())

    loss, _ = hooked(lambda: queue(again))
    loss.backward()
    assert said == ["again", [2, 2], "from inside"]


def test_grad_runs_them_too():
    said = []
    loss, leaf = hooked(lambda: queue(lambda: said.append(1)))
    (grad,) = rabbet.autograd.grad(loss, leaf)
    assert said == [1] and grad.tolist() == [2, 2]


def test_outside_of_a_pass_there_is_nothing_to_wait_for():
    with pytest.raises(RuntimeError, match="at_end: no backward pass is running on this thread"):
        queue(lambda: None)


def test_a_failing_callback_is_the_error_of_the_pass_and_ends_the_others():
    said = []

    def hook():
        queue(lambda: 1 / 0)
        queue(lambda: said.append(1))

    loss, leaf = hooked(hook)
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    assert not said and leaf.grad.tolist() == [2, 2]
    hooked(lambda: None)[0].backward()
    assert not said


def test_a_failing_pass_calls_none():
    said = []
    leaf = rabbet.ones(2, requires_grad=True)
    middle = leaf * 2
    middle.register_hook(lambda grad: queue(lambda: said.append(1)))

    def fail(grad):
        raise ValueError("no")

    middle.register_hook(fail)
    with pytest.raises(ValueError, match="no"):
        middle.sum().backward()
    assert not said


def test_each_thread_has_its_own():
    said = []

    def work(name):
        loss, _ = hooked(lambda: queue(lambda: said.append((name, threading.get_ident()))))
        loss.backward()
        said.append((name, threading.get_ident()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(said) == 8 and len(set(said)) == 4  # the callback ran on the thread of its pass


def test_pytorch_runs_them_alike():
    torch = pytest.importorskip("torch")
    said = []
    for module in (rabbet, torch):
        leaf = module.ones(2, requires_grad=True)
        middle = leaf * 2
        engine = module.autograd.Variable._execution_engine
        middle.register_hook(
            lambda g, e=engine, x=leaf: e.queue_callback(lambda: said.append(x.grad.tolist()))
        )
        middle.sum().backward()
    assert said == [[2, 2], [2, 2]]
