"""Hooks around forward and backward."""

import pytest
import rabbet
from rabbet import nn
from rabbet.nn import modules
from rabbet.nn.modules import register_module_forward_hook, register_module_forward_pre_hook


class Add(nn.Module):
    def forward(self, x, y=0.0, *, z=0.0):
        return x + y + z


def test_pre_hooks_change_arguments_in_order():
    module = Add()
    module.register_forward_pre_hook(lambda m, args: args[0] * 2)
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1, 10.0))
    handle = module.register_forward_pre_hook(lambda m, args: (args[0] + 1,), prepend=True)
    assert module(rabbet.tensor(1.0)).item() == 15.0
    handle.remove()
    assert module(rabbet.tensor(1.0)).item() == 13.0


def test_hooks_with_keywords():
    module, seen = Add(), []
    module.register_forward_pre_hook(lambda m, a, k: (a, {**k, "z": 5.0}), with_kwargs=True)
    module.register_forward_hook(lambda m, a, k, out: seen.append(dict(k)), with_kwargs=True)
    assert module(rabbet.tensor(1.0), z=1.0).item() == 6.0
    assert seen == [{"z": 5.0}]
    bad = Add()
    bad.register_forward_pre_hook(lambda m, a, k: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="tuple of"):
        bad(rabbet.tensor(1.0))


def test_forward_hooks_see_and_replace_the_output():
    module, seen = Add(), []
    with module.register_forward_hook(lambda m, args, out: seen.append((m, args, out.item()))):
        module(rabbet.tensor(1.0), 2.0)
    module.register_forward_hook(lambda m, args, out: out * 10)
    assert module(rabbet.tensor(1.0)).item() == 10.0
    assert len(seen) == 1 and seen[0][0] is module and seen[0][2] == 3.0


def test_a_call_is_quick_again_after_the_last_hook():
    module = Add()
    module.register_forward_hook(lambda *a: None).remove()
    assert module._hooked
    module(rabbet.tensor(1.0))
    assert not module._hooked


def test_global_hooks_run_for_every_module():
    names = []
    before = register_module_forward_pre_hook(lambda m, args: names.append(type(m).__name__))
    after = register_module_forward_hook(lambda m, args, out: out + 1)
    try:
        out = nn.Sequential(nn.Identity(), Add())(rabbet.tensor(0.0))
    finally:
        before.remove(), after.remove()
    assert names == ["Sequential", "Identity", "Add"] and out.item() == 3.0
    assert Add()(rabbet.tensor(0.0)).item() == 0.0


def test_backward_hook_sees_both_gradients():
    layer, seen = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = rabbet.randn(4, 3, requires_grad=True)
    plain = rabbet.autograd.grad(nn.functional.linear(x, layer.weight, layer.bias).sum(), x)[0]
    layer(x).sum().backward()
    (grad_input, grad_output) = seen[0]
    assert len(seen) == 1 and len(grad_input) == len(grad_output) == 1
    assert rabbet.equal(grad_input[0], plain) and rabbet.equal(x.grad, plain)
    assert rabbet.equal(grad_output[0], rabbet.ones(4, 2))


def test_backward_hooks_replace_gradients():
    module = nn.Identity()
    module.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] + go[0] * 10,))
    x = rabbet.ones(2, requires_grad=True)
    module(x).sum().backward()
    assert x.grad.tolist() == [22.0, 22.0]


def test_backward_hook_without_a_differentiable_input():
    layer, seen = nn.Linear(3, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].shape)))
    layer(rabbet.randn(4, 3)).sum().backward()
    assert seen == [((None,), (4, 2))]
    assert layer.weight.grad is not None


def test_backward_hook_of_a_module_with_two_outputs():
    class Two(nn.Module):
        def forward(self, x, note):
            return x * 2, note, x * 3

    module, seen = Two(), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = rabbet.ones(2, requires_grad=True)
    a, note, b = module(x, "note")
    assert note == "note"
    (a + b).sum().backward()
    (grad_input, grad_output) = seen[0]
    assert grad_input[0].tolist() == [5.0, 5.0] and grad_input[1] is None
    assert grad_output[1] is None and grad_output[0].tolist() == [1.0, 1.0]


def test_backward_hooks_refuse_a_wrong_number_of_gradients():
    module = nn.Identity()
    module.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    x = rabbet.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="expected 1 gradients, got 2"):
        module(x).sum().backward()


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("in forward")


def test_a_hook_that_is_always_called_sees_a_failed_forward():
    module, seen = Fails(), []
    module.register_forward_hook(lambda m, a, out: seen.append("not always"))
    module.register_forward_pre_hook(lambda m, args: (7,))
    module.register_forward_hook(
        lambda m, a, k, out: seen.append((a, k, out)), with_kwargs=True, always_call=True
    )
    with pytest.raises(ValueError, match="in forward"):
        module(1)
    assert seen == [((7,), {}, None)]


def test_a_hook_that_is_always_called_is_called_once():
    module, seen = Add(), []
    module.register_forward_hook(lambda m, a, out: seen.append(1) or out + 1, always_call=True)

    def fail(m, a, out):
        raise RuntimeError("in a hook")

    handle = module.register_forward_hook(fail)
    module.register_forward_hook(lambda m, a, out: seen.append(out.item()), always_call=True)
    with pytest.raises(RuntimeError, match="in a hook"):
        module(rabbet.tensor(1.0))
    assert seen == [1, 2.0]
    handle.remove()
    assert module(rabbet.tensor(1.0)).item() == 2.0 and seen == [1, 2.0, 1, 2.0]


def test_an_exception_of_a_hook_after_a_failure_is_a_warning():
    def fail(m, a, out):
        raise RuntimeError("in a hook")

    handle = modules.register_module_forward_hook(fail, always_call=True)
    try:
        with (
            pytest.warns(UserWarning, match="was silenced"),
            pytest.raises(ValueError, match="in forward"),
        ):
            Fails()(1)
    finally:
        handle.remove()
    assert not modules.module._global_forward_hooks_always_called


def test_global_forward_hooks_take_keywords():
    seen = []
    with modules.register_module_forward_hook(
        lambda m, a, k, out: seen.append(k), with_kwargs=True
    ):
        Add()(rabbet.tensor(1.0), z=2.0)
    assert seen == [{"z": 2.0}]


def test_global_backward_hooks_run_before_the_modules_own():
    order, layer = [], nn.Linear(2, 1)
    layer.register_full_backward_pre_hook(lambda m, go: order.append("own pre"))
    layer.register_full_backward_hook(lambda m, gi, go: order.append("own"))
    before = modules.register_module_full_backward_pre_hook(
        lambda m, go: order.append("global pre") or (go[0] * 3,)
    )
    after = modules.register_module_full_backward_hook(lambda m, gi, go: order.append("global"))
    x = rabbet.ones(1, 2, requires_grad=True)
    try:
        layer(x).sum().backward()
    finally:
        before.remove(), after.remove()
    assert order == ["global pre", "own pre", "global", "own"]
    assert rabbet.equal(x.grad, layer.weight.detach() * 3)
    nn.Linear(2, 1)(x).sum().backward()
    assert len(order) == 4


def test_registration_hooks_see_and_replace_parts():
    seen = []
    handles = [
        modules.module.register_module_parameter_registration_hook(
            lambda m, name, p: seen.append(("parameter", name))
        ),
        modules.module.register_module_buffer_registration_hook(
            lambda m, name, b: seen.append(("buffer", name)) or (None if b is None else b + 1)
        ),
        modules.module.register_module_module_registration_hook(
            lambda m, name, child: nn.Tanh() if isinstance(child, nn.ReLU) else None
        ),
    ]
    try:
        module = nn.Module()
        module.w = nn.Parameter(rabbet.ones(1))
        module.register_parameter("none", None)
        module.w = None
        module.register_buffer("b", rabbet.zeros(1))
        module.b = rabbet.ones(1)
        module.act = nn.ReLU()
        module.add_module("act2", nn.ReLU())
    finally:
        for handle in handles:
            handle.remove()
    assert (
        seen
        == [("parameter", "w"), ("parameter", "none"), ("parameter", "w")] + [("buffer", "b")] * 2
    )
    assert module.b.item() == 2.0 and module.w is None
    assert isinstance(module.act, nn.Tanh) and isinstance(module.act2, nn.Tanh)


@pytest.mark.parametrize(
    "name",
    [
        "forward_hook",
        "forward_pre_hook",
        "full_backward_hook",
        "full_backward_pre_hook",
        "parameter_registration_hook",
        "buffer_registration_hook",
        "module_registration_hook",
    ],
)
def test_global_hooks_must_be_callable(name):
    with pytest.raises(TypeError, match=f"register_module_{name}: expected a callable hook, got"):
        getattr(modules.module, f"register_module_{name}")(3)
