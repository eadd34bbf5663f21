"""No import goes in a circle, neither between modules nor hidden in functions."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Imports inside functions of one of our modules by another. Each has its reason; a new one belongs at the module's
# head, or here with a reason of its own.
OPTIONAL = "the wheel may be missing"
RARE = "most programs never need it, and `import rabbet` must be fast"
PLUGIN = "imports pluggy, which only plugins with hooks need"
CASES = "pytest imports the kit's plugin before the options are known"
IN_FUNCTIONS = {
    ("rabbet.__main__", "rabbet._as_torch.run"): RARE,
    ("rabbet.__main__", "rabbet._doctor"): RARE,
    ("rabbet.__main__", "rabbet._emit"): RARE,
    ("rabbet.__main__", "rabbet._new_plugin"): RARE,
    ("rabbet.__main__", "rabbet.profiler._bottleneck"): OPTIONAL,
    ("rabbet._absent", "rabbet._as_torch.names"): RARE,
    ("rabbet._op_modules", "rabbet._as_torch.names"): RARE,
    ("rabbet._aten", "rabbet._as_torch.operators"): RARE,
    ("rabbet._as_torch.c_nn", "rabbet.nn.functional"): OPTIONAL,
    ("rabbet._as_torch.functions", "rabbet.distributions._sampling"): OPTIONAL,
    ("rabbet._as_torch.run", "rabbet._as_torch.scan"): RARE,
    ("rabbet._decompositions.fft", "rabbet.nn.functional"): OPTIONAL,
    ("rabbet._doctor", "rabbet._doctor_text"): RARE,
    ("rabbet._doctor", "rabbet._hookspecs"): PLUGIN,
    ("rabbet._doctor", "rabbet._needs"): RARE,
    ("rabbet._files.torch_names", "rabbet._as_torch.names"): RARE,
    ("rabbet._functions", "rabbet._destinations"): RARE,
    ("rabbet._functions", "rabbet._printing"): RARE,
    ("rabbet.compiler", "rabbet.utils._pytree"): RARE,
    ("rabbet._legacy", "rabbet._as_torch.names"): RARE,
    ("rabbet._opcheck", "rabbet._explain"): RARE,
    ("rabbet._opcheck", "rabbet.autograd.gradcheck"): OPTIONAL,
    ("rabbet._opcheck", "rabbet.vmap"): OPTIONAL,
    ("rabbet._out_of_memory", "rabbet.memory._out_of_memory"): RARE,
    ("rabbet._plugins", "rabbet._hookspecs"): PLUGIN,
    ("rabbet._rules", "rabbet.vmap._custom"): OPTIONAL,
    ("rabbet._tensor", "rabbet._array_interface"): RARE,
    ("rabbet._tensor", "rabbet._printing"): RARE,
    ("rabbet._tensor", "rabbet._torch_dispatch"): RARE,
    ("rabbet._as_torch.c", "rabbet._torch_dispatch"): RARE,
    ("rabbet._as_torch.c", "rabbet.utils._python_dispatch"): RARE,
    ("rabbet._tensor", "rabbet.autograd"): OPTIONAL,
    ("rabbet._tensor", "rabbet._streams"): RARE,
    ("rabbet._tensor", "rabbet.array_api"): RARE,
    ("rabbet.library", "rabbet._schemas"): RARE,
    ("rabbet._tensor", "rabbet.serialization"): RARE,
    ("rabbet.autograd", "rabbet._as_torch.names"): RARE,
    ("rabbet.autograd._function_levels", "rabbet.vmap._function"): OPTIONAL,
    ("rabbet.backends._cuda", "rabbet._plugins"): RARE,
    ("rabbet.backends._cuda", "rabbet.cuda._devices"): RARE,
    ("rabbet.cuda", "rabbet.cuda._nvml"): RARE,
    ("rabbet.cuda.comm", "rabbet.cuda.streams"): RARE,
    ("rabbet.cuda.memory", "rabbet.cuda._nvml"): RARE,
    ("rabbet.cuda.memory", "rabbet.cuda.streams"): RARE,
    ("rabbet.func", "rabbet.func._differential"): OPTIONAL,
    ("rabbet.func._module_state", "rabbet.nn.modules.batchnorm"): OPTIONAL,
    ("rabbet.library", "rabbet._explain"): RARE,
    ("rabbet.library", "rabbet._opcheck"): RARE,
    ("rabbet.nn.attention.flex_attention", "rabbet.func"): OPTIONAL,
    ("rabbet.nn.functional.linear_loss", "rabbet.utils.checkpoint"): RARE,
    ("rabbet.nn.modules._hooks", "rabbet.nn.modules._backward"): RARE,
    ("rabbet.nn.utils.stateless", "rabbet.func"): OPTIONAL,
    ("rabbet.nn.utils.stateless", "rabbet.func._functional_call"): OPTIONAL,
    ("rabbet.overrides", "rabbet._as_torch.names"): RARE,
    ("rabbet.random", "rabbet._as_torch.names"): RARE,
    ("rabbet.serialization", "rabbet._as_torch.names"): RARE,
    ("rabbet.serialization", "rabbet._files.torch_file"): RARE,
    ("rabbet.utils._device", "rabbet._as_torch.names"): RARE,
    ("rabbet.utils.data", "rabbet._as_torch.names"): RARE,
    ("rabbet_testing.conformance.plugin", "rabbet_testing.judges.layers"): CASES,
    ("rabbet_testing.conformance.plugin", "rabbet_testing.judges.packs"): CASES,
    ("rabbet_testing.judges.batching", "rabbet.func"): OPTIONAL,
    ("rabbet_testing.judges.composites", "rabbet.func"): OPTIONAL,
    ("rabbet_testing.judges.gradients", "rabbet.autograd"): OPTIONAL,
    ("rabbet_testing.judges.gradients", "rabbet.autograd.gradcheck"): OPTIONAL,
    ("rabbet_testing.judges.gradients", "rabbet.func"): OPTIONAL,
    ("rabbet_testing.judges.layers", "rabbet.func"): OPTIONAL,
    ("rabbet_testing.judges.nests", "rabbet.func"): OPTIONAL,
    ("rabbet_testing.monkeypatching", "rabbet"): CASES,
    ("rabbet_testing.monkeypatching", "rabbet._plugins"): CASES,
    ("rabbet_testing.probes", "rabbet_testing.cases"): CASES,
    ("rabbet_testing.probes", "rabbet_testing.conformance.subject"): CASES,
    ("rabbet_testing.probes", "rabbet_testing.judges.calls"): CASES,
    ("rabbet_testing.probes", "rabbet_testing.judges.composites"): CASES,
    ("rabbet_testing.probes", "rabbet_testing.judges.layers"): CASES,
    ("rabbet_testing.probes", "rabbet_testing.judges.packs"): CASES,
    ("rabbet_testing_pytest", "rabbet_testing.conformance.plugin"): CASES,
    ("rabbet_compile._api", "rabbet_compile._module"): OPTIONAL,
    ("rabbet_compile._replaying", "rabbet_compile._record"): OPTIONAL,
    ("rabbet.graph", "rabbet.graph._module"): OPTIONAL,
    ("rabbet.export.exported_program", "rabbet.export._module"): OPTIONAL,
}

Graph = dict[str, set[str]]


def modules(*roots: Path) -> dict[str, Path]:
    """Files of the modules below the roots, by dotted name."""
    found = {}
    for root in roots:
        for file in root.rglob("*.py"):
            parts = file.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def targets(node: ast.Import | ast.ImportFrom, name: str, files: dict[str, Path]) -> set[str]:
    """The modules of `files` that an import statement of module `name` names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & files.keys()
    is_package = files[name].name == "__init__.py"
    base = name.split(".")[: None if is_package else -1]
    base = base[: len(base) - node.level + 1] if node.level else []
    prefix = ".".join([*base, *([node.module] if node.module else [])])
    named = {f"{prefix}.{alias.name}" for alias in node.names}
    return named & files.keys() | ({prefix} & files.keys() if named - files.keys() else set())


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(tree: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All import statements, each with whether a function holds it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, in_function
        elif not is_type_checking(child):
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(child, in_function or inner)


def graphs(files: dict[str, Path]) -> tuple[Graph, Graph]:
    """Who imports whom at module level, and inside functions.

    A package is imported before its modules, so that a module's import of a package around it is no edge.
    """
    outside: Graph = {name: set() for name in files}
    inside: Graph = {name: set() for name in files}
    for name, file in files.items():
        for node, in_function in imports(ast.parse(file.read_text())):
            for target in targets(node, name, files):
                if not f"{name}.".startswith(f"{target}."):
                    (inside if in_function else outside)[name].add(target)
    return outside, inside


def cycle(graph: Graph) -> list[str]:
    """The modules of one cycle in order, the first again at the end; empty if there is none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in sorted(graph[name]):
            if found := visit(target, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


@pytest.fixture(scope="module")
def ours() -> tuple[Graph, Graph]:
    return graphs(modules(*ROOT.glob("packages/*/src")))


def test_no_modules_import_each_other_in_a_circle(ours):
    outside, _ = ours
    assert len(outside) > 80
    assert not cycle(outside), " -> ".join(cycle(outside))


def test_no_circle_is_hidden_in_functions(ours):
    outside, inside = ours
    both = {name: outside[name] | inside[name] for name in outside}
    assert not cycle(both), " -> ".join(cycle(both))


def test_imports_inside_functions_are_those_of_the_list(ours):
    outside, inside = ours
    found = {(name, target) for name in inside for target in inside[name] - outside[name]}
    assert found == set(IN_FUNCTIONS), found ^ set(IN_FUNCTIONS)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("from . import b", "import package.a"),
        ("from .b import f", "def f():\n    from package.a import g"),
        ("import package.b", "class C:\n    from . import a"),
        ("from package import b", "if True:\n    from .a import g"),
    ],
)
def test_a_circle_is_found(tmp_path, a, b):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text(a)
    (package / "b.py").write_text(b)
    outside, inside = graphs(modules(tmp_path))
    both = {name: outside[name] | inside[name] for name in outside}
    assert cycle(both) == ["package.a", "package.b", "package.a"]
    assert bool(cycle(outside)) == ("def" not in b)


def test_imports_for_types_only_are_no_circle(tmp_path):
    (tmp_path / "a.py").write_text("import b")
    (tmp_path / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a"
    )
    assert not cycle(graphs(modules(tmp_path))[0])


# ---- what a wheel imports it declares

# Wheels that a wheel uses only where they are installed.
OPTIONAL_WHEELS = {
    "rabbet-core": {"numpy", "tensorboard", "rabbet-autograd", "rabbet-distributions", "rabbet-nn", "rabbet-profiler", "rabbet-vmap"},
    "rabbet-nn": {"rabbet-vmap"},
    "rabbet-testing": {"torch", "rabbet-autograd", "rabbet-autocast", "rabbet-nn", "rabbet-optim", "rabbet-vmap"},
}  # fmt: skip


# Modules that nothing imports at its head: who asks for them needs the wheel, and is told its name.
NEED_MORE = {
    "rabbet.utils.data.sources": {"pyarrow"},
    "rabbet._as_torch.functorch": {"rabbet-nn", "rabbet-vmap"},
    "rabbet_compile._module": {"rabbet-nn"},
    "rabbet_compile._record": {"rabbet-graph"},
    "rabbet.graph._module": {"rabbet-nn"},
    "rabbet.export._module": {"rabbet-nn"},
    "rabbet.autograd._function_levels": {"rabbet-vmap"},
    "rabbet.func._differential": {"rabbet-autograd"},
    "rabbet.func._module_state": {"rabbet-nn"},
    "rabbet.optim.swa_utils": {"rabbet-nn"},
    "rabbet.utils.cpp_extension._setup": {"setuptools"},
    "rabbet.utils.tensorboard": {"google", "numpy", "tensorboard"},
    "rabbet.vmap._function": {"rabbet-autograd"},
    "rabbet_testing.fuzz": {"rabbet-nn", "rabbet-vmap"},
}


def needed_wheels(tree: ast.Module, home: dict[str, str], own: str) -> Iterator[tuple[str, bool]]:
    """Wheels whose modules a module imports by their full name, each with whether it must be there."""

    def walk(node: ast.AST, optional: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            inside = isinstance(
                child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try
            )
            guarded = isinstance(child, ast.With) and "suppress" in ast.unparse(child.items[0])
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom) and not child.level:
                names = [f"{child.module}.{alias.name}" for alias in child.names]
            else:
                names = []
            for name in names:
                parts = name.split(".")
                found = (home.get(".".join(parts[:n])) for n in range(len(parts), 0, -1))
                wheel = next((w for w in found if w), parts[0])
                if wheel != own and parts[0] not in sys.stdlib_module_names:
                    yield wheel, not optional
            if not is_type_checking(child):
                yield from walk(child, optional or inside or guarded)

    yield from walk(tree, False)


def wheels() -> dict[str, tuple[set[str], dict[str, Path]]]:
    """For each of our wheels what it declares, and its modules."""
    found = {}
    for folder in sorted((ROOT / "packages").iterdir()):
        if not (folder / "src").is_dir():
            continue
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        declared = {re.split(r"[<>=!~ ;\[]", d)[0] for d in project["dependencies"]}
        found[project["name"]] = declared, modules(folder / "src")
    return found


@pytest.mark.parametrize("wheel", wheels())
def test_a_wheel_declares_what_it_imports(wheel):
    all_wheels = wheels()
    home = {name: w for w, (_, files) in all_wheels.items() for name in files}
    declared, files = all_wheels[wheel]
    optional = OPTIONAL_WHEELS.get(wheel, set())
    for name, file in files.items():
        for other, required in needed_wheels(ast.parse(file.read_text()), home, wheel):
            more = {
                w
                for of, needed in NEED_MORE.items()
                for w in needed
                if f"{name}.".startswith(f"{of}.")
            }
            allowed = other in more or (not required and other in optional)
            assert other in declared or allowed, (name, other)


def test_an_undeclared_import_is_found():
    code = "import scipy.special\ndef f():\n    import numpy\ntry:\n    import torch\nexcept ImportError:\n    pass"
    found = set(needed_wheels(ast.parse(code), {}, "rabbet-testing"))
    assert found == {("scipy", True), ("numpy", False), ("torch", False)}
