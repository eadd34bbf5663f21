"""Jacobians, Hessians and their products with vectors, of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from . import _C
from ._roots import grad
from .levels import DualLevel

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors = Tensor | tuple[Tensor, ...]
_Function = Callable[..., Any]
_RETURNED = "outputs of the user-provided function"
_STRICT = "This is not allowed in strict mode"


# ---- arguments and results


def _as_tuple(values: Any, what: str, function: str) -> tuple[Tensor, ...]:
    """A tensor or a tuple of tensors as a tuple."""
    many = values if isinstance(values, tuple) else (values,)
    for i, value in enumerate(many):
        if isinstance(value, Tensor):
            continue
        got = f"the value at index {i}" if isinstance(values, tuple) else f"the given {what}"
        raise TypeError(
            f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but {got} has type "
            f"{type(value)}."
        )
    return tuple(many)


def _like(values: tuple[Any, ...], template: Any) -> Any:
    """A tuple where the user gave or returned one, else its entry."""
    return values if isinstance(template, tuple) else values[0]


def _tracked(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Inputs of which gradients can be taken: with `create_graph` they stay part of the user's graph."""
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in inputs
    )


def _released(values: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    return values if create_graph else tuple(v.detach() for v in values)


def _vector(
    v: Any, like: tuple[Tensor, ...], function: str, template: Any, graph: bool
) -> tuple[Tensor, ...]:
    """The vector of a product, of the shapes of `like`; 1 for a single number. `template`: what the user gave."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            alone = "the input to the user-provided function is"
            raise RuntimeError(
                f"The vector v can only be None if {'the user-provided function returns' if function == 'vjp' else alone}"
                " a single Tensor with a single element."
            )
        return (rabbet.ones_like(like[0]),)
    vs = _as_tuple(v, "v", function)
    if len(vs) != len(like):
        if isinstance(template, tuple):
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (one, other) in enumerate(zip(vs, like, strict=True)):
        if one.shape != other.shape:
            entry = f"Entry {i} in " if isinstance(template, tuple) else ""
            raise RuntimeError(
                f"{entry}v has invalid size: should be {tuple(other.shape)} but got {tuple(one.shape)}."
            )
    return vs if graph else tuple(x.detach() for x in vs)


# ---- strict mode, and gradients


def _check_outputs(outputs: tuple[Tensor, ...], strict: bool) -> None:
    """In strict mode every output must depend on the inputs."""
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed "
                "in a differentiable manner from the input when running in strict mode."
            )


def _check_slopes(slopes: Sequence[Tensor], strict: bool) -> None:
    """In strict mode the gradients that a Hessian is made of must depend on the inputs."""
    for i, slope in enumerate(slopes):
        if strict and not slope.requires_grad:
            raise RuntimeError(
                "While computing the hessian, found that the jacobian of the user-provided function with respect to "
                f"input {i} is independent of the input. {_STRICT}. You should ensure that your function is twice "
                "differentiable and that the jacobian depends on the inputs (this would be violated by a linear "
                "function for example)."
            )


_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. " + _STRICT + "."
)
_INDEPENDENT_SLOPE = (
    "The jacobian of the user-provided function is independent of input {}. " + _STRICT + "."
)
_TRICK = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double "
    "backward trick to compute forward mode gradients. " + _STRICT + "."
)
_SLOPE_TRICK = (
    "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. "
    + _STRICT
    + " as it prevents from using the double backward trick to replace forward mode AD."
)


def _seed(output: Tensor) -> Tensor | None:
    """Ones; None where a run makes them itself."""
    return rabbet.ones_like(output) if output.ndim or output.is_complex() else None


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    vectors: Sequence[Tensor | None],
    *,
    graph: bool,
    strict: str | None,
) -> tuple[Tensor, ...]:
    """Gradients of those outputs that have any; zeros where an input plays no part.

    Args:
        strict: what to say of such an input in strict mode, of which the number is put in; None: not strict.
    """
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs:
        return _filled([None] * len(inputs), inputs, strict)
    roots = tuple([o for o, _ in pairs])
    seeds = tuple([_seed(o) if v is None else v for o, v in pairs])
    flags = _C.RETAIN | _C.ALLOW_UNUSED | (_C.CREATE if graph else 0)
    return _filled(_C.run(roots, seeds, inputs, flags), inputs, strict)


def _filled(
    found: Sequence[Tensor | None], inputs: Sequence[Tensor], strict: str | None
) -> tuple[Tensor, ...]:
    filled = []
    for i, g in enumerate(found):
        if g is None and strict is not None:
            raise RuntimeError(strict.format(i))
        filled.append(rabbet.zeros_like(inputs[i]) if g is None else g)
    return tuple(filled)


def _check_graph(
    results: Sequence[Tensor], what: str, strict: bool, graph: bool
) -> Sequence[Tensor]:
    """In strict mode results that shall be differentiated again must depend on the inputs."""
    for i, g in enumerate(results):
        if strict and graph and not g.requires_grad:
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {i}. {_STRICT} when "
                "create_graph=True."
            )
    return results


# ---- products


def vjp(
    func: _Function,
    inputs: _Tensors,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs of `func`, and the product of `v` with its Jacobian.

    Args:
        v: of the outputs' shapes; None for a single number.
        create_graph: results can be differentiated again.
        strict: raise where an output does not depend on an input.
    """
    with rabbet.enable_grad():
        given = _tracked(_as_tuple(inputs, "inputs", "vjp"), create_graph)
        returned = func(*given)
        outputs = _as_tuple(returned, _RETURNED, "vjp")
        _check_outputs(outputs, strict)
        vs = _vector(v, outputs, "vjp", returned, create_graph)
        found = _gradients(
            outputs, given, vs, graph=create_graph, strict=_INDEPENDENT if strict else None
        )
        _check_graph(found, "jacobian", strict, create_graph)
    return (
        _like(_released(outputs, create_graph), returned),
        _like(_released(found, create_graph), inputs),
    )


def jvp(
    func: _Function,
    inputs: _Tensors,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs of `func`, and the product of its Jacobian with `v`, by differentiating the other product.

    Args:
        v: of the inputs' shapes; None for a single number.
    """
    with rabbet.enable_grad():
        given = _tracked(_as_tuple(inputs, "inputs", "jvp"), create_graph)
        vs = _vector(v, given, "jvp", inputs, create_graph)
        returned = func(*given)
        outputs = _as_tuple(returned, _RETURNED, "jvp")
        _check_outputs(outputs, strict)
        dummies = tuple(rabbet.zeros_like(o).requires_grad_() for o in outputs)
        rows = _gradients(
            outputs, given, dummies, graph=True, strict=_INDEPENDENT if strict else None
        )
        found = _gradients(rows, dummies, vs, graph=create_graph, strict=_TRICK if strict else None)
        _check_graph(found, "jacobian", strict, create_graph)
    return (
        _like(_released(outputs, create_graph), returned),
        _like(_released(found, create_graph), returned),
    )


# ---- Jacobians


def _rows(
    output: Tensor, number: int, given: tuple[Tensor, ...], graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    """The Jacobian of output `number`: for each input a tensor of the output's and the input's shape."""
    independent = (
        f"Output {number} of the user-provided function is independent of input {{}}. {_STRICT}."
    )
    rows = [
        _check_graph(
            _gradients(
                [element], given, [None], graph=graph, strict=independent if strict else None
            ),
            "jacobian",
            strict,
            graph,
        )
        for element in output.reshape(-1).unbind()
    ]
    if not rows:
        return tuple(x.new_zeros((*output.shape, *x.shape)) for x in given)
    return tuple(
        rabbet.stack(list(column)).view(*output.shape, *x.shape)
        for column, x in zip(zip(*rows, strict=True), given, strict=True)
    )


def _rows_at_once(output: Tensor, given: tuple[Tensor, ...], graph: bool) -> tuple[Tensor, ...]:
    """The same by one run under vmap."""
    if not output.requires_grad:
        return tuple(x.new_zeros((*output.shape, *x.shape)) for x in given)
    count = output.numel()
    units = rabbet.eye(count, dtype=output.dtype, device=output.device)
    found = grad(
        output,
        given,
        units.reshape((count, *output.shape)),
        retain_graph=True,
        create_graph=graph,
        allow_unused=True,
        is_grads_batched=True,
    )
    return tuple(
        (x.new_zeros((count, *x.shape)) if g is None else g).reshape((*output.shape, *x.shape))
        for x, g in zip(given, found, strict=True)
    )


def _columns_at_once(func: _Function, inputs: _Tensors) -> Any:
    """The Jacobian by forward mode, one run for each input."""
    given = _as_tuple(inputs, "inputs", "jacobian")
    returned: Any = None

    def tangents(which: int, direction: Tensor) -> tuple[Tensor, ...]:
        nonlocal returned
        with DualLevel() as level:
            duals = [level.enter(x, direction if i == which else None) for i, x in enumerate(given)]
            returned = func(*duals)
            outputs = _as_tuple(returned, _RETURNED, "jacobian")
            return tuple([level.leave(o)[1] for o in outputs])

    columns = []
    for i, x in enumerate(given):
        count = x.numel()
        units = rabbet.eye(count, dtype=x.dtype, device=x.device).reshape((count, *x.shape))
        found = rabbet.vmap(lambda direction, i=i: tangents(i, direction), out_dims=-1)(units)
        columns.append([c.reshape((*c.shape[:-1], *x.shape)) for c in found])
    by_output = tuple(_like(row, inputs) for row in zip(*columns, strict=True))
    return _like(by_output, returned)


def _check_strategy(strategy: str, vectorize: bool, strict: bool, create_graph: bool) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}. Hint: If your function '
            'has more outputs than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use '
            '"reverse-mode".'
        )
    if strategy == "forward-mode":
        name = "rabbet.autograd.functional.jacobian"
        if create_graph:
            raise NotImplementedError(
                f'{name}: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). Please '
                'either set `create_graph=False` or `strategy="reverse-mode"`.'
            )
        if strict:
            raise RuntimeError(
                f'{name}: `strict=True` and `strategy="forward-mode"` are not supported together (yet). Please either '
                'set `strict=False` or `strategy="reverse-mode"`.'
            )
        if not vectorize:
            raise NotImplementedError(
                "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for "
                "`vectorize=True`."
            )


def jacobian(
    func: _Function,
    inputs: _Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of `func`: for several outputs a tuple, for several inputs a tuple in it.

    Args:
        vectorize: compute all rows (or columns) of an output (or input) at once, by vmap.
        strategy: 'reverse-mode' row by row, or 'forward-mode' column by column, which needs `vectorize`.
    """
    _check_strategy(strategy, vectorize, strict, create_graph)
    if strategy == "forward-mode":
        return _columns_at_once(func, inputs)
    with rabbet.enable_grad():
        given = _tracked(_as_tuple(inputs, "inputs", "jacobian"), create_graph)
        returned = func(*given)
        outputs = _as_tuple(returned, _RETURNED, "jacobian")
        _check_outputs(outputs, strict)
        if vectorize and strict:
            raise RuntimeError(
                "rabbet.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
                "Please either set `strict=False` or `vectorize=False`."
            )
        rows = (
            [_rows_at_once(o, given, create_graph) for o in outputs]
            if vectorize
            else [_rows(o, i, given, create_graph, strict) for i, o in enumerate(outputs)]
        )
    return _like(tuple(_like(_released(r, create_graph), inputs) for r in rows), returned)


# ---- second derivatives


def _number(func: _Function, given: tuple[Tensor, ...], function: str) -> tuple[Any, Tensor]:
    """What `func` returns, which must be a tensor of one number."""
    returned = func(*given)
    outputs = _as_tuple(returned, _RETURNED, function)
    if isinstance(returned, tuple):
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {function} should contain a single element"
        )
    return returned, outputs[0].squeeze()


def hessian(
    func: _Function,
    inputs: _Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function with one number as its result: for several inputs a tuple of tuples.

    Args:
        outer_jacobian_strategy: how the Jacobian of the gradient is computed, as `strategy` of jacobian.
    """
    given = _as_tuple(inputs, "inputs", "hessian")
    _check_strategy(outer_jacobian_strategy, vectorize, strict, create_graph)

    def gradient(*xs: Tensor) -> tuple[Tensor, ...]:
        if outer_jacobian_strategy == "forward-mode":
            xs = tuple(x.view_as(x).requires_grad_() for x in xs)
        with rabbet.enable_grad():
            _, output = _number(func, xs, "hessian")
            _check_outputs((output,), strict)
            slopes = _gradients(
                [output], xs, [None], graph=True, strict=_INDEPENDENT if strict else None
            )
        _check_slopes(slopes, strict)
        return slopes

    found = jacobian(gradient, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if isinstance(inputs, tuple) else found[0][0]


def vhp(
    func: _Function,
    inputs: _Tensors,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The number that `func` gives, and the product of `v` with its Hessian."""
    with rabbet.enable_grad():
        given = _tracked(_as_tuple(inputs, "inputs", "vhp"), create_graph)
        vs = _vector(v, given, "vhp", inputs, create_graph)
        returned, output = _number(func, given, "vhp")
        _check_outputs((output,), strict)
        slopes = _gradients(
            [output], given, [None], graph=True, strict=_INDEPENDENT if strict else None
        )
        _check_slopes(slopes, strict)
        found = _gradients(
            slopes, given, vs, graph=create_graph, strict=_INDEPENDENT_SLOPE if strict else None
        )
        _check_graph(found, "hessian", strict, create_graph)
    return (
        _released((returned,), create_graph)[0],
        _like(_released(found, create_graph), inputs),
    )


def hvp(
    func: _Function,
    inputs: _Tensors,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The number that `func` gives, and the product of its Hessian with `v`; `vhp` is faster."""
    with rabbet.enable_grad():
        given = _tracked(_as_tuple(inputs, "inputs", "hvp"), create_graph)
        vs = _vector(v, given, "hvp", inputs, create_graph)
        returned, output = _number(func, given, "hvp")
        _check_outputs((output,), strict)
        slopes = _gradients(
            [output], given, [None], graph=True, strict=_INDEPENDENT if strict else None
        )
        _check_slopes(slopes, strict)
        dummies = tuple(rabbet.zeros_like(x).requires_grad_() for x in given)
        rows = _gradients(
            slopes, given, dummies, graph=True, strict=_INDEPENDENT_SLOPE if strict else None
        )
        found = _gradients(
            rows, dummies, vs, graph=create_graph, strict=_SLOPE_TRICK if strict else None
        )
        _check_graph(found, "hessian", strict, create_graph)
    return (
        _released((returned,), create_graph)[0],
        _like(_released(found, create_graph), inputs),
    )
