"""Modules that take sizes from their first input."""

import copy
import pickle

import pytest
import rabbet
from rabbet import nn

# Lazy class, its arguments, arguments before them of the ordinary class, shape of an input.
CASES = [("Linear", (4,), (3,), (5, 3))]
for d in (1, 2, 3):
    space = (6,) * d
    CASES += [
        (f"Conv{d}d", (8, 3, 2), (6,), (2, 6, *space)),
        (f"Conv{d}d", (8, 3, 1, 1, 1, 2), (6,), (6, *space)),
        (f"ConvTranspose{d}d", (8, 3, 2), (6,), (2, 6, *space)),
        (f"BatchNorm{d}d", (1e-4, 0.2), (6,), (2, 6, *space)),
        (f"InstanceNorm{d}d", (1e-5, 0.1, True, True), (6,), (2, 6, *space)),
    ]


@pytest.mark.parametrize("name,args,sizes,shape", CASES)
def test_the_first_call_makes_the_ordinary_module(name, args, sizes, shape):
    lazy = getattr(nn, "Lazy" + name)(*args, dtype=rabbet.float64)
    assert lazy.has_uninitialized_params() and type(lazy).__name__ == "Lazy" + name
    assert repr(lazy.weight) == "<UninitializedParameter>"
    x = rabbet.randn(*shape, dtype=rabbet.float64)
    rabbet.manual_seed(5)
    out = lazy(x)
    rabbet.manual_seed(5)
    plain = getattr(nn, name)(*sizes, *args, dtype=rabbet.float64)
    assert type(lazy) is type(plain) and repr(lazy) == repr(plain)
    assert not lazy._forward_pre_hooks and not lazy._load_state_dict_pre_hooks
    assert rabbet.equal(out, plain(x))
    assert list(lazy.state_dict()) == list(plain.state_dict())
    for own, other in zip(lazy.state_dict().values(), plain.state_dict().values(), strict=True):
        assert own.dtype == other.dtype and rabbet.equal(own, other)
    assert all(type(p) is nn.Parameter and p.requires_grad for p in lazy.parameters())
    out.sum().backward()
    assert lazy.weight.grad is not None


def test_options_without_bias_and_statistics():
    assert nn.LazyLinear(2, bias=False).bias is None
    assert nn.LazyConv2d(2, 3, bias=False).bias is None
    norm = nn.LazyBatchNorm2d(affine=False, track_running_stats=False)
    assert not norm.has_uninitialized_params() and not norm.state_dict()
    assert list(nn.LazyBatchNorm2d(bias=False).state_dict()) == [
        "weight",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]


def test_a_lazy_module_can_be_cast_copied_and_pickled():
    lazy = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d()).double()
    for other in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        assert other(rabbet.ones(2, 3, 5, dtype=rabbet.float64)).dtype is rabbet.float64
        assert [type(m) for m in other] == [nn.Conv1d, nn.BatchNorm1d]
        assert other[1].running_mean.dtype is rabbet.float64
        assert not other[0]._forward_pre_hooks
    assert lazy[0].has_uninitialized_params() and lazy[0]._forward_pre_hooks
    assert isinstance(lazy[1].running_mean, nn.UninitializedBuffer)


def test_state_dicts_go_between_modules_with_and_without_shapes():
    plain = nn.Linear(3, 4)
    lazy = nn.LazyLinear(4)
    lazy.load_state_dict(plain.state_dict())
    assert not lazy.has_uninitialized_params() and rabbet.equal(lazy.weight, plain.weight)
    x = rabbet.randn(2, 3)
    assert rabbet.equal(lazy(x), plain(x)) and lazy.in_features == 3
    other = nn.LazyLinear(4)
    other.load_state_dict(nn.LazyLinear(4).state_dict())
    assert other.has_uninitialized_params()
    with pytest.raises(RuntimeError, match="uninitialized parameter into an initialized one"):
        plain.load_state_dict(nn.LazyLinear(4).state_dict())


def test_an_own_lazy_module():
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.UninitializedParameter()

        def initialize_parameters(self, x, by=1.0):
            self.scale.materialize(x.shape[-1:])
            with rabbet.no_grad():
                self.scale.fill_(by)

        def forward(self, x, by=1.0):
            return x * self.scale

    module = Scale()
    assert module(rabbet.ones(2), by=3.0).tolist() == [3.0, 3.0]
    assert module(rabbet.ones(2)).tolist() == [3.0, 3.0] and type(module) is Scale


def test_bad_first_inputs_are_refused():
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\)"):
        nn.LazyConv2d(2, 3)(rabbet.ones(3, 3))
    with pytest.raises(ValueError, match="divisible by groups, got 3 and 2"):
        nn.LazyConv2d(2, 3, groups=2)(rabbet.ones(1, 3, 5, 5))
    with pytest.raises(ValueError, match="expected 4D input"):
        nn.LazyBatchNorm2d()(rabbet.ones(2, 3))
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = nn.UninitializedBuffer().shape

    class Undone(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.UninitializedParameter()

    with pytest.raises(NotImplementedError, match="not implemented for Undone"):
        Undone()(1)
    Undone.initialize_parameters = lambda self, x: None
    with pytest.raises(RuntimeError, match="Undone has not been fully initialized"):
        Undone()(1)
