"""Switches of PyTorch's numerical libraries. Kernels of Rabbet are its own: a switch keeps what it is told, and the
backends whose business it is read it (`rabbet/settings.h`)."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ._cuda import make_cuda, make_cudnn
from ._switches import Switches, no

__all__ = [
    "cpu",
    "cuda",
    "cudnn",
    "mha",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
    "quantized",
]


def _cpu_capability() -> str:
    """The instructions that kernels use, in PyTorch's words."""
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line for line in file if line.startswith("flags")), "")
    words = flags.split()
    return "AVX512" if "avx512f" in words else "AVX2" if "avx2" in words else "DEFAULT"


def _never(*args: Any) -> bool:
    return False


def _yes() -> bool:
    return True


cpu = Switches("cpu", get_cpu_capability=_cpu_capability)
cuda: Any = make_cuda()
cudnn: Any = make_cudnn()
mkl = Switches("mkl")
mkldnn = Switches(
    "mkldnn", enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none"
)
mps = Switches("mps", is_built=no, is_macos_or_newer=_never)
nnpack = Switches("nnpack")
quantized = Switches("quantized", engine="none", supported_engines=["none"])
fp32_precision = "none"
openmp = Switches("openmp")
opt_einsum: Any = Switches("opt_einsum", enabled=False, strategy=None)
mha: Any = Switches("mha", get_fastpath_enabled=_yes)
cusparselt = Switches("cusparselt")


def _set_fastpath_enabled(value: bool) -> None:
    mha.get_fastpath_enabled = _yes if value else no


mha.set_fastpath_enabled = _set_fastpath_enabled


def _set_einsum_flags(
    _enabled: bool | None = None, _strategy: str | None = None
) -> tuple[Any, Any]:
    before = (opt_einsum.enabled, opt_einsum.strategy)
    if _enabled is not None:
        opt_einsum.enabled = _enabled
    if _strategy is not None:
        opt_einsum.strategy = _strategy
    return before


opt_einsum.set_flags = _set_einsum_flags


def disable_global_flags() -> None:
    """PyTorch forbids to set switches of these modules afterwards; rabbet goes on taking them."""


@contextlib.contextmanager
def __allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which PyTorch's switches can be set: rabbet's always can."""
    yield
