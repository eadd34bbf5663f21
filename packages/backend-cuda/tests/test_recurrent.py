"""Recurrent layers on the simulator, against the CPU's kernels and the cells' formulas by NumPy."""

import pytest

LAYERS = """
ops = rabbet.ops
rabbet.manual_seed(0)
close = {F16: 1e-2, BF16: 8e-2, F32: 2e-5, F64: 1e-12}
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
def judge(mode, sizes, hidden, reverse=False, dtype=F32, bias=True, packed=True, extra=True, put=lambda t: t):
    g, rows, batch = GATES[mode], sum(sizes), sizes[0] if sizes else 0
    lstm = mode == "lstm"
    make = lambda *s: put((rabbet.randn(s) * 0.5).to(dtype))
    given = [make(rows, g * hidden), make(batch, hidden), make(g * hidden, hidden)]
    if lstm: given.append(make(batch, hidden))
    if bias: given.append(make(g * hidden))
    def forward(x, h, w, *rest):
        rest = list(rest)
        c = rest.pop(0) if lstm else None
        return ops.recurrent_layer(mode, x, h, c, w, rest.pop() if rest else None, sizes if packed else [], reverse)
    both(forward, *given, close=close[dtype])
    output, hn, cn, cells, saved = forward(*given)
    grads = [make(*t.shape) for t in (output, hn, cn, cells, saved)]
    if not extra: grads = grads[:1]
    states = given[1:2] + ([given[3]] if lstm else [])
    def backward(*all):
        all = list(all)
        gs = [all.pop(0) for _ in grads] + [None] * (5 - len(grads))
        output, cells, saved, w, h, *c = all
        return ops.recurrent_layer_backward(mode, *gs, output, cells, saved, h, c[0] if c else None, w, bias, sizes if packed else [], reverse)
    both(backward, *grads, output, cells, saved, given[2], *states, close=close[dtype] * 8)
"""


ALL = {"RABBET_CUDA_EXACT": "1", "CUSIM_CHECK": "all"}


@pytest.mark.parametrize("order", ["forward", "random:5"])
def test_layers_of_every_mode_in_one_launch_agree_with_the_cpu(compared, order):
    """Several blocks, sequences that end, units that fill no warp; under all checkers."""
    compared(
        LAYERS
        + """
for mode in GATES:
    for reverse in (False, True):
        judge(mode, [3, 2, 2, 1], 5, reverse)
        judge(mode, [9, 9, 6, 5, 4, 1, 1], 9, reverse, extra=False)
    judge(mode, [5, 5, 5], 4, packed=False, bias=False, extra=False)
    judge(mode, [5, 5], 6, reverse=True, packed=False)
    judge(mode, [1], 1)
    judge(mode, [], 3)
judge("lstm", [2, 1], 128)
""",
        CUSIM_ORDER=order,
        **ALL,
    )


def test_layers_of_every_mode_step_by_step_agree_with_the_cpu(compared):
    """Too wide for one launch: more units than threads."""
    compared(
        LAYERS
        + """
for mode in GATES: judge(mode, [3, 2, 1], 129, reverse=mode in ("lstm", "tanh"))
judge("gru", [2, 2], 129, packed=False, bias=False, extra=False)
judge("lstm", [2, 1], 129, dtype=F16)
judge("lstm", [2, 1], 96, dtype=F64)
judge("gru", [], 129)
""",
        **ALL,
    )


def test_dtypes_views_and_layers_without_steps(compared):
    compared(
        LAYERS
        + """
for mode in GATES:
    for dtype in (F16, BF16, F64): judge(mode, [6, 2, 1], 11, dtype=dtype, extra=dtype == F64)
judge("lstm", [3, 2, 1], 6, put=lambda t: t.t().contiguous().t() if t.ndim == 2 else t)
for mode in ("lstm", "gru"):  # no steps: states are passed on, and their gradients
    for hidden in (3, 129):
        h, c = rabbet.randn(2, hidden, device="cuda"), rabbet.randn(2, hidden, device="cuda")
        w, x = rabbet.randn(GATES[mode] * hidden, hidden, device="cuda"), rabbet.zeros(0, GATES[mode] * hidden, device="cuda")
        for t in (h, c, w): t.requires_grad_()
        output, hn, cn, *_ = ops.recurrent_layer(mode, x, h, c if mode == "lstm" else None, w, None)
        assert output.shape == (0, hidden) and (hn == h).all().item()
        (2 * hn.sum() + 3 * cn.sum()).backward()
        assert (h.grad == 2).all().item() and (w.grad == 0).all().item()
        if mode == "lstm": assert (cn == c).all().item() and (c.grad == 3).all().item()
"""
    )


def test_a_packed_batch_of_more_steps_than_a_launch_of_the_table_takes(compared):
    compared(LAYERS + 'judge("gru", [5] * 200 + [2] * 90, 2); judge("tanh", [2] * 256, 1, True)')


def test_sequences_do_not_meet_and_runs_are_equal(compared):
    """Infinite weights and a sequence of NaN reach no other sequence of the block, nor one that has ended."""
    compared(
        LAYERS
        + """
for hidden in (5, 129):
    x, h, w = rabbet.randn(9, hidden), rabbet.randn(4, hidden), rabbet.randn(hidden, hidden) * 0.1
    x[1] = float("nan")
    w[2, 3] = float("inf")
    def layer(*given):
        x, h, w = (t.clone().requires_grad_() for t in given)
        output, hn, *_ = ops.recurrent_layer("relu", x, h, None, w, None, [4, 3, 2])
        (hn * hn).sum().backward()
        return output.detach(), hn.detach(), x.grad, h.grad
    both(layer, x, h, w, close=1e-4)
    there = [t.to("cuda") for t in (x, h, w)]
    first = layer(*there)
    for _ in range(3):
        for a, b in zip(first, layer(*there), strict=True): same(a.cpu(), b)
"""
    )


COUNT = """
import ctypes, os, rabbet
count = ctypes.CDLL(os.environ["RABBET_CUDA_DRIVER"]).cusim_launches
count.restype = ctypes.c_ulonglong
def launches(steps, hidden, batch=3):
    x, h, w = (rabbet.zeros(s, hidden, device="cuda").requires_grad_() for s in (batch * steps, batch, hidden))
    counts = []
    before = count(); out = rabbet.ops.recurrent_layer("tanh", x, h, None, w, None)[0]; counts.append(count() - before)
    g = rabbet.ones_like(out)
    before = count(); out.backward(g); counts.append(count() - before)
    return counts
"""


def test_launches_of_a_small_layer_do_not_grow_with_its_steps(run, null_driver):
    code = """
assert launches(2, 64) == launches(200, 64), (launches(2, 64), launches(200, 64))
assert launches(200, 64)[0] == 2  # the weight's order, all steps
wide = launches(7, 129), launches(2, 129)
assert [a - b for a, b in zip(*wide)] == [10, 10], wide  # two for each step
most = 132 * 4 * 8  # sequences of all multiprocessors' blocks that take turns in time
assert launches(7, 128, most) == launches(2, 128, most)
assert launches(7, 128, most + 1)[0] == launches(2, 128, most + 1)[0] + 10
"""
    run(COUNT + code, **null_driver)


def test_a_step_of_the_lstm_is_its_formula(compared):
    compared(
        """
sigmoid = lambda t: 1 / (1 + np.exp(-t))
x, h, c, w, b = (numbers.standard_normal(s) for s in ((6, 12), (2, 3), (2, 3), (12, 3), (12,)))
on = [rabbet.tensor(t, device="cuda") for t in (x, h, c, w, b)]
output, hn, cn, cells, _ = rabbet.ops.recurrent_layer("lstm", *on)
for t in range(3):
    i, f, g, o = np.split(x[2 * t:2 * t + 2] + h @ w.T + b, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    same(rabbet.tensor(h), output[2 * t:2 * t + 2], 1e-12)
same(rabbet.tensor(h), hn, 1e-12)
same(rabbet.tensor(c), cn, 1e-12)
"""
    )


def test_modules_of_layers_train_alike_on_both_devices(compared):
    """Packed or not, in both directions, with projections and dropout; the same numbers are dropped."""
    compared(
        """
from rabbet.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
nn = rabbet.nn
KINDS = [(nn.LSTM, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}), (nn.LSTM, {"proj_size": 2}),
         (nn.GRU, {"batch_first": True, "num_layers": 2, "dropout": 0.5}), (nn.RNN, {"nonlinearity": "relu", "bidirectional": True})]
for kind, how in KINDS:
    for packed in (False, True):
        rabbet.manual_seed(1)
        layer, x = kind(3, 4, **how), rabbet.randn(5, 5, 3)
        found = []
        for device in ("cpu", "cuda"):
            rabbet.manual_seed(2)
            layer = layer.to(device)
            layer.zero_grad()
            given = x.clone().to(device).requires_grad_()
            if packed: given_now = pack_padded_sequence(given, [5, 3, 3, 2, 1], batch_first=how.get("batch_first", False))
            else: given_now = given
            out, states = layer(given_now)
            if packed: out = pad_packed_sequence(out)[0]
            states = states if isinstance(states, tuple) else (states,)
            (sum((s * s).sum() for s in states) + (out * out).sum()).backward()
            found.append([out.detach(), given.grad] + [s.detach() for s in states] + [p.grad for p in layer.parameters()])
        for here, there in zip(*found, strict=True): same(here, there, 1e-4)
"""
    )


def test_a_step_with_a_packed_lstm_is_captured(compared):
    compared(
        """
from rabbet import accelerator
from rabbet.nn.utils.rnn import PackedSequence
rabbet.manual_seed(0)
layer, batches = rabbet.nn.LSTM(3, 4), [rabbet.randn(8, 3) for _ in range(3)]
sizes = rabbet.tensor([3, 2, 2, 1])
def step(layer, x):
    layer.zero_grad()
    out, (h, c) = layer(PackedSequence(x, sizes))
    loss = (out.data * out.data).sum() + h.sum() + c.sum()
    loss.backward()
    with rabbet.no_grad():
        for p in layer.parameters(): p -= 0.1 * p.grad
    return loss
there = rabbet.nn.LSTM(3, 4)
there.load_state_dict(layer.state_dict())
there = there.to("cuda")
wanted = [step(layer, x).item() for x in batches]
x, graph, side = batches[0].to("cuda"), accelerator.Graph(), rabbet.Stream("cuda")
for p in there.parameters(): p.grad = rabbet.zeros_like(p)
side.wait_stream(accelerator.current_stream("cuda"))
with side:
    with graph: loss = step(there, x)
    got = []
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        got.append(loss.item())
assert np.allclose(got, wanted, rtol=1e-4), (got, wanted)
for a, b in zip(layer.parameters(), there.parameters(), strict=True): same(a.detach(), b.detach(), 1e-4)
"""
    )


def test_wrong_steps_are_refused_before_a_kernel_runs(compared):
    compared(
        """
x, h, c, w = (rabbet.zeros(s, device="cuda") for s in ((4, 12), (2, 3), (2, 3), (12, 3)))
for args, words in (
    (("lstm", x, h, c, w, None, [2, 3]), "never grow"), (("lstm", x, h, c, w, None, [2, 1]), "add up to 3"),
    (("lstm", x[:3], h, c, w, None), "no whole number of steps"), (("lstm", x, h, None, w, None), "'c0'"),
    (("gru", x, h, None, w, None), "'gates'"), (("lstm", x, h, c, w[:9], None), "'weight_hh'"),
):
    try: rabbet.ops.recurrent_layer(*args)
    except (ValueError, RuntimeError, TypeError) as error: assert words in str(error), error
    else: raise AssertionError(words)
"""
    )
