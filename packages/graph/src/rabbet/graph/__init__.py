"""Programs as graphs: captured, printed, parsed, checked, edited and run.

    graph = rabbet.graph.capture(model, x, dynamic={"input": {0: "batch"}})
    print(graph)
    graph.run(other)

The guide is docs/tutorial/graphs.md.
"""

from typing import TYPE_CHECKING, Any

from ._capture import capture
from ._control import cond, while_loop
from ._graph import Graph
from ._ir import Buffer, Call, GraphError, If, Node, Object, Value, While
from ._parse import ParseError, parse
from ._run import InputError
from ._sizes import Constraint, Dim, Size, Symbol
from ._symbols import CaptureError

if TYPE_CHECKING:
    from ._module import GraphModule

__all__ = [
    "Buffer",
    "Call",
    "CaptureError",
    "Constraint",
    "Dim",
    "Graph",
    "GraphError",
    "GraphModule",
    "If",
    "InputError",
    "Node",
    "Object",
    "ParseError",
    "Size",
    "Symbol",
    "Value",
    "While",
    "capture",
    "cond",
    "parse",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    if name == "GraphModule":  # needs the wheel rabbet-nn
        from ._module import GraphModule

        return GraphModule
    raise AttributeError(f"module 'rabbet.graph' has no attribute '{name}'")
