"""Recurrent layers on the simulator, against the CPU's kernels and the cells' formulas by NumPy."""

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


def test_layers_of_every_mode_agree_with_the_cpu(compared):
    compared(
        LAYERS
        + """
for mode in GATES:
    for reverse in (False, True):
        judge(mode, [3, 2, 2, 1], 5, reverse)
    judge(mode, [2, 2, 2], 4, packed=False, bias=False, extra=False)
    judge(mode, [1], 1)
"""
    )


def test_dtypes_views_and_layers_without_steps(compared):
    compared(
        LAYERS
        + """
for mode in ("lstm", "gru", "relu"):
    for dtype in (F16, BF16, F64): judge(mode, [3, 2, 1], 8, dtype=dtype, extra=False)
    judge(mode, [], 3)
judge("lstm", [3, 2, 1], 6, put=lambda t: t.t().contiguous().t() if t.ndim == 2 else t)
"""
    )


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
    compared(
        """
nn = rabbet.nn
for kind, how in ((nn.LSTM, {"num_layers": 2, "bidirectional": True}), (nn.LSTM, {"proj_size": 2}), (nn.GRU, {"batch_first": True}), (nn.RNN, {"nonlinearity": "relu"})):
    rabbet.manual_seed(1)
    layer, x = kind(3, 4, **how), rabbet.randn(5, 2, 3)
    grads = []
    for device in ("cpu", "cuda"):
        layer = layer.to(device)
        layer.zero_grad()
        out, _ = layer(x.to(device))
        (out * out).sum().backward()
        grads.append([out.detach()] + [p.grad for p in layer.parameters()])
    for here, there in zip(*grads, strict=True): same(here, there, 1e-4)
"""
    )
