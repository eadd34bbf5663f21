"""Whether new memory is filled while deterministic algorithms are asked for; kept for its query."""

import sys
from types import ModuleType

__all__ = ["fill_uninitialized_memory"]

fill_uninitialized_memory: bool


class _Deterministic(ModuleType):
    """The module, whose one setting is checked."""

    _filled = True

    @property
    def fill_uninitialized_memory(self) -> bool:
        """What was set. Memory is not filled: no kernel reads elements that nothing wrote."""
        return self._filled

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(
                f"fill_uninitialized_memory: expected a bool, got {type(mode).__name__}"
            )
        self._filled = mode


sys.modules[__name__].__class__ = _Deterministic
