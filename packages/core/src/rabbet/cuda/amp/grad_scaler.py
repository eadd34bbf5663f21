"""`cuda.amp.GradScaler` under the name of its module in PyTorch."""

from ...amp.grad_scaler import OptState as OptState
from . import GradScaler

__all__ = ["GradScaler"]
