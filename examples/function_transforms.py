"""Per-sample gradients, an ensemble, a Hessian and a MAML step, by transforms of functions.

    python examples/function_transforms.py            # prints what each takes, beside a loop
    python examples/function_transforms.py --torch    # and beside torch.func, where torch is installed

Each task returns one tensor, written with the names that `rabbet.func` and `torch.func` share.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def library(name: str) -> SimpleNamespace:
    """The modules of `rabbet` or `torch` that the tasks use."""
    return SimpleNamespace(
        t=importlib.import_module(name),
        nn=importlib.import_module(f"{name}.nn"),
        F=importlib.import_module(f"{name}.nn.functional"),
        func=importlib.import_module(f"{name}.func"),
    )


def numbers(lib: Any, *shape: int, scale: float = 1.0) -> Any:
    """Fixed numbers that look irregular, the same in either library."""
    count = 1
    for size in shape:
        count *= size
    x = lib.t.arange(count, dtype=lib.t.float32)
    return (scale * (x * 12.9898 + 78.233).sin()).reshape(shape)


def parameters(lib: Any, model: Any) -> dict[str, Any]:
    """Fixed parameters for a model."""
    return {
        name: numbers(lib, *p.shape, scale=1.0 / (p.numel() // p.shape[0] + 1) ** 0.5)
        for name, p in model.named_parameters()
    }


def flat(lib: Any, tree: dict[str, Any]) -> Any:
    """All tensors of a dict as one vector."""
    return lib.t.cat([value.reshape(-1) for value in tree.values()])


def per_sample(lib: Any, model: Any, x: Any) -> dict[str, Callable[[], Any]]:
    """The gradient of each sample's loss: (samples, parameters)."""
    params, y = parameters(lib, model), lib.t.arange(x.shape[0]) % 10

    def loss(params: dict[str, Any], x: Any, y: Any) -> Any:
        out = lib.func.functional_call(model, params, (x.unsqueeze(0),))
        return lib.F.cross_entropy(out, y.unsqueeze(0))

    gradient = lib.func.grad(loss)
    batched = lib.func.vmap(gradient, in_dims=(None, 0, 0))

    def together() -> Any:
        grads = batched(params, x, y)
        return lib.t.cat([g.reshape(x.shape[0], -1) for g in grads.values()], 1)

    def loop() -> Any:
        return lib.t.stack([flat(lib, gradient(params, x[i], y[i])) for i in range(x.shape[0])])

    return {"together": together, "loop": loop}


def mlp_gradients(lib: Any) -> dict[str, Callable[[], Any]]:
    """Per-sample gradients of an MLP."""
    model = lib.nn.Sequential(lib.nn.Linear(64, 128), lib.nn.ReLU(), lib.nn.Linear(128, 10))
    return per_sample(lib, model, numbers(lib, 64, 64))


def cnn_gradients(lib: Any) -> dict[str, Callable[[], Any]]:
    """Per-sample gradients of a small CNN."""
    nn = lib.nn
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    return per_sample(lib, model, numbers(lib, 16, 1, 8, 8))


def ensemble(lib: Any) -> dict[str, Callable[[], Any]]:
    """Outputs of several models for the same inputs: (models, samples, classes)."""
    models = []
    for i in range(8):
        model = lib.nn.Sequential(lib.nn.Linear(64, 32), lib.nn.Tanh(), lib.nn.Linear(32, 10))
        model.load_state_dict(
            {name: p * (1 + 0.1 * i) for name, p in parameters(lib, model).items()}
        )
        models.append(model)
    params, buffers = lib.func.stack_module_state(models)
    x = numbers(lib, 32, 64)

    def one(params: Any, buffers: Any, x: Any) -> Any:
        return lib.func.functional_call(models[0], (params, buffers), (x,))

    batched = lib.func.vmap(one, in_dims=(0, 0, None))
    return {
        "together": lambda: batched(params, buffers, x).detach(),
        "loop": lambda: lib.t.stack([model(x) for model in models]).detach(),
    }


def hessian(lib: Any) -> dict[str, Callable[[], Any]]:
    """Second derivatives of a small network's loss by its input: (inputs, inputs)."""
    model = lib.nn.Sequential(lib.nn.Linear(16, 32), lib.nn.Tanh(), lib.nn.Linear(32, 1))
    params, x = parameters(lib, model), numbers(lib, 16)

    def loss(x: Any) -> Any:
        return (lib.func.functional_call(model, params, (x,)) ** 2).sum()

    def loop() -> Any:
        rows = []
        for i in range(x.shape[0]):
            rows.append(lib.func.grad(lambda v, i=i: lib.func.grad(loss)(v)[i])(x))
        return lib.t.stack(rows)

    return {"together": lambda: lib.func.hessian(loss)(x), "loop": loop}


def maml_step(lib: Any) -> dict[str, Callable[[], Any]]:
    """The gradient of the loss after one step of adaptation, over a batch of sine tasks (Finn et al. 2017)."""
    model = lib.nn.Sequential(lib.nn.Linear(1, 40), lib.nn.Tanh(), lib.nn.Linear(40, 1))
    params = parameters(lib, model)
    x, amplitude = numbers(lib, 16, 10, 1, scale=3.0), 1 + numbers(lib, 16, 1, 1) ** 2
    y = amplitude * x.sin()

    def loss(params: dict[str, Any], x: Any, y: Any) -> Any:
        return ((lib.func.functional_call(model, params, (x,)) - y) ** 2).mean()

    def adapted(params: dict[str, Any], x: Any, y: Any) -> Any:
        grads = lib.func.grad(loss)(params, x[:5], y[:5])
        stepped = {name: p - 0.05 * grads[name] for name, p in params.items()}
        return loss(stepped, x[5:], y[5:])

    def over_tasks(params: dict[str, Any]) -> Any:
        return lib.func.vmap(adapted, in_dims=(None, 0, 0))(params, x, y).mean()

    def loop() -> Any:
        grads = [flat(lib, lib.func.grad(adapted)(params, x[i], y[i])) for i in range(x.shape[0])]
        return lib.t.stack(grads).mean(0)

    return {"together": lambda: flat(lib, lib.func.grad(over_tasks)(params)), "loop": loop}


TASKS = {
    "per-sample gradients, MLP": mlp_gradients,
    "per-sample gradients, CNN": cnn_gradients,
    "ensemble of 8": ensemble,
    "Hessian": hessian,
    "MAML step, 16 tasks": maml_step,
}


def least_seconds(call: Callable[[], Any], repeats: int = 15) -> float:
    """The least time of several calls, after a pause in which idle threads of others go to sleep."""
    call()
    time.sleep(0.05)
    least = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - began)
    return least


def main() -> None:
    """Run every task, check it against its loop, and print what it takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", action="store_true", help="measure torch.func beside")
    options = parser.parse_args()
    ours = library("rabbet")
    theirs = library("torch") if options.torch else None
    for what, task in TASKS.items():
        calls = task(ours)
        result, expected = calls["together"](), calls["loop"]()
        gap = (result - expected).abs().max().item() / expected.abs().max().item()
        if not gap < 1e-4:
            raise SystemExit(f"{what}: differs from its loop by {gap:.2g} of the largest value")
        took, looped = least_seconds(calls["together"]), least_seconds(calls["loop"])
        line = f"{what:28} {took * 1e3:8.3f} ms, a loop {looped / took:5.1f} times that"
        if theirs:
            other = task(theirs)["together"]
            values = other().numpy()
            gap = abs(result.numpy() - values).max() / abs(values).max()
            if not gap < 1e-4:
                raise SystemExit(f"{what}: differs from torch.func by {gap:.2g}")
            line += f", torch.func {least_seconds(other) / took:5.1f} times"
        print(line)


if __name__ == "__main__":
    main()
