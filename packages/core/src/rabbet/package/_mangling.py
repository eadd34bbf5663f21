"""Names of modules imported from a package. They have the form `<torch_package_N>.NAME`, which no module of the program has."""

import itertools
import re

_MANGLED = re.compile(r"(<torch_package_\d+>)(?:\.(.+))?", re.S)
_numbers = itertools.count()


def new_prefix() -> str:
    """A prefix for a new importer."""
    return f"<torch_package_{next(_numbers)}>"


def is_mangled(name: str) -> bool:
    """Whether a name is that of a module imported from a package."""
    return bool(prefix_of(name))


def demangled(name: str) -> str:
    """The name of the module in the program that wrote the package."""
    found = _MANGLED.fullmatch(name)
    return name if found is None else found[2] or ""


def prefix_of(name: str) -> str:
    """The prefix of a name; empty for a name without one."""
    found = _MANGLED.fullmatch(name)
    return "" if found is None else found[1]
