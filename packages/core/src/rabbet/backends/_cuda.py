"""`rabbet.backends.cuda` and `rabbet.backends.cudnn`: switches of CUDA's libraries, for the CUDA backend to follow."""

import contextlib
from collections.abc import Iterator
from typing import Any

from .. import _C, _settings
from .._absent import refusing_class
from ._switches import Group, Switches, publish

_LINALG = ("default", "cusolver", "magma")
_BLAS = ("default", "cublas", "cublaslt", "ck")
_SDP = ("flash", "mem_efficient", "math", "cudnn")
DEFAULT_WORKSPACE = 8 * 1024 * 1024


def is_built() -> bool:
    """Whether the wheel of the CUDA backend is installed; there need be no device."""
    from .. import _plugins

    return any("cuda" in p.provides for p in _plugins.plugins().values() if p.kind == "backend")


class Matmul(Group):
    """Switches of matrix products. `allow_tf32` and set_float32_matmul_precision() are one setting."""

    def __init__(self) -> None:
        super().__init__(
            "cuda.matmul",
            allow_fp16_reduced_precision_reduction=True,
            allow_bf16_reduced_precision_reduction=True,
            allow_fp16_accumulation=False,
            fp32_precision="none",
        )

    @property
    def allow_tf32(self) -> bool:
        return _settings.get_float32_matmul_precision() != "highest"

    def __setattr__(self, switch: str, value: Any) -> None:
        if switch == "allow_tf32":
            _settings.set_float32_matmul_precision("high" if value else "highest")
            return
        super().__setattr__(switch, value)
        if switch == "fp32_precision":
            _settings.set_float32_matmul_precision("high" if value == "tf32" else "highest")


class PlanCache:
    """The most recently used plans of Fourier transforms, which the CUDA backend keeps for one device.

    `max_size`: how many are kept, 4096 by default; 0 keeps none.
    """

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index
        self._max_size = 4096

    @property
    def size(self) -> int:
        """The number of plans that the cache holds."""
        properties = _C.device_properties(_C.device("cuda", self.device_index))
        return int(properties.get("cufft_plan_cache_size", 0))

    @size.setter
    def size(self, value: int) -> None:
        raise RuntimeError(
            ".size is a read-only property showing the number of plans currently in the cache. To change the cache "
            "capacity, set cufft_plan_cache.max_size."
        )

    @property
    def max_size(self) -> int:
        return self._max_size

    @max_size.setter
    def max_size(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise RuntimeError(f"cuFFT plan cache size must be non-negative, but got {value!r}")
        self._max_size = value
        self._keep(value)

    def _keep(self, most: int) -> None:
        """Let the backend keep at most so many plans."""
        _C.set_setting(f"cuda.cufft_plan_cache.max_size.{self.device_index}", most)
        _ = self.size  # the backend drops plans beyond the limit when it counts them

    def clear(self) -> None:
        """Drop the plans."""
        self._keep(0)
        self._keep(self._max_size)


class PlanCaches:
    """`cufft_plan_cache`: that of the current device, or of another one by its index."""

    def __init__(self) -> None:
        self._caches: dict[int, PlanCache] = {}

    def __getitem__(self, device: Any) -> PlanCache:
        from ..cuda import _devices

        index = device
        if not isinstance(device, int) or isinstance(device, bool):
            index = _devices.checked("cufft_plan_cache", device).index
        if not 0 <= index < _devices.count():
            raise RuntimeError(
                f"cufft_plan_cache: expected 0 <= device index < {_devices.count()}, but got device with index {index}"
            )
        return self._caches.setdefault(index, PlanCache(index))

    def _current(self) -> PlanCache:
        from ..cuda import _devices

        return self[_devices.checked("cufft_plan_cache")]

    @property
    def size(self) -> int:
        return self._current().size

    @size.setter
    def size(self, value: int) -> None:
        self._current().size = value

    @property
    def max_size(self) -> int:
        return self._current().max_size

    @max_size.setter
    def max_size(self, value: int) -> None:
        self._current().max_size = value

    def clear(self) -> None:
        """Drop the plans of the current device."""
        self._current().clear()


class Preferred:
    """A library that is preferred among several: called without a name it tells which."""

    def __init__(self, function: str, names: tuple[str, ...]) -> None:
        self._function, self._names, self._chosen = function, names, "default"

    def __call__(self, backend: str | None = None) -> str:
        if backend is not None:
            if backend not in self._names:
                raise RuntimeError(
                    f"{self._function}: unknown input value {backend!r}. Choose from: {', '.join(self._names)}."
                )
            self._chosen = backend
            publish(f"cuda.{self._function}", self._names.index(backend))
        return self._chosen


class Sdp:
    """Which kernels attention may use."""

    def __init__(self) -> None:
        self.on = dict.fromkeys((*_SDP, "fp16_bf16_reduction_math"), True)
        self.on["fp16_bf16_reduction_math"] = False
        self.prefers_ours = False

    def add_to(self, module: Any) -> None:
        """Put `enable_KERNEL_sdp` and `KERNEL_sdp_enabled` on a module."""
        for kernel in _SDP:
            setattr(module, f"{kernel}_sdp_enabled", lambda kernel=kernel: self.on[kernel])
            setattr(
                module,
                f"enable_{kernel}_sdp",
                lambda enabled, kernel=kernel: self.set(kernel, enabled),
            )

    @contextlib.contextmanager
    def ours_first(self, first: bool) -> Iterator[None]:
        """Prefer this backend's kernels to cuDNN's for a while, where both may be used."""
        before = self.prefers_ours
        self.prefers_ours = first
        publish("cuda.sdp_ours_first", first)
        try:
            yield
        finally:
            self.prefers_ours = before
            publish("cuda.sdp_ours_first", before)

    def set(self, kernel: str, enabled: bool) -> None:
        self.on[kernel] = bool(enabled)
        publish(f"cuda.{kernel}_sdp", bool(enabled))

    @contextlib.contextmanager
    def kernel(
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
        before = dict(self.on)
        for kernel, on in asked.items():
            self.set(kernel, on)
        try:
            yield {f"enable_{kernel}": on for kernel, on in asked.items()}
        finally:
            for kernel in asked:
                self.set(kernel, before[kernel])


def _workspace(size: int | None = None) -> int:
    """Bytes of scratch for products; setting it has no effect: backends choose."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise RuntimeError(f"workspace size must be a non-negative int, got {size!r}")
    return DEFAULT_WORKSPACE if size is None else size


def _cannot_say(params: Any, debug: bool = False) -> bool:
    """Whether a kernel of PyTorch's takes the arguments in an SDPAParams, which rabbet does not make.

    Raises:
        TypeError: always.
    """
    raise TypeError(f"can_use_attention: expected an SDPAParams, got {type(params).__name__}")


def make_cuda() -> Any:
    """The module `rabbet.backends.cuda`."""
    sdp = Sdp()
    module: Any = Switches("cuda")
    sdp.add_to(module)
    module.is_built = is_built
    module.matmul = Matmul()
    module.cufft_plan_cache = PlanCaches()
    module.preferred_linalg_library = Preferred("preferred_linalg_library", _LINALG)
    module.preferred_blas_library = Preferred("preferred_blas_library", _BLAS)
    module.cublas_workspace_size = _workspace
    module.cublaslt_workspace_size = _workspace
    module.sdp_kernel = sdp.kernel
    module._sdp_ours_first = sdp.ours_first
    module.is_flash_attention_available = is_built  # its kernels need no library
    module.is_ck_sdpa_available = lambda: False
    module.SDPAParams = refusing_class(
        "rabbet.backends.cuda", "SDPAParams", "attention chooses its kernel itself"
    )
    for kind in ("cudnn", "efficient", "flash"):
        setattr(module, f"can_use_{kind}_attention", _cannot_say)
    reduced = "fp16_bf16_reduction_math"
    module.allow_fp16_bf16_reduction_math_sdp = lambda enabled: sdp.set(reduced, enabled)
    module.fp16_bf16_reduction_math_sdp_allowed = lambda: sdp.on[reduced]
    return module


def _cudnn_version() -> int | None:
    """cuDNN's version as the CUDA backend tells it among the properties of a device; None: it is not used."""
    from ..cuda import _devices

    if not _devices.count():
        return None
    found = _C.device_properties(_C.device("cuda", 0)).get("cudnn_version")
    return None if found is None else int(found)


def make_cudnn() -> Any:
    """The module `rabbet.backends.cudnn`."""
    module: Any = Switches(
        "cudnn", enabled=True, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True,
        depthwise_nhwc=False, fp32_precision="none",
    )  # fmt: skip
    module.version = _cudnn_version
    module.is_available = lambda: _cudnn_version() is not None
    module.is_acceptable = lambda tensor: tensor.is_cuda and module.is_available()
    module.conv = Group("cudnn.conv", fp32_precision="none")
    module.rnn = Group("cudnn.rnn", fp32_precision="none")
    return module
