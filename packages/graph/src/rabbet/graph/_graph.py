"""`Graph`: the data of a graph, with queries, checks, edits and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._C import Tensor
from . import _edit, _run
from ._check import check
from ._ir import GraphData, Node, Value
from ._text import graph_text


class Graph(GraphData):
    """Calls of operators in program order, on values in memory.

    Attributes:
        name: what it was captured from.
        inputs: the values from outside, with the parameters, buffers and constants that the program used.
        nodes: in program order. Writes take place in this order, and so do draws of random numbers.
        outputs: a Value, Size or plain constant for each leaf of what the program returned.
        symbols: sizes of inputs that may change, by name.
        constraints: what has to hold of them.
        bound: the tensors of parameters, buffers and constants, keyed by label: the program's own, not copies.
        objects: what `Object` arguments stand for.
        in_spec, out_spec: the containers of arguments and results; None: flat.
        static: the plain arguments of the captured call, by position among all leaves.
        gradients: what `.grad` of inputs is after the call.
        training: whether the captured module was in training mode; None for functions.
        opaque: the line of an `autograd.Function`, or None: with one no gradient flows through the graph.
    """

    def __str__(self) -> str:
        return graph_text(self)

    # ---- making

    def call(
        self,
        op: str,
        *args: Any,
        outs: Sequence[Value] = (),
        before: Node | None = None,
        **keywords: Any,
    ) -> Any:
        """Add a call of an operator, at the end or before a node.

        Arguments are those of the record, by position or keyword; what is left out has its default. Shapes and dtypes
        of the results follow from the record.

        Returns:
            The result, or a tuple of them; `outs` for a call that writes.

        Raises:
            GraphError: if the arguments do not fit the record.
        """
        return _edit.insert_call(self, op, args, keywords, tuple(outs), before)

    # ---- editing

    def replace_uses(self, old: Value, new: Value, *, after: Node | None = None) -> int:
        """Replace uses of `old` by `new`, everywhere or after a node; returns the number of replaced uses.

        Raises:
            GraphError: if dtype or shape differ.
        """
        return _edit.replace_uses(self, old, new, after)

    def replace(self, node: Node, *results: Value) -> None:
        """Replace the results of a node by `results`, and erase the node."""
        _edit.replace_node(self, node, results)

    def erase(self, node: Node) -> None:
        """Take a node out.

        Raises:
            GraphError: if its results are used.
        """
        _edit.erase(self, node)

    def eliminate_dead(self) -> int:
        """Remove nodes without observable effects; returns their number."""
        return _edit.eliminate_dead(self)

    def merge_common(self) -> int:
        """Merge calls with equal operators and arguments; returns the number of removed nodes."""
        return _edit.merge_common(self)

    def topological_order(self) -> list[Node]:
        """The nodes sorted by what they need; where that leaves a choice, in program order.

        Raises:
            GraphError: if nodes need each other in a circle.
        """
        return _edit.topological_order(self)

    def sort(self) -> None:
        """Put the nodes into topological order."""
        self.nodes[:] = self.topological_order()

    def copy(self) -> Graph:
        """A graph of the same nodes that can be edited on its own; bound tensors are shared."""
        made: Graph = _edit.copy_graph(self)
        return made

    def check(self) -> None:
        """Check everything: names, arguments, types, shapes, memory and order.

        Raises:
            GraphError: naming each fault with its node, operator, what was expected and what was found.
        """
        check(self)

    # ---- running

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph on arguments like those of the captured call; see `rabbet.graph.run`."""
        return _run.run(self, args, kwargs)

    def bind(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the tensors of parameters, buffers and constants by label.

        Raises:
            GraphError: if the graph has no such label, or the tensor does not fit.
        """
        _run.bind(self, tensors)
