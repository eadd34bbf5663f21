"""Normalisations of channels that lie side by side (channels_last) have loops of their own."""

import pytest
import rabbet
from rabbet.nn import functional as F
from rabbet_testing import assert_close


@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.float32, rabbet.bfloat16])
@pytest.mark.parametrize("shape", [(3, 8, 5, 7), (2, 32, 16, 16), (1, 6, 4, 2, 3), (2, 4, 1, 9)])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("kind", ["group", "train", "eval"])
def test_channels_side_by_side_give_what_rows_give(kind, scaled, shape, dtype):
    """Each layout has its own loops; the results lie as the input does."""
    format = rabbet.channels_last if len(shape) == 4 else rabbet.channels_last_3d
    channels = shape[1]
    rabbet.manual_seed(5)
    x, g = rabbet.randn(*shape).to(dtype), rabbet.randn(*shape).to(dtype)
    weights = [rabbet.randn(channels).to(dtype).requires_grad_() for _ in range(2 * scaled)]
    moments = rabbet.arange(channels) / channels, rabbet.linspace(0.5, 2.0, channels)

    def run(x, g):
        x = x.detach().requires_grad_()
        if kind == "group":
            y = F.group_norm(x, 2, *weights)
        else:
            y = F.batch_norm(x, *(m.clone() for m in moments), *weights, training=kind == "train")
        return [y, *rabbet.autograd.grad(y, [x, *weights], g)]

    rows = run(x, g)
    last = run(*(t.contiguous(memory_format=format) for t in (x, g)))
    assert all(t.is_contiguous(memory_format=format) for t in last[:2])
    tolerance = {rabbet.float64: 1e-12, rabbet.float32: 2e-5, rabbet.bfloat16: 6e-2}[dtype]
    for got, want in zip(last, rows, strict=True):
        scale = max(1.0, float(want.detach().abs().max()))
        assert_close(got, want, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 2, 4, 3)])
def test_normalised_instances_are_rows_in_every_format(shape):
    format = rabbet.channels_last if len(shape) == 4 else rabbet.channels_last_3d
    x = rabbet.randn(*shape)
    moments = rabbet.zeros(3), rabbet.ones(3)
    for given in ((x,), (x, *moments), (x, *moments, None, None, False)):
        want = F.instance_norm(*given)
        got = F.instance_norm(x.contiguous(memory_format=format), *given[1:])
        assert got.is_contiguous()
        assert_close(got, want, rtol=1e-5, atol=1e-6)
