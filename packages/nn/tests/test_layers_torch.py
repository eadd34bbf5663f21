"""Every layer against PyTorch's of the same name: values and gradients, in float64."""

import warnings

import numpy as np
import pytest
import rabbet
from rabbet import nn

torch = pytest.importorskip("torch")

rng = np.random.default_rng(7)


def normal(*shape):
    return rng.standard_normal(shape)


def classes(count, *shape):
    return rng.integers(0, count, shape)


def probabilities(*shape):
    return rng.uniform(0.05, 0.95, shape)


def signs(*shape):
    return rng.integers(0, 2, shape) * 2.0 - 1.0


IMAGE = (2, 4, 7, 6)
LINE = (2, 4, 9)
ROWS = (5, 4)

# (layer, arguments, keyword arguments, inputs)
LAYERS = [
    ("Identity", (), {}, [normal(3, 4)]),
    ("Linear", (4, 3), {}, [normal(*ROWS)]),
    ("Linear", (4, 3), {"bias": False}, [normal(2, 3, 4)]),
    ("Linear", (4, 3), {}, [normal(4)]),
    ("Bilinear", (4, 3, 5), {}, [normal(2, 6, 4), normal(2, 6, 3)]),
    ("Bilinear", (4, 3, 5), {"bias": False}, [normal(6, 4), normal(6, 3)]),
    ("Embedding", (10, 3), {}, [classes(10, 4, 5)]),
    ("Embedding", (10, 3), {"padding_idx": -2}, [np.array([[8, 1, 8], [9, 8, 0]])]),
    ("Conv1d", (4, 6, 3), {}, [normal(*LINE)]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [normal(*LINE)]),
    ("Conv1d", (4, 6, 4), {"padding": "same", "dilation": 2}, [normal(*LINE)]),
    ("Conv1d", (4, 6, 3), {}, [normal(4, 9)]),
    ("Conv2d", (4, 6, 3), {}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "padding": (1, 0)}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, 3), {"dilation": 2, "bias": False}, [normal(*IMAGE)]),
    ("Conv2d", (4, 8, 3), {"groups": 4, "padding": 1}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, (4, 3)), {"padding": "same"}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, 3), {"padding": "valid"}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, 3), {"padding": 2, "padding_mode": "reflect"}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, 3), {"padding": 1, "padding_mode": "replicate"}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": "circular"}, [normal(*IMAGE)]),
    ("Conv2d", (4, 6, 3), {}, [normal(4, 7, 6)]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, [normal(*LINE)]),
    ("ConvTranspose2d", (4, 6, 3), {}, [normal(*IMAGE)]),
    ("ConvTranspose2d", (4, 6, 3, 2, 1, 1, 2), {}, [normal(*IMAGE)]),
    ("ConvTranspose2d", (4, 6, 3), {"dilation": 2, "bias": False}, [normal(4, 7, 6)]),
    ("BatchNorm1d", (4,), {}, [normal(*ROWS)]),
    ("BatchNorm1d", (4,), {"affine": False, "momentum": None}, [normal(*LINE)]),
    ("BatchNorm2d", (4,), {"eps": 1e-3, "momentum": 0.3}, [normal(*IMAGE)]),
    ("BatchNorm2d", (4,), {"track_running_stats": False}, [normal(*IMAGE)]),
    ("BatchNorm3d", (4,), {}, [normal(2, 4, 3, 2, 2)]),
    ("InstanceNorm1d", (4,), {"affine": True}, [normal(*LINE)]),
    ("InstanceNorm2d", (4,), {"track_running_stats": True}, [normal(*IMAGE)]),
    ("InstanceNorm2d", (4,), {}, [normal(4, 7, 6)]),
    ("LayerNorm", (4,), {}, [normal(*ROWS)]),
    ("LayerNorm", ((7, 6),), {"eps": 1e-3, "bias": False}, [normal(*IMAGE)]),
    ("LayerNorm", (6,), {"elementwise_affine": False}, [normal(*IMAGE)]),
    ("RMSNorm", (4,), {}, [normal(*ROWS)]),
    ("RMSNorm", ([7, 6],), {"eps": 1e-2}, [normal(*IMAGE)]),
    ("GroupNorm", (2, 4), {}, [normal(*IMAGE)]),
    ("GroupNorm", (4, 4), {"affine": False}, [normal(3, 4)[:, :, None].repeat(3, 2)]),
    ("ReLU", (), {}, [normal(*ROWS)]),
    ("LeakyReLU", (0.2,), {}, [normal(*ROWS)]),
    ("ELU", (0.7,), {}, [normal(*ROWS)]),
    ("CELU", (0.7,), {}, [normal(*ROWS)]),
    ("SELU", (), {}, [normal(*ROWS)]),
    ("GELU", (), {}, [normal(*ROWS)]),
    ("GELU", ("tanh",), {}, [normal(*ROWS)]),
    ("SiLU", (), {}, [normal(*ROWS)]),
    ("Mish", (), {}, [normal(*ROWS)]),
    ("Sigmoid", (), {}, [normal(*ROWS)]),
    ("LogSigmoid", (), {}, [normal(*ROWS)]),
    ("Tanh", (), {}, [normal(*ROWS)]),
    ("Tanhshrink", (), {}, [normal(*ROWS)]),
    ("Softsign", (), {}, [normal(*ROWS)]),
    ("Softplus", (2.0, 3.0), {}, [normal(*ROWS) * 3]),
    ("Hardtanh", (-0.5, 0.4), {}, [normal(*ROWS)]),
    ("Hardsigmoid", (), {}, [normal(*ROWS) * 3]),
    ("Hardswish", (), {}, [normal(*ROWS) * 3]),
    ("Hardshrink", (0.4,), {}, [normal(*ROWS)]),
    ("Softshrink", (0.4,), {}, [normal(*ROWS)]),
    ("Threshold", (0.1, 20.0), {}, [normal(*ROWS)]),
    ("ReLU6", (), {}, [normal(*ROWS) * 5]),
    ("PReLU", (), {}, [normal(*ROWS)]),
    ("PReLU", (4, 0.1), {}, [normal(*IMAGE)]),
    ("GLU", (1,), {}, [normal(*IMAGE)]),
    ("Softmax", (-1,), {}, [normal(*ROWS)]),
    ("LogSoftmax", (0,), {}, [normal(*ROWS)]),
    ("Softmin", (1,), {}, [normal(*ROWS)]),
    ("Dropout", (0.0,), {}, [normal(*ROWS)]),
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1}, [normal(*LINE)]),
    ("MaxPool2d", (2,), {}, [normal(*IMAGE)]),
    ("MaxPool2d", ((3, 2),), {"stride": 1, "padding": 1, "dilation": 2}, [normal(*IMAGE)]),
    ("MaxPool2d", (2,), {"ceil_mode": True}, [normal(4, 7, 5)]),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1}, [normal(*LINE)]),
    ("AvgPool2d", (2,), {}, [normal(*IMAGE)]),
    ("AvgPool2d", (3, 2, 1), {"count_include_pad": False, "ceil_mode": True}, [normal(*IMAGE)]),
    ("AvgPool2d", (3,), {"divisor_override": 4}, [normal(*IMAGE)]),
    ("AdaptiveAvgPool1d", (4,), {}, [normal(*LINE)]),
    ("AdaptiveAvgPool2d", (3,), {}, [normal(*IMAGE)]),
    ("AdaptiveAvgPool2d", ((None, 2),), {}, [normal(*IMAGE)]),
    ("Flatten", (), {}, [normal(*IMAGE)]),
    ("Unflatten", (1, (2, 2)), {}, [normal(*IMAGE)]),
    ("ConstantPad1d", ((1, 2), 3.5), {}, [normal(*LINE)]),
    ("ConstantPad2d", (1, 3.5), {}, [normal(*IMAGE)]),
    ("ZeroPad2d", ((1, 0, -1, 2),), {}, [normal(*IMAGE)]),
    ("ReflectionPad1d", ((1, 2),), {}, [normal(*LINE)]),
    ("ReflectionPad2d", ((1, 2, 0, 3),), {}, [normal(*IMAGE)]),
    ("ReplicationPad1d", (3,), {}, [normal(*LINE)]),
    ("ReplicationPad2d", ((1, 2, 0, 3),), {}, [normal(*IMAGE)]),
    ("CosineSimilarity", (), {}, [normal(*ROWS), normal(*ROWS)]),
    ("PairwiseDistance", (3.0,), {}, [normal(*ROWS), normal(*ROWS)]),
    ("CrossEntropyLoss", (), {}, [normal(*ROWS), classes(4, 5)]),
    ("CrossEntropyLoss", (), {}, [normal(*IMAGE), classes(4, 2, 7, 6)]),
    ("CrossEntropyLoss", (), {}, [normal(4), classes(4)]),
    ("CrossEntropyLoss", (), {"ignore_index": 2}, [normal(*ROWS), np.array([0, 2, 1, 2, 3])]),
    ("CrossEntropyLoss", (), {}, [normal(*ROWS), np.array([0, -100, 1, 2, 3])]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.2}, [normal(*ROWS), classes(4, 5)]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.2}, [normal(*ROWS), probabilities(*ROWS)]),
    ("CrossEntropyLoss", (), {"reduction": "sum"}, [normal(*ROWS), probabilities(*ROWS)]),
    ("CrossEntropyLoss", (), {"reduction": "none"}, [normal(*IMAGE), classes(4, 2, 7, 6)]),
    ("NLLLoss", (), {"ignore_index": 1}, [normal(*ROWS), np.array([0, 2, 1, 2, 3])]),
    ("NLLLoss", (), {"reduction": "none"}, [normal(*ROWS), classes(4, 5)]),
    ("MSELoss", (), {}, [normal(*ROWS), normal(*ROWS)]),
    ("MSELoss", (), {"reduction": "sum"}, [normal(*ROWS), normal(*ROWS)]),
    ("MSELoss", (), {"size_average": False}, [normal(*ROWS), normal(*ROWS)]),
    ("L1Loss", (), {}, [normal(*ROWS), normal(*ROWS)]),
    ("L1Loss", (), {"reduction": "none"}, [normal(*ROWS), normal(*ROWS)]),
    ("SmoothL1Loss", (), {"beta": 0.7}, [normal(*ROWS), normal(*ROWS)]),
    ("SmoothL1Loss", (), {"beta": 0.0}, [normal(*ROWS), normal(*ROWS)]),
    ("HuberLoss", ("sum", 0.6), {}, [normal(*ROWS), normal(*ROWS)]),
    ("BCELoss", (), {}, [probabilities(*ROWS), probabilities(*ROWS)]),
    ("BCEWithLogitsLoss", (), {}, [normal(*ROWS) * 30, probabilities(*ROWS)]),
    ("BCEWithLogitsLoss", (), {"reduction": "none"}, [normal(*ROWS), probabilities(*ROWS)]),
    ("KLDivLoss", (), {"reduction": "batchmean"}, [-probabilities(*ROWS), probabilities(*ROWS)]),
    ("KLDivLoss", (), {"reduction": "sum", "log_target": True}, [normal(*ROWS), normal(*ROWS)]),
    ("Embedding", (10, 3), {"scale_grad_by_freq": True}, [np.array([[8, 1, 8], [9, 8, 0]])]),
    ("Embedding", (10, 3), {"max_norm": 1.0}, [np.array([[8, 1, 8], [9, 8, 0]])]),
    ("EmbeddingBag", (10, 3), {"mode": "sum"}, [classes(10, 4, 5)]),
    ("EmbeddingBag", (10, 3), {"padding_idx": 2}, [np.array([[2, 1, 8], [2, 2, 2]])]),
    ("EmbeddingBag", (10, 3), {"mode": "max"}, [classes(10, 9), np.array([0, 2, 2, 6])]),
    ("EmbeddingBag", (10, 3), {"include_last_offset": True}, [classes(10, 9), np.array([0, 3, 9])]),
    ("InstanceNorm3d", (4,), {"affine": True}, [normal(2, 4, 3, 2, 2)]),
    ("LocalResponseNorm", (3, 0.5), {}, [normal(*IMAGE)]),
    ("LocalResponseNorm", (2,), {"k": 2.0}, [normal(2, 4, 3, 2, 2)]),
    ("Softmax2d", (), {}, [normal(*IMAGE)]),
    ("AlphaDropout", (0.0,), {}, [normal(*ROWS)]),
    ("LPPool1d", (2, 3), {"stride": 2}, [normal(*LINE)]),
    ("LPPool2d", (3, (2, 3)), {"ceil_mode": True}, [probabilities(*IMAGE)]),
    ("LPPool3d", (2, 2), {}, [normal(2, 4, 3, 4, 5)]),
    *(
        (f"{name}Pad{d}d", (1, *value), {}, [normal(2, 3, 4, 3, 5)[(0,) * (3 - d)]])
        for name, value in (
            ("Circular", ()),
            ("Constant", (2.5,)),
            ("Reflection", ()),
            ("Replication", ()),
            ("Zero", ()),
        )
        for d in (1, 2, 3)
    ),
    ("PixelShuffle", (2,), {}, [normal(2, 8, 3, 4)]),
    ("PixelUnshuffle", (2,), {}, [normal(2, 3, 6, 4)]),
    ("ChannelShuffle", (2,), {}, [normal(*IMAGE)]),
    ("Unfold", (3,), {"stride": 2, "padding": 1}, [normal(*IMAGE)]),
    ("Unfold", ((2, 3),), {"dilation": (2, 1)}, [normal(4, 7, 6)]),
    ("Fold", ((7, 6), 3), {"padding": 1, "stride": 2}, [normal(2, 36, 12)]),
    ("Upsample", (), {"scale_factor": 2}, [normal(*IMAGE)]),
    ("UpsamplingNearest2d", ((5, 9),), {}, [normal(*IMAGE)]),
    ("UpsamplingBilinear2d", ((5, 9),), {}, [normal(*IMAGE)]),
    ("HingeEmbeddingLoss", (0.7,), {}, [normal(*ROWS), signs(*ROWS)]),
    ("CosineEmbeddingLoss", (0.1,), {}, [normal(*ROWS), normal(*ROWS), signs(5)]),
    ("MarginRankingLoss", (0.3,), {}, [normal(5), normal(5), signs(5)]),
    ("MultiLabelMarginLoss", (), {}, [normal(2, 4), np.array([[3, 0, -1, 1], [-1, 2, 0, 0]])]),
    ("MultiLabelMarginLoss", (), {"reduction": "none"}, [normal(4), np.array([3, 0, 2, 1])]),
    ("MultiLabelSoftMarginLoss", (), {}, [normal(*ROWS), probabilities(*ROWS)]),
    ("MultiMarginLoss", (2, 0.5), {}, [normal(*ROWS), classes(4, 5)]),
    ("MultiMarginLoss", (), {"reduction": "none"}, [normal(*ROWS), classes(4, 5)]),
    ("PoissonNLLLoss", (), {"full": True}, [normal(*ROWS), probabilities(*ROWS) * 4]),
    ("PoissonNLLLoss", (False,), {}, [probabilities(*ROWS), probabilities(*ROWS)]),
    (
        "GaussianNLLLoss",
        (),
        {"full": True},
        [normal(*ROWS), normal(*ROWS), np.abs(normal(*ROWS))],
    ),
    (
        "GaussianNLLLoss",
        (),
        {"eps": 0.5},
        [normal(*ROWS), normal(*ROWS), probabilities(*ROWS[:1], 1)],
    ),
    ("TripletMarginLoss", (), {"swap": True}, [normal(*ROWS), normal(*ROWS), normal(*ROWS)]),
    ("TripletMarginLoss", (2.0, 1), {}, [normal(*ROWS), normal(*ROWS), normal(*ROWS)]),
    (
        "TripletMarginWithDistanceLoss",
        (),
        {"margin": 0.5},
        [normal(*ROWS), normal(*ROWS), normal(*ROWS)],
    ),
]

# Layers whose keyword argument is a tensor.
WEIGHTED = [
    ("CrossEntropyLoss", {"weight": probabilities(4)}, [normal(*ROWS), classes(4, 5)]),
    (
        "CrossEntropyLoss",
        {"weight": probabilities(4), "label_smoothing": 0.1, "ignore_index": 0},
        [normal(*IMAGE), classes(4, 2, 7, 6)],
    ),
    ("CrossEntropyLoss", {"weight": probabilities(4)}, [normal(*ROWS), probabilities(*ROWS)]),
    ("NLLLoss", {"weight": probabilities(4), "reduction": "sum"}, [normal(*ROWS), classes(4, 5)]),
    ("BCELoss", {"weight": probabilities(4)}, [probabilities(*ROWS), probabilities(*ROWS)]),
    ("BCEWithLogitsLoss", {"pos_weight": probabilities(4)}, [normal(*ROWS), probabilities(*ROWS)]),
    ("BCEWithLogitsLoss", {"weight": probabilities(4)}, [normal(*ROWS), probabilities(*ROWS)]),
]


def case_id(case):
    return f"{case[0]}-{LAYERS.index(case)}" if case in LAYERS else case[0]


def both(name, args, kwargs):
    """The layer here and PyTorch's, in float64 with the same state."""
    ours = getattr(nn, name)(*args, **kwargs).double()
    theirs = getattr(torch.nn, name)(*args, **kwargs).double()
    state = {k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()}
    theirs.load_state_dict(state)
    return ours, theirs


def compare(ours, theirs, inputs, rtol=1e-9):
    a = [rabbet.tensor(x, requires_grad=x.dtype == np.float64) for x in inputs]
    b = [torch.tensor(x, requires_grad=x.dtype == np.float64) for x in inputs]
    out, expected = ours(*a), theirs(*b)
    assert tuple(out.shape) == tuple(expected.shape)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol, 1e-10)
    if not expected.requires_grad:
        return
    cotangent = np.random.default_rng(3).standard_normal(tuple(expected.shape))
    out.backward(rabbet.tensor(cotangent))
    expected.backward(torch.tensor(cotangent))
    pairs = list(zip(a, b, strict=True))
    pairs += list(zip(ours.parameters(), theirs.parameters(), strict=True))
    for mine, other in pairs:
        if other.grad is None:
            assert mine.grad is None
        else:
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), 1e-7, 1e-9)


@pytest.mark.parametrize("case", LAYERS, ids=[f"{c[0]}-{i}" for i, c in enumerate(LAYERS)])
def test_layer_equals_pytorch(case):
    name, args, kwargs, inputs = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = both(name, args, kwargs)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        compare(ours, theirs, inputs)
        for key, value in theirs.state_dict().items():  # running statistics have moved alike
            np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), 1e-9, 1e-12)
        ours.zero_grad(), theirs.zero_grad()
        compare(ours.eval(), theirs.eval(), inputs)


@pytest.mark.parametrize("case", WEIGHTED, ids=[f"{c[0]}-{i}" for i, c in enumerate(WEIGHTED)])
def test_weighted_loss_equals_pytorch(case):
    name, kwargs, inputs = case
    tensors = {k: v for k, v in kwargs.items() if isinstance(v, np.ndarray)}
    ours = getattr(nn, name)(**{**kwargs, **{k: rabbet.tensor(v) for k, v in tensors.items()}})
    theirs = getattr(torch.nn, name)(
        **{**kwargs, **{k: torch.tensor(v) for k, v in tensors.items()}}
    )
    compare(ours, theirs, inputs)


@pytest.mark.parametrize("case", LAYERS, ids=[f"{c[0]}-{i}" for i, c in enumerate(LAYERS)])
def test_layer_prints_like_pytorch(case):
    name, args, kwargs, _ = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert repr(getattr(nn, name)(*args, **kwargs)) == repr(
            getattr(torch.nn, name)(*args, **kwargs)
        )


INPLACE = [
    "ReLU",
    "LeakyReLU",
    "ELU",
    "CELU",
    "SELU",
    "SiLU",
    "Mish",
    "Hardtanh",
    "ReLU6",
    "Hardswish",
    "Hardsigmoid",
]


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_activation_overwrites_and_has_the_same_gradient(name):
    x = normal(*ROWS) * 3
    leaf = rabbet.tensor(x, requires_grad=True)
    other = rabbet.tensor(x, requires_grad=True)
    written = leaf * 1
    result = getattr(nn, name)(inplace=True)(written)
    expected = getattr(nn, name)()(other * 1)
    assert result is written or rabbet.equal(result, written)
    np.testing.assert_allclose(written.detach().numpy(), expected.detach().numpy(), 1e-12)
    result.sum().backward()
    expected.sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), other.grad.numpy(), 1e-12)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masks", ["none", "causal", "float", "padding", "both", "heads"])
@pytest.mark.parametrize("kdim", [None, 5])
def test_attention_equals_pytorch(batch_first, need_weights, masks, kdim):
    kwargs = {"batch_first": batch_first, "kdim": kdim, "vdim": None if kdim is None else 3}
    ours, theirs = both("MultiheadAttention", (8, 2), kwargs)
    query = normal(3, 4, 8)
    inputs = [query, query, query] if kdim is None else [query, normal(3, 4, 5), normal(3, 4, 3)]
    batch, length = (3, 4) if batch_first else (4, 3)
    causal = np.triu(np.ones((length, length), bool), 1)
    padding = np.zeros((batch, length), bool)
    padding[0, -1] = True
    given = {
        "none": {},
        "causal": {"attn_mask": causal},
        "float": {"attn_mask": normal(length, length)},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": causal, "key_padding_mask": padding},
        "heads": {"attn_mask": normal(batch * 2, length, length)},
    }[masks]
    options = {"need_weights": need_weights}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out, weights = ours(
            *(rabbet.tensor(x) for x in inputs),
            **options,
            **{k: rabbet.tensor(v) for k, v in given.items()},
        )
        expected, expected_weights = theirs(
            *(torch.tensor(x) for x in inputs),
            **options,
            **{k: torch.tensor(v) for k, v in given.items()},
        )
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-10)
    assert (weights is None) == (expected_weights is None)
    if weights is not None:
        np.testing.assert_allclose(
            weights.detach().numpy(), expected_weights.detach().numpy(), 1e-9, 1e-10
        )


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [False, True])
def test_transformer_encoder_equals_pytorch(norm_first, activation, bias):
    kwargs = {"dropout": 0.0, "activation": activation, "norm_first": norm_first, "bias": bias}
    ours = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, **kwargs), 2, nn.LayerNorm(8)
    ).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, **kwargs)
        theirs = torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(8)).double()
    theirs.load_state_dict(
        {k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()}
    )
    compare(ours, theirs, [normal(5, 3, 8)])


@pytest.mark.parametrize("size", [(15, 13), (16, 14)])
def test_transposed_convolution_takes_an_output_size(size):
    ours, theirs = both("ConvTranspose2d", (4, 6, 3, 2), {})
    x = normal(2, 4, 7, 6)
    out = ours(rabbet.tensor(x), output_size=size)
    expected = theirs(torch.tensor(x), output_size=size)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-10)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
@pytest.mark.parametrize("widths", [(2, 1), (0, 2, 3, 1), (-1, 2, 1, -2)])
def test_pad_equals_pytorch(mode, widths):
    x = normal(2, 3, 6, 5)
    out = nn.functional.pad(rabbet.tensor(x), widths, mode)
    if mode != "constant" and len(widths) == 2:  # PyTorch pads (C, L) or (N, C, L) then
        x, out = x[0], out[0]
    np.testing.assert_array_equal(
        out.numpy(), torch.nn.functional.pad(torch.tensor(x), widths, mode).numpy()
    )


@pytest.mark.parametrize("p", [1, 2, 3.5, float("inf")])
def test_normalize_equals_pytorch(p):
    x = normal(*ROWS)
    out = nn.functional.normalize(rabbet.tensor(x), p, 1)
    expected = torch.nn.functional.normalize(torch.tensor(x), p, 1)
    np.testing.assert_allclose(out.numpy(), expected.numpy(), 1e-12)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_transformer_equals_pytorch(norm_first, masked):
    kwargs = {"dropout": 0.0, "norm_first": norm_first, "batch_first": True}
    sizes = (8, 2, 2, 2, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = nn.Transformer(*sizes, **kwargs).double()
        theirs = torch.nn.Transformer(*sizes, **kwargs).double()
        assert list(ours.state_dict()) == list(theirs.state_dict())
        theirs.load_state_dict(
            {k: torch.from_numpy(v.numpy().copy()) for k, v in ours.state_dict().items()}
        )
        padding = np.array([[False] * 6, [False] * 4 + [True] * 2])
        results = []
        src, tgt = normal(2, 6, 8), normal(2, 5, 8)
        for library, model in ((rabbet, ours), (torch, theirs)):
            options = {}
            if masked:
                causal = model.generate_square_subsequent_mask(5, dtype=library.float64)
                options = {"tgt_mask": causal, "tgt_is_causal": True}
                options["src_key_padding_mask"] = library.tensor(padding)
                options["memory_key_padding_mask"] = library.tensor(padding)
            out = model(library.tensor(src), library.tensor(tgt), **options)
            (out * out * out).sum().backward()
            results.append([out.detach(), *(p.grad for p in model.parameters())])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-7, 1e-9)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 6}])
def test_attention_with_added_keys_equals_pytorch(options, need_weights):
    options = {**options, "add_bias_kv": True} if "kdim" in options else options
    ours, theirs = both("MultiheadAttention", (8, 2), options)
    x, key = normal(4, 3, 8), normal(5, 3, options.get("kdim", 8))
    mask, padding = np.triu(np.ones((4, 5), bool), 2), np.zeros((3, 5), bool)
    padding[1, 3:] = True
    results = []
    for library, layer in ((rabbet, ours), (torch, theirs)):
        q, k, v = library.tensor(x), library.tensor(key), library.tensor(x[:1].repeat(5, 0))
        out, weights = layer(q, k, v, library.tensor(padding), need_weights, library.tensor(mask))
        (out * out).sum().backward()
        results.append([out.detach(), *(p.grad for p in layer.parameters())])
        if need_weights:
            results[-1].append(weights.detach())
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-8, 1e-10)
