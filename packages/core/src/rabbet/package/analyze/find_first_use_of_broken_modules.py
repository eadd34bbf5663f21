"""The causes of a PackagingError."""

from ..package_exporter import PackagingError


def find_first_use_of_broken_modules(exc: PackagingError) -> dict[str, list[str]]:
    """For each module that could not be packaged, the chain of dependencies that ends with it.

    Raises:
        TypeError: if `exc` is not a PackagingError.
    """
    if not isinstance(exc, PackagingError):
        raise TypeError(f"expected a PackagingError, got {type(exc).__name__}")
    graph = exc.dependency_graph
    return {name: graph.path_to(name) for name, node in graph.nodes.items() if node.get("error")}
