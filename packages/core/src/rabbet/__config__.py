"""How this build was made."""

from . import _C

__all__ = ["parallel_info", "show"]


def show() -> str:
    """What the library was built from and the backends that are loaded, as text."""
    backends = ", ".join(b["name"] for b in _C.backends())
    return (
        f"rabbet built with:\n  - rabbet-core {_C.__version__}\n  - backends loaded: {backends}\n"
    )


def parallel_info() -> str:
    """The threads that kernels use, as text."""
    return (
        f"parallel:\n\tget_num_threads() : {_C.get_num_threads()}\n"
        "\tthread pool of rabbet-core, no OpenMP, no MKL\n"
    )
