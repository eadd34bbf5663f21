"""lobpcg against SciPy's dense solver of symmetric eigenvalue problems."""

import itertools

import numpy as np
import pytest
import rabbet
import scipy.linalg

M = 30
DTYPES = {rabbet.float64: 1e-10, rabbet.float32: 2e-3}
EIGENVALUES = np.concatenate([[1.0, 2.5, 4.5], np.linspace(8, 20, M - 6), [26.0, 30.0, 35.0]])


def symmetric(seed=0, values=EIGENVALUES):
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    return (q * values) @ q.T


def positive(seed=1):
    return symmetric(seed, np.linspace(1, 3, M))


def reference(a, b, k, largest):
    values, vectors = scipy.linalg.eigh(a, b)
    order = slice(None, None, -1) if largest else slice(None)
    return values[order][:k], vectors[:, order][:, :k]


CASES = list(itertools.product(("ortho", "basic"), (False, True), (False, True), DTYPES))


@pytest.mark.parametrize(("method", "largest", "generalized", "dtype"), CASES)
def test_eigenpairs_are_those_of_the_dense_solver(method, largest, generalized, dtype):
    a, b = symmetric(), positive() if generalized else None
    rabbet.manual_seed(0)
    given = None if b is None else rabbet.tensor(b).to(dtype)
    e, x = rabbet.lobpcg(rabbet.tensor(a).to(dtype), 3, given, largest=largest, method=method)
    values, vectors = reference(a, b, 3, largest)
    assert e.dtype == x.dtype == dtype and e.shape == (3,) and x.shape == (M, 3)
    tolerance = DTYPES[dtype]
    np.testing.assert_allclose(e.numpy(), values, rtol=tolerance)
    wide = x.double().numpy()
    gram = wide.T @ wide if b is None else wide.T @ b @ wide
    np.testing.assert_allclose(gram, np.eye(3), atol=1e-10 if dtype == rabbet.float64 else 1e-4)
    overlap = np.abs(vectors.T @ (wide if b is None else b @ wide))
    np.testing.assert_allclose(overlap, np.eye(3), atol=1e-5 if dtype == rabbet.float64 else 0.05)


@pytest.mark.parametrize("method", ["ortho", "basic"])
def test_batches_are_solved_one_by_one(method):
    a = np.stack([symmetric(s) + s * np.eye(M) for s in range(4)]).reshape(2, 2, M, M)
    e, x = rabbet.lobpcg(rabbet.tensor(a), 2, largest=False, method=method)
    assert e.shape == (2, 2, 2) and x.shape == (2, 2, M, 2)
    for i in np.ndindex(2, 2):
        np.testing.assert_allclose(e[i].numpy(), reference(a[i], None, 2, False)[0], rtol=1e-10)
    residual = rabbet.tensor(a) @ x - x * e.unsqueeze(-2)
    assert residual.abs().amax().item() < 1e-5
    empty = rabbet.lobpcg(rabbet.zeros(0, 6, 6), 2)
    assert empty[0].shape == (0, 2) and empty[1].shape == (0, 6, 2)


def test_start_vectors_say_how_many_pairs():
    a = symmetric()
    start = reference(a, None, 2, True)[1] + 1e-3
    steps = []
    track = lambda state: steps.append(state.ivars["istep"])  # noqa: E731
    e, x = rabbet.lobpcg(rabbet.tensor(a), X=rabbet.tensor(start), tracker=track)
    assert e.shape == (2,) and x.shape == (M, 2)
    cold = []
    rabbet.lobpcg(rabbet.tensor(a), 2, tracker=lambda state: cold.append(state.ivars["istep"]))
    assert steps == list(range(1, len(steps) + 1)) and len(steps) < len(cold)
    assert rabbet.lobpcg(rabbet.tensor(a))[0].shape == (1,)
    assert rabbet.lobpcg(rabbet.tensor(a), k=1, X=rabbet.tensor(start))[0].shape == (1,)
    np.testing.assert_allclose(
        rabbet.lobpcg(rabbet.tensor(a), k=2, n=4)[0].numpy(), [35, 30], rtol=1e-12
    )


def test_a_preconditioner_saves_iterations():
    a = symmetric(0, np.concatenate([[1.0, 1.5], np.geomspace(2, 1e3, M - 2)]))
    counts = []
    for preconditioner in (None, rabbet.tensor(np.linalg.inv(a))):
        rabbet.manual_seed(0)
        steps = []
        e, _ = rabbet.lobpcg(
            rabbet.tensor(a), 2, iK=preconditioner, largest=False, tracker=steps.append, tol=1e-12
        )
        np.testing.assert_allclose(e.numpy(), [1.0, 1.5], rtol=1e-6)
        counts.append(len(steps))
    assert counts[1] < counts[0] / 2


def test_the_tracker_sees_the_state_and_stops():
    a = rabbet.tensor(symmetric())
    seen = []

    def tracker(state):
        seen.append(state.ivars["converged_count"])
        assert state.X.shape == state.R.shape == (M, 2) and state.E.shape == (2,)
        assert state.S.shape[0] == M and state.tvars["rerr"].shape == (2,)
        assert state.A is not None and state.B is None and state.iK is None
        assert state.iparams["niter"] == 1000 and state.bparams["largest"] is True
        np.testing.assert_allclose(
            state.R.numpy(), (a @ state.X - state.X * state.E).numpy(), atol=1e-12
        )
        if state.ivars["istep"] == 3:
            state.bvars["force_stop"] = True

    rabbet.lobpcg(a, 2, tracker=tracker)
    assert len(seen) == 3
    steps = []
    rabbet.lobpcg(a, 2, niter=5, tracker=steps.append)
    assert len(steps) == 5 and steps[-1].ivars["iterations_left"] == 0
    steps.clear()
    rabbet.lobpcg(a, 2, niter=-1, tracker=steps.append)
    assert steps[-1].ivars["converged_count"] == 2
    assert (steps[-1].tvars["rerr"] < steps[-1].fparams["tol"]).all()


@pytest.mark.parametrize("drop", [False, True])
def test_dependent_start_vectors_and_multiple_eigenvalues(drop):
    a = symmetric(0, np.concatenate([np.linspace(1, 5, M - 3), [9.0, 9.0, 9.0]]))
    rabbet.manual_seed(0)
    e, x = rabbet.lobpcg(rabbet.tensor(a), 3, ortho_bparams={"ortho_use_drop": drop})
    np.testing.assert_allclose(e.numpy(), [9.0] * 3, rtol=1e-10)
    np.testing.assert_allclose((x.T @ x).numpy(), np.eye(3), atol=1e-10)
    for same in (rabbet.eye(6), rabbet.zeros(6, 6)):
        e, x = rabbet.lobpcg(same, 2)
        np.testing.assert_allclose(e.numpy(), [same[0, 0].item()] * 2, atol=1e-6)


# ---- derivatives


def pairs(a, k, largest=True):
    """Values, and functions of the vectors that do not depend on their signs."""
    e, x = rabbet.lobpcg(a, k, largest=largest, tol=1e-13)
    return e, x.square(), x[..., 0, :] * x[..., 1, :]


@pytest.mark.parametrize(("k", "largest"), [(1, True), (2, False), (3, True)])
def test_gradients_match_finite_differences(k, largest):
    a = rabbet.tensor(symmetric(2, np.linspace(1, 4, 9) ** 2), requires_grad=True)
    rabbet.manual_seed(0)
    assert rabbet.autograd.gradcheck(lambda m: pairs(m, k, largest), (a,), atol=1e-4)
    (grad,) = rabbet.autograd.grad(pairs(a, k, largest)[1].sum() + a.sum() * 0, [a])
    np.testing.assert_allclose(grad.numpy(), grad.numpy().T, atol=1e-12)


def test_gradients_of_batches_and_of_all_dense_pairs():
    a = rabbet.tensor(
        np.stack([symmetric(s, np.arange(1.0, 7.0)) for s in (3, 4)]), requires_grad=True
    )
    weight = rabbet.tensor(np.random.default_rng(5).standard_normal((2, 6, 2)))
    e, x = rabbet.lobpcg(a, 2, tol=1e-13)
    values, vectors = rabbet.linalg.eigh((a + a.mT) / 2)
    of = lambda e, x: (e.square().sum() + (x.square() * weight).sum())  # noqa: E731
    (got,) = rabbet.autograd.grad(of(e, x), [a])
    (dense,) = rabbet.autograd.grad(of(values.flip(1)[:, :2], vectors.flip(2)[:, :, :2]), [a])
    np.testing.assert_allclose(got.numpy(), dense.numpy(), atol=1e-7)


def test_second_derivatives_of_eigenvalues():
    a = rabbet.tensor(symmetric(6, np.arange(1.0, 7.0)), requires_grad=True)
    rabbet.manual_seed(0)

    def hessian(solve):
        (grad,) = rabbet.autograd.grad(solve(a).square().sum(), [a], create_graph=True)
        return rabbet.autograd.grad(grad.square().sum(), [a])[0].numpy()

    got = hessian(lambda m: rabbet.lobpcg(m, 2, tol=1e-13)[0])
    dense = hessian(lambda m: rabbet.linalg.eigvalsh((m + m.mT) / 2)[-2:])
    np.testing.assert_allclose(got, dense, atol=1e-6)


def test_no_gradient_through_b():
    a = rabbet.tensor(symmetric(), requires_grad=True)
    e, _ = rabbet.lobpcg(a, 2, rabbet.tensor(positive()))
    with pytest.raises(ValueError, match="does not support backward with B != I"):
        e.sum().backward()


# ---- refusals

A = np.eye(12)
BAD = [
    (lambda a: rabbet.lobpcg(a, 5), ValueError, "number of A rows .*12.* smaller than 3 x .*5"),
    (lambda a: rabbet.lobpcg(a[:5]), AssertionError, "A must be square"),
    (lambda a: rabbet.lobpcg(a[0]), AssertionError, "A must be square"),
    (lambda a: rabbet.lobpcg(a, B=a[:5, :5]), AssertionError, "A and B must have same shape"),
    (lambda a: rabbet.lobpcg(a, X=a[:5, :3]), AssertionError, "X shape mismatch"),
    (lambda a: rabbet.lobpcg(a.expand(2, 12, 12), X=a[:, :2]), AssertionError, "X shape mismatch"),
    (lambda a: rabbet.lobpcg(a, iK=a[:4]), RuntimeError, "expected iK of shape"),
    (lambda a: rabbet.lobpcg(a, 0), ValueError, "at least 1, got k=0"),
    (lambda a: rabbet.lobpcg(a, method="plain"), ValueError, "'basic' or 'ortho', got 'plain'"),
    (lambda a: rabbet.lobpcg(a.long()), RuntimeError, "A of float32 or float64, got .*int64"),
    (lambda a: rabbet.lobpcg(a.half()), RuntimeError, "A of float32 or float64, got .*float16"),
    (lambda a: rabbet.lobpcg(a + 0j), RuntimeError, "A of float32 or float64, got .*complex"),
    (lambda a: rabbet.lobpcg(a, B=a.float()), RuntimeError, "B of the dtype of A"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(rabbet.tensor(A))
