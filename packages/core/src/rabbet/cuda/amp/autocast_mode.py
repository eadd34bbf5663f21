"""`cuda.amp.autocast` and its decorators under the name of their module in PyTorch."""

from . import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
