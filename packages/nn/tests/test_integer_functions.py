"""Functions of integer tensors: exact convolutions, and refusals where PyTorch's CPU kernels have no integers."""

import itertools

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F

rng = np.random.default_rng(7)
INTEGERS = [getattr(rabbet, name) for name in ("uint8", "int8", "int16", "int32", "int64")]
NARROW = INTEGERS[:-1]
EVERY = [*INTEGERS, rabbet.bool]
CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
NUMPY = {dtype: np.dtype(str(dtype).removeprefix("rabbet.")) for dtype in INTEGERS}


def integers(dtype, *shape):
    return rabbet.tensor(rng.integers(0, 100, shape) - 40).to(dtype)


def correlated(x, w, bias, stride, padding, dilation, groups):
    """The convolution in int64: sums of products over windows of the padded input."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * rank)
    spread = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(x, spread, tuple(range(2, x.ndim)))
    steps = (slice(None, None, stride),) * rank + (slice(None, None, dilation),) * rank
    windows = windows[(slice(None), slice(None), *steps)]
    out, size = w.shape[0] // groups, w.shape[1]
    space = "xyz"[:rank]
    taps = "ijk"[:rank]
    parts = [
        np.einsum(
            f"nc{space}{taps},oc{taps}->no{space}",
            windows[:, g * size : (g + 1) * size],
            w[g * out : (g + 1) * out],
        )
        for g in range(groups)
    ]
    return np.concatenate(parts, 1) + bias.reshape(-1, *[1] * rank)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_integers_are_exact(rank, dtype):
    for groups, stride, padding in [(1, 1, 0), (2, 2, 1), (1, 3, 2)]:
        x = integers(dtype, 2, 4, *[6, 5, 7][:rank])
        w = integers(dtype, 6, 4 // groups, *[3, 2, 3][:rank])
        bias = integers(dtype, 6)
        out = CONVOLUTIONS[rank - 1](x, w, bias, stride, padding, groups=groups)
        assert out.dtype == dtype
        wide = [t.numpy().astype(np.int64) for t in (x, w, bias)]
        expected = correlated(*wide, stride, padding, 1, groups)
        np.testing.assert_array_equal(out.numpy(), expected.astype(NUMPY[dtype]))  # modulo 2**bits


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_only_int64_is_convolved_with_gaps(rank):
    shapes = (1, 2, *[7, 6, 5][:rank]), (3, 2, *[2, 3, 2][:rank])
    x, w = (integers(rabbet.int64, *shape) for shape in shapes)
    out = CONVOLUTIONS[rank - 1](x, w, dilation=2)
    expected = correlated(x.numpy(), w.numpy(), np.zeros(3, np.int64), 1, 0, 2, 1)
    np.testing.assert_array_equal(out.numpy(), expected)
    for dtype in NARROW:
        with pytest.raises(
            NotImplementedError, match=r"convolution: a dilated kernel .* int|uint8"
        ):
            CONVOLUTIONS[rank - 1](x.to(dtype), w.to(dtype), dilation=2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_only_int64_is_convolved_transposed(rank):
    x = integers(rabbet.int64, 2, 4, *[4, 3, 2][:rank])
    w = integers(rabbet.int64, 4, 3, *[3, 2, 3][:rank])
    options = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 2}
    out = TRANSPOSED[rank - 1](x, w, integers(rabbet.int64, 6) * 0 + 5, **options)
    assert out.dtype == rabbet.int64
    floating = TRANSPOSED[rank - 1](x.double(), w.double(), **options)
    np.testing.assert_array_equal(out.numpy(), floating.numpy() + 5)  # below 2**53
    for dtype in NARROW:
        with pytest.raises(NotImplementedError, match="not implemented for"):
            TRANSPOSED[rank - 1](x.to(dtype), w.to(dtype))


def test_large_int64_products_are_not_rounded():
    x = rabbet.tensor([[[2**40 + 1, 3, 5]]])
    w = rabbet.tensor([[[2**20 + 1, 1]]])
    first = (2**40 + 1) * (2**20 + 1) + 3
    assert F.conv1d(x, w).tolist() == [[[first, 3 * (2**20 + 1) + 5]]]
    assert F.conv_transpose1d(x[..., :1], w).tolist() == [[[first - 3, 2**40 + 1]]]


def test_bools_are_not_convolved():
    for rank in (1, 2, 3):
        x = rabbet.ones([1, 1, *[3] * rank], dtype=rabbet.bool)
        for function in (CONVOLUTIONS[rank - 1], TRANSPOSED[rank - 1]):
            with pytest.raises(NotImplementedError, match="bool"):
                function(x, x)


PLACES = rabbet.arange(4).reshape(1, 1, 2, 2)
LABELS = rabbet.tensor([0, 1])
# name: a function of a maker of tensors of the dtype under test, and the dtypes that it refuses
REFUSED = {
    "adaptive_avg_pool1d": (lambda o: F.adaptive_avg_pool1d(o(1, 2, 6), 2), EVERY),
    "adaptive_avg_pool3d": (lambda o: F.adaptive_avg_pool3d(o(1, 2, 4, 4, 4), 2), EVERY),
    "adaptive_max_pool1d": (lambda o: F.adaptive_max_pool1d(o(1, 2, 6), 2), EVERY),
    "adaptive_max_pool2d": (lambda o: F.adaptive_max_pool2d(o(1, 2, 6, 6), 2), EVERY),
    "adaptive_max_pool3d": (lambda o: F.adaptive_max_pool3d(o(1, 2, 4, 4, 4), 2), EVERY),
    "avg_pool1d": (lambda o: F.avg_pool1d(o(1, 2, 6), 2), [*NARROW, rabbet.bool]),
    "avg_pool2d": (lambda o: F.avg_pool2d(o(1, 2, 6, 6), 2), [*NARROW, rabbet.bool]),
    "avg_pool3d": (lambda o: F.avg_pool3d(o(1, 2, 4, 4, 4), 2), [*NARROW, rabbet.bool]),
    "lp_pool1d": (lambda o: F.lp_pool1d(o(1, 2, 6), 2, 2), NARROW),
    "max_pool1d": (lambda o: F.max_pool1d(o(1, 2, 6), 2), EVERY),
    "max_pool2d": (lambda o: F.max_pool2d(o(1, 2, 6, 6), 2), [rabbet.bool]),
    "max_pool3d": (lambda o: F.max_pool3d(o(1, 2, 4, 4, 4), 2), [rabbet.bool]),
    "max_unpool2d": (lambda o: F.max_unpool2d(o(1, 1, 2, 2), PLACES, 2), EVERY),
    "fractional_max_pool2d": (lambda o: F.fractional_max_pool2d(o(1, 2, 6, 6), 2, 3), EVERY),
    "unfold": (lambda o: F.unfold(o(1, 2, 4, 4), 2), INTEGERS),
    "fold": (lambda o: F.fold(o(1, 8, 4), 3, 2), INTEGERS),
    "pad reflect": (lambda o: F.pad(o(1, 2, 4), (1, 1), "reflect"), [rabbet.bool]),
    "pad replicate": (lambda o: F.pad(o(1, 2, 4), (1, 1), "replicate"), [rabbet.bool]),
    "grid_sample": (lambda o: F.grid_sample(o(1, 2, 4, 4), rabbet.zeros(1, 2, 2, 2)), EVERY),
    "linear": (lambda o: F.linear(o(3, 4), o(5, 4)), [rabbet.bool]),
    "bilinear": (lambda o: F.bilinear(o(3, 4), o(3, 5), o(2, 4, 5)), [rabbet.bool]),
    "glu": (lambda o: F.glu(o(4)), EVERY),
    "silu": (lambda o: F.silu(o(4)), EVERY),
    "gelu": (lambda o: F.gelu(o(4)), EVERY),
    "logsigmoid": (lambda o: F.logsigmoid(o(4)), EVERY),
    "softplus": (lambda o: F.softplus(o(4)), EVERY),
    "softmax": (lambda o: F.softmax(o(4), 0), EVERY),
    "mse_loss": (lambda o: F.mse_loss(o(4), o(4), reduction="none"), EVERY),
    "smooth_l1_loss": (lambda o: F.smooth_l1_loss(o(4), o(4)), EVERY),
    "huber_loss": (lambda o: F.huber_loss(o(4), o(4)), EVERY),
    "cross_entropy": (lambda o: F.cross_entropy(o(2, 3), LABELS), EVERY),
    "nll_loss": (lambda o: F.nll_loss(o(2, 3), LABELS), EVERY),
    "multi_margin_loss": (lambda o: F.multi_margin_loss(o(2, 3), LABELS), EVERY),
    "multilabel_margin_loss": (lambda o: F.multilabel_margin_loss(o(2), LABELS), EVERY),
    "gaussian_nll_loss": (lambda o: F.gaussian_nll_loss(o(4), o(4), o(4)), EVERY),
    "hinge_embedding_loss": (
        lambda o: F.hinge_embedding_loss(o(4), o(4), reduction="sum"),
        [rabbet.bool],
    ),
    "poisson_nll_loss": (lambda o: F.poisson_nll_loss(o(4), o(4)), [rabbet.bool]),
    "ctc_loss": (lambda o: F.ctc_loss(o(5, 1, 3), LABELS[None] + 1, [5], [2]), EVERY),
    "embedding_bag": (lambda o: F.embedding_bag(LABELS[None], o(3, 2)), EVERY),
    "batch_norm": (lambda o: F.batch_norm(o(2, 3), None, None, training=True), EVERY),
    "layer_norm": (lambda o: F.layer_norm(o(2, 3), [3]), EVERY),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dtypes_that_a_function_is_not_defined_for_are_refused(name):
    function, refused = REFUSED[name]
    for dtype in EVERY:

        def ones(*shape, dtype=dtype):
            return rabbet.ones(shape, dtype=dtype)

        if dtype not in refused:
            assert function(ones).dtype in (dtype, rabbet.int64, rabbet.float32)
            continue
        with pytest.raises(rabbet.UnsupportedDTypeError) as caught:
            function(ones)
        assert isinstance(caught.value, NotImplementedError) and isinstance(caught.value, TypeError)
        assert str(dtype).removeprefix("rabbet.") in str(caught.value)


def test_maxima_of_lines_with_indices_take_integers():
    x = rabbet.tensor([[[3, 9, 4, 4]]])
    for dtype in INTEGERS:
        values, places = F.max_pool1d(x.to(dtype), 2, return_indices=True)
        assert values.dtype == dtype
        assert values.tolist() == [[[9, 4]]] and places.tolist() == [[[1, 2]]]


def test_hinge_losses_of_integers_stay_integers():
    x, target = rabbet.tensor([0, 1, 2, 5]), rabbet.tensor([1, 1, -1, -1])
    for dtype, margin in itertools.product(INTEGERS[1:], (7, 7.5)):  # a margin of the input's dtype
        out = F.hinge_embedding_loss(x.to(dtype), target, margin, reduction="none")
        assert out.dtype == dtype and out.tolist() == [0, 1, 5, 2]
    assert (
        F.hinge_embedding_loss(x.to(rabbet.uint8), target, reduction="sum").item() == 1 + 255 + 252
    )
    half = F.hinge_embedding_loss(x.half(), target.float())
    assert half.dtype == rabbet.float16


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_integers_equal_pytorch(rank):
    torch = pytest.importorskip("torch")
    for dtype, groups, stride in itertools.product(INTEGERS, (1, 2), (1, 2)):
        x = integers(dtype, 2, 4, *[6, 5, 7][:rank])
        w = integers(dtype, 4, 4 // groups, *[3, 2, 3][:rank])
        bias = integers(dtype, 4)
        theirs = getattr(torch.nn.functional, f"conv{rank}d")(
            *(torch.tensor(t.numpy()) for t in (x, w, bias)), stride, 1, groups=groups
        )
        out = CONVOLUTIONS[rank - 1](x, w, bias, stride, 1, groups=groups)
        np.testing.assert_array_equal(out.numpy(), theirs.numpy())
