"""Gradient checks: analytical derivatives against central finite differences, in double precision."""

from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from . import _C


class GradcheckError(RuntimeError):
    """The analytical and the numerical derivative differ."""


def _outputs(fn: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    result = fn(*inputs)
    results = [result] if isinstance(result, Tensor) else list(result)
    return [
        r for r in results if isinstance(r, Tensor) and (r.is_floating_point() or r.is_complex())
    ]


def _inner(a: Tensor, b: Tensor) -> float:
    """Real inner product Re<a, b> of two tensors of one shape, computed on the CPU."""
    a = a.cpu()
    product = (a * b.conj()).sum()
    return (product.real if product.is_complex() else product).item()


def _numerical(
    fn: Callable[..., Any], inputs: list[Any], which: int, cotangents: list[Tensor], eps: float
) -> Tensor:
    """Gradient of Re<cotangents, fn> with respect to one input, element by element; it is on the CPU."""
    x, device = inputs[which].detach().cpu(), inputs[which].device
    flat = x.contiguous().clone().reshape(-1)
    steps = [eps, eps * 1j] if x.is_complex() else [eps]
    columns = []

    def value(at: Tensor) -> float:
        probe = list(inputs)
        probe[which] = at.reshape(x.shape).to(device)
        return sum(
            _inner(o.detach(), c) for o, c in zip(_outputs(fn, probe), cotangents, strict=True)
        )

    for i in range(flat.numel()):
        parts = []
        for step in steps:
            shift = rabbet.zeros_like(flat)
            shift[i] = step
            parts.append((value(flat + shift) - value(flat - shift)) / (2 * eps))
        columns.append(complex(*parts) if x.is_complex() else parts[0])
    return (
        rabbet.tensor(columns, dtype=x.dtype).reshape(x.shape) if columns else rabbet.zeros_like(x)
    )


def _cotangents(outputs: list[Tensor]) -> list[Tensor]:
    """Fixed, unequal weights on the CPU, so that errors in different elements do not cancel."""
    made = []
    for o in outputs:
        ramp = rabbet.linspace(0.3, 1.7, max(o.numel(), 1), dtype=rabbet.float64)[
            : o.numel()
        ].reshape(o.shape)
        ramp = ramp * (1 - 2 * (rabbet.arange(o.numel()).reshape(o.shape) % 2))
        made.append(
            (ramp + 0.5j * ramp.flip(list(range(o.ndim))) if o.is_complex() else ramp).to(o.dtype)
        )
    return made


def gradcheck(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Check the gradients of `fn` at `inputs` against central differences of step `eps`.

    Args:
        fn: takes the inputs, returns a Tensor or a tuple; complex outputs are allowed.
        inputs: those that are floating or complex and require grad are checked; use float64 or complex128.

    Raises:
        GradcheckError: if some element differs by more than atol + rtol * |numerical|, unless
            raise_exception is False.
        ValueError: if no input requires grad.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    checked = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("gradcheck: no input requires grad")
    outputs = list(_outputs(fn, given))
    cotangents = _cotangents(outputs)
    recorded = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
    watched = [given[i] for i in checked]
    analytical: tuple[Tensor | None, ...] = (None,) * len(watched)
    if recorded:
        analytical = _C.run(
            [o for o, _ in recorded],
            [c.to(o.device) for o, c in recorded],
            watched,
            _C.ALLOW_UNUSED | _C.RETAIN,
        )
    for i, got in zip(checked, analytical, strict=True):
        want = _numerical(fn, given, i, cotangents, eps)
        have = rabbet.zeros_like(want) if got is None else got.detach().cpu()
        error = (have - want).abs()
        bad = error > atol + rtol * want.abs()
        if bool(bad.any()) or bool(rabbet.isnan(error).any()):
            if not raise_exception:
                return False
            raise GradcheckError(
                f"gradcheck: the gradient for input {i} of shape {tuple(want.shape)} is wrong\n"
                f"numerical:  {want.tolist()}\nanalytical: {have.tolist()}"
            )
    return True


def gradgradcheck(
    fn: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Check second derivatives: gradcheck of the function that computes the gradients of `fn`."""
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    wanted = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad]

    def first_derivative(*args: Any) -> tuple[Tensor, ...]:
        fresh = [
            a
            if not isinstance(a, Tensor) or i not in wanted or a.requires_grad
            else a.detach().requires_grad_()
            for i, a in enumerate(args)
        ]
        outputs = [o for o in _outputs(fn, fresh) if o.requires_grad]
        if not outputs:
            return tuple(rabbet.zeros_like(fresh[i]) for i in wanted)
        cotangents = [c.to(o.device) for o, c in zip(outputs, _cotangents(outputs), strict=True)]
        found = _C.run(
            outputs, cotangents, [fresh[i] for i in wanted], _C.CREATE | _C.RETAIN | _C.ALLOW_UNUSED
        )
        return tuple(
            rabbet.zeros_like(fresh[i]) if g is None else g
            for i, g in zip(wanted, found, strict=True)
        )

    return gradcheck(
        first_derivative, given, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception
    )
