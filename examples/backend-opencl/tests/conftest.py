"""Everything here needs a device; where there is none the reason is the backend's own."""

import os
import subprocess
import sys

import pytest
import rabbet


def pytest_collection_modifyitems(items):
    try:
        rabbet.zeros(1, device="opencl").tolist()
    except RuntimeError as error:
        if "no OpenCL platform" not in str(error) and "libOpenCL" not in str(error):
            raise
        for item in items:
            item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture
def both():
    """Run a function on CPU tensors and on the same ones on the device, and compare what it returns."""
    import numpy as np
    from rabbet_testing import assert_close

    def compare(f, *arrays, **tolerances):
        results = []
        for device in ("cpu", "opencl"):
            out = f(
                *(rabbet.tensor(a).to(device) if isinstance(a, np.ndarray) else a for a in arrays)
            )
            results.append(out if isinstance(out, tuple) else (out,))
        for host, there in zip(*results, strict=True):
            assert there.device.type == "opencl" and there.dtype == host.dtype
            assert there.shape == host.shape
            assert_close(there.cpu(), host, **tolerances)

    return compare


@pytest.fixture
def run():
    """Run code in a process of its own, with environment variables, and return what it prints."""

    def in_a_process(code, **env):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return in_a_process
