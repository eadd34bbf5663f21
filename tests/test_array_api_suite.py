"""The runner of the consortium's array API tests: what it reports, and that its list of failures is sound."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rabbet import array_api

FOLDER = Path(__file__).resolve().parent / "array_api"
SPEC = importlib.util.spec_from_file_location("array_api_run", FOLDER / "run.py")
run = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)
PASSED, FAILED = ("passed", ""), ("failed", "ValueError: no")


def test_a_missing_suite_is_an_error_that_says_where_it_comes_from(tmp_path):
    command = [sys.executable, str(FOLDER / "run.py"), "--suite", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"{tmp_path / 'array_api_tests'} does not exist" in done.stderr
    assert "https://github.com/data-apis/array-api-tests" in done.stderr


@pytest.mark.parametrize(
    "found,is_part,wrong",
    [
        ({"a": PASSED, "b": FAILED}, False, []),
        ({"a": FAILED, "b": FAILED, "c": PASSED}, False, ["fails: a: ValueError: no"]),
        ({"a": PASSED, "b": PASSED}, False, ["expected to fail, passed: b"]),
        ({"a": PASSED, "b": ("skipped", "")}, False, ["expected to fail, skipped: b"]),
        ({"a": PASSED}, False, ["expected to fail, does not exist: b"]),
        ({"a": PASSED}, True, []),
        ({"a": PASSED, "b": FAILED, "rare": PASSED}, False, []),
        ({"a": PASSED, "b": FAILED, "rare": FAILED}, False, []),
        ({"b": FAILED}, False, ["no test passed"]),
    ],
)
def test_outcomes_are_compared_with_the_list(found, is_part, wrong):
    assert run.differences(found, {"b": "why", "rare": "why"}, {"rare"}, is_part) == wrong


def test_rare_failures_are_allowed_with_many_examples_only():
    listed = json.loads(run.FAILURES.read_text())["rare"]
    rare = {test for tests in listed.values() for test in tests}
    for edition in run.MODULES:
        few, allowed = run.expected(edition, 20)
        assert few and not rare & few.keys() and not allowed
        many, allowed = run.expected(edition, 200)
        assert allowed == rare and many.keys() == few.keys() | rare


def test_each_entry_of_the_list_stands_once_and_has_a_reason():
    listed = json.loads(run.FAILURES.read_text())
    assert set(listed) == {"every edition", "rare", *run.MODULES}
    entries = [t for reasons in listed.values() for tests in reasons.values() for t in tests]
    assert len(entries) == len(set(entries)) > 0
    assert all(t.startswith("array_api_tests/test_") and "::" in t for t in entries)
    assert all(len(reason) > 20 for reasons in listed.values() for reason in reasons)


def test_every_edition_of_the_module_is_tested():
    assert set(run.MODULES) == set(array_api.EDITIONS)
    for edition, name in run.MODULES.items():
        assert importlib.import_module(name).__array_api_version__ == edition
