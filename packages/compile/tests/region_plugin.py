"""A plugin of pytest: the body of every test runs in a region in which results of any size are deferred.

Use: `python -m pytest -p region_plugin packages/nn/tests`, with this folder on PYTHONPATH.
"""

import os

import pytest
import rabbet_compile

rabbet_compile.configure(least_bytes=0, tile=int(os.environ.get("REGION_TILE", "64")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with rabbet_compile.region():
        return (yield)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"regions: {rabbet_compile.totals()}")
