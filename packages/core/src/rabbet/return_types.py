"""The classes of operators' results with several tensors, such as that of `max(dim)`."""

from . import _C

globals().update(_C.return_types())
__all__ = sorted(_C.return_types())
