"""What a user can do about a plugin that failed."""

import os
import re

# What a failure says, at whatever stage, and the fix. {wheel} is the plugin's, {0} what the first group matched.
_FIXES = [
    (r"plugin ABI .*upgrade rabbet-core", "pip install --upgrade rabbet-core"),
    (r"plugin ABI", "pip install --upgrade {wheel}"),
    (r"cannot be ordered", "uninstall one of the wheels that it names, or ask their authors to drop a declaration"),
    (r"registered already|belongs to", "uninstall {wheel} or the wheel that it names: one process has one of them"),
    (
        r"(\S+): cannot open shared object file: No such file",
        "install the package that has {0}, or set LD_LIBRARY_PATH to its folder",
    ),
    (r"undefined symbol: (\S+)", "install the version of the library with {0} that {wheel} was built for, or rebuild {wheel}"),
    (r"library is not there|invalid ELF header|file too short|wrong ELF class", "reinstall it: pip install --force-reinstall {wheel}"),
    (r"exports no symbol", "pip install --upgrade {wheel} rabbet-core: they are of different generations"),
    (r"compiled against the schema|there is no operator", "pip install --upgrade {wheel} rabbet-core"),
    (r"no module named '?([\w.]+)", "pip install the wheel that has the module {0}, which {wheel} imports"),
    (r"Tensor\.\w+ is ", "uninstall {wheel} or the wheel that it names: both want one name"),
]  # fmt: skip


def fix(stage: str, cause: str, wheel: str, editable_source: str = "") -> str:
    """The first fix that fits what was said when `wheel` failed at `stage`."""
    if editable_source and not os.path.isdir(editable_source):
        return f"its project {editable_source} is gone: pip uninstall {wheel}"
    for pattern, text in _FIXES:
        match = re.search(pattern, cause, flags=re.I | re.S)
        if match:
            return text.format(*match.groups(), wheel=wheel)
    if stage == "manifest":
        return f"reinstall it: pip install --force-reinstall {wheel}"
    return f"report it to the authors of {wheel}"
