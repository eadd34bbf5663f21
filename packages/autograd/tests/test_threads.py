"""Several threads record and run backward over what they share: right sums, and nothing that
ThreadSanitizer objects to (`make test-sanitize`)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
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
