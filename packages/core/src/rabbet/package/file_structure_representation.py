"""The contents of a package as a tree of folders."""

from .glob_group import GlobGroup, GlobPattern


class Directory:
    """A folder or a file of a package; `print` shows the tree."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name = name
        self.is_dir = is_dir
        self.children: dict[str, Directory] = {}

    def has_file(self, filename: str) -> bool:
        """Whether this folder contains a file with the given relative path, such as "model/weights.pkl"."""
        here = self
        for part in filename.split("/"):
            if part not in here.children:
                return False
            here = here.children[part]
        return True

    def __str__(self) -> str:
        return "\n".join(_lines(self, "─── ", "    ")) + "\n"

    def _add(self, path: str) -> None:
        here, parts = self, path.split("/")
        for i, part in enumerate(parts):
            here = here.children.setdefault(part, Directory(part, i < len(parts) - 1))


def _lines(tree: Directory, here: str, below: str) -> list[str]:
    """The lines of a tree. The first line begins with `here`, the others begin with `below`."""
    lines = [here + tree.name]
    inner = sorted(tree.children.values(), key=lambda child: (not child.is_dir, child.name))
    for i, child in enumerate(inner):
        is_last = i == len(inner) - 1
        lines += _lines(
            child,
            below + ("└── " if is_last else "├── "),
            below + ("    " if is_last else "│   "),
        )
    return lines


def structure_of(name: str, paths: list[str], include: GlobPattern, exclude: GlobPattern) -> Directory:  # fmt: skip
    """The tree of the paths that match `include` and not `exclude`."""
    group = GlobGroup(include, exclude=exclude, separator="/")
    root = Directory(name, True)
    for path in paths:
        if group.matches(path):
            root._add(path)
    return root
