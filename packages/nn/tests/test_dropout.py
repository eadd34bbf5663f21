"""Dropout of whole channels: the inputs that PyTorch takes, with its warnings and errors."""

import contextlib

import pytest
import rabbet
import rabbet.nn.functional as F


@pytest.mark.parametrize("ndim, leading", [(2, 2), (3, 2), (4, 2), (5, 2), (6, 2)])
def test_dropout2d_drops_dimension_1_of_any_input(ndim, leading):
    shape = (16, 16, 3, 2, 2, 2)[:ndim]
    context = (
        contextlib.nullcontext()
        if ndim == 4
        else pytest.warns(UserWarning, match="dropout2d: Received")
    )
    with context:
        out = F.dropout2d(rabbet.ones(shape))
    kept = out.reshape(*shape[:leading], -1) > 0
    assert (kept == kept[..., :1]).all() and 60 < kept[..., 0].sum() < 196


@pytest.mark.parametrize("ndim, leading", [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 1)])
def test_dropout3d_takes_other_inputs_as_without_a_batch(ndim, leading):
    shape = (64, 3, 2, 2, 2, 2)[:ndim]
    context = (
        contextlib.nullcontext()
        if ndim in (4, 5)
        else pytest.warns(UserWarning, match=f"Received a {ndim}-D input")
    )
    with context:
        out = F.dropout3d(rabbet.ones(shape))
    kept = out.reshape(*shape[:leading], -1) > 0
    assert (kept == kept[..., :1]).all() and 0 < kept.sum() < kept.numel()


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: F.dropout1d(rabbet.ones(3)), RuntimeError), (lambda: F.dropout1d(rabbet.ones(1, 1, 1, 1)), RuntimeError),
        (lambda: F.dropout2d(rabbet.ones(3)), RuntimeError), (lambda: F.dropout3d(rabbet.ones(())), RuntimeError),
        (lambda: F.feature_alpha_dropout(rabbet.ones(3), training=True), RuntimeError),
        (lambda: F.dropout1d(rabbet.ones(3), 2), ValueError), (lambda: rabbet.alpha_dropout(rabbet.ones(3)), TypeError),
        (lambda: rabbet.feature_dropout(rabbet.ones(3), 0.5, True), RuntimeError),
        (lambda: rabbet.alpha_dropout(rabbet.ones(3), 2, False), RuntimeError),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:dropout.d. Received a .-D input")
def test_dropouts_refuse_other_inputs(call, error):
    with pytest.raises(error):
        call()


def test_dropouts_that_drop_nothing_take_any_input():
    x = rabbet.ones(3)
    assert F.feature_alpha_dropout(x, training=False) is x
    with pytest.warns(UserWarning, match="Received a 1-D input"):
        assert F.dropout2d(x, training=False) is x


def test_flat_dropouts_name_their_last_argument_train():
    x = rabbet.ones(64, 8, 2)
    for name in ("alpha_dropout", "feature_alpha_dropout", "feature_dropout"):
        assert rabbet.equal(getattr(rabbet, name)(x, p=0.5, train=False), x)
        own = x.clone()
        assert getattr(rabbet, name + "_")(own, 0.5, True) is own and not rabbet.equal(own, x)
