"""Run packages that are built on torch under `rabbet run`: their own tests, or models beside PyTorch's numbers.

    python tests/packages/run.py [NAMES]                    # make test-packages
    python tests/packages/run.py --torch PYTHON [NAMES]     # write expected.json anew with PyTorch's numbers
    python tests/packages/run.py --accept [NAMES]           # write what fails now into the list of known failures
    python tests/packages/run.py --times PYTHON [NAMES]     # write the time of each step beside PyTorch's

What is known to fail stands in expected_failures.json, with the reason. A failure that does not stand there is an error,
and so is an entry that passes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "test-packages"
SITE = (
    BUILD / "site-packages"
)  # a name by which dill knows that these are modules to import, not to copy
SDISTS = BUILD / "sdists"
RABBET = [sys.executable, "-m", "rabbet", "run"]
SECONDS = 1800  # for one suite

SUITES = tomllib.loads((HERE / "suites.toml").read_text())
FAILURES = json.loads((HERE / "expected_failures.json").read_text())
EXPECTED = HERE / "expected.json"
TIMES = HERE.parent.parent / "docs" / "reference" / "package-times.md"
# Relative to the larger of the number and 1. Packages that compute parts in float32 agree to that.
FLOAT32_PARTS = (
    "bitsandbytes", "diffusers", "fastai", "monai", "peft", "performer_pytorch", "pytorch_forecasting", "pytorch_tabnet",
    "sentence_transformers", "tab_transformer_pytorch", "torchvision_transforms", "transformers", "trl", "whisper",
    "x_transformers",
)  # fmt: skip
TOLERANCE = {
    **dict.fromkeys(FLOAT32_PARTS, 2e-5),
    "stable_baselines3": 1e-4,
    "timm": 2e-6,
}
DEFAULT_TOLERANCE = 1e-7
KINDS = ("outputs", "gradients", "steps")  # of numbers


def pip(*arguments: object) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--disable-pip-version-check",
        *map(str, arguments),
    ]
    subprocess.run(command, check=True)


def install() -> None:
    """Install the pinned wheels and unpack the pinned sources, once for each state of the two lists."""
    lists = [HERE / "requirements.txt", HERE / "sdists.txt"]
    stamp, wanted = BUILD / "installed", "".join(file.read_text() for file in lists)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    SDISTS.mkdir(parents=True, exist_ok=True)
    pip("install", "--no-deps", "--upgrade", "--target", SITE, "-r", lists[0])
    for line in lists[1].read_text().splitlines():
        if line and not line.startswith("#"):
            name = line.split("==")[0]
            pip("download", "--no-deps", "--no-binary", name, "--dest", SDISTS, line)
    for archive in SDISTS.glob("*.tar.gz"):
        subprocess.run(["tar", "xzf", archive], cwd=SDISTS, check=True)
    stamp.write_text(wanted)


def environment(*folders: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(map(str, (SITE, *folders)))
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    return {**os.environ, "PYTHONPATH": path, **alone, **more}


def listed(kind: str, name: str) -> dict[str, str]:
    """Known failures with their reasons."""
    reasons = FAILURES.get(kind, {}).get(name, {})
    return {test: reason for reason, tests in reasons.items() for test in tests}


# ---- own tests


def suite_outcomes(name: str) -> dict[str, tuple[str, str]]:
    """What each test of a package's own suite did, and its error."""
    suite = SUITES[name]
    (folder,) = SDISTS.glob(suite["sdist"] + "-*/") if "sdist" in suite else (SITE,)
    options = [
        "-q",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        "-p",
        "outcomes",
        "-W",
        "ignore",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
    ]  # not this repository's settings
    command = [*RABBET, "-m", "pytest", *options, *suite["arguments"]]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "outcomes.json"
        variables = environment(HERE, RABBET_OUTCOMES=str(file), **suite.get("environment", {}))
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, timeout=SECONDS
        )
        if not file.exists():
            raise SystemExit(
                f"{name}: pytest ended early\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return json.loads(file.read_text())


def check_suite(name: str) -> tuple[str, dict[str, str], list[str]]:
    """A summary, the tests that fail with their errors, and what else is wrong."""
    found = suite_outcomes(name)
    outcomes = [outcome for outcome, _ in found.values()]
    counts = {o: outcomes.count(o) for o in ("passed", "failed", "skipped")}
    failed = {test: error for test, (outcome, error) in found.items() if outcome == "failed"}
    line = (
        f"own tests: {counts['passed']} pass, {counts['failed']} fail, {counts['skipped']} skipped"
    )
    return line, failed, [] if counts["passed"] else ["no test passed"]


# ---- models beside PyTorch


def numbers(found: dict, kinds: list[str]) -> np.ndarray:
    pairs = [pair for key in kinds for pair in found.get(key, [])]
    return np.array([[np.nan, np.nan] if pair is None else pair for pair in pairs]).reshape(-1)


def model_results(python: list[str], name: str, *folders: Path) -> dict[str, dict]:
    """Numbers of all cases of a package, or their errors."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "found.json"
        command = [*python, str(HERE / "models.py"), name, str(file)]
        done = subprocess.run(
            command, cwd=HERE, env=environment(*folders), capture_output=True, text=True
        )
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if "Error" in line][-1:]
            raise ImportError(last[0] if last else f"models.py ended with {done.returncode}")
        return json.loads(file.read_text())


def difference(name: str, found: dict, expected: dict) -> str | None:
    """What is wrong with one case; None: nothing."""
    if "error" in found:
        return found["error"]
    kinds = [key for key in KINDS if key in expected]
    ours, theirs = numbers(found, kinds), numbers(expected, kinds)
    if ours.shape != theirs.shape:
        return f"{ours.size} numbers, PyTorch has {theirs.size}"
    # A product is as exact as the norm of its tensor allows.
    sizes = np.maximum(np.abs(theirs), np.repeat(np.abs(theirs[::2]), 2))
    bound = TOLERANCE.get(name, DEFAULT_TOLERANCE) * np.maximum(sizes, 1.0)
    with np.errstate(invalid="ignore"):  # of infinity and infinity
        near = np.abs(ours - theirs) <= bound
    far = ~(near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    return f"{far.sum()} of {far.size} numbers differ from PyTorch's" if far.any() else None


def check_models(name: str) -> tuple[str, dict[str, str], list[str]]:
    """A summary, the cases that fail with their errors, and what else is wrong."""
    expected = json.loads(EXPECTED.read_text())["packages"][name]
    try:
        found = model_results(RABBET, name)
    except ImportError as error:
        found = {case: {"error": str(error)} for case in expected}
    missing = [
        f"no numbers of PyTorch for {case}" for case in sorted(found.keys() ^ expected.keys())
    ]
    failed = {c: difference(name, found[c], expected[c]) for c in found.keys() & expected.keys()}
    failed = {case: text for case, text in failed.items() if text is not None}
    return f"models: {len(found) - len(failed)} of {len(found)} agree with PyTorch", failed, missing


def against_known(failed: dict[str, str], known: dict[str, str]) -> list[str]:
    """Failures that are not known, and known ones that are none."""
    wrong = [f"fails: {test}: {failed[test]}" for test in sorted(failed.keys() - known.keys())]
    return wrong + [f"expected to fail, passed: {t}" for t in sorted(known.keys() - failed.keys())]


def write_failures(kind: str, name: str, failed: dict[str, str]) -> None:
    """Put the failures of one package, by their errors, in the place of those that were known."""
    reasons: dict[str, list[str]] = {}
    for test, error in sorted(failed.items()):
        reasons.setdefault(error, []).append(test)
    FAILURES.setdefault(kind, {})[name] = reasons
    (HERE / "expected_failures.json").write_text(
        json.dumps(FAILURES, indent=1, sort_keys=True) + "\n"
    )


def write_expected(python: str, names: list[str]) -> None:
    """Write PyTorch's numbers for these packages into expected.json."""
    stored = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {"packages": {}}
    asked = [python, "-c", "import torch; print(torch.__version__)"]
    stored["torch"] = subprocess.run(
        asked, check=True, capture_output=True, text=True
    ).stdout.strip()
    for name in names:
        found = model_results([python, str(HERE / "with_torch.py")], name)
        for case, result in found.items():
            if "error" in result:
                raise SystemExit(f"{name}.{case} fails under PyTorch: {result['error']}")
        stored["packages"][name] = {
            case: {
                key: [pair and [float(f"{x:.10g}") for x in pair] for pair in result[key]]
                for key in KINDS
                if key in result
            }
            for case, result in found.items()
        }
        print(f"{name}: {len(found)} cases")
    stored["packages"] = dict(sorted(stored["packages"].items()))
    EXPECTED.write_text(json.dumps(stored, separators=(",", ":")).replace('},"', '},\n"') + "\n")


def write_times(python: str, names: list[str]) -> None:
    """Measure each module's training step under rabbet and PyTorch, one after the other, and write the page of times."""
    page, start = TIMES.read_text(), "| package |"
    kept = [line for line in page[page.index(start) :].splitlines()[2:] if line]
    rows = {tuple(line.split(" | ")[:2]): line for line in kept}
    for name in names:
        rows = {key: line for key, line in rows.items() if key[0] != f"| {name}"}
        ours = model_results(RABBET, name)
        theirs = model_results([python, str(HERE / "with_torch.py")], name)
        pairs = {
            case: (ours[case]["seconds"] * 1e3, theirs[case]["seconds"] * 1e3)
            for case in ours
            if "steps" in ours[case] and "steps" in theirs.get(case, {})
        }
        for case, (a, b) in pairs.items():
            rows[f"| {name}", case] = f"| {name} | {case} | {a:.2f} | {b:.2f} | {b / a:.1f} |"
        if pairs:
            ratios = [b / a for a, b in pairs.values()]
            print(f"{name}: {len(pairs)} steps, PyTorch's time / rabbet's: {np.median(ratios):.2f}")
    head = page[: page.index(start)] + "\n".join(page[page.index(start) :].splitlines()[:2])
    TIMES.write_text("\n".join([head, *(rows[key] for key in sorted(rows))]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="packages; all if none is named")
    parser.add_argument("--accept", action="store_true", help="write the list of known failures")
    parser.add_argument(
        "--torch", metavar="PYTHON", help="a Python with PyTorch: write expected.json"
    )
    parser.add_argument(
        "--times", metavar="PYTHON", help="a Python with PyTorch: write the time of each step"
    )
    arguments = parser.parse_args()
    models = sorted(file.stem for file in (HERE / "cases").glob("[a-z]*.py"))
    names = arguments.names or sorted({*models, *SUITES})
    for name in names:
        if name not in models and name not in SUITES:
            parser.error(f"{name!r} is none of {', '.join(sorted({*models, *SUITES}))}")
    install()
    if arguments.torch:
        write_expected(arguments.torch, [name for name in names if name in models])
        return 0
    if arguments.times:
        write_times(arguments.times, [name for name in names if name in models])
        return 0
    bad = False
    for name in names:
        for kind, check, has in (("suites", check_suite, SUITES), ("models", check_models, models)):
            if name not in has:
                continue
            line, failed, wrong = check(name)
            if arguments.accept:
                write_failures(kind, name, failed)
            wrong += against_known(failed, listed(kind, name))
            print(f"{name:28} {line}", *wrong, sep="\n    ", flush=True)
            bad |= bool(wrong)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
