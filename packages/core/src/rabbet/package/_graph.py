"""The graph of the dependencies between modules."""

from collections.abc import Iterator
from typing import Any


class DiGraph:
    """A directed graph whose nodes have attributes and keep the order in which they were added."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self._after: dict[str, dict[str, None]] = {}
        self._before: dict[str, dict[str, None]] = {}

    def add_node(self, node: str, **attributes: Any) -> None:
        """Add a node, or add attributes to an existing node."""
        self.nodes.setdefault(node, {}).update(attributes)
        self._after.setdefault(node, {})
        self._before.setdefault(node, {})

    def add_edge(self, source: str, target: str) -> None:
        """Add an edge and, where they are missing, its nodes."""
        self.add_node(source)
        self.add_node(target)
        self._after[source][target] = None
        self._before[target][source] = None

    def __contains__(self, node: object) -> bool:
        return node in self.nodes

    @property
    def edges(self) -> Iterator[tuple[str, str]]:
        """All edges."""
        return ((a, b) for a, after in self._after.items() for b in after)

    def successors(self, node: str) -> Iterator[str]:
        """The targets of the edges that start at a node."""
        return iter(self._known(self._after, node))

    def predecessors(self, node: str) -> Iterator[str]:
        """The sources of the edges that end at a node."""
        return iter(self._known(self._before, node))

    def _known(self, table: dict[str, dict[str, None]], node: str) -> dict[str, None]:
        if node not in table:
            raise ValueError(f"The node {node} is not in the digraph.")
        return table[node]

    def _reached(self, node: str, table: dict[str, dict[str, None]]) -> set[str]:
        found, todo = set(), [node]
        while todo:
            here = todo.pop()
            if here not in found:
                found.add(here)
                todo += self._known(table, here)
        return found

    def path_to(self, node: str) -> list[str]:
        """A path that ends at a node. It follows the first edge into each node back to a node without new predecessors."""
        path = [node]
        while True:
            before = next((n for n in self.predecessors(path[0]) if n not in path), None)
            if before is None:
                return path
            path.insert(0, before)

    def all_paths(self, src: str, dst: str) -> str:
        """The nodes and edges on the paths from one node to another, in Graphviz's DOT language.

        Raises:
            ValueError: if the graph lacks one of the two nodes.
        """
        on_paths = self._reached(src, self._after) & self._reached(dst, self._before)
        return dot((a, b) for a, b in self.edges if a in on_paths and b in on_paths)

    def to_dot(self) -> str:
        """The graph in DOT."""
        return dot(self.edges)


def dot(edges: Iterator[tuple[str, str]]) -> str:
    """Edges in DOT."""
    lines = "\n".join(f'"{a}" -> "{b}";' for a, b in edges)
    return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{lines}\n}}\n"
