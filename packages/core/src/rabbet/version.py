"""Versions of rabbet and of the platforms that this build knows."""

from . import _C

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

__version__ = _C.__version__
debug = False
git_version = "unknown"
# Devices come from backends in wheels of their own: core is built for none.
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
