"""Switches of PyTorch's numerical libraries. Rabbet has kernels of its own: a switch keeps what it is told."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]


def _no() -> bool:
    return False


class _Switches(ModuleType):
    """A library that is not there: `is_available()` is False, its switches can be set and read."""

    def __init__(self, name: str, **switches: Any) -> None:
        super().__init__(
            f"{__name__}.{name}", f"The switches of {name}, which rabbet does not use."
        )
        self.is_available: Callable[[], bool] = _no
        vars(self).update(switches)
        self._names = [n for n, value in switches.items() if not callable(value)]
        sys.modules[self.__name__] = self

    @contextlib.contextmanager
    def flags(self, **values: Any) -> Iterator[None]:
        """Set switches for a while."""
        unknown = sorted(set(values) - set(self._names))
        if unknown:
            raise TypeError(f"{self.__name__}.flags: there is no switch {unknown[0]!r}")
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


def _cpu_capability() -> str:
    """The instructions that kernels use, in PyTorch's words."""
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line for line in file if line.startswith("flags")), "")
    words = flags.split()
    return "AVX512" if "avx512f" in words else "AVX2" if "avx2" in words else "DEFAULT"


def _matmul() -> SimpleNamespace:
    return SimpleNamespace(
        allow_tf32=False,
        allow_fp16_reduced_precision_reduction=True,
        allow_bf16_reduced_precision_reduction=True,
        allow_fp16_accumulation=False,
        fp32_precision="none",
    )


def _version() -> None:
    return None


def _yes() -> bool:
    return True


cpu = _Switches("cpu", get_cpu_capability=_cpu_capability)
cudnn = _Switches(
    "cudnn", enabled=True, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True,
    fp32_precision="none", version=_version,
)  # fmt: skip
mkl = _Switches("mkl")
mkldnn = _Switches(
    "mkldnn", enabled=True, deterministic=False, allow_tf32=True, fp32_precision="none"
)
mps = _Switches("mps", is_built=_no)
openmp = _Switches("openmp")
opt_einsum = _Switches("opt_einsum", enabled=False, strategy=None)
mha: Any = _Switches("mha", get_fastpath_enabled=_yes)
cusparselt = _Switches("cusparselt")


def _set_fastpath_enabled(value: bool) -> None:
    mha.get_fastpath_enabled = _yes if value else _no


mha.set_fastpath_enabled = _set_fastpath_enabled


class _Cuda(_Switches):
    """`backends.cuda`: the matrix products' switches, and which kernels attention may use."""

    _KERNELS = ("flash", "mem_efficient", "math", "cudnn")

    def __init__(self) -> None:
        super().__init__(
            "cuda", matmul=_matmul(), is_built=_no, preferred_linalg_library=_linalg_library
        )
        for kernel in self._KERNELS:
            self._add_kernel(kernel)

    def _add_kernel(self, kernel: str) -> None:
        chosen = SimpleNamespace(on=True)
        setattr(self, f"{kernel}_sdp_enabled", lambda: chosen.on)
        setattr(self, f"enable_{kernel}_sdp", lambda enabled: setattr(chosen, "on", bool(enabled)))

    @contextlib.contextmanager
    def sdp_kernel(
        self,
        enable_flash: bool = True,
        enable_math: bool = True,
        enable_mem_efficient: bool = True,
        enable_cudnn: bool = True,
    ) -> Iterator[dict[str, bool]]:
        """Choose attention's kernels for a while."""
        asked = {
            "flash": enable_flash, "math": enable_math, "mem_efficient": enable_mem_efficient,
            "cudnn": enable_cudnn,
        }  # fmt: skip
        before = {kernel: getattr(self, f"{kernel}_sdp_enabled")() for kernel in asked}
        for kernel, on in asked.items():
            getattr(self, f"enable_{kernel}_sdp")(on)
        try:
            yield {f"enable_{kernel}": on for kernel, on in asked.items()}
        finally:
            for kernel, on in before.items():
                getattr(self, f"enable_{kernel}_sdp")(on)


def _linalg_library(backend: str | None = None) -> str:
    """The library for decompositions of matrices on CUDA devices: the backend's choice."""
    return "default"


cuda = _Cuda()
