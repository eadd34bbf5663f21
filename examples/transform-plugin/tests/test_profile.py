"""rabbet_profile counts what runs: numbers by hand, and PyTorch's counter where it is installed."""

import threading

import pytest
import rabbet
import rabbet_profile
from rabbet.nn import functional as F

F32 = 4  # bytes


def counted(f, *args):
    with rabbet_profile.count() as c:
        f(*args)
    return c


@pytest.mark.parametrize(
    "name,f,shapes,flops",
    [
        ("matmul", lambda a, b: a @ b, [(5, 4), (4, 3)], 2 * 5 * 4 * 3),
        ("matmul", lambda a, b: a @ b, [(7, 5, 4), (4, 3)], 7 * 2 * 5 * 4 * 3),
        ("matmul", lambda a, b: a @ b, [(4,), (4,)], 2 * 4),
        ("linear", F.linear, [(5, 4), (3, 4)], 2 * 5 * 4 * 3),
        ("linear", F.linear, [(5, 4), (3, 4), (3,)], 2 * 5 * 4 * 3 + 5 * 3),
        ("convolution", F.conv1d, [(2, 4, 10), (6, 4, 3)], 2 * (2 * 6 * 8) * (4 * 3)),
        (
            "convolution",
            lambda x, w: F.conv2d(x, w, padding=1, groups=2),
            [(2, 4, 8, 8), (6, 2, 3, 3)],
            2 * (2 * 6 * 8 * 8) * (2 * 9),
        ),
        ("mul", lambda a, b: a * b, [(5, 1), (4,)], 5 * 4),
        ("sum", lambda a: a.sum(0), [(5, 4)], 5 * 4),
        ("softmax", lambda a: a.softmax(0), [(5, 4)], 5 * 4),
        ("clone", lambda a: a.clone(), [(5, 4)], 0),
        ("gt", lambda a: a > 0, [(5, 4)], 5 * 4),
    ],
)
def test_operations_follow_from_the_shapes(name, f, shapes, flops):
    c = counted(f, *(rabbet.randn(*shape) for shape in shapes))
    assert c[name].calls == 1 and c[name].flops == flops
    assert c["total"].flops == flops


def test_devices_are_told_apart():
    x, far = rabbet.randn(5, 4), rabbet.empty(7, 4, device="meta")

    def work():
        x @ x.t()
        far @ far.t()
        far + far
        rabbet.empty(3, device="meta")

    c = counted(work)
    assert [r.name for r in c.rows("cpu") if r.flops] == ["matmul"]
    assert c.rows("cpu:0") == c.rows(rabbet.device("cpu")) == c.rows("cpu")
    here, there = c.total("cpu"), c.total("meta:0")
    assert (here.flops, there.flops) == (2 * 5 * 4 * 5, 2 * 7 * 4 * 7 + 7 * 4)
    assert c["matmul"].calls == 2 and c["matmul"].flops == 2 * 5 * 4 * 5 + 2 * 7 * 4 * 7
    assert c["total"].flops == here.flops + there.flops and c.rows("cpu:1") == []
    text = str(c)
    assert f"{there.flops:,}" in next(row for row in text.splitlines() if row.startswith("on meta"))
    assert "on cpu" in text and "on cpu" not in str(counted(lambda: x + x))


def test_attention_counts_its_products():
    q, k, v = rabbet.randn(2, 3, 5, 4), rabbet.randn(2, 3, 7, 4), rabbet.randn(2, 3, 7, 6)
    meetings = 2 * 3 * 5 * 7
    for t in (q, k, v):
        t.requires_grad_()
    c = counted(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    assert c["attention"].flops == 2 * meetings * (4 + 6)
    assert c["attention_backward"].flops == 2 * meetings * (3 * 4 + 2 * 6)


def test_bytes_are_those_of_tensors_read_and_written():
    a, b = rabbet.randn(5, 4), rabbet.randn(4, dtype=rabbet.float64)
    assert counted(lambda: a + a)["add"].bytes == 3 * 20 * F32
    assert counted(lambda: a + b)["add"].bytes == 20 * F32 + 4 * 8 + 20 * 8
    assert counted(lambda: a.add_(1))["add"].bytes == 2 * 20 * F32
    assert counted(lambda: rabbet.cat([a, a]))["cat"].bytes == 4 * 20 * F32


def test_operators_of_others_count_one_operation_for_each_element():
    @rabbet.library.op("elsewhere::cube(Tensor x) -> Tensor", kind="opaque", shape="x.shape")
    def cube(x):
        return x * x * x

    c = counted(lambda: cube(rabbet.ones(5, 4)))
    assert c["elsewhere::cube"] == ("elsewhere::cube", 1, 20, 2 * 20 * F32)
    assert c["mul"].calls == 0  # what a kernel does is its own


def test_views_move_nothing_and_copies_do():
    a = rabbet.randn(5, 4)
    c = counted(lambda: a.t()[1:].unsqueeze(0).reshape(-1).view(3, 5))
    assert c["transpose"].bytes + c["t"].bytes + c["slice"].bytes + c["view"].bytes == 0
    assert counted(lambda: a.reshape(20))["total"].bytes == 0
    assert counted(lambda: a.t().reshape(20))["reshape"].bytes == 2 * 20 * F32


def test_an_operator_made_of_others_counts_as_those():
    a, b = rabbet.randn(5, 4), rabbet.randn(4, 3)
    plain = counted(rabbet.mm, a, b)
    recorded = counted(rabbet.mm, a.requires_grad_(), b)
    assert plain["mm"].calls == 0
    assert plain.rows() == recorded.rows()
    assert plain["matmul"].flops == 2 * 5 * 4 * 3
    with rabbet.autograd.no_grad():
        expected = rabbet.mm(a, b)
        with rabbet_profile.count():
            assert (rabbet.mm(a, b) == expected).all()


def test_what_is_added_to_a_product():
    a, b, c = rabbet.randn(5, 3), rabbet.randn(5, 4), rabbet.randn(4, 3)
    assert counted(rabbet.addmm, a, b, c)["addmm"].flops == 5 * 3 * (2 * 4 + 2)
    assert counted(lambda: rabbet.addmm(a, b, c, beta=0))["total"].calls == 1


def test_backward_is_counted():
    x, w = rabbet.randn(5, 4, requires_grad=True), rabbet.randn(4, 3, requires_grad=True)
    with rabbet_profile.count() as forward:
        loss = (x @ w).exp().sum()
    with rabbet_profile.count() as backward:
        loss.backward()
    assert forward["matmul"] == ("matmul", 1, 120, (20 + 12 + 15) * F32)
    assert backward["matmul"].calls == 2 and backward["matmul"].flops == 2 * 120
    assert backward["mul"].flops >= 15


def test_gradients_are_the_same_with_the_counter_on():
    x = rabbet.randn(50, requires_grad=True)

    def gradient():
        (g,) = rabbet.autograd.grad(F.gelu(x.tanh() * x.sigmoid()).logsumexp(0), x)
        return g

    expected = gradient()
    with rabbet_profile.count():
        assert (gradient() == expected).all()


def test_vmap_is_one_product_of_the_batch():
    x, w = rabbet.randn(6, 5, 4), rabbet.randn(4, 3)
    c = counted(rabbet.vmap(lambda row: row @ w), x)
    assert c["matmul"].calls == 1 and c["matmul"].flops == 6 * 2 * 5 * 4 * 3


def test_transforms_nest():
    x, w = rabbet.randn(6, 4), rabbet.randn(4)

    def loss(w, row):
        return (row * w).sum()

    per_example = counted(rabbet.vmap(rabbet.func.grad(loss), (None, 0)), w, x)
    assert per_example["mul"].calls == 2 and per_example["mul"].flops == 2 * 6 * 4
    dual = counted(lambda: rabbet.func.jvp(rabbet.sin, (x,), (x,)))
    assert dual["sin"].calls == 1 and dual["cos"].calls == 1


def test_autocast_counts_casts_and_smaller_products():
    x, w = rabbet.randn(5, 4), rabbet.randn(4, 3)
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        c = counted(lambda: x @ w)
    assert c["cast"].calls == 2 and c["cast"].flops == 0
    assert c["matmul"] == ("matmul", 1, 120, (20 + 12 + 15) * 2)


def test_counters_nest():
    a = rabbet.ones(3)
    with rabbet_profile.count() as outer:
        a + a
        with rabbet_profile.count() as inner:
            a * a
        with inner:
            a * a
    assert outer["add"].calls == 1 and outer["mul"].calls == 2
    assert inner["add"].calls == 0 and inner["mul"].calls == 2


def test_each_thread_is_counted_where_it_asks_for_it():
    def step():
        a = rabbet.ones(3, requires_grad=True)
        (a * a).sum().backward()

    once, shared, idle = counted(step), rabbet_profile.count(), rabbet_profile.count()
    start = threading.Barrier(4)

    def work(asks):
        start.wait()
        if not asks:
            return [step() for _ in range(500)]
        with shared:
            return [step() for _ in range(500)]

    threads = [threading.Thread(target=work, args=(k < 3,)) for k in range(4)]
    with idle:  # in this thread, which runs nothing
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert shared.rows() == [(r.name, *(1500 * n for n in r[1:])) for r in once.rows()]
    assert once["mul"].calls == 3 and idle.rows() == []


def test_nothing_is_counted_outside():
    c = rabbet_profile.count()
    a = rabbet.ones(2, 3)
    with pytest.raises(ValueError, match="matmul"), c:
        a @ a
    a + 1
    assert c.rows() == []


def test_leaving_what_was_not_entered_is_an_error():
    c, errors = rabbet_profile.count(), []

    def leave():
        try:
            c.__exit__()
        except RuntimeError as error:
            errors.append(str(error))

    with c:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    leave()
    assert errors == ["rabbet_profile.count: this thread has not entered it"] * 2


def test_a_counter_that_is_dropped_or_left_open_harms_nobody():
    import subprocess
    import sys

    code = """
import rabbet, rabbet_profile
for _ in range(100):
    rabbet_profile.count().__enter__()
    rabbet.ones(3) + 1
kept = rabbet_profile.count().__enter__()
rabbet.ones(3) + 1
print(kept["add"].calls)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)


def test_the_table_is_sorted_by_operations():
    x, w = rabbet.randn(50, 40), rabbet.randn(40, 30)
    text = str(counted(lambda: (x @ w).exp().sum()))
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == ["operator", "calls", "FLOPs", "bytes"]
    assert [line[0] for line in lines[1:]] == ["matmul", "exp", "sum", "total"]
    assert lines[1] == ["matmul", "1", "120,000", f"{(2000 + 1200 + 1500) * F32:,}"]
    assert lines[-1][2] == "123,000"


def network(lib):
    x = lib.ones(2, 3, 8, 8)
    w, m = lib.ones(4, 3, 3, 3), lib.ones(10, 4 * 6 * 6)
    q = lib.ones(2, 1, 5, 4)
    for t in (x, w, m, q):
        t.requires_grad_()
    f = lib.nn.functional
    h = f.conv2d(x, w, stride=1).relu().reshape(2, -1)
    return f.linear(h, m).sum() + (q @ q.transpose(-1, -2)).sum()


def test_products_agree_with_the_counter_of_pytorch():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    theirs = FlopCounterMode(display=False)
    with theirs:
        network(torch).backward()
    products = ("matmul", "linear", "convolution", "convolution_dx", "convolution_dw")
    with rabbet_profile.count() as ours:
        network(rabbet).backward()
    assert sum(ours[name].flops for name in products) == theirs.get_total_flops()
