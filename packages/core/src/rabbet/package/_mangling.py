"""Names of modules that come from a package: `<torch_package_N>.NAME`, so that they never meet those of the program."""

import itertools
import re

_MANGLED = re.compile(r"(<torch_package_\d+>)(?:\.(.+))?", re.S)
_numbers = itertools.count()


def new_prefix() -> str:
    """The prefix of another importer."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    """Whether a module comes from a package, by its name."""
    return _MANGLED.fullmatch(name) is not None


def demangled(name: str) -> str:
    """The name that the module had in the program that wrote the package."""
    found = _MANGLED.fullmatch(name)
    return name if found is None else found[2] or ""


def prefix_of(name: str) -> str:
    """The prefix of a name; empty if it has none."""
    found = _MANGLED.fullmatch(name)
    return "" if found is None else found[1]
