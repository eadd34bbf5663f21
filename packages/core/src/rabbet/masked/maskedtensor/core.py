"""The class of tensors with masks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import rabbet

from ... import _C
from ..._C import Tensor
from ...overrides import DisableTorchFunctionSubclass
from ._printing import masked_tensor_text

__all__ = ["MaskedTensor", "is_masked_tensor"]

_DTYPES = frozenset(
    (_C.float16, _C.float32, _C.float64, _C.bool, _C.int8, _C.int16, _C.int32, _C.int64)
)

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
# The handler of each function, and that of all attributes under "attribute"; filled by _functions.py.
HANDLERS: dict[Any, Handler] = {}


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether `obj` is a MaskedTensor.

    Example:
        >>> rabbet.masked.is_masked_tensor(rabbet.ones(2))
        False
    """
    return isinstance(obj, MaskedTensor)


def check_members(data: Tensor, mask: Tensor) -> None:
    """Refuse data and masks that make no MaskedTensor."""
    if mask.dtype is not _C.bool:
        raise TypeError(f"mask must have dtype bool, got {mask.dtype}")
    if data.dtype not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor")
    if data.ndim != mask.ndim:
        raise ValueError(f"data.dim() must equal mask.dim(), got {data.ndim} and {mask.ndim}")
    if data.shape != mask.shape:
        raise ValueError(
            f"data.size() must equal mask.size(), got {tuple(data.shape)} and {tuple(mask.shape)}"
        )


def _check_tensors(data: Any, mask: Any) -> None:
    for name, value in (("data", data), ("mask", mask)):
        if not isinstance(value, Tensor) or is_masked_tensor(value):
            raise TypeError(f"{name} must be a Tensor, got {type(value).__name__}")
    check_members(data, mask)


class MaskedTensor(Tensor):
    """A tensor with a mask in its shape: True marks the elements that count.

    Functions of one argument, and views, keep the mask; those of two need equal masks, or one operand without;
    reductions skip masked elements, and their results are masked where no element is left. Functions that have no
    meaning with a mask raise a TypeError. Elements under the mask have values that nothing should rely on.

    Args:
        data: of a floating or signed integer dtype, or bool; it is copied.
        mask: bools in the shape of `data`; it is copied.
        requires_grad: whether a gradient is wanted, which is a MaskedTensor then.

    Raises:
        TypeError: for data and masks that are no tensors, or of other dtypes.
        ValueError: for a mask of another shape.

    Example:
        >>> from rabbet.masked import MaskedTensor
        >>> x = MaskedTensor(rabbet.tensor([3.0, 9.0, 5.0]), rabbet.tensor([True, False, True]))
        >>> x * 2
        MaskedTensor(
          [  6.0000,       --,  10.0000]
        )
        >>> x.mean()
        MaskedTensor(  4.0000, True)
        >>> x.to_tensor(0)
        tensor([3., 0., 5.])
    """

    _masked_mask: Tensor

    def __new__(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        """Copy `data` and `mask`."""
        _check_tensors(data, mask)
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. "
                "To avoid this, you can use data.detach().clone()",
                UserWarning,
                stacklevel=2,
            )
        with DisableTorchFunctionSubclass():
            made: MaskedTensor = data.detach().clone().as_subclass(cls)
            made._masked_mask = mask.detach().clone()
            made.requires_grad_(requires_grad)
        return made

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        """See the class."""

    @classmethod
    def _from_values(cls, data: Tensor, mask: Tensor) -> MaskedTensor:
        """A copy of `data` through which gradients reach the elements that the mask keeps."""
        _check_tensors(data, mask)
        if not data.requires_grad:
            return cls(data, mask)
        return with_mask(rabbet.where(mask, data, data.detach()), mask.detach().clone())

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the handler of `func`; NotImplemented without one: a mask has no meaning there."""
        if not all(issubclass(cls, t) for t in types):
            return NotImplemented
        is_attribute = getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")
        handler = HANDLERS.get("attribute" if is_attribute else func)
        options = dict(kwargs or {})
        if not args and "input" in options:
            args = (options.pop("input"),)
        return NotImplemented if handler is None else handler(func, args, options)

    @classmethod
    def _of_plain(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Results of `func` on plain tensors as MaskedTensors, which have no mask yet."""
        return super().__torch_function__(func, (), args, kwargs)

    @classmethod
    def unary(cls, fn: Callable[[Tensor], Tensor], data: Tensor, mask: Tensor) -> MaskedTensor:
        """A MaskedTensor of `fn(data)` and `mask`."""
        return MaskedTensor(fn(data), mask)

    @property
    def _masked_data(self) -> Tensor:
        return self.get_data().detach()

    def get_data(self) -> Tensor:
        """The plain tensor of all elements, also of those under the mask; gradients pass through it."""
        with DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    def get_mask(self) -> Tensor:
        """The mask."""
        return self._masked_mask

    def to_tensor(self, value: Any) -> Tensor:
        """A plain tensor with `value` in the place of elements under the mask."""
        return self.get_data().masked_fill(~self.get_mask(), value)

    def to_dense(self, *args: Any, **kwargs: Any) -> MaskedTensor:
        """The tensor itself, which is dense."""
        return self

    def to_sparse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: rabbet has no sparse layouts."""
        raise NotImplementedError("MaskedTensor.to_sparse: rabbet has no sparse tensors yet")

    def to_sparse_csr(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: rabbet has no sparse layouts."""
        raise NotImplementedError("MaskedTensor.to_sparse_csr: rabbet has no sparse tensors yet")

    def is_sparse_coo(self) -> bool:
        """False: the layout is strided."""
        return False

    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """False: the layout is strided."""
        return False

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """The elements that count, and `--` for the others."""
        return masked_tensor_text(self._masked_data, self._masked_mask)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        """The text of `repr`."""
        return format(repr(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> MaskedTensor:
        """A copy without history."""
        if id(self) not in memo:
            memo[id(self)] = MaskedTensor(self._masked_data, self._masked_mask, self.requires_grad)
        copied: MaskedTensor = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Data and mask, for pickle."""
        return MaskedTensor, (self._masked_data, self._masked_mask, self.requires_grad)


def with_mask(result: Any, mask: Any) -> Any:
    """Plain results with their masks: a tensor, or a list or tuple of tensors."""
    if isinstance(result, (list, tuple)):
        return type(result)(with_mask(r, m) for r, m in zip(result, mask, strict=True))
    check_members(result, mask)
    with DisableTorchFunctionSubclass():
        made = result if is_masked_tensor(result) else result.as_subclass(MaskedTensor)
        made._masked_mask = mask
    return made
