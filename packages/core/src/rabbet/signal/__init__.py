"""Functions for signals; `rabbet.signal.windows` has windows."""

from . import windows

__all__ = ["windows"]
