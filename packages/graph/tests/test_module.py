"""Graphs as modules."""

import copy

import pytest
import rabbet
from rabbet import nn
from rabbet.graph import GraphError, GraphModule, capture, parse


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2))


def test_state_and_training_are_those_of_the_module():
    original, x = model(), rabbet.randn(5, 4)
    module = GraphModule(capture(original, x))
    assert list(module.state_dict()) == list(original.state_dict())
    assert [id(p) for p in module.parameters()] == [id(p) for p in original.parameters()]
    optimizer = rabbet.optim.SGD(module.parameters(), lr=0.1)
    before = original[0].weight.detach().clone()
    module(x).sum().backward()
    optimizer.step()
    assert not rabbet.equal(before, original[0].weight) and rabbet.equal(module(x), original(x))


def test_loading_and_copying():
    original, x = model(), rabbet.randn(5, 4)
    module = GraphModule(capture(original, x))
    twin = copy.deepcopy(module)
    other = model()
    module.load_state_dict(other.state_dict())
    assert rabbet.equal(module(x), other(x)) and not rabbet.equal(twin(x), module(x))


def test_what_the_capture_fixed_stays():
    module = GraphModule(capture(model().eval(), rabbet.randn(5, 4)))
    assert module.eval() is module and not module.training
    with pytest.raises(NotImplementedError, match="captured in evaluation mode"):
        module.train()
    with pytest.raises(
        NotImplementedError,
        match=r"'0\.weight' is float32 on cpu in the graph, which cannot become float64",
    ):
        module.double()
    assert module.float().to("cpu") is module


def test_buffers_outside_of_state_dicts():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", rabbet.arange(3.0), persistent=False)

        def forward(self, x):
            return x * self.table + constant

    constant = rabbet.ones(3)
    module = GraphModule(capture(Rotary(), rabbet.ones(3)))
    assert list(module.state_dict()) == [] and module(rabbet.ones(3)).tolist() == [1, 2, 3]
    assert len(list(module.buffers())) == 2


def test_graphs_must_be_bound():
    with pytest.raises(GraphError, match=r"the parameter '0\.weight' of the graph is not bound"):
        GraphModule(parse(str(capture(model(), rabbet.ones(2, 4)))))
    with pytest.raises(TypeError, match="expected a Graph, got int"):
        GraphModule(3)
