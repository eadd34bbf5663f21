"""Arguments that PyTorch's modules refuse are refused with its exception classes."""

import pytest
import rabbet
from rabbet import nn
from rabbet.nn import functional as F

x23 = rabbet.zeros(2, 3)
REFUSED = {
    "eps": (lambda: nn.BatchNorm1d(3, eps=-1.0)(x23), ValueError, "eps must be positive"),
    "eps of 0": (lambda: F.batch_norm(x23, None, None, training=True, eps=0.0), ValueError, "eps must be positive"),
    "circular": (lambda: nn.CircularPad1d(1)(rabbet.zeros(2, 3, 4, 5)), ValueError, "expected 2D or 3D input"),
    "circular2": (lambda: nn.CircularPad2d(3)(x23), ValueError, "expected 3D or 4D input"),
    "classes": (lambda: F.cross_entropy(x23, x23.long()), RuntimeError, "Expected floating point type"),
    "dtype": (lambda: F.cross_entropy(x23, rabbet.zeros(2)), RuntimeError, "target dtype to be Long or Byte"),
    "int32": (lambda: F.cross_entropy(x23, rabbet.zeros(2).int()), RuntimeError, "target dtype to be Long or Byte"),
    "batch": (lambda: F.cross_entropy(x23, rabbet.zeros(5, 3)), ValueError, "match target batch_size"),
    "ignored": (lambda: F.cross_entropy(x23, x23, ignore_index=1), RuntimeError, "ignore_index is not supported"),
    "weight": (
        lambda: F.nll_loss(x23, rabbet.tensor([0, 1]), rabbet.ones(3).double()),
        RuntimeError,
        "expected scalar type",
    ),
    "delta": (lambda: nn.HuberLoss(delta=1 + 1j), TypeError, "delta must be a float or int"),
    "bias": (lambda: nn.GRU(3, 4, bias=1), TypeError, "bias should be of type bool, got: int"),
    "first": (lambda: nn.LSTM(3, 4, batch_first="a"), TypeError, "batch_first should be of type bool"),
    "input size": (lambda: nn.RNN(0, 4), ValueError, "input_size must be greater than zero"),
    "input type": (lambda: nn.RNN(3.0, 4), TypeError, "input_size should be of type int, got: float"),
    "input dtype": (lambda: nn.RNN(3, 4)(x23.double()), ValueError, "RNN input dtype .* does not match"),
    "cell size": (
        lambda: nn.LSTMCell(3, 4)(x23, (rabbet.zeros(2, 5), rabbet.zeros(2, 4))),
        RuntimeError,
        "hidden0 has inconsistent hidden_size: got 5, expected 4",
    ),
    "cell dims": (
        lambda: nn.LSTMCell(3, 4)(x23, (rabbet.zeros(1, 1, 2, 4), rabbet.zeros(2, 4))),
        ValueError,
        r"hx\[0\] to be 1D or 2D, got 4D",
    ),
    "pool": (lambda: nn.MaxPool2d(3)(x23), RuntimeError, "non-empty 3D or 4D"),
    "static": (
        lambda: F.multi_head_attention_forward(
            *[rabbet.zeros(2, 1, 4)] * 3, 4, 2, rabbet.zeros(12, 4), None, None, None, False, 0.0, rabbet.zeros(4, 4),
            None, static_k=rabbet.zeros(3, 2, 2),
        ),
        AssertionError,
        "static_k",
    ),
    "projection": (
        lambda: F.multi_head_attention_forward(
            *[rabbet.zeros(2, 1, 4)] * 3, 4, 2, None, None, None, None, False, 0.0, rabbet.zeros(4, 4), None,
        ),
        AssertionError,
        "in_proj_weight is None",
    ),
    "linear weight": (
        lambda: F.linear_cross_entropy(x23, rabbet.zeros(5, 4), rabbet.tensor([0, 1])),
        RuntimeError,
        "expected equal input and linear_weight last dimensions",
    ),
    "linear bias": (
        lambda: F.linear_cross_entropy(x23, rabbet.zeros(5, 3), rabbet.tensor([0, 1]), linear_bias=rabbet.zeros(4)),
        RuntimeError,
        "expected linear_bias shape",
    ),
    "class weight": (
        lambda: nn.LinearCrossEntropyLoss(3, 5, weight=rabbet.ones(4)), RuntimeError, "expected weight shape"),
    "smoothing": (
        lambda: nn.LinearCrossEntropyLoss(3, 5, label_smoothing=2.0), RuntimeError, r"in range \[0, 1\]"),
    "policy": (lambda: nn.LinearCrossEntropyOptions(acc_policy="x"), ValueError, "invalid acc_policy"),
    "method": (lambda: nn.LinearCrossEntropyOptions(chunking_method="x:2"), ValueError, "invalid chunking_method"),
    "chunk": (lambda: nn.LinearCrossEntropyOptions(batch_chunk_size=0), ValueError, "positive int or None"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        call()


def test_multilabel_margin_loss_of_one_class():
    score = rabbet.tensor(0.3, requires_grad=True)
    for shape in ((), (1,)):
        for label in (0, -1):
            for reduction in ("none", "mean", "sum"):
                target = rabbet.tensor(label).reshape(shape)
                loss = F.multilabel_margin_loss(score, target, reduction=reduction)
                assert loss.shape == () and loss.item() == 0
    loss.backward()
    assert score.grad.item() == 0
    with pytest.raises(RuntimeError, match="inconsistent target size"):
        F.multilabel_margin_loss(score, rabbet.tensor([0, -1]))
    with pytest.raises(RuntimeError, match="expected labels from -1 to 0"):
        F.multilabel_margin_loss(score, rabbet.tensor(1))
    with pytest.raises(RuntimeError, match="Expected non-empty vector or matrix"):
        F.multilabel_margin_loss(rabbet.ones(2, 0), rabbet.ones(2, 0, dtype=rabbet.int64))


@pytest.mark.parametrize(
    ("shape", "error", "says"),
    [
        ((), ValueError, "weight must be one-dimensional"),
        ((5, 4), ValueError, "weight must be one-dimensional"),
        ((5,), RuntimeError, "inconsistent weight size"),
    ],
)
def test_weights_of_multi_margin_loss_are_one_for_each_class(shape, error, says):
    with pytest.raises(error, match=says):
        F.multi_margin_loss(rabbet.ones(2, 4), rabbet.tensor([0, 1]), weight=rabbet.ones(shape))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_pooling_refuses_empty_inputs_but_not_empty_batches(name, rank):
    pool = getattr(F, f"{name}{rank}d")
    assert pool(rabbet.ones(0, 2, *[4] * rank), 2).shape == (0, 2, *[2] * rank)
    for shape in ((0, *[4] * rank), (2, 0, *[4] * rank), (2, *[4] * (rank - 1), 0)):
        with pytest.raises(RuntimeError, match=r"tensor with optional 0 dim batch size for input"):
            pool(rabbet.ones(shape), 2)


def test_adaptive_pooling_refuses_inputs_without_windows():
    assert F.adaptive_max_pool2d(rabbet.ones(0, 4, 4), 2).shape == (0, 2, 2)
    with pytest.raises(RuntimeError, match="non-zero size for non-batch dimensions"):
        F.adaptive_max_pool2d(rabbet.ones(2, 0, 4, 4), 2)
    with pytest.raises(ValueError, match="Input dimension should be at least 3"):
        F.adaptive_avg_pool2d(rabbet.ones(4, 4), (2, 2))
    with pytest.raises(RuntimeError, match="expected for input"):
        F.adaptive_avg_pool2d(rabbet.ones(4, 4), 2)
