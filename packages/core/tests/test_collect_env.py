"""utils.collect_env: the report of versions, devices and the machine."""

import json
import os
import platform
import re
import subprocess
import sys

import pytest
import rabbet
from rabbet.utils import collect_env

# The fields of PyTorch's report, in its order.
FIELDS = """PyTorch version|Is debug build|CUDA used to build PyTorch|ROCM used to build PyTorch|OS|GCC version
Clang version|CMake version|Libc version|Python version|Python platform|Is CUDA available|CUDA runtime version
CUDA_MODULE_LOADING set to|GPU models and configuration|Nvidia driver version|cuDNN version|Is XPU available
HIP runtime version|MIOpen runtime version|Is XNNPACK available|Caching allocator config|CPU
Versions of relevant libraries""".replace("\n", "|").split("|")


def answering(**answers):
    """Runs no command: `gcc="text"` answers commands that begin with gcc; others fail."""

    def run_lambda(command):
        first = command if isinstance(command, str) else " ".join(command)
        for name, text in answers.items():
            if first.split()[0].replace("-", "_").endswith(name):
                return 0, text, ""
        return 127, "", "not found"

    return run_lambda


def test_the_report_has_pytorchs_fields_in_their_order():
    text = collect_env.get_pretty_env_info()
    places = [re.search(rf"^{re.escape(name)}:", text, flags=re.M) for name in FIELDS]
    assert all(places), [n for n, p in zip(FIELDS, places, strict=True) if p is None]
    assert [p.start() for p in places] == sorted(p.start() for p in places)
    assert f"Python version: {platform.python_version()} " in text
    assert re.search(r"^PyTorch version: \d+\.\d+\.\d+\+rabbet$", text, flags=re.M)
    assert "[pip3] rabbet-core==" in text and f"rabbet-core: {rabbet.__version__}" in text
    assert platform.machine() in re.search(r"^OS: (.*)$", text, flags=re.M)[1]


def test_fields_are_those_of_the_named_tuple():
    info = collect_env.get_env_info()
    named = set(re.findall(r"\{(\w+)\}", collect_env.env_info_fmt))
    assert named | {"pip_version"} == set(info._fields)
    assert info.is_cuda_available is rabbet.cuda.is_available()
    assert info.is_debug_build is False and info.pip_version == "pip3"


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "rabbet.utils.collect_env"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Collecting environment information...\nPyTorch version: ")


def test_commands_are_run_and_read():
    assert collect_env.run("echo a; echo b >&2; exit 3") == (3, "a", "b")
    assert collect_env.run(["echo", "$HOME"]) == (0, "$HOME", "")
    code, out, err = collect_env.run(["no-such-program-of-this-test"])
    assert code == 127 and out == "" and "no-such-program" in err
    run = answering(gcc="gcc (Debian 12) 12.2.0\nmore")
    assert collect_env.run_and_read_all(run, "gcc --version") == "gcc (Debian 12) 12.2.0\nmore"
    assert collect_env.run_and_read_all(run, "clang --version") is None
    assert collect_env.run_and_return_first_line(run, "gcc --version") == "gcc (Debian 12) 12.2.0"
    assert collect_env.run_and_return_first_line(run, "clang") is None
    assert collect_env.run_and_parse_first_match(run, "gcc", r"\) (.*)") == "12.2.0"
    assert collect_env.run_and_parse_first_match(run, "gcc", r"(clang)") is None
    assert collect_env.run_and_parse_first_match(run, "clang", r"(.*)") is None


SMI = "| NVIDIA-SMI 550.54   Driver Version: 550.54.14 CUDA Version: 12.4 |"
LIST = "GPU 0: NVIDIA H100 (UUID: GPU-1234-ab)\nGPU 1: NVIDIA H100 (UUID: GPU-5678-cd)"


@pytest.mark.parametrize(
    "name, answers, expected",
    [
        ("get_gcc_version", {"gcc": "gcc (GCC) 13.1"}, "(GCC) 13.1"),
        ("get_clang_version", {"clang": "Ubuntu clang version 14.0.0"}, "14.0.0"),
        ("get_cmake_version", {"cmake": "cmake version 3.28.1\n\nCMake suite"}, "version 3.28.1"),
        ("get_nvidia_driver_version", {"nvidia_smi": SMI}, "550.54.14"),
        ("get_gpu_info", {"nvidia_smi": LIST}, "GPU 0: NVIDIA H100\nGPU 1: NVIDIA H100"),
        ("get_running_cuda_version", {"nvcc": "Cuda tools, release 12.4, V12.4.131\nBuild"}, "12.4.131"),
        ("get_lsb_version", {"lsb_release": "ID:\tx\nDescription:\tDebian 12\nRelease:\t12"}, "Debian 12"),
        ("check_release_file", {"cat": 'NAME="a"\nPRETTY_NAME="Debian 12"'}, "Debian 12"),
        ("get_mac_version", {"sw_vers": "14.2"}, "14.2"),
        ("get_cpu_info", {"lscpu": "Model name: X"}, "Model name: X"),
    ],
)  # fmt: skip
def test_what_other_programs_say(monkeypatch, name, answers, expected):
    monkeypatch.setattr(sys, "platform", "linux")
    function = getattr(collect_env, name)
    assert function(answering(**answers)) == expected
    assert function(answering()) is None


def test_the_system_by_its_files(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "arm")
    for system, answers, expected in (
        ("linux", {"lsb_release": "Description:\tA"}, "A (arm)"),
        ("linux", {"cat": 'PRETTY_NAME="B"'}, "B (arm)"),
        ("linux", {}, "linux (arm)"),
        ("darwin", {"sw_vers": "14.2"}, "macOS 14.2 (arm)"),
        ("darwin", {}, None),
        ("win32", {"powershell.exe": "Windows 11"}, "Windows 11"),
        ("freebsd14", {}, "freebsd14 (arm)"),
    ):
        monkeypatch.setattr(sys, "platform", system)
        assert collect_env.get_os(answering(**answers)) == expected
    assert collect_env.get_libc_version() == "N/A" and collect_env.get_platform() == "freebsd14"


def test_libraries_of_cudnn_are_those_that_exist(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("CUDNN_LIBRARY", raising=False)
    first, second = tmp_path / "libcudnn.so.9", tmp_path / "libcudnn_ops.so.9"
    first.touch(), second.touch()
    assert collect_env.get_cudnn_version(answering(ldconfig=f"{first}\n/none")) == str(first)
    assert collect_env.get_cudnn_version(answering(ldconfig=f"{second}\n{first}")) == (
        f"Probably one of the following:\n{first}\n{second}"
    )
    assert collect_env.get_cudnn_version(answering()) is None
    monkeypatch.setenv("CUDNN_LIBRARY", str(second))
    assert collect_env.get_cudnn_version(answering()) == str(second)


def test_packages_are_chosen_by_patterns(monkeypatch):
    pip, text = collect_env.get_pip_packages(collect_env.run, ["rabbet-core", "pytest"])
    names = [line.partition("==")[0] for line in text.split("\n")]
    assert pip == "pip3" and "rabbet-core" in names and "pytest" in names and "numpy" not in names
    assert collect_env.get_pip_packages(collect_env.run, ["no such"])[1] == ""
    listed = [
        {"name": "numpy", "version": "2.0", "build_string": "py_0", "channel": "main"},
        {"name": "zlib", "version": "1"},
    ]
    monkeypatch.setenv("CONDA_EXE", "/opt/conda")
    found = collect_env.get_conda_packages(answering(conda=json.dumps(listed)))
    assert found.split() == ["numpy", "2.0", "py_0", "main"]
    assert collect_env.get_conda_packages(answering(conda="no json")) is None
    assert collect_env.get_conda_packages(answering()) is None


def test_texts_of_what_is_not_known():
    info = collect_env.SystemEnv(*[None] * len(collect_env.SystemEnv._fields))
    unknown = info._replace(is_cuda_available=False, pip_version="pip3", pip_packages="")
    text = collect_env.pretty_str(unknown)
    assert "cuDNN version: No CUDA\n" in text and "CUDA used to build PyTorch: None\n" in text
    assert "GCC version: Could not collect\n" in text and "Is CUDA available: No\n" in text
    assert "[pip3] No relevant packages\n[conda] Could not collect" in text
    several = unknown._replace(
        is_cuda_available=True, nvidia_gpu_models="A\nB", pip_packages="x\ny"
    )
    text = collect_env.pretty_str(several)
    assert "GPU models and configuration: \nA\nB\n\n" in text and "[pip3] x\n[pip3] y\n" in text
    assert "Is CUDA available: Yes\n" in text and "cuDNN version: Could not collect" in text


def test_variables_of_the_allocator(monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "a:1")
    assert collect_env.get_cachingallocator_config() == "a:1"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "b:2")
    assert collect_env.get_cachingallocator_config() == "b:2"
    assert os.environ["PYTORCH_ALLOC_CONF"] == "b:2" and not collect_env.is_xnnpack_available()
