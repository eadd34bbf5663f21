"""Whether mixed precision on CUDA devices is out of the question."""

from importlib.util import find_spec

from .. import is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Whether there is neither a CUDA device nor the package torch_xla."""
    return not (is_available() or find_spec("torch_xla"))
