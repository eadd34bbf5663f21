"""Where backward runs start: `backward` and `grad`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import rabbet
from rabbet import Tensor, _overriding

from . import _C


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor flows: a node and the number of its output."""

    node: _C.Node
    output_nr: int
    ownership_token: _C.Node | None = None


_Tensors: TypeAlias = Tensor | GradientEdge | Sequence[Tensor | GradientEdge]


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (Tensor, GradientEdge)) else tuple(value)


def _at_edge(edge: GradientEdge) -> Tensor:
    """A tensor whose gradient flows there: the leaf itself, or one without memory of its own."""
    node, output, _ = edge
    if type(node).__name__ == "AccumulateGrad":
        return node.variable
    shape, dtype, device = _C.node_result(node, output)
    stands_for = rabbet.empty((), dtype=dtype, device=device).expand(shape)
    _C.set_history(stands_for, node, output)
    return stands_for


def _flags(retain_graph: bool | None, create_graph: bool) -> int:
    retain = create_graph if retain_graph is None else retain_graph
    return (_C.RETAIN if retain else 0) | (_C.CREATE if create_graph else 0)


def _outputs(values: Any) -> tuple[Tensor, ...]:
    outputs = [_at_edge(o) if isinstance(o, GradientEdge) else o for o in _tuple(values)]
    for o in outputs:
        if not isinstance(o, Tensor):
            raise TypeError(
                f"Expected output to be a Tensor or a GradientEdge, got {type(o).__name__}"
            )
    return tuple(outputs)


def _watched(inputs: Any, function: str) -> tuple[Tensor, ...]:
    watched = [_at_edge(x) if isinstance(x, GradientEdge) else x for x in _tuple(inputs)]
    if not watched:
        raise RuntimeError(f"`inputs` argument to `{function}()` cannot be empty.")
    for x in watched:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"all inputs have to be Tensors or GradientEdges, but got {type(x).__name__}"
            )
    return tuple(watched)


def _given(
    outputs: tuple[Tensor, ...], grads: Any, batched: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of the outputs; None for ones."""
    if grads is None:
        return (None,) * len(outputs)
    given = _tuple(grads)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    for i, (o, g) in enumerate(zip(outputs, given, strict=True)):
        if g is None:
            continue
        if not isinstance(g, Tensor):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
        if batched and tuple(g.shape[1:]) != tuple(o.shape):
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{i}] has a shape of {tuple(g.shape)[1:]} and "
                f"output[{i}] has a shape of {tuple(o.shape)}. If you only want some tensors in `grad_output` to be "
                "considered batched, consider using vmap."
            )
        if g.ndim and g.device != o.device:
            raise RuntimeError(
                f"invalid gradient at index {i} - expected device {o.device} but got {g.device}"
            )
    return given


def backward(
    tensors: _Tensors,
    grad_tensors: _Tensors | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: _Tensors | None = None,
    inputs: _Tensors | None = None,
) -> None:
    """Add the gradients of `tensors` with respect to all leaves (or to `inputs`) to their `.grad`.

    Args:
        tensors: the outputs, tensors or GradientEdges.
        grad_tensors: one gradient per output, of its shape; None for scalar outputs.
        retain_graph: keep saved values for another run; defaults to `create_graph`.
        create_graph: record the run, for higher derivatives.
        grad_variables: the former name of `grad_tensors`.
        inputs: tensors (or GradientEdges) whose `.grad` is added to; others, and nodes that lead to none of them,
            are left out.

    Raises:
        RuntimeError: if an output does not require grad, or the graph was freed by an earlier run.
    """
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    watched = () if inputs is None else _watched(inputs, "backward")
    outputs = _outputs(tensors)
    given = _given(outputs, grad_tensors)
    _C.run(outputs, given, watched, _flags(retain_graph, create_graph) | _C.ACCUMULATE)


def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    Args:
        outputs: tensors, or GradientEdges, which do not keep the values of their tensors alive.
        inputs: tensors or GradientEdges.
        grad_outputs: one gradient per output, of its shape; None for scalar outputs.
        only_inputs: always so; False warns, as other leaves never get a gradient here.
        allow_unused: give None for an input that no output depends on instead of raising.
        is_grads_batched: dimension 0 of each of `grad_outputs` counts examples, and so it does in the results:
            one run under vmap computes all of them.
        materialize_grads: give zeros instead of None for unused inputs.

    Raises:
        RuntimeError: if an input is unused and neither `allow_unused` nor `materialize_grads` is set.
        ValueError: for `materialize_grads=True` with `allow_unused=False`.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    watched = _watched(inputs, "grad")
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    roots = _outputs(outputs)
    given = _given(roots, grad_outputs, is_grads_batched)
    flags = _flags(retain_graph, create_graph)
    if materialize_grads or allow_unused:
        flags |= _C.ALLOW_UNUSED
    run = _run_batched if is_grads_batched else _C.run
    results = run(roots, given, watched, flags)
    if not materialize_grads:
        return results
    for x, g in zip(_tuple(inputs), results, strict=True):
        if g is None and isinstance(x, GradientEdge):
            raise RuntimeError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
    return tuple(
        rabbet.zeros_like(x) if g is None else g for x, g in zip(watched, results, strict=True)
    )


def _run_batched(
    outputs: tuple[Tensor, ...],
    grads: tuple[Tensor | None, ...],
    inputs: tuple[Tensor, ...],
    flags: int,
) -> tuple[Tensor | None, ...]:
    unused: list[int] = []

    def one(*given: Tensor | None) -> tuple[Tensor, ...]:
        found = _C.run(outputs, given, inputs, flags)
        unused[:] = [i for i, g in enumerate(found) if g is None]
        return tuple(g for g in found if g is not None)

    dims = tuple(None if g is None else 0 for g in grads)
    if all(d is None for d in dims):
        raise ValueError(
            "grad: is_grads_batched=True needs grad_outputs with a dimension of examples"
        )
    batched = iter(rabbet.vmap(one, in_dims=dims)(*grads))
    return tuple(None if i in unused else next(batched) for i in range(len(inputs)))


_overriding.functions(globals(), ["grad"])
