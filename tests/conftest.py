"""The backend `lazy` for the tests that ask for it: `pytestmark = pytest.mark.usefixtures("lazy", "settled")`."""

import gc

import pytest
import rabbet
from plugin_wheels import load_lazy
from rabbet import _C, accelerator


@pytest.fixture(scope="session")
def lazy(tmp_path_factory):
    """The library of the backend, which is loaded into this process for good."""
    return load_lazy(tmp_path_factory)


@pytest.fixture
def settled(lazy):
    """When the test is over, the default stream is current, all work has run, and no memory is left."""
    yield
    assert accelerator.current_stream("lazy").stream_id == 0
    gc.collect()
    for index in range(2):
        _C.synchronize(rabbet.device("lazy", index))
    _C.empty_cache()
    assert [s for s in accelerator.memory_snapshot() if s["backend"] == "lazy"] == []
