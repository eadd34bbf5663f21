"""A pytest plugin: outcome and error of each test, as JSON in the file that RABBET_OUTCOMES names."""

import json
import os

_found = {}


def pytest_runtest_logreport(report):
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash else str(report.longrepr)
        _found[report.nodeid] = "failed", text.splitlines()[0][:200] if text else ""
    elif report.when == "call" or report.skipped:
        _found.setdefault(report.nodeid, (report.outcome, ""))


def pytest_collectreport(report):
    if report.failed:
        _found[report.nodeid] = "failed", str(report.longrepr).splitlines()[-1][:200]


def pytest_sessionfinish():
    with open(os.environ["RABBET_OUTCOMES"], "w") as file:
        json.dump(_found, file)
