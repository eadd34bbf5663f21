"""The recorded graph: node objects."""

from typing import NamedTuple

from rabbet import Tensor

from . import _C

Node = _C.Node
RemovableHandle = _C.RemovableHandle


class GradientEdge(NamedTuple):
    """Where the gradient of a tensor flows: a node and the number of its output."""

    node: Node
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the edge of a tensor that requires grad; a leaf gives its AccumulateGrad."""
    node, output = _C.gradient_edge(tensor)
    if node is None:
        raise RuntimeError("get_gradient_edge: the tensor does not require grad")
    return GradientEdge(node, output)
