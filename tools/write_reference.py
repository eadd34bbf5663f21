"""Write the reference pages: operators out of their records, the rest out of docstrings."""

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

from abi_layout import HEADERS
from header_reference import header_page
from rabbet import _C

PAGES = {
    "functions": [
        "rabbet._functions",
        "rabbet._random",
        "rabbet._counts",
        "rabbet.serialization",
        "rabbet.library",
    ],
    "array-api-functions": [
        "rabbet.array_api",
        "rabbet.array_api.linalg",
        "rabbet.array_api.fft",
    ],
    "accelerator": ["rabbet.accelerator", "rabbet._streams"],
    "autograd": [
        "rabbet.autograd",
        "rabbet.autograd.functional",
        "rabbet.autograd.forward_ad",
        "rabbet.autograd.graph",
    ],
    "amp": ["rabbet.amp"],
    "vmap": ["rabbet.vmap", "rabbet.func"],
    "nn": ["rabbet.nn", "rabbet.nn.functional", "rabbet.nn.init", "rabbet.nn.utils"],
    "optim": ["rabbet.optim", "rabbet.optim.lr_scheduler"],
    "profiler": ["rabbet.profiler", "rabbet.autograd.profiler", "rabbet.autograd.profiler_util"],
    "compile": ["rabbet.compiler", "rabbet_compile"],
    "graph": ["rabbet.graph", "rabbet.export"],
    "distributions": [
        "rabbet.distributions",
        "rabbet.distributions.constraints",
        "rabbet.distributions.utils",
    ],
}


def operators() -> str:
    """Markdown, one section per family of records."""
    families: dict[str, list[dict]] = {}
    for name in _C.record_names():
        info = _C.op_info(name)
        families.setdefault(info["family"], []).append(info)
    lines = ["# Operators", "", "Made from the records in `packages/core/ops`.", ""]
    for family, infos in families.items():
        lines += [f"## {family}", ""]
        for info in infos:
            lines += [
                f"### {info['name']}",
                "",
                f"    {info['schema']}",
                "",
                info["doc"],
                "",
            ]
            if info["alias"]:
                lines += ["Also: " + ", ".join(f"`{a}`" for a in info["alias"]) + ".", ""]
            if info["autocast"] != "pass":
                lines.append(f"- autocast: {info['autocast']}")
            lines += [f"- `{what}`: `{formula}`" for what, formula in info["formulas"].items()]
            lines += [f"- `{info['name']}({text})`" for text, _, _ in info["examples"]]
            lines.append("")
    return "\n".join(lines)


def public(module: ModuleType) -> list[str]:
    """Names of a module's own functions and classes, in order."""
    names = getattr(module, "__all__", None) or sorted(n for n in vars(module) if n[0] != "_")
    found = [(n, getattr(module, n, None)) for n in names]
    return [n for n, o in found if inspect.isclass(o) or inspect.isroutine(o)]


def signature(thing: object) -> str:
    """As written, or nothing where Python cannot tell."""
    try:
        return str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"


def module_page(title: str, names: list[str]) -> str:
    """Markdown: signature and docstring of everything public."""
    lines = [f"# {title}", ""]
    for module_name in names:
        module = importlib.import_module(module_name)
        lines += [f"## {module_name.replace('._', ' ')}", "", inspect.getdoc(module) or "", ""]
        for name in public(module):
            thing = getattr(module, name)
            doc = inspect.getdoc(thing) or ""
            lines += [f"### {name}", "", f"    {name}{signature(thing)}", ""]
            lines += ["```text", doc, "```", ""] if doc else []
    return "\n".join(lines)


def main(folder: str) -> None:
    """Write all pages."""
    Path(folder, "ops.md").write_text(operators())
    for header in HEADERS:
        page = "abi.md" if header.stem == "abi" else f"{header.stem}-h.md"
        Path(folder, page).write_text(header_page(header))
    for title, names in PAGES.items():
        Path(folder, f"{title}.md").write_text(module_page(title, names))


if __name__ == "__main__":
    main(sys.argv[1])
