"""`DataParallel` of one device: calls go to the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..modules.module import Module
from .functions import one_device

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Run `module` on one device; state dicts have its names behind `module.`.

    Args:
        module: what runs.
        device_ids: at most one device.
        output_device, dim: accepted for PyTorch's sake.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        one_device("DataParallel", device_ids)
        self.module = module
        self.device_ids = [] if device_ids is None else list(device_ids)
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
