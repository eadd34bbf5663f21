"""Schedules against their closed forms, and against PyTorch where installed."""

import math
import warnings

import pytest
import rabbet
from rabbet import optim
from rabbet.optim import lr_scheduler

N = 12
COS = [0.01 + 0.09 * (1 + math.cos(math.pi * i / 4)) / 2 for i in range(N + 1)]
# (scheduler, arguments, rates of a first rate of 0.1)
CLOSED = [
    ("StepLR", (3, 0.5), [0.1 * 0.5 ** (i // 3) for i in range(N + 1)]),
    (
        "MultiStepLR",
        ([2, 5, 5], 0.3),
        [0.1 * 0.3 ** ((i >= 2) + 2 * (i >= 5)) for i in range(N + 1)],
    ),
    ("ExponentialLR", (0.9,), [0.1 * 0.9**i for i in range(N + 1)]),
    ("CosineAnnealingLR", (4, 0.01), COS),
    (
        "CosineAnnealingWarmRestarts",
        (4, 2, 0.01),
        [0.01 + 0.045 * (1 + math.cos(math.pi * t)) for t in [0, 0.25, 0.5, 0.75]]
        + [0.01 + 0.045 * (1 + math.cos(math.pi * i / 8)) for i in range(8)]
        + [0.1],
    ),
    ("LinearLR", (0.2, 0.9, 5), [0.1 * (0.2 + 0.7 * min(i, 5) / 5) for i in range(N + 1)]),
    ("ConstantLR", (0.5, 3), [0.1 * (0.5 if i < 3 else 1) for i in range(N + 1)]),
    ("PolynomialLR", (5, 2.0), [0.1 * (1 - min(i, 5) / 5) ** 2 for i in range(N + 1)]),
    ("LambdaLR", (lambda i: 1 / (i + 1),), [0.1 / (i + 1) for i in range(N + 1)]),
    ("MultiplicativeLR", (lambda i: 0.9,), [0.1 * 0.9**i for i in range(N + 1)]),
]
ONE_CYCLE = [
    {"total_steps": N + 1},
    {"epochs": 5, "steps_per_epoch": 3, "anneal_strategy": "linear", "pct_start": 0.5},
    {"total_steps": N + 4, "three_phase": True, "div_factor": 10.0, "final_div_factor": 100.0},
    {"total_steps": N + 1, "cycle_momentum": False},
]


def make(library=rabbet, name="SGD", **options):
    p = library.zeros(2).requires_grad_()
    return getattr(library.optim, name)([p], lr=0.1, **options)


def rates(optimizer, scheduler, steps=N):
    out = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        out.append(optimizer.param_groups[0]["lr"])
    return out


@pytest.mark.parametrize("name,args,expected", CLOSED, ids=[c[0] for c in CLOSED])
def test_rates_equal_the_closed_form(name, args, expected):
    optimizer = make()
    assert rates(optimizer, getattr(lr_scheduler, name)(optimizer, *args)) == pytest.approx(
        expected
    )


@pytest.mark.parametrize("name,args,expected", CLOSED, ids=[c[0] for c in CLOSED])
def test_a_restored_scheduler_goes_on(name, args, expected):
    optimizer = make()
    first = getattr(lr_scheduler, name)(optimizer, *args)
    rates(optimizer, first, 4)
    other = make()
    second = getattr(lr_scheduler, name)(other, *args)
    other.load_state_dict(optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert second.last_epoch == 4
    assert rates(other, second, N - 4) == pytest.approx(expected[4:])


@pytest.mark.parametrize("name,args,expected", CLOSED[:8], ids=[c[0] for c in CLOSED[:8]])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_a_step_may_jump(name, args, expected):
    optimizer = make()
    scheduler = getattr(lr_scheduler, name)(optimizer, *args)
    optimizer.step()
    scheduler.step(6)
    assert scheduler.get_last_lr() == pytest.approx([expected[6]])


@pytest.mark.parametrize("i", range(len(ONE_CYCLE)))
@pytest.mark.parametrize("name,extra", [("SGD", {"momentum": 0.5}), ("Adam", {})])
def test_one_cycle_equals_pytorch(i, name, extra):
    torch = pytest.importorskip("torch")
    runs = []
    for library in (rabbet, torch):
        optimizer = make(library, name, **extra)
        scheduler = library.optim.lr_scheduler.OneCycleLR(optimizer, 0.4, **ONE_CYCLE[i])
        run = []
        for _ in range(N):
            group = optimizer.param_groups[0]
            run += [group["lr"], group["momentum"] if name == "SGD" else group["betas"][0]]
            optimizer.step()
            scheduler.step()
        runs.append(run)
    assert runs[0] == pytest.approx(runs[1])


def test_one_cycle_by_its_definition():
    optimizer = make()
    scheduler = lr_scheduler.OneCycleLR(
        optimizer,
        1.0,
        total_steps=11,
        pct_start=0.5,
        anneal_strategy="linear",
        cycle_momentum=False,
    )
    got = rates(optimizer, scheduler, 10)
    up, first, last = 4.5, 1 / 25, 1 / 25e4
    expected = [
        first + (1 - first) * i / up if i <= up else 1 + (last - 1) * (i - up) / (10 - up)
        for i in range(11)
    ]
    assert got == pytest.approx(expected)
    scheduler.step()
    with pytest.raises(ValueError, match="Tried to step 12 times"):
        scheduler.step()


def sequence(module, optimizer):
    parts = [
        module.ConstantLR(optimizer, 0.1, 2),
        module.ExponentialLR(optimizer, 0.9),
        module.StepLR(optimizer, 2),
    ]
    return module.SequentialLR(optimizer, parts, [3, 7])


def test_sequential_runs_one_after_the_other():
    optimizer = make()
    got = rates(optimizer, sequence(lr_scheduler, optimizer))
    assert got == pytest.approx(
        [0.01, 0.01, 0.1] + [0.1 * 0.9**i for i in range(4)] + [0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3]
    )


def test_sequential_equals_pytorch_and_is_restored():
    torch = pytest.importorskip("torch")
    optimizer, other = make(), make(torch)
    scheduler = sequence(lr_scheduler, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = rates(other, sequence(torch.optim.lr_scheduler, other))
    begun = rates(optimizer, scheduler, 5)
    fresh = make()
    restored = sequence(lr_scheduler, fresh)
    restored.load_state_dict(scheduler.state_dict())
    fresh.load_state_dict(optimizer.state_dict())
    assert begun + rates(fresh, restored, N - 5)[1:] == pytest.approx(expected)


METRICS = [5, 4, 4, 4, 4, 3, 3, 3, 6, 6, 6, 6, 6, float("nan"), 7, 7, 7]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("cooldown", [0, 2])
def test_plateau_equals_pytorch(mode, threshold_mode, cooldown):
    torch = pytest.importorskip("torch")
    runs = []
    for library in (rabbet, torch):
        optimizer = make(library)
        scheduler = library.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode, 0.5, 1, 0.01, threshold_mode, cooldown, min_lr=0.01
        )
        run = []
        for metric in METRICS:
            scheduler.step(metric)
            run.append(scheduler.get_last_lr()[0])
        runs.append(run)
    assert runs[0] == pytest.approx(runs[1]) and runs[0][-1] < 0.1


def test_plateau_waits_and_takes_tensors():
    optimizer = make()
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.5)
    got = []
    for metric in [1.0, 1.0, 1.0, 1.0, 0.5, 0.5]:
        scheduler.step(rabbet.tensor(metric))
        got.append(optimizer.param_groups[0]["lr"])
    assert got == [0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
    other = make()
    twin = lr_scheduler.ReduceLROnPlateau(other)
    twin.load_state_dict(scheduler.state_dict())
    assert twin.best == 0.5 and twin.patience == 2 and twin.optimizer is other


def test_tensor_rates_are_changed_in_place():
    lr = rabbet.tensor(0.1)
    optimizer = optim.SGD([rabbet.zeros(1).requires_grad_()], lr=lr)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr and lr.item() == pytest.approx(0.05)


def test_each_group_has_its_own_rate():
    a, b = rabbet.zeros(1).requires_grad_(), rabbet.zeros(1).requires_grad_()
    optimizer = optim.SGD([{"params": [a], "lr": 1.0}, {"params": [b]}], lr=0.1)
    scheduler = lr_scheduler.LambdaLR(optimizer, [lambda i: 0.5**i, lambda i: 1.0])
    optimizer.step()
    scheduler.step()
    assert scheduler.get_last_lr() == pytest.approx([0.5, 0.1])


def test_callable_objects_travel_in_the_state():
    class Slope:
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, i):
            return 1 - self.rate * i

    a = lr_scheduler.LambdaLR(make(), Slope(0.1))
    b = lr_scheduler.LambdaLR(make(), Slope(0.7))
    b.load_state_dict(a.state_dict())
    assert b.lr_lambdas[0].rate == 0.1
    assert lr_scheduler.LambdaLR(make(), abs).state_dict()["lr_lambdas"] == [{}]


def test_stepping_before_the_optimizer_warns():
    optimizer = make()
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def test_resuming_needs_initial_rates():
    optimizer = make()
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optimizer, 3, last_epoch=4)
    optimizer.param_groups[0]["initial_lr"] = 0.2
    assert lr_scheduler.LambdaLR(optimizer, lambda i: i, last_epoch=4).get_last_lr() == [1.0]


BAD = [
    (lambda: lr_scheduler.StepLR(3, 1), TypeError, "int is not an Optimizer"),
    (lambda: lr_scheduler.StepLR(make(), 0), ValueError, "step_size"),
    (lambda: lr_scheduler.CosineAnnealingLR(make(), 0), ValueError, "T_max"),
    (
        lambda: lr_scheduler.CosineAnnealingWarmRestarts(make(), 0),
        ValueError,
        "Expected positive integer T_0, but got 0",
    ),
    (lambda: lr_scheduler.LinearLR(make(), 0.0), ValueError, "greater than 0"),
    (lambda: lr_scheduler.LinearLR(make(), 0.5, 2.0), ValueError, "between 0 and 1"),
    (lambda: lr_scheduler.ConstantLR(make(), 2.0), ValueError, "between 0 and 1"),
    (
        lambda: lr_scheduler.LambdaLR(make(), [abs, abs]),
        ValueError,
        "expected 1 values in lr_lambda, got 2",
    ),
    (lambda: lr_scheduler.OneCycleLR(make(), 1.0), ValueError, "total_steps OR"),
    (lambda: lr_scheduler.OneCycleLR(make(), 1.0, -1), ValueError, "positive integer total_steps"),
    (
        lambda: lr_scheduler.OneCycleLR(make(), 1.0, epochs=0, steps_per_epoch=1),
        ValueError,
        "positive integer epochs",
    ),
    (lambda: lr_scheduler.OneCycleLR(make(), 1.0, 5, pct_start=1.5), ValueError, "pct_start"),
    (
        lambda: lr_scheduler.OneCycleLR(make(), 1.0, 5, anneal_strategy="x"),
        ValueError,
        "anneal_strategy",
    ),
    (lambda: lr_scheduler.OneCycleLR(make(), [1.0, 2.0], 5), ValueError, "max_lr"),
    (lambda: lr_scheduler.SequentialLR(make(), [], []), ValueError, "at least one scheduler"),
    (lambda: sequence(lr_scheduler, make()).step(3), ValueError, "given epoch"),
    (
        lambda: lr_scheduler.ReduceLROnPlateau(make(), factor=1.0),
        ValueError,
        "Factor should be < 1.0",
    ),
    (lambda: lr_scheduler.ReduceLROnPlateau(make(), "up"), ValueError, "mode up is unknown"),
    (
        lambda: lr_scheduler.ReduceLROnPlateau(make(), threshold_mode="x"),
        ValueError,
        "threshold mode x",
    ),
    (lambda: lr_scheduler.ReduceLROnPlateau(3), TypeError, "not an Optimizer"),
    (lambda: lr_scheduler.LRScheduler(make()), NotImplementedError, "get_lr"),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_use_is_refused_clearly(i):
    act, error, text = BAD[i]
    with pytest.raises(error) as caught:
        act()
    assert text in str(caught.value)


def test_sequential_refuses_what_does_not_fit():
    a, b = make(), make()
    first, second = lr_scheduler.StepLR(a, 1), lr_scheduler.StepLR(b, 1)
    with pytest.raises(ValueError, match="same optimizer"):
        lr_scheduler.SequentialLR(a, [first, second], [3])
    with pytest.raises(ValueError, match="one more than the number"):
        lr_scheduler.SequentialLR(a, [first], [3])
    with pytest.raises(ValueError, match="needs arguments in `step`"):
        lr_scheduler.SequentialLR(a, [lr_scheduler.ReduceLROnPlateau(a)], [])


def test_chained_schedulers_all_step():
    optimizer = make()
    parts = [lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    chained = lr_scheduler.ChainedScheduler(parts, optimizer)
    got = rates(optimizer, chained, 5)
    assert got == pytest.approx([0.1 * 0.9**i * (0.1 if i < 2 else 1) for i in range(6)])
    with pytest.raises(ValueError, match="but got no scheduler"):
        lr_scheduler.ChainedScheduler([])
