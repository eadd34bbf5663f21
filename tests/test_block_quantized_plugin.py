"""The example of a composite tensor from outside: a wheel of its own, built and tested against the installed core."""

import re
import shutil
import sys
from pathlib import Path

from test_transform_plugin import run, undefined_symbols

PROJECT = Path(__file__).resolve().parent.parent / "examples/block-quantized-plugin"


def test_the_wheel_builds_alone_and_does_what_it_says(tmp_path):
    project, prefix = tmp_path / "project", tmp_path / "prefix"  # away from the monorepo
    shutil.copytree(PROJECT, project)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-index"]
    run(*pip, "--no-build-isolation", "--no-deps", "--target", prefix, ".", cwd=project)
    symbols = undefined_symbols(prefix / "rabbet_blockq/librabbet_blockq.so")
    assert symbols and not [s for s in symbols if re.match(r"_?Py|rabbet_|.*6rabbet", s)]
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    summary = run(*pytest_command, "tests", cwd=project, prefix=prefix).splitlines()[-1]
    assert int(re.match(r"(\d+) passed", summary).group(1)) >= 58
    judge = [sys.executable, "-m", "rabbet_testing.monkeypatching", "blockq"]
    assert run(*judge, cwd=tmp_path, prefix=prefix) == ""
    judge = ["-n", "2", "--pyargs", "rabbet_testing", "--layer=blockq"]
    verdict = run(*pytest_command, *judge, cwd=tmp_path, prefix=prefix)
    assert "layer blockq: conformant" in verdict
    assert (
        int(re.search(r"layer: (\d+) passed", verdict).group(1)) > 550
    )  # of every operator that takes tensors


def test_a_file_says_which_wheel_it_needs(tmp_path):
    from plugin_wheels import run as run_code

    code = """
import json, rabbet
stored = {"name": "blockq", "layer": "blockq", "wheel": "rabbet-blockq 0.1.0", "blob": b"", "dtype": "float32", "shape": [2]}
try:
    rabbet.composite.rebuild(stored, (rabbet.zeros(2),))
except rabbet.PluginError as error:
    print(error)
"""
    assert (
        "the wheel 'rabbet-blockq' provides (rabbet-blockq 0.1.0 wrote it): pip install rabbet-blockq"
        in run_code(tmp_path, code)
    )


def test_it_is_small_and_uses_public_headers_alone():
    sources = [PROJECT / "csrc/blockq.cpp", PROJECT / "src/rabbet_blockq/__init__.py"]
    assert sum(len(source.read_text().splitlines()) for source in sources) < 300
    includes = set(re.findall(r'#include "([^"]+)"', sources[0].read_text()))
    assert includes == {"rabbet/composite.h", "rabbet/plugin.hpp", "rabbet/trace.h"}
