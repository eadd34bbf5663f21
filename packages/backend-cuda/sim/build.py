"""Build the simulator, once for each version of its sources; run it to get the environment that puts it in place."""

import fcntl
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wno-missing-field-initializers"]
LIBRARIES = {
    "nvrtc_sim": ["nvrtc.cpp"],
    "cuda_null": ["null.cpp"],
    "cublasLt_sim": ["cublaslt.cpp", "product.cpp"],
    "cublas_sim": ["cublas.cpp", "dense.cpp"],
    "cusolver_sim": ["cusolver.cpp", "dense.cpp"],
    "cufft_sim": ["cufft.cpp"],
    "cudnn_sim": [
        "cudnn.cpp", "dnn_attributes.cpp", "dnn_engines.cpp", "dnn_graph.cpp", "dnn_run.cpp", "dnn_text.cpp"
    ],
}  # fmt: skip
# Libraries that call the simulated driver.
USERS = {"cublasLt_sim", "cublas_sim", "cudnn_sim", "cufft_sim", "cusolver_sim"}


def sources() -> list[Path]:
    return sorted(path for path in HERE.iterdir() if path.suffix in (".cpp", ".h"))


def version() -> str:
    """Of the sources, this file and the compiler."""
    compiler = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    content = b"".join(
        path.name.encode() + path.read_bytes() for path in [*sources(), Path(__file__)]
    )
    return hashlib.sha256(compiler + content).hexdigest()[:16]


def place() -> Path:
    """`build/cusim` of the package, or of the temporary folder where that cannot be written."""
    parent = HERE.parent / "build"
    try:
        parent.mkdir(exist_ok=True)
        if os.access(parent, os.W_OK):
            return parent / "cusim"
    except OSError:
        pass
    return Path(tempfile.gettempdir()) / f"cusim-{os.getuid()}"


def compile_all(folder: Path) -> None:
    """The libraries and what goes into every kernel, several compilers at a time."""

    def start(*words: str | Path) -> subprocess.Popen:
        return subprocess.Popen(["g++", *FLAGS, *map(str, words)])

    separate = {name for names in LIBRARIES.values() for name in names} | {"hooks.cpp"}
    driver = [path for path in sources() if path.suffix == ".cpp" and path.name not in separate]
    jobs = [start("-c", HERE / "hooks.cpp", "-o", folder / "hooks.o")]
    objects = [folder / f"{path.stem}.o" for path in driver]
    for path, target in zip(driver, objects, strict=True):
        jobs.append(start("-c", path, "-o", target))
        if len(jobs) > (os.cpu_count() or 2):
            check(jobs.pop(0))
    for job in jobs:
        check(job)
    check(start("-shared", *objects, "-o", folder / "libcuda_sim.so", "-ldl"))
    jobs = []
    for name, files in LIBRARIES.items():
        needed = [f"-L{folder}", "-lcuda_sim", "-Wl,-rpath,$ORIGIN"] if name in USERS else []
        texts = (HERE / file for file in files)
        jobs.append(start("-shared", *texts, "-o", folder / f"lib{name}.so", "-ldl", *needed))
    for job in jobs:
        check(job)
    for path in sources():
        if path.suffix == ".h":
            (folder / path.name).write_bytes(path.read_bytes())


def check(job: subprocess.Popen) -> None:
    if job.wait():
        raise RuntimeError(f"the simulator does not compile: {' '.join(map(str, job.args))}")


def build() -> dict[str, str]:
    """Environment variables that put the simulator in the place of libcuda and libnvrtc."""
    folder = place() / version()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:  # other test processes wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            compile_all(folder)
            (folder / "done").touch()
    return {
        "RABBET_CUDA_DRIVER": str(folder / "libcuda_sim.so"),
        "RABBET_CUDA_NVRTC": str(folder / "libnvrtc_sim.so"),
        "RABBET_CUDA_CUBLASLT": str(folder / "libcublasLt_sim.so"),
        "RABBET_CUDA_CUBLAS": str(folder / "libcublas_sim.so"),
        "RABBET_CUDA_CUFFT": str(folder / "libcufft_sim.so"),
        "RABBET_CUDA_CUSOLVER": str(folder / "libcusolver_sim.so"),
        "RABBET_CUDA_CUDNN": "",  # left out, so that kernels of ours run: libcudnn_sim.so is beside the others
        "CUSIM_FOLDER": str(folder),
        "RABBET_CUDA_CACHE": "0",  # libnvrtc_sim has its own
    }


def null() -> dict[str, str]:
    """Environment variables for a driver, a compiler and libraries that do nothing."""
    library = str(Path(build()["RABBET_CUDA_DRIVER"]).with_name("libcuda_null.so"))
    return {
        "RABBET_CUDA_DRIVER": library,
        "RABBET_CUDA_NVRTC": library,
        "RABBET_CUDA_CUBLASLT": library,
        "RABBET_CUDA_CUBLAS": library,
        "RABBET_CUDA_CUFFT": library,
        "RABBET_CUDA_CUSOLVER": library,
        "RABBET_CUDA_CUDNN": "",
        "RABBET_CUDA_CACHE": "0",
    }


if __name__ == "__main__":
    print(*(f"{name}={value}" for name, value in build().items()), sep="\n")
