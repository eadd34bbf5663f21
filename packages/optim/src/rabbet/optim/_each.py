"""The loop of optimizers that step one parameter at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rabbet import Tensor
from rabbet.autograd import enable_grad, no_grad

from .optimizer import Optimizer


class EachParameter(Optimizer):
    """Subclasses say how one parameter with a gradient changes."""

    _number_state = frozenset({"step"})

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        """Change `param` in place; `state` is empty at first. Nothing is recorded."""
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; returns the closure's loss."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        self._step_one(group, param, param.grad, self.state[param])
        return loss


def check_option(ok: bool, text: str, value: Any) -> None:
    """Raise ValueError `text: value` unless the option is right."""
    if not ok:
        raise ValueError(f"{text}: {value}")
