"""Pruning: masks over parameters that a hook applies before each forward.

A pruned parameter `name` is kept as the parameter `name_orig` and the buffer `name_mask`; the attribute
`name` holds their product.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import rabbet
from rabbet import Tensor

from ..modules.module import Module
from .convert_parameters import parameters_to_vector

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

T = TypeVar("T", bound=Module)


class BasePruningMethod(ABC):
    """A way to choose which entries to prune; subclasses define `compute_mask` and `PRUNING_TYPE`.

    `PRUNING_TYPE` says what a further pruning of the same parameter chooses from: 'unstructured' the entries
    that are left, 'structured' the slices that are left, 'global' all entries.
    """

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for scores `t`, on top of `default_mask`."""

    def apply_mask(self, module: Module) -> Tensor:
        """The product of the kept parameter and its mask."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask, orig = getattr(module, name + "_mask"), getattr(module, name + "_orig")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Prune a parameter of `module`, on top of earlier prunings of it; returns the method or container.

        Args:
            module: holds the parameter.
            name: its name.
            args: for the constructor of the method.
            importance_scores: what the method judges instead of the values, of the same shape.
            kwargs: for the constructor of the method.
        """
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _hooks_of(module, name)
        if len(earlier) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
                "Use a PruningContainer."
            )
        orig = getattr(module, name + "_orig") if earlier else getattr(module, name)
        if importance_scores is None:
            importance_scores = orig
        elif importance_scores.shape != orig.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}: "
                f"expected {tuple(orig.shape)}, got {tuple(importance_scores.shape)}"
            )
        # Computed before the module changes: a refused pruning leaves it as it was.
        with rabbet.no_grad():
            if earlier:
                key, first = earlier[0]
                container = PruningContainer()
                container._tensor_name = name
                for part in first if isinstance(first, PruningContainer) else (first,):
                    container.add_pruning_method(part)
                container.add_pruning_method(method)
                method = container
                default = getattr(module, name + "_mask").detach().clone()
            else:
                default = rabbet.ones_like(orig)
            mask = method.compute_mask(importance_scores, default_mask=default)
        if earlier:
            del module._forward_pre_hooks[key]
        else:
            del module._parameters[name]
            module.register_parameter(name + "_orig", orig)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self,
        t: Tensor,
        default_mask: Tensor | None = None,
        importance_scores: Tensor | None = None,
    ) -> Tensor:
        """A pruned copy of `t`, which no module has to hold."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError(
                "importance_scores should have the same shape as tensor t: "
                f"expected {tuple(t.shape)}, got {tuple(importance_scores.shape)}"
            )
        default = rabbet.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(importance_scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """Make the pruned values an ordinary parameter again; the hook stays until `remove` drops it."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module).detach()
        if hasattr(module, name):
            delattr(module, name)
        orig = module._parameters.pop(name + "_orig")
        assert orig is not None
        orig.data = weight
        del module._buffers[name + "_mask"]
        setattr(module, name, orig)


class PruningContainer(BasePruningMethod):
    """Several prunings of one parameter, in order."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Append a method, which must be for the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        own, other = (getattr(m, "_tensor_name", None) for m in (self, method))
        if own != other:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{own}' to "
                f"PruningContainer {self}. Found '{other}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Apply the last method to what the earlier ones left, which `default_mask` says."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype).clone()
        left: Any
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = getattr(method, "dim", None)
            if dim is None:
                raise AttributeError(
                    "Pruning methods of PRUNING_TYPE 'structured' need to have the attribute `dim` defined."
                )
            if not -t.ndim <= dim < t.ndim:
                raise IndexError(
                    f"Index is out of bounds for tensor with dimensions {t.ndim}: {dim}"
                )
            kept = mask.sum(_all_but(dim, t.ndim)) != 0 if t.ndim > 1 else mask != 0
            left = tuple(kept if d == dim % t.ndim else slice(None) for d in range(t.ndim))
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[left] = method.compute_mask(t[left], default_mask=mask[left]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prune nothing: the parameter gets a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> Any:  # type: ignore[override]
        """Give a parameter a mask of ones."""
        return super().apply(module, name)


class _ByAmount(BasePruningMethod):
    """Methods that prune a number or a fraction of what is there."""

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount


class _Unstructured(_ByAmount):
    """Prune the entries of least rank."""

    PRUNING_TYPE = "unstructured"

    def _rank(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _compute_nparams_toprune(self.amount, t.numel())
        _validate_pruning_amount(count, t.numel())
        mask = default_mask.clone(memory_format=rabbet.contiguous_format)
        if count:
            least = rabbet.topk(self._rank(t).reshape(-1), k=count, largest=False).indices
            mask.view(-1)[least] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Prune entries at random.

    Args:
        amount: how many (an int) or which part of them (a float between 0 and 1).
    """

    def _rank(self, t: Tensor) -> Tensor:
        return rabbet.rand_like(t)

    @classmethod
    def apply(cls, module: Module, name: str, amount: float) -> Any:  # type: ignore[override]
        """Prune entries of a parameter at random."""
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Unstructured):
    """Prune the entries of least absolute value.

    Args:
        amount: how many (an int) or which part of them (a float between 0 and 1).
    """

    def _rank(self, t: Tensor) -> Tensor:
        return t.abs()

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> Any:
        """Prune the entries of a parameter that have the least absolute value or score."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(_ByAmount):
    """Prune the slices along `dim` of least rank."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _rank(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(count, size)
        if not count:
            return default_mask
        kept = rabbet.ones([size], dtype=default_mask.dtype, device=t.device)
        kept[rabbet.topk(self._rank(t), k=count, largest=False).indices] = 0
        shape = [1] * t.ndim
        shape[self.dim] = size
        return default_mask * kept.view(shape)


class RandomStructured(_Structured):
    """Prune slices at random.

    Args:
        amount: how many (an int) or which part of them (a float between 0 and 1).
        dim: the dimension of the slices.
    """

    def _rank(self, t: Tensor) -> Tensor:
        return rabbet.rand(t.shape[self.dim], device=t.device)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, dim: int = -1
    ) -> Any:
        """Prune slices of a parameter at random."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prune the slices of least n-norm.

    Args:
        amount: how many (an int) or which part of them (a float between 0 and 1).
        n: order of the norm, as in `rabbet.norm`.
        dim: the dimension of the slices.
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _rank(self, t: Tensor) -> Tensor:
        return rabbet.norm(t, p=self.n, dim=_all_but(self.dim, t.ndim))

    @classmethod
    def apply(  # type: ignore[override]
        cls,
        module: Module,
        name: str,
        amount: float,
        n: Any,
        dim: int,
        importance_scores: Tensor | None = None,
    ) -> Any:
        """Prune the slices of a parameter that have the least norm, of the values or of the scores."""
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prune where `mask` is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"custom_from_mask: expected a mask of shape {tuple(default_mask.shape)}, "
                f"got {tuple(self.mask.shape)}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        """Prune a parameter where `mask` is 0."""
        return super().apply(module, name, mask=mask)


def identity(module: T, name: str) -> T:
    """Give a parameter a mask of ones; returns `module`."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: T, name: str, amount: float) -> T:
    """Prune entries of a parameter at random; returns `module`."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: T, name: str, amount: float, importance_scores: Tensor | None = None
) -> T:
    """Prune the entries of a parameter that have the least absolute value; returns `module`."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: T, name: str, amount: float, dim: int) -> T:
    """Prune slices of a parameter along `dim` at random; returns `module`."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: T,
    name: str,
    amount: float,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> T:
    """Prune the slices of a parameter along `dim` that have the least n-norm; returns `module`."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Any,
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one vector.

    Args:
        parameters: pairs of a module and a parameter's name.
        pruning_method: a class of PRUNING_TYPE 'unstructured'.
        importance_scores: by such a pair, what is judged instead of the values.
        kwargs: for the constructor of `pruning_method`.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    values = [getattr(module, name) for module, name in pairs]
    masks = [
        getattr(module, name + "_mask", rabbet.ones_like(value))
        for (module, name), value in zip(pairs, values, strict=True)
    ]
    judged = [scores.get((m, n), v) for (m, n), v in zip(pairs, values, strict=True)]
    with rabbet.no_grad():
        mask = container.compute_mask(parameters_to_vector(judged), parameters_to_vector(masks))
    start = 0
    for (module, name), value in zip(pairs, values, strict=True):
        end = start + value.numel()
        custom_from_mask(module, name, mask=mask[start:end].view_as(value))
        start = end


def custom_from_mask(module: T, name: str, mask: Tensor) -> T:
    """Prune a parameter where `mask` is 0; returns `module`."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: T, name: str) -> T:
    """Make the pruned values an ordinary parameter again, without hook and mask; returns `module`."""
    for key, hook in _hooks_of(module, name):
        hook.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Whether a parameter of `module` or of a module below it is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for part in module.modules()
        for hook in part._forward_pre_hooks.values()
    )


def _hooks_of(module: Module, name: str) -> list[tuple[int, BasePruningMethod]]:
    return [
        (key, hook)
        for key, hook in module._forward_pre_hooks.items()
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
    ]


def _all_but(dim: int, ndim: int) -> list[int]:
    return [d for d in range(ndim) if d != dim % ndim]


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
        )


def _validate_pruning_amount(amount: float, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and amount > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}"
        )


def _validate_structured_pruning(t: Tensor) -> None:
    if t.ndim <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. "
            f"Found tensor of shape {t.shape} with {t.ndim} dims"
        )


def _compute_nparams_toprune(amount: float, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _validate_pruning_dim(t: Tensor, dim: int) -> None:
    if not -t.ndim <= dim < t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")
