"""What NVML says of devices, by the package `nvidia-ml-py`, which is optional."""

import importlib
import os
from typing import Any

from .. import _C


def _library() -> Any:
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "nvidia-ml-py does not seem to be installed or it can't be imported."
        ) from error
    nvml.nvmlInit()
    return nvml


def _number(device: _C.device) -> int:
    """NVML's number of a device: CUDA_VISIBLE_DEVICES hides some from the driver, not from NVML."""
    index = device.index or 0
    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if index < len(visible) and visible[index].isdigit():
        return int(visible[index])
    return index


def ask(device: _C.device, function: str, *args: Any) -> Any:
    """Call a function of NVML on a device's handle.

    Raises:
        ModuleNotFoundError: without `nvidia-ml-py`.
    """
    nvml = _library()
    handle = nvml.nvmlDeviceGetHandleByIndex(_number(device))
    return getattr(nvml, function)(handle, *args)


def processes(device: _C.device) -> str:
    """The processes that use a device, a line each."""
    lines = [f"GPU:{device.index or 0}"]
    found = ask(device, "nvmlDeviceGetComputeRunningProcesses")
    lines += [
        f"process {p.pid:>10d} uses {p.usedGpuMemory / (1024 * 1024):>12.3f} MB GPU memory"
        for p in found
    ]
    return "\n".join(lines if found else [*lines, "no processes are running"])
