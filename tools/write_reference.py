"""Write docs/reference/ops.md: every operator out of its record."""

import sys
from pathlib import Path

from rabbet import _C


def page() -> str:
    """Markdown, one section per family."""
    families: dict[str, list[dict]] = {}
    for name in _C.record_names():
        info = _C.op_info(name)
        families.setdefault(info["family"], []).append(info)
    lines = ["# Operators", "", "Made from the records in `packages/core/ops`.", ""]
    for family, infos in families.items():
        lines += [f"## {family}", ""]
        for info in infos:
            lines += [f"### {info['name']}", "", f"    {info['schema']}", "", info["doc"], ""]
            if info["alias"]:
                lines += ["Also: " + ", ".join(f"`{a}`" for a in info["alias"]) + ".", ""]
            for what, formula in info["formulas"].items():
                lines += [f"- `{what}`: `{formula}`"]
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1], "ops.md").write_text(page())
