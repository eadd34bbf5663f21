"""Print the layout of rabbet/abi.h's structs as JSON: sizes, and offset and size of each member."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "packages/core/include/rabbet/abi.h"


def structs(text: str) -> dict[str, list[str]]:
    """Names of all structs of the header with their members, in order."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found: dict[str, list[str]] = {}
    for match in re.finditer(
        r"(?:typedef struct (\w+)|struct (\w+)) \{(.*?)\n\}", text, flags=re.S
    ):
        body = re.sub(r"(union|struct) \{.*\} v;", "int v;", match[3], flags=re.S)
        body = re.sub(r"\(\*(\w+)\)\s*\([^;]*\)", r"\1", body, flags=re.S)
        members = []
        for statement in body.split(";"):
            for part in statement.split(","):
                name = re.search(r"(\w+)(\[\d+\])?\s*$", part.strip())
                if name:
                    members.append(name[1])
        found[match[1] or match[2]] = members
    return found


def layout() -> dict[str, object]:
    """Compile a program that reports sizeof and offsetof; returns its answer."""
    lines = ["#include <stdio.h>", '#include "rabbet/abi.h"', "int main(void) {", '  printf("{");']
    for i, (name, members) in enumerate(structs(HEADER.read_text()).items()):
        comma = ", " if i else ""
        lines.append(
            f'  printf("{comma}\\"{name}\\": {{\\"size\\": %zu, \\"members\\": [", sizeof({name}));'
        )
        for k, member in enumerate(members):
            gap = ", " if k else ""
            lines.append(
                f'  printf("{gap}[\\"{member}\\", %zu, %zu]", offsetof({name}, {member}), sizeof((({name}*)0)->{member}));'
            )
        lines.append('  printf("]}");')
    lines += ['  printf("}");', "  return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "layout.c", Path(folder) / "layout"
        source.write_text("\n".join(lines))
        include = HEADER.parent.parent
        subprocess.run(
            ["gcc", "-std=c11", f"-I{include}", str(source), "-o", str(program)], check=True
        )
        return json.loads(
            subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        )


if __name__ == "__main__":
    json.dump(layout(), sys.stdout, indent=1)
    print()
