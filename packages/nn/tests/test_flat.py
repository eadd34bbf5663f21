"""Functions of layers outside `nn`: the same results as the modules and functionals."""

import numpy as np
import pytest
import rabbet
from rabbet import nn

F = nn.functional
X, Y, Z = (rabbet.randn(5, 4) for _ in range(3))
SIGN = rabbet.tensor([1.0, -1, 1, 1, -1])
LENGTHS = (rabbet.tensor([6, 5]), rabbet.tensor([2, 3]))
LOG_PROBS = rabbet.randn(6, 2, 5).log_softmax(-1)
TARGETS = rabbet.tensor([[1, 2, 3], [4, 4, 1]])
LOSSES = [
    ("binary_cross_entropy_with_logits", (X, Y.sigmoid()), {}),
    ("cosine_embedding_loss", (X, Y, SIGN), {}),
    ("ctc_loss", (LOG_PROBS, TARGETS, *LENGTHS), {}),
    ("hinge_embedding_loss", (X, Y.sign()), {"margin": 0.5}),
    ("margin_ranking_loss", (X, Y, Z.sign()), {"margin": 0.5}),
    ("triplet_margin_loss", (X, Y, Z), {"swap": True}),
    ("kl_div", (X, Y.softmax(-1)), {}),
    ("poisson_nll_loss", (X, Y.exp()), {"log_input": True, "full": False, "eps": 1e-8}),
]


@pytest.mark.parametrize("reduction", range(3))
@pytest.mark.parametrize("case", range(len(LOSSES)))
@pytest.mark.filterwarnings("ignore:kl_div. reduction 'mean' divides")
def test_losses(case, reduction):
    name, args, options = LOSSES[case]
    got = getattr(rabbet, name)(*args, **options, reduction=reduction)
    want = getattr(F, name)(*args, **options, reduction=("none", "mean", "sum")[reduction])
    assert rabbet.allclose(got, want)
    with pytest.raises(ValueError, match=rf"{name}: expected a reduction of 0 to 2, got 3"):
        getattr(rabbet, name)(*args, **options, reduction=3)


@pytest.mark.parametrize("layout", ["steps first", "batch first", "packed"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu", "projected"])
def test_recurrent_layers(kind, bidirectional, bias, layout):
    classes = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}
    options = {"proj_size": 2} if kind == "projected" else {}
    if kind == "rnn_relu":
        options["nonlinearity"] = "relu"
    first = layout == "batch first"
    layer = classes.get(kind, nn.LSTM)(
        4, 3, 2, bias=bias, batch_first=first, bidirectional=bidirectional, **options
    )
    count = 4 if bidirectional else 2
    h = rabbet.randn(count, 2, layer.proj_size or 3)
    hx = (h, rabbet.randn(count, 2, 3)) if layer.mode == "LSTM" else h
    x = rabbet.randn(2, 5, 4) if first else rabbet.randn(5, 2, 4)
    weights = [w for group in layer.all_weights for w in group]
    call = rabbet.lstm if kind == "projected" else getattr(rabbet, kind)
    if layout == "packed":
        x = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
        got = call(x.data, x.batch_sizes, hx, weights, bias, 2, 0.0, True, bidirectional)
    else:
        got = call(x, hx, weights, bias, 2, 0.0, True, bidirectional, first)
    output, state = layer(x, hx)
    want = (output.data, *(state if isinstance(state, tuple) else (state,)))
    assert len(got) == len(want)
    assert all(rabbet.equal(a, b) for a, b in zip(got, want, strict=True))


def test_cells():
    x, h, c = rabbet.randn(2, 4), rabbet.randn(2, 3), rabbet.randn(2, 3)
    cells = [
        (rabbet.gru_cell, nn.GRUCell(4, 3)),
        (rabbet.rnn_tanh_cell, nn.RNNCell(4, 3)),
        (rabbet.rnn_relu_cell, nn.RNNCell(4, 3, nonlinearity="relu")),
    ]
    for function, cell in cells:
        assert rabbet.equal(function(x, h, *cell.parameters()), cell(x, h))
    cell = nn.LSTMCell(4, 3, bias=False)
    got, want = rabbet.lstm_cell(x, (h, c), *cell.parameters()), cell(x, (h, c))
    assert rabbet.equal(got[0], want[0]) and rabbet.equal(got[1], want[1])


def test_wrong_numbers_of_weights_and_states():
    x, h = rabbet.randn(5, 2, 4), rabbet.zeros(1, 2, 3)
    weights = list(nn.LSTM(4, 3).parameters())
    with pytest.raises(RuntimeError, match=r"gru: expected 4 weights for each of 1 layers.* got 3"):
        rabbet.gru(x, h, weights[:3], True, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match="lstm expects two hidden states, got 1"):
        rabbet.lstm(x, (h,), weights, True, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError, match="lstm_cell expects two hidden states"):
        rabbet.lstm_cell(x[0], (h[0],), *weights)


def test_norms():
    x = rabbet.randn(3, 4, 5)
    stats = rabbet.zeros(4), rabbet.ones(4)
    affine = rabbet.randn(4), rabbet.randn(4)
    for name in ("batch_norm", "instance_norm"):
        own, other = [s.clone() for s in stats], [s.clone() for s in stats]
        got = getattr(rabbet, name)(x, *affine, *own, True, 0.2, 1e-3, True)
        want = getattr(F, name)(x, *other, *affine, True, 0.2, 1e-3)
        assert rabbet.equal(got, want) and rabbet.equal(own[0], other[0])
    assert rabbet.allclose(rabbet.norm_except_dim(x, 2, 1), x.square().sum((0, 2), True).sqrt())
    assert rabbet.allclose(rabbet.norm_except_dim(x, 2, -1), x.square().sum().sqrt())


def test_windows_and_samples():
    x = rabbet.randn(2, 3, 8)
    values, places = rabbet.adaptive_max_pool1d(x, 3)
    want = F.adaptive_max_pool1d(x, 3, return_indices=True)
    assert rabbet.equal(values, want[0]) and rabbet.equal(places, want[1])
    assert rabbet.equal(rabbet.constant_pad_nd(x, [1, 2], 3.0), F.pad(x, [1, 2], value=3.0))
    image, theta = rabbet.randn(2, 3, 4, 4), rabbet.randn(2, 2, 3)
    grid = rabbet.affine_grid_generator(theta, [2, 3, 5, 5], False)
    assert rabbet.equal(grid, F.affine_grid(theta, [2, 3, 5, 5], False))
    want = F.grid_sample(image, grid, "nearest", "reflection", True)
    assert rabbet.equal(rabbet.grid_sampler(image, grid, 1, 2, True), want)
    assert rabbet.equal(rabbet.grid_sampler_2d(image, grid, 1, 2, True), want)
    with pytest.raises(ValueError, match="expected a padding mode of 0 to 2, got 5"):
        rabbet.grid_sampler(image, grid, 0, 5, True)
    with pytest.raises(RuntimeError, match="grid_sampler_3d: expected 5D input"):
        rabbet.grid_sampler_3d(image, grid, 0, 0, True)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_convolutions(ndim):
    x, w, b = rabbet.randn(2, 4, *[6] * ndim), rabbet.randn(4, 2, *[3] * ndim), rabbet.randn(4)
    one, two = [1] * ndim, [2] * ndim
    got = rabbet.convolution(x, w, b, two, one, one, False, [0] * ndim, 2)
    assert rabbet.equal(got, getattr(F, f"conv{ndim}d")(x, w, b, two, one, one, 2))
    got = rabbet.convolution(x, w, b, two, one, one, True, one, 2)
    assert rabbet.equal(got, getattr(F, f"conv_transpose{ndim}d")(x, w, b, two, one, one, 2, one))
    with pytest.raises(RuntimeError, match="a weight of 3 to 5 dimensions"):
        rabbet.convolution(x, w.flatten()[:4].reshape(2, 2), b, two, one, one, False, one, 1)


def test_dropout_in_place():
    for name in ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_"):
        x = rabbet.ones(4, 3, 5)
        assert getattr(rabbet, name)(x, 0.5, False) is x and (x == 1).all()
        assert getattr(rabbet, name)(x, 0.5, True) is x and not (x == 1).all()
    x = rabbet.feature_dropout(rabbet.ones(8, 8, 5, 5), 0.5, True)
    assert ((x == 0).all((2, 3)) | (x == 2).all((2, 3))).all() and 0 < float(x.mean()) < 2


def test_statistics_of_batch_norm_have_no_gradient():
    x = rabbet.randn(2, 4, 3, requires_grad=True)
    found = rabbet.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    assert [t.requires_grad for t in found] == [True, False, False]


def test_native_dropout_returns_its_mask():
    rabbet.manual_seed(0)
    x = rabbet.full((1000,), 3.0, requires_grad=True)
    y, mask = rabbet.native_dropout(x, 0.25, True)
    assert mask.dtype is rabbet.bool and 200 < int((~mask).sum()) < 300
    assert rabbet.equal(y, mask * 4.0)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), mask.numpy() / 0.75, 1e-6)
    y, mask = rabbet.native_dropout(x, 0.25, False)
    assert bool(mask.all()) and rabbet.equal(y, x)
    assert rabbet.native_dropout(x, 1.0, True)[0].tolist() == [0.0] * 1000


def test_embedding_renorm_scales_the_rows_that_are_looked_up():
    table = rabbet.arange(6.0).reshape(3, 2)
    assert rabbet.embedding_renorm_(table, rabbet.tensor([[1, 2], [1, 1]]), 1.0, 2.0) is table
    np.testing.assert_allclose(np.linalg.norm(table.numpy(), axis=1), [1, 1, 1], 1e-5)
    assert table[0].tolist() == [0, 1]
