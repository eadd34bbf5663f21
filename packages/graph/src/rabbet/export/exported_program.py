"""Exported programs: a graph with its state, which can be saved and loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import rabbet

from .. import _C
from .._C import Tensor
from ..graph import CaptureError, Graph, GraphError, parse
from ..graph._capture import captured
from ..utils._pytree import tree_flatten, tree_unflatten
from .dynamic_shapes import Dim, as_dynamic, has_auto
from .graph_signature import ExportGraphSignature, signature_of

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature"]

_FORMAT = "rabbet.export"
_VERSION = 1


class ValueRange(NamedTuple):
    """The sizes that a symbol can have; `upper` is inf where there is no bound."""

    lower: int
    upper: float


@dataclasses.dataclass
class ModuleCallSignature:
    """The signature of a submodule's call; rabbet keeps that of the whole program only."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any


@dataclasses.dataclass
class ModuleCallEntry:
    """A submodule that is called, and its signature."""

    fqn: str
    signature: ModuleCallSignature | None = None


class ExportedProgram:
    """A captured module.

    Attributes:
        graph: the `rabbet.graph.Graph`.
        example_inputs: `(args, kwargs)` of the capture; None after `load`.
    """

    def __init__(self, graph: Graph, example_inputs: Any = None) -> None:
        self.graph = graph
        self.example_inputs = example_inputs

    def module(self, check_guards: bool = True) -> Any:
        """A module that runs the program, with its parameters and buffers; it has no training mode to set."""
        from ._module import ExportedModule

        return ExportedModule(self.graph)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What inputs and outputs are."""
        return signature_of(self.graph)

    @property
    def range_constraints(self) -> dict[str, ValueRange]:
        """The sizes that may change, by symbol."""
        return {
            s.name: ValueRange(s.low, float("inf") if s.high is None else s.high)
            for s in self.graph.symbols.values()
        }

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers by name."""
        return {
            label: tensor
            for label, tensor, kind, transient in self._state()
            if kind in ("parameter", "buffer") and not transient
        }

    @property
    def constants(self) -> dict[str, Tensor]:
        """Constants and buffers that are not in the state dict, by name."""
        return {
            label: tensor
            for label, tensor, kind, transient in self._state()
            if kind == "constant" or transient
        }

    tensor_constants = constants

    def _state(self) -> Iterator[tuple[str, Tensor, str, bool]]:
        for value in self.graph.inputs:
            if value.kind != "input":
                label = str(value.label)
                yield label, self.graph.bound[label], value.kind, value.transient

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters with their names."""
        return ((label, t) for label, t, kind, _ in self._state() if kind == "parameter")

    def parameters(self) -> Iterator[Tensor]:
        """Parameters."""
        return (tensor for _, tensor in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their names."""
        return ((label, t) for label, t, kind, _ in self._state() if kind == "buffer")

    def buffers(self) -> Iterator[Tensor]:
        """Buffers."""
        return (tensor for _, tensor in self.named_buffers())

    @property
    def call_spec(self) -> Any:
        """The containers of arguments and results."""
        return _CallSpec(self.graph.in_spec, self.graph.out_spec)

    @property
    def graph_module(self) -> Any:
        """`module()`: rabbet's graphs have one form."""
        return self.module()

    def run_decompositions(self, decomp_table: Any = None, **options: Any) -> ExportedProgram:
        """PyTorch's lowering to core ATen operators, which rabbet's records do not have.

        Raises:
            NotImplementedError: always.
        """
        raise _C.NotImplementedForError(
            "ExportedProgram.run_decompositions: rabbet's graphs hold rabbet's operators, and are not lowered to others"
        )

    def __str__(self) -> str:
        return f"ExportedProgram:\n{self.graph}Range constraints: {self.range_constraints}\n"

    def __repr__(self) -> str:
        return f"<ExportedProgram of {self.graph!r}>"


class _CallSpec(NamedTuple):
    in_spec: Any
    out_spec: Any


def default_decompositions() -> Any:
    """PyTorch's table of decompositions, which rabbet's graphs do not need.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        "export.default_decompositions: rabbet's graphs hold rabbet's operators, and are not lowered to others"
    )


def export_module(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """`export`."""
    if not (hasattr(mod, "named_parameters") and hasattr(mod, "forward")):
        raise TypeError(f"export: expected a Module, got {type(mod).__name__}")
    if not isinstance(args, tuple):
        raise TypeError(f"export: expected a tuple of example arguments, got {type(args).__name__}")
    if not isinstance(kwargs, Mapping):
        raise TypeError(
            f"export: expected a dict of keyword arguments, got {type(kwargs).__name__}"
        )
    try:
        graph = captured(
            mod, args, dict(kwargs), as_dynamic(_checked(dynamic_shapes, args), True), undo=True
        )
    except CaptureError:
        if not has_auto(dynamic_shapes):
            raise
        shapes = as_dynamic(dynamic_shapes, False)
        graph = captured(mod, args, dict(kwargs), shapes, undo=True)
    return ExportedProgram(graph, (args, dict(kwargs)))


def _checked(shapes: Any, args: tuple[Any, ...]) -> Any:
    """Dimensions that are AUTO or DYNAMIC and have the size 0 or 1 cannot be dynamic: AUTO leaves them static."""
    if isinstance(shapes, (list, tuple)) and len(shapes) == len(args):
        return [_checked_one(s, a) for s, a in zip(shapes, args, strict=True)]
    return shapes


def _checked_one(shapes: Any, arg: Any) -> Any:
    if not isinstance(arg, Tensor) or not isinstance(shapes, (Mapping, list, tuple)):
        return shapes
    items = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes)
    return {d: s for d, s in items if not (s is Dim.AUTO and arg.shape[d] < 2)}


# ---- files


def _plain_tree(spec: Any) -> Any:
    """The containers of a call with numbers for leaves, as files hold them."""
    return None if spec is None else tree_unflatten(list(range(spec.num_leaves)), spec)


def save_program(
    ep: ExportedProgram, f: Any, extra_files: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> None:
    """`save`."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"save: expected an ExportedProgram, got {type(ep).__name__}")
    unknown = set(options) - {"opset_version", "pickle_protocol"}
    if unknown:
        raise TypeError(f"save: got an unexpected keyword argument '{sorted(unknown)[0]}'")
    if ep.graph.objects:
        names = ", ".join(ep.graph.objects)
        raise _C.NotImplementedForError(
            f"save: files cannot hold the objects of the graph: {names}"
        )
    graph = ep.graph
    rabbet.save(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "graph": str(graph),
            "tensors": {label: tensor.detach() for label, tensor in graph.bound.items()},
            "requires_grad": [
                label for label, tensor in graph.bound.items() if tensor.requires_grad
            ],
            "arguments": _plain_tree(graph.in_spec),
            "results": _plain_tree(graph.out_spec),
            "static": dict(graph.static),
            "extra_files": dict(extra_files or {}),
        },
        f,
    )


def load_program(f: Any, extra_files: dict[str, Any] | None) -> ExportedProgram:
    """`load`."""
    content = rabbet.load(f, weights_only=True)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise RuntimeError("load: the file holds no exported program of rabbet")
    if content["version"] > _VERSION:
        raise RuntimeError(
            f"load: the file has version {content['version']}, which is newer than this rabbet-graph reads ({_VERSION})"
        )
    tensors = {
        label: _loaded(tensor, label in content["requires_grad"])
        for label, tensor in content["tensors"].items()
    }
    graph = parse(content["graph"], tensors)
    try:
        graph.check()
    except GraphError as error:
        raise RuntimeError(f"load: this installation cannot run the program: {error}") from error
    graph.in_spec = None if content["arguments"] is None else tree_flatten(content["arguments"])[1]
    graph.out_spec = None if content["results"] is None else tree_flatten(content["results"])[1]
    graph.static = content["static"]
    for name in extra_files or ():
        extra_files[name] = content["extra_files"].get(name, "")  # type: ignore[index]
    return ExportedProgram(graph)


def _loaded(tensor: Tensor, requires_grad: bool) -> Tensor:
    return tensor.requires_grad_() if requires_grad else tensor
