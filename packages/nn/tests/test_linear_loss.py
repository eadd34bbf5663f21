"""Cross entropy of linearly transformed input: whole, and chunk by chunk."""

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn import functional as F


def problem(*more, rows=7, features=3, classes=5):
    rng = np.random.default_rng(0)
    x = rabbet.tensor(rng.standard_normal((rows, features)), requires_grad=True)
    w = rabbet.tensor(rng.standard_normal((classes, *more, features)), requires_grad=True)
    b = rabbet.tensor(rng.standard_normal((classes, *more)), requires_grad=True)
    target = rabbet.tensor(rng.integers(0, classes, (rows, *more)))
    return x, w, b, target


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "options", [{}, {"batch_chunk_size": 3}, {"chunking_method": "aspect_ratio:4"}]
)
@pytest.mark.parametrize("factors", [False, True])
def test_chunks_give_what_the_whole_gives(reduction, options, factors):
    x, w, b, target = problem()
    more = {"linear_bias": b, "reduction": reduction, "ignore_index": 2}
    if factors:
        more["weight"] = rabbet.arange(1.0, 6.0, dtype=rabbet.float64)
    whole = F.linear_cross_entropy(x, w, target, **more)
    parts = F.linear_cross_entropy(
        x, w, target, options=nn.LinearCrossEntropyOptions(**options), **more
    )
    np.testing.assert_allclose(parts.detach().numpy(), whole.detach().numpy(), 1e-12)
    for a, e in zip(
        rabbet.autograd.grad(parts.sum(), (x, w, b)),
        rabbet.autograd.grad(whole.sum(), (x, w, b)),
        strict=True,
    ):
        np.testing.assert_allclose(a.numpy(), e.numpy(), 1e-10, 1e-12)


def test_a_chunk_is_no_larger_than_asked(monkeypatch):
    from rabbet.nn.functional import linear_loss

    seen = []

    def linear(x, w, b=None):
        seen.append(x.shape[0])
        return F.linear(x, w, b)

    monkeypatch.setattr(linear_loss, "linear", linear)
    x, w, _, target = problem(rows=10)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=4)
    F.linear_cross_entropy(x, w, target, options=options).backward()
    assert sorted(seen) == [2, 2, 4, 4, 4, 4]  # once more in backward


def test_scores_with_more_dimensions_are_those_of_a_linear_layer():
    x, w, b, target = problem(4, 2)
    scores = (x @ w.reshape([-1, 3]).t() + b.reshape([-1])).reshape([7, 5, 4, 2])
    want = F.cross_entropy(scores, target)
    got = F.linear_cross_entropy(x, w, target, linear_bias=b)
    np.testing.assert_allclose(got.item(), want.item(), 1e-12)
    with pytest.warns(UserWarning, match="`options` ignored"):
        again = F.linear_cross_entropy(
            x, w, target, linear_bias=b, options=nn.LinearCrossEntropyOptions()
        )
    assert again.item() == got.item()


def test_the_module_holds_a_linear_layer():
    loss = nn.LinearCrossEntropyLoss(3, 5, out_features=(4,), bias=True, dtype=rabbet.float64)
    assert {n: tuple(p.shape) for n, p in loss.named_parameters()} == {
        "linear.weight": (20, 3),
        "linear.bias": (20,),
    }
    x, _, _, target = problem(4)
    loss(x, target).backward()
    assert loss.linear.weight.grad is not None and x.grad is not None


def test_the_gradient_of_ctc_is_that_of_log_probabilities():
    """Of what a log_softmax gives, PyTorch's gradient and the true one lead to the same scores' gradient."""
    rng = np.random.default_rng(0)
    scores = rabbet.tensor(rng.standard_normal((6, 2, 4)), requires_grad=True)
    log_probs = scores.log_softmax(2).detach().requires_grad_()
    loss = F.ctc_loss(log_probs, rabbet.tensor([[1, 2], [3, 1]]), [6, 5], [2, 1], reduction="sum")
    loss.backward()
    # Probabilities less posteriors: zero in sum over the classes, and nothing beyond the lengths.
    np.testing.assert_allclose(log_probs.grad.sum(2).numpy(), 0, atol=1e-12)
    assert not log_probs.grad[5, 1].any() and log_probs.grad[4, 1].any()


def test_equal_modules_of_a_list_are_shown_once():
    blocks = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Linear(2, 3), nn.ReLU()])
    assert repr(blocks) == (
        "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Linear(in_features=2, out_features=3, bias=True)\n  (3): ReLU()\n)"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_by_function_is_that_of_the_module(batch_first):
    module = nn.MultiheadAttention(4, 2, add_bias_kv=True, batch_first=batch_first).double()
    rng = np.random.default_rng(0)
    q, k, v = (rabbet.tensor(rng.standard_normal(s)) for s in ((3, 2, 4), (5, 2, 4), (5, 2, 4)))
    given = [x.transpose(0, 1) for x in (q, k, v)] if batch_first else [q, k, v]
    want, weights = module(*given)
    got, others = F.multi_head_attention_forward(
        q, k, v, 4, 2, module.in_proj_weight, module.in_proj_bias, module.bias_k, module.bias_v, False, 0.0,
        module.out_proj.weight, module.out_proj.bias,
    )  # fmt: skip
    want = want.transpose(0, 1) if batch_first else want
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-12)
    np.testing.assert_allclose(others.detach().numpy(), weights.detach().numpy(), 1e-12)


def test_an_empty_batch_leaves_running_statistics_as_they_are():
    norm = nn.BatchNorm1d(3)
    assert norm(rabbet.zeros(0, 3, 5)).shape == (0, 3, 5)
    assert not norm.running_mean.any() and bool((norm.running_var == 1).all())
