"""rabbet.masked against NumPy's masked arrays, and the errors of masks that do not fit."""

import math

import numpy as np
import pytest
import rabbet
from rabbet import masked

X = np.array([[3.0, -1.0, 4.0], [1.5, -5.0, 9.0]])
KEPT = np.array([[True, False, True], [False, False, False]])


def _tensors(dtype=rabbet.float64):
    return rabbet.tensor(X, dtype=dtype), rabbet.tensor(KEPT)


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 1), -1])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    ("name", "empty"),
    [("sum", 0.0), ("prod", 1.0), ("amax", -math.inf), ("amin", math.inf), ("mean", math.nan)],
)
def test_reductions_are_numpys_and_the_identity_where_nothing_is_kept(name, empty, dim, keepdim):
    x, mask = _tensors()
    found = getattr(masked, name)(x, dim, keepdim=keepdim, mask=mask).numpy()
    reduce = {"amax": "max", "amin": "min"}.get(name, name)
    want = getattr(np.ma.array(X, mask=~KEPT), reduce)(dim, keepdims=keepdim)
    np.testing.assert_allclose(found, np.ma.filled(want, empty))


@pytest.mark.parametrize("correction", [0, 1])
def test_variance_counts_what_the_mask_keeps(correction):
    x = rabbet.tensor(X)
    mask = rabbet.tensor([True, False, True])
    kept = X[:, [0, 2]]
    found = masked.var(x, 1, mask=mask, correction=correction)
    np.testing.assert_allclose(found.numpy(), kept.var(1, ddof=correction))
    found = masked.std(x, 1, bool(correction), mask=mask)
    np.testing.assert_allclose(found.numpy(), kept.std(1, ddof=correction))
    assert masked.var(x, 1, mask=rabbet.zeros(2, 3, dtype=rabbet.bool)).isnan().all()


def test_normalisations_ignore_what_the_mask_leaves_out():
    x, _ = _tensors()
    mask = rabbet.tensor([True, False, True])
    kept = np.exp(X[:, [0, 2]])
    found = masked.softmax(x, 1, mask=mask).numpy()
    np.testing.assert_allclose(found[:, [0, 2]], kept / kept.sum(1, keepdims=True))
    assert (found[:, 1] == 0).all()
    np.testing.assert_allclose(masked.log_softmax(x, 1, mask=mask)[:, 0].exp().numpy(), found[:, 0])
    np.testing.assert_allclose(masked.softmin(-x, 1, mask=mask).numpy(), found)
    np.testing.assert_allclose(
        masked.logsumexp(x, 1, mask=mask).numpy(), np.log(kept.sum(1)), rtol=1e-12
    )
    unit = masked.normalize(x, 2.0, 1, mask=mask)
    assert unit[0].tolist() == pytest.approx([0.6, 0.0, 0.8])
    assert masked.cumsum(x, 1, mask=mask)[0].tolist() == [3.0, 3.0, 7.0]
    assert masked.cumprod(x, 1, mask=mask)[0].tolist() == [3.0, 3.0, 12.0]


def test_orders_of_norms_and_places_of_extremes():
    x, mask = _tensors()
    assert masked.norm(x, 2.0, 1, mask=mask).tolist() == [5.0, 0.0]
    assert masked.norm(x, -math.inf, 1, mask=mask).tolist() == [3.0, math.inf]
    assert masked.argmax(x, 1, mask=mask).tolist() == [2.0, 0.0]
    assert masked.argmin(x, mask=mask, dtype=rabbet.int64).item() == 0
    assert masked.median(x, 1, mask=mask)[0].item() == 3.0
    both = masked.logaddexp(x, x, input_mask=mask, other_mask=mask)
    assert both[0, 1].item() == -math.inf
    assert both[0, 0].item() == pytest.approx(3 + math.log(2))


def test_gradients_reach_only_what_the_mask_keeps():
    x, mask = _tensors()
    x.requires_grad_()
    masked.mean(x, 0, mask=mask)[0].backward()
    assert x.grad.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_integers_sum_as_int64_and_keep_their_extremes():
    x = rabbet.tensor([[100, 100], [7, 8]], dtype=rabbet.int8)
    mask = rabbet.tensor([[True, True], [False, False]])
    assert masked.sum(x, 1, mask=mask).dtype is rabbet.int64
    assert masked.sum(x, 1, mask=mask).tolist() == [200, 0]
    assert masked.amax(x, 1, mask=mask).tolist() == [100, -128]
    assert masked.amin(x, 1, mask=mask).tolist() == [100, 127]
    with pytest.raises(ValueError, match="no fully masked out rows"):
        masked.median(x, 1, mask=mask)
    with pytest.raises(ValueError, match="Could not infer output dtype"):
        masked.mean(x)


def test_bad_masks_and_dimensions_are_refused():
    x, mask = _tensors()
    with pytest.raises(IndexError, match=r"mask has shape \(1, 2, 3\), input \(2, 3\)"):
        masked.sum(x, mask=mask.unsqueeze(0))
    with pytest.raises(RuntimeError, match="expand"):
        masked.sum(x, mask=rabbet.ones(4, dtype=rabbet.bool))
    with pytest.raises(IndexError, match="Dimension out of range"):
        masked.sum(x, 2)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        masked.sum(x, (0, -2))
    with pytest.raises(AssertionError, match="Only one of unbiased and correction"):
        masked.var(x, 0, True, correction=1)
