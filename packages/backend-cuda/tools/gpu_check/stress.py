"""Streams, memory, graphs and threads under load; each part raises if a number is wrong."""

import json
import os
import threading

import rabbet
from rabbet import cuda

SMALL = bool(os.environ.get("GPU_CHECK_SMALL"))
SIZE = 1 << (10 if SMALL else 20)


def streams(rounds: int) -> int:
    """8 streams read what the first one made; the memory is given back at once and reused."""
    others = [cuda.Stream() for _ in range(8)]
    for step in range(rounds):
        results = []
        for k, stream in enumerate(others):
            x = rabbet.full((SIZE,), float(step + k), device="cuda")
            stream.wait_stream(cuda.current_stream())
            with cuda.stream(stream):
                results.append((x * 2 + 1).sum())
            x.record_stream(stream)
            del x
            rabbet.full((SIZE,), -1.0, device="cuda")  # takes the memory if that is too early
        cuda.synchronize()
        for k, result in enumerate(results):
            assert result.item() == SIZE * (2.0 * (step + k) + 1), (step, k, result.item())
    return 8 * rounds


def memory() -> str:
    """Under a cap, cached memory is given back before a call fails, and the program goes on after."""
    cuda.empty_cache()
    total = cuda.get_device_properties(0).total_memory
    cap = min(total // 2, cuda.memory_reserved() + (64 << 20 if SMALL else 4 << 30))
    cuda.set_per_process_memory_fraction(cap / total)
    part = (cap - cuda.memory_reserved()) // 4
    first = [rabbet.empty(part // 3, dtype=rabbet.uint8, device="cuda") for _ in range(6)]
    del first  # cached, in pieces that are too small
    large = rabbet.empty(part * 3, dtype=rabbet.uint8, device="cuda")
    try:
        rabbet.empty(part * 3, dtype=rabbet.uint8, device="cuda")
    except cuda.OutOfMemoryError:
        pass
    else:
        raise AssertionError("more memory than the cap")
    del large
    cuda.set_per_process_memory_fraction(1.0)
    assert rabbet.ones(SIZE, device="cuda").sum().item() == SIZE
    return "retried and refused"


def graphs(replays: int) -> int:
    x = rabbet.zeros(SIZE, device="cuda")
    w = rabbet.ones(SIZE, device="cuda")
    graph, side = cuda.CUDAGraph(), cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        (x * 2 + w).sum()
    cuda.current_stream().wait_stream(side)
    with cuda.graph(graph):
        y = (x * 2 + w).sum()
    for step in range(replays):
        x.fill_(float(step))
        graph.replay()
        assert y.item() == SIZE * (2.0 * step + 1), (step, y.item())
    return replays


def threads(rounds: int) -> int:
    failures = []

    def work(number: int) -> None:
        try:
            with cuda.stream(cuda.Stream()):
                for step in range(rounds):
                    x = rabbet.full((64, 64), float(number), device="cuda")
                    assert (x @ x).sum().item() == 64**3 * number**2, (number, step)
        except Exception as error:
            failures.append(repr(error))

    workers = [threading.Thread(target=work, args=(n,)) for n in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    return 2 * rounds


if __name__ == "__main__":
    found = {
        "streams": streams(2 if SMALL else 50),
        "memory": memory(),
        "replays": graphs(10 if SMALL else 200),
        "products by two threads": threads(2 if SMALL else 200),
    }
    print(json.dumps(found))
