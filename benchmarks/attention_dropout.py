"""Attention with dropout in training: what does it cost in time and memory, one thread?

    python benchmarks/attention_dropout.py [rabbet | torch]

Prints the least CPU time of forward and backward, and by how much the first call let the process grow.
"""

import importlib
import resource
import subprocess
import sys
import time

SHAPES = [(1, 12, 1024, 64), (4, 8, 512, 64)]  # (batch, heads, positions, head size)


def step_of(t, functional, shape, p, causal):
    """Forward and backward as a function."""
    q, k, v = (t.randn(*shape).requires_grad_() for _ in range(3))
    grad = t.randn(*shape)

    def call():
        out = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=causal)
        t.autograd.grad(out, [q, k, v], grad)

    return call


def peak() -> float:
    """Most memory that the process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(library: str, at: int, p: float, causal: bool) -> None:
    """Print one line; the process should be a fresh one."""
    t, shape = importlib.import_module(library), SHAPES[at]
    functional = importlib.import_module(f"{library}.nn.functional")
    t.set_num_threads(1)
    step_of(t, functional, (1, 1, 64, shape[-1]), p, causal)()
    call, before, best = step_of(t, functional, shape, p, causal), peak(), float("inf")
    call()
    grown = peak() - before
    for _ in range(5):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    sizes = "x".join(map(str, shape)) + (" causal" if causal else "")
    print(f"{library} {sizes}, dropout {p}: {best * 1e3:.1f} ms, {grown:.0f} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        library, at, p, causal = sys.argv[1:]
        measure(library, int(at), float(p), causal == "True")
    else:
        library = sys.argv[1] if len(sys.argv) > 1 else "rabbet"
        for at in range(len(SHAPES)):
            for causal in (False, True):
                for p in (0.0, 0.1):
                    arguments = [library, str(at), str(p), str(causal)]
                    subprocess.run([sys.executable, __file__, *arguments], check=True)
