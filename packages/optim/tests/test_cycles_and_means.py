"""CyclicLR, SWALR and the means of weights, against their formulas."""

import math

import numpy as np
import pytest
import rabbet
from rabbet import nn, optim
from rabbet.optim import lr_scheduler, swa_utils


def optimizer(name="SGD", **options):
    params = [rabbet.zeros(2, requires_grad=True), rabbet.zeros(3, requires_grad=True)]
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.03}]
    return getattr(optim, name)(groups, lr=0.1, **options)


def rates(op, scheduler, steps=60):
    found = []
    for _ in range(steps):
        op.step()
        scheduler.step()
        found.append([group["lr"] for group in op.param_groups])
        assert scheduler.get_last_lr() == found[-1]
    return np.array(found)


def triangle(step, up, down):
    at = step % (up + down)
    return at / up if at <= up else (up + down - at) / down


@pytest.mark.parametrize("mode", ["triangular", "triangular2", "exp_range"])
def test_a_cycle_goes_up_and_down(mode):
    op = optimizer(momentum=0.9)
    scheduler = lr_scheduler.CyclicLR(op, 0.01, [0.1, 0.3], 7, 5, mode=mode, gamma=0.97)
    assert [g["momentum"] for g in op.param_groups] == [0.9, 0.9]
    found = rates(op, scheduler)
    for i, row in enumerate(found, start=1):
        factor = {"triangular": 1, "triangular2": 0.5 ** (i // 12), "exp_range": 0.97**i}[mode]
        height = triangle(i, 7, 5) * factor
        assert row == pytest.approx([0.01 + 0.09 * height, 0.01 + 0.29 * height])
    assert op.param_groups[0]["momentum"] == pytest.approx(0.9 - 0.1 * height)


def test_a_cycle_with_a_function_and_adams_beta():
    op = optimizer("Adam")
    scheduler = lr_scheduler.CyclicLR(op, 0.01, 0.1, 6, scale_fn=lambda cycle: 1 / cycle)
    found = rates(op, scheduler, 30)
    height = triangle(30, 6, 6) / 3
    assert found[-1] == pytest.approx([0.01 + 0.09 * height] * 2)
    assert op.param_groups[0]["betas"] == pytest.approx((0.9 - 0.1 * height, 0.999))
    state = scheduler.state_dict()
    again = lr_scheduler.CyclicLR(optimizer("Adam"), 0.01, 0.1, 6, scale_fn=lambda cycle: 1 / cycle)
    again.load_state_dict(state)
    assert again.last_epoch == 30 and again.scale_fn(4) == 0.25


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 8])
def test_swalr_goes_to_its_rate_and_stays(strategy, epochs):
    op = optimizer()
    found = rates(op, swa_utils.SWALR(op, [0.05, 0.2], epochs, strategy), 20)
    for i, row in enumerate(found, start=1):
        t = min(1, i / epochs) if epochs else 1
        part = t if strategy == "linear" else (1 - math.cos(math.pi * t)) / 2
        assert row == pytest.approx([0.1 + (0.05 - 0.1) * part, 0.03 + (0.2 - 0.03) * part])


def model():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def fill(net, value):
    with rabbet.no_grad():
        for t in (*net.parameters(), net[1].running_mean):
            t.fill_(value)


MEANS = {
    "plain": ({}, lambda v: np.mean(v)),
    "multi": ({"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}, lambda v: np.mean(v)),
    "one": ({"avg_fn": swa_utils.get_swa_avg_fn()}, lambda v: np.mean(v)),
    "ema": ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.75)}, None),
    "ema, one": ({"avg_fn": swa_utils.get_ema_avg_fn(0.75)}, None),
}


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("kind", MEANS)
def test_means_of_parameters(kind, use_buffers):
    options, mean = MEANS[kind]
    net, values, want = model(), [1.0, 3.0, 8.0], None
    averaged = swa_utils.AveragedModel(net, use_buffers=use_buffers, **options)
    for value in values:
        fill(net, value)
        averaged.update_parameters(net)
        want = value if want is None else 0.75 * want + 0.25 * value
    want = want if mean is None else mean(values)
    state = averaged.state_dict()
    assert state["n_averaged"].item() == 3 and state["module.0.weight"][0, 0].item() == want
    buffer = state["module.1.running_mean"][0].item()
    assert buffer == (want if use_buffers else 8.0)
    assert averaged(rabbet.ones(4, 3)).shape == (4, 2) and net[0].weight[0, 0].item() == 8.0


def test_statistics_are_those_of_all_batches():
    net = model().eval()
    batches = [rabbet.randn(6, 3) for _ in range(4)]
    swa_utils.update_bn(((b, 0) for b in batches), net)
    seen = np.stack([net[0](b).detach().numpy() for b in batches])
    assert np.allclose(net[1].running_mean.numpy(), seen.mean((0, 1)), atol=1e-6)
    assert np.allclose(net[1].running_var.numpy(), seen.var(1, ddof=1).mean(0), atol=1e-6)
    assert not net.training and net[1].momentum == 0.1


BAD = [
    (lambda: lr_scheduler.CyclicLR(optimizer(), 0.1, 0.2, mode="round", cycle_momentum=False), ValueError, "mode is invalid and scale_fn is None"),
    (lambda: lr_scheduler.CyclicLR(optimizer("Adagrad"), 0.1, 0.2), ValueError, "must support momentum or beta1"),
    (lambda: lr_scheduler.CyclicLR(3, 0.1, 0.2), TypeError, "int is not an Optimizer"),
    (lambda: lr_scheduler.CyclicLR(optimizer(momentum=0.9), [0.1], 0.2), ValueError, "expected 2 values in base_lr, got 1"),
    (lambda: swa_utils.SWALR(optimizer(), 0.1, anneal_strategy="exp"), ValueError, "anneal_strategy must be one of"),
    (lambda: swa_utils.SWALR(optimizer(), 0.1, anneal_epochs=-1), ValueError, "equal or greater than 0, got -1"),
    (lambda: swa_utils.get_ema_avg_fn(1.5), ValueError, "Invalid decay value 1.5"),
    (lambda: swa_utils.AveragedModel(model(), avg_fn=max, multi_avg_fn=max), AssertionError, "Only one of avg_fn"),
]  # fmt: skip


@pytest.mark.parametrize("make, error, message", BAD, ids=[m for _, _, m in BAD])
def test_bad_options_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_older_names():
    class Mine(lr_scheduler._LRScheduler):
        def get_lr(self):
            return [0.5, 0.25]

    assert Mine(optimizer()).get_last_lr() == [0.5, 0.25]
    assert optim.swa_utils is swa_utils
    with pytest.raises(AttributeError, match="has no attribute 'swa'"):
        _ = optim.swa
