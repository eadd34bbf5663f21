"""The module `torch.version`: which PyTorch a program may take rabbet for."""

from ..torch_version import TorchVersion
from ..version import cuda, debug, git_version, hip, xpu
from .names import VERSION

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

__version__ = TorchVersion(VERSION)
