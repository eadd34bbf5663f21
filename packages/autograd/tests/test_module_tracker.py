"""utils.module_tracker: which modules run, in forward and in backward."""

import gc
import logging
import threading
import weakref

import pytest
import rabbet
from rabbet import nn
from rabbet.utils.checkpoint import checkpoint
from rabbet.utils.module_tracker import ModuleTracker


class Notes(nn.Module):
    """Notes where the tracker is, in forward and when the gradient of its input arrives."""

    def __init__(self, tracker, forward, backward):
        super().__init__()
        self.tracker, self.seen = tracker, (forward, backward)

    def forward(self, x):
        x = x["a"] * 2
        self.seen[0].append((self.tracker.parents, self.tracker.is_bw))
        x.register_hook(lambda g: self.seen[1].append((self.tracker.parents, self.tracker.is_bw)))
        return {"a": x.mm(x)}


class Net(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.a = Notes(*args)
        self.b = nn.ModuleDict({"nest": Notes(*args)})
        self.c = nn.ModuleList([Notes(*args)])

    def forward(self, x):
        return self.b["nest"](self.a(self.c[0](x)))


def test_names_of_the_hierarchy_in_forward_and_backward():
    tracker, forward, backward = ModuleTracker(), [], []
    net = Net(tracker, forward, backward)
    with tracker:
        for _ in range(2):
            x = rabbet.rand(4, 4, requires_grad=True) * 1
            net({"a": x})["a"].sum().backward()
            assert not tracker.is_bw and tracker.parents == {"Global"}
    order = ["Net.c.0", "Net.a", "Net.b.nest"]
    assert forward == [({"Global", "Net", name}, False) for name in order] * 2
    assert backward == [({"Global", "Net", name}, True) for name in reversed(order)] * 2


def test_inputs_without_gradients_are_left_at_the_end_of_backward():
    seen = []
    with ModuleTracker() as tracker:
        linear = nn.Linear(2, 2)
        linear.weight.register_hook(lambda g: seen.append((tracker.parents, tracker.is_bw)))
        linear(rabbet.rand(1, 2)).sum().backward()
        assert tracker.parents == {"Global"} and not tracker.is_bw
        other = rabbet.ones(1, requires_grad=True)
        other.register_hook(lambda g: seen.append((tracker.parents, tracker.is_bw)))
        other.backward()
    assert seen == [({"Global", "Linear"}, True), ({"Global"}, True)]


def test_modules_run_from_the_first_output_to_the_last_input():
    seen = {}

    def note(tensor, name):
        tensor.register_hook(lambda g: seen.update({name: tracker.parents}))

    class Both(nn.Module):
        def forward(self, x, y):
            sine = x.sin()
            note(sine, "inner")
            return {"out": [sine + y.cos() * 2, x * 3]}  # the second one is not used

    with ModuleTracker() as tracker:
        x, y = rabbet.ones(2, requires_grad=True) * 1, rabbet.ones(2, requires_grad=True) * 1
        note(x, "x before"), note(y, "y before")
        out = Both()(x, y)["out"][0].sin()
        note(x, "x after"), note(y, "y after"), note(out, "later")
        out.sum().backward()
    inside, outside = {"Global", "Both"}, {"Global"}
    assert (seen["later"], seen["inner"]) == (outside, inside)
    assert seen["x before"] == seen["y before"] == inside
    assert sorted([seen["x after"], seen["y after"]], key=len) == [outside, inside]  # the last one


def test_a_graph_that_is_kept_is_tracked_again():
    seen = []
    with ModuleTracker() as tracker:
        linear = nn.Linear(2, 2)
        linear.weight.register_hook(lambda g: seen.append(tracker.parents))
        out = linear(rabbet.rand(1, 2)).sum()
        out.backward(retain_graph=True)
        out.backward()
    assert seen == [{"Global", "Linear"}] * 2


class Twice(nn.Module):
    """Calls a module, and itself once more."""

    def __init__(self, seen, tracker):
        super().__init__()
        self.inner, self.depth = nn.Linear(2, 2), 0
        self.seen, self.tracker = seen, tracker

    def forward(self, x):
        self.depth += 1
        x = self(x) if self.depth < 3 else x.sin()
        self.seen.append(self.tracker.parents)
        x.register_hook(lambda g: self.seen.append(self.tracker.parents))
        return self.inner(x)


def test_a_module_that_calls_itself_is_inside_until_its_last_call_ends(caplog):
    seen = []
    with caplog.at_level(logging.INFO), ModuleTracker() as tracker:
        Twice(seen, tracker)(rabbet.ones(1, 2, requires_grad=True) * 1).sum().backward()
        assert tracker.parents == {"Global"}
    assert seen[:3] == [{"Global", "Twice"}] * 3 and len(seen) == 6
    assert all("Twice" in parents for parents in seen[3:])
    assert "Twice was entered again" in caplog.text


def test_modules_that_raise_are_left():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    with ModuleTracker() as tracker:
        with pytest.raises(ValueError, match="no"):
            nn.Sequential(nn.Linear(2, 2), Fails())(rabbet.zeros(1, 2))
        assert tracker.parents == {"Global"}


def test_modules_that_run_again_in_backward_are_inside():
    seen = []

    class Sees(nn.Module):
        def forward(self, x):
            seen.append((tracker.parents, tracker.is_bw))
            return x.sin()

    sees = Sees()
    with ModuleTracker() as tracker:
        x = rabbet.ones(2, requires_grad=True)
        checkpoint(sees, x, use_reentrant=False).sum().backward()
    assert seen == [({"Global", "Sees"}, False), ({"Global", "Sees"}, True)]


def test_names_of_known_modules():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    with ModuleTracker() as tracker:
        assert tracker.get_known_fqn(net) is None
        net[0](rabbet.zeros(1, 2))
        assert tracker.get_known_fqn(net[0]) == "Linear"  # called alone
        net(rabbet.zeros(1, 2))
        assert tracker.get_known_fqn(net[0]) == "Sequential.0"
        assert tracker.get_known_fqn(net[1][0]) == "Sequential.1.0"
        assert tracker.get_known_fqn(nn.ReLU()) is None
    assert tracker.get_known_fqn(net) is None


def test_nothing_is_left_behind():
    x = rabbet.ones(1, 2, requires_grad=True)
    tracker = ModuleTracker()
    with tracker:
        net = nn.Linear(2, 2)
        out = net(x)
    assert tracker.parents == {"Global"}
    kept = weakref.ref(net)
    out.sum().backward()
    assert tracker.parents == {"Global"}
    del net, out
    gc.collect()
    assert kept() is None
    with tracker:  # once more
        nn.Linear(2, 2)(x)
        with pytest.raises(RuntimeError, match="the tracker is active already"), tracker:
            pass
    kept = weakref.ref(tracker)
    del tracker  # the hooks on x are gone, too
    gc.collect()
    assert kept() is None and x.requires_grad


def test_backward_in_another_thread_is_seen_there():
    seen = []
    with ModuleTracker() as tracker:
        linear = nn.Linear(2, 2)
        linear.weight.register_hook(lambda g: seen.append((tracker.parents, tracker.is_bw)))
        out = linear(rabbet.rand(1, 2)).sum()
        thread = threading.Thread(target=out.backward)
        thread.start()
        thread.join()
        assert not tracker.is_bw
    assert seen == [({"Global", "Linear"}, True)]
