"""What a recorded graph looks like, and what it keeps in memory."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rabbet import Tensor

from . import _C

Node = _C.Node


def _checked(name: str, outputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    tensors = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    for t in tensors:
        if not isinstance(t, Tensor):
            raise TypeError(f"{name}: expected a Tensor or several, got {type(t).__name__}")
        if not t.requires_grad:
            raise RuntimeError(f"{name}: the tensor does not require grad: nothing was recorded")
    return tensors


def _nodes(outputs: list[Tensor]) -> Iterator[Node]:
    """All nodes that backward from `outputs` could run, each once, before those that it leads to."""
    left = [_C.gradient_edge(t)[0] for t in reversed(outputs)]
    seen = set()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        left += [after for after, _ in reversed(node.next_functions) if after is not None]


def _kind(x: Tensor) -> str:
    return f"{x.dtype.name}{tuple(x.shape)}"


# ---- memory


class Entry(NamedTuple):
    """One piece of memory that a graph keeps."""

    nbytes: int
    what: str  # dtype and shape of the tensor that is kept
    node: str
    argument: str
    line: str | None  # where the program made the node
    is_leaf: bool  # it belongs to a leaf, which lives without the graph, too


class MemoryReport:
    """What a graph keeps, largest first; `print` it.

    Attributes:
        entries: one for each storage.
        nbytes: of all that are not the memory of leaves.
        packed: how many tensors hooks have packed, whose size nobody knows.
    """

    def __init__(self, entries: list[Entry], packed: int, nodes: int) -> None:
        self.entries = sorted(entries, key=lambda e: -e.nbytes)
        self.nbytes = sum(e.nbytes for e in entries if not e.is_leaf)
        self.packed = packed
        self.nodes = nodes

    def __str__(self) -> str:
        lines = [f"{self.nodes} nodes keep {self.nbytes:,} bytes besides leaves"]
        if self.packed:
            lines.append(f"{self.packed} more tensors are packed by saved-tensors hooks")
        for e in self.entries:
            leaf = " (leaf)" if e.is_leaf else ""
            line = f"  {e.line}" if e.line else ""
            lines.append(f"{e.nbytes:>14,}  {e.what:<28} {e.node}.{e.argument}{leaf}{line}")
        if self.entries and all(e.line is None for e in self.entries):
            lines.append("(record inside of autograd.graph.keep_lines() to see the lines)")
        return "\n".join(lines)

    __repr__ = __str__


def _kept(node: Node) -> Iterator[tuple[str, Tensor | None]]:
    of_function = getattr(node, "_kept_tensors", None)  # of the ctx of a user's Function
    if of_function is not None:
        yield from of_function()  # attributes stay when the saved tensors are freed
        return
    if node._is_freed():
        return
    for number, (name, _, is_kept, is_packed) in enumerate(node._saved_names()):
        if is_packed:
            yield name, None
        elif is_kept:
            value = node._load(number)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor):
                    yield name, tensor


def memory_report(outputs: Tensor | Sequence[Tensor]) -> MemoryReport:
    """Return what the graph of `outputs` keeps for backward, largest first, with the lines that made it.

    Nothing is unpacked. Lines are known of what was recorded inside of `keep_lines()`. Of a
    `Function` what its ctx keeps counts: saved tensors, and attributes that are tensors or hold some.
    """
    entries: dict[int, Entry] = {}
    packed = nodes = 0
    for node in _nodes(_checked("memory_report", outputs)):
        nodes += 1
        for name, tensor in _kept(node):
            if tensor is None:
                packed += 1
                continue
            storage = tensor.untyped_storage()
            is_leaf = tensor.is_leaf and tensor.requires_grad
            known = entries.get(storage.data_ptr())
            if known is None:
                entries[storage.data_ptr()] = Entry(
                    storage.nbytes(), _kind(tensor), node.name(), name, node._source(), is_leaf
                )
            elif is_leaf and not known.is_leaf:
                entries[storage.data_ptr()] = known._replace(is_leaf=True)
    return MemoryReport(list(entries.values()), packed, nodes)


# ---- drawing


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _dot(outputs: list[Tensor], names: Mapping[str, Tensor]) -> str:
    known = {id(tensor): name for name, tensor in names.items()}
    numbers: dict[Node, int] = {}
    lines = ["digraph tape {", "  rankdir=BT;", "  node [shape=box, fontname=monospace];"]
    edges = []
    for node in _nodes(outputs):
        at = numbers.setdefault(node, len(numbers))
        label, style = type(node).__name__, ""
        if label == "AccumulateGrad":
            leaf = node.variable
            label = f"{known.get(id(leaf), 'leaf')}\n{_kind(leaf)}"
            style = ", style=filled, fillcolor=lightblue"
        elif node._source():
            label += f"\n{node._source()}"
        lines.append(f"  n{at} [label={_quoted(label)}{style}];")
        for after, _ in node.next_functions:
            if after is not None:
                edges.append((numbers.setdefault(after, len(numbers)), at))
    lines += [f"  n{a} -> n{b};" for a, b in edges]
    for i, output in enumerate(outputs):
        node = _C.gradient_edge(output)[0]
        label = f"{known.get(id(output), 'output')}\n{_kind(output)}"
        lines.append(f"  out{i} [label={_quoted(label)}, style=filled, fillcolor=lightgrey];")
        lines.append(f"  n{numbers[node]} -> out{i};")
    return "\n".join([*lines, "}"]) + "\n"


def draw(outputs: Tensor | Sequence[Tensor], *, names: Mapping[str, Tensor] | None = None) -> str:
    """Return the graph of `outputs` as SVG, or as Graphviz's text where the program `dot` is not installed.

    Args:
        names: names of tensors, such as `dict(model.named_parameters())`.

    Raises:
        RuntimeError: if a tensor has no history, or `dot` fails.
    """
    text = _dot(_checked("draw", outputs), names or {})
    program = shutil.which("dot")
    if program is None:
        return text
    done = subprocess.run(
        [program, "-Tsvg"], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"draw: dot failed with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout
