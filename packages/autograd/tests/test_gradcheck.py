"""gradcheck and gradgradcheck: what they accept, what they find, and how they say it."""

import warnings

import pytest
import rabbet
from rabbet.autograd import Function, gradcheck, gradgradcheck
from rabbet.autograd.function import once_differentiable
from rabbet.autograd.gradcheck import (
    GradcheckError,
    get_analytical_jacobian,
    get_numerical_jacobian,
    get_numerical_jacobian_wrt_specific_input,
)
from rabbet.testing import make_tensor

F64 = rabbet.float64


def real(*shape, dtype=F64, **options):
    rabbet.manual_seed(3)
    return make_tensor(
        shape, dtype=dtype, device="cpu", low=0.5, high=2, requires_grad=True, **options
    )


def numbers(*shape):
    return real(*shape, dtype=rabbet.complex128)


def function(forward, backward, **others):
    methods = {"forward": forward, "backward": backward, **others}
    return type("Made", (Function,), {k: staticmethod(v) for k, v in methods.items()})


def squared(ctx, x):
    ctx.save_for_backward(x)
    return x * x


SOUND = {
    "matmul": (lambda x, y: x @ y, (real(3, 2), real(2, 3))),
    "two outputs": (lambda x: (x.sin(), (x * x).sum()), (real(2, 3),)),
    "one without gradient": (lambda x: (x.exp(), x.detach() * 2), (real(3),)),
    "an unused input": (lambda x, y: x.log(), (real(3), real(2))),
    "an argument that is no tensor": (lambda x, n: x**n, (real(3), 3)),
    "a tensor that requires nothing": (lambda x, y: x * y, (real(3), rabbet.ones(3, dtype=F64))),
    "strided": (lambda x: x.sum(0), (real(3, 2, noncontiguous=True),)),
    "empty": (lambda x: x * 2, (real(0, 2),)),
    "a number": (lambda x: x.tanh(), (real(),)),
    "complex": (lambda z: (z * z).sin(), (numbers(3),)),
    "complex to real": (lambda z: z.abs(), (numbers(2),)),
    "real to complex": (lambda x: x * (1 + 2j), (real(3),)),
    "conjugate": (lambda z, x: z.conj() * x, (numbers(2), real(2))),
}


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", SOUND)
def test_right_derivatives_pass_in_both_modes_and_orders(name, fast):
    f, inputs = SOUND[name]
    everything = {"fast_mode": fast, "check_grad_dtypes": True, "check_batched_grad": True}
    assert gradcheck(
        f, inputs, check_forward_ad=True, check_batched_forward_grad=True, **everything
    )
    assert gradgradcheck(f, inputs, check_fwd_over_rev=True, **everything)


def test_inputs_have_their_values_and_versions_of_graphs_afterwards():
    x = real(2, 2)
    before = x.tolist()
    gradcheck(lambda x: x * x, (x,))
    assert x.tolist() == before


WRONG_BACKWARD = function(squared, lambda ctx, g: 2.1 * g * ctx.saved_tensors[0])
WRONG_JVP = function(
    squared,
    lambda ctx, g: 2 * g * ctx.saved_tensors[0],
    jvp=lambda ctx, t: 3 * t * ctx.saved_tensors[0],
)


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
def test_a_wrong_derivative_is_found(fast):
    x, z = real(2), numbers(2)
    with pytest.raises(GradcheckError, match=r"^Jacobian mismatch for output 0 with respect to in"):
        gradcheck(WRONG_BACKWARD.apply, (x,), fast_mode=fast)
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex out"):
        gradcheck(WRONG_BACKWARD.apply, (z,), fast_mode=fast)
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output 1 w"):
        gradcheck(
            lambda x: (x * 1, WRONG_JVP.apply(x)), (x,), fast_mode=fast, check_forward_ad=True
        )
    assert gradcheck(WRONG_JVP.apply, (x,), fast_mode=fast)  # its backward is right
    assert not gradcheck(WRONG_BACKWARD.apply, (x,), fast_mode=fast, raise_exception=False)


def test_fast_mode_reports_the_jacobians_of_slow_mode():
    with pytest.raises(
        GradcheckError, match=r"in slow mode:\n\nNumerical:\n tensor(.|\n)*max per-e"
    ):
        gradcheck(WRONG_BACKWARD.apply, (real(2),), fast_mode=True)


def refused(f, inputs, message, **options):
    with pytest.raises(GradcheckError, match=message):
        gradcheck(f, inputs, **options)
    assert not gradcheck(f, inputs, raise_exception=False, **options)


def test_backward_that_differs_between_runs_is_found():
    calls = []

    def unsteady(ctx, g):
        calls.append(1)
        return g * (1 + 1e-4 * len(calls))

    f = function(lambda ctx, x: x * 1, unsteady).apply
    options = {"atol": 1, "check_undefined_grad": False}
    refused(f, (real(2),), "Backward is not reentrant", **options)
    assert gradcheck(f, (real(2),), nondet_tol=1, **options)


def test_backward_that_ignores_its_cotangent_is_found():
    f = function(lambda ctx, x: x * 1, lambda ctx, g: rabbet.ones_like(g)).apply
    refused(lambda x: f(x).sum(), (real(2),), "backward not multiplied by grad_output")


def test_missing_gradients_of_outputs_are_checked():
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 1, x * 2

    def backward(what):
        def run(ctx, a, b):
            if b is None and bool((a == 0).all()):
                return what(a)
            return (0 if a is None else a) + (0 if b is None else 2 * b)

        return function(forward, run).apply

    def fail(a):
        raise RuntimeError("no second gradient")

    for what, message in ((fail, "to handle undefined output grads"), (lambda a: a + 1, "or zero")):
        with (
            pytest.warns(UserWarning, match="undefined gradient support checking"),
            pytest.raises(GradcheckError, match=message),
        ):
            gradcheck(backward(what), (real(2),))
        assert gradcheck(backward(what), (real(2),), check_undefined_grad=False)


def test_a_function_without_gradient_must_be_constant():
    x = real(2)
    assert gradcheck(lambda x: x.detach() * 0, (x,))
    refused(lambda x: x.detach() * 2, (x,), "Numerical gradient for function expected to be zero")


def test_gradients_that_vmap_cannot_compute_are_found():
    def backward(ctx, g):
        return g * (1 if float(g.sum()) > -1e9 else 2)

    f = function(lambda ctx, x: x * 1, backward).apply
    assert gradcheck(f, (real(2),))
    refused(f, (real(2),), "While computing batched gradients, got", check_batched_grad=True)


def test_a_derivative_that_is_not_differentiable_is_found_in_the_second_order():
    once = function(squared, once_differentiable(lambda ctx, g: 2 * g * ctx.saved_tensors[0]))
    assert gradcheck(once.apply, (real(2),))
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        gradgradcheck(once.apply, (real(2),))


def test_cotangents_of_gradgradcheck():
    x = real(2, 3)
    assert gradgradcheck(lambda x: x * x, (x,), (real(2, 3),))
    assert gradgradcheck(lambda x: x * x, x, rabbet.ones(2, 3, dtype=F64))
    assert gradgradcheck(lambda x: x.sin(), (x,), gen_non_contig_grad_outputs=True)


MISUSE = [
    (
        lambda: gradcheck(lambda x: x, (rabbet.ones(2),)),
        ValueError,
        "at least one input tensor to r",
    ),
    (
        lambda: gradcheck(
            lambda x: x * 1, (rabbet.ones(1, dtype=F64, requires_grad=True).expand(3),)
        ),
        RuntimeError,
        "0th input has a dimension with stride 0",
    ),
    (
        lambda: gradcheck(lambda x: x, (real(1),), check_backward_ad=False),
        AssertionError,
        "at least one of check_forward_ad or check_backward_ad",
    ),
    (
        lambda: gradcheck(lambda x: x, (real(1),), check_batched_forward_grad=True),
        AssertionError,
        "check_batched_forward_grad=True requires check_forward_ad",
    ),
    (
        lambda: gradcheck(
            lambda x: x,
            real(1),
            check_forward_ad=True,
            check_backward_ad=False,
            check_batched_grad=True,
        ),
        AssertionError,
        "check_batched_grad=True requires check_backward_ad",
    ),
    (
        lambda: gradgradcheck(lambda x: x, (real(1),), check_rev_over_rev=False),
        AssertionError,
        "at least one of check_fwd_over_rev or check_rev_over_rev",
    ),
    (
        lambda: gradgradcheck(
            lambda x: x, (real(1),), check_rev_over_rev=False, check_fwd_over_rev=True
        ),
        AssertionError,
        "check_undefined_grad=True requires check_rev_over_rev",
    ),
]


@pytest.mark.parametrize("call,error,message", MISUSE, ids=range(len(MISUSE)))
def test_misuse_is_explained(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_outputs_that_change_with_the_inputs_are_refused():
    sizes = iter([2, 2, 2, 3, 2, 2])
    with pytest.raises(
        AssertionError, match=r"outputs with the same shape when inputs are perturb"
    ):
        gradcheck(lambda x: x.sum() * rabbet.ones(next(sizes), dtype=F64), (real(1),))


def test_single_precision_warns():
    x = rabbet.ones(2, requires_grad=True)
    with pytest.warns(
        UserWarning, match="Input #0 requires gradient and is not a double precision"
    ):
        gradcheck(lambda x: x * 2, (x,), eps=1e-2, atol=1e-2)


def test_jacobians_by_hand():
    x = real(2)
    (found,) = get_numerical_jacobian_wrt_specific_input(lambda x: x * x, 0, (x,), x * x, 1e-6)
    assert rabbet.allclose(found, rabbet.diag(2 * x.detach()))
    with pytest.warns(FutureWarning, match="get_numerical_jacobian"):
        (found,) = get_numerical_jacobian(lambda xs: xs[0] * xs[0], (x,), eps=1e-6)
    assert rabbet.allclose(found, rabbet.diag(2 * x.detach()))
    with pytest.warns(FutureWarning, match="get_analytical_jacobian"):
        jacobians, *fine = get_analytical_jacobian((x,), x * x)
    assert fine == [True, True, True]
    assert rabbet.allclose(jacobians[0], rabbet.diag(2 * x.detach()))
    with warnings.catch_warnings(), pytest.raises(ValueError, match="Expected grad_out to be"):
        warnings.simplefilter("ignore")
        get_numerical_jacobian(lambda xs: xs[0], (x,), grad_out=2.0)
