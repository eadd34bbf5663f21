"""The name of `torch._dynamo._trace_wrapped_higher_order_op` that packages import."""

from ..._absent import refusing_class

__all__ = ["TransformGetItemToIndex"]

TransformGetItemToIndex = refusing_class(
    "torch._dynamo._trace_wrapped_higher_order_op",
    "TransformGetItemToIndex",
    "rabbet captures no graphs yet: programs run eagerly",
)
