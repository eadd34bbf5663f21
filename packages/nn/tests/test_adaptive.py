"""Adaptive softmax against its formula, and against torch where installed."""

import numpy as np
import pytest
import rabbet
from rabbet import nn


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def reference(layer, x):
    """Log probabilities of all classes in NumPy."""
    bias = 0 if layer.head.bias is None else layer.head.bias.detach().numpy()
    head = log_softmax(x @ layer.head.weight.detach().numpy().T + bias)
    parts = [head[:, : layer.shortlist_size]]
    for i, (narrow, wide) in enumerate(layer.tail):
        scores = x @ narrow.weight.detach().numpy().T @ wide.weight.detach().numpy().T
        parts.append(head[:, [layer.shortlist_size + i]] + log_softmax(scores))
    return np.concatenate(parts, 1)


def made(**options):
    rabbet.manual_seed(2)
    layer = nn.AdaptiveLogSoftmaxWithLoss(
        16, 20, [4, 9, 15], div_value=2.0, dtype=rabbet.float64, **options
    )
    return layer, np.random.default_rng(0).standard_normal((30, 16)) * 3


@pytest.mark.parametrize("head_bias", [False, True])
def test_log_probabilities_are_the_formulas(head_bias):
    layer, x = made(head_bias=head_bias)
    wanted = reference(layer, x)
    np.testing.assert_allclose(np.exp(wanted).sum(1), 1)
    given = rabbet.tensor(x)
    np.testing.assert_allclose(layer.log_prob(given).detach().numpy(), wanted, rtol=1e-10)
    assert layer.predict(given).tolist() == wanted.argmax(1).tolist()
    target = np.arange(30) % 20
    output, loss = layer(given, rabbet.tensor(target))
    np.testing.assert_allclose(output.detach().numpy(), wanted[np.arange(30), target], rtol=1e-10)
    np.testing.assert_allclose(loss.item(), -wanted[np.arange(30), target].mean(), rtol=1e-10)
    single = layer(given[7], rabbet.tensor(7))
    assert single.output.ndim == 0 and abs(single.output.item() - wanted[7, 7]) < 1e-10


def test_gradients_are_those_of_the_whole_softmax():
    layer, x = made()
    given = rabbet.tensor(x, requires_grad=True)
    target = rabbet.tensor(np.arange(30) % 20)
    own = rabbet.autograd.grad(layer(given, target).loss, [given, *layer.parameters()])
    whole = nn.functional.nll_loss(layer.log_prob(given), target)
    for a, b in zip(own, rabbet.autograd.grad(whole, [given, *layer.parameters()]), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("cutoffs", [[], [3, 3], [5, 4], [0, 4], [4, 20], [2.5]])
def test_bad_cutoffs_are_refused(cutoffs):
    with pytest.raises(ValueError, match="cutoffs should be a sequence"):
        nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs)


@pytest.mark.parametrize(
    "shape,target,match",
    [
        ((2, 16), [1, 20], r"in \[0, 19\], but values in range \[1, 20\]"),
        ((2, 16), [1, -1], r"but values in range \[-1, 1\]"),
        ((2, 16), [1, 2, 3], "batch dimension, got 2 and 3"),
        ((16,), [1], "1D target tensor expects 2D"),
        ((2, 16), 1, "0D target tensor expects 1D"),
        ((2, 16), [[1], [2]], "multi-target not supported"),
    ],
)
def test_bad_inputs_are_refused(shape, target, match):
    layer = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 9])
    with pytest.raises(RuntimeError, match=match):
        layer(rabbet.ones(*shape), rabbet.tensor(target))


def test_it_is_torchs():
    torch = pytest.importorskip("torch")
    layer, x = made(head_bias=True)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(
        16, 20, [4, 9, 15], div_value=2.0, head_bias=True, dtype=torch.float64
    )
    theirs.load_state_dict(
        {k: torch.tensor(v.tolist(), dtype=torch.float64) for k, v in layer.state_dict().items()}
    )
    assert repr(layer) == repr(theirs)
    target = np.arange(30) % 20
    own, other = (
        layer(rabbet.tensor(x), rabbet.tensor(target)),
        theirs(torch.tensor(x), torch.tensor(target)),
    )
    np.testing.assert_allclose(own.output.tolist(), other.output.tolist(), rtol=1e-10)
    own.loss.backward(), other.loss.backward()
    for a, b in zip(layer.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.grad.tolist(), b.grad.tolist(), rtol=1e-9, atol=1e-14)
    assert layer.predict(rabbet.tensor(x)).tolist() == theirs.predict(torch.tensor(x)).tolist()
