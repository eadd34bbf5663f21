"""The behaviour of functions and methods of Tensor with masked tensors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import rabbet

from ..._C import Tensor
from ...overrides import DisableTorchFunctionSubclass
from .. import _ops as masked
from .core import HANDLERS, Handler, MaskedTensor, is_masked_tensor, with_mask

_UNARY = [
    "abs", "absolute", "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh",
    "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "clamp", "clip", "conj_physical", "cos", "cosh",
    "deg2rad", "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "floor", "frac", "i0", "isnan",
    "lgamma", "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg", "negative", "positive", "rad2deg",
    "reciprocal", "round", "rsqrt", "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square",
    "tan", "tanh", "trunc",
]  # fmt: skip
_BINARY = [
    "add", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "div", "divide", "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "greater", "greater_equal",
    "gt", "le", "less", "less_equal", "logaddexp", "logaddexp2", "lt", "maximum", "minimum", "mul", "multiply", "ne",
    "nextafter", "not_equal", "pow", "remainder", "rsub", "sub", "subtract", "true_divide",
    "__rdiv__", "__rfloordiv__", "__rlshift__", "__rmod__", "__rpow__", "__rrshift__", "__rsub__", "__rtruediv__",
]  # fmt: skip
_REDUCTIONS = [
    "all", "amax", "amin", "argmax", "argmin", "mean", "norm", "prod", "std", "sum", "var",
]  # fmt: skip
# Applied to data and mask alike.
_VIEWS = [
    "__getitem__", "cat", "chunk", "column_stack", "concat", "concatenate", "contiguous", "diagonal", "dstack",
    "expand", "expand_as", "flatten", "flip", "gather", "hstack", "index_select", "movedim", "moveaxis", "narrow",
    "permute", "ravel", "repeat", "reshape", "roll", "select", "split", "squeeze", "stack", "swapaxes", "swapdims",
    "t", "tile", "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "vstack",
]  # fmt: skip
# Elementwise, with the mask unchanged.
_COPIES = [
    "bool", "clone", "cpu", "detach", "double", "float", "half", "int", "long", "ones_like", "short", "to",
    "type", "type_",
]  # fmt: skip
# Functions that do not read elements.
_METADATA = [
    "__hash__", "__len__", "dim", "element_size", "get_device", "is_contiguous", "is_floating_point", "is_complex",
    "is_signed", "is_tensor", "ndimension", "nelement", "numel", "register_hook",
    "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad", "size", "storage_offset", "stride",
]  # fmt: skip
_NUMBERS = [
    "__bool__", "__complex__", "__float__", "__index__", "__int__", "item",
]  # fmt: skip
_KEYWORDS_REFUSED = frozenset(("alpha", "decimals", "out", "rounding_mode"))


# ---- arguments


def _data(value: Any) -> Any:
    if is_masked_tensor(value):
        return value.get_data()
    if isinstance(value, (list, tuple)) and any(map(is_masked_tensor, value)):
        return type(value)(map(_data, value))
    return value


def _mask(func: Any, value: Any) -> Any:
    if is_masked_tensor(value):
        return value.get_mask()
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        if any(map(is_masked_tensor, value)) and not all(map(is_masked_tensor, value)):
            raise TypeError(f"{func.__name__}: expected MaskedTensors only, got one without a mask")
        return type(value)(_mask(func, item) for item in value)
    return value


def _mapped(f: Callable[[Any], Any], args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    return [f(value) for value in args], {name: f(value) for name, value in kwargs.items()}


def _check_keywords(func: Any, kind: str, kwargs: dict[str, Any]) -> None:
    refused = sorted(_KEYWORDS_REFUSED & kwargs.keys())
    if refused:
        raise ValueError(f"{func.__name__}: MaskedTensor {kind} ops do not take '{refused[0]}'")


def _match(a: Any, b: Any) -> bool:
    """Whether the masks of two operands are equal, which they are if one has none."""
    if not (is_masked_tensor(a) and is_masked_tensor(b)):
        return True
    first, second = a.get_mask(), b.get_mask()
    return first.ndim == second.ndim and bool((first == second).all())


def _plain(func: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Any:
    """`func` as plain tensors have it, on the objects that are given."""
    with DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _result(func: Any, args: Iterable[Any], kwargs: dict[str, Any], mask: Any) -> Any:
    """The result of `func` on plain data, with a mask."""
    data, options = _mapped(_data, args, kwargs)
    return with_mask(MaskedTensor._of_plain(func, data, options), mask)


# ---- handlers


def _unary(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check_keywords(func, "unary", kwargs)
    if any(isinstance(value, Tensor) for value in (*args[1:], *kwargs.values())):
        raise TypeError(
            f"{func.__name__}: MaskedTensor unary ops do not support additional Tensor arguments"
        )
    return _result(func, args, kwargs, args[0].get_mask())


def _binary_mask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The mask of two operands."""
    _check_keywords(func, "binary", kwargs)
    operands = [*args, *kwargs.values()][:2]
    if not _match(*operands):
        raise ValueError(f"{func.__name__}: Input masks must match")
    found: Tensor = next(value for value in operands if is_masked_tensor(value)).get_mask()
    return found


def _binary(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mask = _binary_mask(func, args, kwargs)
    data, options = _mapped(_data, args, kwargs)
    result = MaskedTensor._of_plain(func, data, options)
    return with_mask(result, mask.expand(result.shape))


def _in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target, *rest = args
    if not is_masked_tensor(target):
        raise TypeError(f"{func.__name__}: a plain tensor cannot be overwritten by a MaskedTensor")
    _check_keywords(func, "in-place", kwargs)
    for value in (*rest, *kwargs.values()):
        if not _match(target, value):
            raise ValueError(f"{func.__name__}: Input masks must match")
    data, options = _mapped(_data, rest, kwargs)
    _plain(func, (target, *data), options)
    return target


def _reduction(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    reader: Callable[..., dict[str, Any]] = _ARGUMENTS.get(func.__name__, _reduced)
    given = reader(*args, **kwargs)
    data, mask = given.pop("input").get_data(), args[0].get_mask()
    dim, keepdim = given.get("dim"), given["keepdim"]
    if func.__name__ == "all":
        kept = data.masked_fill(~mask, True)
        result = kept.all() if dim is None else kept.all(dim, keepdim)
    else:
        result = getattr(masked, func.__name__)(data, mask=mask, **given)
    left = mask.any() if dim is None and not keepdim else _any(mask, dim, keepdim)
    return with_mask(result, left)


def _any(mask: Tensor, dim: Any, keepdim: bool) -> Tensor:
    for d in reversed(masked._canonical_dim(dim, mask.ndim)):
        mask = mask.any(d, keepdim)
    return mask


def _reduced(input: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return {"input": input, "dim": dim, "keepdim": keepdim, "dtype": dtype}


def _spread(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *,
    correction: int | None = None,
) -> Any:  # fmt: skip
    if correction not in (None, 0, 1):
        raise ValueError(f"MaskedTensor var and std take a correction of 0 or 1, got {correction}")
    biased = not unbiased if correction is None else correction == 0
    return {"input": input, "dim": dim, "unbiased": not biased, "keepdim": keepdim}


def _normed(
    input: Any, p: Any = 2.0, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    return {"input": input, "ord": p, "dim": dim, "keepdim": keepdim, "dtype": dtype}


# The arguments of reductions that have others than `_reduced`.
_ARGUMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "norm": _normed,
    "std": _spread,
    "var": _spread,
}


def _view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    masks, mask_options = _mapped(lambda value: _mask(func, value), args, kwargs)
    return _result(func, args, kwargs, func(*masks, **mask_options))


def _copy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data, options = _mapped(_data, args, kwargs)
    result = func(*data, **options)
    if not isinstance(result, Tensor):  # the name of the type
        return result
    return with_mask(result, args[0].get_mask().to(result.device).clone())


def _write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x[index] = value`: a mask of `value` must equal that of `x[index]`."""
    target, index, value = args
    if is_masked_tensor(target) and not _match(target[index], value):
        raise ValueError("__setitem__: Input masks must match")
    if not is_masked_tensor(target) and is_masked_tensor(value):
        raise TypeError("__setitem__: a plain tensor cannot be overwritten by a MaskedTensor")
    _plain(func, (target, _data(index), _data(value)), kwargs)


def _softmax(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = dict(zip(("input", "dim"), args[:2], strict=False)) | kwargs
    given.pop("_stacklevel", None)
    data, mask = given["input"].get_data(), given["input"].get_mask()
    if given.get("dim") is None:
        raise TypeError("softmax: a MaskedTensor needs 'dim'")
    result = masked.softmax(data, given["dim"], dtype=given.get("dtype"), mask=mask)
    return with_mask(result, mask)


def _where(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 3 or kwargs:
        raise ValueError(f"where: a MaskedTensor needs 3 positional arguments, got {len(args)}")
    condition, *operands = args
    if condition.dtype is not rabbet.bool:  # the method: x.where(condition, other)
        condition, operands = args[1], [args[0], args[2]]
    condition = _data(condition)
    result = rabbet.where(condition, *map(_data, operands))
    masks = [
        value.get_mask() if is_masked_tensor(value) else condition.new_ones((), dtype=rabbet.bool)
        for value in operands
    ]
    return with_mask(result, rabbet.where(condition, *masks).expand_as(result))


def _number(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args[0].numel() == 1 and not args[0].get_mask().item():
        raise ValueError(f"{func.__name__}: the element is masked out")
    return func(args[0].get_data())


def _no_copy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = func.__name__.strip("_")
    raise RuntimeError(
        f".{name}() is not supported for tensor subclasses, got {type(args[0]).__name__}; "
        "use get_data() or to_tensor(value)"
    )


def _backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    data, options = _mapped(_data, args[1:], kwargs)
    return _plain(func, (args[0], *data), options)


def _gradients(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`autograd.grad`, with gradients that have the masks of their inputs."""
    given = dict(zip(("outputs", "inputs", "grad_outputs"), args, strict=False)) | kwargs
    inputs = given["inputs"]
    found = _plain(func, (), given | {"grad_outputs": _data(given.get("grad_outputs"))})
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return tuple(_like(value, of) for value, of in zip(found, inputs, strict=True))


def _like(gradient: Any, of: Any) -> Any:
    if gradient is None or not is_masked_tensor(of):
        return gradient
    return with_mask(_plain(Tensor.as_subclass, (gradient, Tensor), {}), of.get_mask())


# ---- attributes


def _attribute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = getattr(func.__self__, "__name__", "")
    found = _plain(func, args, kwargs)
    if name == "grad":
        return _like(found, args[0])
    if name in ("T", "mT", "H", "mH", "data"):
        mask = args[0].get_mask()
        plain = _plain(Tensor.as_subclass, (found, Tensor), {})
        return with_mask(plain, mask if name == "data" else getattr(mask, name))
    return found


# ---- the table


def _table() -> dict[Any, Handler]:
    """Handlers of functions and methods; those that rabbet lacks are left out."""
    made: dict[Any, Handler] = {"attribute": _attribute}
    autograd = _module("autograd")  # gives Tensor its methods

    def add(names: Iterable[str], handler: Handler, *owners: Any) -> None:
        for owner in owners or (rabbet, Tensor):
            for name in names:
                function = getattr(owner, name, None)
                if function is not None:
                    made[function] = handler

    add(_METADATA, _plain)
    add(_UNARY, _unary)
    add(_BINARY, _binary)
    add([f"{name}_" for name in (*_UNARY, *_BINARY)], _in_place)
    add(["copy_"], _in_place)
    add(_REDUCTIONS, _reduction)
    add(_VIEWS, _view)
    add(_COPIES, _copy)
    add(_NUMBERS, _number)
    add(["__setitem__"], _write)
    add(["softmax"], _softmax, rabbet, Tensor, _module("nn.functional"))
    add(["where"], _where)
    add(["tolist", "numpy", "__array__"], _no_copy)
    add(["backward"], _backward)
    add(["backward"], _backward, autograd)
    add(["grad"], _gradients, autograd)
    return made


def _module(name: str) -> Any:
    """A module of another wheel; None where that is not installed."""
    try:
        return importlib.import_module(f"rabbet.{name}")
    except ImportError:
        return None


HANDLERS.update(_table())
