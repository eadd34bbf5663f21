"""What does one optimizer step over ten million parameters cost, beside PyTorch's ways and the memory's speed?"""

import sys
from typing import Any

import rabbet
import rabbet.optim
from common import finish, side_by_side, torch_or_none

COUNT = 10_000_000
# Bytes per parameter that a step reads and writes, float32.
CASES = {
    "SGD momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}, 20),
    "Adam": ("Adam", {}, 28),
    "AdamW amsgrad": ("AdamW", {"amsgrad": True}, 36),
    "RMSprop": ("RMSprop", {}, 20),
    "Adagrad": ("Adagrad", {}, 20),
    "Adamax": ("Adamax", {}, 28),
    "NAdam": ("NAdam", {}, 28),
    "RAdam": ("RAdam", {}, 28),
}
WAYS = {"default": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def parameters(library: Any, sizes: list[int]) -> list[Any]:
    made = []
    for n in sizes:
        p = library.ones(n).requires_grad_()
        p.grad = library.full((n,), 0.01)
        made.append(p)
    return made


def copy_rate() -> float:
    """Bytes per second that a copy of a large block reads and writes."""
    x, y = rabbet.ones(COUNT * 2), rabbet.ones(COUNT * 2)
    return 2 * 8 * COUNT / side_by_side({"copy": lambda: y.copy_(x)})["copy"]


def measure(threads: int, rounds: int) -> None:
    rabbet.set_num_threads(threads)
    torch = torch_or_none()
    if torch:
        torch.set_num_threads(threads)
    rows = []
    rate = copy_rate()
    for title, (name, options, traffic) in CASES.items():
        for sizes in ([COUNT], [COUNT // 100] * 100):
            calls = {
                "rabbet": getattr(rabbet.optim, name)(parameters(rabbet, sizes), **options).step
            }
            if torch:
                kind = getattr(torch.optim, name)
                for way, extra in WAYS.items():
                    try:
                        optimizer = kind(parameters(torch, sizes), **options, **extra)
                    except TypeError:  # it has no fused way
                        continue
                    calls[way] = optimizer.step
            times = side_by_side(calls, rounds)
            print(title, len(sizes), {k: f"{v * 1e3:.2f} ms" for k, v in times.items()}, flush=True)
            limit = traffic * COUNT / rate
            what = f"{title}, {len(sizes)} x {sizes[0]:,} (at the speed of a copy {limit * 1e3:.1f} ms)"
            for way in WAYS:
                if way in times:
                    rows.append(
                        {
                            "what": f"{what}; torch {way}",
                            "rabbet": times["rabbet"],
                            "torch": times[way],
                            "times": {"default": 5, "fused": 1}.get(way)
                            if "Adam" in title
                            else None,
                        }
                    )
            if not torch:
                rows.append({"what": what, "rabbet": times["rabbet"]})
            del calls
    finish("optimizers", f"Optimizer steps, 10 million parameters, {threads} threads", rows)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]]
    measure(numbers[0] if numbers else 2, numbers[1] if len(numbers) > 1 else 7)
