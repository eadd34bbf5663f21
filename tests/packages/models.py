"""Models and functions of packages: outputs and gradients of fixed weights and inputs, as numbers in a JSON file.

    python models.py PACKAGE FILE [PART_OF_A_NAME]

Plain PyTorch code, which runs the same under `rabbet run` and under PyTorch. Weights and inputs come from NumPy, so that
both have the same ones. Of each tensor two numbers are kept: its norm and its product with a fixed vector.
"""

import contextlib
import json
import sys
import time
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


@contextlib.contextmanager
def numbers_of_numpy(seed=0):
    """Draw from NumPy wherever packages draw, since PyTorch and rabbet have different numbers for one seed.

    Categories are drawn by the inverse of their cumulative probabilities.
    """
    state = np.random.RandomState(seed)

    def drawn(values, dtype=None, **_):
        return torch.tensor(values, dtype=dtype or torch.get_default_dtype())

    def shape_of(size):
        return tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size

    def normal(*size, generator=None, **options):
        return drawn(state.standard_normal(shape_of(size)), **options)

    def uniform(*size, generator=None, **options):
        return drawn(state.uniform(size=shape_of(size)), **options)

    def categories(probabilities, num_samples, replacement=False, *, generator=None):
        """Without replacement: the largest probabilities raised to 1 / uniform numbers (Efraimidis and Spirakis)."""
        weights = probabilities.detach().to(torch.float64).cpu().numpy()
        if num_samples == 1 or replacement:
            sums = np.cumsum(weights, -1)[..., None, :]
            draws = state.uniform(size=(*weights.shape[:-1], num_samples, 1)) * sums[..., -1:]
            return torch.tensor((sums <= draws).sum(-1))
        with np.errstate(divide="ignore"):
            keys = np.log(state.uniform(size=weights.shape)) / weights
        return torch.tensor(np.argsort(-keys, -1, kind="stable")[..., :num_samples].copy())

    def sampled_normal(self, sample_shape=()):
        shape = (*sample_shape, *self.loc.shape)
        return self.loc + self.scale * drawn(state.standard_normal(shape), self.loc.dtype)

    def sampled_category(self, sample_shape=()):
        count = int(np.prod(sample_shape, dtype=int))
        found = categories(self.probs, count, replacement=True)
        return found.movedim(-1, 0).reshape(*sample_shape, *self.probs.shape[:-1])

    def sampled_beta(self, sample_shape=()):
        a, b = self.concentration1.numpy(), self.concentration0.numpy()
        return drawn(state.beta(a, b, (*sample_shape, *a.shape)), self.concentration1.dtype)

    def fill_uniform(self, low=0.0, high=1.0, *, generator=None):
        return self.copy_(drawn(state.uniform(low, high, tuple(self.shape)), self.dtype))

    replaced = {
        torch: {
            "randn": normal,
            "rand": uniform,
            "randn_like": lambda x, **o: normal(*x.shape, **{"dtype": x.dtype, **o}),
            "rand_like": lambda x, **o: uniform(*x.shape, **{"dtype": x.dtype, **o}),
            "randint": lambda low, high=None, size=None, **o: integers_between(low, high, size),
            "randperm": lambda n, **_: torch.tensor(state.permutation(n)),
            "multinomial": categories,
        },
        torch.distributions.Normal: {
            "rsample": sampled_normal,
            "sample": lambda self, shape=(): sampled_normal(self, shape).detach(),
        },
        torch.distributions.Categorical: {"sample": sampled_category},
        torch.distributions.Beta: {"sample": sampled_beta},
        torch.Tensor: {"uniform_": fill_uniform},
    }

    def integers_between(low, high, size):
        low, high, size = (low, high, size) if size is not None else (0, low, high)
        return torch.tensor(state.randint(low, high, tuple(size)))

    kept = [(o, n, getattr(o, n)) for o, functions in replaced.items() for n in functions]
    for owner, functions in replaced.items():
        for name, function in functions.items():
            setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def trained(make, count=20, **options):
    """A case: losses and parameters of a small network after some steps of an optimizer."""

    def call(x):
        layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
        model = filled(torch.nn.Sequential(*layers))
        optimizer = make(model.parameters(), **options)

        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = model(x.detach()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.detach() for p in model.parameters()]

    return lambda: (call, array(16, 4))


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


def loss_of(outputs):
    """The outputs that have gradients, times fixed numbers, summed; None without such outputs."""
    roots = [t for t in outputs if t.requires_grad]
    fixed = [np.random.RandomState(i).standard_normal(tuple(t.shape)) for i, t in enumerate(roots)]
    terms = [(t * torch.tensor(f, dtype=t.dtype)).sum() for t, f in zip(roots, fixed, strict=True)]
    return sum(terms) if terms else None


def steps(module, inputs, count=2):
    """Summaries of the outputs after each of a few optimizer steps, and the processor time of the last step, in seconds."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, eps=1e-3)
    inputs = [t.detach() for t in inputs]
    found = []
    for _ in range(count):
        start = time.process_time()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        outputs = tensors(module(*inputs))
        loss_of(outputs).backward()
        seconds = time.process_time() - start
        found.append(summary(torch.cat([t.detach().to(DTYPE).reshape(-1) for t in outputs])))
    return found, seconds


def measured(make):
    """Summaries of the outputs of one case, of the gradients of all inputs and parameters, and of optimizer steps.

    `seconds` is the processor time of a step, or of the call where there is no module to train.
    """
    made = make()
    call, inputs = made[0], list(made[1:])
    inputs = [t.requires_grad_() if torch.is_floating_point(t) else t for t in inputs]
    start = time.process_time()
    outputs = tensors(call(*inputs))
    loss = loss_of(outputs)
    if loss is not None:
        loss.backward()
    found = {"seconds": time.process_time() - start, "outputs": [summary(t) for t in outputs]}
    if loss is None:
        return found
    is_module = isinstance(call, torch.nn.Module)
    parameters = list(call.parameters()) if is_module else []
    found["gradients"] = [
        None if t.grad is None else summary(t.grad)
        for t in [*inputs, *parameters]
        if torch.is_floating_point(t)
    ]
    if any(p.requires_grad for p in parameters):
        try:
            found["steps"], found["seconds"] = steps(call, inputs)
        except RuntimeError as error:
            if "graph a second time" not in str(error):
                raise  # else a module that keeps a part of the graph between calls takes no steps
    return found


def main(package, file, part=""):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
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
                print(f"{package}.{name}:", traceback.format_exc(limit=-6), file=sys.stderr)
    with open(file, "w") as out:
        json.dump(found, out)


if __name__ == "__main__":
    sys.modules["models"] = sys.modules["__main__"]
    main(*sys.argv[1:])
