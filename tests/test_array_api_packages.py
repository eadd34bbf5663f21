"""SciPy, scikit-learn and einops compute on tensors by the array API, with results that are tensors and NumPy's numbers.

Each test runs where its package is installed. SciPy and scikit-learn read SCIPY_ARRAY_API when they are imported, so their
tests run in processes of their own.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import rabbet

PRELUDE = """
import numpy as np
import rabbet
from numpy.testing import assert_allclose

rng = np.random.default_rng(0)
xp = rabbet.array_api


def to_tensors(value):
    return rabbet.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def check(name, function, *args, returns_tensor=True, rtol=1e-9):
    want = function(*args)
    with tensors():
        got = function(*map(to_tensors, args))
    pairs = zip(got, want) if isinstance(want, tuple) else [(got, want)]
    for g, w in pairs:
        assert isinstance(g, rabbet.Tensor) == returns_tensor, (name, type(g))
        assert_allclose(np.asarray(g), w, rtol, 1e-12, err_msg=name)


"""
SCIPY = """
import contextlib
from scipy import cluster, differentiate, fft, integrate, ndimage, optimize, signal, special, stats
from scipy.spatial.transform import Rotation

tensors = contextlib.nullcontext
x = rng.normal(size=60)
pairs = x.reshape(30, 2)
check("fft", fft.fft, x)
check("dct", fft.dct, x)
check("irfftn", lambda a: fft.irfftn(fft.rfftn(a)), pairs)
check("gammaln", special.gammaln, abs(x))
check("logsumexp", lambda a: special.logsumexp(a, axis=0), pairs)
check("softmax", lambda a: special.softmax(a, axis=1), pairs)
check("skew", stats.skew, x)
check("kurtosis", lambda a: stats.kurtosis(a, axis=0), pairs)
check("ttest_1samp", lambda a: tuple(stats.ttest_1samp(a, 0.1))[:2], x)
check("pearsonr", lambda a: stats.pearsonr(a[:, 0], a[:, 1]).statistic, pairs)
check("zscore", stats.zscore, x)
check("gmean", lambda a: stats.gmean(a * a), x)
check("rankdata", stats.rankdata, rng.integers(0, 9, 20))
check("hilbert", signal.hilbert, x)
check("detrend", signal.detrend, x)
check("fftconvolve", lambda a: signal.fftconvolve(a, a[:9]), x)
check("whiten", cluster.vq.whiten, pairs)
check("vq", lambda a: cluster.vq.vq(a, a[:3])[1], pairs)
check("trapezoid", integrate.trapezoid, x)
check("rosen", optimize.rosen, x)
check("gaussian_filter", lambda a: ndimage.gaussian_filter(a, 2.0), x)
check("Rotation", lambda a: Rotation.from_rotvec(a[:3]).as_matrix(), x)
one = rabbet.tensor(1.0, dtype=rabbet.float64)
area = integrate.tanhsinh(lambda v: xp.exp(-v * v), 0 * one, one).integral
assert isinstance(area, rabbet.Tensor) and abs(area.item() - 0.746824132812427) < 1e-12
slope = differentiate.derivative(xp.exp, one).df
assert isinstance(slope, rabbet.Tensor) and abs(slope.item() - np.e) < 1e-9
window = signal.windows.hann(8, xp=xp)
assert isinstance(window, rabbet.Tensor)
assert_allclose(np.asarray(window), signal.windows.hann(8))
"""
SKLEARN = """
from sklearn import config_context, metrics
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler

tensors = lambda: config_context(array_api_dispatch=True)
X = rng.normal(size=(60, 5))
y = X @ rng.normal(size=5) + 0.1 * rng.normal(size=60)
c = (y > 0).astype(np.int64)
for scaler in (StandardScaler, MinMaxScaler, MaxAbsScaler, Normalizer, PolynomialFeatures):
    check(scaler.__name__, lambda a: scaler().fit_transform(a), X)
check("PCA", lambda a: PCA(2, svd_solver="full").fit_transform(a), X)
check("PCA.covariance", lambda a: PCA(2, svd_solver="covariance_eigh").fit(a).explained_variance_, X)
check("Ridge", lambda a, b: Ridge(solver="svd").fit(a, b).predict(a), X, y)
check("LDA", lambda a, b: LinearDiscriminantAnalysis().fit(a, b).predict_proba(a), X, c)
check("LDA.classes", lambda a, b: LinearDiscriminantAnalysis().fit(a, b).predict(a), X, c)
check("split", lambda a: train_test_split(a, random_state=0)[0], X)
check("cross_val", lambda a, b: cross_val_predict(LinearDiscriminantAnalysis(), a, b, cv=3), X, c)
check("mixture", lambda a: GaussianMixture(2, init_params="random", random_state=0).fit(a).means_, X, rtol=1e-6)
for metric in ("accuracy_score", "f1_score", "zero_one_loss"):
    check(metric, getattr(metrics, metric), c, c[::-1].copy(), returns_tensor=False, rtol=1e-6)  # averages in float32
for metric in ("r2_score", "mean_squared_error", "mean_absolute_error", "max_error"):
    check(metric, getattr(metrics, metric), y, 0.9 * y, returns_tensor=False)
check("confusion_matrix", metrics.confusion_matrix, c, c[::-1].copy())
for kernel in ("cosine_similarity", "euclidean_distances", "linear_kernel", "rbf_kernel", "polynomial_kernel"):
    check(kernel, lambda a: getattr(pairwise, kernel)(a[:20], a[20:]), X)
"""


@pytest.mark.parametrize(
    "package,program", [("scipy", SCIPY), ("sklearn", SKLEARN)], ids=["scipy", "sklearn"]
)
def test_the_package_computes_on_tensors(package, program):
    if not find_spec(package):
        pytest.skip(f"{package} is not installed")
    variables = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + program],
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "function,pattern,options",
    [
        ("rearrange", "b (h w) c -> (b c) w h", {"w": 3}),
        ("reduce", "b h (c k) -> c b", {"reduction": "mean", "k": 2}),
        ("reduce", "b h c -> h", {"reduction": "max"}),
        ("reduce", "b h c -> h", {"reduction": "prod"}),
        ("repeat", "b h c -> b (h k) c", {"k": 2}),
    ],
)
def test_einops_rearranges_tensors(function, pattern, options):
    einops = pytest.importorskip("einops")
    from einops import array_api

    x = np.arange(24.0).reshape(2, 3, 4) / 7
    got = getattr(array_api, function)(rabbet.from_numpy(x.copy()), pattern, **options)
    assert isinstance(got, rabbet.Tensor)
    np.testing.assert_allclose(got.numpy(), getattr(einops, function)(x, pattern, **options))


def test_einops_packs_and_unpacks_tensors():
    pytest.importorskip("einops")
    from einops import array_api

    x = rabbet.arange(24.0).reshape(2, 3, 4)
    packed, shapes = array_api.pack([x, x[:, 0]], "b * c")
    assert packed.shape == (2, 4, 4)
    first, second = array_api.unpack(packed, shapes, "b * c")
    assert rabbet.equal(first, x) and rabbet.equal(second, x[:, 0])
    assert np.array_equal(array_api.asnumpy(x), x.numpy())
