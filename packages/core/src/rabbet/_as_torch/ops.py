"""The names of `torch._ops` that packages import."""

import rabbet

from .._absent import refusing_class
from .._aten import OpOverload, OpOverloadPacket

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "ops"]

ops = rabbet.ops
HigherOrderOperator = refusing_class(
    "torch._ops",
    "HigherOrderOperator",
    "rabbet has none of PyTorch's compilers; rabbet.graph captures programs",
)
