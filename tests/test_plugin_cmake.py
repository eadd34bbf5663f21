"""The CMake functions that plugins are built with."""

import subprocess
import sys
from pathlib import Path

from rabbet_testing.judges import library as judge

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(odd LANGUAGES CXX)
find_package(Rabbet CONFIG REQUIRED)
rabbet_add_plugin(odd odd.cpp EXPORTS {exports})
"""
SOURCE = """
#include "rabbet/abi.h"
extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return nullptr; }
extern "C" RB_EXPORT void one() {}
extern "C" RB_EXPORT void other() {}
"""


def test_other_exports_link_the_library_again(tmp_path):
    tools = Path(sys.executable).parent
    (tmp_path / "odd.cpp").write_text(SOURCE)

    def exported(exports):
        (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(exports=exports))
        found = subprocess.run(
            [sys.executable, "-m", "rabbet", "cmakedir"], capture_output=True, text=True, check=True
        )
        folder = str(tmp_path / "build")
        command = [str(tools / "cmake"), "-S", str(tmp_path), "-B", folder, "-G", "Ninja",
                   f"-DRabbet_DIR={found.stdout.strip()}", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        subprocess.run([str(tools / "cmake"), "--build", folder], check=True, capture_output=True)
        return judge.exported(tmp_path / "build" / "libodd.so")

    assert exported("one") == {"rabbet_plugin_v0", "one"}
    assert exported("one other") == {"rabbet_plugin_v0", "one", "other"}
    assert exported("other") == {"rabbet_plugin_v0", "other"}
