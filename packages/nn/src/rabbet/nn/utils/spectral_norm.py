"""Spectral normalisation with a hook before forward: state dicts hold `weight_orig`, `weight_u` and `weight_v`."""

from __future__ import annotations

from typing import Any, TypeVar

import rabbet
from rabbet import Tensor

from ..functional import normalize
from ..modules.module import Module
from ..parameter import Parameter
from .parametrizations import as_matrix, power_iteration, spectral_dim

__all__ = [
    "SpectralNorm",
    "SpectralNormStateDictHook",
    "remove_spectral_norm",
    "spectral_norm",
]

T = TypeVar("T", bound=Module)


class SpectralNorm:
    """The hook: divides the weight by its largest singular value (Miyato et al. 2018)."""

    _version = 1

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but "
                f"got n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """The slices along `dim` as rows."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The weight; the vectors move in place where `do_power_iteration`."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            power_iteration(matrix.detach().t(), v, u, self.n_power_iterations, self.eps)
            # Clones: the vectors change in place before the backward pass of an earlier call.
            u, v = u.clone(), v.clone()
        return weight / (u @ (matrix @ v))

    @staticmethod
    def apply(
        module: Module, name: str, n_power_iterations: int, dim: int, eps: float
    ) -> SpectralNorm:
        """Register the hook and put the original weight and the vectors in the weight's place."""
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two spectral_norm hooks on the same parameter {name}"
                )
        fn = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        with rabbet.no_grad():
            vectors = [
                normalize(weight.new_empty(size).normal_(), dim=0, eps=eps)
                for size in fn.reshape_weight_to_matrix(weight).shape
            ]
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        # A plain attribute: the hook sets a new one, which is no parameter, for every call.
        setattr(module, name, weight.data)
        for suffix, vector in zip(("_u", "_v"), vectors, strict=True):
            module.register_buffer(name + suffix, vector)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(SpectralNormStateDictHook(fn))
        return fn

    def remove(self, module: Module) -> None:
        """Make the weight, as it is now, an ordinary parameter again."""
        with rabbet.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module: Module, inputs: Any) -> None:
        weight = self.compute_weight(module, do_power_iteration=module.training)
        setattr(module, self.name, weight)


class SpectralNormStateDictHook:
    """Writes the version of the layout into the metadata of a state dict."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]
    ) -> None:
        versions = local_metadata.setdefault("spectral_norm", {})
        key = self.fn.name + ".version"
        if key in versions:
            raise RuntimeError(f"Unexpected key in metadata['spectral_norm']: {key}")
        versions[key] = self.fn._version


def spectral_norm(
    module: T,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> T:
    """Divide a weight by its largest singular value, by a hook; `parametrizations` has the newer form.

    Args:
        module: holds the weight.
        name: its name.
        n_power_iterations: steps of power iteration for each call in training.
        eps: least norm in the iteration.
        dim: the dimension of the outputs; None: 1 of transposed convolutions, else 0.
    """
    SpectralNorm.apply(module, name, n_power_iterations, spectral_dim(module, dim), eps)
    return module


def remove_spectral_norm(module: T, name: str = "weight") -> T:
    """Take `spectral_norm` away again: the weight keeps the value that it has in evaluation."""
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for key, hook in list(module._state_dict_hooks.items()):
        if isinstance(hook, SpectralNormStateDictHook) and hook.fn.name == name:
            del module._state_dict_hooks[key]
            break
    return module
