"""Training steps of GPT-2 small (or a tiny one), eager and as a graph. By python: torch's; by `rabbet run`: ours."""

import json
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "examples" / "programs"))
from gpt import GPT, Config, optimizer_of

SMALL = bool(os.environ.get("GPU_CHECK_SMALL"))
CONFIG = Config(64, 16, 2, 2, 32) if SMALL else Config(50304, 1024, 12, 12, 768)
BATCH, STEPS = (2, 4) if SMALL else (8, 30)
WARM = 2
SECONDS = float(os.environ.get("GPU_CHECK_SECONDS") or 1e9)  # of each way, beyond a few steps


def first_weights(model):
    """The same ones in every framework."""
    random = np.random.default_rng(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                values = random.standard_normal(tuple(p.shape), dtype=np.float32) * np.float32(0.02)
                p.copy_(torch.from_numpy(values))
            elif name.endswith("bias"):
                p.zero_()


def start():
    model = GPT(CONFIG)
    first_weights(model)
    model = model.to("cuda")
    optimizer = optimizer_of(model)
    for group in optimizer.param_groups:
        group["capturable"] = True
    tokens = torch.zeros(BATCH, CONFIG.context + 1, dtype=torch.int64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return tokens, step


def batches():
    random = np.random.default_rng(1)
    shape = (BATCH, CONFIG.context + 1)
    return [
        torch.from_numpy(random.integers(0, CONFIG.vocabulary // 4, shape)) for _ in range(STEPS)
    ]


def measured(tokens, step):
    losses, times = [], []
    end = time.perf_counter() + SECONDS
    for batch in batches():
        if len(losses) > WARM + 1 and time.perf_counter() > end:
            break
        tokens.copy_(batch)
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
        losses.append(float(loss))
    return {"losses": losses, "ms": round(sorted(times[WARM:])[len(times[WARM:]) // 2], 3)}


def eager():
    return measured(*start())


def graphed():
    """The first steps run before the capture; the graph has one step."""
    tokens, step = start()
    ahead = batches()[:WARM]
    side, first = torch.cuda.Stream(), []
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for batch in ahead:
            tokens.copy_(batch)
            first.append(float(step()))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses, times = list(first), []
    end = time.perf_counter() + SECONDS
    for batch in batches()[WARM:]:
        if len(times) > 1 and time.perf_counter() > end:
            break
        tokens.copy_(batch)
        torch.cuda.synchronize()
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
        losses.append(float(loss))
    return {"losses": losses, "ms": round(sorted(times)[len(times) // 2], 3)}


def tried(way):
    try:
        return way()
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print(json.dumps({"skipped": "torch has no CUDA device"}))
    else:
        found = {"version": torch.__version__, "eager": tried(eager), "graph": tried(graphed)}
        print(json.dumps(found), flush=True)
