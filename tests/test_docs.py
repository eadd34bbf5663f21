"""What the documents say runs: Python blocks in order, C blocks through the compiler, links to what exists."""

import json
import os
import re
import subprocess
import sys
import tomllib
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
    ROOT / "docs/reference/array-api.md",
    ROOT / "docs/reference/data.md",
    ROOT / "docs/reference/hooks.md",
    ROOT / "docs/reference/host.md",
    ROOT / "docs/reference/memory-inspection.md",
    ROOT / "docs/reference/porting-extensions.md",
    ROOT / "docs/reference/program.md",
    ROOT / "docs/reference/records.md",
    ROOT / "docs/reference/composite.md",
    ROOT / "docs/reference/trace.md",
    ROOT / "docs/reference/utilities.md",
]
# Pages that are a whole plugin: a library, a manifest, and a program that uses it.
WHOLE = [page for page in PAGES if blocks(page, "cpp") and blocks(page, "toml")]
# Pages that `make docs` writes: they are not in the repository, so that no page there may link to them.
GENERATED = {
    ROOT / line for line in (ROOT / ".gitignore").read_text().splitlines() if ".md" in line
}
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
    for block in blocks(page, "cpp"):  # a first line such as "// gate.cpp" names the file
        if name := re.match(r"// (\w+\.cpp)\n", block):
            (tmp_path / name[1]).write_text(block)
    script = tmp_path / "page.py"
    given = "import rabbet\n" + GIVEN.get(page.name, "")
    script.write_text("\n".join([given, *blocks(page, "python")]))
    command = [sys.executable, "-W", "error", str(script)]
    environment = {**os.environ, "RABBET_EXTENSIONS_DIR": str(tmp_path / "extensions")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
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


# ---- links, in every page of the repository


def every_page() -> list[Path]:
    """All Markdown files but those that builds and tools leave behind."""
    skipped = {"build", "dist", "site", "out", "node_modules", "sessions"}
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in skipped and not f.startswith(".")]
        found += [Path(folder) / f for f in files if f.endswith(".md")]
    return sorted(set(found) - GENERATED)


def without_code(text: str) -> str:
    """The text without blocks and spans of code, in which brackets are no links."""
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def links(page: Path) -> list[str]:
    """The targets of a page's links, but those to other sites."""
    text = without_code(page.read_text())
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)", text)
    named = re.findall(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", text, flags=re.M)
    html = re.findall(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)", text)
    return [t for t in inline + named + html if not re.match(r"[a-z][a-z0-9+.-]*:", t)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them, and those written as HTML."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    found: set[str] = set(re.findall(r"<a\s+(?:name|id)=[\"']([^\"']+)", text))
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, flags=re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in links(page):
        place, _, anchor = link.partition("#")
        path = (page.parent / place).resolve() if place else page
        if (
            not path.exists()
            or path in GENERATED
            or (anchor and (path.suffix != ".md" or anchor not in anchors(path)))
        ):
            dead.append(link)
    return dead


def test_every_link_of_every_page_leads_somewhere():
    pages = every_page()
    assert len(pages) > 100 and sum(len(links(page)) for page in pages) > 100
    dead = {name_of(page): found for page in pages if (found := dead_links(page))}
    assert dead == {}


def test_dead_links_and_anchors_are_found(tmp_path):
    (tmp_path / "there.md").write_text("# A `title`, twice\n\n## Again\n## Again\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[a](there.md) [b](gone.md) [c](there.md#a-title-twice) [d](there.md#again-1)\n"
        "[e](there.md#again-2) [f](#here) [g](#hier) [h](https://example.org/x) [i]: no\n"
        "`[j](code.md)` <img src='gone.png'> ![k](gone.jpg \"a title\") [l](there.md 'a title')\n"
        "\n[name]: lost.md\n```\n[m](block.md)\n```\n"
    )
    assert dead_links(page) == [
        "gone.md", "there.md#again-2", "#hier", "gone.jpg", "lost.md", "gone.png",
    ]  # fmt: skip


# ---- facts


def test_the_facts_of_the_readme_are_those_of_the_package():
    text = (ROOT / "README.md").read_text()
    (operators,) = re.findall(r"about (\d+) operators", text)
    ours = [name for name in rabbet._C.record_names() if "::" not in name]
    assert abs(int(operators) - len(ours)) <= 0.05 * int(operators)
    (version, abi) = re.findall(r"^Version (\d+\.\d+), plugin ABI (\d+\.\d+)", text, flags=re.M)[0]
    assert rabbet.__version__.startswith(f"{version}.")
    assert abi == ".".join(map(str, rabbet._C.abi))
    distributions = rabbet.distributions
    kinds = [getattr(distributions, name) for name in distributions.__all__]
    bases = (distributions.Distribution, distributions.ExponentialFamily)
    count = sum(
        isinstance(k, type) and issubclass(k, distributions.Distribution) and k not in bases
        for k in kinds
    )
    assert re.findall(r"(\d+) probability distributions", text) == [str(count)]


def test_the_readme_names_every_wheel():
    parts = (ROOT / "README.md").read_text().split("## The parts")[1].split("## ")[0]
    named = re.findall(r"^\| `(rabbet[\w-]*)` \|", parts, flags=re.M)
    wheels = [
        tomllib.loads(file.read_text())["project"]["name"]
        for file in ROOT.glob("packages/*/pyproject.toml")
    ]
    assert sorted(named) == sorted(wheels)
