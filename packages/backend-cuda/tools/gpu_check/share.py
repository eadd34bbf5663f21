"""A plugin of pytest that makes it a worker of supervise.py: it runs its share of the tests and says what becomes of each.

Tests are taken from all parts of the list in turn, so that those that were not reached are spread over all of it.
"""

import os

import pytest
from worker import DEVICE_FAILED, done, say

PASSES = 16  # over the list, each beginning one test later
found: dict[str, list[str]] = {}  # outcomes and reasons of the phases of the current test
failed_device = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    every = int(os.environ.get("GPU_CHECK_EVERY") or 1)
    share, shares = map(int, (os.environ.get("GPU_CHECK_SHARE") or "0/1").split("/"))
    chosen = items[::every][share::shares]
    chosen = [item for first in range(PASSES) for item in chosen[first::PASSES]]
    say(items=[item.nodeid for item in chosen])
    before = done()
    left = [item for item in chosen if item.nodeid not in before]
    kept = set(left)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = left


def pytest_runtest_logstart(nodeid):
    found.clear()
    say(begin=nodeid)


def pytest_runtest_logreport(report):
    global failed_device
    if report.passed:
        return
    text = str(report.longrepr[-1]) if isinstance(report.longrepr, tuple) else report.longreprtext
    outcome = "skipped" if report.skipped else "failed"
    found.setdefault(outcome, []).append(text)
    if report.failed:
        print(
            f"\n{report.nodeid}\n{text}", flush=True
        )  # the process may be ended before its summary
        failed_device = failed_device or "DeviceError" in text


def pytest_runtest_logfinish(nodeid):
    outcome = next((kind for kind in ("failed", "skipped") if kind in found), "passed")
    texts = [line for text in found.get(outcome, []) for line in text.splitlines() if line.strip()]
    reasons = [line for line in texts if line.startswith("E ")] or texts[-1:]
    say(end=nodeid, outcome=outcome, note=" ".join(reasons)[:500])
    if failed_device:
        os._exit(DEVICE_FAILED)
