"""Install one dependency group of the root pyproject.toml at the versions that uv.lock names."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(group: str) -> None:
    """Export the group's locked versions with uv, then let pip install them (pip knows local indexes)."""
    command = [
        "uv",
        "export",
        "-q",
        "--frozen",
        "--no-hashes",
        "--no-emit-project",
        "--only-group",
        group,
    ]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-r", file.name], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
