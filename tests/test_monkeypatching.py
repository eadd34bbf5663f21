"""Loading a plugin changes nothing of Rabbet but what its manifest declares; one that does is found out."""

import json
import os
import subprocess
import sys

import pytest
import rabbet
from plugin_wheels import MANIFEST, build, build_backend, install
from rabbet import _plugins

PATCHES = """
import rabbet
from rabbet import nn

def mine(*args, **kwargs): ...

rabbet.stack = mine
nn.functional.relu = mine
nn.Linear.forward = mine
rabbet.Tensor.oddness = 3
rabbet.Tensor.sum = mine
del rabbet.Tensor.__repr__
rabbet.manual_seed.__code__ = mine.__code__
rabbet._printing.new = 1
"""


def judge(name, folder=None):
    """(lines, exit code, errors) of the judge, in a process of its own."""
    paths = [str(folder)] * (folder is not None) + [p for p in sys.path if p]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "rabbet_testing.monkeypatching", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout.splitlines(), done.returncode, done.stderr


@pytest.mark.parametrize("name", sorted(p.name for p in _plugins.plugins().values()))
def test_an_installed_plugin_patches_nothing(name):
    assert judge(name) == ([], 0, "")


def test_a_stranger_with_hooks_patches_nothing(tmp_path):
    code = """
def rabbet_tensor_attributes():
    return {"oddness": property(lambda self: 3)}

def rabbet_register_ops(lib):
    lib.op("odd::twice(Tensor x) -> Tensor")(lambda x: x + x)
"""
    manifest = MANIFEST.format("odd", "backend") + 'attributes = ["oddness"]\n'
    install(tmp_path, "odd", manifest, build_backend(tmp_path, "odd"), code)
    assert judge("odd", tmp_path) == ([], 0, "")


def test_a_plugin_that_patches_is_found_out(tmp_path):
    install(
        tmp_path, "odd", MANIFEST.format("odd", "backend"), build_backend(tmp_path, "odd"), PATCHES
    )
    lines, code, errors = judge("odd", tmp_path)
    assert code == 1, errors
    for line in (
        "__code__ of rabbet._random.manual_seed was changed",
        "rabbet._printing.new was added",
        "rabbet.nn.functional.relu was replaced",
        "rabbet.stack was replaced",
    ):
        assert line in lines
    for ending in (
        "Linear.forward was replaced", "Tensor.oddness was added", "Tensor.sum was replaced", "Tensor.__repr__ was removed",
    ):  # fmt: skip
        assert sum(line.endswith(ending) for line in lines) == 1, (ending, lines)
    assert len(lines) == len(set(lines)) and not [x for x in lines if "_plugins" in x]


def test_what_cannot_be_judged(tmp_path):
    broken = build(tmp_path, "odd", init='(void)txn; return host->err_set(1, "no licence");')
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"), broken)
    lines, code, errors = judge("odd", tmp_path)
    assert (lines, code) == ([], 2) and "no licence" in errors and "failed at stage load" in errors
    install(tmp_path, "raises", MANIFEST.format("raises", "ops"), None, "1 / 0\n")
    (tmp_path / "raises_plugin/rabbet_plugin.toml").write_text(
        'name = "raises"\nkind = "ops"\nprovides = []\n'
    )
    lines, code, errors = judge("raises", tmp_path)
    assert code == 2 and "importing 'raises_plugin' raised ZeroDivisionError" in errors
    lines, code, errors = judge("nobody", tmp_path)
    assert code == 2 and "no plugin 'nobody' is installed; there are:" in errors


def test_import_and_the_way_of_an_operator_are_without_pluggy():
    code = """
import sys, json
import rabbet
x = rabbet.ones(3, requires_grad=True)
imported = "pluggy" in sys.modules
calls = []
def trace(frame, event, arg):
    calls.append(frame.f_code.co_filename)
sys.setprofile(trace)
(x * x).sum().backward()
sys.setprofile(None)
print(json.dumps([imported, [c for c in calls if "pluggy" in c or "_hookspecs" in c]]))
"""
    early = "import sys, rabbet\nrabbet.ones(2) + 1\nprint('pluggy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", early], capture_output=True).stdout == b"False\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout) == [True, []], done.stderr


def test_classes_and_modules_are_looked_at():
    from rabbet_testing.monkeypatching import Snapshot

    names = set(Snapshot().owners)
    assert {"rabbet", "rabbet._C", "rabbet._plugins"} <= names
    assert rabbet.Tensor in Snapshot().owners.values()
