"""Build the native parts with a sanitizer, in build/sanitize/NAME, and run their tests.

    python tools/sanitize.py address [PYTEST ARGUMENTS]   # AddressSanitizer and UndefinedBehaviorSanitizer
    python tools/sanitize.py thread [PYTEST ARGUMENTS]    # ThreadSanitizer, on the tests with several threads

The packages are installed beside the usual ones, which stay as they are. Of the CPU kernels only those
of this machine's level are built. Leaks are looked for in the native tests only: the interpreter itself
frees not everything. ThreadSanitizer sees our libraries, and the locks of the interpreter, not its data. Tests that
fork are skipped by AddressSanitizer (no_forks.py).
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ["core", "backend-cpu", "autograd", "autocast", "vmap", "profiler", "compile", "graph"]
PURE = ["nn", "optim", "testing"]
TESTS = {
    "address": [f"packages/{name}/tests" for name in NATIVE]
    + ["packages/testing/tests/test_l0_abi.py", "packages/testing/tests/test_fuzz.py"]
    + [
        f"tests/test_{name}.py"
        for name in ["threads", "edge_cases", "memory", "streams", "host_checks", "abi", "backends"]
        + ["device_memory", "device_tables", "graphs", "composite", "trace"]
    ],
    "thread": [
        "packages/autograd/tests/test_threads.py",
        "tests/test_threads.py::test_several_python_threads_get_what_one_gets",
        "tests/test_device_memory.py::test_threads_get_blocks_of_their_own",
        "tests/test_device_memory.py::test_the_lock_is_not_held_while_the_backend_allocates",
        "tests/test_device_memory.py::test_pools_are_a_threads_own",
        "tests/test_streams.py",
        "tests/test_plugins.py::test_threads_that_first_use_an_attribute_together",
    ],
}
FLAGS = {
    "address": "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all",
    "thread": "-fsanitize=thread",
}
POOL = (
    "pool",
    "fork",
    "error",
    "plugin_names",
    "thread_state",
    "deferral",
)  # without the rest of core
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
COMMON = "-O1 -g1 -fno-omit-frame-pointer"


def run(command: list[str], **env: str) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **env})


def library(name: str) -> str:
    """The path of a runtime library of the compiler."""
    compiler = os.environ.get("CXX", "c++")
    found = subprocess.check_output([compiler, f"-print-file-name={name}"], text=True)
    return found.strip()


def cpu_level() -> str:
    """The best instruction-set level of this machine: the one whose kernels the tests run."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = set(cpuinfo.read_text().split()) if cpuinfo.exists() else set()
    if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags:
        return "v4"
    return "v3" if {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"} <= flags else "v2"


def install(folder: Path, flags: str) -> Path:
    """Install the packages, native code with `flags`, under a folder; returns where they are."""
    prefix = str(folder / "prefix")  # --target would replace `rabbet`, which several wheels share
    site = Path(sysconfig.get_path("purelib", vars={"base": prefix, "platbase": prefix}))
    for package in NATIVE + PURE:
        options = []
        if package in NATIVE:
            options += [f"-Cbuild-dir={folder / package}", "-Ccmake.build-type=Sanitize"]
        if package == "backend-cpu":
            options += [f"-Ccmake.define.RABBET_CPU_ONLY_LEVEL={cpu_level()}"]
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
        pip += ["--ignore-installed", "--prefix", prefix, *options, f"packages/{package}"]
        run(pip, CXXFLAGS=f"{COMMON} {flags}")
    return site


def native_tests(folder: Path, flags: str) -> None:
    """Compile and run the C++ test of the pool, which needs no Python."""
    folder.mkdir(parents=True, exist_ok=True)
    core = ROOT / "packages/core"
    sources = [core / "tests/native/pool_test.cpp"]
    sources += [core / "csrc/core/thread" / f"{name}.cpp" for name in POOL]
    program = folder / "pool_test"
    includes = [f"-I{core / 'include'}", f"-I{core / 'csrc/core'}"]
    compiler = os.environ.get("CXX", "c++")
    run(
        [compiler, "-std=c++17", *COMMON.split(), *flags.split(), *includes, *map(str, sources)]
        + ["-o", str(program), "-lpthread", "-ldl"]
    )
    run(
        [str(program)],
        UBSAN_OPTIONS="print_stacktrace=1",
    )


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    if kind not in FLAGS:
        sys.exit(f"sanitize.py: expected one of {', '.join(FLAGS)}, got '{kind}'")
    folder = ROOT / "build" / "sanitize" / kind
    native_tests(folder, FLAGS[kind])
    site = install(folder, FLAGS[kind])
    # The runtime must come first in the process, and needs the C++ library's throw behind it.
    preload = f"{library(RUNTIMES[kind])} {library('libstdc++.so.6')}"
    # -s: a report must not end in what pytest captures.
    usual = ["-m", "not slow", "-p", "no:cacheprovider", "-q", "-s", *TESTS[kind]]
    arguments = sys.argv[2:] or usual
    forks = ["-p", "no_forks"] if kind == "address" else []
    paths = [str(site), str(ROOT / "tools"), os.environ.get("PYTHONPATH")]
    run(
        [sys.executable, "-m", "pytest", *forks, *arguments],
        LD_PRELOAD=preload,
        PYTHONPATH=os.pathsep.join(filter(None, paths)),
        PYTHONMALLOC="malloc",
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:handle_segv=1",
        UBSAN_OPTIONS="print_stacktrace=1",
        TSAN_OPTIONS=f"halt_on_error=1:exitcode=66:suppressions={ROOT}/tools/thread_sanitizer.supp",
        RABBET_NUM_THREADS="2",
        RABBET_SANITIZED=kind,
    )


if __name__ == "__main__":
    main()
