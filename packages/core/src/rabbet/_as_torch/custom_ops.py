"""`torch._custom_ops`, which packages import beside `torch.library`; what they look for in it is in `library`."""

from .._absent import refusing_function

__all__ = ["get_ctx"]

get_ctx = refusing_function(
    "torch._custom_ops", "get_ctx", "sizes that values decide are not symbols in rabbet"
)
