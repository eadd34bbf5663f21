"""gradcheck: zero and missing gradients of outputs, and zero tangents."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from . import forward_ad
from ._gradcheck_errors import GradcheckError
from ._roots import grad
from .function import Function


def check_zero_cotangents(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], masked: bool
) -> None:
    """Backward of zeros must give zeros, of the inputs' shapes, dtypes and devices."""
    if not outputs:
        return
    zeros = [_zeros(o) for o in outputs]
    for x, g in zip(inputs, grad(outputs, inputs, zeros, allow_unused=True), strict=True):
        if g is None:
            continue
        values = g.detach().cpu()
        exact = not bool((values != 0).any())
        zero = exact or (masked and rabbet.allclose(values, rabbet.zeros_like(values)))
        if not zero:
            raise GradcheckError("backward not multiplied by grad_output")
        for name, got, expected in (
            ("type", g.dtype, x.dtype),
            ("device", g.device, x.device),
            ("size", g.shape, x.shape),
        ):
            if got != expected:
                raise GradcheckError(f"grad is incorrect {name}")


def _zeros(like: Tensor) -> Tensor:
    return rabbet.zeros(like.shape, dtype=like.dtype).to(like.device)


class _Undefined(Function):
    """The identity, whose backward gives no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        return None


_MUST = "Backwards must treat undefined gradients of outputs as zeros."


def _warn() -> None:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may "
        "break existing callers of this function. If this is true for you, you can call this function with "
        '"check_undefined_grad=False" to disable the feature',
        stacklevel=4,
    )


def check_undefined_backward(
    outputs: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]
) -> None:
    """Backward must cope with outputs whose gradient is missing: with all of them, and with each alone."""
    count = len(outputs())
    missing = [set(range(count))] + ([{i} for i in range(count)] if count > 1 else [])
    for which in missing:
        given = [_Undefined.apply(o) if i in which else o for i, o in enumerate(outputs())]
        if not given:
            return
        try:
            zeros = [_zeros(o) for o in given]
            found = grad(given, inputs, zeros, allow_unused=True)
        except RuntimeError as error:
            _warn()
            raise GradcheckError(
                f"Expected backward function to handle undefined output grads. {_MUST}"
            ) from error
        if any(g is not None and bool((g.detach().cpu() != 0).any()) for g in found):
            _warn()
            raise GradcheckError(
                f"Expected all input grads to be undefined or zero when all output grads are undefined or zero. {_MUST}"
            )


def check_undefined_forward(func: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """A zero tangent and no tangent must give the same."""
    which = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    generator = rabbet.Generator()

    def direction(x: Tensor) -> Tensor:
        values = rabbet.rand(x.numel(), generator=generator, dtype=rabbet.float64)
        return values.to(device=x.device, dtype=x.dtype).reshape(x.shape)

    tangents = {i: direction(inputs[i]) for i in which}
    for missing in which:
        zero = _tangents(func, inputs, {**tangents, missing: rabbet.zeros_like(tangents[missing])})
        none = _tangents(func, inputs, {**tangents, missing: None})
        for k, (got, expected) in enumerate(zip(none, zero, strict=True)):
            if got is not None and expected is not None and not rabbet.allclose(got, expected):
                raise GradcheckError(
                    f"Mismatch in tangent values for output with index: {k} when input: {inputs[missing]} has an "
                    f"undefined tangent value. Got: {got} but expected: {expected}"
                )


def _tangents(
    func: Callable[..., Any], inputs: Sequence[Any], tangents: dict[int, Tensor | None]
) -> list[Tensor | None]:
    with forward_ad.dual_level():
        given = []
        for i, x in enumerate(inputs):
            tangent = tangents.get(i)
            plain = x.detach() if i in tangents else x
            given.append(plain if tangent is None else forward_ad.make_dual(plain, tangent))
        result = func(*given)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        return [forward_ad.unpack_dual(o).tangent for o in outputs if isinstance(o, Tensor)]
