"""Parameters, buffers and parts of a module by their dotted names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rabbet import Tensor

__all__ = ["NamedMemberAccessor", "set_tensor", "swap_submodule", "swap_tensor"]

_MISSING = object()


def _table(module: Any, name: str) -> dict[str, Any] | None:
    """The module's table of tensors that holds a name."""
    for table in (module._parameters, module._buffers):
        if name in table:
            found: dict[str, Any] = table
            return found
    return None


def _checked_name(name: str, kind: str) -> str:
    if "." in name:
        raise KeyError(f'{kind} name can\'t contain "."')
    if name == "":
        raise KeyError(f'{kind} name can\'t be empty string ""')
    return name


def set_tensor(module: Any, name: str, tensor: Tensor) -> None:
    """Put a tensor in place of a parameter or buffer, or set it as an attribute."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Any, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Put a tensor in place of a parameter, buffer or attribute; returns the former one.

    Raises:
        AttributeError: if there is none, without `allow_missing`.
        KeyError: for names that are empty or have dots.
        TypeError: for what is no tensor, before or after.
    """
    _checked_name(name, "tensor")
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    table = _table(module, name)
    if table is not None:
        before = table[name]
        if tensor is _MISSING:
            del table[name]
        else:
            table[name] = tensor
        return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    if before is not _MISSING and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is _MISSING:
        if hasattr(module, name):
            delattr(module, name)
    else:
        setattr(module, name, tensor)
    return before


def swap_submodule(module: Any, name: str, submodule: Any) -> Any:
    """Put a module in place of a part; returns the former one.

    Raises:
        KeyError: if there is no such part.
    """
    _checked_name(name, "submodule")
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    before = module._modules[name]
    module._modules[name] = submodule
    return before


class NamedMemberAccessor:
    """Reads and swaps the members of a module by dotted names.

    Args:
        module: at the top of the names.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.memo: dict[str, Any] = {}

    def get_submodule(self, name: str) -> Any:
        """The part of that name; the module itself for ""."""
        if name not in self.memo:
            self.memo[name] = self.module.get_submodule(name)
        return self.memo[name]

    def _split(self, name: str) -> tuple[Any, str]:
        path, _, attribute = name.rpartition(".")
        return self.get_submodule(path), attribute

    def get_tensor(self, name: str) -> Tensor:
        """The tensor of that name."""
        module, attribute = self._split(name)
        found = getattr(module, attribute)
        if not isinstance(found, Tensor):
            raise TypeError(f"attribute `{name}` is not a torch.Tensor")
        return found

    def set_tensor(self, name: str, value: Tensor) -> None:
        """Put a tensor in place of that of a name."""
        module, attribute = self._split(name)
        set_tensor(module, attribute, value)

    def del_tensor(self, name: str) -> None:
        """Take a tensor away."""
        module, attribute = self._split(name)
        swap_tensor(module, attribute, _MISSING)

    def swap_tensor(self, name: str, value: Any, allow_missing: bool = False) -> Any:
        """Put a tensor in place of that of a name; returns the former one."""
        module, attribute = self._split(name)
        return swap_tensor(module, attribute, value, allow_missing)

    def swap_submodule(self, path: str, value: Any) -> Any:
        """Put a module in place of a part; returns the former one."""
        module, attribute = self._split(path)
        self.memo = {}
        return swap_submodule(module, attribute, value)

    def get_tensors(self, names: Iterable[str]) -> list[Tensor]:
        """The tensors of these names."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Tensor]) -> None:
        """Put tensors in place of those of these names."""
        for name, value in zip(names, values, strict=True):
            self.set_tensor(name, value)

    def set_tensors_dict(self, named_tensors: dict[str, Tensor]) -> None:
        """Put tensors in place of those of these names."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names: Iterable[str]) -> None:
        """Take the tensors of these names away."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(
        self, names: Iterable[str], values: Iterable[Any], allow_missing: bool = False
    ) -> list[Any]:
        """Put tensors in place of those of these names; returns the former ones."""
        pairs = zip(names, values, strict=True)
        return [self.swap_tensor(name, value, allow_missing) for name, value in pairs]

    def swap_tensors_dict(
        self, named_tensors: dict[str, Any], allow_missing: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Put tensors in place of those of these names; returns the former ones, and the names that had none."""
        before: dict[str, Any] = {}
        missing: list[str] = []
        try:
            for name, value in named_tensors.items():
                before[name] = self.swap_tensor(name, value, allow_missing=True)
                if before[name] is _MISSING:
                    missing.append(name)
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, value in before.items():
                self.swap_tensor(name, value, allow_missing=True)
            raise
        return before, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """Which names of tensors are missing in `keys`, and which keys name none."""
        given, valid = set(keys), {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(valid - given), sorted(given - valid)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The parameters with their names."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their names."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The parameters and buffers with their names."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """The parts with their names."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
