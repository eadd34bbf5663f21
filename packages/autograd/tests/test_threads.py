"""Several threads record and run backward over what they share: right sums, and nothing that
ThreadSanitizer objects to (`make test-sanitize`)."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from time import monotonic

import pytest
import rabbet
from rabbet import autograd

THREADS, ROUNDS = 4, 50


def together(work: Callable[[int], object], threads: int = THREADS) -> list[object]:
    """work(k) in threads that start at one time; what they return, or the first error."""
    start = Barrier(threads)

    def run(k: int) -> object:
        start.wait()
        return work(k)

    with ThreadPoolExecutor(threads) as pool:
        return [future.result() for future in [pool.submit(run, k) for k in range(threads)]]


def wait_at(barrier: Barrier) -> None:
    barrier.wait()


def test_graphs_of_their_own_into_one_leaf() -> None:
    x = rabbet.ones(300, requires_grad=True)

    def work(k: int) -> None:
        for _ in range(ROUNDS):
            (x * (k + 1)).tanh().mul(0).add(x * 3).sum().backward()

    together(work)
    assert rabbet.equal(x.grad, rabbet.full([300], 3.0 * THREADS * ROUNDS))


def test_one_graph_from_several_threads() -> None:
    x = rabbet.ones(300, requires_grad=True)
    y = (x * x).sum()

    def work(_: int) -> None:
        for _ in range(ROUNDS):
            y.backward(retain_graph=True)

    together(work)
    assert rabbet.equal(x.grad, rabbet.full([300], 2.0 * THREADS * ROUNDS))


def test_recording_on_what_another_thread_differentiates() -> None:
    x = rabbet.ones(300, requires_grad=True)
    shared = x.exp()

    def work(k: int) -> float:
        total = 0.0
        for i in range(ROUNDS):
            y = (shared * i).sum()
            if k % 2:
                (g,) = autograd.grad(y, x, retain_graph=True)
                total += float(g[0]) / (2.718281828459045 * max(i, 1))
            else:
                total += float(y.detach() > 0)
        return total

    assert all(abs(total - (ROUNDS - 1)) < 1e-3 for total in together(work))
    assert x.grad is None


def test_hooks_and_retained_gradients() -> None:
    x = rabbet.ones(300, requires_grad=True)
    seen: list[int] = []
    x.register_hook(lambda g: g * 2)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(1))

    def work(_: int) -> None:
        for _ in range(ROUNDS):
            y = x * 1.5
            y.retain_grad()
            y.sum().backward()
            assert rabbet.equal(y.grad, rabbet.ones(300))

    together(work)
    assert len(seen) == THREADS * ROUNDS
    assert rabbet.equal(x.grad, rabbet.full([300], 3.0 * THREADS * ROUNDS))


def test_graphs_die_while_others_run() -> None:
    x = rabbet.ones(300, requires_grad=True)

    def work(k: int) -> None:
        for _ in range(ROUNDS):
            y = x
            for _ in range(20):
                y = y * 1.0
            if k % 2:
                y.sum().backward()

    together(work)
    assert rabbet.equal(x.grad, rabbet.full([300], float(THREADS // 2 * ROUNDS)))


def test_higher_derivatives() -> None:
    x = rabbet.full([300], 2.0, requires_grad=True)

    def work(_: int) -> float:
        for _ in range(ROUNDS // 5):
            (g,) = autograd.grad((x * x * x).sum(), x, create_graph=True)
            (h,) = autograd.grad(g.sum(), x)
        return float(h[0])

    assert together(work) == [12.0] * THREADS


@pytest.mark.parametrize("seconds", [0.5, pytest.param(60.0, marks=pytest.mark.slow)])
def test_eight_threads_on_one_model_get_the_sequential_gradients(seconds: float) -> None:
    """grad() of each thread bit for bit; .grad of whole numbers, whose sums have no order."""
    threads = 8
    weights = [rabbet.randn(16, 32), rabbet.randn(32, 1)]
    for w in weights:
        w.requires_grad_()
    shift = rabbet.zeros(32, requires_grad=True)
    inputs = [rabbet.randn(8, 16) for _ in range(threads)]

    def gradients(k: int) -> tuple[rabbet.Tensor, ...]:
        loss = ((inputs[k] @ weights[0] + shift).tanh() @ weights[1]).square().sum()
        return autograd.grad(loss, [*weights, shift])

    def add(k: int) -> None:
        (shift * (k + 1)).sum().backward()

    expected = [gradients(k) for k in range(threads)]

    def work(k: int) -> int:
        end, rounds = monotonic() + seconds, 0
        while monotonic() < end:
            for found, want in zip(gradients(k), expected[k], strict=True):
                assert rabbet.equal(found, want)
            if rounds < 1000:  # sums stay below 2 ** 24: exact
                add(k)
            rounds += 1
        return rounds

    rounds = together(work, threads)
    total = sum((k + 1) * min(r, 1000) for k, r in enumerate(rounds))
    assert rabbet.equal(shift.grad, rabbet.full([32], float(total)))
    assert all(w.grad is None for w in weights)


def test_runs_of_two_threads_go_on_beside_each_other() -> None:
    """A hook of each waits for the other's: one run at a time would not get there."""
    meet = Barrier(2, timeout=30)

    def work(_: int) -> float:
        x = rabbet.ones(3, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: wait_at(meet))
        y.sum().backward()
        return float(x.grad.sum())

    assert together(work, 2) == [6.0, 6.0]


def test_two_runs_in_the_middle_of_one_graph() -> None:
    """Each has its own gradients of the nodes that both are at."""
    meet = Barrier(2, timeout=30)
    x = rabbet.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    z.register_hook(lambda g: wait_at(meet))
    total = z.sum()

    def work(k: int) -> rabbet.Tensor:
        return autograd.grad(total * (k + 1), x, retain_graph=True)[0]

    first, second = together(work, 2)
    assert rabbet.equal(first, rabbet.full([3], 8.0))
    assert rabbet.equal(second, rabbet.full([3], 16.0))


def test_a_node_is_used_by_one_run_at_a_time() -> None:
    """Of two runs that free what it saved one finds it, and the other says that it is freed."""
    for _ in range(ROUNDS):
        x = rabbet.ones(3, requires_grad=True)
        y = (x * x).exp().sum()

        def work(_: int, y: rabbet.Tensor = y, x: rabbet.Tensor = x) -> str:
            try:
                autograd.grad(y, x)
            except RuntimeError as error:
                assert "a second time" in str(error)
                return "freed"
            return "found"

        assert together(work).count("found") == 1


def test_a_hook_runs_backward_through_the_graph_it_is_in() -> None:
    x = rabbet.full([3], 2.0, requires_grad=True)
    y = x * x
    z = (y * 3).sum()
    inner: list[rabbet.Tensor] = []

    def hook(grad: rabbet.Tensor) -> None:
        if not inner:
            inner.append(grad)
            inner[0] = autograd.grad(z, x, retain_graph=True)[0]

    y.register_hook(hook)
    z.backward()
    assert rabbet.equal(inner[0], rabbet.full([3], 12.0))
    assert rabbet.equal(x.grad, rabbet.full([3], 12.0))


def test_a_hook_of_saved_tensors_must_not_run_its_own_node() -> None:
    x = rabbet.full([3], 2.0, requires_grad=True)

    def unpack(t: rabbet.Tensor) -> rabbet.Tensor:
        autograd.grad(y, x, retain_graph=True)
        return t

    with autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y = x.exp().sum()
    with pytest.raises(RuntimeError, match="ExpBackward0 is being computed"):
        y.backward()
    assert x.grad is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_of_a_fork_in_the_middle_of_a_run() -> None:
    """The run of the thread that stayed behind holds nodes in the child for ever."""
    x = rabbet.ones(3, requires_grad=True)
    inside, go_on = Event(), Event()

    def pause(t: rabbet.Tensor) -> rabbet.Tensor:
        if not inside.is_set():
            inside.set()
            go_on.wait(30)
        return t

    with autograd.graph.saved_tensors_hooks(lambda t: t, pause):
        y = x.exp()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(autograd.grad, y.sum(), x, retain_graph=True)
        assert inside.wait(30)
        child = os.fork()
        if not child:
            (grad,) = autograd.grad(y.sum(), x)
            os._exit(0 if rabbet.equal(grad, y) else 1)
        try:
            assert os.waitpid(child, 0)[1] == 0
        finally:
            go_on.set()
        assert rabbet.equal(other.result()[0], y)
