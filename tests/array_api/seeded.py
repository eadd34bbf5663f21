"""A pytest plugin: Python's random numbers begin anew with each test, as some tests of the suite draw by them."""

import random


def pytest_runtest_setup():
    random.seed(0)
