"""Where a PackagingError comes from."""

from ..package_exporter import PackagingError


def find_first_use_of_broken_modules(exc: PackagingError) -> dict[str, list[str]]:
    """For each module that could not be packaged the modules that led to it, the module last.

    Raises:
        TypeError: for another exception.
    """
    if not isinstance(exc, PackagingError):
        raise TypeError(f"expected a PackagingError, got {type(exc).__name__}")
    graph = exc.dependency_graph
    return {name: graph.path_to(name) for name, node in graph.nodes.items() if node.get("error")}
