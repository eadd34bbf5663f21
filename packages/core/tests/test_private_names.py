"""Private names of PyTorch's that packages import, as `as_torch()` shows them."""

import collections
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
import rabbet
from rabbet._as_torch import functions, utils
from rabbet._as_torch.names import attribute, module_of, resolve


@pytest.mark.parametrize(
    "check, error",
    [
        (functions._check, RuntimeError), (functions._check_index, IndexError),
        (functions._check_value, ValueError), (functions._check_type, TypeError),
        (functions._check_not_implemented, NotImplementedError),
    ],
)  # fmt: skip
def test_checks_raise_their_error(check, error):
    check(True)
    check(True, lambda: 1 / 0)
    with pytest.raises(error, match="wrong 3"):
        check(False, lambda: f"wrong {3}")
    with pytest.raises(error, match="expected cond to be True"):
        check(False)
    with pytest.raises(TypeError, match="cond must be a bool"):
        check(rabbet.ones(1))
    with pytest.raises(TypeError, match="message must be a callable"):
        check(False, "text")


def test_asserts_as_functions():
    functions._assert(True, "no")
    with pytest.raises(AssertionError, match="no"):
        functions._assert(False, "no")
    functions._assert_async(rabbet.ones(1))
    with pytest.raises(RuntimeError, match="Expected Tensor to be nonzero"):
        functions._assert_async(rabbet.zeros(1))
    assert functions._is_all_true(rabbet.ones(2, dtype=rabbet.bool)).item()


def test_tensors_are_packed_into_a_vector_and_back():
    tensors = [rabbet.arange(4.0).reshape(2, 2), rabbet.tensor(5.0), rabbet.zeros(0, 2)]
    flat = utils._flatten_dense_tensors(tensors)
    assert flat.tolist() == [0, 1, 2, 3, 5]
    back = utils._unflatten_dense_tensors(flat, tensors)
    assert [t.shape for t in back] == [t.shape for t in tensors] and back[1].item() == 5


def test_errors_keep_their_class_on_their_way():
    class Own(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    for raised, expected in (
        (ValueError("x"), ValueError),
        (KeyError("x"), KeyError),
        (Own(1, 2), RuntimeError),
    ):
        try:
            raise raised
        except Exception:
            wrapped = utils.ExceptionWrapper(where="in a test")
        with pytest.raises(expected, match="in a test"):
            wrapped.reraise()


def test_names_mean_what_they_mean_in_torch():
    assert (
        module_of("nn") is rabbet.nn
        and module_of("nothing") is None
        and module_of("_streams") is None
    )
    assert attribute("Tensor") is rabbet.Tensor and attribute("_check") is functions._check
    assert resolve("torch.nn.functional.relu") is rabbet.nn.functional.relu
    assert resolve("torch._C._nn.gelu") is rabbet.nn.functional.gelu
    assert resolve("torch._dynamo.config") is resolve("torch._dynamo").config
    assert (
        resolve("torch._C.Generator") is rabbet.Generator
        and resolve("torch._jit_internal.unused") is rabbet.jit.unused
    )
    for name in ("torch.nn.Foo", "torch._C._nn.foo", "torch.Tensor.foo", "torch._streams"):
        with pytest.raises(AttributeError, match=r"foo|Foo|_streams"):
            resolve(name)


def test_calls_are_handed_to_what_overrides_them():
    from rabbet.overrides import (
        handle_torch_function,
        has_torch_function,
        is_tensor_like,
        resolve_name,
    )

    class Mine:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return (
                (cls.__name__, func.__name__, types) if kwargs.get("ok", True) else NotImplemented
            )

    class Sub(Mine):
        pass

    assert has_torch_function([Mine()]) and not has_torch_function([rabbet.ones(1), 3])
    answer = handle_torch_function(len, [Mine(), Sub(), 3], 1)
    assert (
        answer == ("Sub", "len", (Sub, Mine)) and is_tensor_like(Mine()) and not is_tensor_like(3)
    )
    with pytest.raises(TypeError, match=r"no implementation found for 'builtins\.len'"):
        handle_torch_function(len, [Mine()], ok=False)
    assert resolve_name(rabbet.add) == "rabbet.add"


def test_tensors_are_grouped_by_device_and_dtype():
    from rabbet.utils._foreach_utils import _group_tensors_by_device_and_dtype as group

    a, b, c = rabbet.ones(1), rabbet.ones(1).double(), rabbet.ones(2)
    groups = group([[a, b, c], [None, b, a]], with_indices=True)
    cpu = rabbet.device("cpu")
    assert list(groups) == [(cpu, rabbet.float32), (cpu, rabbet.float64)]
    columns, places = groups[cpu, rabbet.float32]
    assert (
        places == [0, 2] and columns[0][0] is a and columns[0][1] is c and columns[1] == [None, a]
    )
    assert group([[a]])[cpu, rabbet.float32][1] == [] and group([]) == {}
    with pytest.raises(RuntimeError, match="lists differ in length"):
        group([[a], []])
    with pytest.raises(RuntimeError, match="tensor 0 of the first list is None"):
        group([[None]])


def test_dispatch_keys_are_values_in_sets():
    key, keys = resolve("torch._C.DispatchKey"), resolve("torch._C.DispatchKeySet")
    both = keys(key.AutocastCPU) | keys(key.AutocastCUDA)
    assert both.has(key.AutocastCUDA) and not both.has(key.CPU)
    assert both & keys(key.AutocastCPU) == keys(key.AutocastCPU) != both
    assert both - keys(key.AutocastCPU) == keys(key.AutocastCUDA)
    assert len({both, keys(key.AutocastCUDA, key.AutocastCPU)}) == 1
    with pytest.raises(TypeError, match="DispatchKeySet: expected dispatch keys, got str"):
        keys("CPU")


def test_classes_and_hooks_of_the_compiler_say_that_there_is_none():
    dynamo = resolve("torch._dynamo")
    assert dynamo.allow_in_graph(len) is len and not isinstance(rabbet.nn, dynamo.OptimizedModule)
    assert resolve("torch._dynamo.utils").is_compile_supported("cuda") is False
    fake = resolve("torch._subclasses.fake_tensor")
    assert not fake.is_fake(rabbet.ones(1)) and not isinstance(rabbet.ones(1), fake.FakeTensor)
    assert resolve("torch.fx.experimental.proxy_tensor").get_proxy_mode() is None
    with rabbet._as_torch.c.DisableTorchFunctionSubclass():
        assert resolve("torch._C._disabled_torch_function_impl")(max, (), (1, 2)) == 2


def test_tensors_are_written_as_their_text():
    private = resolve("torch._tensor_str")
    assert private._tensor_str(rabbet.tensor([1.0, 2.5]), 0) == "[1.0000, 2.5000]"
    assert private.PRINT_OPTS.precision == 4


def test_operators_by_their_names_in_pytorch():
    aten = rabbet.ops.aten
    assert aten.add is aten.add and aten.add.Tensor is aten.add.Tensor
    assert aten.add.Tensor is not aten.add.Scalar and len({aten.add, aten.add.Tensor}) == 2
    assert aten.add.Tensor(rabbet.ones(2), 2.0).tolist() == [3.0, 3.0]
    assert aten.unsqueeze(rabbet.ones(2), 0).shape == (1, 2)
    assert str(aten.cat.default) == "aten.cat.default" and not hasattr(aten, "__wrapped__")
    with pytest.raises(NotImplementedError, match=r"ops\.aten\._to_nothing\.default is not in"):
        aten._to_nothing.default(rabbet.ones(1))
    with pytest.raises(OSError, match=r"ops\.load_library: 'x\.so' cannot be loaded"):
        rabbet.ops.load_library("x.so")


def test_transforms_are_seen_from_inside():
    active = resolve("torch._C._are_functorch_transforms_active")
    seen = []
    rabbet.vmap(lambda x: seen.append(active()) or x)(rabbet.ones(2))
    assert seen == [True] and not active()


def test_numbers_of_distributions_under_their_private_names():
    alpha = rabbet.full((2000,), 3.0, requires_grad=True)
    draws = functions._standard_gamma(alpha)
    draws.sum().backward()
    assert abs(draws.mean().item() - 3.0) < 0.2 and alpha.grad.min() > 0
    points = functions._sample_dirichlet(rabbet.ones(5, 3))
    assert rabbet.allclose(points.sum(-1), rabbet.ones(5))
    with pytest.raises(NotImplementedError, match="gamma_draws: only the default generator"):
        functions._standard_gamma(alpha, rabbet.Generator())


def test_torch_has_every_function_on_lists():
    for name in rabbet._foreach.__all__:
        assert attribute(name) is getattr(rabbet._foreach, name)
    a, b = attribute("_foreach_add")([rabbet.ones(2), rabbet.zeros(1)], 1)
    assert a.tolist() == [2.0, 2.0] and b.tolist() == [1.0]


def test_modules_below_the_c_module_are_imported():
    code = """
import rabbet
rabbet.as_torch()
from torch._C._functorch import _add_batch_dim, get_unwrapped, is_batchedtensor
from torch._functorch.vmap import _maybe_remove_batch_dim
import torch, torch._C._nn
assert not is_batchedtensor(torch.ones(1))
for refused in (_add_batch_dim, _maybe_remove_batch_dim, torch.jit._get_trace_graph):
    try:
        refused(torch.ones(1), 0, 1)
    except NotImplementedError:
        continue
    raise SystemExit(f"{refused} does not refuse")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_older_modules_of_mixed_precision():
    common, scaler = (module_of(f"cuda.amp.{name}") for name in ("common", "grad_scaler"))
    assert common.amp_definitely_not_available() == (not rabbet.cuda.is_available())
    assert scaler.GradScaler is rabbet.cuda.amp.GradScaler and scaler.OptState.READY
    assert module_of("cuda.amp.autocast_mode").autocast is rabbet.cuda.amp.autocast
    assert rabbet.GradScaler is rabbet.amp.GradScaler
    assert rabbet.cuda._initialized == rabbet.cuda.is_initialized()


def test_flags_of_opt_einsum_are_set_and_returned():
    switches = rabbet.backends.opt_einsum
    before = switches.set_flags()
    assert switches.set_flags(True, "greedy") == before
    assert switches.set_flags(*before) == (True, "greedy")
    switches.enabled, switches.strategy = before


def test_legacy_tensors_take_their_argument_by_name():
    assert rabbet.FloatTensor(size=(2, 3)).shape == (2, 3)
    assert rabbet.FloatTensor(data=[1, 2]).tolist() == [1, 2]
    for call in (lambda: rabbet.FloatTensor(sizes=2), lambda: rabbet.FloatTensor([1], size=(1,))):
        with pytest.raises(TypeError, match="expected a size or data"):
            call()


class Points(NamedTuple):
    x: Any
    y: Any


class Pins:
    def pin_memory(self):
        return "pinned"


def test_what_can_be_pinned_in_a_batch_is_pinned(monkeypatch):
    pin_memory = module_of("utils.data._utils.pin_memory").pin_memory
    batch = {"a": [Pins(), 2], "b": Points(Pins(), "text"), "c": (Pins(), b"bytes")}
    expected = {"a": ["pinned", 2], "b": Points("pinned", "text"), "c": ("pinned", b"bytes")}
    assert pin_memory(batch) == expected and isinstance(batch["a"][0], Pins)
    assert type(pin_memory(collections.OrderedDict(batch))) is collections.OrderedDict
    assert pin_memory(range(2)) == [0, 1]
    assert rabbet.utils.data.ConcatDataset.cumsum(["ab", "", "c"]) == [2, 2, 3]


def test_a_block_without_fake_tensors_changes_nothing():
    with module_of("_subclasses.fake_tensor").unset_fake_temporarily() as mode:
        assert mode is None and rabbet.ones(2).sum().item() == 2
    assert module_of("_guards").active_fake_mode() is None


def test_cdata_tells_tensors_apart():
    x = rabbet.ones(2)
    view = x.detach()
    assert x._cdata == x._cdata and isinstance(x._cdata, int) and x._cdata != view._cdata
