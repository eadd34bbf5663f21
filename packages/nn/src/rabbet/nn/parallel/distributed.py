"""`DistributedDataParallel` of one process: calls go to the module."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Run `module` in one process; state dicts have its names behind `module.`.

    Several processes (`WORLD_SIZE` above 1) are refused: gradients would not be averaged.

    Args:
        module: what runs; it has parameters that require gradients.
        device_ids: at most one device.
        options: PyTorch's other options, which change nothing in one process.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, *args: Any, **options: Any
    ) -> None:
        super().__init__()
        world = os.environ.get("WORLD_SIZE", "1")
        if world not in ("", "1"):
            raise NotImplementedError(
                "DistributedDataParallel: several processes are not supported yet, "
                f"got WORLD_SIZE={world}"
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                f"device_ids can only be None or contain a single element, got {list(device_ids)}"
            )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter "
                "that requires a gradient."
            )
        self.module = module
        self.device_ids = None if device_ids is None else list(device_ids)
        self.require_backward_grad_sync = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose gradients are not averaged; in one process nothing is."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
