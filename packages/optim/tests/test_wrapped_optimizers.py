"""Optimizers that wrap another one and never call `super().__init__()`, and what schedulers see of the steps."""

import copy
import gc
import warnings
import weakref

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.optim import lr_scheduler


def made(kind=optim.SGD, **options):
    parameter = nn.Parameter(rabbet.ones(2))
    parameter.grad = rabbet.ones(2)
    return parameter, kind([parameter], lr=0.5, **options)


class Wrapper(optim.Optimizer):
    """Forwards to another optimizer, as those of trainers do."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def forwarded(name):
        return property(
            lambda self: getattr(self.optimizer, name),
            lambda self, value: setattr(self.optimizer, name, value),
        )

    state, param_groups, defaults = map(forwarded, ("state", "param_groups", "defaults"))

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)


def test_a_wrapper_steps_and_runs_the_hooks_of_what_it_wraps():
    parameter, optimizer = made()
    seen = []
    optimizer.register_step_pre_hook(lambda *given: seen.append("before"))
    optimizer.register_step_post_hook(lambda *given: seen.append("after"))
    wrapper = Wrapper(optimizer)
    assert vars(wrapper).keys() == {"optimizer"}
    wrapper.step()
    assert parameter.tolist() == [0.5, 0.5] and seen == ["before", "after"]
    wrapper.zero_grad()
    assert parameter.grad is None and "lr: 0.5" in repr(wrapper)
    with pytest.raises(AttributeError, match="_optimizer_step_pre_hooks"):
        wrapper.register_step_pre_hook(print)


def test_a_wrapper_that_gets_a_state_has_hooks_from_then_on():
    _, optimizer = made(optim.Adam)
    first, second = Wrapper(optimizer), Wrapper(optimizer)
    first.__setstate__({})
    seen = []
    first.register_step_pre_hook(lambda *given: seen.append("hook"))
    first.step()
    second.step()
    assert seen == ["hook"]


@pytest.mark.parametrize("scheduler", [
    lambda o: lr_scheduler.StepLR(o, 1, gamma=0.1), lambda o: lr_scheduler.LambdaLR(o, lambda e: 0.1**e),
    lambda o: lr_scheduler.ExponentialLR(o, 0.1),
])  # fmt: skip
def test_a_scheduler_on_a_wrapper_sees_its_steps(scheduler):
    _, optimizer = made()
    wrapper = Wrapper(optimizer)
    schedule = scheduler(wrapper)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapper.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05) == schedule.get_last_lr()[0]
    plateau = lr_scheduler.ReduceLROnPlateau(wrapper)
    plateau.step(1.0)


def test_a_scheduler_that_steps_first_warns_once():
    _, optimizer = made()
    schedule = lr_scheduler.StepLR(optimizer, 1)
    assert optimizer.step._wrapped_by_lr_sched and not hasattr(optimizer, "_opt_called")
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()


def test_a_step_that_was_replaced_cannot_be_seen():
    _, optimizer = made()
    schedule = lr_scheduler.StepLR(optimizer, 1)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match=r"`optimizer.step\(\)` has been overridden"):
        schedule.step()


def test_the_rates_of_the_next_step_are_not_the_last_ones():
    _, optimizer = made()
    schedule = lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match=r"please use `get_last_lr\(\)`"):
        schedule.get_lr()
    with pytest.warns(UserWarning, match="The epoch parameter in"):
        optimizer.step()
        schedule.step(3)
    assert schedule.state_dict().keys() >= {
        "_step_count",
        "_is_initial",
        "_get_lr_called_within_step",
    }


def test_the_initial_step_can_be_taken_again():
    class Halved(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [group["lr"] * 0.5 for group in self.optimizer.param_groups]

    schedule = Halved(made()[1])
    assert schedule.get_last_lr() == [0.25] and schedule._step_count == 1
    schedule._initial_step()
    assert schedule.get_last_lr() == [0.125] and schedule._step_count == 1
    assert schedule._is_initial is False


def test_a_class_without_an_initialized_object_keeps_its_step_and_others_run_hooks_once():
    class Plain(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            return "stepped"

    before = Plain.step
    assert not hasattr(before, "hooked")
    seen = []
    for _ in range(2):
        optimizer = Plain([nn.Parameter(rabbet.ones(1))])
        optimizer.register_step_post_hook(lambda *given: seen.append(1))
        assert optimizer.step() == "stepped"
    assert Plain.step.hooked and Plain.step.__wrapped__ is before and seen == [1, 1]
    assert optimizer._zero_grad_profile_name == "Optimizer.zero_grad#Plain.zero_grad"


def test_schedulers_do_not_keep_their_optimizer_alive_and_can_be_copied():
    _, optimizer = made()
    schedule = lr_scheduler.StepLR(optimizer, 1)
    copied = copy.deepcopy(schedule)
    assert copied.optimizer is not optimizer
    held = weakref.ref(optimizer)
    del schedule, optimizer
    gc.collect()
    assert held() is None


def test_what_is_no_optimizer_gets_no_scheduler():
    with pytest.raises(TypeError, match="is not an Optimizer"):
        lr_scheduler.StepLR(object(), 1)
