"""python -m rabbet new-plugin: writes the project of a plugin, a wheel that builds and passes its tests.

The files come from `_templates/common` and `_templates/KIND`: each without the suffix `.in`, with `@word@` replaced in
its text and its path.
"""

import argparse
import importlib.util
import keyword
import os
import re
import sys
from pathlib import Path

from . import _C, __version__
from ._discovery import MANIFEST
from ._plugins import KNOWN_WHEELS, plugins

TEMPLATES = Path(__file__).with_name("_templates")
SUFFIX = ".in"
OWN_WHEELS = {
    "rabbet",
    "rabbet-core",
    "rabbet-nn",
    "rabbet-optim",
    "rabbet-testing",
    *KNOWN_WHEELS.values(),
}
MANIFEST_KINDS = {"composite": "transform"}  # where it has another name
PHASES = {"composite": 650, "transform": 700}
BUILD_TARGETS = {"all", "clean", "help", "install", "package", "edit_cache", "rebuild_cache"}
DESCRIPTIONS = {
    "backend": "The device {name} for Rabbet, in host memory",
    "composite": "The layer {name} for Rabbet, whose tensors keep their values in bfloat16",
    "ops": "Operators for Rabbet, in the namespace {name}",
    "transform": "The layer {name} for Rabbet, which counts operator calls",
}
NEXT = """wrote a plugin of kind {kind} to {folder}: {count} files. Next:

  cd {folder}
  pip install --no-build-isolation --no-deps .    # needs scikit-build-core, cmake, ninja
  pytest
  python -m rabbet doctor

README.md says what each file is."""


class BadRequest(ValueError):
    """What was asked for cannot be written; the message says why."""


def check_name(wheel: str) -> str:
    """Return the import name of the wheel `wheel`.

    Raises:
        BadRequest: if it is no name for a wheel and its package, or somebody else's.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", wheel):
        raise BadRequest(
            f"NAME must be lower-case letters, digits and single '-' or '_', and begin with a letter, got {wheel!r}"
        )
    package = wheel.replace("-", "_")
    if keyword.iskeyword(package):
        raise BadRequest(f"NAME: {package!r} is a keyword of Python")
    if package in sys.stdlib_module_names:
        raise BadRequest(f"NAME: {package!r} is a module of Python's standard library")
    if package.replace("_", "-") in OWN_WHEELS:
        raise BadRequest(f"NAME: {wheel!r} is one of Rabbet's own wheels")
    if package in BUILD_TARGETS:
        raise BadRequest(f"NAME: {package!r} is a target that every build has")
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    # A folder without code may be any; an earlier build of the same plugin may be replaced.
    if spec and spec.origin and not any(os.path.exists(os.path.join(f, MANIFEST)) for f in folders):
        raise BadRequest(f"NAME: a package {package!r} is installed already, at {spec.origin}")
    return package


def provided_name(package: str) -> str:
    """The name of the device, layer or namespace of `package`: without what only says whose plugin it is.

    Raises:
        BadRequest: if another wheel provides it.
    """
    short = package.removeprefix("rabbet_").removeprefix("backend_")
    name = short if short[0].isalpha() else package
    owner = "rabbet-core" if name == "meta" else KNOWN_WHEELS.get(name)
    for plugin in plugins().values():
        if name in plugin.provides and plugin.module != package:
            owner = plugin.wheel
    if owner:
        raise BadRequest(f"NAME: {owner} provides {name!r} already")
    return name


def values(kind: str, wheel: str) -> dict[str, str]:
    """What the words in templates stand for."""
    package = check_name(wheel)
    name = provided_name(package)
    major, minor = (int(part) for part in __version__.split(".")[:2])
    sources = "csrc/plugin.cpp"
    if kind == "backend":
        sources += " csrc/kernels.cpp"
    if kind == "transform":
        sources += f" EXPORTS {package}_enter {package}_leave"
    return {
        "wheel": wheel,
        "package": package,
        "name": name,
        "kind": MANIFEST_KINDS.get(kind, kind),
        "description": DESCRIPTIONS[kind].format(name=name),
        "core": f"rabbet-core>={major}.{minor},<{major}.{minor + 1}",
        "abi": ", ".join(map(str, _C.abi)),
        "sources": sources,
        "layers": f"\n[layers.{name}]\nphase = {PHASES[kind]}\n" if kind in PHASES else "",
    }


def write(kind: str, wheel: str, folder: Path) -> list[Path]:
    """Write the project into `folder`, which is made if it is not there; returns its files.

    Raises:
        BadRequest: if the name is not usable, or the folder holds something.
    """
    words = values(kind, wheel)
    if folder.exists() and not folder.is_dir():
        raise BadRequest(f"{folder} is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise BadRequest(f"the folder {folder} is not empty: choose another by --into FOLDER")

    def fill(text: str) -> str:
        return re.sub(r"@(\w+)@", lambda match: words[match[1]], text)

    written = []
    for part in (TEMPLATES / "common", TEMPLATES / kind):
        for template in sorted(part.rglob(f"*{SUFFIX}")):
            path = folder / fill(str(template.relative_to(part)).removesuffix(SUFFIX))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill(template.read_text("utf-8")), "utf-8")
            written.append(path)
    return written


def main(arguments: list[str]) -> int:
    """Run the command; the exit code is 2 if what was asked for cannot be done."""
    parser = argparse.ArgumentParser(
        "rabbet new-plugin",
        description="Write the project of a plugin: a wheel that builds and passes its tests.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="of the wheel, such as rabbet-fancy")
    parser.add_argument("--kind", required=True, choices=sorted(DESCRIPTIONS))
    parser.add_argument("--into", metavar="FOLDER", type=Path, help="NAME if left out")
    asked = parser.parse_args(arguments)
    folder = asked.into or Path(asked.name)
    try:
        written = write(asked.kind, asked.name, folder)
    except (BadRequest, OSError) as error:
        parser.error(str(error))
    print(NEXT.format(kind=asked.kind, folder=folder, count=len(written)))
    return 0
