"""Type stubs name what exists at run time, no more and no less."""

import ast
from pathlib import Path

import rabbet
from rabbet import _C

SOURCES = Path(__file__).resolve().parent.parent / "packages"
CORE = SOURCES / "core/src/rabbet"


def bound(statements: list[ast.stmt]) -> set[str]:
    """Names that a stub's statements bind, private ones left out."""
    names: set[str] = set()
    for s in statements:
        if isinstance(s, ast.FunctionDef | ast.ClassDef):
            names.add(s.name)
        elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            names.add(s.target.id)
        elif isinstance(s, ast.ImportFrom) and s.module != "typing":
            names |= {a.asname for a in s.names if a.asname == a.name}
    return {n for n in names if not n.startswith("_")}


def stub(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def members(path: Path, name: str) -> set[str]:
    body = next(s.body for s in stub(path) if isinstance(s, ast.ClassDef) and s.name == name)
    return bound(body)


def public(names: object) -> set[str]:
    return {n for n in names if not n.startswith("_")}


def test_the_binding():
    stated = bound(stub(CORE / "_C.pyi"))
    assert stated == public(vars(_C)) - set(
        rabbet._NAMED_DTYPES
    )  # dtypes that are added when they are named


def test_the_binding_of_autograd():
    stated = bound(stub(SOURCES / "autograd/src/rabbet/autograd/_C.pyi"))
    assert stated == public(vars(rabbet.autograd._C))


def test_the_binding_of_autocast():
    stated = bound(stub(SOURCES / "autocast/src/rabbet/amp/_C.pyi"))
    assert stated == public(vars(rabbet.amp._C))


def test_the_binding_of_vmap():
    stated = bound(stub(SOURCES / "vmap/src/rabbet/vmap/_C.pyi"))
    assert stated == public(vars(rabbet.vmap._C))


def test_tensor():
    stated = members(CORE / "_C.pyi", "Tensor") | members(CORE / "_ops.pyi", "Methods")
    rabbet.zeros(1, requires_grad=True)  # the tape contributes attributes
    assert stated == public(dir(rabbet.Tensor))


def test_the_namespace():
    stated = bound(stub(CORE / "__init__.pyi")) | bound(stub(CORE / "_ops.pyi")) - {"Methods"}
    stated |= {*rabbet._functions.__all__, *rabbet._random.__all__}
    modules = {
        "library",
        "serialization",
        *rabbet._OTHER_WHEELS,
        *rabbet._OWN_MODULES,
        *rabbet._ABSENT_MODULES,
    }
    there = public(dir(rabbet)) | {"default_generator"}
    there |= set(rabbet._LAZY_NAMES)
    assert stated - modules == there - modules


def test_the_modules():
    """Type checkers know each after `import rabbet`, as programs do."""
    stated = bound(stub(CORE / "__init__.pyi"))
    modules = {*rabbet._OTHER_WHEELS, *rabbet._OWN_MODULES, *rabbet._ABSENT_MODULES}
    assert {name for name in modules if not name.startswith("_")} <= stated
