"""Tensors that a module owns: parameters, which an optimizer trains, and buffers, which it does not."""

from __future__ import annotations

import sys
from typing import Any

import rabbet
from rabbet import _C, Tensor


class _OwnedTensor(Tensor):
    """What `Parameter` and `Buffer` share: operators return plain tensors; copying and pickling keep the class."""

    __torch_function__: Any = _C._disabled_torch_function_impl

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copied = Tensor._make_subclass(type(self), self.detach().clone(), self.requires_grad)
        copied.__dict__.update(self.__dict__)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (type(self), self.detach(), self.requires_grad, dict(self.__dict__))


def _rebuild(
    cls: type[Tensor], data: Tensor, requires_grad: bool, attributes: dict[str, Any]
) -> Any:
    owned = Tensor._make_subclass(cls, data, requires_grad)
    owned.__dict__.update(attributes)
    return owned


def _checked(data: Any, what: str) -> Tensor:
    if data is None:
        return rabbet.empty(0)
    if not isinstance(data, Tensor):
        raise TypeError(f"{what}: expected `data` to be a Tensor, got {type(data).__name__}")
    return data.detach()


class _ParameterType(type):
    """The class of Parameter: tensors of subclasses that were made parameters are instances of it, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and _is_marked(instance)


def _is_marked(tensor: Tensor) -> bool:
    return getattr(tensor, "_is_param", False) is True


def _of_subclass(data: Tensor, requires_grad: bool) -> Any:
    """A tensor of a subclass as a parameter: it keeps its class and its attributes' meaning."""
    kept: Any = data.detach().requires_grad_(requires_grad)
    if type(kept) is not type(data):
        raise RuntimeError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an "
            f"instance of the same type, but return type {type(kept).__name__} was found instead. To use the type as a "
            "Parameter, please correct the detach() semantics defined by its __torch_dispatch__() implementation."
        )
    kept.__dict__["_is_param"] = True
    return kept


class Parameter(_OwnedTensor, metaclass=_ParameterType):
    """A tensor that joins `Module.parameters()` when it is assigned to a module's attribute.

    Args:
        data: the values; the parameter shares their memory.
        requires_grad: whether gradients are wanted.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        plain = (_OwnedTensor, UninitializedTensorMixin)
        if isinstance(data, Tensor) and type(data) is not Tensor and not isinstance(data, plain):
            return _of_subclass(data, requires_grad)
        return Tensor._make_subclass(cls, _checked(data, cls.__name__), requires_grad)


class Buffer(_OwnedTensor):
    """A tensor that joins `Module.buffers()` when it is assigned to a module's attribute.

    Args:
        data: the values; the buffer shares their memory.
        persistent: whether it is part of the module's `state_dict`.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        values = _checked(data, cls.__name__)
        buffer = Tensor._make_subclass(cls, values, False)
        buffer.persistent = persistent
        return buffer


_reductions = sys.modules.get("rabbet.multiprocessing.reductions")
if _reductions is not None:  # else it registers them itself when it is imported
    _reductions.register_parameters(Parameter, Buffer)


_ALLOWED_WITHOUT_VALUES = {
    "__deepcopy__", "__get__", "__set__", "bfloat16", "bool", "byte", "char", "copy_", "cpu", "cuda", "detach", "double",
    "float", "get_device", "half", "int", "is_complex", "is_floating_point", "long", "requires_grad_", "share_memory_",
    "short", "size", "to",
}  # fmt: skip


class UninitializedTensorMixin:
    """A parameter or buffer whose shape is not known yet: it holds no values, but a dtype and a device."""

    cls_to_become: type[Tensor]
    data: Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Refuses every function that needs values.

        Raises:
            ValueError: if `func` is not a conversion, a move to a device or access to an attribute.
        """
        name = getattr(func, "__name__", "")
        if name in _ALLOWED_WITHOUT_VALUES:
            return _C._disabled_torch_function_impl(func, types, args, kwargs or {})
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
            f"`LazyModule` or explicitly manipulating `{cls.__module__}.{cls.__name__}` objects. When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling functions"
        )

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Take a shape and become an ordinary parameter or buffer, whose values are not set.

        Args:
            shape: the shape.
            device: None: the one it has.
            dtype: None: the one it has.
        """
        like = self.data
        self.data = rabbet.empty(
            shape,
            device=like.device if device is None else device,
            dtype=like.dtype if dtype is None else dtype,
        )
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    @property
    def shape(self) -> Any:
        """Refused: there is none yet."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. "
            "This error usually happens in `load_state_dict` when trying to load "
            "an uninitialized parameter into an initialized one. "
            "Call `forward` to initialize the parameters before accessing their attributes."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)  # type: ignore[attr-defined]


def is_lazy(param: Any) -> bool:
    """Whether `param` is a parameter or buffer that has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is not known yet.

    Args:
        requires_grad: whether gradients will be wanted.
        device: where it will be.
        dtype: what it will hold.
    """

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> UninitializedParameter:
        empty = rabbet.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, empty, requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is not known yet.

    Args:
        requires_grad: whether gradients will be wanted.
        device: where it will be.
        dtype: what it will hold.
        persistent: whether it is part of the module's `state_dict`.
    """

    cls_to_become = Buffer

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        empty = rabbet.empty(0, device=device, dtype=dtype)
        buffer = Tensor._make_subclass(cls, empty, requires_grad)
        buffer.persistent = persistent
        return buffer


_ParameterMeta = type(Parameter)
