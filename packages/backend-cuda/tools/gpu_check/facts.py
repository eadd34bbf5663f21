"""What this machine has, and by name what it lacks, as JSON, within seconds: nothing large is imported or started.

Commands run side by side, each for at most `SECONDS`.
"""

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS = 3.5
COMMANDS = {
    "nvidia-smi": ["--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"],
    "g++": ["--version"],
    "cmake": ["--version"],
    "ninja": ["--version"],
    "git": ["rev-parse", "HEAD"],
    "nvcc": ["--version"],
    "ncu": ["--version"],
    "compute-sanitizer": ["--version"],
    "cuobjdump": ["--version"],
}  # fmt: skip
MODULES = [
    "pip",
    "scikit-build-core",
    "pybind11",
    "pluggy",
    "numpy",
    "pytest",
    "scipy",
    "hypothesis",
    "torch",
]
LIBRARIES = {
    "NVRTC": "RABBET_CUDA_NVRTC",
    "cuBLASLt": "RABBET_CUDA_CUBLASLT",
    "cuDNN": "RABBET_CUDA_CUDNN",
    "cuFFT": "RABBET_CUDA_CUFFT",
    "cuSOLVER": "RABBET_CUDA_CUSOLVER",
    "cuBLAS": "RABBET_CUDA_CUBLAS",
}
PATTERNS = {
    "RABBET_CUDA_NVRTC": "libnvrtc.so.1*",
    "RABBET_CUDA_CUBLASLT": "libcublasLt.so.1*",
    "RABBET_CUDA_CUDNN": "libcudnn.so.9",
    "RABBET_CUDA_CUFFT": "libcufft.so.1*",
    "RABBET_CUDA_CUSOLVER": "libcusolver.so.1*",
    "RABBET_CUDA_CUBLAS": "libcublas.so.1*",
}
WHEELS = [
    "nvidia-cuda-nvrtc",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cufft",
    "nvidia-cufft-cu12",
    "nvidia-cusolver",
    "nvidia-cusolver-cu12",
]
NEEDED_FOR = {
    "nvidia-smi": "the name of the GPU",
    "g++": "building wheels, and the simulator beside the GPU",
    "cmake": "building wheels",
    "ninja": "building wheels",
    "git": "the revision",
    "nvcc": "no stage: NVRTC compiles the kernels",
    "ncu": "profiles of kernels",
    "compute-sanitizer": "the sanitizers",
    "cuobjdump": "no stage: reading machine code",
    "pip": "installing wheels",
    "scikit-build-core": "building wheels",
    "pybind11": "building the wheel of core",
    "pluggy": "the packages themselves",
    "numpy": "every stage",
    "pytest": "the kit and the tests",
    "scipy": "the kit",
    "hypothesis": "a test of products",
    "torch": "times beside torch's",
    "driver": "every stage",
    "NVRTC": "every kernel",
    "cuBLASLt": "products by the library",
    "cuDNN": "convolution and attention by the library",
    "cuFFT": "Fourier transforms",
    "cuSOLVER": "factorisations of matrices",
    "cuBLAS": "triangular solves",
    "Python.h": "building the wheel of core",
}
TOOLKIT = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "bin"


def program(name: str) -> str | None:
    """Its path: the toolkit's folder is often not in $PATH."""
    beside = TOOLKIT / name
    return shutil.which(name) or (str(beside) if beside.exists() else None)


def said(command: list[str]) -> str:
    """The line of a program's output with its version."""
    path = program(command[0])
    if not path:
        return ""
    try:
        done = subprocess.run([path, *command[1:]], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    except OSError as error:
        return f"cannot be run: {error}"
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    told = [line for line in lines if "ersion" in line or "release" in line]
    return (told or lines or [f"exit status {done.returncode}"])[0]


def version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return ""


def driver() -> str:
    """The CUDA version of the driver; this call needs no device."""
    try:
        library = ctypes.CDLL(os.environ.get("RABBET_CUDA_DRIVER") or "libcuda.so.1")
    except OSError:
        return ""
    number = ctypes.c_int()
    status = library.cuDriverGetVersion(ctypes.byref(number))
    return (
        f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
        if status == 0
        else f"error {status}"
    )


def libraries() -> dict[str, str]:
    """Where the libraries of the nvidia-* wheels of this Python lie, by the variables that name them to the backend.

    The backend looks beside itself, and lies in another folder.
    """
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in spec.submodule_search_locations or []] if spec else []
    found = {}
    for variable, pattern in PATTERNS.items():
        paths = [path for root in roots for path in sorted(root.glob(f"*/lib/{pattern}"))]
        if paths:
            found[variable] = str(paths[-1])  # the newest
    return found


def elsewhere(variable: str) -> str:
    """Where the system or the toolkit has a library that no wheel brings, as the backend finds it, too."""
    if variable in os.environ:
        return os.environ[variable]
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += [str(TOOLKIT.parent / "lib64"), "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
    for folder in filter(None, folders):
        for path in sorted(Path(folder).glob(PATTERNS[variable])):
            return str(path)
    return ""


def headers() -> dict[str, str]:
    folders = {
        "Python.h": [sysconfig.get_paths()["include"]],
        "cuda.h": [str(TOOLKIT.parent / "include"), "/usr/include"],
        "cudnn.h": [str(TOOLKIT.parent / "include"), "/usr/include"],
    }
    return {
        name: next((str(Path(f) / name) for f in where if (Path(f) / name).exists()), "")
        for name, where in folders.items()
    }


def facts() -> dict[str, object]:
    with ThreadPoolExecutor(len(COMMANDS)) as pool:
        answers = pool.map(lambda name: said([name, *COMMANDS[name]]), COMMANDS)
        programs = dict(zip(COMMANDS, answers, strict=True))
    where = {name: elsewhere(variable) for name, variable in LIBRARIES.items()}
    found = {
        "system": platform.platform(),
        "machine": platform.machine(),
        "libc": platform.libc_ver()[1],
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "driver": driver(),
        "programs": programs,
        "modules": {name: version(name) for name in MODULES},
        "nvidia wheels": {name: version(name) for name in WHEELS if version(name)},
        "libraries": where,
        "headers": headers(),
    }
    everything = {
        **programs,
        **found["modules"],
        **where,
        "driver": found["driver"],
        "Python.h": found["headers"]["Python.h"],
    }
    missing = {name: NEEDED_FOR[name] for name, answer in everything.items() if not answer}
    return {**found, "missing": missing}


if __name__ == "__main__":
    print(json.dumps(facts()))
