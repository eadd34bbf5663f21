"""Run mypy over the sources of all packages as one tree: several wheels share the import package `rabbet`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def join_sources(folder: Path) -> list[str]:
    """Link what every package installs into `folder`; returns the top-level names."""
    for source in ROOT.glob("packages/*/src"):
        for part in source.rglob("*"):
            place = folder / part.relative_to(source)
            if "__pycache__" in part.parts:
                continue
            if part.is_dir():
                place.mkdir(exist_ok=True)  # several wheels may bring parts of one package
            else:
                place.symlink_to(part)
    return sorted(p.name for p in folder.iterdir())


def main() -> int:
    """The exit code of mypy."""
    with tempfile.TemporaryDirectory() as folder:
        names = join_sources(Path(folder))
        options = [
            f"--config-file={ROOT / 'pyproject.toml'}",
            f"--cache-dir={ROOT / '.mypy_cache'}",
        ]
        packages = [option for name in names for option in ("-p", name)]
        command = [sys.executable, "-m", "mypy", *options, *packages]
        environment = {**os.environ, "MYPYPATH": folder}
        return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
