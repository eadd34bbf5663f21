"""Collect the facts that a bug report needs: versions, devices, the machine. `python -m rabbet doctor` reports more on plugins.

The names and the fields are those of `torch.utils.collect_env`, with lines for rabbet's own parts at the end. Each function
that asks other programs takes `run_lambda`, which runs a command as `run` does; what cannot be found out is None.
"""

from __future__ import annotations

import json
import locale
import os
import platform
import re
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import rabbet

from .. import _C, __config__
from .._as_torch.names import VERSION
from .._plugins import plugins

__all__ = ["get_env_info", "get_pretty_env_info", "main", "pretty_str"]

TORCH_AVAILABLE = True
_Run = Callable[[Any], tuple[int, str, str]]

SystemEnv = namedtuple(
    "SystemEnv",
    [
        "torch_version", "is_debug_build", "cuda_compiled_version", "gcc_version", "clang_version", "cmake_version",
        "os", "libc_version", "python_version", "python_platform", "is_cuda_available", "cuda_runtime_version",
        "cuda_module_loading", "nvidia_driver_version", "nvidia_gpu_models", "cudnn_version", "is_xpu_available",
        "pip_version", "pip_packages", "conda_packages", "hip_compiled_version", "hip_runtime_version",
        "miopen_runtime_version", "caching_allocator_config", "is_xnnpack_available", "cpu_info", "rabbet_version",
        "rabbet_plugins", "rabbet_config",
    ],
)  # fmt: skip

COMMON_PATTERNS = ["torch", "numpy", "triton", "optree", "rabbet"]
NVIDIA_PATTERNS = ["cuda-cudart", "cuda-cupti", "cuda-libraries", "cuda-opencl", "cuda-nvtx", "cuda-runtime",
                   "cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl", "nvjitlink", "nvtx"]  # fmt: skip
CONDA_PATTERNS = ["cudatoolkit", "soumith", "mkl", "magma"]
PIP_PATTERNS = ["mypy", "flake8", "onnx", "safetensors", "openblas"]
DEFAULT_CONDA_PATTERNS = [*COMMON_PATTERNS, *NVIDIA_PATTERNS, *CONDA_PATTERNS]
DEFAULT_PIP_PATTERNS = [*COMMON_PATTERNS, *NVIDIA_PATTERNS, *PIP_PATTERNS]


# ---- commands


def run(command: str | list[str]) -> tuple[int, str, str]:
    """Run a command (a text in a shell): its exit code, what it wrote, and its errors."""
    try:
        done = subprocess.run(command, shell=isinstance(command, str), capture_output=True)
    except OSError as error:  # no such program
        return 127, "", str(error)
    encoding = locale.getpreferredencoding()
    out, err = (text.decode(encoding, "replace").strip() for text in (done.stdout, done.stderr))
    return done.returncode, out, err


def run_and_read_all(run_lambda: _Run, command: str | list[str]) -> str | None:
    """The output of the command; None if it fails."""
    code, out, _ = run_lambda(command)
    return None if code else out


def run_and_parse_first_match(run_lambda: _Run, command: str | list[str], regex: str) -> str | None:
    """The first group of the first match in what the command writes; None if it fails, or nothing matches."""
    out = run_and_read_all(run_lambda, command)
    found = None if out is None else re.search(regex, out)
    return None if found is None else found[1]


def run_and_return_first_line(run_lambda: _Run, command: str | list[str]) -> str | None:
    """The first line that the command writes; None if it fails."""
    out = run_and_read_all(run_lambda, command)
    return None if out is None else out.split("\n")[0]


# ---- compilers and the system


def get_gcc_version(run_lambda: _Run) -> str | None:
    """The version of GCC."""
    return run_and_parse_first_match(run_lambda, "gcc --version", r"gcc (.*)")


def get_clang_version(run_lambda: _Run) -> str | None:
    """The version of Clang."""
    return run_and_parse_first_match(run_lambda, "clang --version", r"clang version (.*)")


def get_cmake_version(run_lambda: _Run) -> str | None:
    """The version of CMake."""
    return run_and_parse_first_match(run_lambda, "cmake --version", r"cmake (.*)")


def get_platform() -> str:
    """ "linux", "win32", "cygwin", "darwin", or what `sys.platform` says."""
    known = ("linux", "win32", "cygwin", "darwin")
    return next((name for name in known if sys.platform.startswith(name)), sys.platform)


def get_mac_version(run_lambda: _Run) -> str | None:
    """The version of macOS."""
    return run_and_parse_first_match(run_lambda, "sw_vers -productVersion", r"(.*)")


def get_windows_version(run_lambda: _Run) -> str | None:
    """The name and version of Windows."""
    ask = "(Get-CimInstance Win32_OperatingSystem).Caption"
    return run_and_read_all(run_lambda, ["powershell.exe", "-NoProfile", "-Command", ask])


def get_lsb_version(run_lambda: _Run) -> str | None:
    """The name of the Linux distribution, by lsb_release."""
    return run_and_parse_first_match(run_lambda, "lsb_release -a", r"Description:\t(.*)")


def check_release_file(run_lambda: _Run) -> str | None:
    """The name of the Linux distribution, by the files in /etc."""
    return run_and_parse_first_match(run_lambda, "cat /etc/*-release", r'PRETTY_NAME="(.*)"')


def get_os(run_lambda: _Run) -> str | None:
    """The operating system and the machine's architecture."""
    system, machine = get_platform(), platform.machine()
    if system in ("win32", "cygwin"):
        return get_windows_version(run_lambda)
    if system == "darwin":
        version = get_mac_version(run_lambda)
        return None if version is None else f"macOS {version} ({machine})"
    name = (
        get_lsb_version(run_lambda) or check_release_file(run_lambda) if system == "linux" else None
    )
    return f"{name or system} ({machine})"


def get_python_platform() -> str:
    """The platform, as Python describes it."""
    return platform.platform()


def get_libc_version() -> str:
    """The C library and its version on Linux, else "N/A"."""
    return "-".join(platform.libc_ver()) if get_platform() == "linux" else "N/A"


def get_cpu_info(run_lambda: _Run) -> str | None:
    """The system's description of its processors: from lscpu on Linux, sysctl on macOS, CIM on Windows."""
    system = get_platform()
    if system == "linux":
        return run_and_read_all(run_lambda, "lscpu")
    if system == "darwin":
        return run_and_read_all(run_lambda, "sysctl -n machdep.cpu.brand_string")
    if system == "win32":
        ask = "Get-CimInstance Win32_Processor | Select-Object Name,NumberOfCores,MaxClockSpeed | Format-List"
        return run_and_read_all(run_lambda, ["powershell.exe", "-NoProfile", "-Command", ask])
    return None


# ---- devices


def get_nvidia_smi() -> str:
    """The command of NVIDIA's management program."""
    if get_platform() != "win32":
        return "nvidia-smi"
    folders = (os.environ.get(name) for name in ("SYSTEMROOT", "PROGRAMFILES"))
    below = (r"System32", r"NVIDIA Corporation\NVSMI")
    for folder, inner in zip(folders, below, strict=True):
        path = os.path.join(folder or "", inner, "nvidia-smi.exe")
        if os.path.exists(path):
            return f'"{path}"'
    return "nvidia-smi"


def get_nvidia_driver_version(run_lambda: _Run) -> str | None:
    """The version of NVIDIA's driver."""
    return run_and_parse_first_match(run_lambda, get_nvidia_smi(), r"Driver Version: (.*?) ")


def get_gpu_info(run_lambda: _Run) -> str | None:
    """The models of NVIDIA's devices, one a line, without their unique numbers."""
    out = run_and_read_all(run_lambda, f"{get_nvidia_smi()} -L")
    return None if out is None else re.sub(r" \(UUID: .+?\)", "", out)


def get_running_cuda_version(run_lambda: _Run) -> str | None:
    """The version of the CUDA toolkit, by nvcc."""
    return run_and_parse_first_match(run_lambda, "nvcc --version", r"release .+ V(.*)")


def get_cudnn_version(run_lambda: _Run) -> str | None:
    """The libraries of cuDNN that the system finds; which one a program loads is not known."""
    if get_platform() == "win32":
        command = "where cudnn*.dll"
    elif get_platform() == "darwin":
        command = "ls /usr/local/cuda/lib/libcudnn*"
    else:
        command = 'ldconfig -p | grep libcudnn | rev | cut -d" " -f1 | rev'
    _, out, _ = run_lambda(command)
    files = sorted({os.path.realpath(name) for name in out.split("\n") if os.path.isfile(name)})
    library = os.environ.get("CUDNN_LIBRARY")
    if not files and library and os.path.isfile(library):
        files = [os.path.realpath(library)]
    if len(files) > 1:
        return "Probably one of the following:\n" + "\n".join(files)
    return files[0] if files else None


def get_cuda_module_loading_config() -> str:
    """The variable CUDA_MODULE_LOADING where CUDA is available, else "N/A"."""
    return os.environ.get("CUDA_MODULE_LOADING", "") if rabbet.cuda.is_available() else "N/A"


def get_cachingallocator_config() -> str:
    """The variables PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF, which rabbet's allocator does not read."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    return os.environ.get(names[0]) or os.environ.get(names[1], "")


def is_xnnpack_available() -> bool:
    """Whether the library XNNPACK is in use: it is not."""
    return False


# ---- packages


def _is_wanted(name: str, patterns: Iterable[str]) -> bool:
    return any(pattern in name.lower() for pattern in patterns)


def get_pip_packages(
    run_lambda: _Run, patterns: Iterable[str] | None = None
) -> tuple[str, str | None]:
    """The command that runs pip, and the installed packages whose names hold one of the patterns, as "name==version" lines.

    The packages are those of the running Python; pip itself need not be installed.
    """
    wanted = list(DEFAULT_PIP_PATTERNS if patterns is None else patterns)
    found: dict[str, str] = {}
    for package in metadata.distributions():
        name = package.metadata["Name"]
        if name and _is_wanted(name, wanted):
            found.setdefault(name.lower(), f"{name}=={package.version}")
    return f"pip{sys.version_info[0]}", "\n".join(found[name] for name in sorted(found))


def get_conda_packages(run_lambda: _Run, patterns: Iterable[str] | None = None) -> str | None:
    """The packages of the conda environment whose names hold one of the patterns; None without conda."""
    wanted = list(DEFAULT_CONDA_PATTERNS if patterns is None else patterns)
    out = run_and_read_all(run_lambda, [os.environ.get("CONDA_EXE", "conda"), "list", "--json"])
    if out is None:
        return None
    try:
        packages = json.loads(out)
    except ValueError:
        return None
    return "\n".join(
        f"{p['name']:<25} {p['version']:<20} {p.get('build_string', ''):<25} {p.get('channel', '')}".rstrip()
        for p in packages
        if _is_wanted(p["name"], wanted)
    )


# ---- the report


def get_env_info() -> Any:
    """Collect everything as a `SystemEnv`: a named tuple of texts, bools, and None for what is not known."""
    pip, packages = get_pip_packages(run)
    bits = sys.maxsize.bit_length() + 1
    text = sys.version.replace("\n", " ")
    return SystemEnv(
        torch_version=VERSION,
        is_debug_build=bool(rabbet.version.debug),
        cuda_compiled_version=rabbet.version.cuda or "N/A",
        gcc_version=get_gcc_version(run),
        clang_version=get_clang_version(run),
        cmake_version=get_cmake_version(run),
        os=get_os(run),
        libc_version=get_libc_version(),
        python_version=f"{text} ({bits}-bit runtime)",
        python_platform=get_python_platform(),
        is_cuda_available=rabbet.cuda.is_available(),
        cuda_runtime_version=get_running_cuda_version(run),
        cuda_module_loading=get_cuda_module_loading_config(),
        nvidia_driver_version=get_nvidia_driver_version(run),
        nvidia_gpu_models=get_gpu_info(run),
        cudnn_version=get_cudnn_version(run),
        is_xpu_available=rabbet.xpu.is_available(),
        pip_version=pip,
        pip_packages=packages,
        conda_packages=get_conda_packages(run),
        hip_compiled_version="N/A",
        hip_runtime_version="N/A",
        miopen_runtime_version="N/A",
        caching_allocator_config=get_cachingallocator_config(),
        is_xnnpack_available=is_xnnpack_available(),
        cpu_info=get_cpu_info(run),
        rabbet_version=_C.__version__,
        rabbet_plugins=", ".join(sorted(plugins())) or "none",
        rabbet_config=f"{__config__.show()}{__config__.parallel_info()}".strip(),
    )


env_info_fmt = """
PyTorch version: {torch_version}
Is debug build: {is_debug_build}
CUDA used to build PyTorch: {cuda_compiled_version}
ROCM used to build PyTorch: {hip_compiled_version}

OS: {os}
GCC version: {gcc_version}
Clang version: {clang_version}
CMake version: {cmake_version}
Libc version: {libc_version}

Python version: {python_version}
Python platform: {python_platform}
Is CUDA available: {is_cuda_available}
CUDA runtime version: {cuda_runtime_version}
CUDA_MODULE_LOADING set to: {cuda_module_loading}
GPU models and configuration: {nvidia_gpu_models}
Nvidia driver version: {nvidia_driver_version}
cuDNN version: {cudnn_version}
Is XPU available: {is_xpu_available}
HIP runtime version: {hip_runtime_version}
MIOpen runtime version: {miopen_runtime_version}
Is XNNPACK available: {is_xnnpack_available}
Caching allocator config: {caching_allocator_config}

CPU:
{cpu_info}

Versions of relevant libraries:
{pip_packages}
{conda_packages}

rabbet-core: {rabbet_version}
Plugins: {rabbet_plugins}
{rabbet_config}
""".strip()


def _shown(value: Any) -> Any:
    if value is None:
        return "Could not collect"
    return {True: "Yes", False: "No"}[value] if isinstance(value, bool) else value


def _tagged(text: str | None, tag: str) -> str:
    lines = (_shown(text) or "No relevant packages").split("\n")
    return "\n".join(f"[{tag}] {line}" for line in lines)


def pretty_str(envinfo: Any) -> str:
    """The text of what `get_env_info` collected."""
    fields = envinfo._asdict()
    of_driver = ("cuda_runtime_version", "nvidia_gpu_models", "nvidia_driver_version")
    if not envinfo.is_cuda_available and all(fields[name] is None for name in of_driver):
        fields.update(dict.fromkeys((*of_driver, "cudnn_version"), "No CUDA"))
        if envinfo.cuda_compiled_version is None:
            fields["cuda_compiled_version"] = "None"
    models = fields["nvidia_gpu_models"]
    if models is not None and "\n" in models:
        fields["nvidia_gpu_models"] = f"\n{models}\n"
    fields["pip_packages"] = _tagged(envinfo.pip_packages, envinfo.pip_version)
    fields["conda_packages"] = _tagged(envinfo.conda_packages, "conda")
    return env_info_fmt.format(**{name: _shown(value) for name, value in fields.items()})


def get_pretty_env_info() -> str:
    """The report as text."""
    return pretty_str(get_env_info())


def main() -> None:
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
