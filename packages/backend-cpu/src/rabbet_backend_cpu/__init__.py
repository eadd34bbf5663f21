"""CPU kernels for rabbet, as a plugin behind `rabbet/abi.h`.

Nothing here is imported on the way of an operator: core reads `rabbet_plugin.toml` and loads the library itself.
"""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

__all__ = ["library_path"]

_LIBRARY = "librabbet_backend_cpu.so"


def rabbet_conformance_params(level: str) -> dict[str, Any]:
    """What kernels refuse of the dtypes that they declare."""
    if level != "L2":
        return {}
    return {
        "partial": {
            "div": "complex numbers are not rounded",
            "round": "bools have no decimals",
        }
    }


def library_path() -> Path:
    """Return where the native library lies.

    Raises:
        FileNotFoundError: if the wheel was installed without it.
    """
    beside = Path(__file__).with_name(_LIBRARY)
    if beside.exists():
        return beside
    # An editable install keeps the Python files in the source tree and the library in site-packages.
    try:
        for entry in files("rabbet-backend-cpu") or ():
            if entry.name == _LIBRARY:
                return Path(str(entry.locate()))
    except PackageNotFoundError:
        pass
    raise FileNotFoundError(f"{_LIBRARY} is missing; reinstall rabbet-backend-cpu")
