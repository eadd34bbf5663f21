"""Elementwise kernels compute each element independently of its neighbours."""

import numpy as np
import pytest
import rabbet

HEAVY = [
    "sin", "cos", "tan", "exp", "expm1", "log", "log1p", "log2", "tanh", "sinh", "cosh", "asin", "atan", "erf", "erfc",
    "sigmoid",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64])
@pytest.mark.parametrize("name", HEAVY)
def test_large_and_special_neighbours_change_nothing(name, dtype):
    function = getattr(rabbet, name)
    rabbet.manual_seed(0)
    x = rabbet.randn(3000, dtype=dtype) * 3
    alone = function(x).numpy()
    for place, value in (
        (5, float("nan")),
        (70, float("inf")),
        (600, 1e6),
        (1500, -1e30),
        (2999, 2e5),
    ):
        x[place] = value
    among = function(x).numpy()
    usual = np.ones(3000, bool)
    usual[[5, 70, 600, 1500, 2999]] = False
    assert np.array_equal(among[usual], alone[usual], equal_nan=True)
    with np.errstate(all="ignore"):
        if name in ("sin", "cos", "tan"):
            expected = getattr(np, name)(x.numpy()[~usual].astype(np.float64))
            np.testing.assert_allclose(among[~usual], expected, rtol=2e-6)
    for part in (x[5:6], x[599:601], x[1490:1503], x[2999:]):  # also of parts of other lengths
        begin = (part.data_ptr() - x.data_ptr()) // part.element_size()
        assert np.array_equal(
            function(part).numpy(), among[begin : begin + part.numel()], equal_nan=True
        )
