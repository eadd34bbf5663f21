"""Branches and loops that depend on values, in programs and in graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _C
from .._C import Tensor
from .._pytree import TreeSpec, tree_flatten, tree_unflatten
from ._ir import If, Value, While, _Structured
from ._recorder import Recorder, active, is_grad_enabled, layers_off, refuse_composites
from ._run import _Runner
from ._symbols import CaptureError, source_line


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()
) -> Any:
    """Run `true_fn(*operands)` if `pred` holds, else `false_fn(*operands)`.

    Outside of a capture that is all. A capture records both functions, which must return tensors of the same shapes and
    dtypes; results never share memory with operands. The function that is not taken runs too, and its writes are
    taken back.

    Args:
        pred: a tensor of one element, or a bool.
        operands: a tuple of tensors. Other tensors that the functions use become operands of the graph.
    """
    if not active() or not isinstance(pred, Tensor):
        return true_fn(*operands) if bool(pred) else false_fn(*operands)
    given = _operands_of("cond", operands)
    with _overrides_off():
        if pred.numel() != 1:
            raise CaptureError(
                f"cond at {source_line()}: expected a condition of one element, got shape {tuple(pred.shape)}"
            )
    outer = active()[-1]
    then, spec = _part("then", true_fn, given)
    other, other_spec = _part("else", false_fn, given)
    if spec != other_spec:
        raise CaptureError(
            f"cond at {source_line()}: the functions return different structures: {spec} and {other_spec}"
        )
    _same_types("cond", then.graph.outputs, "true_fn", other.graph.outputs, "false_fn")
    operand_values = _joined([then, other], len(given))
    with _overrides_off():
        condition = outer.value_of(pred)
    node = If([then.graph, other.graph], [condition, *operand_values], source=_C.source())
    return tree_unflatten(_finish(outer, node), spec)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any
) -> Any:
    """Replace `carried_inputs` by `body_fn(*carried_inputs)` as long as `cond_fn(*carried_inputs)` holds; return them.

    A capture records both functions. The body must return tensors of the shapes and dtypes that it got.
    """
    state = list(carried_inputs)
    if not active():
        while bool(cond_fn(*state)):
            result = body_fn(*state)
            state = list(result) if isinstance(result, (list, tuple)) else [result]
        return tuple(state)
    given = _operands_of("while_loop", carried_inputs)
    outer = active()[-1]
    condition, spec = _part("condition", cond_fn, given)
    if spec.num_leaves != 1:
        raise CaptureError(
            f"while_loop at {source_line()}: cond_fn must return one tensor, got {spec.num_leaves} values"
        )
    body, _ = _part("body", body_fn, given)
    carried = [value for _, value in body.outer_values[: len(given)]]
    _same_types("while_loop", carried, "carried_inputs", body.graph.outputs, "body_fn")
    operand_values = _joined([condition, body], len(given))
    node = While([condition.graph, body.graph], operand_values, len(given), source=_C.source())
    return tuple(_finish(outer, node))


# ---- recording. Rabbet's own questions about sizes are none of the program's.


@contextlib.contextmanager
def _overrides_off() -> Iterator[None]:
    before = _C.set_overrides_disabled(2)
    try:
        yield
    finally:
        _C.set_overrides_disabled(before)


def _operands_of(what: str, operands: Any) -> list[Tensor]:
    if not isinstance(operands, (list, tuple)) or not all(isinstance(t, Tensor) for t in operands):
        raise TypeError(f"{what}: expected a tuple of tensors as operands, got {operands!r}")
    return list(operands)


def _part(
    role: str, fn: Callable[..., Any], operands: Sequence[Tensor]
) -> tuple[Recorder, TreeSpec]:
    """Record a function that a node will run; its effects are taken back."""
    outer = active()[-1]
    recorder = Recorder(role, undo=True, outer=outer)
    generator = _C.default_generator("cpu")
    with layers_off():
        state = generator.get_state()
    try:
        with _overrides_off():
            for tensor in operands:
                _add_operand(recorder, outer, tensor)
        with recorder.recording():
            leaves, spec = tree_flatten(fn(*operands))
            with _overrides_off():
                for leaf in leaves:
                    recorder.graph.outputs.append(_returned(recorder, role, leaf))
    finally:
        recorder.take_back()
        with layers_off():
            generator.set_state(state)
    return recorder, spec


def _add_operand(recorder: Recorder, outer: Recorder, tensor: Tensor) -> None:
    refuse_composites(tensor)
    given = outer.value_of(tensor)
    same = recorder.find(tensor)
    if same is None:
        value = recorder.add_input(tensor, "input", None)
        value.shape = given.shape
    else:  # the same tensor twice
        value = recorder.graph.add_input(
            tensor.dtype, tensor.shape, device=tensor.device, name=recorder.next_name(),
            buffer=same.buffer, hint=tuple(tensor.shape),
        )  # fmt: skip
    recorder.outer_values.append((given, value))


def _returned(recorder: Recorder, role: str, leaf: Any) -> Value:
    """The value of a result; one that shares memory with an operand or another result is cloned."""
    if not isinstance(leaf, Tensor):
        raise CaptureError(
            f"{role} at {source_line()}: expected tensors as results, got {type(leaf).__name__}"
        )
    value = recorder.value_of(leaf)
    taken = {v.buffer for v in [*recorder.graph.inputs, *recorder.graph.outputs]}
    if value.buffer in taken:
        value = recorder.value_of(leaf.clone())
    return value


def _same_types(
    what: str, one: Sequence[Value], of_one: str, other: Sequence[Value], of_other: str
) -> None:
    types = [[(v.dtype.name, v.hint) for v in values] for values in (one, other)]
    if types[0] != types[1]:
        shown = [", ".join(f"{d}{list(s or ())}" for d, s in t) for t in types]
        raise CaptureError(
            f"{what} at {source_line()}: {of_one} has ({shown[0]}), but {of_other} returns ({shown[1]})"
        )


def _joined(recorders: Sequence[Recorder], count: int) -> list[Value]:
    """Give the graphs of a node the same inputs: the operands, then all that any of them uses from around it."""
    used: dict[Value, None] = {}
    for recorder in recorders:
        used.update(dict.fromkeys(given for given, _ in recorder.outer_values[count:]))
    for recorder in recorders:
        own = dict(recorder.outer_values[count:])
        inputs = [value for _, value in recorder.outer_values[:count]]
        for given in used:
            inputs.append(own.get(given) or _unused_input(recorder, given))
        recorder.graph.inputs = inputs
    return [given for given, _ in recorders[0].outer_values[:count]] + list(used)


def _unused_input(recorder: Recorder, given: Value) -> Value:
    return recorder.graph.add_input(
        given.dtype,
        given.hint or (),
        device=given.device,
        name=recorder.next_name(),
        hint=given.hint,
    )


def _finish(outer: Recorder, node: _Structured) -> list[Tensor]:
    """Run a node whose graphs are recorded, and record it."""
    with _overrides_off():
        return _run(outer, node)


def _run(outer: Recorder, node: _Structured) -> list[Tensor]:
    operands = [outer.tensor_of(value) for value in node.args]
    if _wants_grad(operands):
        raise CaptureError(
            f"{node.kind} at {node.source}: gradients do not flow through branches and loops while a program is captured; run "
            "it under no_grad()"
        )
    outer.check_writes(node)
    outer.save_written(node, operands)
    runner = _Runner(outer.root().graph, with_grad=False)
    runner.env = dict(zip(node.args, operands, strict=True))
    with layers_off():
        results = runner.structured(node)
    return outer.record_results(node, results)


def _wants_grad(operands: Sequence[Tensor]) -> bool:
    return is_grad_enabled() and any(tensor.requires_grad for tensor in operands)
