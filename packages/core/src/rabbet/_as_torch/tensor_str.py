"""The private names of `torch._tensor_str` that packages import."""

from .._printing import _body as _tensor_str
from .._printing import _options as PRINT_OPTS

__all__ = ["PRINT_OPTS", "_tensor_str"]
