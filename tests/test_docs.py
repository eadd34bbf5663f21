"""What the documents say runs: Python blocks in order, C blocks through the compiler, links to files that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
from plugin_wheels import compile_library, install, run

ROOT = Path(__file__).resolve().parent.parent


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.S | re.M)


PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    ROOT / "docs/reference/hooks.md",
    ROOT / "docs/reference/records.md",
    ROOT / "docs/reference/composite.md",
    ROOT / "docs/reference/trace.md",
]
# Pages that are a whole plugin: a library, a manifest, and a program that uses it.
WHOLE = [page for page in PAGES if blocks(page, "cpp") and blocks(page, "toml")]
GENERATED = {
    ROOT / line for line in (ROOT / ".gitignore").read_text().splitlines() if ".md" in line
}
LINKING = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("packages/*/README.md"),
           *sorted(set((ROOT / "docs").rglob("*.md")) - GENERATED)]  # fmt: skip
# Names that a page takes for granted.
GIVEN = {
    "training.md": "images, labels = rabbet.rand(192, 1, 8, 8), rabbet.randint(0, 10, (192,))",
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", WHOLE, ids=name_of)
def test_the_plugin_of_the_page_works(page, tmp_path):
    """Built as the page has it, installed as a wheel with its manifest; then the page's program runs."""
    (source,), (manifest,) = blocks(page, "cpp"), blocks(page, "toml")
    name = re.search(r'^provides = \["(\w+)"\]', manifest, flags=re.M)[1]
    library = compile_library(
        tmp_path, name, source, "-fvisibility=hidden", "-Wextra", "-Werror", language="cpp"
    )
    install(tmp_path, name, manifest, library)
    run(tmp_path, "\n".join(blocks(page, "python")))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and p not in WHOLE], ids=name_of
)
def test_python_in_the_page_runs(page, tmp_path):
    script = tmp_path / "page.py"
    given = "import rabbet\n" + GIVEN.get(page.name, "")
    script.write_text("\n".join([given, *blocks(page, "python")]))
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_hooks_of_the_page_work_in_a_plugin(tmp_path):
    """Installed as a wheel with the page's manifest, whose name and hooks are the page's."""
    page = ROOT / "docs/reference/hooks.md"
    (manifest,) = blocks(page, "toml")
    install(tmp_path, "odd", manifest, None, "\n".join(blocks(page, "python")))
    code = """
import json
import rabbet
from rabbet import _plugins
from rabbet._doctor import report
params = [_plugins.conformance_params("odd", level) for level in ("L1", "L2")]
x = rabbet.tensor([2.0, 3.0], requires_grad=True)
rabbet.ops.odd.halve(x).sum().backward()
(plugin,) = (p for p in report()["plugins"] if p["name"] == "odd")
keys = ("stage", "hooks", "attributes", "notes", "details")
print(json.dumps([params, x.oddness.tolist(), x.grad.tolist(), [plugin[key] for key in keys], plugin["live"]["registrations"]]))
"""
    params, oddness, grad, plugin, registrations = json.loads(run(tmp_path, code))
    assert (
        params == [{}, {"tolerances": {"exp": {"float16": 0.01}}}]
        and oddness == [0, 1]
        and grad == [0.5, 0.5]
    )
    assert plugin[0] == "ACTIVE" and sorted(plugin[1]) == sorted(
        re.findall(r"^## (rabbet_\w+)\(", page.read_text(), flags=re.M)
    )
    assert plugin[2:] == [["oddness"], ["the board answers"], {"firmware": "1.2"}]
    assert registrations == 2  # the operator, and the function that it runs


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "c")], ids=name_of)
def test_c_in_the_page_compiles(page, tmp_path):
    given = "static RbBackend backend; static RbKernel add_kernel;\n"
    for block in blocks(page, "c"):
        header, rest = block.split("\n", 1)
        source = tmp_path / "block.c"
        source.write_text(f"{header}\n{given}{rest}")
        command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run([*command, f"-I{rabbet.get_include()}", str(source)], check=True)


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    for target in re.findall(r"\[[^\]]*\]\(([^)#\s]+)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.parent / target).resolve()
        assert path.exists() or path in GENERATED, f"{name_of(page)} links to {target}"
