"""Derivatives on a device: against finite differences, and forward mode against backward mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rabbet

from ..cases import Case, cases, differentiable_part
from ..compare import assert_close
from .calls import first_line, mapped, moved, not_declared
from .reasons import Reason, skip
from .reference import declared_dtypes

Part = tuple[Case, Callable[..., tuple[Any, ...]], list[Any]]


def floating_dtype(device: str) -> Any:
    """float64 where the device declares it, else float32; skips where it has neither."""
    declared = declared_dtypes(device)
    for name in ("float64", "float32"):
        if name in declared:
            return getattr(rabbet, name)
    skip(Reason.NO_KERNEL, f"{device} declares neither float64 nor float32")


def loosely(dtype: Any) -> dict[str, float]:
    """Tolerances of assert_close for results of some hundred operations."""
    return {"rtol": 2e-3, "atol": 2e-3} if dtype is rabbet.float32 else {}


@contextmanager
def offered(what: str) -> Iterator[None]:
    """Skip where the device does not offer what the block calls; L2 judges whether it should."""
    try:
        yield
    except NotImplementedError as error:
        if not_declared(error):
            skip(Reason.NOT_OFFERED, f"{what}: {first_line(error)}")
        skip(Reason.NOT_OFFERED, f"{what}: a kernel refuses: {first_line(error)}")


def differentiable_cases(op: str, dtype: Any, device: str) -> Iterator[Part]:
    """The cases with something to differentiate, as functions of those tensors, on the device."""
    for case in cases(op, dtype, requires_grad=True):
        there = moved(case, device)
        call, inputs = differentiable_part(there)
        if inputs and call(*inputs):
            yield there, call, inputs


def _each(op: str, dtype: Any, device: str, judge: Callable[[Part], None]) -> None:
    found = False
    with offered(op):
        for part in differentiable_cases(op, dtype, device):
            found = True
            judge(part)
    if not found:
        skip(Reason.NOT_DIFFERENTIABLE, f"{op} has no case with something to differentiate")


def _exact(part: Part, op: str, device: str, dtype: Any) -> None:
    """The gradient in float32 against that of the CPU in float64, from the same numbers."""
    from rabbet.autograd import grad

    case, call, inputs = part
    weights = [_ramp(r) for r in call(*inputs)]
    got = _gradients(grad, call, inputs, weights)
    wide = moved(case, "cpu")
    wide.args = [_double(a) for a in wide.args]
    host_call, host_inputs = differentiable_part(wide)
    want = _gradients(grad, host_call, host_inputs, weights)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        assert (g is None) == (w is None), (
            f"{case} on {device}: input {k} has {'no' if g is None else 'a'} gradient"
        )
        if g is not None and w is not None:
            message = f"gradient of {case} for input {k} in {dtype} on {device}"
            assert_close(g.cpu(), w.to(dtype), rtol=1e-4, atol=1e-4, message=message)


def _ramp(r: Any) -> Any:
    n = r.numel()
    return rabbet.linspace(0.3, 1.7, max(n, 1), dtype=rabbet.float64)[:n].reshape(tuple(r.shape))


def _double(value: Any) -> Any:
    def convert(t: Any) -> Any:
        return t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t

    return mapped(value, convert)


def _gradients(
    grad: Callable[..., Any], call: Callable[..., Any], inputs: list[Any], weights: list[Any]
) -> list[Any]:
    out = [
        (r, w.to(r.dtype).to(r.device))
        for r, w in zip(call(*inputs), weights, strict=True)
        if r.requires_grad
    ]
    if not out:
        return [None] * len(inputs)
    return list(grad([r for r, _ in out], inputs, [w for _, w in out], allow_unused=True))


def judge_first(op: str, device: str) -> None:
    """In float64 against finite differences; in float32 against the gradient of the CPU in float64."""
    dtype = floating_dtype(device)
    if dtype is rabbet.float64:
        return _checked(op, dtype, device)
    _each(op, dtype, device, lambda part: _exact(part, op, device, dtype))


def judge_second(op: str, device: str) -> None:
    """gradgradcheck; there is none without float64, where the nests compare second derivatives."""
    _checked_twice(op, _double_dtype(device), device)


def judge_complex(op: str, device: str) -> None:
    """gradcheck with complex128 numbers."""
    _checked(op, _complex_dtype(device), device)


def judge_complex_second(op: str, device: str) -> None:
    """gradgradcheck with complex128 numbers."""
    _checked_twice(op, _complex_dtype(device), device)


def judge_forward(op: str, device: str, is_complex: bool) -> None:
    """Tangents of forward mode, and those of backward mode, against finite differences."""
    dtype = _complex_dtype(device) if is_complex else _double_dtype(device)
    _checked(op, dtype, device, check_forward_ad=True, check_backward_ad=False)
    _checked_twice(
        op,
        dtype,
        device,
        check_fwd_over_rev=True,
        check_rev_over_rev=False,
        check_undefined_grad=False,
    )


def _double_dtype(device: str) -> Any:
    if floating_dtype(device) is rabbet.float32:
        skip(Reason.NO_DOUBLE, "finite differences of gradients need float64")
    return rabbet.float64


def _complex_dtype(device: str) -> Any:
    if "complex128" not in declared_dtypes(device):
        skip(Reason.NO_KERNEL, f"{device} declares no complex128")
    return rabbet.complex128


def _checked(op: str, dtype: Any, device: str, **modes: Any) -> None:
    from rabbet.autograd import gradcheck

    def check(part: Part) -> None:
        case, call, inputs = part
        assert gradcheck(call, inputs, **modes), str(case)

    _each(op, dtype, device, check)


def _checked_twice(op: str, dtype: Any, device: str, **modes: Any) -> None:
    from rabbet.autograd import gradgradcheck

    def check(part: Part) -> None:
        case, call, inputs = part
        assert gradgradcheck(call, inputs, atol=1e-4, **modes), str(case)

    _each(op, dtype, device, check)


def judge_modes(op: str, device: str) -> None:
    """<J t, g> of forward mode is <t, J^T g> of backward mode."""
    from rabbet.autograd import grad
    from rabbet.func import jvp

    dtype = floating_dtype(device)

    def check(part: Part) -> None:
        case, call, inputs = part
        points = tuple(t.detach() for t in inputs)
        tangents = tuple(_ramp(t).flip(list(range(t.ndim))).to(dtype).to(device) for t in points)
        outs, moves = jvp(lambda *xs: call(*xs), points, tangents)
        weights = [_ramp(r) for r in outs]
        forward = rabbet.zeros((), dtype=dtype)
        for move, weight in zip(moves, weights, strict=True):
            product = (move.cpu() * weight.to(move.dtype)).sum()
            forward = forward + (product.real if product.is_complex() else product)
        backward = rabbet.zeros((), dtype=dtype)
        for g, t in zip(_gradients(grad, call, inputs, weights), tangents, strict=True):
            if g is not None:
                backward = backward + (g.cpu() * t.cpu()).sum()
        tolerance = (
            {"rtol": 1e-3, "atol": 1e-3}
            if dtype is rabbet.float32
            else {"rtol": 1e-8, "atol": 1e-8}
        )
        assert_close(
            forward, backward, message=f"jvp against vjp of {case} on {device}", **tolerance
        )

    _each(op, dtype, device, check)
