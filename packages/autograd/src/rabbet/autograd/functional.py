"""Jacobians, Hessians and their products with vectors, of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor

from ._roots import grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors = Tensor | tuple[Tensor, ...]
_Function = Callable[..., Any]


def _as_tuple(values: Any, what: str, function: str) -> tuple[Tensor, ...]:
    """A tensor or tensors as a tuple."""
    many = values if isinstance(values, (tuple, list)) else (values,)
    for i, value in enumerate(many):
        if not isinstance(value, Tensor):
            owner = "of the user-provided function " if what == "outputs" else ""
            raise TypeError(
                f"The {what} {owner}given to {function} must be either a Tensor or a tuple of Tensors but the value "
                f"at index {i} has type {type(value)}."
            )
    return tuple(many)


def _like(values: tuple[Any, ...], template: Any) -> Any:
    """A tuple where the user gave or returned several tensors, else the one."""
    return values if isinstance(template, (tuple, list)) else values[0]


def _tracked(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """Inputs of which gradients can be taken: with `create_graph` they stay part of the user's graph."""
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in inputs
    )


def _released(values: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    return values if create_graph else tuple(v.detach() for v in values)


def _vector(
    v: Any, like: tuple[Tensor, ...], function: str, argument: str, graph: bool
) -> tuple[Tensor, ...]:
    """The vector of a product, of the shapes of `like`; 1 for a single number."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {argument} is a single Tensor with a single element."
            )
        return (rabbet.ones_like(like[0]),)
    vs = _as_tuple(v, "v", function)
    if len(vs) != len(like):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(like)} but got {len(vs)}."
        )
    for i, (one, other) in enumerate(zip(vs, like, strict=True)):
        if one.shape != other.shape:
            raise RuntimeError(
                f"Entry {i} in v has invalid size: should be {tuple(other.shape)} but got {tuple(one.shape)}."
            )
    return vs if graph else tuple(x.detach() for x in vs)


def _check_outputs(outputs: tuple[Tensor, ...], strict: bool) -> None:
    """In strict mode every output must depend on the inputs."""
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed "
                "in a differentiable manner from the input when running in strict mode."
            )


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    vectors: Sequence[Tensor | None],
    *,
    graph: bool,
    strict: bool,
) -> tuple[Tensor, ...]:
    """Gradients of those outputs that have any; zeros, or in strict mode an error, where an input plays no part."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if pairs:
        found = grad(
            [o for o, _ in pairs],
            inputs,
            [rabbet.ones_like(o) if v is None else v for o, v in pairs],
            retain_graph=True,
            create_graph=graph,
            allow_unused=True,
        )
    for i, g in enumerate(found):
        if strict and g is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input {i}. This is not allowed in "
                "strict mode."
            )
    return tuple(
        rabbet.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)
    )


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
        outputs = _as_tuple(returned, "outputs", "vjp")
        _check_outputs(outputs, strict)
        vs = _vector(v, outputs, "vjp", "the user-provided function's result", create_graph)
        found = _gradients(outputs, given, vs, graph=create_graph, strict=strict)
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
        vs = _vector(v, given, "jvp", "the input", create_graph)
        returned = func(*given)
        outputs = _as_tuple(returned, "outputs", "jvp")
        _check_outputs(outputs, strict)
        dummies = tuple(rabbet.zeros_like(o).requires_grad_() for o in outputs)
        rows = _gradients(outputs, given, dummies, graph=True, strict=strict)
        found = _gradients(rows, dummies, vs, graph=create_graph, strict=False)
    return (
        _like(_released(outputs, create_graph), returned),
        _like(_released(found, create_graph), returned),
    )


def _rows(
    output: Tensor, given: tuple[Tensor, ...], graph: bool, strict: bool
) -> tuple[Tensor, ...]:
    """The Jacobian of one output: for each input a tensor of the output's and the input's shape."""
    rows = [
        _gradients([element], given, [None], graph=graph, strict=strict)
        for element in output.reshape(-1).unbind()
    ]
    if not rows:
        return tuple(x.new_zeros((*output.shape, *x.shape)) for x in given)
    return tuple(
        rabbet.stack(column).view(*output.shape, *x.shape)
        for column, x in zip(zip(*rows, strict=True), given, strict=True)
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
        vectorize, strategy: how PyTorch computes it; here one output element after the other, with the same result.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}'
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError("jacobian: create_graph=True needs strategy='reverse-mode'")
    if vectorize and strict:
        raise RuntimeError("jacobian: strict=True and vectorize=True are not supported together")
    with rabbet.enable_grad():
        given = _tracked(_as_tuple(inputs, "inputs", "jacobian"), create_graph)
        returned = func(*given)
        outputs = _as_tuple(returned, "outputs", "jacobian")
        _check_outputs(outputs, strict)
        found = tuple(
            _like(_released(_rows(o, given, create_graph, strict), create_graph), inputs)
            for o in outputs
        )
    return _like(found, returned)


def _number(func: _Function, given: tuple[Tensor, ...], function: str) -> tuple[Any, Tensor]:
    """What `func` returns, which must be a tensor of one number."""
    returned = func(*given)
    outputs = _as_tuple(returned, "outputs", function)
    if isinstance(returned, (tuple, list)):
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
    """The Hessian of a function with one number as its result: for several inputs a tuple of tuples."""
    several = isinstance(inputs, (tuple, list))
    given = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*xs: Tensor) -> tuple[Tensor, ...]:
        _, output = _number(func, xs, "hessian")
        _check_outputs((output,), strict)
        return _gradients([output], xs, [None], graph=True, strict=strict)

    found = jacobian(gradient, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if several else found[0][0]


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
        vs = _vector(v, given, "vhp", "the input", create_graph)
        returned, output = _number(func, given, "vhp")
        _check_outputs((output,), strict)
        slopes = _gradients([output], given, [None], graph=True, strict=strict)
        found = _gradients(slopes, given, vs, graph=create_graph, strict=strict)
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
        vs = _vector(v, given, "hvp", "the input", create_graph)
        returned, output = _number(func, given, "hvp")
        _check_outputs((output,), strict)
        slopes = _gradients([output], given, [None], graph=True, strict=strict)
        dummies = tuple(rabbet.zeros_like(x).requires_grad_() for x in given)
        rows = _gradients(slopes, given, dummies, graph=True, strict=strict)
        found = _gradients(rows, dummies, vs, graph=create_graph, strict=False)
    return (
        _released((returned,), create_graph)[0],
        _like(_released(found, create_graph), inputs),
    )
