"""Fixtures: the native library under a host of our own."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from rabbet_backend_cpu import library_path

sys.path.insert(
    0, str(Path(__file__).parent)
)  # pytest imports tests as files, their helper is a module
from native_host import Host


def library() -> Path:
    """The library under test: RABBET_BACKEND_CPU_LIBRARY, else the installed one."""
    given = os.environ.get("RABBET_BACKEND_CPU_LIBRARY")
    return Path(given) if given else library_path()


@pytest.fixture(scope="session")
def native_library() -> Path:
    return library()


@pytest.fixture(scope="session")
def host(native_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    folder = tmp_path_factory.mktemp("host")
    # A copy: the library that rabbet itself has loaded must keep its own host.
    copy = Path(shutil.copy(native_library, folder / "copy_of_the_library.so"))
    loaded = Host(copy, folder)
    loaded.lib.set_threads(2)
    return loaded
