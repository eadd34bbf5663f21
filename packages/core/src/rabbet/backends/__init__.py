"""Switches of PyTorch's numerical libraries. Kernels of Rabbet are its own: a switch keeps what it is told, and the
backends whose business it is read it (`rabbet/settings.h`)."""

import contextlib
from typing import Any

from ._cuda import make_cuda, make_cudnn
from ._switches import Switches, no

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]


def _cpu_capability() -> str:
    """The instructions that kernels use, in PyTorch's words."""
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line for line in file if line.startswith("flags")), "")
    words = flags.split()
    return "AVX512" if "avx512f" in words else "AVX2" if "avx2" in words else "DEFAULT"


def _yes() -> bool:
    return True


cpu = Switches("cpu", get_cpu_capability=_cpu_capability)
cuda: Any = make_cuda()
cudnn: Any = make_cudnn()
mkl = Switches("mkl")
mkldnn = Switches(
    "mkldnn", enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none"
)
mps = Switches("mps", is_built=no)
openmp = Switches("openmp")
opt_einsum = Switches("opt_einsum", enabled=False, strategy=None)
mha: Any = Switches("mha", get_fastpath_enabled=_yes)
cusparselt = Switches("cusparselt")


def _set_fastpath_enabled(value: bool) -> None:
    mha.get_fastpath_enabled = _yes if value else no


mha.set_fastpath_enabled = _set_fastpath_enabled
