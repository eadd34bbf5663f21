"""Functional forms against NumPy formulas, their gradients against finite differences."""

import numpy as np
import pytest
import rabbet
from rabbet.autograd import gradcheck, gradgradcheck

F = rabbet.nn.functional
rng = np.random.default_rng(11)
special = pytest.importorskip("scipy.special")


def normal(*shape):
    return rng.standard_normal(shape)


def softmax(x, dim):
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def normalized(x, dims, eps=1e-5):
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)


def windows(x, size):
    """Non-overlapping windows (..., H / s, W / s, s * s)."""
    *lead, h, w = x.shape
    x = x.reshape(*lead, h // size, size, w // size, size)
    return np.moveaxis(x, -3, -2).reshape(*lead, h // size, w // size, size * size)


def correlate(x, w):
    """Convolution without padding, by its definition."""
    n, _, h, ww = x.shape
    o, _, kh, kw = w.shape
    out = np.zeros((n, o, h - kh + 1, ww - kw + 1))
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            out[:, :, i, j] = np.tensordot(
                x[:, :, i : i + kh, j : j + kw], w, ([1, 2, 3], [1, 2, 3])
            )
    return out


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -1) @ v


X = normal(4, 6)
IMAGE = normal(2, 4, 4, 6)
P = rng.uniform(0.1, 0.9, (4, 6))
Q = softmax(normal(4, 6), 1)

# (name, function here, the same in NumPy, inputs)
CASES = [
    ("linear", F.linear, lambda x, w, b: x @ w.T + b, [X, normal(3, 6), normal(3)]),
    (
        "bilinear",
        F.bilinear,
        lambda a, b, w: np.einsum("bi,kij,bj->bk", a, w, b),
        [X, normal(4, 3), normal(2, 6, 3)],
    ),
    ("relu", F.relu, lambda x: np.maximum(x, 0), [X]),
    ("leaky_relu", F.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), [X]),
    ("elu", F.elu, lambda x: np.where(x > 0, x, np.expm1(x)), [X]),
    ("gelu", F.gelu, lambda x: x * special.ndtr(x), [X]),
    ("silu", F.silu, lambda x: x * special.expit(x), [X]),
    ("mish", F.mish, lambda x: x * np.tanh(np.log1p(np.exp(x))), [X]),
    ("sigmoid", F.sigmoid, special.expit, [X]),
    ("tanh", F.tanh, np.tanh, [X]),
    ("softplus", F.softplus, lambda x: np.log1p(np.exp(x)), [X]),
    ("logsigmoid", F.logsigmoid, special.log_expit, [X]),
    ("hardtanh", F.hardtanh, lambda x: np.clip(x, -1, 1), [X]),
    ("relu6", F.relu6, lambda x: np.clip(x, 0, 6), [X * 4]),
    ("softsign", F.softsign, lambda x: x / (1 + abs(x)), [X]),
    ("prelu", F.prelu, lambda x, w: np.where(x > 0, x, w * x), [X, normal(6)]),
    ("glu", F.glu, lambda x: x[:, :3] * special.expit(x[:, 3:]), [X]),
    ("softmax", lambda x: F.softmax(x, 1), lambda x: softmax(x, 1), [X]),
    ("log_softmax", lambda x: F.log_softmax(x, 0), lambda x: np.log(softmax(x, 0)), [X]),
    ("conv2d", F.conv2d, correlate, [IMAGE, normal(3, 4, 2, 3)]),
    (
        "conv1d",
        F.conv1d,
        lambda x, w: correlate(x[:, :, None], w[:, :, None])[:, :, 0],
        [normal(2, 4, 7), normal(3, 4, 3)],
    ),
    ("max_pool2d", lambda x: F.max_pool2d(x, 2), lambda x: windows(x, 2).max(-1), [IMAGE]),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 2), lambda x: windows(x, 2).mean(-1), [IMAGE]),
    (
        "adaptive_avg_pool2d",
        lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
        lambda x: windows(x, 2).mean(-1),
        [IMAGE],
    ),
    (
        "layer_norm",
        lambda x, w: F.layer_norm(x, (6,), w),
        lambda x, w: normalized(x, (-1,)) * w,
        [X, normal(6)],
    ),
    (
        "rms_norm",
        lambda x: F.rms_norm(x, (6,), eps=0.1),
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1),
        [X],
    ),
    (
        "group_norm",
        lambda x: F.group_norm(x, 2),
        lambda x: normalized(x.reshape(2, 2, -1), (2,)).reshape(x.shape),
        [IMAGE],
    ),
    ("instance_norm", F.instance_norm, lambda x: normalized(x, (2, 3)), [IMAGE]),
    (
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        lambda x, w, b: normalized(x, (0, 2, 3)) * w[:, None, None] + b[:, None, None],
        [IMAGE, normal(4), normal(4)],
    ),
    ("normalize", F.normalize, lambda x: x / np.linalg.norm(x, axis=1, keepdims=True), [X]),
    (
        "pad",
        lambda x: F.pad(x, (1, 2), value=3.0),
        lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=3.0),
        [X],
    ),
    (
        "attention",
        F.scaled_dot_product_attention,
        attention,
        [normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 6)],
    ),
    ("mse_loss", F.mse_loss, lambda a, b: ((a - b) ** 2).mean(), [X, normal(4, 6)]),
    ("l1_loss", F.l1_loss, lambda a, b: abs(a - b).mean(), [X, normal(4, 6)]),
    (
        "huber_loss",
        F.huber_loss,
        lambda a, b: special.huber(1.0, a - b).mean(),
        [X, 2 * normal(4, 6)],
    ),
    (
        "smooth_l1_loss",
        F.smooth_l1_loss,
        lambda a, b: special.huber(1.0, a - b).mean(),
        [X, 2 * normal(4, 6)],
    ),
    (
        "binary_cross_entropy",
        F.binary_cross_entropy,
        lambda p, t: -(t * np.log(p) + (1 - t) * np.log1p(-p)).mean(),
        [P, Q],
    ),
    (
        "binary_cross_entropy_with_logits",
        F.binary_cross_entropy_with_logits,
        lambda x, t: ((1 - t) * x - special.log_expit(x)).mean(),
        [X, P],
    ),
    (
        "kl_div",
        lambda x, t: F.kl_div(F.log_softmax(x, 1), t, reduction="batchmean"),
        lambda x, t: special.rel_entr(t, softmax(x, 1)).sum() / 4,
        [X, Q],
    ),
    (
        "cross_entropy",
        F.cross_entropy,
        lambda x, t: -(t * np.log(softmax(x, 1))).sum(1).mean(),
        [X, Q],
    ),
]
# Not smooth, or smooth only once: no second differences.
ONCE = {
    "max_pool2d",
    "l1_loss",
    "relu",
    "prelu",
    "huber_loss",
    "smooth_l1_loss",
    "hardtanh",
    "relu6",
}


@pytest.mark.parametrize("name,fn,ref,inputs", CASES, ids=[c[0] for c in CASES])
def test_value_equals_the_formula(name, fn, ref, inputs):
    out = fn(*(rabbet.tensor(x) for x in inputs))
    np.testing.assert_allclose(out.numpy(), ref(*inputs), 1e-10, 1e-12)


@pytest.mark.parametrize("name,fn,ref,inputs", CASES, ids=[c[0] for c in CASES])
def test_gradient_equals_finite_differences(name, fn, ref, inputs):
    tensors = [rabbet.tensor(x, requires_grad=True) for x in inputs]
    assert gradcheck(fn, tensors)


@pytest.mark.parametrize(
    "name,fn,ref,inputs",
    [c for c in CASES if c[0] not in ONCE and c[3][0].size < 30],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_second_gradient_equals_finite_differences(name, fn, ref, inputs):
    tensors = [rabbet.tensor(x, requires_grad=True) for x in inputs]
    assert gradgradcheck(fn, tensors)


# ---- classes

TARGETS = np.array([0, 5, 2, 2])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_of_classes(reduction, ignored, smoothing, weighted):
    weight = np.arange(1.0, 7.0) if weighted else np.ones(6)
    log_p = np.log(softmax(X, 1))
    counts = weight[TARGETS] * (ignored != TARGETS)
    loss = -(1 - smoothing) * log_p[np.arange(4), TARGETS] * counts
    loss -= smoothing / 6 * (log_p * weight).sum(1) * (ignored != TARGETS)
    expected = {"mean": loss.sum() / counts.sum(), "sum": loss.sum(), "none": loss}[reduction]
    x = rabbet.tensor(X, requires_grad=True)
    options = {"ignore_index": ignored, "reduction": reduction, "label_smoothing": smoothing}
    if weighted:
        options["weight"] = rabbet.tensor(weight)
    out = F.cross_entropy(x, rabbet.tensor(TARGETS), **options)
    np.testing.assert_allclose(out.detach().numpy(), expected, 1e-12)
    assert gradcheck(lambda x: F.cross_entropy(x, rabbet.tensor(TARGETS), **options), [x])


@pytest.mark.parametrize("target", [[0, -100, 1, -100], [-100] * 4])
def test_the_default_ignored_class_does_not_count(target):
    target = np.array(target)
    out = F.cross_entropy(rabbet.tensor(X), rabbet.tensor(target))
    rows = np.flatnonzero(target >= 0)
    if len(rows) == 0:
        assert np.isnan(out.item())
    else:
        np.testing.assert_allclose(
            out.item(), -np.log(softmax(X, 1))[rows, target[rows]].mean(), 1e-12
        )


def test_cross_entropy_takes_bytes():
    a = F.cross_entropy(rabbet.tensor(X), rabbet.tensor(TARGETS, dtype=rabbet.uint8))
    b = F.cross_entropy(rabbet.tensor(X), rabbet.tensor(TARGETS))
    np.testing.assert_allclose(a.item(), b.item(), 1e-12)


def test_an_impossible_score_that_is_ignored_does_no_harm():
    scores = rabbet.tensor([[0.0, float("-inf")], [1.0, 2.0]], requires_grad=True)
    loss = F.nll_loss(scores, rabbet.tensor([1, 0]), ignore_index=1)
    assert loss.item() == -1.0


def test_saturated_probabilities_have_finite_losses():
    p = rabbet.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, rabbet.tensor([0.0, 1.0, 1.0, 0.0]), reduction="none")
    assert loss.tolist() == [0.0, 0.0, 100.0, 100.0]
    loss.sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), [1.0, -1.0, -1e12, 1e12], 1e-6)


# ---- random, look-ups, running statistics


@pytest.mark.parametrize(
    "fn,shape",
    [
        (F.dropout, (100, 100)),
        (F.dropout1d, (50, 40, 3)),
        (F.dropout2d, (50, 40, 2, 3)),
        (F.dropout3d, (50, 40, 2, 1, 3)),
    ],
)
@pytest.mark.parametrize("inplace", [False, True])
def test_dropout_zeroes_a_part_and_scales_the_rest(fn, shape, inplace):
    rabbet.manual_seed(3)
    x = rabbet.ones(shape)
    y = fn(x, 0.25, True, inplace)
    values = y.numpy()
    assert set(np.unique(values.round(5))) == {0.0, np.float32(1 / 0.75).round(5)}
    assert abs((values == 0).mean() - 0.25) < 0.05
    assert inplace == np.array_equal(x.numpy(), values)
    if fn is not F.dropout:
        channels = values.reshape(*shape[:2], -1)
        assert (channels == channels[..., :1]).all()


@pytest.mark.parametrize("fn", [F.dropout, F.dropout2d])
@pytest.mark.parametrize("p,training", [(0.0, True), (0.9, False)])
def test_dropout_does_nothing_without_need(fn, p, training):
    x = rabbet.randn(3, 4, 2, 2)
    assert rabbet.equal(fn(x, p, training), x)


def test_dropout_of_everything_is_zero():
    assert not F.dropout(rabbet.ones(5), 1.0).any()
    assert not F.dropout(rabbet.ones(5), 1.0, True, True).any()


def test_embedding_takes_rows_and_leaves_the_padding_row_out():
    weight = rabbet.tensor(normal(5, 3), requires_grad=True)
    index = rabbet.tensor([[1, 4], [4, 0]])
    out = F.embedding(index, weight, padding_idx=-1)
    np.testing.assert_array_equal(out.detach().numpy(), weight.detach().numpy()[index.numpy()])
    out.sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy()[:, 0], [1, 1, 0, 0, 0])


def test_one_hot():
    out = F.one_hot(rabbet.tensor([[0, 2], [1, 1]]))
    np.testing.assert_array_equal(out.numpy(), np.eye(3, dtype=np.int64)[[[0, 2], [1, 1]]])
    assert F.one_hot(rabbet.tensor([0]), 4).tolist() == [[1, 0, 0, 0]]


def test_the_mean_of_huber_loss_counts_elements_not_weights():
    x, y = rabbet.tensor([1.0, 2.0]), rabbet.tensor([0.0, 5.0])
    weight = rabbet.tensor([1.0, 2.0])
    assert F.huber_loss(x, y, weight=weight).item() == 2.75
    assert F.huber_loss(x, y, weight=weight, reduction="sum").item() == 5.5
    with pytest.raises(ValueError, match="same size"):
        F.huber_loss(x, y, weight=rabbet.tensor([1.0]))


def test_cosine_similarity_broadcasts_and_computes_in_one_dtype():
    a, b = rabbet.ones(1, 3, 1) * 2, rabbet.ones(2, 1, 4)
    assert F.cosine_similarity(a, b, dim=-1).tolist() == [[1.0] * 3] * 2
    rows = rabbet.tensor([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(
        F.cosine_similarity(rows, rabbet.tensor([1.0, 1.0])).numpy(), [0.5**0.5] * 2, rtol=1e-6
    )
    half = rabbet.tensor([[300.0, 3.0]], dtype=rabbet.float16)
    mixed = F.cosine_similarity(half, rabbet.tensor([[1.0, 2.0]]))
    assert mixed.dtype is rabbet.float32 and abs(mixed.item() - 0.456135) < 1e-6
    with pytest.raises(RuntimeError, match="floating point"):
        F.cosine_similarity(rabbet.tensor([1, 2]), rabbet.tensor([1, 2]), dim=0)


def test_max_pool_returns_indices():
    values, indices = F.max_pool2d(rabbet.tensor(IMAGE), 2, return_indices=True)
    flat = IMAGE.reshape(2, 4, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, indices.numpy().reshape(2, 4, -1), 2),
        values.numpy().reshape(2, 4, -1),
    )


@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_batch_norm_updates_running_statistics(momentum):
    mean, var = rabbet.zeros(4, dtype=rabbet.float64), rabbet.ones(4, dtype=rabbet.float64)
    x = rabbet.tensor(IMAGE, requires_grad=True)
    F.batch_norm(x, mean, var, training=True, momentum=momentum)
    assert not mean.requires_grad
    np.testing.assert_allclose(mean.numpy(), momentum * IMAGE.mean((0, 2, 3)), 1e-12)
    np.testing.assert_allclose(
        var.numpy(), 1 - momentum + momentum * IMAGE.var((0, 2, 3), ddof=1), 1e-12
    )
    out = F.batch_norm(x, mean, var)
    c = (slice(None), None, None)
    np.testing.assert_allclose(
        out.detach().numpy(), (IMAGE - mean.numpy()[c]) / np.sqrt(var.numpy()[c] + 1e-5), 1e-9
    )


# ---- bad input

T = rabbet.zeros
BAD = [
    (lambda: F.linear(T(2, 3), T(4, 5)), "linear"),
    (lambda: F.bilinear(T(2, 3), T(3, 3), T(1, 3, 3)), "leading sizes"),
    (lambda: F.bilinear(T(2, 3), T(2, 4), T(1, 3, 3)), "expects last sizes 3 and 3"),
    (lambda: F.embedding(rabbet.tensor([7]), T(5, 3)), "out of range"),
    (lambda: F.embedding(rabbet.tensor([1]), T(5, 3), padding_idx=5), "padding_idx must be within"),
    (
        lambda: F.embedding(rabbet.tensor([1]), T(5, 3, requires_grad=True), sparse=True),
        "sparse=True is not supported",
    ),
    (lambda: F.one_hot(T(3)), "int64"),
    (lambda: F.one_hot(rabbet.tensor([-1])), "non-negative"),
    (lambda: F.one_hot(rabbet.tensor([4]), 3), "smaller than num_classes"),
    (lambda: F.conv2d(T(1, 3, 5, 5), T(2, 4, 3, 3)), "convolution: weight (2, 4, 3, 3)"),
    (lambda: F.conv2d(T(1, 3, 5, 5), T(2, 3, 3, 3), padding="full"), "Invalid padding string"),
    (lambda: F.conv2d(T(1, 3, 5, 5), T(2, 3, 3, 3), stride=2, padding="same"), "strided"),
    (lambda: F.conv1d(T(1, 3, 5, 5), T(2, 3, 3)), "conv1d: expected input of 2 or 3"),
    (lambda: F.conv1d(T(1, 3, 5), T(2, 3, 3), stride=(1, 1)), "conv1d: expected stride"),
    (lambda: F.conv_transpose2d(T(1, 3, 5, 5), T(2, 3, 3, 3)), "expects 2 channels"),
    (
        lambda: F.conv_transpose2d(T(1, 3, 5, 5), T(3, 3, 3, 3), output_padding=1),
        "output padding must be smaller",
    ),
    (lambda: F.pad(T(3), (1, 1, 1, 1)), "at most 1"),
    (lambda: F.pad(T(3), (1,)), "pairs"),
    (lambda: F.pad(T(3), (1, 1), "mirror"), "expected mode"),
    (lambda: F.pad(T(3), (3, 0), "reflect"), "too large"),
    (lambda: F.pad(T(3), (4, 0), "circular"), "too large"),
    (lambda: F.pad(T(3), (1, 0), "reflect", 2.0), "value argument"),
    (lambda: F.max_pool2d(T(3), 2), "max_pool2d"),
    (lambda: F.avg_pool2d(T(1, 4, 4), 2, divisor_override=0), "divisor"),
    (lambda: F.adaptive_avg_pool2d(T(4, 4), 2), "3D or 4D (batch mode)"),
    (lambda: F.adaptive_avg_pool2d(T(1, 4, 4), (2, 2, 2)), "output_size must be 2"),
    (lambda: F.max_pool1d(T(3), 2), "max_pool1d"),
    (lambda: F.avg_pool1d(T(1, 2, 3), (2, 2)), "kernel_size"),
    (lambda: F.batch_norm(T(3), None, None, training=True), "expected (N, C"),
    (lambda: F.batch_norm(T(2, 3), None, None), "running_mean and running_var"),
    (lambda: F.batch_norm(T(1, 3), None, None, training=True), "more than 1 value per channel"),
    (lambda: F.batch_norm(T(2, 3), T(4), T(3)), "running_mean should contain 3 elements"),
    (lambda: F.instance_norm(T(2, 3, 1)), "more than 1 spatial element"),
    (lambda: F.group_norm(T(2, 3, 4), 2), "divisible by num_groups"),
    (lambda: F.layer_norm(T(2, 3), (4,)), "layer_norm"),
    (lambda: F.rms_norm(T(2, 3), (4,)), "rms_norm"),
    (lambda: F.rms_norm(T(2, 3), (3,), T(2)), "expected weight"),
    (lambda: F.dropout(T(3), 1.5), "between 0 and 1"),
    (lambda: F.dropout2d(T(3), 0.5), "at least 2 dimensions"),
    (lambda: F.glu(T(3)), "even size"),
    (lambda: F.prelu(T(2, 3), T(2)), "each of 3 channels"),
    (lambda: F.hardtanh(T(3), 2.0, 1.0), "min_val"),
    (lambda: F.softshrink(T(3), -1.0), "lambd"),
    (lambda: F.celu(T(3), 0.0), "alpha"),
    (lambda: F.mse_loss(T(3), T(3), reduction="avg"), "avg is not a valid value"),
    (lambda: F.cross_entropy(T(3, 2), rabbet.tensor([0, 1])), "batch_size (3)"),
    (lambda: F.cross_entropy(T(2, 2), rabbet.tensor([0, 2])), "Target 2 is out of bounds"),
    (lambda: F.cross_entropy(T(2, 2), rabbet.tensor([0, -1])), "Target -1 is out of bounds"),
    (lambda: F.cross_entropy(T(2, 2), T(2, 3)), "class probabilities"),
    (lambda: F.cross_entropy(T(2, 2), rabbet.tensor([True, False])), "Long or Byte"),
    (
        lambda: F.cross_entropy(T(2, 2), rabbet.tensor([0, 1]), label_smoothing=2.0),
        "label_smoothing",
    ),
    (lambda: F.cross_entropy(T(2, 2), rabbet.tensor([0, 1]), T(3)), "all 2 classes"),
    (lambda: F.cross_entropy(T(()), rabbet.tensor(0)), "0-d"),
    (lambda: F.nll_loss(T(2, 3, 4), rabbet.tensor([0, 1])), "Expected target size (2, 4)"),
    (lambda: F.smooth_l1_loss(T(3), T(3), beta=-1.0), "beta"),
    (lambda: F.huber_loss(T(3), T(3), delta=0.0), "delta"),
    (lambda: F.binary_cross_entropy(T(3), T(2)), "target size"),
    (lambda: F.binary_cross_entropy(T(3) - 1, T(3)), "between 0 and 1"),
    (lambda: F.binary_cross_entropy_with_logits(T(3), T(2)), "must be the same as input size"),
]


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 1-D input")
@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_input_is_refused_clearly(i):
    call, text = BAD[i]
    with pytest.raises(
        (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError)
    ) as error:
        call()
    assert text in str(error.value)


def test_broadcasting_losses_and_implicit_dims_warn():
    with pytest.warns(UserWarning, match="rarely what was meant"):
        F.mse_loss(T(3, 1), T(3))
    with pytest.warns(UserWarning, match="Implicit dimension"):
        F.softmax(T(3, 2))
    with pytest.warns(UserWarning, match="batchmean"):
        F.kl_div(T(3, 2), T(3, 2))


@pytest.mark.parametrize(
    ("widths", "expected"),
    [((-4, 5), [3] * 5), ((-5, 7), [3] * 6), ((5, -4), [0] * 5), ((-1, 2), [1, 2, 3, 3, 3])],
)
def test_replicate_padding_repeats_the_edge_where_all_else_is_cropped(widths, expected):
    assert F.pad(rabbet.arange(4.0).reshape(1, 4), widths, "replicate").tolist() == [expected]


@pytest.mark.parametrize("widths", [(-2, -2), (0, -4)])
def test_replicate_padding_to_nothing_is_refused(widths):
    with pytest.raises(RuntimeError, match="are too large for mode 'replicate'"):
        F.pad(rabbet.arange(4.0).reshape(1, 4), widths, "replicate")
