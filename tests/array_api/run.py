"""Run the array API consortium's test suite on rabbet.array_api, and compare with the list of expected failures.

    python tests/array_api/run.py                            # make test-array-api
    python tests/array_api/run.py --examples 200             # more examples for each property
    python tests/array_api/run.py -k fft                     # some tests only
    python tests/array_api/run.py --show                     # print the error of each failure, expected or not

The suite (https://github.com/data-apis/array-api-tests with the submodule array-api) is not part of this repository:
`--suite` names its folder. expected_failures.json has the tests that fail, by edition and reason. A failure that is not in
the list is an error, and so is an entry that passes or names no test. Entries under "rare" count with more than 20
examples only, where they may pass.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SUITE = ROOT.parent / "shared" / "array-api-tests"
FAILURES = HERE / "expected_failures.json"
MODULES = {"2024.12": "rabbet.array_api.v2024_12", "2025.12": "rabbet.array_api"}
DEFAULT_EXAMPLES = 20  # for each property
OUTCOMES = ROOT / "tests" / "packages"  # the folder of the pytest plugin `outcomes`


def expected(edition: str, examples: int) -> tuple[dict[str, str], set[str]]:
    """The tests of an edition that fail, with their reasons, and those of them that may pass.

    What fails only for rare examples is expected to pass with the default number of examples, and may fail with more.
    """
    listed = json.loads(FAILURES.read_text())
    known, rare = {}, set()
    for section in ("every edition", edition):
        for reason, tests in listed[section].items():
            known.update(dict.fromkeys(tests, reason))
    if examples > DEFAULT_EXAMPLES:
        for reason, tests in listed["rare"].items():
            known.update(dict.fromkeys(tests, reason))
            rare.update(tests)
    return known, rare


def differences(found: dict, known: dict[str, str], rare: set[str], is_part: bool) -> list[str]:
    """The disagreements between the outcomes of tests and the list of failures.

    Args:
        found: outcome and error of each test that ran.
        is_part: whether not all tests ran, so that entries of the list may be missing.
    """
    failed = {test: error for test, (outcome, error) in found.items() if outcome == "failed"}
    wrong = [f"fails: {test}: {failed[test]}" for test in sorted(failed.keys() - known.keys())]
    for test in sorted(known.keys() - failed.keys() - rare):
        if test in found:
            wrong.append(f"expected to fail, {found[test][0]}: {test}")
        elif not is_part:
            wrong.append(f"expected to fail, does not exist: {test}")
    if not any(outcome == "passed" for outcome, _ in found.values()):
        wrong.append("no test passed")
    return wrong


def outcomes(
    suite: Path, edition: str, examples: int, selected: str | None
) -> dict[str, list[str]]:
    """The outcome of each test of the suite, and its error."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "outcomes", "-p", "seeded", "--tb=no"]
    options += [
        "-W",
        "ignore",
        "--max-examples",
        str(examples),
        "--derandomize",
        "--disable-deadline",
    ]
    options += ["--continue-on-collection-errors"] + (["-k", selected] if selected else [])
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "outcomes.json"
        variables = {
            **os.environ,
            "ARRAY_API_TESTS_MODULE": MODULES[edition],
            "ARRAY_API_TESTS_VERSION": edition,
            "HYPOTHESIS_STORAGE_DIRECTORY": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",  # or the examples differ from run to run
            "PYTHONPATH": os.pathsep.join(map(str, (OUTCOMES, HERE))),
            "RABBET_OUTCOMES": str(file),
        }
        command = [sys.executable, "-m", "pytest", "array_api_tests", *options]
        done = subprocess.run(command, cwd=suite, env=variables, capture_output=True, text=True)
        if not file.exists():
            raise SystemExit(f"pytest ended early\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(file.read_text())


def check(suite: Path, edition: str, arguments: argparse.Namespace) -> bool:
    """Print a summary of an edition and what is wrong; whether all is as expected."""
    found = outcomes(suite, edition, arguments.examples, arguments.k)
    known, rare = expected(edition, arguments.examples)
    wrong = differences(found, known, rare, is_part=arguments.k is not None)
    done = [outcome for outcome, _ in found.values()]
    counts = ", ".join(f"{done.count(o)} {o}" for o in ("passed", "failed", "skipped"))
    print(f"{edition}: {counts}; {len(known)} failures are listed")
    if arguments.show:
        for test in sorted(t for t in known if found.get(t, [""])[0] == "failed"):
            print(f"    as expected: {test}: {found[test][1]}\n        {known[test]}")
    for line in wrong:
        print(f"    {line}")
    sys.stdout.flush()
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", type=Path, default=SUITE, help="the folder of the suite")
    parser.add_argument(
        "--examples", type=int, default=DEFAULT_EXAMPLES, help="examples for each property"
    )
    parser.add_argument("--edition", choices=MODULES, help="one edition of the standard only")
    parser.add_argument("-k", metavar="EXPRESSION", help="the tests that pytest selects by -k only")
    parser.add_argument("--show", action="store_true", help="print the errors of expected failures")
    arguments = parser.parse_args()
    suite = arguments.suite.resolve()
    for part in ("array_api_tests", "array-api/src/array_api_stubs"):
        if not (suite / part).is_dir():
            parser.error(
                f"{suite / part} does not exist: get https://github.com/data-apis/array-api-tests with its submodule "
                f"array-api, and name its folder by --suite (SUITE= of make)"
            )
    editions = [arguments.edition] if arguments.edition else list(MODULES)
    results = [check(suite, edition, arguments) for edition in editions]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
