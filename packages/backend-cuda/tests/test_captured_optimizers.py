"""Steps of optimizers in graphs of whole steps, on the simulator: those of the CPU, with the count on the device."""

CODE = """
import pytest, numpy as np, rabbet
from rabbet import cuda, optim
start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
data = np.linspace(-2, 1, 20, dtype=np.float32).reshape(5, 4)
def run(place, make, wrap, load=False):
    w = rabbet.tensor(start).to(place).requires_grad_()
    opt = make([w])
    def train(x):
        opt.zero_grad()
        loss = ((x @ w.t()) ** 2).sum()
        loss.backward()
        opt.step()
        return loss
    step = wrap(train)
    losses = [float(step(rabbet.tensor(data * (n + 1) / 5).to(place))) for n in range(6)]
    return losses, w.detach().cpu().numpy(), opt
MAKE = {
    "adam": lambda p: optim.Adam(p, lr=0.1, weight_decay=0.01, amsgrad=True, capturable=True),
    "sgd": lambda p: optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: optim.AdamW(p, lr=0.1, maximize=False, capturable=True),
}
for name, make in MAKE.items():
    expected, weights, _ = run("cpu", make, lambda f: f)
    for wrap in (cuda.graph, lambda f: f):
        found, w, opt = run("cuda", make, wrap)
        assert np.allclose(found, expected, rtol=2e-4), (name, found, expected)
        assert np.allclose(w, weights, rtol=1e-3, atol=1e-5), name
        if name == "sgd":
            continue
        (state,) = opt.state.values()
        assert state["step"].is_cuda and state["step"].item() == 6
        opt.load_state_dict(opt.state_dict())
        assert float(opt.state_dict()["state"][0]["step"]) == 6
        opt.step()
        assert next(iter(opt.state.values()))["step"].item() == 7
for make in (lambda p: optim.Adam(p), lambda p: optim.NAdam(p)):
    with pytest.raises(RuntimeError, match="Attempting CUDA graph capture of step"):
        run("cuda", make, cuda.graph)
"""


def test_captured_optimizers_make_the_steps_of_the_cpu(simulator, run):
    run(CODE, **simulator)
