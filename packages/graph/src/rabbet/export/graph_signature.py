"""The kinds of the inputs and outputs of an exported program."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from ..graph import Graph, Value

__all__ = [
    "ConstantArgument",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "SymIntArgument",
    "TensorArgument",
]


class InputKind(enum.Enum):
    """What an input is."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    """The kind of an output. Graphs write buffers and inputs in place, so all outputs are results of the program."""

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


@dataclasses.dataclass
class TensorArgument:
    """A tensor, by the name of its value."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """A size, as the text of its expression."""

    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A plain value."""

    name: str
    value: int | float | bool | str | None


@dataclasses.dataclass
class InputSpec:
    """An input: its kind, its value, the name of the state that it is, and whether a buffer is in state dicts."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None


@dataclasses.dataclass
class OutputSpec:
    """An output."""

    kind: OutputKind
    arg: Any
    target: str | None = None


@dataclasses.dataclass
class ExportBackwardSignature:
    """The names of gradients and the loss; rabbet's exported programs have none."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported program."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]
    mutated: frozenset[str] = frozenset()

    def _targets(self, kind: InputKind) -> list[InputSpec]:
        return [spec for spec in self.input_specs if spec.kind is kind]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(str(spec.target) for spec in self._targets(InputKind.PARAMETER))

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the buffers."""
        return tuple(str(spec.target) for spec in self._targets(InputKind.BUFFER))

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Names of the buffers that are not in state dicts."""
        return tuple(
            str(spec.target) for spec in self._targets(InputKind.BUFFER) if not spec.persistent
        )

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """Names of the constants."""
        return tuple(str(spec.target) for spec in self._targets(InputKind.CONSTANT_TENSOR))

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """The names of the values that callers pass, and plain arguments."""
        return tuple(map(_shown, (spec.arg for spec in self._targets(InputKind.USER_INPUT))))

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """The names of the values that callers get, and plain results."""
        return tuple(_shown(spec.arg) for spec in self.output_specs)

    def _names(self, kind: InputKind) -> Mapping[str, str]:
        return {spec.arg.name: str(spec.target) for spec in self._targets(kind)}

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Names of values to names of parameters."""
        return self._names(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Names of values to names of buffers."""
        return self._names(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Names of values to names of constants."""
        return self._names(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """The buffers that a run writes, in place: names of values to names of buffers."""
        return {k: v for k, v in self.inputs_to_buffers.items() if k in self.mutated}

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """The arguments that a run writes, in place."""
        return {str(name): str(name) for name in self.user_inputs if name in self.mutated}

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """None: exported programs have no backward pass."""
        return None


def _shown(arg: Any) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


_KINDS = {
    "input": InputKind.USER_INPUT,
    "parameter": InputKind.PARAMETER,
    "buffer": InputKind.BUFFER,
    "constant": InputKind.CONSTANT_TENSOR,
}


def signature_of(graph: Graph) -> ExportGraphSignature:
    """The signature of a graph: state first, then the arguments in the order of the call."""
    state = [_input_spec(value) for value in graph.inputs if value.kind != "input"]
    tensors = iter(graph.user_inputs())
    count = len(graph.static) + len(graph.user_inputs())
    passed = [
        InputSpec(
            InputKind.USER_INPUT,
            ConstantArgument(f"arg_{i}", graph.static[i])
            if i in graph.static
            else TensorArgument(next(tensors).name),
            None,
        )
        for i in range(count)
    ]
    written = graph.written()
    mutated = frozenset(value.name for value in graph.inputs if value.buffer in written)
    outputs = [
        OutputSpec(OutputKind.USER_OUTPUT, _output_argument(i, output))
        for i, output in enumerate(graph.outputs)
    ]
    return ExportGraphSignature([*state, *passed], outputs, mutated)


def _input_spec(value: Value) -> InputSpec:
    persistent = not value.transient if value.kind == "buffer" else None
    return InputSpec(_KINDS[value.kind], TensorArgument(value.name), value.label, persistent)


def _output_argument(i: int, output: Any) -> Any:
    from ..graph import Size

    if isinstance(output, Value):
        return TensorArgument(output.name)
    if isinstance(output, Size):
        return SymIntArgument(str(output))
    return ConstantArgument(f"output_{i}", output)
