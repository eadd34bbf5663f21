"""Members of modules by dotted names, and inputs split among devices."""

import copy

import pytest
import rabbet
from rabbet import nn
from rabbet.nn.parallel.scatter_gather import gather, scatter_kwargs
from rabbet.nn.utils._named_member_accessor import NamedMemberAccessor, swap_submodule, swap_tensor


def network():
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))


def test_tensors_are_read_swapped_and_set_by_their_names():
    model = network()
    members = NamedMemberAccessor(model)
    weight = model[0].weight
    new = rabbet.zeros(3, 2)
    assert members.get_tensor("0.weight") is weight
    assert members.swap_tensor("0.weight", new) is weight and model[0].weight is new
    members.set_tensor("1.0.running_mean", rabbet.ones(3))
    assert model[1][0].running_mean.tolist() == [1, 1, 1]
    before, missing = members.swap_tensors_dict({"0.weight": weight, "0.bias": rabbet.zeros(3)})
    assert before["0.weight"] is new and missing == [] and model[0].weight is weight
    names = [name for name, _ in members.named_tensors()]
    assert names[:2] == ["0.weight", "0.bias"] and "1.0.running_var" in names
    assert members.check_keys([*names[1:], "frob"]) == (["0.weight"], ["frob"])
    members.del_tensor("0.bias")
    assert not hasattr(model[0], "bias")


def test_a_failed_exchange_leaves_the_module_as_it_was():
    model = network()
    weight, before = model[0].weight, [name for name, _ in model.named_parameters()]
    with pytest.raises(RuntimeError, match="Missing key"):
        NamedMemberAccessor(model).swap_tensors_dict(
            {"0.weight": rabbet.zeros(3, 2), "0.frob": rabbet.ones(1)}
        )
    assert model[0].weight is weight and not hasattr(model[0], "frob")
    assert [name for name, _ in model.named_parameters()] == before


def test_parts_are_swapped():
    model, new = network(), nn.ReLU()
    old = model[1][0]
    assert NamedMemberAccessor(model).swap_submodule("1.0", new) is old and model[1][0] is new
    with pytest.raises(KeyError, match="submodule frob does not exist"):
        swap_submodule(model, "frob", new)


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("a.b", rabbet.ones(1), KeyError, "t contain"),
        ("", rabbet.ones(1), KeyError, "empty string"),
        ("frob", rabbet.ones(1), AttributeError, "Linear has no attribute `frob`"),
        ("weight", 3, TypeError, "not an instance of torch.Tensor"),
        ("in_features", rabbet.ones(1), TypeError, "attribute `in_features`"),
    ],
)
def test_wrong_exchanges(name, value, error, text):
    with pytest.raises(error, match=text):
        swap_tensor(nn.Linear(2, 2), name, value)


def test_arguments_are_split_and_outputs_joined():
    x = rabbet.arange(6.0).reshape(3, 2)
    args, kwargs = scatter_kwargs((x, "same"), {"y": [x]}, ["cpu", "cpu"])
    assert args[0][0].shape == (2, 2) and args[1][0].shape == (1, 2) and args[1][1] == "same"
    assert kwargs[0]["y"][0].shape == (2, 2) and rabbet.equal(
        gather([a[0] for a in args], "cpu"), x
    )
    args, kwargs = scatter_kwargs((), {"y": x}, ["cpu"])
    assert args == ((),) and rabbet.equal(kwargs[0]["y"], x)
    args, kwargs = scatter_kwargs((x,), None, ["cpu", "cpu"])
    assert kwargs == ({}, {})


def test_the_arguments_of_module_to_are_parsed():
    from rabbet._as_torch.c_nn import _parse_to

    cpu = rabbet.device("cpu")
    assert _parse_to("cpu") == (cpu, None, False, None)
    assert _parse_to(rabbet.float64) == (None, rabbet.float64, False, None)
    assert _parse_to("cpu", rabbet.float16, True) == (cpu, rabbet.float16, True, None)
    assert _parse_to(rabbet.ones(1), memory_format=rabbet.channels_last) == (
        cpu, rabbet.float32, False, rabbet.channels_last,
    )  # fmt: skip
    assert _parse_to(device="cpu", dtype=rabbet.int8) == (cpu, rabbet.int8, False, None)
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        _parse_to("cpu", "cpu")


def test_private_hooks_and_calls_of_modules():
    model, seen = nn.Linear(2, 2), []
    handle = model._register_load_state_dict_pre_hook(
        lambda state, prefix, *rest: seen.append((prefix, len(rest)))
    )
    model._register_load_state_dict_pre_hook(
        lambda module, *rest: seen.append(module is model), with_module=True
    )
    model.load_state_dict(model.state_dict())
    assert seen == [("", 5), True]
    handle.remove()
    model.load_state_dict(model.state_dict())
    assert seen == [("", 5), True, True]
    model.register_forward_hook(lambda module, args, output: output * 0)
    assert not model._call_impl(rabbet.ones(1, 2)).any() and model._compiled_call_impl is None


def test_a_call_runs_the_call_impl_of_a_subclass():
    class Counted(nn.Linear):
        calls = 0

        def _call_impl(self, *args, **kwargs):
            self.calls += 1
            return super()._call_impl(*args, **kwargs)

    class Below(Counted):
        pass

    for model in (Counted(2, 2), Below(2, 2)):
        seen = []
        model(rabbet.ones(1, 2))
        handle = model.register_forward_hook(lambda *rest, seen=seen: seen.append(1))
        model(rabbet.ones(1, 2))
        handle.remove()
        copy.deepcopy(model)(rabbet.ones(1, 2))
        nn.Sequential(model)(rabbet.ones(1, 2))
        assert model.calls == 3 and seen == [1]


def test_a_call_runs_the_call_impl_of_an_object():
    model = nn.Linear(2, 2)
    model._call_impl = lambda x: x + 1
    assert model(3) == 4
