"""autograd.graph: what nodes show, modes around calls, writing what was saved."""

import weakref

import pytest
import rabbet
from rabbet.autograd import _C, Function, backward, grad, graph
from rabbet.autograd.graph import (
    allow_mutation_on_saved_tensors,
    call_mode,
    disable_saved_tensors_hooks,
    increment_version,
    save_on_cpu,
    saved_tensors_hooks,
)

F64 = rabbet.float64


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


# ---- nodes


def test_nodes_show_what_they_keep():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    node = (x * y).grad_fn
    assert node._saved_self is x and node._saved_other is y
    assert {"_saved_self", "_saved_other", "_raw_saved_other", "name"} <= set(dir(node))
    result = x.exp()
    node = result.grad_fn
    assert node._saved_result.tolist() == result.tolist()
    assert node._saved_result.grad_fn == node
    assert "_saved_self" not in dir(node)
    reduced = x.sum(0, keepdim=True)
    assert reduced.grad_fn.name() == "SumBackward1"
    softmax = rabbet.softmax(x, 0).grad_fn
    assert softmax._saved_dim in (0, -1)


def test_what_was_freed_or_written_or_never_kept_is_refused():
    x = leaf(1.0, 2.0)
    y = x.exp()
    node = y.grad_fn
    with pytest.raises(AttributeError, match="_saved_other"):
        _ = node._saved_other
    with pytest.raises(IndexError, match="ExpBackward0 keeps no value 0"):
        node._load(0)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="directly access saved tensors after they have already"):
        _ = node._saved_result
    z = x * 1
    w = z * z
    z.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = w.grad_fn._saved_self


def test_packed_values_are_unpacked_to_be_shown():
    x = leaf(1.0, 2.0)
    with saved_tensors_hooks(lambda t: t.tolist(), lambda v: rabbet.tensor(v, dtype=F64)):
        y = x.exp()
    assert y.grad_fn._saved_result.tolist() == y.tolist()


def test_hooks_of_one_saved_tensor():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    z = x * y
    raw = z.grad_fn._raw_saved_other
    raw.register_hooks(lambda t: t.tolist(), lambda v: rabbet.tensor(v, dtype=F64) * 10)
    assert raw.unpack().tolist() == [30, 40]
    with pytest.raises(RuntimeError, match="hooks have already been set"):
        raw.register_hooks(lambda t: t, lambda t: t)
    z.sum().backward()
    assert x.grad.tolist() == [30, 40] and y.grad.tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="after it has been freed"):
        z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    w = x * y
    with pytest.raises(ZeroDivisionError):
        w.grad_fn._raw_saved_self.register_hooks(lambda t: 1 / 0, lambda t: t)
    w.sum().backward()


def test_metadata_belongs_to_the_node():
    y = leaf(1.0) * 2
    y.grad_fn.metadata["note"] = 3
    assert y.grad_fn.metadata == {"note": 3}
    assert y.grad_fn.next_functions[0][0].metadata == {}


def test_versions_are_incremented():
    x, y = rabbet.ones(2), rabbet.ones(3)
    before = x._version, y._version
    increment_version(x)
    increment_version([x, y])
    assert (x._version, y._version) == (before[0] + 2, before[1] + 1)
    w = leaf(1.0) * 1
    z = w * w
    increment_version(w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    with pytest.raises(TypeError, match="increment_version: expected Tensors, got int"):
        increment_version([3])
    with rabbet.inference_mode():
        inside = rabbet.ones(1)
    with pytest.raises(RuntimeError, match="inference"):
        increment_version(inside)


def test_edges():
    x = leaf(1.0)
    edge = graph.get_gradient_edge(x)
    assert edge.node.variable is x and edge.output_nr == 0
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(x.detach())
    with pytest.raises(TypeError, match="expected a Tensor, got int"):
        graph.get_gradient_edge(3)


def test_runs_start_and_end_at_edges():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = (y * y).sum()
    at_x, at_y, at_z = map(graph.get_gradient_edge, (x, y, z))
    for roots in (z, at_z, [at_z]):
        found = grad(roots, (at_y, at_x, x), retain_graph=True)
        assert [g.tolist() for g in found] == [[6.0, 12.0], [18.0, 36.0], [18.0, 36.0]]
    given = rabbet.tensor([1.0, 10.0], dtype=x.dtype)
    assert grad(at_y, x, given, retain_graph=True)[0].tolist() == [3.0, 30.0]
    for call in (
        lambda: backward(at_z, inputs=at_x, retain_graph=True),
        lambda: z.backward(retain_graph=True, inputs=[at_x]),
    ):
        x.grad = None
        call()
        assert x.grad.tolist() == [18.0, 36.0]


def test_an_edge_keeps_no_values():
    x = rabbet.ones(1000, requires_grad=True)
    y = x + 1
    edge, values = graph.get_gradient_edge(y), weakref.ref(y)
    del y
    assert values() is None
    (g,) = grad(edge, x, rabbet.ones(1000))
    assert rabbet.equal(g, rabbet.ones(1000))


def test_misuse_of_edges():
    x = leaf(1.0, 2.0)
    y = x * 3
    edge = graph.get_gradient_edge(y)
    other = graph.get_gradient_edge(leaf(1.0))
    with pytest.raises(RuntimeError, match="created only for scalar outputs"):
        grad(edge, x)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        grad(edge, x, rabbet.ones(3, dtype=x.dtype))
    with pytest.raises(IndexError, match="MulBackward0 has no output 5"):
        grad(graph.GradientEdge(y.grad_fn, 5), x)
    with pytest.raises(RuntimeError, match="given input is a GradientEdge"):
        grad(y.sum(), other, materialize_grads=True)
    with pytest.raises(TypeError, match="a Tensor or a GradientEdge, got float"):
        grad([1.0], x)


def test_a_run_knows_which_nodes_it_reaches():
    x, y = leaf(1.0), leaf(2.0)
    a, b = x * 2, y * 3
    found = []
    nodes = [t.grad_fn for t in (a, b)]
    a.register_hook(lambda g: found.append((_C.run_reaches(nodes), _C.current_run() > 0)))
    (a + 1).backward(retain_graph=True)
    (a * b).backward(retain_graph=True)
    grad(a * b, a, retain_graph=True)
    assert found == [([True, False], True), ([True, True], True), ([True, False], True)]
    assert _C.current_run() == 0 and _C.run_reaches(nodes) == [False, False]


# ---- saved-tensors hooks


def test_hooks_are_refused_and_seen_by_functions():
    with disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"), save_on_cpu():
            pass
        with disable_saved_tensors_hooks("nor here"), pytest.raises(RuntimeError, match="nor"):
            saved_tensors_hooks(print, print).__enter__()
        with pytest.raises(RuntimeError, match="not here"):
            saved_tensors_hooks(print, print).__enter__()
    hooks = (lambda t: t, lambda t: t)
    with saved_tensors_hooks(*hooks):
        assert graph.active_hooks() == hooks
        with pytest.raises(RuntimeError, match="active"), disable_saved_tensors_hooks("active"):
            pass
    assert graph.active_hooks() is None


def test_a_function_that_an_unpack_hook_calls_is_not_packed_by_the_hooks_around_backward():
    packed = []

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    def unpack(t):
        with rabbet.enable_grad():
            Square.apply(leaf(1.0))
        return t

    with saved_tensors_hooks(lambda t: packed.append(1) or t, unpack):
        y = leaf(3.0).exp()
        y.backward()
    assert packed == [1]


def test_saving_in_pinned_memory_without_a_device_that_pins():
    x = leaf(1.0, 2.0)
    with save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 4]


# ---- modes


def test_a_mode_sees_every_call_of_forward_and_backward_as_plain_tensors():
    x = leaf(1.0, 2.0)
    seen = []

    def note(op, args, targets, run):
        seen.append((op, [a.tolist() for a in args if isinstance(a, rabbet.Tensor)]))
        assert not rabbet.is_grad_enabled()

    with call_mode(note):
        y = x * 3
        y.add_(1)
        y.sum().backward()
    (x * 2).sum()
    names = [op for op, _ in seen]
    assert names[:3] == ["mul", "add", "sum"] and seen[0][1] == [[1, 2]]
    assert "mul" in names[3:]


def test_modes_run_calls_replace_results_and_nest():
    outer, inner = [], []

    def count(into):
        def mode(op, args, targets, run):
            (result,) = run()
            into.append((op, result.tolist()))
            with pytest.raises(ValueError, match="once"):
                run()

        return mode

    with call_mode(count(outer)):
        rabbet.ones(1)
        with call_mode(count(inner)):
            a = rabbet.full((2,), 3.0).neg()
        rabbet.zeros(1)
    assert a.tolist() == [-3, -3]
    assert ("neg", [-3, -3]) in inner and ("neg", [-3, -3]) in outer
    assert len(outer) > len(inner)

    x = leaf(1.0, 2.0)
    with call_mode(lambda op, args, targets, run: (args[0].detach() * 7,) if op == "exp" else None):
        y = x.exp()
    assert y.tolist() == [7, 14]
    y.sum().backward()
    assert x.grad.tolist() == [7, 14]  # the derivative reads the result


def test_targets_are_what_a_call_writes():
    seen = []
    x, out = rabbet.ones(2), rabbet.empty(2)
    with call_mode(lambda op, args, targets, run: seen.append(targets)):
        x.mul_(3)
        rabbet.add(x, 1, out=out)
        x.neg()
    assert seen[0][0] is x and seen[1][0] is out and seen[2] is None


def test_a_run_that_is_over_cannot_be_run():
    kept = []
    with call_mode(lambda op, args, targets, run: kept.append(run)):
        rabbet.ones(2).neg()
    with pytest.raises(ValueError, match="while the mode is asked"):
        kept[0]()


@pytest.mark.parametrize(
    "mode, error, message",
    [
        (lambda op, args, targets, run: 1 / 0, ZeroDivisionError, "division"),
        (lambda op, args, targets, run: (), ValueError, "returned 0 results, expected 1"),
        (lambda op, args, targets, run: (3,), ValueError, "a mode's results"),
        (lambda op, args, targets, run: (run(), 1 / 0), ZeroDivisionError, "division"),
    ],
)
def test_modes_that_fail(mode, error, message):
    x = rabbet.ones(2)
    before = rabbet._C.live_counts()["tensors"]
    with call_mode(mode), pytest.raises((error, TypeError), match=message):
        x.neg()
    assert x.neg().tolist() == [-1, -1]
    assert rabbet._C.live_counts()["tensors"] == before
    with (
        call_mode(lambda op, args, targets, run: (args[0],)),
        pytest.raises(ValueError, match="that writes its arguments"),
    ):
        x.neg_()
    with pytest.raises(TypeError, match="call_mode: function must be callable, got int"):
        call_mode(3)


# ---- writing what was saved


def test_saved_tensors_may_be_written_inside():
    with allow_mutation_on_saved_tensors() as context:
        a = leaf(2.0, 3.0)
        b = a.clone()
        out = (b**2).sum()
        c = b.exp()
        total = out + c.sum()
        b.sin_()
        c.zero_()
        b[0] = 5.0
        total.backward()
        expected = 2 * a.detach() + a.detach().exp()
        assert a.grad.tolist() == pytest.approx(expected.tolist())
        z = (b * b).sum()
        context.clear()
        with pytest.raises(KeyError):
            z.backward()


def test_views_of_what_was_saved_may_be_written():
    with allow_mutation_on_saved_tensors():
        x = leaf(1.0, 2.0, 3.0)
        y = x * 1
        z = (y * y).sum()
        y[1:].mul_(10)
        rabbet.neg(y.detach(), out=y.detach())
        z.backward()
        assert x.grad.tolist() == [2, 4, 6]


def test_only_what_is_written_is_copied():
    with allow_mutation_on_saved_tensors():
        x = leaf(1.0)
        y = x * 1
        z = y * y
        assert z.grad_fn._saved_self.data_ptr() == y.data_ptr()
        old = y.data_ptr()
        y.add_(1)
        assert y.data_ptr() == old != z.grad_fn._saved_self.data_ptr()
        z.backward()
        assert x.grad.item() == 2


def test_backward_outside_and_nesting_are_refused():
    with allow_mutation_on_saved_tensors():
        y = leaf(1.0) ** 2
    with pytest.raises(AssertionError, match="Trying to backward outside of the 'allow_mutation"):
        y.backward()
    context = allow_mutation_on_saved_tensors()
    with context, pytest.raises(RuntimeError, match="cannot be nested"):
        context.__enter__()


def test_data_has_a_version_of_its_own():
    x = rabbet.ones(3, requires_grad=True)
    w = rabbet.full((3,), 2.0, requires_grad=True)
    y = x * 1.0
    z = y * w
    y.data[0] = 5.0  # no in-place write to y
    z.sum().backward()
    assert w.grad.tolist() == [5.0, 1.0, 1.0] and y._version == 0
    first, second = y.data, y.data.data
    first[1:].mul_(3)
    assert (first._version, second._version, y._version) == (1, 0, 0)
    assert y.tolist() == [5.0, 3.0, 3.0] and first.data_ptr() == y.data_ptr()
    assert first._storage_id() == second._storage_id() == y._storage_id()
    assert first.is_leaf and not first.requires_grad
    del x, y, z, first
    assert second.tolist() == [5.0, 3.0, 3.0]  # keeps the memory


def test_writes_through_data_count_for_what_it_is_saved_as():
    w = rabbet.ones(3, requires_grad=True)
    part = rabbet.ones(3).data
    loss = (w * part).sum()
    part.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_data_shares_memory_where_overlaps_are_refused():
    x = rabbet.arange(6.0)
    with pytest.raises(RuntimeError, match="share some elements"):
        x.data[1:].copy_(x[:-1])
    p = rabbet.nn.Parameter(rabbet.ones(2))
    p.data = p.data
    p.data.zero_()
    assert p.tolist() == [0.0, 0.0] and p._version == 0


class Named(rabbet.autograd.Function):
    """A function of the user."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def written(x):
    base = x * 1
    base[0].mul_(2)
    return base


@pytest.mark.parametrize(
    "make,name",
    [
        (lambda x: x * 2, "MulBackward0"),
        (lambda x: x.log1p(), "Log1PBackward0"),
        (lambda x: x.sum(), "SumBackward0"),
        (lambda x: x.sum(1), "SumBackward1"),
        (lambda x: x**2, "PowBackward0"),
        (lambda x: x**x, "PowBackward1"),
        (lambda x: x @ x, "MmBackward0"),
        (lambda x: x[0] @ x[1], "DotBackward0"),
        (lambda x: x.clamp(0, 1), "ClampBackward1"),
        (lambda x: x.float(), "ToCopyBackward0"),
        (lambda x: Named.apply(x), "NamedBackward"),
        (written, "CopySlices"),
    ],
)
def test_a_node_has_pytorchs_name_and_a_class_of_that_name(make, name):
    x = rabbet.ones(2, 2, dtype=rabbet.float64, requires_grad=True)
    node = make(x).grad_fn
    kind = type(node)
    assert kind.__name__ == name and issubclass(kind, rabbet.autograd.graph.Node)
    assert node.name() == (f"torch::autograd::{name}" if name == "CopySlices" else name)
    own = "rabbet.autograd.function." if name == "NamedBackward" else ""
    assert repr(node).startswith(f"<{own}{name} object at 0x")
    assert repr(make(x)).endswith(f"grad_fn=<{name}>)")
    assert type(make(x).grad_fn) is kind and node.next_functions
    with pytest.raises(TypeError):
        kind()


def test_the_node_of_a_leaf_accumulates():
    x = rabbet.ones(2, requires_grad=True)
    node = (x * 2).grad_fn.next_functions[0][0]
    assert type(node).__name__ == "AccumulateGrad" and node.variable is x
    assert node.name() == "torch::autograd::AccumulateGrad"
