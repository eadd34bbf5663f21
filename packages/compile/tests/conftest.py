"""All tests of regions defer results from 64 KiB on, so that small tensors will do."""

import pytest
import rabbet_compile


@pytest.fixture(autouse=True)
def lower_threshold():
    before = rabbet_compile.settings()
    rabbet_compile.configure(least_bytes=1 << 16)
    rabbet_compile.reset()
    yield
    rabbet_compile.configure(**before)
