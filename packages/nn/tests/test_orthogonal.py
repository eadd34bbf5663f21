"""`nn.utils.parametrizations.orthogonal` and the matrices that it is made of."""

import numpy as np
import pytest
import rabbet
from rabbet import nn
from rabbet.nn import _orthogonal_matrices as matrices
from rabbet.nn.utils import parametrize
from rabbet.nn.utils.parametrizations import orthogonal

MAPS = ["matrix_exp", "cayley", "householder"]
SHAPES = [(4, 4), (5, 3), (3, 5), (1, 1), (2, 4, 3)]


class Holder(nn.Module):
    def __init__(self, shape, dtype=rabbet.float64):
        super().__init__()
        self.weight = nn.Parameter(rabbet.randn(*shape, dtype=dtype))


def assert_orthonormal(q, atol=1e-12):
    q = q.detach()
    q = q if q.shape[-2] >= q.shape[-1] else q.mT
    one = rabbet.eye(q.shape[-1], dtype=q.dtype)
    np.testing.assert_allclose((q.mH @ q).numpy(), one.expand_as(q.mH @ q).numpy(), atol=atol)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_orthonormal_and_stay_so(shape, name, complex_):
    holder = Holder(shape, rabbet.complex128 if complex_ else rabbet.float64)
    if complex_ and name == "householder":
        with pytest.raises(ValueError, match="does not support complex"):
            orthogonal(holder, orthogonal_map=name)
        return
    assert orthogonal(holder, orthogonal_map=name) is holder
    assert holder.weight.shape == shape
    assert_orthonormal(holder.weight)
    optimizer = rabbet.optim.SGD(holder.parameters(), 0.5)
    target = rabbet.randn_like(holder.weight)
    before = holder.weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        (holder.weight - target).abs().square().sum().backward()
        optimizer.step()
    assert_orthonormal(holder.weight)
    assert np.prod(shape) == 1 or not np.allclose(before.numpy(), holder.weight.detach().numpy())


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_orthogonal_weight_can_be_assigned(shape, trivial):
    holder = orthogonal(Holder(shape), orthogonal_map="householder", use_trivialization=trivial)
    wide = shape[-2] < shape[-1]
    flat = rabbet.randn(*shape[:-2], *sorted(shape[-2:], reverse=True), dtype=rabbet.float64)
    value = matrices.orthonormal(flat)
    value = value.mT if wide else value
    holder.weight = value
    np.testing.assert_allclose(holder.weight.detach().numpy(), value.numpy(), atol=1e-12)
    parametrize.remove_parametrizations(holder, "weight")
    np.testing.assert_allclose(holder.weight.detach().numpy(), value.numpy(), atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_derivatives(name):
    for shape in [(3, 3), (4, 2)]:
        module = parametrize_module(shape, name)
        x = rabbet.randn(*shape, dtype=rabbet.float64).tril().requires_grad_()
        assert rabbet.autograd.gradcheck(module, (x,))


def parametrize_module(shape, name):
    holder = orthogonal(Holder(shape), orthogonal_map=name)
    module = holder.parametrizations.weight[0]
    if name != "householder":
        return module

    # The diagonal holds signs, which have no derivative.
    def below(x):
        return module(x.tril(-1) - rabbet.eye(*shape, dtype=x.dtype))

    return below


def test_exponentials_are_scipys():
    linalg = pytest.importorskip("scipy.linalg")
    for scale in (0, 1e-3, 1, 30):
        a = rabbet.randn(3, 5, 5, dtype=rabbet.float64) * scale
        want = np.stack([linalg.expm(m) for m in a.numpy()])
        np.testing.assert_allclose(
            matrices.exponential(a).numpy(), want, rtol=1e-9, atol=1e-12 * np.abs(want).max()
        )


def test_reflections_make_triangular_matrices():
    for dtype in (rabbet.float64, rabbet.complex128):
        a = rabbet.randn(2, 5, 3, dtype=dtype)
        a[0, :, 1] = a[0, :, 0]
        v, tau, diagonal = matrices.reflections(a)
        r = matrices.reflected(v, tau).mH @ a
        np.testing.assert_allclose(r.tril(-1).numpy(), 0, atol=1e-12)
        np.testing.assert_allclose(
            r.diagonal(dim1=-2, dim2=-1).numpy(), diagonal.numpy(), atol=1e-12
        )


def test_refusals():
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices"):
        orthogonal(nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match=r'one of "matrix_exp".*Got: qr'):
        orthogonal(nn.Linear(3, 3), orthogonal_map="qr")
    with pytest.raises(ValueError, match="no parameter or buffer with name 'w'"):
        orthogonal(nn.Linear(3, 3), "w")
    layer = orthogonal(nn.Linear(3, 3), orthogonal_map="cayley")
    with pytest.raises(ValueError, match="Expected a matrix"):
        layer.weight = rabbet.zeros(2, 2)
    fixed = orthogonal(nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="use_trivialization=False"):
        fixed.weight = rabbet.eye(3)
