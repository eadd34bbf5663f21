"""Functions of `nn.functional` that modules look up when they are called, so that a replaced one is used."""

from collections.abc import Callable
from typing import Any

from .. import functional as F


class LateFunction:
    """A class attribute that is the function of this name at the time it is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(F, self._name)
        return function
