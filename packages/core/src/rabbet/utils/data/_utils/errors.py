"""Errors that travel from a worker to the loop that reads its batches."""

import sys
import traceback
from typing import Any, NoReturn

__all__ = ["ExceptionWrapper"]


class ExceptionWrapper:
    """The exception being handled, as its class and text; `reraise` raises it elsewhere."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, error, trace))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raise an exception of the same class that tells where it came from."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(_Lines(text))
        try:
            error = self.exc_type(text)
        except Exception:  # its constructor wants something else
            raise RuntimeError(text) from None
        raise error


class _Lines(str):
    """A text whose repr keeps its lines, as KeyError shows the repr."""

    def __repr__(self) -> str:
        return str(self)
