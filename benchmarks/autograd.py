"""Automatic differentiation beside PyTorch: recording, runs, higher derivatives, transforms, checkpoints, Functions of the
user, two threads with a model each, and the peak of memory.

python benchmarks/autograd.py
"""

import importlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from common import THREADS, finish, side_by_side, torch_or_none

LIBRARIES = ("rabbet", "torch")
WIDE = 512  # of the models of two threads


def library(name: str) -> SimpleNamespace:
    """The modules of one library."""
    t = importlib.import_module(name)
    t.set_num_threads(THREADS)
    parts = {part: importlib.import_module(f"{name}.{part}") for part in ("nn", "func", "autograd")}
    parts["functional"] = importlib.import_module(f"{name}.autograd.functional")
    parts["checkpoint"] = importlib.import_module(f"{name}.utils.checkpoint").checkpoint
    return SimpleNamespace(t=t, **parts)


def mlp(lib: SimpleNamespace, inputs: int, width: int, outputs: int) -> Any:
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)
    )  # fmt: skip


def recorded(lib: SimpleNamespace) -> Callable[[], Any]:
    a, b = (lib.t.ones(1, requires_grad=True) for _ in range(2))
    return lambda: a + b


def chain(lib: SimpleNamespace, length: int) -> Callable[[], Any]:
    x = lib.t.ones(1, requires_grad=True)

    def run() -> None:
        y = x
        for _ in range(length):
            y = y * 1.0
        y.backward()

    return run


def gradient_of_gradient(lib: SimpleNamespace) -> Callable[[], Any]:
    x = lib.t.ones(16, requires_grad=True)

    def run() -> None:
        y = (x.sin() * x.exp()).sum()
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        lib.autograd.grad(g.square().sum(), x)

    return run


def jacobians(lib: SimpleNamespace) -> dict[str, Callable[[], Any]]:
    model, x = mlp(lib, 64, 64, 64), lib.t.ones(64)
    scalar = mlp(lib, 64, 64, 1)

    def value(v: Any) -> Any:
        return scalar(v).sum()

    functional, func = lib.functional, lib.func
    return {
        "functional.jacobian, 64 inputs": lambda: functional.jacobian(model, x),
        "functional.jacobian, 64 inputs, vectorize": lambda: functional.jacobian(model, x, vectorize=True),
        "func.jacrev, 64 inputs": lambda: func.jacrev(model)(x),
        "func.jacfwd, 64 inputs": lambda: func.jacfwd(model)(x),
        "functional.hessian, 64 inputs": lambda: functional.hessian(value, x),
        "func.hessian, 64 inputs": lambda: func.hessian(value)(x),
    }  # fmt: skip


def ensemble(lib: SimpleNamespace) -> Callable[[], Any]:
    """Eight models as one, and their gradients."""
    models = [mlp(lib, 16, 32, 4) for _ in range(8)]
    params, buffers = lib.func.stack_module_state(models)
    x = lib.t.ones(4, 16)

    def loss(p: Any, b: Any) -> Any:
        return lib.func.functional_call(models[0], (p, b), (x,)).square().mean()

    both = lib.func.vmap(lib.func.grad(loss))
    return lambda: both(params, buffers)


def checkpointed(lib: SimpleNamespace, size: int, rows: int) -> Callable[[], Any]:
    model = mlp(lib, size, size, size)
    x = lib.t.ones(rows, size, requires_grad=True)

    def run() -> None:
        y = x
        for layer in model:
            y = lib.checkpoint(layer, y, use_reentrant=False)
        y.sum().backward()

    return run


def own_function(lib: SimpleNamespace) -> Callable[[], Any]:
    class Double(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = lib.t.ones(1, requires_grad=True)
    return lambda: Double.apply(x).backward()


def tasks(lib: SimpleNamespace) -> dict[str, Callable[[], Any]]:
    return {
        "a + b, recorded": recorded(lib),
        "100-op chain, forward and backward": chain(lib, 100),
        "gradient of a gradient": gradient_of_gradient(lib),
        **jacobians(lib),
        "ensemble of 8 by functional_call, gradients": ensemble(lib),
        "checkpointed MLP, 8 wide": checkpointed(lib, 8, 4),
        "checkpointed MLP, 512 wide": checkpointed(lib, 512, 256),
        "Function of the user, forward and backward": own_function(lib),
    }


TARGETS = dict.fromkeys(("checkpointed MLP, 512 wide",), 1.0)  # kernels rule; else overhead does


def steps_per_second(lib: SimpleNamespace, threads: int, steps: int = 150) -> float:
    """Of models of their own, one per thread."""

    def loop(model: Any, x: Any, count: int) -> None:
        for _ in range(count):
            model(x).square().mean().backward()
            model.zero_grad()

    pairs = [(mlp(lib, WIDE, WIDE, 10), lib.t.ones(64, WIDE)) for _ in range(threads)]
    for pair in pairs:
        loop(*pair, 5)
    workers = [threading.Thread(target=loop, args=(*pair, steps)) for pair in pairs]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * steps / (time.perf_counter() - began)


def child(name: str, what: str) -> float:
    """What is measured in a process of its own."""
    lib = library(name)
    if what == "threads":
        lib.t.set_num_threads(1)
        best = {n: max(steps_per_second(lib, n) for _ in range(5)) for n in (1, 2)}
        return best[2] / best[1]
    if what == "long chain":
        run = chain(lib, 1_000_000)
        run()
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    run = {
        "memory: 1M-node chain": lambda: chain(lib, 1_000_000),
        "memory: MLP": lambda: step_of(lib, mlp(lib, 512, 2048, 512)),
        "memory: checkpointed MLP": lambda: checkpointed(lib, 2048, 4096),
        "memory: gradient of a gradient": lambda: twice(lib),
    }[what]()
    before = peak_of_memory()
    for _ in range(2):
        run()
    return peak_of_memory() - before


def peak_of_memory() -> float:
    """Megabytes; of the process itself, where getrusage tells what its parent had at the fork."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def step_of(lib: SimpleNamespace, model: Any) -> Callable[[], Any]:
    x = lib.t.ones(8192, 512)
    return lambda: model(x).square().mean().backward()


def twice(lib: SimpleNamespace) -> Callable[[], Any]:
    x = lib.t.ones(4_000_000, requires_grad=True)

    def run() -> None:
        (g,) = lib.autograd.grad((x.sin() * x.exp()).sum(), x, create_graph=True)
        lib.autograd.grad(g.square().sum(), x)

    return run


def in_child(name: str, what: str) -> float:
    command = [sys.executable, __file__, name, what]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    names = LIBRARIES if torch_or_none() else LIBRARIES[:1]
    made = {name: tasks(library(name)) for name in names}
    rows: list[dict[str, Any]] = []
    for what in made["rabbet"]:
        took = side_by_side({name: made[name][what] for name in names})
        rows.append({"what": what, "times": TARGETS.get(what, 6.0)} | took)
    took = {name: in_child(name, "long chain") for name in names}
    rows.append({"what": "1M-node chain, forward and backward", "times": 6.0} | took)
    finish("autograd", "Automatic differentiation", rows)
    print("\n| in a process of its own | rabbet | torch |\n|---|---|---|")
    measured = {"two threads, throughput of one": "threads"}
    measured |= {f"peak of memory, MB: {what}": f"memory: {what}" for what in
                 ("1M-node chain", "MLP", "checkpointed MLP", "gradient of a gradient")}  # fmt: skip
    for title, what in measured.items():
        print(f"| {title} | " + " | ".join(f"{in_child(name, what):.2f}" for name in names) + " |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(child(sys.argv[1], sys.argv[2]))
    else:
        main()
