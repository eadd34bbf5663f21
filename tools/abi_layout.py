"""Print what the C headers fix as JSON: size of each struct, offset and size of its members, values of constants.

With a folder as argument, of those in that folder.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "packages/core/include/rabbet/abi.h"
# With those of the tables that are optional.
HEADERS = [
    HEADER,
    *(
        HEADER.with_name(f"{name}.h")
        for name in ("capture", "composite", "device", "program", "settings", "trace")
    ),
]


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


def constants(text: str) -> list[str]:
    """Names of the enumerators and of the macros that are numbers."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    names = re.findall(r"^#define (RB_\w+) (?:0x)?[0-9a-f]+u?$", text, flags=re.M)
    for body in re.findall(r"\benum \{(.*?)\}", text, flags=re.S):
        names += re.findall(r"\bRB_\w+(?=\s*(?:=|,|$))", body.strip())
    return names


def layout(include: Path = HEADER.parent.parent) -> dict[str, Any]:
    """Compile a program that reports sizes, offsets and values; returns its answer."""
    headers = [include / "rabbet" / header.name for header in HEADERS]
    headers = [header for header in headers if header.exists()]
    text = "\n".join(header.read_text() for header in headers)
    lines = [
        "#include <stdio.h>",
        *(f'#include "rabbet/{header.name}"' for header in headers),
        "int main(void) {",
    ]
    lines.append('  printf("{\\"structs\\": {");')
    for i, (name, members) in enumerate(structs(text).items()):
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
    lines.append('  printf("}, \\"constants\\": {");')
    for i, name in enumerate(constants(text)):
        comma = ", " if i else ""
        lines.append(f'  printf("{comma}\\"{name}\\": %lld", (long long){name});')
    lines += ['  printf("}}");', "  return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "layout.c", Path(folder) / "layout"
        source.write_text("\n".join(lines))
        subprocess.run(
            ["gcc", "-std=c11", f"-I{include}", str(source), "-o", str(program)], check=True
        )
        answer: dict[str, Any] = json.loads(
            subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        )
        return answer


# Structs without a size that readers could ask: those that pass by value or in arrays.
SIZES = {"struct_size", "view_size"}
COUNTERS = {"RB_ABI_MINOR", "RB_ABI_NEEDED", "RB_DTYPE_COUNT"}  # may only rise


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Why what was built with the layout `old` does not fit `new`; nothing: it does."""
    problems = []
    for name, before in old["structs"].items():
        after = new["structs"].get(name)
        if after is None:
            problems.append(f"struct {name} is gone")
        elif after["members"][: len(before["members"])] != before["members"]:
            problems.append(f"struct {name}: members moved or changed; they may only be appended")
        elif after["size"] != before["size"] and not SIZES & {m[0] for m in before["members"]}:
            problems.append(f"struct {name} has no size that readers could ask, and may not grow")
    for name, value in old["constants"].items():
        now = new["constants"].get(name)
        if now is None or (now < value if name in COUNTERS else now != value):
            problems.append(f"{name} was {value} and is {now}")
    return problems


if __name__ == "__main__":
    json.dump(layout(*map(Path, sys.argv[1:])), sys.stdout, indent=1)
    print()
