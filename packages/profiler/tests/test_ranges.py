"""Named parts of a program: record_function, modules, optimizers, loaders, backward."""

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.autograd import profiler as autograd_profiler
from rabbet.futures import Future
from rabbet.profiler import profile, record_function
from rabbet.utils.data import DataLoader


def names_inside(event):
    return [child.name for child in event.cpu_children]


def find(prof, name):
    found = [event for event in prof.events() if event.name == name]
    assert found, f"no {name} in {sorted({e.name for e in prof.events()})}"
    return found


def test_ranges_nest():
    with profile() as prof, record_function("outer"), record_function("inner"):
        rabbet.ones(2)
    (outer,), (inner,) = find(prof, "outer"), find(prof, "inner")
    assert names_inside(outer) == ["inner"] and names_inside(inner) == ["aten::ones"]
    assert outer.is_user_annotation and not inner.cpu_children[0].is_user_annotation


def test_a_decorated_function_has_a_range_for_each_call_also_of_itself():
    @record_function("step")
    def step(n):
        return step(n - 1) if n else rabbet.ones(1)

    with profile() as prof:
        step(2)
        step(0)
    assert len(find(prof, "step")) == 4
    assert sum(event.cpu_parent is None for event in find(prof, "step")) == 2


def test_ranges_that_overlap_keep_their_times():
    first, second = record_function("first"), record_function("second")
    with profile() as prof:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        rabbet.ones(2)
        second.__exit__(None, None, None)
    (a,), (b,) = find(prof, "first"), find(prof, "second")
    assert a.time_range.end < b.time_range.end and names_inside(b) == ["aten::ones"]
    assert a.self_cpu_time_total >= 0


def test_a_range_that_is_open_at_the_end_ends_there():
    left = record_function("left open")
    with profile() as prof:
        left.__enter__()
        rabbet.ones(2)
    left.__exit__(None, None, None)
    (event,) = find(prof, "left open")
    assert names_inside(event) == ["aten::ones"] and event.cpu_time_total > 0


def test_a_range_that_began_before_the_recording_is_not_in_it():
    with record_function("early"), profile() as prof:
        rabbet.ones(2)
    assert [event.name for event in prof.events()] == ["aten::ones"]


def test_a_range_that_ends_with_a_future():
    future = Future()
    with profile() as prof:
        with record_function("waiting") as part:
            done = part._call_end_callbacks_on_future(future)
            with pytest.raises(RuntimeError, match="only be called once"):
                part._call_end_callbacks_on_future(future)
        rabbet.ones(2)
        future.set_result(3)
    assert done.wait() == 3 and names_inside(find(prof, "waiting")[0]) == ["aten::ones"]


def test_names_must_be_strings():
    with pytest.raises(TypeError, match="record_function: expected name to be a str, got int"):
        record_function(3)
    assert autograd_profiler.record_function is record_function


def test_names_of_any_length_and_script():
    name = "größe " * 500
    with profile() as prof, record_function(name):
        pass
    assert find(prof, name)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x).relu())


def test_modules():
    net, x = Net(), rabbet.ones(2, 3)
    with profile(with_modules=True) as prof:
        net(x)
        net(x)
    outer = find(prof, "nn.Module: Net_0")
    assert len(outer) == 2 and not outer[0].is_user_annotation
    assert names_inside(outer[0]) == ["nn.Module: Linear_0", "aten::relu", "nn.Module: Linear_1"]
    assert names_inside(outer[0].cpu_children[0]) == ["aten::linear"]
    assert prof.profiler.trace.paths == {
        "nn.Module: Net_0": "Net",
        "nn.Module: Linear_0": "first (Linear)",
        "nn.Module: Linear_1": "second (Linear)",
    }


def test_a_module_that_raises_ends_its_range():
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Fails()

        def forward(self, x):
            with pytest.raises(RuntimeError):
                self.inner(x)
            return x + 1

    with profile(with_modules=True) as prof:
        Outer()(rabbet.ones(2))
    (outer,) = find(prof, "nn.Module: Outer_0")
    assert names_inside(outer) == ["nn.Module: Fails_0", "aten::add"]


def test_modules_have_no_hooks_after_the_recording():
    with profile(with_modules=True) as prof:
        Net()(rabbet.ones(1, 3))
    with profile() as after:
        Net()(rabbet.ones(1, 3))
    assert any(e.name.startswith("nn.Module") for e in prof.events())
    assert not any(e.name.startswith("nn.Module") for e in after.events())


def test_backward_nodes_hold_their_calls_and_know_their_forward_call():
    net, x = nn.Linear(3, 2), rabbet.ones(4, 3, requires_grad=True)
    with profile(with_stack=True) as prof:
        loss = net(x).exp().sum()
        loss.backward()
    (node,) = find(prof, "autograd::engine::evaluate_function: ExpBackward0")
    (derivative,) = find(prof, "ExpBackward0")
    (forward,) = find(prof, "aten::exp")
    assert node.cpu_children[0] is derivative and names_inside(derivative) == [
        "rabbet::exp.vjp.input"
    ]
    assert forward.sequence_nr == node.sequence_nr == derivative.sequence_nr > 0
    assert derivative.stack == forward.stack and node.fwd_thread == forward.thread
    assert derivative.cpu_children[0].stack == forward.stack
    assert len(find(prof, "torch::autograd::AccumulateGrad")) == 3
    order = [e.name for e in prof.events() if e.name.endswith("Backward0") and "::" not in e.name]
    assert order == ["SumBackward0", "ExpBackward0", "AddmmBackward0"]


def test_backward_of_a_function_in_python():
    class Twice(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            with record_function("mine"):
                return g * 2

    x = rabbet.ones(2, requires_grad=True)
    with profile() as prof:
        Twice.apply(x).sum().backward()
    (derivative,) = find(prof, "TwiceBackward")
    assert names_inside(derivative) == ["mine"] and derivative.scope == 1


def test_a_backward_that_fails_ends_its_ranges():
    class Fails(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("no")

    x = rabbet.ones(2, requires_grad=True)
    y = Fails.apply(x).sum()
    with profile() as prof:
        with pytest.raises(RuntimeError, match="no"):
            y.backward()
        rabbet.ones(1)
    assert find(prof, "aten::ones")[-1].cpu_parent is None and find(prof, "FailsBackward")


def test_steps_of_optimizers():
    net = nn.Linear(3, 2)
    adam = optim.Adam(net.parameters())
    net(rabbet.ones(1, 3)).sum().backward()
    with profile() as prof:
        adam.step()
        adam.zero_grad()
    (step,) = find(prof, "Optimizer.step#Adam.step")
    assert "rabbet::fused_adam" in names_inside(step) and step.is_user_annotation
    assert find(prof, "Optimizer.zero_grad#Adam.zero_grad")


def test_a_step_that_fails_ends_with_what_is_around_it():
    class Fails(optim.Optimizer):
        def step(self, closure=None):
            raise RuntimeError("no")

    optimizer = Fails([rabbet.ones(1, requires_grad=True)], {})
    sgd = optim.SGD([rabbet.ones(1, requires_grad=True)], lr=0.1)
    with profile() as prof:
        with record_function("around"), pytest.raises(RuntimeError):
            optimizer.step()
        sgd.step()
    assert find(prof, "Optimizer.step#Fails.step")[0].cpu_parent.name == "around"
    assert find(prof, "around")[0].cpu_time_total > 0 and find(prof, "Optimizer.step#SGD.step")


def test_waiting_for_a_loader():
    loader = DataLoader(list(range(4)), batch_size=2)
    with profile() as prof:
        assert len(list(loader)) == 2
    waits = find(prof, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    assert len(waits) == 3  # the last one finds the end
