"""Functions made of reductions compute in the accumulation dtype: at 16 bits they are those of float64, rounded once."""

import math

import numpy as np
import pytest
import rabbet
from rabbet.nn import functional as F
from rabbet.nn.utils import clip_grad_norm_, get_total_norm, parametrizations

ROWS, COLUMNS = 4, 24
NARROW = [rabbet.float16, rabbet.bfloat16]


def numbers(seed, size, dtype, shape=(ROWS, COLUMNS)):
    """Numbers of magnitude `size` and both signs that `dtype` holds, as float64."""
    rabbet.manual_seed(seed)
    return (rabbet.randn(list(shape), dtype=rabbet.float64) * size).to(dtype).double()


CLASSES = rabbet.tensor([3, 0, 23, 7])
SIGNS = rabbet.tensor([1.0, -1.0, 1.0, -1.0])

# Functions of two matrices and one of probabilities.
CASES = {
    "norm": lambda x, y, p: x.norm(),
    "norm of rows": lambda x, y, p: x.norm(2, 1),
    "norm of columns": lambda x, y, p: x.norm(2, 0, keepdim=True),
    "norm 1": lambda x, y, p: x.norm(1, 1),
    "norm 3": lambda x, y, p: x.norm(3, 1),
    "norm 0.5": lambda x, y, p: x.narrow(1, 0, 4).norm(0.5, 1),
    "norm -2": lambda x, y, p: x.norm(-2, 1),
    "norm inf": lambda x, y, p: x.norm(math.inf, 1),
    "norm -inf": lambda x, y, p: x.norm(-math.inf, 1),
    "dist": lambda x, y, p: rabbet.dist(x, y),
    "dist 1": lambda x, y, p: rabbet.dist(x, y, 1),
    "cdist": lambda x, y, p: rabbet.cdist(x, y),
    "cdist 3": lambda x, y, p: rabbet.cdist(x, y, 3.0),
    "pdist": lambda x, y, p: F.pdist(x),
    "renorm": lambda x, y, p: rabbet.renorm(x, 2, 0, 1.5),
    "normalize": lambda x, y, p: F.normalize(x),
    "normalize by columns": lambda x, y, p: F.normalize(x, 3.0, 0),
    "cosine_similarity": lambda x, y, p: F.cosine_similarity(x, y),
    "pairwise_distance": lambda x, y, p: F.pairwise_distance(x, y),
    "logsumexp": lambda x, y, p: rabbet.logsumexp(x, [1]),
    "logcumsumexp": lambda x, y, p: rabbet.logcumsumexp(x, 1),
    "var": lambda x, y, p: x.var(1),
    "std": lambda x, y, p: x.std(1),
    "std of all": lambda x, y, p: x.std(correction=0),
    "nanmean": lambda x, y, p: x.nanmean(1),
    "softmax": lambda x, y, p: rabbet.softmax(x, 1),
    "log_softmax": lambda x, y, p: rabbet.log_softmax(x, 1),
    "prod": lambda x, y, p: x.narrow(1, 0, 4).prod(1),
    "cumprod": lambda x, y, p: x.narrow(1, 0, 4).cumprod(1),
    "trapezoid": lambda x, y, p: rabbet.trapezoid(x),
    "cov": lambda x, y, p: rabbet.cov(x),
    "corrcoef": lambda x, y, p: rabbet.corrcoef(x),
    "scatter_reduce": lambda x, y, p: x.scatter_reduce(1, CLASSES.expand(ROWS, 4), y, "mean"),
    "addbmm": lambda x, y, p: rabbet.addbmm(x[:, :4], x.reshape(6, 4, 4), y.reshape(6, 4, 4)),
    "layer_norm": lambda x, y, p: F.layer_norm(x, [COLUMNS]),
    "rms_norm": lambda x, y, p: F.rms_norm(x, [COLUMNS], eps=1e-6),
    "group_norm": lambda x, y, p: F.group_norm(x, 4),
    "batch_norm": lambda x, y, p: F.batch_norm(x, None, None, training=True),
    "instance_norm": lambda x, y, p: F.instance_norm(x.reshape(2, 2, -1)),
    "local_response_norm": lambda x, y, p: F.local_response_norm(x.reshape(2, 8, 6), 3),
    "lp_pool1d": lambda x, y, p: F.lp_pool1d(x.abs(), 2.0, 3),
    "lp_pool2d": lambda x, y, p: F.lp_pool2d(x.abs().reshape(1, 2, 6, 8), 3.0, 2),
    "bilinear": lambda x, y, p: F.bilinear(x[:, :4], y[:, :4], y.reshape(6, 4, 4)),
    "glu": lambda x, y, p: F.glu(x),
    "gradient": lambda x, y, p: rabbet.gradient(x, dim=1)[0],
    "vecdot": lambda x, y, p: rabbet.linalg.vecdot(x, y),
    "addmv": lambda x, y, p: rabbet.addmv(y[:, 0], x, y[0], beta=2),
    "conv2d": lambda x, y, p: F.conv2d(x.reshape(1, 4, 4, 6), y.reshape(4, 4, 2, 3), y[:, 0]),
    "conv_transpose1d": lambda x, y, p: F.conv_transpose1d(
        x.reshape(2, 4, 12), y[:, :6].reshape(4, 2, 3), y[0, :2]
    ),
    "conv_transpose2d": lambda x, y, p: F.conv_transpose2d(
        x.reshape(1, 4, 4, 6), y.reshape(4, 4, 2, 3), y[:, 0], stride=2
    ),
    "adaptive_avg_pool1d": lambda x, y, p: F.adaptive_avg_pool1d(x, 7),
    "avg_pool2d": lambda x, y, p: F.avg_pool2d(x.reshape(1, 4, 4, 6), 2),
    "interpolate bilinear": lambda x, y, p: F.interpolate(
        x.reshape(1, 4, 4, 6), (7, 5), mode="bilinear"
    ),
    "interpolate bicubic": lambda x, y, p: F.interpolate(
        x.reshape(1, 4, 4, 6), (7, 5), mode="bicubic"
    ),
    "grid_sample": lambda x, y, p: F.grid_sample(
        x.reshape(1, 4, 4, 6), y.reshape(1, 8, 6, 2).clamp(-1, 1), align_corners=False
    ),
    "grid_sample of volumes": lambda x, y, p: F.grid_sample(
        x.reshape(1, 2, 3, 4, 4),
        y.reshape(1, 2, 4, 4, 3),
        padding_mode="border",
        align_corners=True,
    ),
    "affine_grid": lambda x, y, p: F.affine_grid(
        x[:, :6].reshape(4, 2, 3), [4, 1, 5, 7], align_corners=False
    ),
    "mse_loss": lambda x, y, p: F.mse_loss(x, y),
    "mse_loss sum": lambda x, y, p: F.mse_loss(x, y, reduction="sum"),
    "l1_loss": lambda x, y, p: F.l1_loss(x, y),
    "smooth_l1_loss": lambda x, y, p: F.smooth_l1_loss(x, y),
    "huber_loss": lambda x, y, p: F.huber_loss(x, y, delta=0.7),
    "binary_cross_entropy": lambda x, y, p: F.binary_cross_entropy(p, 1 - p.flip(0).detach()),
    "with logits": lambda x, y, p: F.binary_cross_entropy_with_logits(x, p),
    "pos_weight": lambda x, y, p: F.binary_cross_entropy_with_logits(x, p, pos_weight=p[0]),
    "kl_div": lambda x, y, p: F.kl_div(x, p, reduction="batchmean"),
    "cross_entropy": lambda x, y, p: F.cross_entropy(x, CLASSES),
    "of probabilities": lambda x, y, p: F.cross_entropy(x, p),
    "label_smoothing": lambda x, y, p: F.cross_entropy(x, CLASSES, label_smoothing=0.2),
    "nll_loss": lambda x, y, p: F.nll_loss(x, CLASSES),
    "poisson_nll_loss": lambda x, y, p: F.poisson_nll_loss(-x.abs(), y.abs(), full=True),
    "gaussian_nll_loss": lambda x, y, p: F.gaussian_nll_loss(x, y, p),
    "hinge_embedding_loss": lambda x, y, p: F.hinge_embedding_loss(
        x, SIGNS.unsqueeze(1).to(x.dtype)
    ),
    "cosine_embedding_loss": lambda x, y, p: F.cosine_embedding_loss(x, y, SIGNS.to(x.dtype)),
    "margin_ranking_loss": lambda x, y, p: F.margin_ranking_loss(x, y, rabbet.ones_like(x)),
    "soft_margin_loss": lambda x, y, p: F.soft_margin_loss(x, rabbet.ones_like(x)),
    "multi_margin_loss": lambda x, y, p: F.multi_margin_loss(x, CLASSES, p=2),
    "multilabel_margin_loss": lambda x, y, p: F.multilabel_margin_loss(
        x, CLASSES.unsqueeze(1).expand(ROWS, COLUMNS)
    ),
    "multilabel_soft_margin_loss": lambda x, y, p: F.multilabel_soft_margin_loss(x, p),
    "triplet_margin_loss": lambda x, y, p: F.triplet_margin_loss(x, y, y.flip(0)),
}
# Their derivatives read the rounded result, as PyTorch's do; the numbers are of order 1.
ROUNDED_BEFORE = {"softmax", "log_softmax"}


def run(case, x, y, p, seed):
    """The result, and the gradient for the first matrix, or for the probabilities where only they are read."""
    x, p = x.clone().requires_grad_(), p.clone().requires_grad_()
    result = CASES[case](x, y, p)
    of = p if case == "binary_cross_entropy" else x
    (grad,) = rabbet.autograd.grad(result, [of], [seed(result.shape).to(result.dtype)])
    return result.detach(), grad


def assert_close(got, exact, ulps, least=0.0):
    """Within so many units in the last place of each number and of a part of the largest, or of `least`."""
    limits = rabbet.finfo(got.dtype)
    wanted = exact.to(got.dtype).double()
    finite = wanted.isfinite()
    assert (got.double()[~finite] == wanted[~finite]).all() or bool(wanted[~finite].isnan().all())
    scale = wanted[finite].abs() + (wanted[finite].abs().amax() * 0.02 if finite.any() else 0)
    scale = scale.clamp(min=least)
    gap = (got.double() - wanted)[finite].abs()
    assert (gap <= ulps * limits.eps * scale + 2 * limits.smallest_normal * limits.eps).all(), (
        got,
        wanted,
    )


@pytest.mark.parametrize("size", [1e-3, 1.0, 250.0])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_reductions_of_16_bits_are_those_of_float64_rounded_once(case, dtype, size):
    x, y = numbers(1, size, dtype), numbers(2, size, dtype)
    p = rabbet.softmax(y, 1).to(dtype).double()
    exact, exact_grad = run(case, x, y, p, lambda shape: numbers(3, 1.0, dtype, shape))
    got, grad = run(
        case, *(t.to(dtype) for t in (x, y, p)), lambda shape: numbers(3, 1.0, dtype, shape)
    )
    assert got.dtype is dtype and grad.dtype is dtype
    assert_close(got, exact, 1)
    assert_close(grad, exact_grad, *((8, 0.5) if case in ROUNDED_BEFORE else (2,)))


# ---- norms whose squares leave the range of the dtype

EXTREMES = [
    (rabbet.float32, [1e-30]),
    (rabbet.float32, [3e-30, 4e-30]),
    (rabbet.float32, [3e-42, 4e-42]),
    (rabbet.float32, [3e25, -4e25]),
    (rabbet.float32, [1e-30, 2.0]),
    (rabbet.float32, [0.0, 0.0]),
    (rabbet.float64, [3e-200, 4e-200]),
    (rabbet.float64, [3e200, -4e200]),
    (rabbet.float64, [1e308, 1e308, 1e-308]),
    (rabbet.bfloat16, [3e-30, 4e-30]),
    (rabbet.bfloat16, [3e30, 4e30]),
    (rabbet.float16, [6e-8, 6e-8]),
    (rabbet.float16, [40000.0, 30000.0]),
]


def kernel_norm(x, ord, dim=None):
    return x.norm(ord, dim)


def decomposed_norm(x, ord, dim=None):
    """As devices without a kernel compute it."""
    dims = None if dim is None else [dim]
    return rabbet._C.decomposed(rabbet._C.op("vector_norm"), (x, float(ord), dims, False), {})


@pytest.mark.parametrize("norm", [kernel_norm, decomposed_norm])
@pytest.mark.parametrize(("dtype", "values"), EXTREMES, ids=str)
def test_norms_of_numbers_whose_squares_leave_the_range(dtype, values, norm):
    x = rabbet.tensor(values, dtype=dtype)
    held = x.double().tolist()
    exact = rabbet.tensor(math.hypot(*held), dtype=rabbet.float64).to(dtype)
    tolerance = 4 * rabbet.finfo(dtype).eps if dtype in (rabbet.float32, rabbet.float64) else 0
    assert norm(x, 2).item() == pytest.approx(exact.item(), rel=tolerance, abs=0)
    # In rows and in columns, and among other numbers.
    for many, dim in ((x.expand(7, -1), 1), (x.unsqueeze(1).expand(-1, 7).contiguous(), 0)):
        got = norm(many, 2, dim)
        assert got.shape == (7,)
        assert got.tolist() == pytest.approx([exact.item()] * 7, rel=tolerance, abs=0)


@pytest.mark.parametrize("norm", [kernel_norm, decomposed_norm])
def test_norms_of_long_tensors_and_of_what_is_not_finite(norm):
    for size in (1e-25, 1e25):
        x = rabbet.full((100_000,), size)
        assert norm(x, 2).item() == pytest.approx(size * math.sqrt(1e5), rel=1e-5)
    assert norm(rabbet.tensor([1.0, math.inf]), 2).item() == math.inf
    assert math.isnan(norm(rabbet.tensor([1.0, math.nan]), 2).item())
    assert math.isnan(norm(rabbet.tensor([math.nan, math.inf]), 2).item())
    assert norm(rabbet.zeros(0), 2).item() == 0


@pytest.mark.parametrize("order", [3.0, 0.5, -1.0, -2.5])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_norms_of_other_orders_stay_in_range(order, size):
    values = [2.0, 3.0, 1.5]
    exact = sum(v**order for v in values) ** (1 / order) * size
    x = rabbet.tensor([v * size for v in values], requires_grad=True)
    out = x.norm(order)
    assert out.item() == pytest.approx(exact, rel=1e-5)
    (grad,) = rabbet.autograd.grad(out, [x])
    ratio = [(v * size / exact) ** (order - 1) for v in values]
    assert grad.tolist() == pytest.approx(ratio, rel=1e-4)


def test_norms_of_negative_order_at_zero_and_infinity():
    assert rabbet.tensor([0.0, 1.0]).norm(-2).item() == 0
    assert rabbet.tensor([math.inf, math.inf]).norm(-1).item() == math.inf
    assert rabbet.tensor([math.inf, 2.0]).norm(-1).item() == 2
    with pytest.raises(IndexError, match="the reduction of no elements has no value"):
        rabbet.zeros(0, 3).norm(-2, 0)
    assert rabbet.zeros(2, 0).norm(-2, 0).shape == (0,)


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e30, 1e38])
def test_the_gradient_of_a_norm_is_a_direction_at_any_length(size):
    x = rabbet.tensor([0.6 * size, 0.8 * size], requires_grad=True)
    (grad,) = rabbet.autograd.grad(x.norm(), [x])
    assert grad.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_tangents_of_16_bits_are_rounded_once(dtype):
    x = numbers(1, 250.0, dtype)
    exact = rabbet.func.jvp(lambda t: t.norm(2, 1), (x,), (x,))
    got = rabbet.func.jvp(lambda t: t.norm(2, 1), (x.to(dtype),), (x.to(dtype),))
    for a, b in zip(got, exact, strict=True):
        assert a.dtype is dtype
        assert_close(a, b, 1)


# ---- an eps below the smallest number of the dtype, and norms that limit something


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_the_direction_of_zeros_is_zero(dtype):
    x = rabbet.zeros(2, 4, dtype=dtype, requires_grad=True)
    out = F.normalize(x)
    assert out.dtype is dtype and not out.any()
    (grad,) = rabbet.autograd.grad(out.sum(), [x])
    assert not grad.isnan().any()
    into = rabbet.empty(2, 4, dtype=dtype)
    assert F.normalize(x.detach(), out=into) is into and not into.any()
    assert F.cosine_similarity(x, x).tolist() == [0, 0]
    similarity = F.cosine_similarity(x + 1, (x + 1).float())
    assert similarity.dtype is rabbet.float32 and similarity.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_gradients_of_16_bits_are_clipped_by_their_exact_norm(dtype):
    p = rabbet.nn.Parameter(rabbet.zeros(100, dtype=dtype))
    p.grad = rabbet.full((100,), 30000.0).to(dtype)
    exact = p.grad.double().norm()
    total = clip_grad_norm_([p], 10.0)
    assert total.dtype is dtype and total.item() == exact.to(dtype).item()
    assert p.grad.tolist() == pytest.approx([1.0] * 100, rel=2**-8)
    p.grad = rabbet.full((100,), 300.0).to(dtype)
    for order in (1.0, 2.0, 3.0):
        wanted = p.grad.double().norm(order).to(dtype).item()
        assert get_total_norm([p.grad], order).item() == wanted


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_total_norm_of_gradients_near_the_ends_of_float64(size):
    grads = [rabbet.tensor(v, dtype=rabbet.float64) for v in ([3 * size], [4 * size, 0.0])]
    assert get_total_norm(grads).item() == pytest.approx(5 * size, rel=1e-15)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_rows_of_an_embedding_are_limited_by_their_exact_norms(dtype):
    table = rabbet.full((3, 100), 300.0).to(dtype)
    rows = F.embedding(rabbet.tensor([0, 2]), table, max_norm=10.0)
    assert rows.dtype is dtype
    assert rows.flatten().tolist() == pytest.approx([1.0] * 200, rel=2**-7)
    assert table[1].tolist() == [rabbet.tensor(300.0).to(dtype).item()] * 100


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_sums_over_bags_of_rows_are_rounded_once(dtype):
    table = numbers(1, 1.0, dtype, (40, 3))
    index = rabbet.arange(40).reshape(1, 40)
    for mode in ("sum", "mean"):
        exact = F.embedding_bag(index, table, mode=mode).to(dtype)
        assert F.embedding_bag(index, table.to(dtype), mode=mode).equal(exact)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_weights_are_normalised_by_their_exact_norms(dtype):
    layer = parametrizations.weight_norm(rabbet.nn.Linear(64, 2).to(dtype))
    with rabbet.no_grad():
        layer.parametrizations.weight.original1.fill_(3000.0)
        layer.parametrizations.weight.original0.fill_(8.0)
    assert layer.weight.flatten().tolist() == pytest.approx([1.0] * 128, rel=2**-8)


@pytest.mark.parametrize("dim", [(1, 2), [1, 2], (0,), 1])
def test_normalize_takes_several_dimensions(dim):
    x = rabbet.arange(1.0, 25.0).reshape(2, 3, 4)
    axis = dim if isinstance(dim, int) else tuple(dim)
    want = x.numpy() / np.sqrt((x.numpy() ** 2).sum(axis, keepdims=True))
    np.testing.assert_allclose(rabbet.nn.functional.normalize(x, dim=dim).numpy(), want, rtol=1e-6)
