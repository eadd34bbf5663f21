"""Many batches of the data loader: nothing grows (benchmarks/soak.py)."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks/soak.py"


def soak(batches, *cases):
    options = [word for case in cases for word in ("--case", case)]
    command = [sys.executable, str(SCRIPT), "--batches", str(batches), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("case", ["in the loop", "threads", "processes"])
def test_nothing_grows_in_many_batches(case):
    out = soak(20_000, case)
    assert f"{case}: 20000 batches" in out and "GREW" not in out


@pytest.mark.slow
def test_nothing_grows_in_a_million_batches():
    out = soak(10**6)
    assert out.count("1000000 batches") == 4 and "GREW" not in out


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(script, **changes):
    plain = dict.fromkeys(script.ALLOWED, 100)
    return [{**plain, **{k: f(i) for k, f in changes.items()}} for i in range(40)]


def test_growth_is_told_from_noise(script):
    assert script.grown(rows_of(script)) == {}
    found = script.grown(rows_of(script, descriptors=lambda i: 100 + i // 10))
    assert list(found) == ["descriptors"] and found["descriptors"][1] > found["descriptors"][0]
    leak = rows_of(script, **{"program kB": lambda i: 30_000 + 200 * i})
    assert list(script.grown(leak)) == ["program kB"]
    wave = rows_of(script, **{"program kB": lambda i: 30_000 + 500 * (i % 5)})
    assert script.grown(wave) == {}
    warm_up = rows_of(script, **{"workers kB": lambda i: 1000 * min(i, 8)})
    assert script.grown(warm_up) == {}


def test_what_a_loader_keeps_is_measured(script, monkeypatch):
    collate, kept = script.collate, []

    def keeps(samples):
        kept.append(collate(samples))
        return kept[-1]

    assert "tensors" not in script.grown(list(script.measurements({}, 2000)))
    monkeypatch.setattr(script, "collate", keeps)
    assert "tensors" in script.grown(list(script.measurements({}, 2000)))
