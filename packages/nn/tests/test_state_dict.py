"""State dicts: what goes out comes in, and what does not fit is named."""

from collections import OrderedDict

import pytest
import rabbet
from rabbet import nn


def net():
    return nn.Sequential(OrderedDict(fc=nn.Linear(3, 2), norm=nn.BatchNorm1d(2)))


KEYS = ["fc.weight", "fc.bias", "norm.weight", "norm.bias"]
KEYS += ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def test_names_metadata_and_sharing():
    model = net()
    state = model.state_dict()
    assert list(state) == KEYS
    assert state._metadata["norm"] == {"version": 2} and state._metadata[""] == {"version": 1}
    assert not state["fc.weight"].requires_grad
    state["fc.bias"].fill_(7)
    assert model.fc.bias.tolist() == [7.0, 7.0]
    assert list(model.state_dict(prefix="m.")) == [f"m.{key}" for key in KEYS]
    assert model.state_dict(keep_vars=True)["fc.weight"] is model.fc.weight
    into = {}
    assert model.state_dict(destination=into) is into and len(into) == 7


def test_round_trip_copies_values():
    a, b = net(), net()
    a(rabbet.randn(4, 3))
    weight = b.fc.weight
    assert str(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert b.fc.weight is weight
    for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        assert rabbet.equal(x, y)


def test_errors_name_every_key_and_shape():
    state = net().state_dict()
    state["fc.weight"] = rabbet.zeros(2, 4)
    state["fc.colour"] = rabbet.zeros(1)
    state["other.weight"] = rabbet.zeros(1)
    del state["fc.bias"], state["norm.weight"]
    with pytest.raises(RuntimeError) as error:
        net().load_state_dict(state)
    size = type(rabbet.zeros(1).shape).__name__
    lines = str(error.value).split("\n")
    assert lines[0] == "Error(s) in loading state_dict for Sequential:"
    assert lines[1] == '\tMissing key(s) in state_dict: "fc.bias", "norm.weight". '
    assert lines[2].startswith("\tUnexpected key(s) in state_dict: ")
    assert '"fc.colour"' in lines[2] and '"other.weight"' in lines[2]
    assert lines[3].startswith("\tsize mismatch for fc.weight: copying a param with shape ")
    assert f"{size}([2, 4])" in lines[3] and f"{size}([2, 3])" in lines[3]


def test_a_failed_load_leaves_the_misfit_alone():
    model = net()
    before = model.fc.weight.detach().clone()
    with pytest.raises(RuntimeError, match="size mismatch"):
        model.load_state_dict({"fc.weight": rabbet.zeros(9, 9)}, strict=False)
    assert rabbet.equal(model.fc.weight, before)


def test_not_strict_returns_the_names():
    result = net().load_state_dict({"fc.bias": rabbet.ones(2), "x": rabbet.ones(1)}, strict=False)
    # A dict without metadata may be of a version that did not count batches.
    assert result.missing_keys == [k for k in KEYS if k not in ("fc.bias", KEYS[-1])]
    assert result.unexpected_keys == ["x"]


@pytest.mark.parametrize("bad", [None, 3, [1]])
def test_only_dicts_are_loaded(bad):
    with pytest.raises(TypeError, match="dict-like"):
        net().load_state_dict(bad)


def test_values_must_be_tensors():
    with pytest.raises(
        RuntimeError, match=r'parameter named "fc\.bias", expected a rabbet\.Tensor'
    ):
        net().load_state_dict({"fc.bias": [1.0, 2.0]}, strict=False)


def test_assign_takes_the_tensors_themselves():
    model = net()
    state = {k: v.clone().to(rabbet.float64) for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert model.fc.weight.dtype == rabbet.float64
    assert type(model.fc.weight) is nn.Parameter and model.fc.weight.requires_grad
    state["fc.weight"].fill_(3)
    assert (model.fc.weight == 3).all()
    assert model.norm.running_mean is state["norm.running_mean"]


def test_one_element_state_becomes_a_number():
    model = nn.Module()
    model.p = nn.Parameter(rabbet.tensor(1.0))
    model.load_state_dict({"p": rabbet.tensor([4.0])})
    assert model.p.item() == 4.0


def test_batch_norm_takes_state_without_a_count():
    state = dict(net().state_dict())
    del state["norm.num_batches_tracked"]
    model = net()
    model(rabbet.randn(4, 3))
    model.load_state_dict(state)
    assert model.norm.num_batches_tracked.item() == 1


def test_extra_state_travels():
    class Counter(nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].count = 5
    state = a.state_dict()
    assert list(state) == ["0._extra_state"]
    b.load_state_dict(state)
    assert b[0].count == 5
    with pytest.raises(RuntimeError, match=r'Missing key.*"0\._extra_state"'):
        b.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"0\._extra_state"'):
        nn.Sequential(nn.ReLU()).load_state_dict(state)


def test_state_dict_hooks_run():
    model, calls = net(), []
    model.fc.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append((prefix, keep)))

    def rename(module, state, prefix, metadata):
        state[prefix + "w"] = state.pop(prefix + "weight")

    def back(module, state, prefix, *rest):
        state[prefix + "weight"] = state.pop(prefix + "w")

    out = model.fc.register_state_dict_post_hook(rename)
    state = model.state_dict()
    assert calls == [("fc.", False)] and "fc.w" in state and "fc.weight" not in state
    model.fc.register_load_state_dict_pre_hook(back)
    seen = []
    model.register_load_state_dict_post_hook(lambda m, keys: seen.append(list(keys.missing_keys)))
    model.load_state_dict(state, strict=False)
    assert seen == [[]]
    out.remove()
    assert "fc.weight" in model.state_dict()


def test_custom_loading_is_asked():
    class Half(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *rest):
            state_dict[prefix + "weight"] = state_dict[prefix + "weight"] / 2
            super()._load_from_state_dict(state_dict, prefix, *rest)

    model = nn.Sequential(Half(1, 1))
    model.load_state_dict({"0.weight": rabbet.tensor([[4.0]]), "0.bias": rabbet.tensor([0.0])})
    assert model[0].weight.item() == 2.0
