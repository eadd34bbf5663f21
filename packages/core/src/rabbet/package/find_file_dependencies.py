"""Finds the imports of a source file."""

import ast


def find_files_source_depends_on(src: str, package: str) -> list[tuple[str, str | None]]:
    """The imports of a source as pairs (module, name).

    The name is that of an attribute or submodule in `from module import name`, and None for other imports.

    Args:
        src: the source.
        package: the package that relative imports refer to.

    Raises:
        SyntaxError: if `src` is not valid Python.
        ImportError: if a relative import leads out of the package.
    """
    found: dict[tuple[str, str | None], None] = {}
    for node in ast.walk(ast.parse(src)):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys((alias.name, None) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node.module, node.level, package)
            found.update(
                dict.fromkeys(
                    (module, None if alias.name == "*" else alias.name) for alias in node.names
                )
            )
        elif isinstance(node, ast.Call):
            name = _imported_by_call(node)
            if name is not None:
                found[name, None] = None
    return list(found)


def _absolute(module: str | None, level: int, package: str) -> str:
    if not level:
        assert module is not None
        return module
    parts = package.split(".")
    base = parts[: len(parts) - level + 1]
    if not base:
        raise ImportError(f"a relative import leads out of the package {package!r}")
    return ".".join([*base, *([module] if module else [])])


def _imported_by_call(node: ast.Call) -> str | None:
    """The module named in a call `__import__("module")` or `importlib.import_module("module")`; None for other calls."""
    named = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
    if named not in ("__import__", "import_module") or not node.args:
        return None
    first = node.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value[:1] != ".":
        return first.value
    return None
