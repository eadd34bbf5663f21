"""Resizing, sampling, unpooling and CTC beside PyTorch: values and gradients, and what is refused."""

import itertools

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn

rng = np.random.default_rng(11)


def compare(name, arrays, *args, rtol=1e-9, **kwargs):
    """Values and gradients of a functional here and in PyTorch."""
    torch = pytest.importorskip("torch")
    results = []
    for library, function in ((rabbet, F), (torch, torch.nn.functional)):
        given = [library.tensor(x, requires_grad=x.dtype == np.float64) for x in arrays]
        out = getattr(function, name)(*given, *args, **kwargs)
        cotangent = np.random.default_rng(5).standard_normal(tuple(out.shape))
        out.backward(library.tensor(cotangent))
        results.append([out.detach(), *(x.grad for x in given if x.requires_grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol, rtol)


SIZES = {"linear": (7,), "bilinear": (5, 6), "bicubic": (5, 6), "trilinear": (3, 4, 5)}


@pytest.mark.parametrize("mode", SIZES)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("how", ["larger", "smaller", "scale", "recomputed"])
def test_interpolate_equals_pytorch(mode, align_corners, how):
    sizes = SIZES[mode]
    x = rng.standard_normal((2, 3, *sizes))
    kwargs = {
        "larger": {"size": [2 * n + 1 for n in sizes]},
        "smaller": {"size": [n - 2 for n in sizes]},
        "scale": {"scale_factor": 1.7},
        "recomputed": {"scale_factor": 1.7, "recompute_scale_factor": True},
    }[how]
    compare("interpolate", [x], mode=mode, align_corners=align_corners, **kwargs)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("sizes", [(7,), (5, 6), (3, 4, 5)])
@pytest.mark.parametrize("scale", [2, 0.6, 1.45])
def test_interpolate_by_neighbours_equals_pytorch(mode, sizes, scale):
    compare("interpolate", [rng.standard_normal((2, 3, *sizes))], mode=mode, scale_factor=scale)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(4, 5), (3, 25), (22, 7)])
def test_interpolate_with_antialias_equals_pytorch(mode, align_corners, size):
    x = rng.standard_normal((2, 3, 11, 13))
    compare("interpolate", [x], size, None, mode, align_corners, antialias=True, rtol=1e-8)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolate_of_bfloat16_rounds_once(mode):
    x = rabbet.tensor(rng.standard_normal((1, 2, 5, 6)), dtype=rabbet.bfloat16)
    out = F.interpolate(x, scale_factor=2, mode=mode)
    wide = F.interpolate(x.float(), scale_factor=2, mode=mode)
    assert out.dtype == rabbet.bfloat16
    np.testing.assert_array_equal(out.float().numpy(), wide.to(rabbet.bfloat16).float().numpy())


GRID = ["mode", "padding_mode", "align_corners", "rank"]
GRIDS = [
    case
    for case in itertools.product(
        ["bilinear", "nearest", "bicubic"],
        ["zeros", "border", "reflection"],
        [False, True],
        [2, 3],
    )
    if case[0] != "bicubic" or case[3] == 2
]


@pytest.mark.parametrize(GRID, GRIDS)
def test_grid_sample_equals_pytorch(mode, padding_mode, align_corners, rank):
    x = rng.standard_normal((2, 3, 4, 5, 6)[: rank + 2])
    grid = rng.uniform(-1.6, 1.6, (2, 3, 4, 2)[: rank + 1] + (rank,))
    compare("grid_sample", [x, grid], mode, padding_mode, align_corners)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 1), (2, 1, 3, 4, 5)])
def test_affine_grid_equals_pytorch(align_corners, size):
    rank = len(size) - 2
    theta = rng.standard_normal((2, rank, rank + 1))
    if align_corners and 1 in size[2:]:
        with pytest.warns(UserWarning, match="unit-size grids"):
            compare("affine_grid", [theta], size, align_corners)
    else:
        compare("affine_grid", [theta], size, align_corners)


def test_sampling_warns_of_the_default_of_align_corners():
    with pytest.warns(UserWarning, match="align_corners=False since 1.3.0"):
        grid = F.affine_grid(rabbet.eye(2, 3).unsqueeze(0), (1, 1, 2, 2))
    with pytest.warns(UserWarning, match="align_corners=False since 1.3.0"):
        F.grid_sample(rabbet.ones(1, 1, 2, 2), grid)


def test_soft_margin_loss():
    x = rabbet.tensor([[0.5, -2.0], [40.0, -3.0]], dtype=rabbet.float64, requires_grad=True)
    target = np.array([[1.0, -1.0], [-1.0, 1.0]])
    loss = nn.SoftMarginLoss(reduction="sum")(x, rabbet.tensor(target))
    loss.backward()
    margin = target * x.detach().numpy()
    np.testing.assert_allclose(float(loss), np.log1p(np.exp(-margin)).sum(), 1e-12)
    np.testing.assert_allclose(x.grad.numpy(), -target / (1 + np.exp(margin)), 1e-12)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, float("inf")])
def test_pdist_equals_pytorch(p):
    compare("pdist", [rng.standard_normal((5, 3))], p)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_max_unpool_equals_pytorch(rank):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((2, 3, 8, 6, 4)[: rank + 2])
    results = []
    for library in (rabbet, torch):
        layer = getattr(library.nn, f"MaxPool{rank}d")(2, return_indices=True)
        given = library.tensor(x, requires_grad=True)
        values, indices = layer(given)
        out = getattr(library.nn, f"MaxUnpool{rank}d")(2)(values, indices)
        (out * out).sum().backward()
        results.append((out.detach().numpy(), given.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_equals_pytorch(reduction, joined, zero_infinity):
    torch = pytest.importorskip("torch")
    scores = rng.standard_normal((7, 4, 5))
    lengths, sizes = [7, 6, 7, 4 if zero_infinity else 7], [3, 1, 0, 4]
    targets = np.array([[1, 1, 2, 0], [3, 0, 0, 0], [0, 0, 0, 0], [4, 4, 4, 2]])
    if joined:
        targets = np.concatenate([row[:n] for row, n in zip(targets, sizes, strict=True)])
    results = []
    for library in (rabbet, torch):
        given = library.tensor(scores, requires_grad=True)
        log_probs = library.nn.functional.log_softmax(given, -1)
        loss = library.nn.CTCLoss(0, reduction, zero_infinity)(
            log_probs, library.tensor(targets), library.tensor(lengths), library.tensor(sizes)
        )
        loss.sum().backward()
        results.append((loss.detach().numpy(), given.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-9, 1e-10)


def test_ctc_of_a_target_that_no_path_gives_is_infinite():
    log_probs = rabbet.full([2, 1, 3], -1.0)
    targets = rabbet.tensor([[1, 1]])
    assert float(F.ctc_loss(log_probs, targets, [2], [2], reduction="sum")) == float("inf")
    assert float(F.ctc_loss(log_probs, targets, [2], [2], zero_infinity=True)) == 0.0


def test_alpha_dropout_keeps_mean_and_variance():
    rabbet.manual_seed(0)
    x = rabbet.randn(200_000)
    out = F.alpha_dropout(x, 0.3, training=True)
    assert abs(float(out.mean())) < 0.02 and abs(float(out.var()) - 1) < 0.02
    images = F.feature_alpha_dropout(rabbet.zeros(50, 20, 3), 0.5, training=True)
    assert float(images.var(2).max()) == 0.0 and float(images.var()) > 0.1
    assert nn.AlphaDropout().eval()(x) is x


def test_rrelu_draws_slopes_in_training_only():
    x = rabbet.tensor([-1.0, 2.0, -3.0])
    layer = nn.RReLU(0.25, 0.75)
    slopes = (layer(x) / x).tolist()
    assert slopes[1] == 1.0 and all(0.25 <= s <= 0.75 for s in slopes[::2])
    assert layer.eval()(x).tolist() == [-0.5, 2.0, -1.5]


def test_gumbel_softmax():
    logits = rabbet.randn(6, 5, requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    assert set(hard.sum(1).round().tolist()) == {1.0}
    np.testing.assert_allclose(hard.max(1)[0].detach().numpy(), 1.0, 1e-6)
    (hard * rabbet.arange(5.0)).sum().backward()
    assert float(logits.grad.abs().sum()) > 0


BAD = [
    (lambda: F.interpolate(rabbet.ones(1, 1, 4)), ValueError, "either size or scale_factor"),
    (lambda: F.interpolate(rabbet.ones(1, 1, 4), 3, 2.0), ValueError, "only one of size"),
    (lambda: F.interpolate(rabbet.ones(1, 1, 4), [3, 3]), ValueError, "spatial dimensions"),
    (
        lambda: F.interpolate(rabbet.ones(1, 1, 4), 3, mode="bilinear"),
        NotImplementedError,
        "needs 4D input",
    ),
    (
        lambda: F.interpolate(rabbet.ones(1, 1, 4), 3, align_corners=True),
        ValueError,
        "align_corners",
    ),
    (lambda: F.interpolate(rabbet.ones(1, 1, 4), 3, antialias=True), ValueError, "Anti-alias"),
    (lambda: F.interpolate(rabbet.ones(1, 1, 4), 0), RuntimeError, "greater than 0"),
    (lambda: F.pixel_shuffle(rabbet.ones(1, 3, 4, 4), 2), RuntimeError, "divisible by the square"),
    (lambda: F.pixel_unshuffle(rabbet.ones(1, 3, 5, 4), 2), RuntimeError, "height"),
    (lambda: F.channel_shuffle(rabbet.ones(1, 3, 5, 4), 2), RuntimeError, "divisible"),
    (lambda: F.unfold(rabbet.ones(1, 3, 4, 4), 5), RuntimeError, "at least one"),
    (lambda: F.unfold(rabbet.ones(1, 3, 4, 4), 0), RuntimeError, "kernel_size"),
    (lambda: F.fold(rabbet.ones(1, 9, 4), 4, 2), RuntimeError, "divisible by the product"),
    (lambda: F.fold(rabbet.ones(1, 8, 5), 4, 2), RuntimeError, "sliding blocks"),
    (
        lambda: F.grid_sample(rabbet.ones(1, 1, 2, 2), rabbet.ones(1, 2, 2, 3)),
        RuntimeError,
        "size 2 in last dimension",
    ),
    (
        lambda: F.grid_sample(rabbet.ones(1, 1, 2, 2), rabbet.ones(1, 2, 2, 2), "cubic"),
        ValueError,
        "expected mode",
    ),
    (lambda: F.affine_grid(rabbet.ones(1, 2, 2), (1, 1, 2, 2)), ValueError, "affine matrices"),
    (lambda: nn.MultiMarginLoss(3), ValueError, "p == 1 and p == 2"),
    (lambda: nn.TripletMarginLoss(-1.0), ValueError, "greater than 0"),
    (lambda: F.gaussian_nll_loss(*[rabbet.ones(3)] * 2, -1.0), ValueError, "negative"),
    (
        lambda: F.gaussian_nll_loss(*[rabbet.ones(3, 2)] * 2, rabbet.ones(2)),
        ValueError,
        "incorrect size",
    ),
    (
        lambda: F.ctc_loss(rabbet.zeros(3, 1, 4), rabbet.tensor([[1]]), [4], [1]),
        RuntimeError,
        "input_lengths to have value at most 3",
    ),
    (
        lambda: F.embedding_bag(rabbet.tensor([1, 2]), rabbet.ones(4, 2)),
        ValueError,
        "offsets has to be a 1D Tensor but got None",
    ),
    (
        lambda: F.embedding_bag(rabbet.tensor([1, 2]), rabbet.ones(4, 2), rabbet.tensor([1])),
        RuntimeError,
        r"offsets\[0\] has to be 0",
    ),
    (
        lambda: F.max_unpool1d(rabbet.ones(1, 1), rabbet.tensor([[9]]), 2),
        RuntimeError,
        "invalid max index",
    ),
    (lambda: F.local_response_norm(rabbet.ones(3, 2), 2), ValueError, "3D or higher"),
    (lambda: F.rrelu(rabbet.ones(2), 0.5, 0.1), RuntimeError, "[Ll]ower bound"),
    (lambda: F.alpha_dropout(rabbet.ones(2), 1.5), ValueError, "between 0 and 1"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input_is_refused(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()
