"""Steps of optimizers in graphs of whole steps, on the simulator: those of the CPU, with the count on the device."""

BEGIN = """
import itertools, pytest, numpy as np, rabbet
from rabbet import amp, cuda, optim
start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
data = np.linspace(-2, 1, 20, dtype=np.float32).reshape(5, 4)
def run(place, make, wrap, steps=6):
    w = rabbet.tensor(start).to(place).requires_grad_()
    b = rabbet.zeros(3, device=place).requires_grad_()
    opt = make([w, b])
    def train(x):
        opt.zero_grad()
        loss = ((x @ w.t() + b) ** 2).sum()
        loss.backward()
        opt.step()
        return loss
    step = wrap(train)
    losses = [float(step(rabbet.tensor(data * (n + 1) / 5).to(place))) for n in range(steps)]
    return losses, [t.detach().cpu().numpy() for t in (w, b)], opt
def same(found, expected, what):
    assert np.allclose(found[0], expected[0], rtol=2e-4), (what, found[0], expected[0])
    for ours, theirs in zip(found[1], expected[1]):
        assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-5), what
"""
EVERY = """
MAKE = {
    "Adam": dict(lr=0.1, weight_decay=0.01, amsgrad=True, capturable=True),
    "AdamW": dict(lr=0.1, maximize=True, capturable=True, fused=True),
    "SGD": dict(lr=0.01, momentum=0.9),
    "RMSprop": dict(lr=0.01, momentum=0.5, centered=True, capturable=True),
    "Adagrad": dict(lr=0.1, lr_decay=0.5, weight_decay=0.1, fused=True),
    "Adamax": dict(lr=0.1, weight_decay=0.1, capturable=True),
    "NAdam": dict(lr=0.1, decoupled_weight_decay=True, weight_decay=0.1, capturable=True),
    "RAdam": dict(lr=0.1, betas=(0.5, 0.9), capturable=True),  # rectified from the sixth step on
    "ASGD": dict(lr=0.01, t0=2, lambd=0.1, capturable=True),
    "Adadelta": dict(rho=0.5, capturable=True),
    "Rprop": dict(capturable=True),
}
for name, options in MAKE.items():
    make = lambda p: getattr(optim, name)(p, **options)
    expected = run("cpu", make, lambda f: f, 9)
    for wrap in (cuda.graph, lambda f: f):
        found = run("cuda", make, wrap, 9)
        same(found, expected, name)
        opt = found[2]
        if name == "SGD":
            continue
        for state in opt.state.values():
            assert state["step"].is_cuda and state["step"].dtype == rabbet.float32 and state["step"].item() == 9
        opt.load_state_dict(opt.state_dict())
        assert float(opt.state_dict()["state"][0]["step"]) == 9
        assert all(state["step"].is_cuda for state in opt.state.values())
        opt.step()
        assert next(iter(opt.state.values()))["step"].item() == 10
"""
RATES = """
# A learning rate in a tensor on the device changes between launches, by hand and by a scheduler.
MAKE = {"Adam": dict(capturable=True), "SGD": dict(momentum=0.5), "RMSprop": dict(capturable=True), "Adagrad": dict(fused=True)}
MAKE |= {name: dict(capturable=True) for name in ("NAdam", "RAdam", "Adamax", "ASGD", "Adadelta")}
for name, options in MAKE.items():
    def scheduled(place, wrap):
        lr = rabbet.tensor(0.1, device=place) if place == "cuda" else 0.1
        made = []
        def make(p):
            made.append(getattr(optim, name)(p, lr=lr, **options))
            made.append(optim.lr_scheduler.ExponentialLR(made[0], 0.5))
            return made[0]
        def halving(f):
            inner = wrap(f)
            def step(x):
                loss = inner(x)
                made[1].step()
                return loss
            return step
        return run(place, make, halving)
    expected = scheduled("cpu", lambda f: f)
    same(scheduled("cuda", cuda.graph), expected, name)
    same(scheduled("cuda", lambda f: f), expected, name)
"""
REFUSED = """
for make in (lambda p: optim.Adam(p), lambda p: optim.NAdam(p), lambda p: optim.RMSprop(p), lambda p: optim.Adam(p, fused=True)):
    with pytest.raises(RuntimeError, match="Attempting CUDA graph capture of step.* but param_groups' capturable is False"):
        run("cuda", make, cuda.graph)
with pytest.raises(RuntimeError, match="Attempting CUDA graph capture of step.*lr_decay"):
    run("cuda", lambda p: optim.Adagrad(p, lr_decay=0.1), cuda.graph)
run("cuda", lambda p: optim.Adagrad(p), cuda.graph)  # no step depends on its number
"""
WARNED = """
import warnings
def steps_of(make, place="cuda", wrap=lambda f: f):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run(place, make, wrap)
    return [str(w.message) for w in found if "capturable=True" in str(w.message)]
for make in (lambda p: optim.Adam(p, capturable=True), lambda p: optim.RAdam(p, capturable=True)):
    said = steps_of(make)
    assert len(said) == 1 and "but step() is running without CUDA graph capture" in said[0], said
    assert steps_of(make, "cpu") == [] and steps_of(make, wrap=cuda.graph) == []
halves = lambda p: optim.Adam([{"params": p[:1], "capturable": True}, {"params": p[1:]}])
assert steps_of(halves) == [] and steps_of(optim.Adam) == []
"""
COMPLEX = """
def complex_steps(place, name, wrap):
    z = rabbet.tensor((start + 1j * start[::-1]).astype(np.complex64)).to(place).requires_grad_()
    opt = getattr(optim, name)([z], lr=0.05, capturable=True)
    def train(x):
        opt.zero_grad()
        ((z.real * x) ** 2 + z.imag ** 2).sum().backward()
        opt.step()
    step = wrap(train)
    for n in range(5):
        step(rabbet.tensor(data[:1] * (n + 1)).to(place))
    return z.detach().cpu().numpy()
for name in ("Adam", "NAdam", "RMSprop", "ASGD"):
    assert np.allclose(complex_steps("cuda", name, cuda.graph), complex_steps("cpu", name, lambda f: f), rtol=1e-4, atol=1e-5), name
"""
SCALED = """
# With a GradScaler: the third step meets an infinite gradient, which halves the scale and is skipped on the device.
def scaled(place, make, wrap, dtype=rabbet.float32):
    w = rabbet.tensor(start).to(place, dtype).requires_grad_()
    opt = make([w])
    scaler = amp.GradScaler(place, init_scale=1024.0, growth_interval=2)
    def train(x):
        opt.zero_grad()
        loss = ((x @ w.t()) ** 2).sum()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        return loss
    step = wrap(train)
    scales, grads = [], []
    for n in range(6):
        x = data * (n + 1) / 5
        step(rabbet.tensor(x * np.inf if n == 2 else x).to(place, dtype))
        scales.append(scaler.get_scale())
        grads.append(w.grad.detach().cpu().numpy())
    return w.detach().cpu().numpy(), scales, grads, opt
def plain(place, make):
    w = rabbet.tensor(start).to(place).requires_grad_()
    opt = make([w])
    for n in (0, 1, 3, 4, 5):
        opt.zero_grad()
        ((rabbet.tensor(data * (n + 1) / 5).to(place) @ w.t()) ** 2).sum().backward()
        opt.step()
    return w.detach().cpu().numpy(), w.grad.cpu().numpy()
MAKE = {"Adam": dict(capturable=True), "AdamW": dict(capturable=True, amsgrad=True), "SGD": dict(momentum=0.9, dampening=0.1), "Adagrad": dict(lr_decay=0.1)}
for name, options in MAKE.items():
    make = lambda p: getattr(optim, name)(p, lr=0.01, fused=True, **options)
    expected, last = plain("cpu", make)
    for place, wrap in (("cuda", cuda.graph), ("cuda", lambda f: f), ("cpu", lambda f: f)):
        w, scales, grads, opt = scaled(place, make, wrap)
        assert scales == [1024, 2048, 1024, 1024, 2048, 2048], (name, place, scales)
        assert np.allclose(w, expected, rtol=1e-4, atol=1e-6), (name, place)
        assert np.allclose(grads[-1], last, rtol=1e-4, atol=1e-5), (name, place)  # they are left unscaled
        if name != "SGD":
            assert opt.state_dict()["state"][0]["step"].item() == 5
"""


MANY = """
# Of 70 tensors one launch takes 64, and a third of them has made more steps than the rest.
COUNT = 70
def many(place, name, options, wrap):
    params = [rabbet.tensor(start[k % 3] + k / 50).to(place).requires_grad_() for k in range(COUNT)]
    opt = getattr(optim, name)(params, lr=0.05, **options)
    def backward(x, chosen):
        opt.zero_grad()
        sum(((p * x) ** 2).sum() for p in chosen).backward()
    for k in range(3):
        backward(rabbet.tensor(data[k]).to(place), params[::3])
        opt.step()
    def train(x):
        backward(x, params)
        opt.step()
    step = wrap(train)
    for n in range(4):
        step(rabbet.tensor(data[n]).to(place))
    steps = [float(opt.state[p]["step"]) for p in params]
    assert steps == ([7.0, 4.0, 4.0] * COUNT)[:COUNT], steps
    return [p.detach().cpu().numpy() for p in params]
for name, options in {"Adam": dict(capturable=True), "NAdam": dict(capturable=True), "RAdam": dict(capturable=True),
                      "Adamax": dict(capturable=True), "Adagrad": dict(fused=True, lr_decay=0.5)}.items():
    expected = many("cpu", name, options, lambda f: f)
    for wrap in (lambda f: f, cuda.graph):
        for k, (ours, theirs) in enumerate(zip(many("cuda", name, options, wrap), expected)):
            assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-6), (name, k)
"""


def test_many_tensors_with_unequal_steps(simulator, run):
    run(BEGIN + MANY, **simulator)


def test_captured_optimizers_make_the_steps_of_the_cpu(simulator, run):
    run(BEGIN + EVERY, **simulator)


def test_learning_rates_on_the_device_change_between_launches(simulator, run):
    run(BEGIN + RATES, **simulator)


def test_captures_without_a_count_on_the_device_are_refused(simulator, run):
    run(BEGIN + REFUSED + COMPLEX, **simulator)


def test_capturable_steps_without_a_capture_warn_once(simulator, run):
    run(BEGIN + WARNED, **simulator)


def test_scaled_steps_are_skipped_on_the_device(simulator, run):
    run(BEGIN + SCALED, **simulator)
