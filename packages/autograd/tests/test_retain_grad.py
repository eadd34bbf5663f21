"""retain_grad: what a tensor retains moves with its history when it, its base or a view of it is written in place."""

import gc

import pytest
import rabbet
from rabbet.autograd import Function, grad

F64 = rabbet.float64


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


def listed(*tensors):
    return [None if t is None else t.tolist() for t in tensors]


def multiplied(a):
    a.mul_(2)


def overwritten_in_part(a):
    a[0] = 7.0


def zeroed(a):
    a.zero_()


def copied_over(a):
    a.copy_(leaf(4.0, 5.0, 6.0))


def written_through_a_view(a):
    a[:2].exp_()


def written_through_a_view_of_a_view(a):
    a.view(3)[1:].mul_(3)


def written_by_a_function(a):
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert Doubled.apply(a) is a


def written_unrecorded(a):
    with rabbet.no_grad():
        a.mul_(2)


def written_twice(a):
    a.mul_(2)
    a.retain_grad()
    a.add_(1)


WRITES = [
    multiplied,
    overwritten_in_part,
    zeroed,
    copied_over,
    written_through_a_view,
    written_through_a_view_of_a_view,
    written_by_a_function,
    written_unrecorded,
    written_twice,
]


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_retained_is_the_gradient_of_the_tensor_as_it_is_after_a_write(write):
    a = leaf(1.0, 2.0, 3.0) * 2
    a.retain_grad()
    write(a)
    assert a.retains_grad
    (a * rabbet.tensor([3.0, 4.0, 5.0], dtype=F64)).sum().backward()
    assert a.grad.tolist() == [3, 4, 5]


def test_several_writes_and_requests_retain_one_gradient():
    a = leaf(1.0, 2.0) * 2
    for factor in (2, 3, 4):
        a.retain_grad()
        a.retain_grad()
        a.mul_(factor)
    (a * 5).sum().backward()
    assert a.grad.tolist() == [5, 5]


def test_views_of_one_base_retain_after_a_write_through_one_of_them():
    base = leaf(1.0).clone()
    first, second = base[:], base[:]
    first.retain_grad()
    second.retain_grad()
    first.mul_(2)
    (first + base + second).sum().backward()
    assert listed(first.grad, second.grad) == [[1], [1]]


def test_a_view_and_its_base_both_retain():
    base = leaf(1.0, 2.0, 3.0).clone()
    base.retain_grad()
    view = base[:2]
    view.retain_grad()
    view.mul_(2)
    (base.sum() + view.sum()).backward()
    assert listed(base.grad, view.grad) == [[2, 2, 1], [1, 1]]


def test_a_view_whose_base_is_written_retains_only_if_it_is_used_after_the_write():
    base = leaf(1.0, 2.0, 3.0).clone()
    view = base[:2]
    view.retain_grad()
    base.mul_(2)
    (base * 3).sum().backward(retain_graph=True)
    assert view.grad is None and view.retains_grad
    (view * 3).sum().backward()
    assert view.grad.tolist() == [3, 3]


def test_a_written_view_of_a_retaining_view_leaves_it_out_of_the_graph_of_the_base():
    a = leaf(1.0, 2.0, 3.0) * 2
    a.retain_grad()
    v = a.view(3)
    w = v[0:1]
    w.retain_grad()
    v.retain_grad()
    w.mul_(4)
    a.sum().backward(retain_graph=True)
    assert listed(a.grad, v.grad, w.grad) == [[1, 1, 1], None, None]
    (v.sum() + w.sum()).backward()
    assert listed(a.grad, v.grad, w.grad) == [[3, 2, 2], [1, 1, 1], [1]]


def test_results_of_one_call_retain_separately():
    variance, mean = rabbet.var_mean(leaf(1.0, 2.0, 4.0) * 1)
    variance.retain_grad()
    mean.retain_grad()
    variance.mul_(2)
    (variance * 5 + mean * 7).backward()
    assert listed(variance.grad, mean.grad) == [5, 7]


def test_a_tensor_that_a_write_makes_recorded_retains_from_then_on():
    a = rabbet.ones(3, dtype=F64)
    a.mul_(leaf(1.0, 2.0, 3.0))
    a.retain_grad()
    a.add_(1)
    (a * 3).sum().backward()
    assert a.grad.tolist() == [3, 3, 3]


def test_a_gradient_that_is_there_stays_and_later_ones_are_added():
    a = leaf(1.0, 2.0) * 2
    a.retain_grad()
    a.sum().backward(retain_graph=True)
    before = a.grad
    a.mul_(2)
    assert a.grad is before
    (a * 3).sum().backward()
    assert a.grad.tolist() == [4, 4]
    a.grad = None
    assert a.grad is None and a.retains_grad


def test_the_tensor_may_go_and_its_graph_still_runs():
    x = leaf(1.0, 2.0)
    a = x * 2
    a.retain_grad()
    a.mul_(2)
    b = a * 3
    del a
    gc.collect()
    b.sum().backward()
    assert x.grad.tolist() == [12, 12]


def test_hooks_stay_with_the_value_that_they_were_registered_on_and_retention_follows():
    x = leaf(1.0, 2.0)
    a = x * 2
    seen = []
    a.register_hook(lambda g: seen.append(("old", g.tolist())))
    a.retain_grad()
    a.mul_(2)
    a.register_hook(lambda g: seen.append(("new", g.tolist())))
    (a * 3).sum().backward()
    assert seen == [("new", [3, 3]), ("old", [6, 6])] and a.grad.tolist() == [3, 3]


def test_hooks_of_a_view_are_not_called_for_its_base_after_a_write_through_the_view():
    a = leaf(1.0, 2.0, 3.0) * 2
    view = a[:2]
    seen = []
    view.register_hook(lambda g: seen.append("view"))
    a.register_hook(lambda g: seen.append(g.tolist()))
    view.mul_(2)
    a.sum().backward()
    assert seen == [[2, 2, 1]]


def test_a_handle_removes_its_hook_after_the_tensor_was_written():
    x = leaf(1.0)
    a = x * 2
    seen = []
    first = a.register_hook(lambda g: seen.append("first"))
    a.register_hook(lambda g: seen.append("second"))
    a.mul_(2)
    first.remove()
    first.remove()
    a.sum().backward()
    assert seen == ["second"]
    handle = (b := x * 2).register_hook(print)
    b.mul_(2)
    del b, a
    gc.collect()
    handle.remove()  # the node that had it is gone


def test_retention_comes_after_the_hooks_of_the_tensor_and_before_those_of_its_node():
    x = leaf(1.0, 2.0)
    a = x * 2
    a.retain_grad()
    a.register_hook(lambda g: g * 10)
    a.grad_fn.register_prehook(lambda gs: (gs[0] * 10,))
    (a * 3).sum().backward()
    assert listed(a.grad, x.grad) == [[30, 30], [600, 600]]


def test_grad_retains_too():
    x = leaf(1.0, 2.0)
    a = x * 2
    a.retain_grad()
    a.mul_(2)
    grad(a.sum(), x)
    assert a.grad.tolist() == [1, 1]


def test_a_leaf_retains_nothing_of_its_own():
    x = leaf(1.0, 2.0)
    x.retain_grad()
    assert not x.retains_grad
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_copies_and_views_do_not_retain():
    a = leaf(1.0, 2.0) * 2
    a.retain_grad()
    assert not any(t.retains_grad for t in (a.detach(), a.clone(), a.view(2), a * 1))


def test_a_detached_tensor_keeps_its_gradient():
    a = leaf(1.0, 2.0) * 2
    a.retain_grad()
    a.sum().backward()
    a.detach_()
    assert a.retains_grad and a.is_leaf and not a.requires_grad
    assert a.grad.tolist() == [1, 1]


def test_new_data_changes_nothing_in_what_is_retained():
    a = leaf(1.0, 2.0) * 2
    a.retain_grad()
    b = a * 3
    a.data = rabbet.zeros(2, dtype=F64)
    assert a.retains_grad
    b.sum().backward()
    assert a.grad.tolist() == [3, 3]


@pytest.mark.parametrize(
    "make", [lambda: rabbet.ones(3), lambda: rabbet.arange(3), lambda: leaf(1.0).detach()]
)
def test_a_tensor_that_requires_no_grad_cannot_retain_one(make):
    with pytest.raises(
        RuntimeError, match="can't retain_grad on Tensor that has requires_grad=False"
    ):
        make().retain_grad()
