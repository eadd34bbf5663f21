"""Structured matrices: products, solves, factorizations and their gradients."""

import torch
from linear_operator import operators as o
from models import array, several


def positive(x):
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1])


def of(make, *shapes):
    """Everything that an operator computes, with a vector and a matrix."""

    def call(rhs, *arrays):
        operator = make(*arrays)
        quadratic, logdet = operator.inv_quad_logdet(rhs, logdet=True)
        return (
            operator.to_dense(),
            operator @ rhs,
            operator.solve(rhs),
            quadratic,
            logdet,
            operator.diagonal(),
            operator.mT @ rhs,
            operator.cholesky().to_dense(),
        )

    def made():
        arrays = [array(*shape, seed=i + 1) for i, shape in enumerate(shapes)]
        size = make(*arrays).shape[-1]
        return call, array(size, 2), *arrays

    return made


several(
    "linear_operator",
    dense=of(lambda x: o.DenseLinearOperator(positive(x)), (4, 4)),
    diagonal=of(lambda d: o.DiagLinearOperator(d.exp()), (5,)),
    added_diagonal=of(
        lambda x, d: o.AddedDiagLinearOperator(
            o.DenseLinearOperator(positive(x)), o.DiagLinearOperator(d.exp())
        ),
        (4, 4),
        (4,),
    ),
    kronecker=of(
        lambda x, y: o.KroneckerProductLinearOperator(positive(x), positive(y)), (3, 3), (2, 2)
    ),
    kronecker_and_diagonal=of(
        lambda x, y, d: (
            o.KroneckerProductLinearOperator(positive(x), positive(y))
            + o.DiagLinearOperator(d.exp())
        ),
        (3, 3),
        (2, 2),
        (6,),
    ),
    low_rank=of(
        lambda x, d: o.LowRankRootAddedDiagLinearOperator(
            o.LowRankRootLinearOperator(x), o.DiagLinearOperator(d.exp())
        ),
        (5, 2),
        (5,),
    ),
    blocks=of(lambda x: o.BlockDiagLinearOperator(o.DenseLinearOperator(positive(x))), (3, 2, 2)),
    interleaved=of(
        lambda x: o.BlockInterleavedLinearOperator(o.DenseLinearOperator(positive(x))), (3, 2, 2)
    ),
    scaled=of(
        lambda x, c: o.ConstantMulLinearOperator(o.DenseLinearOperator(positive(x)), c.exp()),
        (4, 4),
        (),
    ),
    product=of(
        lambda x, y: o.DenseLinearOperator(positive(x)) * o.DenseLinearOperator(positive(y)),
        (4, 4),
        (4, 4),
    ),
    summed=of(
        lambda x, y: o.DenseLinearOperator(positive(x)) + o.DenseLinearOperator(positive(y)),
        (4, 4),
        (4, 4),
    ),
    toeplitz=of(
        lambda c: o.ToeplitzLinearOperator(torch.cat([4 + c[:1].abs(), 0.3 * c[1:]])), (5,)
    ),
    triangular=lambda: (
        lambda x, b: (
            o.TriangularLinearOperator(x.tril() + 3 * torch.eye(4)).solve(b),
            o.TriangularLinearOperator(x.tril() + 3 * torch.eye(4)).logdet(),
        ),
        array(4, 4),
        array(4, 2, seed=1),
    ),
    factored=lambda: (
        lambda x, b: o.CholLinearOperator(
            o.TriangularLinearOperator(x.tril() + 3 * torch.eye(4))
        ).solve(b),
        array(4, 4),
        array(4, 2, seed=1),
    ),
    eigenvalues=lambda: (
        lambda x: o.KroneckerProductLinearOperator(positive(x), positive(x[:2, :2])).eigh()[0],
        array(3, 3),
    ),
)
