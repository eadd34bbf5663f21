"""Write tests/program_losses.json: the losses of examples/programs under PyTorch, in their tiny configuration.

Run it with a Python that has torch and numpy: `python tools/write_program_losses.py`.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "examples/programs"
TARGET = ROOT / "tests/program_losses.json"
HELPERS = {"start"}


def names() -> list[str]:
    """The programs."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem not in HELPERS)


def losses(command: list[str], name: str, *options: str) -> list[float]:
    """The losses that a program prints when an interpreter runs it.

    Raises:
        RuntimeError: if it fails.
    """
    done = subprocess.run(
        [*command, str(PROGRAMS / f"{name}.py"), "--tiny", *options], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])["losses"]


def main() -> None:
    """Run all programs and write the file."""
    import torch

    if not hasattr(torch, "_C") or hasattr(torch, "__rabbet__"):
        raise SystemExit("write_program_losses: the numbers must come from PyTorch itself")
    found = {name: losses([sys.executable], name) for name in names()}
    text = json.dumps({"torch": torch.__version__, "losses": found}, indent=1)
    TARGET.write_text(text + "\n")


if __name__ == "__main__":
    main()
