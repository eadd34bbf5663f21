"""Recurrent layers and cells: against loops in NumPy, PyTorch where it is there, and bad input."""

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn.utils import rnn as rnn_utils


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_step(mode, x, h, c, weights):
    """One step of one cell; weights are weight_ih, weight_hh, bias_ih, bias_hh as arrays."""
    w_ih, w_hh, b_ih, b_hh = weights
    a, b = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
    if mode == "LSTM":
        i, f, g, o = np.split(a + b, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if mode == "GRU":
        (xr, xz, xn), (hr, hz, hn) = np.split(a, 3, -1), np.split(b, 3, -1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = np.tanh(xn + r * hn)
        return (1 - z) * n + z * h, c
    s = a + b
    return (np.tanh(s) if mode == "RNN_TANH" else np.maximum(s, 0)), c


def numpy_layers(module, x, h, c):
    """x (T, B, I); h and c (layers * directions, B, H)."""
    directions = 2 if module.bidirectional else 1
    weights = [[w.detach().numpy() for w in ws] for ws in module.all_weights]
    last_h, last_c = [], []
    for layer in range(module.num_layers):
        outputs = []
        for d in range(directions):
            at = layer * directions + d
            state, cell, rows = h[at], c[at], [None] * len(x)
            for t in reversed(range(len(x))) if d else range(len(x)):
                state, cell = numpy_step(module.mode, x[t], state, cell, weights[at])
                rows[t] = state
            outputs.append(np.stack(rows))
            last_h.append(state)
            last_c.append(cell)
        x = np.concatenate(outputs, -1)
    return x, np.stack(last_h), np.stack(last_c)


MAKERS = {
    "RNN_TANH": nn.RNN,
    "RNN_RELU": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
}


def random(*shape, dtype=rabbet.float64):
    return rabbet.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("mode", MAKERS)
@pytest.mark.parametrize(
    ("layers", "bidirectional", "hidden"), [(1, False, 7), (2, True, 5), (3, False, 20)]
)
def test_layers_match_a_loop_in_numpy(mode, layers, bidirectional, hidden):
    rabbet.manual_seed(3)
    module = MAKERS[mode](4, hidden, layers, bidirectional=bidirectional, dtype=rabbet.float64)
    count = layers * (2 if bidirectional else 1)
    x, h, c = random(6, 3, 4), random(count, 3, hidden), random(count, 3, hidden)
    output, last = module(x, (h, c) if mode == "LSTM" else h)
    expected, expected_h, expected_c = numpy_layers(module, x.numpy(), h.numpy(), c.numpy())
    np.testing.assert_allclose(output.detach().numpy(), expected, atol=1e-12)
    last_h, last_c = last if mode == "LSTM" else (last, None)
    np.testing.assert_allclose(last_h.detach().numpy(), expected_h, atol=1e-12)
    if last_c is not None:
        np.testing.assert_allclose(last_c.detach().numpy(), expected_c, atol=1e-12)


@pytest.mark.parametrize("mode", MAKERS)
def test_cells_match_a_step_in_numpy(mode):
    maker = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell}.get(mode, nn.RNNCell)
    extra = {"nonlinearity": "relu"} if mode == "RNN_RELU" else {}
    cell = maker(4, 5, dtype=rabbet.float64, **extra)
    x, h, c = random(3, 4), random(3, 5), random(3, 5)
    weights = [w.detach().numpy() for w in cell.parameters()]
    expected = numpy_step(mode, x.numpy(), h.numpy(), c.numpy(), weights)
    found = cell(x, (h, c) if mode == "LSTM" else h)
    found = found if mode == "LSTM" else (found,)
    for mine, other in zip(found, expected, strict=False):
        np.testing.assert_allclose(mine.detach().numpy(), other, atol=1e-12)
    single = cell(x[1], (h[1], c[1]) if mode == "LSTM" else h[1])
    single = single[0] if mode == "LSTM" else single
    np.testing.assert_allclose(single.detach().numpy(), expected[0][1], atol=1e-12)


@pytest.mark.parametrize("mode", MAKERS)
@pytest.mark.parametrize("packed", [False, True])
def test_gradients_match_pytorch(mode, packed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    name = mode.split("_")[0]
    extra = {"nonlinearity": "relu"} if mode == "RNN_RELU" else {}
    theirs = getattr(torch.nn, name)(4, 18, 2, bidirectional=True, **extra)
    mine = getattr(nn, name)(4, 18, 2, bidirectional=True, **extra)
    mine.load_state_dict({k: rabbet.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = torch.randn(6, 5, 4)
    lengths = [2, 6, 3, 3, 1]
    tx, rx = x.clone().requires_grad_(), rabbet.tensor(x.numpy(), requires_grad=True)
    t_in, r_in = tx, rx
    if packed:
        t_in = torch.nn.utils.rnn.pack_padded_sequence(tx, lengths, enforce_sorted=False)
        r_in = rnn_utils.pack_padded_sequence(rx, lengths, enforce_sorted=False)
    t_out, t_last = theirs(t_in)
    r_out, r_last = mine(r_in)
    if packed:
        t_out, t_lengths = torch.nn.utils.rnn.pad_packed_sequence(t_out, padding_value=0.5)
        r_out, r_lengths = rnn_utils.pad_packed_sequence(r_out, padding_value=0.5)
        assert r_lengths.tolist() == t_lengths.tolist() == lengths
    t_last = t_last if isinstance(t_last, tuple) else (t_last,)
    r_last = r_last if isinstance(r_last, tuple) else (r_last,)
    for a, b in zip((r_out, *r_last), (t_out, *t_last), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=2e-6)
    (t_out.sin().sum() + sum(s.cos().sum() for s in t_last)).backward()
    total = r_out.sin().sum()
    for s in r_last:
        total = total + s.cos().sum()
    total.backward()
    np.testing.assert_allclose(rx.grad.numpy(), tx.grad.numpy(), atol=1e-5)
    for (key, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(
            p.grad.numpy(), q.grad.numpy(), atol=1e-4, rtol=1e-4, err_msg=key
        )


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projected_lstm_matches_pytorch():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTM(4, 6, 2, proj_size=3, bidirectional=True)
    mine = nn.LSTM(4, 6, 2, proj_size=3, bidirectional=True)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    mine.load_state_dict({k: rabbet.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    x = torch.randn(5, 2, 4)
    t_out, (t_h, t_c) = theirs(x)
    r_out, (r_h, r_c) = mine(rabbet.tensor(x.numpy()))
    for a, b in ((r_out, t_out), (r_h, t_h), (r_c, t_c)):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=2e-6)
    t_out.sum().backward()
    r_out.sum().backward()
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), atol=1e-5)


def test_batch_first_and_unbatched_inputs_agree_with_the_plain_layout():
    module = nn.LSTM(3, 4, dtype=rabbet.float64)
    x = random(5, 2, 3)
    plain, (h, _) = module(x)
    module.batch_first = True
    turned, (h2, _) = module(x.transpose(0, 1))
    assert turned.shape == (2, 5, 4)
    np.testing.assert_array_equal(turned.transpose(0, 1).detach().numpy(), plain.detach().numpy())
    np.testing.assert_array_equal(h.detach().numpy(), h2.detach().numpy())
    single, (h3, c3) = module(x[:, 1])
    assert single.shape == (5, 4) and h3.shape == (1, 4) and c3.shape == (1, 4)
    np.testing.assert_allclose(single.detach().numpy(), plain[:, 1].detach().numpy(), atol=1e-14)


def test_results_are_the_same_bits_for_any_number_of_threads():
    rabbet.manual_seed(5)
    module, x = nn.GRU(20, 33, 2), rabbet.randn(7, 40, 20)
    before, found = rabbet.get_num_threads(), []
    try:
        for n in (1, 2, 4):
            rabbet.set_num_threads(n)
            module.zero_grad()
            output, _ = module(x)
            output.sum().backward()
            found.append([output.detach().numpy()] + [p.grad.numpy() for p in module.parameters()])
    finally:
        rabbet.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_half_precision_rounds_float32():
    module = nn.LSTM(8, 16)
    x = rabbet.randn(4, 3, 8)
    expected = module(x)[0].detach().numpy()
    found = module.to(rabbet.bfloat16)(x.to(rabbet.bfloat16))[0]
    assert found.dtype == rabbet.bfloat16
    np.testing.assert_allclose(found.detach().float().numpy(), expected, atol=0.03)


def test_dropout_acts_between_layers_in_training_only():
    module = nn.RNN(3, 50, 2, dropout=0.5)
    x = rabbet.randn(4, 2, 3)
    assert not rabbet.equal(module(x)[0], module(x)[0])
    module.eval()
    assert rabbet.equal(module(x)[0], module(x)[0])


def test_pack_and_unpack_give_the_sequences_back():
    sequences = [rabbet.arange(n, dtype=rabbet.float32) + 10 * n for n in (2, 4, 1)]
    packed = rnn_utils.pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.data.tolist() == [40, 20, 10, 41, 21, 42, 43]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    for a, b in zip(rnn_utils.unpack_sequence(packed), sequences, strict=True):
        assert a.tolist() == b.tolist()
    padded, lengths = rnn_utils.pad_packed_sequence(packed, True, -1.0, 5)
    assert lengths.tolist() == [2, 4, 1]
    assert padded[2].tolist() == [10, -1, -1, -1, -1]
    left = rnn_utils.pad_sequence(sequences, True, padding_side="left")
    assert left[0].tolist() == [0, 0, 20, 21]


def test_packed_gradient_reaches_only_what_was_packed():
    x = rabbet.ones(4, 2, dtype=rabbet.float64).requires_grad_()
    packed = rnn_utils.pack_padded_sequence(x, [3, 2])
    padded, _ = rnn_utils.pad_packed_sequence(packed)
    padded.sum().backward()
    assert x.grad.tolist() == [[1, 1], [1, 1], [1, 0], [0, 0]]


X = rabbet.zeros(5, 2, 3)
BAD = [
    (lambda: nn.LSTM(3, 0), ValueError, "hidden_size must be greater than zero"),
    (lambda: nn.LSTM(3, 4.0), TypeError, "should be of type int, got: float"),
    (lambda: nn.LSTM(3, 4, 0), ValueError, "num_layers must be greater than zero"),
    (lambda: nn.LSTM(3, 4, dropout=1.5), ValueError, "number in range"),
    (lambda: nn.LSTM(3, 4, proj_size=4), ValueError, "smaller than hidden_size"),
    (lambda: nn.GRU(3, 4, proj_size=2), ValueError, "only supported for LSTM"),
    (lambda: nn.RNN(3, 4, nonlinearity="gelu"), ValueError, "Unknown nonlinearity 'gelu'"),
    (lambda: nn.LSTM(3, 4)(X[0, 0]), ValueError, "2D or 3D, got 1D"),
    (lambda: nn.LSTM(2, 4)(X), RuntimeError, "Expected 2, got 3"),
    (lambda: nn.GRU(3, 4)(X[:0]), RuntimeError, "larger than 0"),
    (lambda: nn.GRU(3, 4)(X, rabbet.zeros(1, 3, 4)), RuntimeError, r"Expected hidden size \(1, 2, 4\)"),
    (lambda: nn.GRU(3, 4)(X, rabbet.zeros(2, 4)), RuntimeError, "batched 3-D input"),
    (lambda: nn.LSTM(3, 4)(X, rabbet.zeros(1, 2, 4)), RuntimeError, "pair"),
    (lambda: nn.LSTMCell(3, 4)(X), ValueError, "1D or 2D, got 3D"),
    (lambda: nn.GRUCell(3, 4)(X[0], rabbet.zeros(3, 4)), RuntimeError, r"Input batch size 2 doesn't match hidden0 batch size 3"),
    (lambda: rnn_utils.pack_padded_sequence(X, [2, 3]), RuntimeError, "decreasing order"),
    (lambda: rnn_utils.pack_padded_sequence(X, [3, 0]), RuntimeError, "greater than 0"),
    (lambda: rnn_utils.pack_padded_sequence(X, [6, 1]), RuntimeError, "length of 6 exceeds the 5"),
    (lambda: rnn_utils.pack_padded_sequence(X, [6]), RuntimeError, "equal to batch_size"),
    (lambda: rnn_utils.pad_sequence([]), RuntimeError, "empty list"),
    (
        lambda: rabbet.ops.recurrent_layer("lstm", X[0], X[0], None, X[0], None),
        ValueError,
        "'gates' must have shape",
    ),
    (
        lambda: rabbet.ops.recurrent_layer("elman", X[0], X[0], None, X[0], None),
        ValueError,
        "'mode' must be",
    ),
    (
        lambda: rabbet.ops.recurrent_layer(
            "tanh", rabbet.zeros(5, 3), X[0], None, rabbet.zeros(3, 3), None, [2, 3]
        ),
        ValueError,
        "never grow; entry 1 is 3",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_dropout_of_one_layer_warns():
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        nn.LSTM(3, 4, dropout=0.5)
