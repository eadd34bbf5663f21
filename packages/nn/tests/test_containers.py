"""Sequences and dicts of modules and parameters."""

from collections import OrderedDict

import pytest
import rabbet
from rabbet import nn


def kinds(modules):
    return [type(m).__name__ for m in modules]


def test_sequential():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and net[-1] is net[2]
    assert kinds(net[:2]) == ["Linear", "ReLU"] and isinstance(net[:2], nn.Sequential)
    net[1] = nn.Tanh()
    assert isinstance(net[1], nn.Tanh)
    assert net.append(nn.ReLU()) is net
    net.insert(0, nn.Identity())
    net.extend([nn.Tanh()])
    assert kinds(net) == ["Identity", "Linear", "Tanh", "Linear", "ReLU", "Tanh"]
    del net[0]
    assert isinstance(net.pop(-1), nn.Tanh)
    del net[1:2]
    assert kinds(net) == ["Linear", "Linear", "ReLU"] and list(net._modules) == ["0", "1", "2"]
    assert kinds(net + nn.Sequential(nn.Tanh())) == ["Linear", "Linear", "ReLU", "Tanh"]
    named = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.ReLU()))
    assert named.a is named[0]
    assert (named(rabbet.randn(3, 2)) >= 0).all()
    assert rabbet.equal(nn.Sequential()(rabbet.ones(2)), rabbet.ones(2))


def test_module_list():
    layers = nn.ModuleList([nn.Linear(1, 1)])
    layers.append(nn.ReLU())
    layers += [nn.Tanh()]
    layers.insert(1, nn.Identity())
    assert kinds(layers) == ["Linear", "Identity", "ReLU", "Tanh"]
    assert kinds(layers[1:3]) == ["Identity", "ReLU"] and layers[-1] in layers
    layers[0] = nn.Sigmoid()
    del layers[1]
    assert isinstance(layers.pop(-1), nn.Tanh)
    assert kinds(layers) == ["Sigmoid", "ReLU"] and kinds(layers + [nn.Tanh()])[-1] == "Tanh"
    assert list(layers._modules) == ["0", "1"]


def test_module_dict():
    parts = nn.ModuleDict({"a": nn.Linear(1, 1)})
    parts["b"] = nn.ReLU()
    parts.update([("c", nn.Tanh())])
    assert list(parts) == ["a", "b", "c"] == list(parts.keys()) and "b" in parts and len(parts) == 3
    assert kinds(parts.values()) == ["Linear", "ReLU", "Tanh"]
    assert isinstance(parts.pop("c"), nn.Tanh)
    del parts["b"]
    assert [n for n, _ in parts.items()] == ["a"]
    parts.clear()
    assert not len(parts)


def test_parameter_list():
    values = nn.ParameterList([rabbet.ones(2), nn.Parameter(rabbet.zeros(3)), "text"])
    assert len(list(values.parameters())) == 2 and values[2] == "text"
    assert type(values[0]) is nn.Parameter
    values.append(rabbet.ones(1))
    values[0] = rabbet.zeros(2)
    values += [rabbet.ones(4)]
    assert [n for n, _ in values.named_parameters()] == ["0", "1", "3", "4"]
    assert len(values[1:3]) == 2 and not values[0].any() and len(values) == 5
    assert "Parameter containing: [rabbet.float32 of size 3]" in repr(values)


def test_parameter_dict():
    values = nn.ParameterDict({"a": rabbet.ones(2)})
    values["b"] = nn.Parameter(rabbet.zeros(1))
    values.update({"c": 3})
    assert list(values) == ["a", "b", "c"] and values.get("x") is None and values.get("c") == 3
    assert [n for n, _ in values.named_parameters()] == ["a", "b"]
    assert values.pop("c") == 3 and "c" not in values
    del values["a"]
    assert [k for k, _ in values.items()] == ["b"] and len(values) == 1
    values.clear()
    assert list(values.parameters()) == []


BAD = [
    (lambda: nn.Sequential(nn.ReLU())[1], IndexError, "out of range"),
    (lambda: nn.Sequential(3), TypeError, "not a Module subclass"),
    (lambda: nn.Sequential() + [nn.ReLU()], ValueError, "Sequential class"),
    (lambda: nn.Sequential().insert(2, nn.ReLU()), IndexError, "Index out of range"),
    (lambda: nn.Sequential().insert(0, 3), AssertionError, "should be of type"),
    (lambda: nn.ModuleList([nn.ReLU()])[-2], IndexError, "out of range"),
    (lambda: nn.ModuleList(3), TypeError, "iterable"),
    (lambda: nn.ModuleList()(1), NotImplementedError, "forward"),
    (lambda: nn.ModuleDict({"a.b": nn.ReLU()}), KeyError, "can't contain"),
    (lambda: nn.ModuleDict([("a",)]), ValueError, "pair"),
    (lambda: nn.ModuleDict(3), TypeError, "iterable"),
    (lambda: nn.ModuleDict()["x"], KeyError, "x"),
    (lambda: nn.ParameterList([rabbet.ones(1)])[1], IndexError, "out of range"),
    (lambda: nn.ParameterList(3), TypeError, "iterable"),
    (lambda: nn.ParameterList()(1), RuntimeError, "should not be called"),
    (lambda: nn.ParameterDict()["x"], KeyError, "x"),
    (lambda: nn.ParameterDict({3: rabbet.ones(1)}), TypeError, "not a string"),
    (lambda: nn.ParameterDict()(1), RuntimeError, "should not be called"),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_use_is_refused_clearly(i):
    act, error, text = BAD[i]
    with pytest.raises(error) as caught:
        act()
    assert text in str(caught.value.args[0])
