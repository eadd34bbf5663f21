"""GradScaler: against torch where it is installed, against numbers worked out by hand, and misuse."""

import copy
import math
import pickle

import pytest
import rabbet
from rabbet import amp, nn, optim

INF, NAN = math.inf, math.nan


def started(grads=((1.0, 2.0),), library=rabbet, optimizer="SGD", **options):
    """A scaler that has scaled once, parameters with gradients (times its scale), and their optimizer."""
    scaler = library.amp.GradScaler("cpu", **options)
    scaler.scale(library.ones(()))
    params = [library.zeros(len(g), requires_grad=True) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = library.tensor(g) * scaler.get_scale()
    made = getattr(library.optim, optimizer)(params, lr=1.0)
    return scaler, params, made


def test_scale_multiplies_and_keeps_the_structure():
    scaler = amp.GradScaler("cpu", init_scale=4.0)
    x = rabbet.tensor([1.0, 2.0])
    assert scaler.scale(x).tolist() == [4, 8]
    nested = scaler.scale([x, (x, [x])])
    assert type(nested) is list and type(nested[1]) is tuple and type(nested[1][1]) is list
    assert nested[1][1][0].tolist() == [4, 8]
    assert [t.tolist() for t in scaler.scale(t for t in (x, x))] == [[4, 8]] * 2
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("dtype", [rabbet.float16, rabbet.bfloat16, rabbet.float32, rabbet.float64])
def test_scale_keeps_the_dtype(dtype):
    scaled = amp.GradScaler("cpu").scale(rabbet.tensor(0.5, dtype=dtype))
    assert scaled.dtype == dtype and scaled.item() == 32768.0


def test_scaled_losses_have_scaled_gradients():
    w = rabbet.tensor([1.0, 2.0], requires_grad=True)
    scaler = amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((w * w).sum()).backward()
    assert w.grad.tolist() == [16, 32]


def test_a_good_step_and_the_growth_of_the_scale():
    scaler, (w,), optimizer = started(init_scale=8.0, growth_interval=2)
    scaler.step(optimizer)
    assert w.tolist() == [-1, -2] and w.grad.tolist() == [1, 2]
    scaler.update()
    assert scaler.get_scale() == 8.0 and scaler._get_growth_tracker() == 1
    w.grad = rabbet.ones(2) * 8
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 16.0 and scaler._get_growth_tracker() == 0


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("size", [1, 3, 17, 1000, 70000])
@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.bfloat16, rabbet.float64])
def test_one_bad_number_anywhere_skips_the_step(bad, size, dtype):
    for place in {0, size // 2, size - 1}:
        params = [
            rabbet.zeros(5, requires_grad=True),
            rabbet.zeros(size, dtype=dtype).requires_grad_(),
        ]
        scaler, optimizer = amp.GradScaler("cpu", init_scale=8.0), optim.SGD(params, lr=1.0)
        scaler.scale(rabbet.ones(()))
        for p in params:
            p.grad = rabbet.ones_like(p)
        params[1].grad[place] = bad
        scaler.step(optimizer)
        assert not params[0].any() and not params[1].any()
        scaler.update()
        assert scaler.get_scale() == 4.0 and scaler._get_growth_tracker() == 0


def test_many_gradients_of_all_sizes():
    sizes = [1, 300_000, 0, 7, 250_000, 20_000, 1]
    scaler, params, optimizer = started([[1.0]] * len(sizes), init_scale=4.0)
    for p, size in zip(params, sizes, strict=True):
        p.data = rabbet.zeros(size)
        p.grad = rabbet.full((size,), 12.0)
    scaler.unscale_(optimizer)
    assert all((p.grad == 3.0).all() for p in params)
    scaler.step(optimizer)
    assert all((p == -3.0).all() for p in params)
    scaler.update()
    assert scaler._get_growth_tracker() == 1


def test_gradients_that_are_no_rows_in_memory():
    w = rabbet.zeros(3, 4, requires_grad=True)
    w.grad = (rabbet.ones(4, 3) * 8).t()
    scaler, optimizer = amp.GradScaler("cpu", init_scale=8.0), optim.SGD([w], lr=1.0)
    scaler.scale(w)
    scaler.step(optimizer)
    assert w.tolist() == [[-1.0] * 4] * 3


def test_complex_gradients():
    w = rabbet.zeros(2, dtype=rabbet.complex64, requires_grad=True)
    w.grad = rabbet.tensor([8 + 8j, 16j])
    scaler, optimizer = amp.GradScaler("cpu", init_scale=8.0), optim.SGD([w], lr=1.0)
    scaler.scale(w)
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [1 + 1j, 2j]
    w.grad = rabbet.tensor([complex(1, INF), 0])
    scaler.update()
    scaler.step(optimizer)
    assert not w.any()


def test_parameters_without_gradients_are_left_alone():
    scaler, params, _ = started()
    frozen = rabbet.zeros(2, requires_grad=True)
    optimizer = optim.SGD([frozen, *params], lr=1.0)
    scaler.step(optimizer)
    assert frozen.grad is None and params[0].tolist() == [-1, -2]


def test_unscale_and_then_step():
    scaler, (w,), optimizer = started([[3.0, 4.0]])
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [3, 4]
    nn.utils.clip_grad_norm_([w], 1.0)
    scaler.step(optimizer)
    assert [round(v, 4) for v in w.tolist()] == [-0.6, -0.8]
    scaler.update()


def test_every_optimizer_is_judged_by_its_own_gradients():
    scaler, (bad,), first = started([[INF]])
    _, (good,), second = started([[1.0]], init_scale=scaler.get_scale())
    scaler.step(first)
    scaler.step(second)
    assert bad.tolist() == [0] and good.tolist() == [-1]
    assert [f.item() for f in scaler._found_inf_per_device(first).values()] == [1.0]
    assert [f.item() for f in scaler._found_inf_per_device(second).values()] == [0.0]
    scaler.update()
    assert scaler.get_scale() == 2.0**15


def test_step_gives_back_and_passes_on():
    scaler, _, optimizer = started()
    seen = []
    optimizer.step = lambda *args, **kwargs: seen.append((args, kwargs)) or "stepped"
    assert scaler.step(optimizer, 1, two=2) == "stepped" and seen == [((1,), {"two": 2})]


def test_an_optimizer_that_scales_by_itself():
    seen = []

    class Own(optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None):
            seen.append((self.grad_scale.item(), self.found_inf.item()))

    scaler, params, _ = started([[1.0, INF]], init_scale=8.0)
    optimizer = Own(params, lr=1.0)
    scaler.step(optimizer)
    scaler.update()
    assert seen == [(8.0, 1.0)] and scaler.get_scale() == 4.0
    assert params[0].grad[0].item() == 8.0 and not hasattr(optimizer, "found_inf")


def test_update_takes_a_scale():
    scaler, _, _ = started()
    scaler.update(5.0)
    assert scaler.get_scale() == 5.0
    scaler.update(rabbet.tensor(3.0))
    assert scaler.get_scale() == 3.0


def test_the_scale_stays_finite():
    scaler, (w,), optimizer = started(init_scale=2.0**127, growth_interval=1)
    w.grad = rabbet.ones(2)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**127


def test_a_disabled_scaler_does_nothing():
    scaler = amp.GradScaler("cpu", enabled=False)
    w = rabbet.zeros(1, requires_grad=True)
    w.grad = rabbet.ones(1)
    optimizer = optim.SGD([w], lr=1.0)
    loss = object()
    assert scaler.scale(loss) is loss and not scaler.is_enabled()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [-1] and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    scaler.load_state_dict({})
    assert scaler._get_growth_tracker() == 0


def test_cuda_without_its_backend():
    if amp._state.backend_of("cuda") is not None:
        pytest.skip("there is a CUDA backend")
    with pytest.warns(UserWarning, match="CUDA is not available.  Disabling"):
        assert not amp.GradScaler().is_enabled()


def test_state_dicts():
    scaler, (_w,), optimizer = started(
        init_scale=8.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7
    )
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 8.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.25,
        "growth_interval": 7,
        "_growth_tracker": 1,
    }
    for other in (amp.GradScaler("cpu"), started()[0]):
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert other.scale(rabbet.ones(1)).tolist() == [8.0]
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == state
    assert copy.deepcopy(scaler).state_dict() == state


def test_getters_and_setters():
    scaler = amp.GradScaler("cpu")
    for name, value in (("growth_factor", 4.0), ("backoff_factor", 0.25), ("growth_interval", 9)):
        getattr(scaler, f"set_{name}")(value)
        assert getattr(scaler, f"get_{name}")() == value


def half():
    w = rabbet.zeros(1, dtype=rabbet.float16, requires_grad=True)
    w.grad = rabbet.ones(1, dtype=rabbet.float16)
    return optim.SGD([w], lr=1.0)


def twice(name):
    def run(scaler, optimizer):
        getattr(scaler, name)(optimizer)
        getattr(scaler, name)(optimizer)

    return run


def step_then_unscale(scaler, optimizer):
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


MISUSE = {
    "growth": (lambda s, o: amp.GradScaler("cpu", growth_factor=1.0), AssertionError, "growth factor"),
    "backoff": (lambda s, o: amp.GradScaler("cpu", backoff_factor=1.0), AssertionError, "backoff factor"),
    "unscale first": (lambda s, o: amp.GradScaler("cpu").unscale_(o), AssertionError, "_scale is None"),
    "step first": (lambda s, o: amp.GradScaler("cpu").step(o), AssertionError, "_scale is None"),
    "update first": (lambda s, o: amp.GradScaler("cpu").update(), AssertionError, "_scale is None"),
    "update without step": (lambda s, o: s.update(), AssertionError, "No inf checks were recorded prior"),
    "step twice": (twice("step"), RuntimeError, r"step\(\) has already been called"),
    "unscale twice": (twice("unscale_"), RuntimeError, r"unscale_\(\) has already been called"),
    "unscale after step": (step_then_unscale, RuntimeError, r"being called after step\(\)"),
    "float16": (lambda s, o: s.unscale_(half()), ValueError, "Attempting to unscale FP16 gradients"),
    "float16 step": (lambda s, o: s.step(half()), ValueError, "Attempting to unscale FP16 gradients"),
    "closure": (lambda s, o: s.step(o, closure=lambda: 0), RuntimeError, "Closure use"),
    "no gradients": (
        lambda s, o: s.step(optim.SGD([rabbet.zeros(1, requires_grad=True)], lr=1.0)),
        AssertionError,
        "No inf checks were recorded for this optimizer",
    ),
    "scale of a number": (lambda s, o: s.scale(3.0), ValueError, "outputs must be a Tensor"),
    "scale of a list of numbers": (lambda s, o: s.scale([3.0]), ValueError, "outputs must be a Tensor"),
    "scale of None": (lambda s, o: s.scale(None), ValueError, "outputs must be a Tensor"),
    "a large new scale": (lambda s, o: s.update(rabbet.ones(2)), AssertionError, "new_scale should be"),
    "a recorded new scale": (
        lambda s, o: s.update(rabbet.ones(1, requires_grad=True)),
        AssertionError,
        "new_scale should be",
    ),
    "an elsewhere new scale": (
        lambda s, o: s.update(rabbet.ones(1, device="meta")),
        AssertionError,
        "new_scale should be",
    ),
    "an empty state dict": (lambda s, o: s.load_state_dict({}), RuntimeError, "state dict is empty"),
    "a pickle in between": (lambda s, o: (s.unscale_(o), pickle.dumps(s)), AssertionError, "pickled"),
}  # fmt: skip


@pytest.mark.parametrize("misuse", MISUSE)
def test_misuse(misuse):
    call, error, message = MISUSE[misuse]
    scaler, _, optimizer = started()
    with pytest.raises(error, match=message):
        call(scaler, optimizer)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_run_with_overflows_is_torchs(optimizer):
    torch = pytest.importorskip("torch")
    grads = [[1.0, 2.0], [INF, 1.0], [0.5, 0.5], [NAN, NAN], [1.0, 1.0], [1e-3, 2.0], [4.0, 4.0]]
    runs = {}
    for library in (rabbet, torch):
        options = {
            "init_scale": 1000.0,
            "growth_factor": 1.7,
            "backoff_factor": 0.3,
            "growth_interval": 2,
        }
        scaler, (w,), made = started(library=library, optimizer=optimizer, **options)
        runs[library] = []
        for i, g in enumerate(grads):
            w.grad = scaler.scale(library.tensor(g))
            if i % 2:
                scaler.unscale_(made)
            scaler.step(made)
            scaler.update()
            runs[library].append(
                (scaler.get_scale(), scaler.state_dict()["_growth_tracker"], w.tolist())
            )
    for ours, theirs in zip(runs[rabbet], runs[torch], strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2] == pytest.approx(theirs[2], rel=1e-6)
