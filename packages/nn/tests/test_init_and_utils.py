"""Initialisation and utilities."""

import math

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn import init, utils

SHAPE = (60, 40, 3)  # fan_in 120, fan_out 180
UNIFORM = [
    (lambda t: init.uniform_(t, -2, 3), -2, 3),
    (init.xavier_uniform_, -math.sqrt(6 / 300), math.sqrt(6 / 300)),
    (lambda t: init.xavier_uniform_(t, 2.0), -2 * math.sqrt(6 / 300), 2 * math.sqrt(6 / 300)),
    (init.kaiming_uniform_, -math.sqrt(6 / 120), math.sqrt(6 / 120)),
    (lambda t: init.kaiming_uniform_(t, 1.0, "fan_out"), -math.sqrt(3 / 180), math.sqrt(3 / 180)),
]
NORMAL = [
    (init.normal_, 0, 1),
    (lambda t: init.normal_(t, 2, 0.5), 2, 0.5),
    (init.xavier_normal_, 0, math.sqrt(2 / 300)),
    (init.kaiming_normal_, 0, math.sqrt(2 / 120)),
    (lambda t: init.kaiming_normal_(t, nonlinearity="tanh"), 0, 5 / 3 / math.sqrt(120)),
]


@pytest.mark.parametrize("i", range(len(UNIFORM)))
def test_uniform_values(i):
    fill, low, high = UNIFORM[i]
    t = nn.Parameter(rabbet.empty(SHAPE))
    assert fill(t) is t and t.grad_fn is None
    x = t.detach().numpy()
    assert x.min() >= low and x.max() <= high and np.ptp(x) > 0.99 * (high - low)
    assert abs(x.std() - (high - low) / math.sqrt(12)) < 0.02 * (high - low)


@pytest.mark.parametrize("i", range(len(NORMAL)))
def test_normal_values(i):
    fill, mean, std = NORMAL[i]
    x = fill(nn.Parameter(rabbet.empty(SHAPE))).detach().numpy()
    assert abs(x.mean() - mean) < 0.05 * std and abs(x.std() - std) < 0.04 * std
    assert abs(((x - mean) ** 4).mean() / std**4 - 3) < 0.35


@pytest.mark.parametrize("mean,std,a,b", [(0, 1, -2, 2), (1, 0.5, 1, 4), (0, 1, 3, 5)])
def test_truncated_normal_values(mean, std, a, b):
    stats = pytest.importorskip("scipy.stats")
    rabbet.manual_seed(0)
    x = init.trunc_normal_(rabbet.empty(20000, dtype=rabbet.float64), mean, std, a, b).numpy()
    exact = stats.truncnorm((a - mean) / std, (b - mean) / std, mean, std)
    assert x.min() >= a and x.max() <= b
    assert stats.kstest(x, exact.cdf).statistic < 1.6 / math.sqrt(len(x))


def test_truncation_too_far_out_warns():
    with pytest.warns(UserWarning, match="more than 7 std"):
        init.trunc_normal_(rabbet.empty(3), 0, 1, 9, 10)


def test_exact_fillings():
    assert init.ones_(rabbet.empty(2)).tolist() == [1, 1]
    assert init.zeros_(rabbet.empty(2)).tolist() == [0, 0]
    assert init.constant_(rabbet.empty(2), 0.3).tolist() == pytest.approx([0.3, 0.3])
    assert init.eye_(rabbet.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    weight = init.dirac_(rabbet.empty(4, 2, 3, 3), groups=2)
    x = rabbet.randn(1, 4, 5, 5)
    assert rabbet.equal(nn.functional.conv2d(x, weight, padding=1, groups=2), x)
    sparse = init.sparse_(rabbet.empty(10, 4), 0.3)
    assert ((sparse == 0).sum(0) == 3).all()


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (7, 2), (1, 4), (4, 1), (6, 2, 3, 2), (40, 64)])
def test_orthogonal_matrices(shape):
    w = init.orthogonal_(rabbet.empty(shape, dtype=rabbet.float64), gain=2.0)
    q = w.numpy().reshape(shape[0], -1) / 2
    rows, cols = q.shape
    product = q @ q.T if rows <= cols else q.T @ q
    np.testing.assert_allclose(product, np.eye(min(rows, cols)), atol=1e-12)
    assert init.orthogonal_(rabbet.empty(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match="2 or more dimensions"):
        init.orthogonal_(rabbet.empty(3))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_orthogonal_matrices_are_those_of_the_random_numbers(shape):
    """Q of the QR decomposition of normal numbers, signs so that R's diagonal is positive."""
    rabbet.manual_seed(4)
    normal = rabbet.empty(shape, dtype=rabbet.float64).normal_().numpy()
    rabbet.manual_seed(4)
    w = init.orthogonal_(rabbet.empty(shape, dtype=rabbet.float64)).numpy()
    wide = shape[0] < shape[1]
    q, r = np.linalg.qr(normal.T if wide else normal)
    q = q * np.sign(np.diag(r))
    np.testing.assert_allclose(w, q.T if wide else q, atol=1e-12)


@pytest.mark.parametrize(
    "name,param,gain",
    [
        ("linear", None, 1),
        ("relu", None, 2**0.5),
        ("tanh", None, 5 / 3),
        ("leaky_relu", 1, 1),
        ("selu", None, 0.75),
    ],
)
def test_gains(name, param, gain):
    assert init.calculate_gain(name, param) == pytest.approx(gain)


BAD = [
    (lambda: init.calculate_gain("sine"), "Unsupported nonlinearity sine"),
    (lambda: init.calculate_gain("leaky_relu", True), "not a valid number"),
    (lambda: init.xavier_uniform_(rabbet.empty(3)), "fewer than 2 dimensions"),
    (lambda: init.kaiming_normal_(rabbet.empty(3, 3), mode="fan"), "Mode fan not supported"),
    (lambda: init.eye_(rabbet.empty(3)), "2 dimensions"),
    (lambda: init.dirac_(rabbet.empty(3, 3)), "3, 4, or 5 dimensions"),
    (lambda: init.dirac_(rabbet.empty(3, 3, 3), 2), "divisible by groups"),
    (lambda: init.sparse_(rabbet.empty(3), 0.1), "2 dimensions"),
    (lambda: init.orthogonal_(rabbet.empty(3)), "2 or more dimensions"),
    (lambda: init.trunc_normal_(rabbet.empty(3), a=2.0, b=1.0), "a < b"),
    (lambda: init.uniform_(rabbet.empty(3), 1.0, 0.0), "from=1.0 > to=0.0"),
    (lambda: init.normal_(rabbet.empty(3), 0.0, -1.0), "std -1.0"),
    (lambda: utils.vector_to_parameters(rabbet.zeros(3), [rabbet.zeros(2)]), "expected 2 elements"),
    (lambda: utils.vector_to_parameters([1.0], [rabbet.zeros(1)]), "expected rabbet.Tensor"),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_use_is_refused_clearly(i):
    act, text = BAD[i]
    with pytest.raises((ValueError, RuntimeError, TypeError, NotImplementedError)) as error:
        act()
    assert text in str(error.value)


def test_an_empty_tensor_is_left_with_a_warning():
    with pytest.warns(UserWarning, match="no-op"):
        init.kaiming_uniform_(rabbet.empty(0, 3))


def with_grads(*grads):
    params = [nn.Parameter(rabbet.zeros(len(g), dtype=rabbet.float64)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = rabbet.tensor(g, dtype=rabbet.float64)
    return [*params, nn.Parameter(rabbet.zeros(2))]


@pytest.mark.parametrize("norm_type", [2, 1, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [1.0, 100.0])
def test_clip_grad_norm(norm_type, max_norm):
    params = with_grads([3.0, -4.0], [12.0])
    flat = np.array([3.0, -4.0, 12.0])
    norm = np.linalg.norm(flat, norm_type)
    assert utils.clip_grad_norm_(params, max_norm, norm_type).item() == pytest.approx(norm)
    clipped = np.concatenate([p.grad.numpy() for p in params[:2]])
    np.testing.assert_allclose(clipped, flat * min(1, max_norm / (norm + 1e-6)))


@pytest.mark.parametrize("way", ["list", "one by one"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf"), 3.0])
def test_clipping_of_many_gradients(way, dtype, norm_type, monkeypatch):
    def missing(*args):
        raise NotImplementedError

    if way == "one by one":
        for name in ("_foreach_norm", "_foreach_divide", "_foreach_clamp"):
            monkeypatch.setattr(f"rabbet.nn.utils.clip_grad.{name}", missing)
    rng, params = np.random.default_rng(0), []
    empty = [] if norm_type == float("inf") else [(0,)]  # it has no largest element
    for shape in [(40000,), (3, 5), (), *empty, (16384,), (7, 6)]:
        p = nn.Parameter(rabbet.zeros(shape, dtype=getattr(rabbet, dtype)))
        p.grad = rabbet.tensor(rng.normal(size=shape)).to(p.dtype)
        params.append(p)
    params[-1].grad = rabbet.tensor(rng.normal(size=(6, 14))).to(params[0].dtype)[:, ::2].t()
    flat = np.concatenate([p.grad.double().numpy().ravel() for p in params])
    norm = np.linalg.norm(flat, norm_type)
    near = 1e-2 if dtype == "bfloat16" else 1e-5
    total = utils.clip_grad_norm_(params, 0.5 * norm, norm_type)
    assert total.dtype == params[0].dtype and total.item() == pytest.approx(norm, rel=near)
    got = np.concatenate([p.grad.double().numpy().ravel() for p in params])
    np.testing.assert_allclose(got, 0.5 * flat, near, near)
    utils.clip_grad_value_(params, 0.25)
    got = np.concatenate([p.grad.double().numpy().ravel() for p in params])
    np.testing.assert_allclose(got, np.clip(0.5 * flat, -0.25, 0.25), near, near)


def test_clip_grad_norm_at_the_edges():
    assert utils.clip_grad_norm_([nn.Parameter(rabbet.zeros(1))], 1.0).item() == 0
    bad = with_grads([float("inf")])
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(bad, 1.0, error_if_nonfinite=True)
    one = with_grads([3.0, 4.0])[0]
    utils.clip_grad_norm_(one, 1.0)
    np.testing.assert_allclose(one.grad.numpy(), [0.6, 0.8], 1e-5)


def test_clip_grad_value():
    params = with_grads([3.0, -4.0], [0.5])
    utils.clip_grad_value_(params, 1.0)
    assert [p.grad.tolist() for p in params[:2]] == [[1.0, -1.0], [0.5]]


def test_parameters_as_a_vector():
    net = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (8,)
    utils.vector_to_parameters(rabbet.arange(8.0), net.parameters())
    assert net.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and net.bias.tolist() == [6, 7]
    assert net.weight.requires_grad and net.weight.is_leaf


@pytest.mark.parametrize(
    "name,args",
    [
        ("uniform", (1.0, 2.0)),
        ("normal", (1.0, 2.0)),
        ("constant", (3.0,)),
        ("eye", ()),
        ("xavier_uniform", ()),
        ("xavier_normal", ()),
        ("kaiming_uniform", ()),
        ("kaiming_normal", ()),
        ("sparse", (0.5,)),
    ],
)
def test_former_names_of_fillings_warn_and_fill(name, args):
    rabbet.manual_seed(1)
    wanted = getattr(init, name + "_")(rabbet.empty(4, 4), *args)
    rabbet.manual_seed(1)
    with pytest.warns(FutureWarning, match=rf"nn.init.{name}. is now deprecated"):
        assert rabbet.equal(getattr(init, name)(rabbet.empty(4, 4), *args), wanted)


def test_other_former_names_warn_and_do_the_same():
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        former = nn.NLLLoss2d(reduction="sum")
    x, target = rabbet.randn(2, 3, 4, 4).log_softmax(1), rabbet.ones(2, 4, 4, dtype=rabbet.int64)
    assert rabbet.equal(former(x, target), nn.NLLLoss(reduction="sum")(x, target))
    w = rabbet.ones(4, requires_grad=True)
    w.grad = rabbet.full([4], 3.0)
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        assert utils.clip_grad_norm(w, 1.0).item() == 6.0
    assert abs(w.grad.norm().item() - 1) < 1e-5


def test_reductions_have_torchs_numbers():
    from rabbet.nn import _reduction

    assert [_reduction.get_enum(r) for r in ("none", "mean", "sum")] == [0, 1, 2]
    with pytest.raises(ValueError, match="middle is not a valid value for reduction"):
        _reduction.get_enum("middle")
    named = {(True, True): 1, (False, True): 2, (None, False): 0, (None, None): 1, (False, None): 2}
    for flags, number in named.items():
        with pytest.warns(UserWarning, match="will be deprecated"):
            assert _reduction.legacy_get_enum(*flags) == number
    assert _reduction.legacy_get_string(True, False, emit_warning=False) == "none"
