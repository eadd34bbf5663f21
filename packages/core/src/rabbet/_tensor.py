"""Methods of Tensor that need no C: interop with NumPy, copying, constructors like `new_zeros`."""

from collections.abc import Sequence
from typing import Any

from . import _C, _functions, _overriding, composite
from ._accelerators import Device, chosen_device
from ._C import Tensor
from ._random import bernoulli, random_

_ops = _C.op
_requires_grad = _functions.requires_grad_of


def _array(self: Tensor) -> Any:
    import numpy

    return numpy.asarray(memoryview(self))


def numpy_(self: Tensor, *, force: bool = False) -> Any:
    """Return a NumPy array that shares the memory.

    Raises:
        RuntimeError: if the tensor requires grad while calls are recorded, unless force=True.
        TypeError: if it is on another device (unless force=True) or has a dtype that NumPy lacks.
    """
    if _requires_grad(self):
        from rabbet.autograd import is_grad_enabled

        if is_grad_enabled() and not force:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        self = self.detach()
    if not self.is_cpu:
        if not force:
            raise TypeError(f"numpy(): the tensor is on {self.device}; use tensor.cpu().numpy()")
        self = self.cpu()
    if _C.buffer_format(self.dtype) is None:
        raise TypeError(f"numpy(): NumPy has no {self.dtype.name}; use tensor.float().numpy()")
    return _array(self)


def _make_wrapper_subclass(cls: type, size: Any, **options: Any) -> Any:
    """A tensor of a class with `__torch_dispatch__` that has a shape, and no values."""
    from ._torch_dispatch import make_wrapper_subclass

    return make_wrapper_subclass(cls, size, **options)


def array_(self: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """NumPy's protocol: numpy.asarray(tensor)."""
    array = numpy_(self)
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def shallow_copy_(self: Tensor) -> Tensor:
    """copy.copy: another tensor in the same memory, which is a leaf."""
    fresh = Tensor._make_subclass(type(self), self, _requires_grad(self))
    fresh.__dict__.update(self.__dict__)
    return fresh


def _copied_memory(t: Tensor, memo: dict[Any, Any]) -> Tensor:
    """The same elements in other memory; what shares memory with `t` shares it in the copy, too."""
    if _C.composite_layer(t) is not None:
        return t.clone()
    if t.is_meta:
        return _functions.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    strides = t.stride()
    if t.numel() == 0 or min(strides, default=0) < 0 or _C.transform_level(t):
        return t.clone()
    key = ("rabbet storage", t._storage_id())
    base = memo.get(key)
    if base is None:
        base = t.as_strided([t._storage_nbytes() // t.element_size()], [1], 0).clone()
        memo[key] = base
        memo.setdefault(id(memo), []).append(t)  # alive as long as its storage's id is a key
    if base.dtype is not t.dtype:
        ratio = max(1, t.element_size() // base.element_size())
        base = base[: base.numel() // ratio * ratio].view(t.dtype)
    return base.as_strided(t.shape, strides, t.storage_offset())


def deepcopy_(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """copy.deepcopy: leaves only, as the graph is not copied."""
    if id(self) in memo:
        return memo[id(self)]
    grad_loaded = any(layer["name"] == "autograd" for layer in _C.layers())
    if grad_loaded and not self.is_leaf:
        raise RuntimeError("only leaf tensors support deepcopy; use detach().clone()")
    if _overriding.is_wrapper(self):
        from ._torch_dispatch import deepcopy_wrapper

        fresh = deepcopy_wrapper(self, memo)
    else:
        fresh = Tensor._make_subclass(type(self), _copied_memory(self.detach(), memo))
    memo[id(self)] = fresh
    if grad_loaded:
        if self.requires_grad:
            fresh.requires_grad = True
        if self.grad is not None:
            grad = self.grad
            memo.setdefault(id(memo), []).append(grad)  # alive as long as its id is a key
            fresh.grad = deepcopy_(grad, memo)
    for key, value in getattr(self, "__dict__", {}).items():
        import copy

        fresh.__dict__[key] = copy.deepcopy(value, memo)
    return fresh


def reduce_(self: Tensor, protocol: int) -> tuple[Any, ...]:
    """Pickle: the elements' bytes, dtype, shape and device; of a composite its parts; of a meta tensor its geometry."""
    from .serialization import _rebuild_tensor, tensor_bytes

    attributes = (self.__dict__ or None) if type(self) is not Tensor else None
    if _overriding.is_wrapper(self):
        from ._torch_dispatch import reduce_wrapper

        return (*reduce_wrapper(self, _requires_grad(self)), attributes)
    stored = composite.state(self)
    if stored is not None:
        parts = composite.parts(self.detach())
        return (
            composite.rebuild_pickled,
            (stored, parts, _requires_grad(self), type(self)),
            attributes,
        )
    if self.is_meta:
        geometry = (tuple(self.shape), self.stride(), self.dtype.name)
        return _rebuild_meta, (*geometry, _requires_grad(self), type(self)), attributes
    state: tuple[Any, ...] = (
        tensor_bytes(self.detach()),
        self.dtype.name,
        tuple(self.shape),
        _requires_grad(self),
        type(self),
    )
    if not self.is_cpu:
        state = (*state, str(self.device))
    return _rebuild_tensor, state, attributes


def _rebuild_meta(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: str, requires_grad: bool, cls: type
) -> Tensor:
    made = _functions.empty_strided(shape, stride, dtype=getattr(_C, dtype), device="meta")
    return Tensor._make_subclass(cls, made, requires_grad)


def setstate_(self: Tensor, state: dict[str, Any]) -> None:
    self.__dict__.update(state)


def _made(
    self: Tensor,
    creator: str,
    sizes: Any,
    *value: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    if _overriding.dispatches(self):
        from ._torch_dispatch import dispatch_method

        made = dispatch_method(
            self, f"new_{creator}", (list(sizes), *value), dtype=dtype, layout=layout, device=device
        )
        return made.requires_grad_() if requires_grad else made
    if not _C.transform_level(self):
        return _ops(creator)(
            sizes,
            *value,
            dtype=dtype or self.dtype,
            layout=layout,
            device=device or self.device,
            pin_memory=pin_memory,
            requires_grad=requires_grad,
        )
    made = _ops("new_empty")(self, sizes, dtype=dtype, device=device)  # batched like `self`
    if creator != "empty":
        made = made.fill_({"zeros": 0, "ones": 1}[creator] if not value else value[0])
    return made.requires_grad_() if requires_grad else made


def _like(creator: str) -> Any:
    def method(self: Tensor, *sizes: Any, size: Any = None, **options: Any) -> Tensor:
        if size is not None:
            if sizes:
                raise TypeError(f"new_{creator}() got sizes twice, by position and as size=")
            sizes = (size,)
        if len(sizes) == 1 and not isinstance(sizes[0], int):
            sizes = sizes[0]
        return _made(self, creator, sizes, **options)

    method.__name__ = f"new_{creator}"
    method.__doc__ = f"{creator}() with the dtype and device of this tensor."
    return method


def new_full(self: Tensor, size: Sequence[int], fill_value: Any, **options: Any) -> Tensor:
    """full() with the dtype and device of this tensor."""
    return _made(self, "full", size, fill_value, **options)


def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    device: Any = None,
    **options: Any,
) -> Tensor:
    """empty_strided() with the dtype and device of this tensor."""
    return _functions.empty_strided(
        size, stride, dtype=dtype or self.dtype, device=device or self.device, **options
    )


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """tensor() with the dtype and device of this tensor."""
    if isinstance(data, Tensor):
        _functions.warn_of_copy("tensor.new_tensor")
    return _functions.copied(
        data, dtype or self.dtype, device or self.device, requires_grad, pin_memory
    )


def format_(self: Tensor, spec: str) -> str:
    """The number of a 0-d tensor formats itself; others take no format, like most objects."""
    is_number = self.ndim == 0 and not self.is_meta and type(self) is Tensor
    if is_number and (spec or not _C.transform_level(self)):
        return format(self.item(), spec)
    return object.__format__(self, spec)


def reversed_(self: Tensor) -> Tensor:
    """reversed(tensor): the order along dimension 0 reversed; a 0-d tensor itself."""
    return self if self.ndim == 0 else self.flip([0])


def divided_(self: Tensor, other: Any) -> Tensor:
    """`other / tensor`, by the name of Python 2."""
    return other / self


def complex_(self: Tensor) -> complex:
    return complex(self.item())


def _quietly() -> Any:
    import contextlib

    if any(layer["name"] == "autograd" for layer in _C.layers()):
        import rabbet

        return rabbet.no_grad()
    return contextlib.nullcontext()


def is_pinned(self: Tensor, device: Device = None) -> bool:
    """Whether the memory is pinned host memory. `device` is taken for PyTorch's sake."""
    return _C.is_pinned(self)


def pin_memory(self: Tensor, device: Device = None) -> Tensor:
    """The tensor in pinned host memory, which devices copy from and to without staging; itself if it lies there.

    Args:
        device: for whose sake; None: the current accelerator.

    Raises:
        RuntimeError: if the tensor is not on the CPU.
        NotImplementedError: if the backend offers no pinned memory.
    """
    if not self.is_cpu:
        raise RuntimeError(
            f"pin_memory: only tensors of the CPU can be pinned, this one is on {self.device}"
        )
    if _C.is_pinned(self):
        return self
    with _quietly():
        return _C.pinned_like(self, chosen_device("pin_memory", device)).copy_(self)


def _device_memory(self: Tensor) -> dict[str, Any]:
    from ._array_interface import of_tensor

    return of_tensor(self)


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The functions of the Python array API standard: the module `rabbet.array_api`, or that of an older edition.

    Raises:
        ValueError: for an edition that is not implemented.
    """
    from .array_api import namespace_of

    return namespace_of(api_version)


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The array API's name of `to(device)`: the tensor itself if it is there, else a copy.

    Raises:
        ValueError: for a `stream`; the copy is ordered on the current stream.
    """
    if stream is not None:
        raise ValueError(
            f"to_device: stream must be None, got {stream!r}; use rabbet.accelerator to choose the stream"
        )
    return self.to(device)


def _record_stream(self: Tensor, s: Any) -> None:
    from ._streams import record_stream

    record_stream(self, s)


def _from(module: str, function: str, doc: str) -> Any:
    """A method that loads the module of its function when it is called."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        import importlib

        return getattr(importlib.import_module(f"rabbet.{module}"), function)(self, *args, **kwargs)

    method.__name__ = function
    method.__doc__ = doc
    return method


def _never(doc: str) -> Any:
    return property(lambda self: False, doc=doc)


def _laid_out(name: str, doc: str) -> Any:
    return property(lambda self: self.layout is getattr(_C, name), doc=doc)


def _on(kind: str) -> Any:
    return property(lambda self: self.device.type == kind, doc=f"Whether the tensor is on {kind}.")


def get_device(self: Tensor) -> int:
    """Index of the tensor's device; -1 for the CPU."""
    return -1 if self.is_cpu else self.device.index or 0


def polygamma_(self: Tensor, n: int) -> Tensor:
    """`polygamma` in place.

    Raises:
        RuntimeError: for integers, which cannot hold the result.
    """
    found = _ops("polygamma")(n, self)
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(
            f"polygamma_: result type {found.dtype} can't be cast to the desired output type {self.dtype}"
        )
    return self.copy_(found)


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """The tensor that `load_state_dict` swaps in when it swaps: detached, with `other`'s values.

    Args:
        other: the entry of the state dict.
        assign: return `other` itself, detached, instead of a copy into this tensor's memory.
    """
    return other.detach() if assign else self.copy_(other).detach()


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write a number to the main diagonal; with `wrap` of a tall matrix again below each block of columns.

    Raises:
        RuntimeError: for fewer than 2 dimensions, or more than 2 of different sizes.
    """
    if self.ndim < 2:
        raise RuntimeError(
            f"fill_diagonal_: dimensions must larger than 1, got shape {tuple(self.shape)}"
        )
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError(
            f"fill_diagonal_: all dimensions of input must be of equal length, got {tuple(self.shape)}"
        )
    height, width = self.shape[:2]
    step = width + 1
    offset = self.storage_offset()
    for first in range(0, height if wrap and self.ndim == 2 else 1, step):
        count = min(height - first, *self.shape[1:])
        if count > 0:
            start = offset + first * self.stride(0)
            self.as_strided([count], [sum(self.stride())], start).fill_(fill_value)
    return self


def dim_order(self: Tensor) -> tuple[int, ...]:
    """Dimensions from the one with the largest stride to the one with the smallest."""
    strides = self.stride()
    return tuple(sorted(range(self.ndim), key=lambda i: -strides[i]))


def _shown_as(view: str) -> Any:
    """The method `view` that changes the tensor itself: it shows the same memory by that view from now on."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        shown = getattr(self, view)(*args, **kwargs)
        if not _requires_grad(shown):
            self.data = shown
            return self
        if self.is_leaf:
            raise RuntimeError(
                f"{view}_: a leaf Variable that requires grad is being used in an in-place operation"
            )
        from rabbet.autograd import _C as tape

        tape.take_history(self, shown)
        self.data = shown
        return self

    method.__name__ = view + "_"
    method.__doc__ = f"`{view}` in place."
    return method


_VIEWS_IN_PLACE = (
    "as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze",
)  # fmt: skip
_FROM_FUNCTIONS = ("allclose", "equal", "nonzero", "unique", "unique_consecutive")
# Methods about other layouts than strided ones: most of them refuse.
_OTHERS = (
    "_is_view ccol_indices coalesce col_indices crow_indices dense_dim dequantize indices is_coalesced lu "
    "matrix_power row_indices sparse_dim to_dense to_mkldnn to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo "
    "to_sparse_csc to_sparse_csr values"
)
_DEPRECATED = "eig lstsq reinforce resize resize_as solve symeig"
_METHODS: dict[str, Any] = {
    "numpy": numpy_,
    "__array_namespace__": array_namespace,
    "to_device": to_device,
    "__array__": array_,
    "__copy__": shallow_copy_,
    "__deepcopy__": deepcopy_,
    "__reduce_ex__": reduce_,
    "__setstate__": setstate_,
    "__format__": format_,
    "__complex__": complex_,
    "__reversed__": reversed_,
    "__rdiv__": divided_,
    "new_zeros": _like("zeros"),
    "new_ones": _like("ones"),
    "new_empty": _like("empty"),
    "new_full": new_full,
    "new_empty_strided": new_empty_strided,
    "new_tensor": new_tensor,
    "type": _from("_legacy", "type_", "The name of the type, or the tensor cast to another."),
    "new": _from("_legacy", "new_", "A tensor of the same dtype on the same device."),
    "storage": _from("storage", "storage_of", "The elements of the memory; use untyped_storage()."),
    "untyped_storage": _from("storage", "UntypedStorage", "The bytes of the memory."),
    "resize_": _from("storage", "resize_", "Change the shape in place."),
    "resize_as_": _from("storage", "resize_as_", "Change the shape in place to another tensor's."),
    "set_": _from("storage", "set_", "Show the memory of another tensor or storage."),
    "is_nonzero": _from("_settings", "is_nonzero", "Whether the one element is not zero."),
    "is_same_size": _from("_settings", "is_same_size", "Whether the shapes are the same."),
    "is_signed": _from("_settings", "is_signed", "Whether the dtype has negative numbers."),
    "is_conj": _from("_settings", "is_conj", "Whether conjugation is pending: never."),
    "is_neg": _from("_settings", "is_neg", "Whether negation is pending: never."),
    "is_distributed": _from("_settings", "is_distributed", "Whether processes share it: never."),
    "get_device": get_device,
    "apply_": _from("_mapped", "apply_", "Replace each element by a function of it."),
    "map_": _from("_mapped", "map_", "Replace each element by a function of it and another."),
    "map2_": _from("_mapped", "map2_", "Replace each element by a function of it and two others."),
    "polygamma_": polygamma_,
    "module_load": module_load,
    "histogram": _from("_histograms", "histogram", "Counts in bins."),
    **{name: _from("_deprecated", name, "Of old programs.") for name in _DEPRECATED.split()},
    "volatile": property(_from("_deprecated", "volatile", "Always False.")),
    "name": property(lambda self: None, doc="None: names of tensors are for graphs."),
    "_cdata": property(
        id, doc="A number that distinguishes this tensor from all other live tensors."
    ),
    "dim_order": dim_order,
    "fill_diagonal_": fill_diagonal_,
    "share_memory_": _from("_sharing", "share_memory_", "Move to memory that processes share."),
    "is_shared": _from("_sharing", "is_shared", "Whether processes share the memory."),
    **{
        name: _from("_other_layouts", name, "Of other layouts than strided ones.")
        for name in _OTHERS.split()
    },
    "is_sparse": _laid_out("sparse_coo", "Whether the layout is sparse COO, of a composite."),
    "is_sparse_csr": _laid_out("sparse_csr", "Whether the layout is sparse CSR, of a composite."),
    "is_quantized": _never("Whether elements are quantized: there are no such dtypes yet."),
    "is_nested": _laid_out("jagged", "Whether the layout is jagged, of a composite."),
    "is_mkldnn": _never("Whether the layout is oneDNN's: rabbet does not use it."),
    "is_vulkan": _never("Whether the tensor is on Vulkan: there is no such backend."),
    "is_xla": _on("xla"),
    "is_xpu": _on("xpu"),
    "is_mps": _on("mps"),
    "is_mtia": _on("mtia"),
    "is_ipu": _on("ipu"),
    "is_maia": _on("maia"),
    "random_": random_,
    "is_pinned": is_pinned,
    "pin_memory": pin_memory,
    "bernoulli": bernoulli,
    "record_stream": _record_stream,
    "__cuda_array_interface__": property(_device_memory),
}


def install() -> None:
    """Put the methods on Tensor, and the printer behind its repr."""
    members = dict(_METHODS)
    members.update((f"{name}_", _shown_as(name)) for name in _VIEWS_IN_PLACE)
    members.update((name, getattr(_functions, name)) for name in _FROM_FUNCTIONS)
    for name, member in members.items():
        setattr(Tensor, name, _overriding.member(name, member))
    setattr(Tensor, "_make_wrapper_subclass", staticmethod(_make_wrapper_subclass))  # noqa: B010
    _C.set_repr(_represent)


def _represent(tensor: Tensor) -> str:
    from ._printing import represent

    return represent(tensor)
