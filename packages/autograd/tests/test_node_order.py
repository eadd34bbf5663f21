"""The order in which backward runs independent nodes: the newest first, as in PyTorch."""

import pytest
import rabbet


class Named(rabbet.autograd.Function):
    order: list = []

    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        Named.order.append(ctx.name)
        return grad, None


@pytest.mark.parametrize("swapped", [False, True])
def test_operands_run_in_the_reverse_order_of_their_creation(swapped):
    Named.order.clear()
    x = rabbet.ones(2, requires_grad=True)
    a = Named.apply(x, "a")
    b = Named.apply(x, "b")
    (b + a if swapped else a + b).sum().backward()
    assert Named.order == ["b", "a"]


def test_a_short_branch_made_last_runs_before_a_long_one():
    Named.order.clear()
    x = rabbet.ones(2, requires_grad=True)
    long = Named.apply(x, "long")
    for _ in range(5):
        long = long.sin()
    short = Named.apply(x, "short")
    (long + short).sum().backward()
    assert Named.order == ["short", "long"]


def test_steps_of_a_recurrence_run_from_the_last_to_the_first():
    Named.order.clear()
    weight = rabbet.ones(2, requires_grad=True)
    h = rabbet.zeros(2)
    for t in range(3):
        a = Named.apply(weight * 1, f"input {t}")
        b = Named.apply(h * weight, f"hidden {t}")
        h = (a + b).tanh()
    h.sum().backward()
    assert Named.order == [f"{part} {t}" for t in (2, 1, 0) for part in ("hidden", "input")]


def test_hooks_run_in_that_order_too():
    order = []
    x = rabbet.ones(2, requires_grad=True)
    first, second = x.exp(), x * 2
    first.register_hook(lambda grad: order.append("first"))
    second.register_hook(lambda grad: order.append("second"))
    (second * first).sum().backward()
    assert order == ["second", "first"]
