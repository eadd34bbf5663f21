"""The parts of complex tensors are views, which can be written."""

import pytest
import rabbet


@pytest.fixture
def z():
    rabbet.manual_seed(3)
    return rabbet.randn(2, 3, dtype=rabbet.float64) + 1j * rabbet.randn(2, 3, dtype=rabbet.float64)


def test_parts_share_the_memory(z):
    pairs = rabbet.view_as_real(z)
    assert pairs.shape == (2, 3, 2) and pairs.stride() == (6, 2, 1)
    assert z.real.data_ptr() == rabbet.real(z).data_ptr() == z.data_ptr() == pairs.data_ptr()
    assert rabbet.equal(rabbet.imag(z), pairs[..., 1])
    assert rabbet.view_as_complex(pairs).data_ptr() == z.data_ptr()
    assert rabbet.equal(rabbet.view_as_complex(pairs), z)
    turned = rabbet.view_as_real(z.t())
    assert turned.stride() == (2, 6, 1) and rabbet.equal(rabbet.view_as_complex(turned), z.t())


def test_parts_are_written(z):
    z.real.zero_()
    z.imag = 2
    assert z.tolist() == [[2j] * 3] * 2
    z.real = rabbet.ones(2, 3)
    assert z[0, 0].item() == 1 + 2j
    x = rabbet.ones(3)
    assert x.real is x and rabbet.real(x) is x


def test_gradients_go_through_parts(z):
    z.requires_grad_()

    def written(a):
        b = a * 1
        b.real.mul_(3)
        b.imag.mul_(2)
        return b.abs()

    for f in (lambda a: a.real * a.imag**2, lambda a: rabbet.view_as_real(a).sin(), written):
        assert rabbet.autograd.gradcheck(f, (z,)) and rabbet.autograd.gradgradcheck(f, (z,))
    pairs = rabbet.rand(3, 2, dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(lambda a: rabbet.view_as_complex(a).exp().abs(), (pairs,))


def test_parts_inside_transforms(z):
    assert rabbet.equal(rabbet.func.vmap(lambda a: a.real + a.imag)(z), z.real + z.imag)

    def written(a):
        b = a * 1
        b.imag.mul_(3)
        return b

    assert rabbet.equal(rabbet.func.functionalize(written)(z), written(z))
    _, tangent = rabbet.func.jvp(lambda a: a.imag, (z,), (z * 2,))
    assert rabbet.equal(tangent, z.imag * 2)


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: rabbet.view_as_real(rabbet.ones(2)), "complex tensors, got float32"),
        (lambda: rabbet.view_as_complex(rabbet.ones(2, dtype=rabbet.int64)), "got int64"),
        (lambda: rabbet.view_as_complex(rabbet.ones(2, 3)), r"size 2, got shape \(2, 3\)"),
        (lambda: rabbet.view_as_complex(rabbet.tensor(1.0)), "size 2"),
        (lambda: rabbet.view_as_complex(rabbet.ones(2, 2).t()), "stride of the last dimension"),
        (lambda: rabbet.view_as_complex(rabbet.ones(3, 3)[:, :2]), "divisible by 2, got 3"),
        (lambda: rabbet.view_as_complex(rabbet.ones(5)[1:3]), "storage offset"),
        (lambda: rabbet.ones(2).imag, "non-complex"),
    ],
)
def test_bad_calls(call, said):
    with pytest.raises(RuntimeError, match=said):
        call()


def test_a_part_cannot_be_deleted(z):
    with pytest.raises(AttributeError, match="deleted"):
        del z.real
