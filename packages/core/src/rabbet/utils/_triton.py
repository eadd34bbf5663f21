"""Whether kernels can be written in Triton: rabbet runs none."""

from typing import Any

from .._C import NotImplementedForError

__all__ = [
    "get_triton_version", "has_datacenter_blackwell_tma_device", "has_triton", "has_triton_experimental_host_tma",
    "has_triton_package", "has_triton_stable_tma_api", "has_triton_tensor_descriptor_host_tma", "has_triton_tma",
    "has_triton_tma_device", "triton_backend", "triton_hash_with_backend",
]  # fmt: skip


def has_triton() -> bool:
    """Whether kernels in Triton can run on rabbet's tensors: no."""
    return False


has_triton_package = has_triton_tma = has_triton_tma_device = has_triton
has_triton_experimental_host_tma = has_triton_tensor_descriptor_host_tma = has_triton
has_triton_stable_tma_api = has_datacenter_blackwell_tma_device = has_triton


def get_triton_version(fallback: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """The version of Triton that runs kernels: none does."""
    return fallback


def triton_backend() -> Any:
    """The part of Triton for the current device.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedForError("triton_backend: rabbet runs no kernels in Triton")


triton_hash_with_backend = triton_backend
