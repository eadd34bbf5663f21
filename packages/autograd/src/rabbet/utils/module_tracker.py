"""Which modules run at the moment, in forward and in backward."""

from __future__ import annotations

import contextlib
import importlib
import logging
from typing import Any, Self

from rabbet import Tensor
from rabbet._pytree import tensors_in
from rabbet.autograd import _C as tape
from rabbet.autograd import is_grad_enabled

__all__ = ["ModuleTracker"]

logger = logging.getLogger(__name__)


class ModuleTracker:
    """Context manager that knows which modules run, so that tools can attribute what they measure.

    The names of submodules are their keys in the hierarchy behind the class of its root, such as "Net.layers.0". A module
    runs from the start of its forward to the end, and in backward from the first gradient of its outputs to the last one of
    its inputs. A module of whose inputs one gets no gradient runs until the end of that backward.

    Example:
        >>> class Layer(rabbet.nn.Linear):
        ...     def forward(self, x):
        ...         print(sorted(tracker.parents), tracker.is_bw)
        ...         return super().forward(x)
        >>> with ModuleTracker() as tracker:
        ...     out = Layer(2, 2)(rabbet.rand(1, 2))
        ['Global', 'Layer'] False
    """

    def __init__(self) -> None:
        self._forward: dict[str, int] = {"Global": 1}  # how often each module is entered
        self._backward: dict[
            str, tuple[int, int]
        ] = {}  # the run, and how often it is in the module
        self._names: dict[int, tuple[Any, str]] = {}  # by id; keeps the module alive with its name
        self._handles: list[Any] = []
        self._pass = 0  # counts uses of the context; hooks of a former one do nothing
        self._is_active = False

    @property
    def parents(self) -> set[str]:
        """The names of the modules that run; "Global" is always one of them."""
        return {*self._forward, *self._inside_backward()}

    @property
    def innermost(self) -> str:
        """The module that was entered last of those that run; "Global" outside of all. PyTorch's has no such attribute."""
        return (self._inside_backward() or list(self._forward))[-1]

    def _inside_backward(self) -> list[str]:
        run = tape.current_run()
        return [name for name, (of, _) in list(self._backward.items()) if of == run > 0]

    @property
    def is_bw(self) -> bool:
        """Whether this thread runs a backward pass."""
        return tape.current_run() > 0

    def get_known_fqn(self, mod: Any) -> str | None:
        """The name of a module that the tracker has seen, or whose parent it has seen; None for others."""
        known = self._names.get(id(mod))
        return None if known is None else known[1]

    def __enter__(self) -> Self:
        if self._is_active:
            raise RuntimeError("ModuleTracker: the tracker is active already; use another one")
        self._is_active = True
        self._pass += 1
        self._forward = {"Global": 1}
        self._backward = {}
        with contextlib.suppress(ImportError):  # without rabbet-nn there are no modules
            module = importlib.import_module("rabbet.nn.modules.module")
            self._handles = [
                module.register_module_forward_pre_hook(self._before),
                module.register_module_forward_hook(self._after, always_call=True),
            ]
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_active = False
        self._pass += 1
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._names.clear()
        self._forward = {"Global": 1}
        self._backward = {}

    def _name(self, module: Any) -> str:
        if id(module) not in self._names:
            root = type(module).__name__
            for path, part in module.named_modules():
                self._names[id(part)] = (part, f"{root}.{path}" if path else root)
        return self._names[id(module)][1]

    def _before(self, module: Any, inputs: Any) -> None:
        name = self._name(module)
        if name in self._forward:
            logger.info("ModuleTracker: %s was entered again before it was left", name)
        self._forward[name] = self._forward.get(name, 0) + 1
        found = self._differentiable(inputs)
        self._count_at_gradient(found, len(found), name, -1)

    def _after(self, module: Any, inputs: Any, output: Any) -> None:
        name = self._name(module)
        left = self._forward.pop(name, 1) - 1
        if left > 0:
            self._forward[name] = left
        self._count_at_gradient(self._differentiable(output), 1, name, 1)

    def _count(self, name: str, more: int) -> None:
        """Enter or leave a module in the run of backward that calls."""
        run = tape.current_run()
        of, count = self._backward.get(name, (run, 0))
        count = more + (count if of == run else 0)
        if count > 0:
            self._backward[name] = run, count
        else:
            self._backward.pop(name, None)

    def _differentiable(self, values: Any) -> list[Tensor]:
        return [x for x in tensors_in(values) if x.requires_grad] if is_grad_enabled() else []

    def _count_at_gradient(self, tensors: list[Tensor], wanted: int, name: str, more: int) -> None:
        """Count when a run of backward has the gradients of so many of the tensors.

        The hooks refer to nothing but their counters. With `register_multi_grad_hook` they would refer to nodes of the
        graph, which refer to the hooks, and no collector sees that cycle.
        """
        begun, state = self._pass, [0, 0]  # the run, and how many gradients it has

        def take(_: Tensor) -> None:
            run = tape.current_run()
            if state[0] != run:
                state[:] = run, 0
            state[1] += 1
            if state[1] == wanted and self._pass == begun:
                self._count(name, more)

        for x in tensors:
            handle = x.register_hook(take)
            if x.is_leaf:  # other hooks end with their graph
                self._handles.append(handle)
