"""Functions beside the op records: creation from data, queries, and answers that are no tensors."""

import builtins
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from . import _C, _overriding
from ._C import Size, Tensor

_ops: Callable[[str], Any] = _C.op

__all__ = ["allclose", "as_tensor", "asarray", "broadcast_shapes", "bucketize", "can_cast", "einsum", "empty_permuted", "empty_strided", "equal", "finfo", "from_dlpack", "from_numpy", "frombuffer", "get_default_dtype", "get_num_threads", "iinfo", "is_complex", "is_floating_point", "is_tensor", "imag", "nonzero", "numel", "promote_types", "real", "result_type", "scalar_tensor", "searchsorted", "set_default_dtype", "set_num_threads", "set_printoptions", "tensor", "tensordot", "unique", "unique_consecutive"]  # fmt: skip

get_default_dtype = _C.get_default_dtype
set_default_dtype = _C.set_default_dtype
get_num_threads = _C.get_num_threads
set_num_threads = _C.set_num_threads
promote_types = _C.promote_types
can_cast = _C.can_cast
from_dlpack = _C.from_dlpack


def accumulation_dtype(dtype: Any) -> Any:
    """float32 for float16 and bfloat16, else `dtype`."""
    return _C.float32 if dtype in (_C.float16, _C.bfloat16) else dtype


def dense_format(input: Tensor) -> Any:
    """channels_last or channels_last_3d for a tensor that is contiguous only in it, else contiguous_format."""
    last = {4: _C.channels_last, 5: _C.channels_last_3d}.get(input.ndim)
    if last is None or input.is_contiguous() or not input.is_contiguous(memory_format=last):
        return _C.contiguous_format
    return last


def set_printoptions(**options: Any) -> None:
    """Set how tensors are printed; see rabbet._printing.set_printoptions."""
    from ._printing import set_printoptions as set_options

    set_options(**options)


# ---- creation from data


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Copy `data` (numbers, nested sequences, arrays, tensors) into a new tensor.

    Warns if `data` is a tensor, as PyTorch does; `clone()` copies a tensor without the warning.

    Raises:
        ValueError: if nested sequences differ in length.
        TypeError: for elements that are no numbers.
    """
    if isinstance(data, Tensor):
        warn_of_copy("rabbet.tensor")
    return copied(data, dtype, device, requires_grad, pin_memory)


def warn_of_copy(function: str) -> None:
    """Warn the caller of `function` that it was given a tensor to copy."""
    warnings.warn(
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
        f"sourceTensor.detach().clone().requires_grad_(True), rather than {function}(sourceTensor).",
        UserWarning,
        stacklevel=3,
    )


def copied(data: Any, dtype: Any, device: Any, requires_grad: bool, pin_memory: bool) -> Tensor:
    """As `tensor()`, without its warning."""
    made = _C.tensor(data, dtype, device)
    if pin_memory:
        made = made.pin_memory()
    if requires_grad:
        made.requires_grad = True
    return made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return `data` as a tensor, without copying where dtype and device allow it."""
    return _C.as_tensor(data, dtype, device)


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: builtins.bool | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Return `obj` as a tensor; copy=True always copies, copy=False raises if a copy is needed.

    Args:
        requires_grad: whether the result requires grad. A tensor that does is detached unless this is set; else
            the result keeps its history.
    """
    if isinstance(obj, Tensor) and requires_grad_of(obj):
        obj = obj if requires_grad else obj.detach()
        made = obj.to(
            device=device or obj.device, dtype=dtype or obj.dtype, copy=builtins.bool(copy)
        )
    else:
        made = _C.tensor(obj, dtype, device) if copy else _C.as_tensor(obj, dtype, device)
    if copy is False and made is not obj and not _shares_memory(made, obj):
        raise ValueError("asarray: copy=False, but this data cannot be shared")
    return made.requires_grad_() if requires_grad and not requires_grad_of(made) else made


def _shares_memory(made: Tensor, obj: Any) -> builtins.bool:
    """Whether a tensor that was made of an array shows the array's memory."""
    for name in ("__array_interface__", "__cuda_array_interface__"):
        interface = getattr(obj, name, None)
        if interface is not None and interface["data"][0] == made.data_ptr():
            return True
    return False


def requires_grad_of(x: Tensor) -> builtins.bool:
    """Whether a tensor requires grad; does not load autograd."""
    return any(layer["name"] == "autograd" for layer in _C.layers()) and x.requires_grad


def from_numpy(ndarray: Any) -> Tensor:
    """Share the memory of a NumPy array; writes are seen on both sides.

    Raises:
        TypeError: if it is no array, or its dtype has no counterpart.
    """
    if not hasattr(ndarray, "__array_interface__"):
        raise TypeError(f"from_numpy: expected a numpy.ndarray, got {type(ndarray).__name__}")
    return _C.from_buffer(ndarray)


def frombuffer(
    buffer: Any,
    *,
    dtype: Any,
    count: int = -1,
    offset: int = 0,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Read a 1-d tensor out of an object with the buffer protocol, sharing its memory; `offset` in bytes."""
    made = _C.from_buffer(buffer, dtype, None, offset, count)
    return made.requires_grad_() if requires_grad else made


def scalar_tensor(
    s: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A 0-d tensor of the default dtype."""
    return copied(s, dtype or get_default_dtype(), device, requires_grad, pin_memory)


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Over how many elements of memory a tensor reaches, from its first one on."""
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0


def _empty(size: Any, **options: Any) -> Tensor:
    made: Tensor = _ops("empty")(size, **options)
    return made


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
    pin_memory: builtins.bool = False,
) -> Tensor:
    """Uninitialised, with the given strides in elements."""
    memory = _empty(
        extent(size, stride), dtype=dtype, layout=layout, device=device, pin_memory=pin_memory
    )
    made = memory.as_strided(size, stride)
    return made.requires_grad_() if requires_grad else made


def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
    pin_memory: builtins.bool = False,
) -> Tensor:
    """Uninitialised, without gaps; the dims lie in memory in the order `physical_layout`, the outermost first.

    Raises:
        RuntimeError: if `physical_layout` is no permutation of the dims.
    """
    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(
            f"empty_permuted: expected a permutation of the {len(size)} dims, got {list(physical_layout)}"
        )
    memory = _empty(
        [size[d] for d in physical_layout],
        dtype=dtype,
        layout=layout,
        device=device,
        pin_memory=pin_memory,
    )
    made = memory.permute(sorted(range(len(size)), key=list(physical_layout).__getitem__))
    return made.requires_grad_() if requires_grad else made


# ---- queries


def is_tensor(obj: Any) -> builtins.bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> builtins.bool:
    """Whether the dtype is floating."""
    _need_tensor(is_floating_point, input)
    return input.is_floating_point()


def is_complex(input: Tensor) -> builtins.bool:
    """Whether the dtype is complex."""
    _need_tensor(is_complex, input)
    return input.is_complex()


def numel(input: Tensor) -> int:
    """Number of elements."""
    _need_tensor(numel, input)
    return input.numel()


# Names of the two operands of `result_type`, for tensors and for numbers.
_OPERANDS = (
    ("tensor", "other"), ("scalar", "tensor"), ("scalar1", "scalar2"), ("tensor1", "tensor2"),
)  # fmt: skip


def result_type(*operands: Any, **named: Any) -> Any:
    """The dtype that an operator on two tensors or numbers would compute in.

    They are given by position, or as tensor= and other=, scalar= and tensor=, or scalar1= and scalar2=.
    """
    names = next((n for n in _OPERANDS if set(named) == set(n[len(operands) :])), None)
    if names is None or len(operands) > 2:
        raise TypeError(
            f"result_type(): expected two operands, got {len(operands)} by position and {sorted(named)} by keyword"
        )
    tensor1, tensor2 = (*operands, *(named[name] for name in names[len(operands) :]))

    def probe(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return _empty([1] * x.ndim, dtype=x.dtype, device="meta")

    a, b = probe(tensor1), probe(tensor2)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = _C.tensor(a, None, "meta")
    return (a + b).dtype if isinstance(a, Tensor) else (b + a).dtype


class _TypeInfo:
    def __init__(self, bits: builtins.int, **shown: Any) -> None:
        self.bits = bits
        self._shown = tuple(shown)  # by repr, in this order
        self.__dict__.update(shown)

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self._shown}
        texts = {k: f"{v:g}" if isinstance(v, builtins.float) else v for k, v in values.items()}
        inner = ", ".join(f"{name}={text}" for name, text in texts.items())
        return f"{type(self).__name__}({inner})"


class finfo(_TypeInfo):
    """Limits of a floating dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    max: builtins.float
    min: builtins.float
    eps: builtins.float
    tiny: builtins.float

    def __init__(self, type: Any = None) -> None:
        dtype = type or get_default_dtype()
        limits = _C.float_limits(dtype) if isinstance(dtype, _C.dtype) else None
        if limits is None:
            raise TypeError(f"finfo: expected a floating dtype, got {dtype}; use iinfo")
        bits, eps, largest, tiny, name = limits
        super().__init__(
            bits,
            resolution=10.0 ** -int(-math.log10(eps)),
            min=-largest,
            max=largest,
            eps=eps,
            smallest_normal=tiny,
            tiny=tiny,
            dtype=name,
        )


class iinfo(_TypeInfo):
    """Limits of an integer dtype: bits, max, min."""

    max: builtins.int
    min: builtins.int

    def __init__(self, type: Any) -> None:
        name = getattr(type, "name", "")
        if not name.lstrip("u").startswith("int"):
            raise TypeError(f"iinfo: expected an integer dtype, got {type}; use finfo")
        bits = int(name.lstrip("uint"))
        unsigned = name.startswith("u")
        super().__init__(
            bits,
            min=0 if unsigned else -(2 ** (bits - 1)),
            max=2 ** (bits if unsigned else bits - 1) - 1,
            dtype=name,
        )


# ---- shapes and joins


def broadcast_shapes(*shapes: Sequence[int] | int) -> Size:
    """The shape to which all of `shapes` broadcast."""
    given = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    if any(size < 0 for shape in given for size in shape):
        raise ValueError("Attempting to broadcast a dimension with negative length!")
    out: list[int] = []
    for i in range(1, max((len(s) for s in given), default=0) + 1):
        sizes = {s[-i] for s in given if len(s) >= i} - {1}
        if len(sizes) > 1:
            raise RuntimeError(f"broadcast_shapes: {', '.join(map(str, given))} do not broadcast")
        out.append(sizes.pop() if sizes else 1)
    return Size(reversed(out))


# ---- answers about tensors, and results that arguments choose


def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: builtins.bool = False,
) -> builtins.bool:
    """Whether isclose() holds everywhere."""
    return builtins.bool(_ops("isclose")(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> builtins.bool:
    """Whether shape and elements are the same.

    Raises:
        TypeError: if one of them is no tensor.
    """
    for name, x in (("input", input), ("other", other)):
        if not isinstance(x, Tensor):
            raise TypeError(f"equal(): argument '{name}' must be Tensor, not {type(x).__name__}")
    return input.shape == other.shape and builtins.bool((input == other).all())


def nonzero(input: Tensor, *, out: Tensor | None = None, as_tuple: builtins.bool = False) -> Any:
    """Indices of the elements that are not zero: (count, ndim) int64, or with `as_tuple` a tensor for each dimension."""
    _need_tensor(nonzero, input)
    if out is not None and not isinstance(out, Tensor):
        raise TypeError(f"nonzero(): argument 'out' must be Tensor, not {type(out).__name__}")
    if as_tuple and out is not None:
        raise ValueError("nonzero: 'out' cannot be given with as_tuple=True")
    rows = _ops("nonzero")(input.reshape([1]) if as_tuple and input.ndim == 0 else input, out=out)
    return rows.unbind(1) if as_tuple else rows


_MISSING: Any = object()


def _sought(function: Any, input: Any, number: Any) -> Any:
    """The tensor `input` or the number that the keyword `self` gives, as PyTorch names it."""
    if input is _MISSING and number is _MISSING:
        raise TypeError(f"{function.__name__}() missing 1 required positional argument: 'input'")
    if input is not _MISSING and number is not _MISSING:
        raise TypeError(f"{function.__name__}() got both 'input' and 'self'")
    if isinstance(number, Tensor) and number.ndim > 0:
        raise TypeError(f"{function.__name__}(): argument 'self' must be a number, not Tensor")
    return input if number is _MISSING else number


def searchsorted(
    sorted_sequence: Tensor,
    input: Any = _MISSING,
    *,
    self: Any = _MISSING,
    out_int32: builtins.bool = False,
    right: builtins.bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Where to insert numbers into ascending sequences to keep them so.

    Args:
        sorted_sequence: (N), or (*, N) beside `input` (*, M).
        input: numbers of any shape beside one sequence, also one Python number.
        self: one number, in the place of `input`.
        out_int32: whether the result is int32, else int64.
        right: whether equal numbers go behind those there; the same as side='right'.
        side: 'left' or 'right'.
        sorter: (N) or (*, N), in which order the sequences ascend.

    Raises:
        RuntimeError: for shapes that do not fit, or a `side` that contradicts `right`.
    """
    _need_tensor(searchsorted, sorted_sequence)
    input = _sought(searchsorted, input, self)
    if side not in (None, "left", "right"):
        raise RuntimeError(f"searchsorted: side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "searchsorted: side and right can't be set to opposites, got side of left while right was True"
        )
    if not isinstance(input, Tensor):
        if sorted_sequence.ndim != 1:
            raise RuntimeError(
                "searchsorted: input value can be a scalar only when boundaries tensor dimension is 1, got "
                f"{sorted_sequence.ndim} dimensions"
            )
        input = scalar_tensor(input, device=sorted_sequence.device)
    if sorted_sequence.ndim == 0 or (
        sorted_sequence.ndim > 1 and input.shape[:-1] != sorted_sequence.shape[:-1]
    ):
        raise RuntimeError(
            "searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {list(sorted_sequence.shape)} and input "
            f"value tensor {list(input.shape)}"
        )
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise RuntimeError(
                "searchsorted: sorter should have the same shape as boundaries tensor, got "
                f"{list(sorter.shape)} for {list(sorted_sequence.shape)}"
            )
        if sorter.dtype is not _C.int64:
            raise RuntimeError(f"searchsorted: sorter must be int64, got {sorter.dtype}")
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    dtype = _C.int32 if out_int32 else _C.int64
    found = _ops("search_rows")(sorted_sequence, input, right or side == "right").to(dtype)
    if out is None:
        return found
    if out.dtype is not dtype:
        raise RuntimeError(
            f"searchsorted: output tensor's dtype is wrong, it can only be {dtype} with out_int32={out_int32}, got "
            f"{out.dtype}"
        )
    from . import _destinations

    return _destinations.write(searchsorted.__name__, found, out)


def bucketize(
    input: Any = _MISSING,
    boundaries: Tensor = _MISSING,
    *,
    self: Any = _MISSING,
    out_int32: builtins.bool = False,
    right: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """In which of the buckets between ascending `boundaries` (N) each number lies; `searchsorted` turned around."""
    if boundaries is _MISSING:
        raise TypeError("bucketize() missing 1 required positional argument: 'boundaries'")
    _need_tensor(bucketize, boundaries)
    input = _sought(bucketize, input, self)
    if boundaries.ndim != 1:
        raise RuntimeError(
            f"bucketize: boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


def unique(
    input: Tensor,
    sorted: builtins.bool = True,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements of `input`, or its different slices along `dim`, in ascending order.

    Returns:
        The elements; with `return_inverse` also where each element of `input` is among them, with `return_counts`
        how often each occurs (int64), as a tuple.
    """
    output, inverse, counts = _ops("unique_results")(
        input, sorted, return_inverse, return_counts, dim
    )
    return _asked(output, (inverse, return_inverse), (counts, return_counts))


def unique_consecutive(
    input: Tensor,
    return_inverse: builtins.bool = False,
    return_counts: builtins.bool = False,
    dim: int | None = None,
) -> Any:
    """The elements of `input`, or its slices along `dim`, without those that equal the one before.

    Returns:
        The elements; with `return_inverse` also where each element of `input` is among them, with `return_counts`
        how many equal ones followed each other (int64), as a tuple.
    """
    _need_tensor(unique_consecutive, input)
    output, inverse, counts = _ops("unique_consecutive_results")(
        input, return_inverse, return_counts, dim
    )
    return _asked(output, (inverse, return_inverse), (counts, return_counts))


def _asked(output: Tensor, *others: tuple[Tensor, builtins.bool]) -> Any:
    asked = [x for x, on in others if on]
    return (output, *asked) if asked else output


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sum of products over `dims`: a number of last/first dimensions, or two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise _C.ArgumentError(
                f"tensordot: dims must be 0 to {min(a.ndim, b.ndim)} for tensors of {a.ndim} and {b.ndim} dimensions, "
                f"got {dims}"
            )
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    return _ops("tensordot_dims")(a, b, left, right, out=out)


_LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _labels_text(labels: Sequence[Any]) -> str:
    """The text of a list of labels: numbers below 52, or Ellipsis."""
    for label in labels:
        if label is not Ellipsis and not 0 <= label < len(_LABELS):
            raise ValueError(
                f"einsum: a label must be 0 to {len(_LABELS) - 1} or Ellipsis, got {label}"
            )
    return "".join("..." if x is Ellipsis else _LABELS[x] for x in labels)


def einsum(*args: Any) -> Tensor:
    """Sum of products in Einstein's notation: einsum('bij,bjk->bik', a, b), or einsum(a, [0, 1], b, [1, 2], [0, 2]).

    Raises:
        RuntimeError: if the equation does not fit the operands.
    """
    if len(args) < 2:
        raise ValueError("einsum: expected an equation and at least one operand")
    run = _ops("einsum")
    if isinstance(args[0], str):
        return run(*args)
    operands, lists = args[: len(args) // 2 * 2 : 2], args[1::2]
    equation = ",".join(_labels_text(labels) for labels in lists)
    if len(args) % 2:
        equation += "->" + _labels_text(args[-1])
    return run(equation, *operands)


def real(input: Tensor) -> Tensor:
    """Real part: of complex tensors a view, of others the tensor itself."""
    _need_tensor(real, input)
    return input.real


def imag(input: Tensor) -> Tensor:
    """Imaginary part of a complex tensor, a view.

    Raises:
        RuntimeError: if the tensor is not complex.
    """
    _need_tensor(imag, input)
    return input.imag


def _need_tensor(function: Any, input: Any) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(
            f"{function.__name__}(): argument 'input' must be Tensor, not {type(input).__name__}"
        )


_NOT_OVERRIDABLE = {"broadcast_shapes", "is_tensor", "set_printoptions"}
_overriding.functions(globals(), set(__all__) - _NOT_OVERRIDABLE)
