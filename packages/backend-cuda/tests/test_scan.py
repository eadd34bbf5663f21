"""Scans of long lines, whose tiles look back at what other blocks leave, on the simulator."""

import pytest

TILES = """
numbers = np.random.default_rng(0)
def scanned(x, dim=0):
    return rabbet.tensor(x).to("cuda").cumsum(dim).cpu().numpy()
"""


@pytest.mark.parametrize("order", ["forward", "reverse", "random:3"])
def test_tiles_groups_and_groups_of_groups_are_joined(compared, order):
    compared(
        TILES
        + """
x = numbers.integers(-9, 9, 2048 * 1100 + 77)
assert (scanned(x) == np.cumsum(x)).all()
x = numbers.integers(-9, 9, (3, 2048 * 40 + 5))
assert (scanned(x, 1) == np.cumsum(x, 1)).all()
assert (scanned(np.ascontiguousarray(x.T), 0) == np.cumsum(x.T, 0)).all()
a, b = numbers.integers(-1, 2, 70000), numbers.integers(-9, 9, 70000)
both(lambda a, b: rabbet.ops("affine_scan")(a, b, 0), rabbet.tensor(a), rabbet.tensor(b))
for dtype in (rabbet.bool, rabbet.int8, rabbet.complex64):
    x = rabbet.tensor(numbers.integers(0, 2, 9000)).to(dtype)
    both(lambda x: rabbet.ops("cumsum")(x, 0), x)
    both(lambda x: rabbet.ops("cumprod")(x, 0), x)
""",
        CUSIM_ORDER=order,
    )


def test_nothing_races(compared):
    compared(
        TILES
        + """
x = numbers.integers(-9, 9, 2048 * 70)
assert (scanned(x) == np.cumsum(x)).all()
for shape in ((5, 40), (3, 300), (600, 3), (2, 5000)):
    x = numbers.integers(-9, 9, shape)
    assert (scanned(x, 1) == np.cumsum(x, 1)).all()
""",
        CUSIM_CHECK="all",
        CUSIM_ORDER="random:1",
    )


def test_floats_are_equal_whatever_the_order_of_blocks(run, simulator):
    code = """
import numpy as np, rabbet
x = rabbet.tensor(np.random.default_rng(0).standard_normal(2048 * 130)).to("cuda")
print(x.cumsum(0).cpu().numpy().tobytes().hex()[:: 97])
"""
    orders = ("forward", "reverse", "random:1", "random:2")
    assert len({run(code, **{**simulator, "CUSIM_ORDER": order}) for order in orders}) == 1
