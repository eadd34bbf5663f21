"""The names of `torch._subclasses.functional_tensor` that packages import."""

from ..._absent import refusing_class

__all__ = ["FunctionalTensor", "FunctionalTensorMode"]

_MODULE = "torch._subclasses.functional_tensor"
_REASON = "graphs of rabbet hold writes as they are; func.functionalize makes functions functional"
FunctionalTensor = refusing_class(_MODULE, "FunctionalTensor", _REASON)
FunctionalTensorMode = refusing_class(_MODULE, "FunctionalTensorMode", _REASON)
