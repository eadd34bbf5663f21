"""The operators that a module calls, as TensorBoard's graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from ..._C import Tensor
from .._python_dispatch import TorchDispatchMode
from .._pytree import tree_leaves

__all__ = ["module_graph"]


def _shape(tensor: Tensor) -> AttrValue:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in tensor.shape])
    return AttrValue(list=AttrValue.ListValue(shape=[shape]))


class _Recorder(TorchDispatchMode):
    """Notes each operator with the scope of the module that called it and the nodes that made its inputs."""

    def __init__(self, root: Any) -> None:
        super().__init__()
        self.graph = GraphDef(versions=VersionDef(producer=22))
        self.scopes = [type(root).__name__]
        self._nodes: dict[int, str] = {}  # by the identity of a tensor
        self._alive: list[Tensor] = []  # so that identities stay theirs
        self._names: set[str] = set()

    def add(
        self, name: str, op: str, inputs: list[str], tensor: Tensor | None, attr: str = ""
    ) -> str:
        unique, count = name, 1
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        attrs = {"attr": AttrValue(s=attr.encode())}
        if tensor is not None:
            attrs["_output_shapes"] = _shape(tensor)
        self.graph.node.append(NodeDef(name=unique, op=op, input=inputs, attr=attrs))
        return unique

    def name(self, tensor: Tensor, node: str) -> None:
        """Remember which node made a tensor."""
        self._nodes[id(tensor)] = node
        self._alive.append(tensor)

    def node_of(self, tensor: Tensor) -> str:
        """The node that made a tensor; a tensor from elsewhere becomes a constant."""
        if id(tensor) not in self._nodes:
            self.name(tensor, self.add(f"{self.scopes[-1]}/constant", "Const", [], tensor))
        return self._nodes[id(tensor)]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs or {}))
        inputs = [self.node_of(x) for x in leaves if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        short = func.name().partition(".")[0]
        others = ", ".join(str(x) for x in leaves if not isinstance(x, Tensor))
        node = self.add(
            f"{self.scopes[-1]}/{short.rpartition(':')[2]}", short, inputs, made[0] if made else None, others
        )  # fmt: skip
        for tensor in made:
            self.name(tensor, node)
        return result


@contextlib.contextmanager
def _scopes(module: Any, recorder: _Recorder) -> Iterator[None]:
    """Let the recorder know which submodule runs, as 'Net/Linear[l]'."""
    titles = {id(child): f"{type(child).__name__}[{name.rpartition('.')[2]}]" for name, child in module.named_modules()}  # fmt: skip

    def enter(child: Any, args: Any) -> None:
        if child is not module:
            recorder.scopes.append(f"{recorder.scopes[-1]}/{titles[id(child)]}")

    def leave(child: Any, args: Any, result: Any) -> None:
        if child is not module:
            recorder.scopes.pop()

    handles = []
    for child in module.modules():
        handles.append(child.register_forward_pre_hook(enter))
        handles.append(child.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def module_graph(module: Any, inputs: Any) -> GraphDef:
    """Run a module once and return its operators, with parameters and inputs as nodes of their own."""
    recorder = _Recorder(module)
    root = type(module).__name__
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        scope = "/".join([root, *name.split(".")])
        recorder.name(tensor, recorder.add(scope, "Parameter", [], tensor))
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    for i, tensor in enumerate(x for x in tree_leaves(args) if isinstance(x, Tensor)):
        recorder.name(tensor, recorder.add(f"input/{i}", "IO Node", [], tensor))
    with _scopes(module, recorder), recorder:
        result = module(*args)
    for i, tensor in enumerate(x for x in tree_leaves(result) if isinstance(x, Tensor)):
        recorder.add(f"output/{i}", "IO Node", [recorder.node_of(tensor)], tensor)
    return recorder.graph
