"""The names of `torch._ops` that packages import."""

import rabbet

from .._absent import refusing_class

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "ops"]

ops = rabbet.ops
OpOverload: type = vars(rabbet)["_AtenOverload"]
OpOverloadPacket: type = vars(rabbet)["_AtenOperator"]
HigherOrderOperator = refusing_class(
    "torch._ops", "HigherOrderOperator", "rabbet captures no graphs yet: programs run eagerly"
)
