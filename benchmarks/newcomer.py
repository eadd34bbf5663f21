"""The newcomer's path: the commands of docs/tutorial/backend.md, from an empty folder to a judged backend.

It needs what the tutorial asks for, and rabbet-testing; what the commands install goes into a temporary folder.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import HERE, finish

PAGE = HERE.parent / "docs/tutorial/backend.md"
TARGET = 600.0


def commands() -> list[str]:
    """The page's shell commands, and its call of the kit, for the levels that the target speaks of and for all."""
    text = PAGE.read_text()
    (block,) = re.findall(r"^```sh\n(.*?)^```", text, flags=re.S | re.M)
    (kit,) = re.findall(r"^    (pytest --pyargs rabbet_testing .*)$", text, flags=re.M)
    steps = [line.partition("#")[0].strip() for line in block.splitlines()]
    return [*steps, f"{kit} --level=L0,L1", kit]


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place, prefix = Path(folder), Path(folder) / "prefix"
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(prefix), *[p for p in sys.path if p]]),
            "PIP_TARGET": str(prefix),
            "PIP_NO_CACHE_DIR": "1",
        }
        for command in commands():
            if command.startswith("cd "):
                place = place / command.removeprefix("cd ")
                continue
            began = time.perf_counter()
            subprocess.run(["bash", "-c", command], cwd=place, env=environment, check=True)
            rows.append({"what": f"`{command}`", "rabbet": time.perf_counter() - began})
    until_level_1 = sum(row["rabbet"] for row in rows[:-1])
    rows.append({"what": "all up to L0 and L1", "rabbet": until_level_1, "limit": TARGET})
    finish("newcomer", "From new-plugin to a judged backend, following the tutorial", rows)


if __name__ == "__main__":
    main()
