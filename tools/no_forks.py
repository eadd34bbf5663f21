"""A pytest plugin: tests that fork the process of the tests are skipped.

The allocator of GCC's AddressSanitizer does not release its locks in a forked child, which then waits forever if
another thread held one.
"""

import os

import pytest


def _skip() -> int:
    pytest.skip("the sanitizer's allocator may block in a forked child")


def pytest_configure() -> None:
    os.fork = _skip
