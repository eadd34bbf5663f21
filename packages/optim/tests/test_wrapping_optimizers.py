"""Optimizers that wrap another optimizer, and the private functions that such packages call."""

import pytest
import rabbet
from rabbet import optim
from rabbet.optim import optimizer as names


class Wrapper(optim.Optimizer):
    """Holds another optimizer, as accelerate's and opacus' do, without Optimizer.__init__."""

    def __init__(self, inner):
        self.inner = inner

    def step(self, closure=None):
        return self.inner.step(closure)


class Counted(Wrapper):
    def step(self, *args, times=1):
        for _ in range(times):
            self.inner.step(*args)


@pytest.mark.parametrize("kind", [Wrapper, Counted])
def test_an_optimizer_that_does_not_call_the_base_steps(kind):
    x = rabbet.ones(2, requires_grad=True)
    inner, calls = optim.SGD([x], lr=0.5), []
    handle = names.register_optimizer_step_post_hook(lambda o, a, k: calls.append(o))
    x.grad = rabbet.ones(2)
    wrapper = kind(inner)
    try:
        wrapper.step()
    finally:
        handle.remove()
    assert x.tolist() == [0.5, 0.5] and calls == [inner]
    assert isinstance(wrapper, optim.Optimizer)
    with pytest.raises((AttributeError, TypeError)):
        wrapper.register_step_pre_hook(print)


def test_tensors_are_grouped_by_device_and_dtype():
    a, b, c = rabbet.ones(1), rabbet.ones(1, dtype=rabbet.float64), rabbet.zeros(2)
    groups = optim.Optimizer._group_tensors_by_device_and_dtype(
        [[a, b, c], [a, None, c]], with_indices=True
    )
    cpu = rabbet.device("cpu")
    lists, indices = groups[cpu, rabbet.float32]
    assert lists[0][0] is a and lists[1][1] is c and indices == [0, 2]
    assert groups[cpu, rabbet.float64][0][1] == [None]
    with pytest.raises(RuntimeError, match="the first list holds None"):
        optim.Optimizer._group_tensors_by_device_and_dtype([[None]])


def test_gradients_are_recorded_in_steps_of_differentiable_optimizers_only():
    class Recording:
        def __init__(self, differentiable):
            self.defaults = {"differentiable": differentiable}

        @names._use_grad_for_differentiable
        def step(self):
            return rabbet.is_grad_enabled()

    assert Recording(True).step() and not Recording(False).step() and rabbet.is_grad_enabled()
    assert names._default_to_fused_or_foreach([rabbet.ones(1)], False, True) == (False, False)
    assert names._get_capturable_supported_devices() == ["cuda"]
