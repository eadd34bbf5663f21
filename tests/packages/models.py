"""Models and functions of packages: outputs and gradients of fixed weights and inputs, as numbers in a JSON file.

    python models.py PACKAGE FILE [PART_OF_A_NAME]

Plain PyTorch code, which runs the same under `rabbet run` and under PyTorch. Weights and inputs come from NumPy, so that
both have the same ones. Of each tensor two numbers are kept: its norm and its product with a fixed vector.
"""

import json
import sys
import traceback
import warnings

import numpy as np
import torch

CASES = {}
DTYPE = torch.float64


def case(package):
    def add(function):
        CASES.setdefault(package, {})[function.__name__] = function
        return function

    return add


def several(package, **makers):
    """One case for each name: a function that gives the callable and its inputs."""
    CASES.setdefault(package, {}).update(makers)


def array(*shape, seed=0, low=None):
    """Normal numbers; with `low` uniform ones from there to 1."""
    state = np.random.RandomState(seed)
    values = state.standard_normal(shape) if low is None else state.uniform(low, 1.0, shape)
    return torch.tensor(values, dtype=DTYPE)


def integers(high, *shape, seed=0):
    return torch.tensor(np.random.RandomState(seed).randint(0, high, shape))


def filled(module):
    """The module in float64 with weights that do not depend on its own initialisation."""
    module = module.to(DTYPE)
    with torch.no_grad():
        for number, (name, p) in enumerate(module.named_parameters()):
            if p.numel() == 0:
                continue
            values = np.random.RandomState(number).standard_normal(tuple(p.shape))
            if p.ndim < 2:
                values = 0.1 * values + (1.0 if name.endswith(("weight", "gamma", "g")) else 0.0)
            else:
                values = values / np.sqrt(values[0].size)
            p.copy_(torch.tensor(values, dtype=p.dtype))
    return module


def tensors(value):
    """All floating tensors in nested containers and result objects."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else [value.to(DTYPE)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return [torch.tensor(float(value))] if isinstance(value, (int, float)) else []


def summary(t):
    values = t.detach().to(torch.float64).reshape(-1).cpu().numpy()
    fixed = np.random.RandomState(1).standard_normal(values.size)
    return [float(np.sqrt((values * values).sum())), float(values @ fixed)]


def measured(make):
    """Summaries of the outputs, and of the gradients of all inputs and parameters of one case."""
    made = make()
    call, inputs = made[0], list(made[1:])
    inputs = [t.requires_grad_() if torch.is_floating_point(t) else t for t in inputs]
    outputs = tensors(call(*inputs))
    found = {"outputs": [summary(t) for t in outputs]}
    roots = [t for t in outputs if t.requires_grad]
    if not roots:
        return found
    loss = sum(
        (
            t
            * torch.tensor(np.random.RandomState(i).standard_normal(tuple(t.shape)), dtype=t.dtype)
        ).sum()
        for i, t in enumerate(roots)
    )
    loss.backward()
    parameters = list(call.parameters()) if isinstance(call, torch.nn.Module) else []
    found["gradients"] = [
        None if t.grad is None else summary(t.grad)
        for t in [*inputs, *parameters]
        if torch.is_floating_point(t)
    ]
    return found


def main(package, file, part=""):
    warnings.simplefilter("ignore")
    torch.set_default_dtype(DTYPE)
    __import__(f"cases.{package}")
    found = {}
    for name, make in CASES[package].items():
        if part in name:
            torch.manual_seed(0)
            try:
                found[name] = measured(make)
            except Exception as error:
                found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
                print(f"{package}.{name}:", traceback.format_exc(limit=-4), file=sys.stderr)
    with open(file, "w") as out:
        json.dump(found, out)


if __name__ == "__main__":
    sys.modules["models"] = sys.modules["__main__"]
    main(*sys.argv[1:])
