"""What stands in a report of a problem: versions, plugins, the machine. `python -m rabbet doctor` says more."""

import platform
import sys

from .. import _C, __config__
from .._plugins import plugins

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """The report as text."""
    found = ", ".join(sorted(plugins())) or "none"
    return (
        f"rabbet-core: {_C.__version__}\nPython: {sys.version}\nPlatform: {platform.platform()}\n"
        f"Plugins: {found}\n{__config__.show()}{__config__.parallel_info()}"
    )


def main() -> None:
    """Print the report."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
