"""The thread pool through operators: equal bits for any number of threads, several Python threads, forks,
changing thread counts."""

import contextlib
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import _C


@pytest.fixture(autouse=True)
def threads_as_before():
    before = rabbet.get_num_threads()
    yield
    rabbet.set_num_threads(before)


def leaves(result):
    if isinstance(result, rabbet.Tensor):
        wide = result.float() if result.dtype == rabbet.bfloat16 else result
        yield wide.detach().numpy().tobytes()
    elif isinstance(result, (list, tuple)):
        for item in result:
            yield from leaves(item)


def tensor(*shape, dtype=rabbet.float32, seed=0):
    return rabbet.tensor(np.random.default_rng(seed).normal(size=shape)).to(dtype)


def functions(names):
    return [(name, getattr(rabbet, name, None) or getattr(F, name)) for name in names.split(",")]


# Large enough for several chunks; sizes that no power of two divides.
def large_calls():
    x, y = tensor(301, 1003), tensor(301, 1003, seed=1)
    flat, i = tensor(300007), rabbet.tensor(np.random.default_rng(2).integers(0, 301, 5000))
    unary = "exp,log,sin,tanh,erf,sigmoid,sqrt,abs,neg,relu,gelu,silu,softplus,floor,reciprocal"
    for name, f in functions(unary):
        yield name, lambda f=f: f(x)
    for name, f in functions("add,mul,div,maximum,atan2,pow,lt"):
        yield name, lambda f=f: f(x.abs(), y.abs())
        yield f"{name} broadcast", lambda f=f: f(x.abs(), y[0].abs())
        yield f"{name} strided", lambda f=f: f(x.t().abs(), y.t().abs())
    for name, f in functions("sum,mean,prod,var,std,amax,amin,argmax,any,count_nonzero"):
        yield name, lambda f=f: f(x)
        for dim in (0, 1):
            yield f"{name} {dim}", lambda f=f, d=dim: f(x, d)
    for dim in (0, 1):
        for name, f in functions("softmax,log_softmax,cumsum,cumprod,sort,logsumexp"):
            yield f"{name} {dim}", lambda f=f, d=dim: f(x, d)
        yield f"flip {dim}", lambda d=dim: rabbet.flip(x, [d])
        yield f"cat {dim}", lambda d=dim: rabbet.cat([x, y, x], d)
        yield f"index_select {dim}", lambda d=dim: rabbet.index_select(x, d, i[:500])
        source = tensor(*((500, 1003) if dim == 0 else (301, 500)))
        yield f"index_add {dim}", lambda d=dim, s=source: rabbet.index_add(x, d, i[:500], s)
    yield "gather", lambda: rabbet.gather(x, 0, rabbet.randint(0, 301, (301, 1003)) * 0 + 3)
    yield "scatter_add", lambda: rabbet.scatter_add(flat, 0, i, tensor(5000))
    yield "index_put", lambda: rabbet.index_put(flat, [i], tensor(5000), True)
    yield "index", lambda: x[i, :7]
    yield "masked_select", lambda: x[x > 0]
    yield "where", lambda: rabbet.where(x > 0, x, y)
    yield "sum float64", lambda: rabbet.sum(x.double())
    yield "sum bfloat16", lambda: rabbet.sum(x.to(rabbet.bfloat16), 1)
    yield "sum int", lambda: rabbet.sum((x * 10).to(rabbet.int32))
    yield "cast", lambda: x.to(rabbet.bfloat16)
    yield "contiguous", lambda: x.t().contiguous()
    for a, b in (((301, 217), (217, 133)), ((5, 301, 17), (5, 17, 63)), ((1003, 301), (301,))):
        yield f"matmul {a}", lambda a=a, b=b: tensor(*a) @ tensor(*b, seed=1)
        yield f"matmul64 {a}", lambda a=a, b=b: tensor(*a).double() @ tensor(*b, seed=1).double()
    yield "linear", lambda: F.linear(x, tensor(65, 1003), tensor(65))
    yield "layer_norm", lambda: F.layer_norm(x, (1003,), tensor(1003), tensor(1003))
    yield "batch_norm", lambda: F.batch_norm(x, None, None, training=True)
    yield "embedding", lambda: F.embedding(i, x)
    yield "cross_entropy", lambda: F.cross_entropy(x, rabbet.arange(301))
    image, weight = tensor(3, 8, 33, 31), tensor(16, 8, 3, 3)
    yield "conv2d", lambda: F.conv2d(image, weight, tensor(16), padding=1)
    yield "conv2d strided", lambda: F.conv2d(image, weight, stride=2)
    yield "conv2d depthwise", lambda: F.conv2d(image, tensor(8, 1, 3, 3), groups=8)
    yield "conv2d narrow", lambda: F.conv2d(tensor(9, 8, 7, 7), tensor(40, 8, 3, 3), padding=1)
    yield "max_pool2d", lambda: F.max_pool2d(tensor(3, 16, 65, 65), 3, 2)
    yield "avg_pool2d", lambda: F.avg_pool2d(tensor(3, 16, 65, 65), 2)
    q = tensor(2, 4, 130, 32)
    yield "attention", lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)
    yield "random", lambda: (rabbet.manual_seed(3), rabbet.randn(100003), rabbet.rand(100003))[1:]
    yield "foreach_norm", lambda: rabbet.ops("foreach_norm")([flat, x, y], 2.0)
    yield "training step", training_step


def training_step():
    rabbet.manual_seed(0)
    net = rabbet.nn.Sequential(
        rabbet.nn.Linear(200, 301),
        rabbet.nn.GELU(),
        rabbet.nn.LayerNorm(301),
        rabbet.nn.Linear(301, 10),
    )
    optimizer = rabbet.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(net(tensor(257, 200)), rabbet.arange(257) % 10).backward()
        rabbet.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
    return list(net.parameters()) + [p.grad for p in net.parameters()]


LARGE = dict(large_calls())


@pytest.mark.parametrize("name", LARGE)
def test_bits_are_equal_for_any_number_of_threads(name):
    results = []
    for n in (1, 2, 3, 4):
        rabbet.set_num_threads(n)
        results.append(list(leaves(LARGE[name]())))
    assert results[0] and all(r == results[0] for r in results[1:])


def simple_records():
    """Records of one or two tensors, perhaps with a dim, that compute with floats."""
    for name in _C.record_names():
        info = _C.op_info(name)
        types = [p["type"] for p in info["params"] if not (p["keyword_only"] or p["has_default"])]
        if any(p["keyword_only"] and not p["has_default"] for p in info["params"]):
            continue
        if name in (
            "kron",
            "diagflat",
            "linalg_pinv.rcond",
        ):  # of such matrices they have 4e10 elements
            continue
        if info["kind"] in ("elementwise", "reduction", "along", "composite") and types in (
            ["Tensor"],
            ["Tensor", "Tensor"],
            ["Tensor", "dim"],
        ):
            yield name, types


def test_bits_of_simple_records_are_equal_for_any_number_of_threads():
    x, y = tensor(203, 1001).abs(), tensor(203, 1001, seed=1).abs()
    checked = 0
    for name, types in simple_records():
        for dim in (0, 1) if "dim" in types else (None,):
            arguments = [x, y][: types.count("Tensor")] + ([] if dim is None else [dim])
            results = []
            try:
                for n in (1, 2, 4):
                    rabbet.set_num_threads(n)
                    rabbet.manual_seed(0)
                    results.append(list(leaves(rabbet.ops(name)(*arguments))))
            except (rabbet.DTypeError, rabbet.ArgumentError, IndexError, NotImplementedError):
                continue  # not for two matrices of floats
            assert results[0] == results[1] == results[2], (name, dim)
            checked += 1
    assert checked > 90


def test_several_python_threads_get_what_one_gets():
    rabbet.set_num_threads(4)
    names = ["exp", "sum", "softmax 1", "matmul (301, 217)", "training step", "sort 0"]
    want = {name: list(leaves(LARGE[name]())) for name in names if name != "training step"}
    failures = []

    def work(first):
        try:
            for i in range(12):
                name = names[(first + i) % len(names)]
                if name in want and list(leaves(LARGE[name]())) != want[name]:
                    failures.append(name)
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for i in range(200):
        rabbet.set_num_threads(1 + i % 5)
    for t in threads:
        t.join()
    assert not failures


def test_an_error_inside_a_region_leaves_the_pool_usable():
    rabbet.set_num_threads(4)
    x = tensor(301, 1003)
    bad = rabbet.full((200000,), 400, dtype=rabbet.int64)
    for _ in range(3):
        with pytest.raises(IndexError):
            rabbet.index_select(x, 0, bad)
        assert list(leaves(LARGE["exp"]())) == list(leaves(rabbet.exp(x)))


def workers():
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:
            names.append(file.read().strip())
    return names.count("rabbet")


def become(count):
    """Whether there are so many workers before long."""
    for _ in range(1000):
        if workers() == count:
            return True
        time.sleep(0.01)
    return False


def test_workers_leave_when_fewer_threads_are_wanted():
    rabbet.set_num_threads(4)
    LARGE["exp"]()
    assert become(3)
    rabbet.set_num_threads(2)
    assert become(1)
    rabbet.set_num_threads(3)
    LARGE["exp"]()
    assert become(2)


@pytest.mark.parametrize("n", [0, -1, 257])
def test_a_bad_number_of_threads_is_refused(n):
    with pytest.raises(rabbet.ArgumentError, match=f"set_num_threads: expected 1 to 256, got {n}"):
        rabbet.set_num_threads(n)


def run(code, **env):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_environment_sets_the_number_of_threads():
    code = "import rabbet; print(rabbet.get_num_threads())"
    assert run(code, RABBET_NUM_THREADS="3", OMP_NUM_THREADS="5").strip() == "3"
    assert run(code, RABBET_NUM_THREADS="", OMP_NUM_THREADS="5").strip() == "5"


FORK = """
import os, signal, threading, time
import rabbet
rabbet.set_num_threads(4)
x = rabbet.ones(400000)
want = rabbet.exp(x).sum().item()
rabbet.ones(1, requires_grad=True).sum().backward()  # imports what is imported at first use
stop = False
def busy():  # regions, allocations and backward passes while the others fork
    while not stop:
        y = rabbet.ones(400000, requires_grad=True)
        (y * 2).exp().sum().backward()
threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
for t in threads: t.start()
for i in range(12):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        ok = rabbet.get_num_threads() == 4
        for k in range(5):
            y = rabbet.ones(400000, requires_grad=True)
            y.exp().sum().backward()
            ok = ok and rabbet.exp(x).sum().item() == want and y.grad[0].item() > 2.7
        rabbet.manual_seed(1); rabbet.rand(100000)
        os._exit(0 if ok else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, (i, status)
stop = True
for t in threads: t.join()
print("ok")
"""


@pytest.mark.skipif("RABBET_SANITIZED" in os.environ, reason="sanitizers lose track after a fork")
def test_children_forked_while_regions_run_work_on():
    assert run(FORK).strip() == "ok"


def test_exit_while_workers_are_awake():
    assert (
        run("import rabbet; rabbet.set_num_threads(4); rabbet.ones(400000).exp(); print('ok')")
        == "ok\n"
    )


def test_signals_are_not_for_workers():
    code = """
import signal, time, os, threading, rabbet
rabbet.set_num_threads(4); rabbet.ones(400000).exp()
class Stop(Exception): pass
def handler(*args): raise Stop
signal.signal(signal.SIGALRM, handler); signal.setitimer(signal.ITIMER_REAL, 0.2)
began = time.monotonic()
try: time.sleep(20)
except Stop: pass
assert time.monotonic() - began < 10
for task in os.listdir("/proc/self/task"):
    status = open(f"/proc/self/task/{task}/status").read()
    if "Name:\\trabbet" in status:
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        assert blocked >> (signal.SIGINT - 1) & 1 and blocked >> (signal.SIGALRM - 1) & 1
print("ok")
"""
    assert run(code) == "ok\n"
