"""A plugin of pytest: one of $GPU_CHECK_EVERY tests, spread evenly over all of them; none on a device that has failed."""

import os

import pytest

failed_in = ""  # the test in which this process's device failed for good


def pytest_collection_modifyitems(config, items):
    every = int(os.environ.get("GPU_CHECK_EVERY") or 1)
    config.hook.pytest_deselected(items=[item for k, item in enumerate(items) if k % every])
    items[:] = items[::every]


def pytest_runtest_setup(item):
    if failed_in:
        pytest.skip(f"the device of this process failed in {failed_in}")


def pytest_runtest_makereport(item, call):
    global failed_in
    if call.excinfo is not None and "DeviceError" in str(call.excinfo.getrepr()):
        failed_in = failed_in or item.nodeid
