"""`OptimizedModule`: what `compile` gives for a module."""

from collections.abc import Callable, Iterator
from typing import Any

from rabbet import nn

from ._region import in_region

__all__ = ["OptimizedModule"]

_OWN = ("_orig_mod", "_compiled", "_wrap")


class OptimizedModule(nn.Module):
    """A module whose calls are replayed or run in a region. It shares parameters, buffers and all else with `_orig_mod`.

    As PyTorch's class of the name: attributes are read from and set on the module that was compiled, and the names of
    parameters in `state_dict()` begin with "_orig_mod.".
    """

    _is_optimized_module = True

    _orig_mod: Any

    def __init__(
        self,
        module: nn.Module,
        wrap: Callable[[Callable[..., Any]], Callable[..., Any]] = in_region,
    ) -> None:
        super().__init__()
        self._orig_mod = module
        object.__setattr__(self, "_wrap", wrap)
        object.__setattr__(self, "_compiled", wrap(module))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module, or replay a recorded call."""
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or "_orig_mod" not in self.__dict__.get("_modules", ()):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def train(self, mode: bool = True) -> "OptimizedModule":
        """Put the module into training mode, or out of it."""
        self.__dict__["training"] = mode
        self._orig_mod.train(mode)
        return self

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) | set(dir(self._orig_mod)))

    def __reduce__(self) -> Any:
        return OptimizedModule, (self._orig_mod, self._wrap)
