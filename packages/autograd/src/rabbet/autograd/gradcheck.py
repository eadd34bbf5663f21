"""Gradient checks: derivatives by reverse and forward mode against central differences."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import rabbet
from rabbet import Tensor

from . import forward_ad
from ._gradcheck_batched import check_batched_backward, check_batched_forward
from ._gradcheck_errors import (
    NOT_REENTRANT,
    GradcheckError,
    mismatch,
    slow_mode_report,
)
from ._gradcheck_zeros import (
    check_undefined_backward,
    check_undefined_forward,
    check_zero_cotangents,
)
from ._roots import grad

__all__ = [
    "GradcheckError",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
    "gradcheck",
    "gradgradcheck",
]

_Function = Callable[..., Any]
_Tensors: TypeAlias = Tensor | Sequence[Tensor]


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _has_numbers(value: Any) -> bool:
    """Whether it is a tensor that can have a derivative."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _differentiable(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(o for o in _as_tuple(outputs) if isinstance(o, Tensor) and o.requires_grad)


def _checked(inputs: Sequence[Any]) -> list[int]:
    """Which inputs are checked: those that require gradients."""
    return [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]


def _close(a: Tensor, b: Tensor, rtol: float, atol: float) -> bool:
    dtype = rabbet.promote_types(a.dtype, b.dtype)
    return bool(rabbet.allclose(a.to(dtype), b.to(device=a.device, dtype=dtype), rtol, atol))


# ---- central differences


# Numbers are computed on the CPU: of the device only what the function needs is asked.


def _evaluator(
    func: _Function, inputs: Sequence[Any], at: int, x: Tensor
) -> Callable[[Tensor], list[Tensor]]:
    """Copies of the outputs that can have a derivative, as a function of the value of input `at`.

    On the CPU `x` itself is written for the call, so that functions are followed that use it from outside.
    """

    def evaluate(value: Tensor) -> list[Tensor]:
        if not x.is_cpu:
            given = list(inputs)
            given[at] = value.to(x.device).requires_grad_()
            return _copies(func(*given))
        original = x.detach().clone()
        x.data.copy_(value)
        try:
            return _copies(func(*inputs))
        finally:
            x.data.copy_(original)

    return evaluate


def _copies(outputs: Any) -> list[Tensor]:
    return [o.detach().cpu().clone() for o in _as_tuple(outputs) if _has_numbers(o)]


def _difference(
    evaluate: Callable[[Tensor], list[Tensor]], x: Tensor, shift: Tensor, step: float, at: Any
) -> list[Tensor]:
    """(f(x + shift) - f(x - shift)) / (2 step) of each output, flat."""
    before, after = evaluate(x - shift), evaluate(x + shift)
    found = []
    for a, b in zip(before, after, strict=True):
        where = "" if at is None else f"on index {at} "
        for name, low, high in (
            ("shape", a.shape, b.shape),
            ("dtype", a.dtype, b.dtype),
        ):
            if low != high:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {name} when inputs are perturbed {where}by "
                    f"{step}, but got: {name}s {low} and {high}."
                )
        found.append(((b - a) / (2 * step)).reshape(-1))
    return found


def _derivatives(
    evaluate: Callable[[Tensor], list[Tensor]], x: Tensor, shifts: Any, step: float, at: Any
) -> list[Tensor]:
    """Differences along a real direction, or the conjugate Wirtinger derivatives along a pair of directions."""
    if not x.is_complex():
        return _difference(evaluate, x, shifts, step, at)
    along_real, along_imaginary = shifts
    real = _difference(evaluate, x, along_real, step, at)
    imaginary = _difference(evaluate, x, along_imaginary * 1j, step, at)
    return [a + b * 1j for a, b in zip(real, imaginary, strict=True)]


def get_numerical_jacobian_wrt_specific_input(
    fn: _Function,
    input_idx: int,
    inputs: Sequence[Any],
    outputs: Any,
    eps: float,
    input: Tensor | None = None,
    is_forward_ad: bool = False,
) -> tuple[Tensor, ...]:
    """Jacobians of `fn(*inputs)` with respect to one input by central differences.

    Returns a tensor (elements of the input, elements of the output) for each floating or complex output.

    Args:
        input: the tensor to move where it is not inputs[input_idx].
        is_forward_ad: whether complex outputs are allowed.
    """
    x = inputs[input_idx] if input is None else input
    if not x.requires_grad:
        raise AssertionError("Expected input to have requires_grad=True")
    evaluate, value = _evaluator(fn, inputs, input_idx, x), x.detach().cpu().clone()
    places = itertools.product(*map(range, x.shape))
    columns = [
        _derivatives(
            evaluate, value, (unit * eps, unit * eps) if x.is_complex() else unit * eps, eps, at
        )
        for at, unit in zip(places, _unit_vectors(x), strict=True)
    ]
    made = [o for o in _as_tuple(outputs) if _has_numbers(o)]
    if not is_forward_ad and any(o.is_complex() for o in made):
        raise ValueError(
            "Expected output to be non-complex. get_numerical_jacobian no longer supports functions that return "
            "complex outputs."
        )
    if not columns:
        return tuple(rabbet.zeros(0, o.numel(), dtype=x.dtype) for o in made)
    return tuple(rabbet.stack(list(column)) for column in zip(*columns, strict=True))


def get_numerical_jacobian(
    fn: _Function, inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> tuple[Tensor, ...]:
    """Jacobians of the first output of `fn(inputs)` by central differences. Deprecated, as in PyTorch."""
    _warn_deprecated("get_numerical_jacobian", grad_out)
    given = _as_tuple(inputs)
    outputs = fn(given)
    targets = given if target is None else _as_tuple(target)
    return tuple(
        get_numerical_jacobian_wrt_specific_input(
            lambda *xs: fn(xs), i, given, outputs, eps, input=targets[i]
        )[0]
        for i in _checked(targets)
    )


def _warn_deprecated(name: str, grad_out: float) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be "
        "removed in a future version of PyTorch. If you have a specific use for this or feature request for this to be "
        "a stable API, please file us an issue at https://github.com/pytorch/pytorch/issues/new",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0:
        raise ValueError(
            f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0."
        )


# ---- reverse mode


@dataclass
class _Rows:
    """Products of cotangents with the Jacobians of one output: a tensor (elements, products) for each input."""

    jacobians: list[Tensor]
    sizes_fit: bool = True
    dtypes_fit: bool = True


def _rows(inputs: Sequence[Tensor], output: Tensor, cotangents: Sequence[Tensor]) -> _Rows:
    columns: list[list[Tensor]] = [[] for _ in inputs]
    rows = _Rows([])
    for cotangent in cotangents:
        given = cotangent.to(output.device)
        found = grad(output, inputs, given, retain_graph=True, allow_unused=True)
        for x, g, column in zip(inputs, found, columns, strict=True):
            if g is not None and g.shape != x.shape:
                rows.sizes_fit = False
            elif g is not None and g.dtype != x.dtype:
                rows.dtypes_fit = False
            one = rabbet.zeros(x.shape, dtype=x.dtype) if g is None else g.detach().cpu()
            column.append(one.reshape(-1).to(x.dtype).clone())
    for x, column in zip(inputs, columns, strict=True):
        empty = rabbet.zeros(x.numel(), 0, dtype=x.dtype)
        rows.jacobians.append(rabbet.stack(column, 1) if column else empty)
    return rows


def _unit_vectors(like: Tensor) -> list[Tensor]:
    """On the CPU."""
    n = like.numel()
    eye = rabbet.eye(n, dtype=like.dtype)
    return [eye[i].reshape(like.shape) for i in range(n)]


def _reentrant(first: _Rows, second: _Rows, tolerance: float) -> bool:
    return not any(
        a.numel() and bool((a - b).abs().max() > tolerance)
        for a, b in zip(first.jacobians, second.jacobians, strict=True)
    )


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Jacobians by reverse mode, and whether they are reentrant, of the right size, and of the right dtype.

    Deprecated, as in PyTorch.
    """
    _warn_deprecated("get_analytical_jacobian", grad_out)
    if output.is_complex():
        raise ValueError(
            "Expected output to be non-complex. get_analytical_jacobian no longer supports functions that return "
            "complex outputs."
        )
    watched = _differentiable(inputs)
    first, second = (_rows(watched, output, _unit_vectors(output)) for _ in range(2))
    reentrant = _reentrant(first, second, nondet_tol)
    return tuple(first.jacobians), reentrant, first.sizes_fit, first.dtypes_fit


# ---- the comparison


@dataclass
class _Check:
    """One comparison: of a function of real outputs (reverse mode) or of real inputs (forward mode)."""

    func: _Function
    inputs: Sequence[Any]
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_grad_dtypes: bool
    fast: bool
    forward: bool
    part: str | None = None  # _REAL or _IMAGINARY, of what is complex
    complex_indices: Sequence[int] = ()

    def run(self) -> None:
        self.which = _checked(self.inputs)
        outputs = _as_tuple(self.func(*self.inputs))
        if not _differentiable(outputs):
            self._expect_zero(outputs)
            return
        (self._compare_fast if self.fast else self._compare_slow)(outputs)

    def _numerical(self, outputs: Sequence[Any]) -> list[tuple[Tensor, ...]]:
        """By checked input and floating output."""
        return [
            get_numerical_jacobian_wrt_specific_input(
                self.func, i, self.inputs, outputs, self.eps, is_forward_ad=self.forward
            )
            for i in self.which
        ]

    def _expect_zero(self, outputs: Sequence[Any]) -> None:
        for jacobians in self._numerical(outputs):
            if any(bool((j != 0).any()) for j in jacobians):
                raise GradcheckError("Numerical gradient for function expected to be zero")

    def _numbered(self, outputs: Sequence[Any]) -> list[tuple[int, int, Tensor]]:
        """(number among the differentiable, number among the floating, output) of each differentiable one."""
        floating = [o for o in outputs if _has_numbers(o)]
        found = [(k, o) for k, o in enumerate(floating) if o.requires_grad]
        return [(i, k, o) for i, (k, o) in enumerate(found)]

    def _compare_slow(self, outputs: Sequence[Any]) -> None:
        numerical = self._numerical(outputs)
        outputs = _as_tuple(self.func(*self.inputs))  # the inputs were written to
        tangents = self._forward_jacobians(_unit_vectors) if self.forward else None
        for i, k, output in self._numbered(outputs):
            analytical = (
                [columns[k] for columns in tangents]
                if tangents is not None
                else self._backward(output, _unit_vectors(output))
            )
            for j, a in enumerate(analytical):
                n = numerical[j][k]
                if not _close(a, n, self.rtol, self.atol):
                    raise GradcheckError(self._mismatch(a, n, i, j))

    def _mismatch(self, a: Tensor, n: Tensor, output: int, checked: int) -> str:
        index = checked if self.forward else output
        part = self.part if index in self.complex_indices else None
        return mismatch(a, n, output, checked, part, self.forward)

    def _backward(self, output: Tensor, cotangents: Sequence[Tensor]) -> list[Tensor]:
        watched = [self.inputs[i] for i in self.which]
        first, second = (_rows(watched, output, cotangents) for _ in range(2))
        if self.check_grad_dtypes and not first.dtypes_fit:
            raise GradcheckError("Gradient has dtype mismatch")
        if not first.sizes_fit:
            raise GradcheckError("Analytical gradient has incorrect size")
        if not _reentrant(first, second, self.nondet_tol):
            raise GradcheckError(NOT_REENTRANT.format(self.nondet_tol))
        return first.jacobians

    def _forward_jacobians(
        self, directions: Callable[[Tensor], list[Tensor]]
    ) -> list[list[Tensor]]:
        """By checked input and floating output: the tangents along the directions of that input, stacked."""
        found: list[list[Tensor]] = []
        plain = [x.detach() if i in self.which else x for i, x in enumerate(self.inputs)]
        for i in self.which:
            columns = [self._tangents(plain, i, d) for d in directions(plain[i])]
            if not columns:
                made = [o for o in _as_tuple(self.func(*plain)) if _has_numbers(o)]
                found.append([rabbet.zeros(0, o.numel(), dtype=o.dtype) for o in made])
                continue
            found.append([rabbet.stack(list(c)) for c in zip(*columns, strict=True)])
        return found

    def _tangents(self, plain: Sequence[Any], which: int, direction: Tensor) -> list[Tensor]:
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(
                    x,
                    (direction if i == which else rabbet.zeros(x.shape, dtype=x.dtype)).to(
                        x.device
                    ),
                )
                if i in self.which
                else x
                for i, x in enumerate(plain)
            ]
            flat = []
            for output in _as_tuple(self.func(*duals)):
                if not _has_numbers(output):
                    continue
                primal, tangent = forward_ad.unpack_dual(output)
                if tangent is None:
                    tangent = rabbet.zeros(primal.shape, dtype=primal.dtype)
                elif self.check_grad_dtypes and primal.is_complex() != tangent.is_complex():
                    raise GradcheckError("Forward AD gradient has dtype mismatch.")
                flat.append(tangent.detach().cpu().reshape(-1).clone())
        return flat

    # Fast mode: v^T J u for random u and v instead of J.

    def _compare_fast(self, outputs: Sequence[Any]) -> None:
        generator = rabbet.Generator()
        us = {i: _random_direction(self.inputs[i], generator) for i in self.which}
        numerical = []  # J u, by checked input and floating output
        for i, u in us.items():
            x = self.inputs[i]
            evaluate = _evaluator(self.func, self.inputs, i, x)
            shifts = tuple(x * self.eps for x in u) if isinstance(u, tuple) else u * self.eps
            numerical.append(
                _derivatives(evaluate, x.detach().cpu().clone(), shifts, self.eps, None)
            )
        outputs = _as_tuple(self.func(*self.inputs))  # the inputs were written to
        tangents = None
        if self.forward:
            given = iter(us.values())
            tangents = [
                [t[0] for t in row] for row in self._forward_jacobians(lambda x: [next(given)])
            ]
        for i, k, output in self._numbered(outputs):
            v = _random(output, generator, output.dtype)
            if tangents is None:
                products = [j[:, 0] for j in self._backward(output, [v])]
            for j, u in enumerate(us.values()):
                scale = sum(x.sum().item() for x in _as_tuple(u))
                n = numerical[j][k]
                if tangents is not None:
                    a = tangents[j][k]
                else:
                    a, n = _dot(products[j], u), (v.reshape(-1) * n).sum()
                    scale *= v.sum().item()
                if not _close(a, n, self.rtol, self.atol * scale):
                    message = self._mismatch(a, n, i, j)
                    raise GradcheckError(message + self._report(j, k))

    def _report(self, checked: int, floating: int) -> str:
        """What slow mode finds for one input and output."""
        outputs = _as_tuple(self.func(*self.inputs))
        numerical = self._numerical(outputs)[checked][floating]
        if self.forward:
            analytical = self._forward_jacobians(_unit_vectors)[checked][floating]
        else:
            again = [o for o in _as_tuple(self.func(*self.inputs)) if _has_numbers(o)]
            output = again[floating]
            watched = [self.inputs[i] for i in self.which]
            analytical = _rows(watched, output, _unit_vectors(output)).jacobians[checked]
        return slow_mode_report(
            numerical, analytical, _close(analytical, numerical, self.rtol, self.atol)
        )


def _random(like: Tensor, generator: Any, dtype: Any) -> Tensor:
    """A vector of length 1 without negative numbers, in the shape of `like`; the user's generator is left alone."""
    real = rabbet.rand(like.numel(), generator=generator, dtype=rabbet.float64)
    real = real / real.norm() if real.numel() else real
    return real.to(dtype).reshape(like.shape)


def _random_direction(x: Tensor, generator: Any) -> Any:
    """For a complex tensor two real directions, for its real and its imaginary part."""
    if not x.is_complex():
        return _random(x, generator, x.dtype)
    dtype = rabbet.float64 if x.dtype is rabbet.complex128 else rabbet.float32
    return _random(x, generator, dtype), _random(x, generator, dtype)


def _dot(product: Tensor, u: Any) -> Tensor:
    if not isinstance(u, tuple):
        return (product * u.reshape(-1)).sum()
    real, imaginary = (x.reshape(-1) for x in u)
    return (product.real * real).sum() + (product.imag * imaginary).sum() * 1j


# ---- complex numbers: a function of the real part and one of the imaginary part

_REAL, _IMAGINARY = "real part", "imaginary part"


def _of_outputs(func: _Function, part: str) -> _Function:
    def taken(*inputs: Any) -> tuple[Any, ...]:
        return tuple(
            (o.real if part == _REAL else o.imag) if _has_numbers(o) and o.is_complex() else o
            for o in _as_tuple(func(*inputs))
        )

    return taken


def _of_inputs(func: _Function, part: str, inputs: Sequence[Any], which: set[int]) -> _Function:
    """`func` of the real or imaginary parts of its complex inputs; the other parts stay as they are."""

    def completed(i: int, x: Any) -> Any:
        if i not in which:
            return x
        kept = inputs[i].detach()
        return x + kept.imag * 1j if part == _REAL else kept.real + x * 1j

    return lambda *parts: func(*(completed(i, x) for i, x in enumerate(parts)))


def _compare_backward(
    func: _Function, inputs: tuple[Any, ...], outputs: Any, **options: Any
) -> None:
    if not any(_has_numbers(o) and o.is_complex() for o in _as_tuple(outputs)):
        _Check(func, inputs, forward=False, **options).run()
        return
    indices = [i for i, o in enumerate(_differentiable(outputs)) if o.is_complex()]
    for part in (_IMAGINARY, _REAL):
        taken = _of_outputs(func, part)
        _Check(taken, inputs, forward=False, part=part, complex_indices=indices, **options).run()


def _compare_forward(
    func: _Function, inputs: tuple[Any, ...], undefined: bool, **options: Any
) -> None:
    which = {i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_complex()}
    indices = [k for k, i in enumerate(_checked(inputs)) if i in which]
    for part in (_IMAGINARY, _REAL) if which else (None,):
        taken, given = func, list(inputs)
        if part is not None:
            taken = _of_inputs(func, part, inputs, which)
            for i in which:
                x = inputs[i].detach()
                half = (x.real if part == _REAL else x.imag).clone()
                given[i] = half.requires_grad_(inputs[i].requires_grad)
        _Check(taken, given, forward=True, part=part, complex_indices=indices, **options).run()
        if undefined:
            check_undefined_forward(taken, given)


# ---- what users call


def _check_inputs(inputs: tuple[Any, ...]) -> None:
    for i in _checked(inputs):
        x = inputs[i]
        if x.dtype not in (rabbet.float64, rabbet.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )
        if any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                ".contiguous on the input before passing it to gradcheck."
            )
    if not _checked(inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


def _check_flags(*pairs: tuple[bool, str]) -> None:
    for holds, message in pairs:
        if not holds:
            raise AssertionError(message)


def gradcheck(
    func: _Function,
    inputs: _Tensors,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check the derivatives of `func` at `inputs` against central differences.

    Args:
        func: takes the inputs, returns a Tensor or several. Of complex outputs the real and the imaginary part
            are checked one after the other, in forward mode those of complex inputs.
        inputs: those that require grad are checked; use float64 or complex128.
        eps: the step of the differences.
        atol, rtol: elements may differ by atol + rtol * |numerical|.
        raise_exception: whether a failed check raises GradcheckError; else the result is False.
        nondet_tol: how far two runs of backward may differ.
        check_undefined_grad: whether zero and missing gradients of outputs must give zero or no gradients.
        check_grad_dtypes: whether gradients must have the dtypes of their inputs.
        check_batched_grad: whether backward under vmap must give what a loop gives.
        check_batched_forward_grad: the same of forward mode.
        check_forward_ad, check_backward_ad: which modes to check.
        fast_mode: compare v^T J u for one random u and v instead of the Jacobian J.
        masked: for sparse tensors: compare specified elements only.

    Raises:
        GradcheckError: if a check fails, unless raise_exception is False.
        ValueError: if no input requires grad.
    """
    _check_flags(
        (
            check_forward_ad or check_backward_ad,
            "Expected at least one of check_forward_ad or check_backward_ad to be True",
        ),
        (
            check_backward_ad or not check_batched_grad,
            "Setting check_batched_grad=True requires check_backward_ad to be True",
        ),
        (
            check_forward_ad or not check_batched_forward_grad,
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True",
        ),
    )
    given = _as_tuple(inputs)
    _check_inputs(given)
    options = {
        "eps": eps,
        "atol": atol,
        "rtol": rtol,
        "nondet_tol": nondet_tol,
        "check_grad_dtypes": check_grad_dtypes,
        "fast": fast_mode,
    }
    try:
        if check_backward_ad:
            _compare_backward(func, given, func(*given), **options)
        if check_forward_ad:
            _compare_forward(func, given, check_undefined_grad, **options)
        if check_batched_forward_grad:
            check_batched_forward(func, given)
        if not check_backward_ad:
            return True
        outputs = _differentiable(func(*given))
        watched = [given[i] for i in _checked(given)]
        for i, output in enumerate(outputs) if check_batched_grad else ():
            check_batched_backward(output, watched, i)
        check_zero_cotangents(outputs, watched, bool(masked))
        if check_undefined_grad:
            check_undefined_backward(lambda: _differentiable(func(*given)), watched)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: _Function,
    inputs: _Tensors,
    grad_outputs: _Tensors | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second derivatives: gradcheck of the function that computes the gradients of `func`.

    Args:
        grad_outputs: cotangents of the outputs, random ones if left out; checked where they require grad.
        gen_non_contig_grad_outputs: whether the random ones are not contiguous.
        check_fwd_over_rev, check_rev_over_rev: which mode differentiates the gradients.

    The other arguments are those of gradcheck.
    """
    _check_flags(
        (
            check_fwd_over_rev or check_rev_over_rev,
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True",
        ),
        (
            check_rev_over_rev or not check_undefined_grad,
            "Setting check_undefined_grad=True requires check_rev_over_rev to be True",
        ),
        (
            check_rev_over_rev or not check_batched_grad,
            "Setting check_batched_grad=True requires check_rev_over_rev to be True",
        ),
    )
    given = _as_tuple(inputs)
    cotangents = (
        _random_cotangents(_differentiable(func(*given)), gen_non_contig_grad_outputs)
        if grad_outputs is None
        else _as_tuple(grad_outputs)
    )
    of_inputs, of_cotangents = set(_checked(given)), set(_checked(cotangents))

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        xs = _tracked(args[: len(given)], of_inputs)
        vs = _tracked(args[len(given) :], of_cotangents)
        found = grad(
            _differentiable(func(*xs)),
            [xs[i] for i in sorted(of_inputs)],
            vs,
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        given + cotangents,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
        masked=masked,
    )


def _tracked(values: Sequence[Any], which: set[int]) -> list[Any]:
    """Forward mode gives tensors without requires_grad."""
    return [x.requires_grad_() if i in which else x for i, x in enumerate(values)]


def _random_cotangents(outputs: tuple[Tensor, ...], strided: bool) -> tuple[Tensor, ...]:
    return tuple(
        rabbet.testing.make_tensor(
            o.shape,
            dtype=o.dtype,
            device=o.device,
            low=-1,
            high=1,
            requires_grad=True,
            noncontiguous=strided,
        )
        for o in outputs
    )
