"""All tests of regions defer results from 64 KiB on, so that small tensors will do.

Nothing is deferred while several threads use core. Where tests of other packages have left such threads behind, as
multiprocessing's server of shared memory, each test here runs in a process of its own.
"""

import subprocess
import sys

import pytest
import rabbet
import rabbet_compile


def defers() -> bool:
    with rabbet_compile.region():
        rabbet.ones(1 << 16) * 2
        return rabbet_compile.totals()["recorded"] > 0


@pytest.fixture(autouse=True)
def regions_only(request, monkeypatch):
    """Tests of regions want each call to run there; those of replay have files of their own."""
    if not request.path.name.startswith("test_replay"):
        monkeypatch.setenv("RABBET_COMPILE", "regions")


@pytest.fixture(autouse=True)
def lower_threshold():
    before = rabbet_compile.settings()
    rabbet_compile.configure(least_bytes=1 << 16)
    rabbet_compile.reset()
    yield
    rabbet_compile.configure(**before)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    alone = defers()
    rabbet_compile.reset()
    if alone:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", pyfuncitem.nodeid]
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return True
