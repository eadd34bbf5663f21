"""Operators by PyTorch's names: `ops.aten.add.Tensor`, one object for each overload.

An operator of rabbet is one record for all overloads of PyTorch's. `overload_of` finds the overload's name that PyTorch
gives to a call of a record; a call of an overload runs the record, which chooses by the arguments.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from . import _C
from ._C import Tensor

__all__ = ["OpOverload", "OpOverloadPacket", "overload_of", "space"]


# ---- schemas


class AliasInfo(NamedTuple):
    """Whether an argument shares memory with a result, and whether it is written."""

    is_write: bool
    before_set: frozenset[str]
    after_set: frozenset[str]


class Argument(NamedTuple):
    """An argument or a result of an operator."""

    name: str
    type: str
    kwarg_only: bool = False
    default_value: Any = None
    alias_info: AliasInfo | None = None
    has_default: bool = False

    @property
    def is_write(self) -> bool:
        """Whether it is written."""
        return self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        """Whether calls may leave it out."""
        return self.has_default

    def __str__(self) -> str:
        mark = "" if self.alias_info is None else "(a!)" if self.is_write else "(a)"
        text = f"Tensor{mark}{self.type[6:]}" if self.type.startswith("Tensor") else self.type
        text = f"{text} {self.name}" if self.name else text
        return f"{text}={self.default_value}" if self.has_default else text


class FunctionSchema(NamedTuple):
    """The signature of an overload, from the record that it calls."""

    name: str
    overload_name: str
    arguments: list[Argument]
    returns: list[Argument]

    @property
    def is_mutable(self) -> bool:
        """Whether a call writes one of its arguments."""
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        parts = []
        for argument in self.arguments:
            if argument.kwarg_only and "*" not in parts:
                parts.append("*")
            parts.append(str(argument))
        name = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        results = ", ".join(map(str, self.returns))
        results = results if len(self.returns) == 1 else f"({results})"
        return f"{name}({', '.join(parts)}) -> {results}"


_VIEWED = AliasInfo(False, frozenset("a"), frozenset("a"))
_WRITTEN = AliasInfo(True, frozenset("a"), frozenset("a"))


def _schema_of(overload: OpOverload) -> FunctionSchema:
    if overload.record is None:
        return _schema_of_function(overload, overload._called)
    info = _C.op_info(overload.record)
    shares = info["view"] or info["maybe_view"]
    arguments = []
    for i, param in enumerate(info["params"]):
        alias = _VIEWED if shares and i == 0 else None
        if param["mutated"] or (overload.writes_self and i == 0):
            alias = _WRITTEN
        name = "self" if i == 0 and param["name"] in ("input", "x") else param["name"]
        type_ = param["type"] + ("?" if param["optional"] else "")
        arguments.append(
            Argument(
                name, type_, param["keyword_only"], param["default"], alias, param["has_default"]
            )
        )
    if overload.writes_out:
        arguments += [Argument(name, "Tensor", True, None, _WRITTEN) for name in info["rets"]]
    writes = overload.writes_self or overload.writes_out
    alias = _WRITTEN if writes else _VIEWED if shares else None
    kind = "Tensor[]" if info["returns_list"] else "Tensor"
    single = len(info["rets"]) == 1
    returns = [Argument("" if single else name, kind, alias_info=alias) for name in info["rets"]]
    overload_name = "" if overload._overloadname == "default" else overload._overloadname
    return FunctionSchema(overload._qualified_op_name, overload_name, arguments, returns)


def _schema_of_function(overload: OpOverload, function: Callable[..., Any]) -> FunctionSchema:
    """The schema of an operator of PyTorch that is a Python function in rabbet."""
    try:
        params = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # it takes several forms
        params = []
    arguments: list[Argument] = []
    for param in params:
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            continue
        is_self = not arguments
        has_default = param.default is not param.empty
        arguments.append(
            Argument(
                "self" if is_self else param.name,
                "Tensor" if is_self else "Any",
                param.kind is param.KEYWORD_ONLY,
                param.default if has_default else None,
                _WRITTEN if is_self and overload.writes_self else None,
                has_default,
            )
        )
    kind = "Scalar" if overload._opname == "_local_scalar_dense" else "Tensor"
    returned = Argument("", kind, alias_info=_WRITTEN if overload.writes_self else None)
    return FunctionSchema(overload._qualified_op_name, "", arguments, [returned])


# ---- names


def _is_tensor(args: Sequence[Any], i: int) -> bool:
    return i < len(args) and isinstance(args[i], Tensor)


def _tensor_or(number: str, tensor: str = "Tensor", at: int = 1) -> Callable[[Sequence[Any]], str]:
    """The overload's name by whether an argument is a tensor."""
    return lambda args: tensor if _is_tensor(args, at) else number


def _dims(dims: str, every: str = "default", at: int = 1) -> Callable[[Sequence[Any]], str]:
    """The overload's name by whether dimensions are given."""
    return lambda args: every if len(args) <= at or args[at] is None else dims


def _one_or_more_dims(args: Sequence[Any]) -> str:
    if args[1] is None:
        return "default"
    return "dim" if len(args[1]) == 1 else "dims"


def _power(args: Sequence[Any]) -> str:
    if not _is_tensor(args, 0):
        return "Scalar"
    return "Tensor_Tensor" if _is_tensor(args, 1) else "Tensor_Scalar"


def _arange(args: Sequence[Any]) -> str:
    if args[1] is None:
        return "default"
    return "start" if type(args[2]) is int and args[2] == 1 else "start_step"


def _where(args: Sequence[Any]) -> str:
    names = {(True, True): "self", (False, True): "ScalarSelf", (True, False): "ScalarOther"}
    return names.get((_is_tensor(args, 1), _is_tensor(args, 2)), "Scalar")


def _clamp(args: Sequence[Any]) -> str:
    return "Tensor" if any(_is_tensor(args, i) for i in range(1, len(args))) else "default"


def _norm(args: Sequence[Any]) -> str:
    if args[2] is None:
        return "Scalar" if args[4] is None else "ScalarOpt_dtype"
    return "ScalarOpt_dim" if args[4] is None else "ScalarOpt_dim_dtype"


_SCALAR = _tensor_or("Scalar")
# PyTorch's overloads where the record's name does not determine them: a name, or a function of the arguments.
_OVERLOADS: dict[str, str | Callable[[Sequence[Any]], str]] = {
    "add": "Tensor", "sub": "Tensor", "mul": "Tensor", "rsub": _SCALAR, "pow": _power, "float_power": _power,
    "div": lambda args: "Tensor" if args[2] is None else "Tensor_mode",
    "eq": _SCALAR, "ne": _SCALAR, "lt": _SCALAR, "le": _SCALAR, "gt": _SCALAR, "ge": _SCALAR, "remainder": _SCALAR,
    "fmod": _SCALAR, "bitwise_and": _SCALAR, "bitwise_or": _SCALAR, "bitwise_xor": _SCALAR, "copysign": _SCALAR,
    "bitwise_left_shift": _tensor_or("Tensor_Scalar"), "bitwise_right_shift": _tensor_or("Tensor_Scalar"),
    "ldexp": "Tensor", "xlogy": _tensor_or("Scalar_Other"), "lerp": _tensor_or("Scalar", at=2),
    "fill": _SCALAR, "masked_fill": _tensor_or("Scalar", at=2), "where": _where, "where.condition": "default",
    "clamp": _clamp, "clamp_min": _tensor_or("default"), "clamp_max": _tensor_or("default"),
    "round": lambda args: "decimals" if args[1] else "default",
    "index_fill": _tensor_or("int_Scalar", "int_Tensor", at=3), "index": "Tensor", "isin": "Tensor_Tensor",
    "scatter": "src", "scatter_reduce": "two", "searchsorted": _SCALAR, "bucketize": _SCALAR,
    "repeat_interleave": "self_int", "repeat_interleave.tensor": "self_Tensor", "repeat_interleave.counts": "Tensor",
    "sum": _dims("dim_IntList"), "mean": _dims("dim"), "prod.dim": "dim_int", "any": _one_or_more_dims,
    "all": _one_or_more_dims, "var": "correction", "std": "correction", "var_mean": "correction",
    "std_mean": "correction", "count_nonzero": _dims("dim_IntList"), "norm": _norm, "squeeze": _one_or_more_dims,
    "transpose": "int", "movedim": "intlist", "select": "int", "slice": "Tensor", "flatten": "using_ints",
    "unflatten": "int", "unbind": "int", "split": "Tensor", "tensor_split": "sections",
    "tensor_split.indices": "indices", "tensor_split.tensor": "tensor_indices_or_sections",
    "bernoulli": "float", "bernoulli.tensor": "Tensor",
    "random": "from", "empty": "memory_format", "arange": _arange,
    "eye": lambda args: "default" if args[1] is None else "m",
    "norm.name": "ScalarOpt_dim", "hsplit": "int", "vsplit": "int", "dsplit": "int", "hsplit.indices": "array",
    "vsplit.indices": "array", "dsplit.indices": "array", "normal.tensors": "Tensor_Tensor",
    "normal.means": "Tensor_float", "normal.stds": "float_Tensor", "normal.sized": "float_float",
    "trapezoid": "x", "cumulative_trapezoid": "x", "tensordot_dims": "default", "quantile.number": "scalar",
    "nanquantile.number": "scalar",
}  # fmt: skip
# Records with another name in PyTorch.
_PACKETS = {
    "softmax": "_softmax", "log_softmax": "_log_softmax",
    "split.sizes": "split_with_sizes", "pad_constant": "constant_pad_nd", "cast": "_to_copy", "to_device": "_to_copy",
    "max_pool_with_indices": "max_pool2d_with_indices", "bernoulli.tensor": "bernoulli", "tensordot_dims": "tensordot",
    "vector_norm": "linalg_vector_norm", "cross": "linalg_cross",
}  # fmt: skip
# Private records whose name is also PyTorch's.
_HIDDEN = {
    "batch_norm_backward", "bernoulli", "clone", "convolution", "copy", "dropout", "einsum", "elu", "embedding",
    "embedding_backward", "expand", "exponential", "fill", "gelu", "group_norm", "hardsigmoid", "hardswish", "hardtanh",
    "imag", "index", "layer_norm", "leaky_relu", "linear", "mT", "mish", "new_empty", "nll_loss", "nll_loss_backward",
    "nonzero", "normal", "prelu", "random", "real", "rms_norm", "scaled_dot_product_attention", "searchsorted", "silu",
    "slice", "softplus", "softshrink", "softsign", "tanhshrink", "unfold", "uniform", "view", "zero",
}  # fmt: skip
# Operators that PyTorch decomposes before __torch_dispatch__ sees them (CompositeImplicitAutograd), where rabbet's
# decomposition consists of the same operators. Records without a name in PyTorch are decomposed as well.
_DECOMPOSED = {
    "adjoint", "argsort", "argwhere", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "broadcast_to",
    "cartesian_prod", "chunk", "column_stack", "combinations", "conj", "conj_physical", "contiguous", "corrcoef", "cov",
    "cumulative_trapezoid", "diag", "diagflat", "diff", "dsplit", "dstack", "einsum", "expand_as", "flatten", "fliplr",
    "flipud", "float_power", "hsplit", "hstack", "inner", "isclose", "isfinite", "isreal", "kron", "linear", "meshgrid",
    "movedim", "msort", "nanmean", "narrow", "outer", "positive", "quantile", "nanquantile", "ravel", "reshape",
    "resolve_conj", "resolve_neg", "selu", "softsign", "square", "sum_to_size", "take_along_dim", "tanhshrink",
    "tensor_split", "tile", "trapezoid", "unflatten", "vander", "vsplit", "vstack", "where.condition", "max.other",
    "min.other",
}  # fmt: skip
# Decompositions that would be slow, or read values.
_WHOLE = {"assert_all", "attention", "search_rows", "unique_consecutive_results", "unique_results"}
_OUTS = {
    "default": "out", "Tensor": "out", "Tensor_mode": "out_mode", "dim_IntList": "IntList_out", "dim_int": "int_out",
    "self": "self_out", "memory_format": "out",
}  # fmt: skip


@functools.cache
def is_derivative(record: str) -> bool:
    """Whether the name is that of a derivative that has a kernel, such as relu.vjp.input."""
    return ".vjp." in record


def place_of(record: str) -> tuple[str, str]:
    """Namespace and packet of a record."""
    namespace, colons, name = record.partition("::")
    if colons:
        return namespace, name.partition(".")[0]
    if is_derivative(record):
        return "rabbet", record
    if record in _PACKETS:
        return "aten", _PACKETS[record]
    info = _C.op_info(record)
    is_public = info["function"] or info["method"] or info["inplace"]
    base = info["base"]
    return ("aten" if is_public or base in _HIDDEN else "rabbet"), base


def _overload_name(record: str, args: Sequence[Any]) -> str:
    rule = _OVERLOADS.get(record)
    if rule is not None:
        return rule if isinstance(rule, str) else rule(args)
    if record in _PACKETS:
        return "default"
    return record.rpartition("::")[2].partition(".")[2] or "default"


@functools.cache
def is_decomposed(record: str) -> bool:
    """Whether the operators of a record's decomposition are dispatched instead of the record."""
    info = _C.op_info(record)
    if not info["has_decomp"] or record in _WHOLE or "::" in record:
        return False
    is_form = record.rpartition(".")[2].startswith("or") and record.rpartition(".")[2][2:].isdigit()
    listed = record in _DECOMPOSED or info["base"] in _DECOMPOSED
    return is_form or listed or place_of(record)[0] == "rabbet"


def _product(args: Sequence[Any]) -> str:
    """The operator that PyTorch's matmul calls."""
    ranks = args[0].ndim, args[1].ndim
    if ranks == (3, 3) and args[0].shape[0] != args[1].shape[0]:
        return "matmul"
    return {(1, 1): "dot", (2, 1): "mv", (2, 2): "mm", (3, 3): "bmm"}.get(ranks, "matmul")


def overload_of(record: str, args: Sequence[Any], in_place: bool, out: bool) -> OpOverload:
    """PyTorch's overload for a call of a record.

    Args:
        record: the record's name.
        args: all arguments of the call, in the record's order.
        in_place: whether the call writes its first argument.
        out: whether it writes other tensors.
    """
    namespace, packet = place_of(record)
    if packet == "matmul":
        packet = _product(args)
    name = _overload_name(record, args)
    if in_place:
        packet += "_"
    elif out:
        name = _OUTS.get(name, f"{name}_out")
    overload: OpOverload = getattr(getattr(space(namespace), packet), name)
    if overload.record is None:
        overload.record = record
    return overload


@functools.cache
def _records_by_name() -> dict[tuple[str, str], str]:
    """Records keyed by packet and overload, where the names alone do not determine them."""
    found = {}
    for record in _C.record_names():
        if "::" in record:
            continue
        packet = place_of(record)[1]
        rule = _OVERLOADS.get(record)
        if isinstance(rule, str):
            found[packet, rule] = record
        elif "." in record and rule is None:
            found[packet, _overload_name(record, ())] = record
        elif record in _PACKETS:
            found.setdefault((packet, "default"), record)
    return found


# ---- calls


def _to_copy(
    x: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    memory_format: Any = None,
    out: Any = None,
) -> Any:
    if out is not None:
        return out.copy_(x)
    made = x
    if device is not None and _C.device(device) != x.device:
        made = _C.op("to_device")(made, device)
    if dtype is not None and dtype is not x.dtype:
        made = _C.op("cast")(made, dtype)
    if made is x:
        made = x.clone()
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def _in_place(record: str) -> Callable[..., Any]:
    """An operator as one that writes its first argument."""

    def write(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return _C.op(record)(x, *args, **kwargs, out=x)

    return write


def _softmax(name: str) -> Callable[..., Any]:
    def call(
        x: Tensor, dim: int, half_to_float: bool = False, *, dtype: Any = None, out: Any = None
    ) -> Any:
        kwargs = {} if out is None else {"out": out}
        return _C.op(name)(x, dim, dtype=_C.float32 if half_to_float else dtype, **kwargs)

    return call


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    if not transposed:
        return _C.op("convolution")(x, weight, bias, stride, padding, dilation, groups)
    options = (stride, padding, dilation, transposed, output_padding, groups)
    return _framework().convolution(x, weight, bias, *options)


def _safe_softmax(x: Tensor, dim: int, dtype: Any = None) -> Any:
    """Softmax whose rows of -inf alone become zeros, with gradients of 0."""
    empty = (x == float("-inf")).all(dim, keepdim=True)
    filled = x.masked_fill(empty, 0.0)
    return _C.op("softmax")(filled, dim, dtype=dtype).masked_fill(empty, 0.0)


def _max_pool2d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Any:
    planes = self.clone().zero_().flatten(-2)  # requires grad where `self` does
    grad = planes.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2))
    return grad.view(self.shape)


# Operators of PyTorch that rabbet expresses in another way.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_to_copy": _to_copy,
    "convolution": _convolution,
    "_softmax": _softmax("softmax"),
    "_log_softmax": _softmax("log_softmax"),
    "_safe_softmax": _safe_softmax,
    "max_pool2d_with_indices_backward": _max_pool2d_backward,
    "_unsafe_view": lambda x, size: x.reshape(size),
    "_reshape_alias": lambda x, size, stride: x.as_strided(size, stride, x.storage_offset()),
    "alias": lambda x: x.view(x.shape),
    "lift_fresh": lambda x: x,
    "lift": lambda x: x,
    "_local_scalar_dense": lambda x: x.item(),
    "split_with_sizes": lambda x, split_sizes, dim=0: x.split(list(split_sizes), dim),
    "slice": lambda x, dim=0, start=None, end=None, step=1: _C.op("slice")(
        x, dim, start, end, step
    ),
    "empty_strided": lambda size, stride, **kw: _framework().empty_strided(size, stride, **kw),
}


def _framework() -> Any:
    import rabbet

    return rabbet


def _operator(name: str) -> Callable[..., Any] | None:
    """The operator or function of rabbet for an operator name of PyTorch."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    found = vars(_framework()).get(name) or getattr(Tensor, name, None)
    if found is None:
        try:
            found = _C.op(name)
        except KeyError:
            from ._as_torch import operators

            found = getattr(operators, name, None) if name in operators.__all__ else None
    return found if callable(found) else None


class _Operator:
    """The common base of overloads and packets."""

    namespace: str
    _opname: str

    @property
    def _qualified_op_name(self) -> str:
        return f"{self.namespace}::{self._opname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._target()(*args, **kwargs)

    def _target(self) -> Callable[..., Any]:
        raise NotImplementedError

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class OpOverload(_Operator):
    """An overload of a PyTorch operator. There is one object for each.

    `func is torch.ops.aten.add.Tensor` says which operator `__torch_dispatch__` was called for. A call runs rabbet's
    operator of that name.
    """

    record: str | None

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self._overloadpacket = packet
        self.namespace, self._opname, self._overloadname = (
            packet.namespace,
            packet._opname,
            overload,
        )
        self.__name__ = f"{packet._opname}.{overload}"
        self.__qualname__ = self.name()
        self.__module__ = f"torch._ops.{packet.namespace}"
        self.tags: list[Any] = []
        self.record = self._find_record()

    def _find_record(self) -> str | None:
        name = self._opname
        if self.namespace not in ("aten", "rabbet"):
            full = f"{self.namespace}::{name}"
            return full if full in _C.record_names() else None
        names = _records_by_name()
        stem = name[:-1] if self._ends_in_place() else name
        overload = self._overloadname
        known = names.get((stem, overload))
        if known is not None:
            return known
        records = _record_set()
        dotted = f"{stem}.{overload}"
        return dotted if dotted in records else stem if stem in records else None

    def _ends_in_place(self) -> bool:
        return self._opname.endswith("_") and not self._opname.endswith("__")

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        """The operator whose overload this is."""
        return self._overloadpacket

    @property
    def op(self) -> Any:
        """The function that a call runs."""
        return self._target()

    _op = op

    @functools.cached_property
    def _schema(self) -> FunctionSchema:
        return _schema_of(self)

    @property
    def writes_self(self) -> bool:
        """Whether a call writes its first argument."""
        return self._ends_in_place()

    @property
    def writes_out(self) -> bool:
        """Whether a call writes the tensors of its argument `out`."""
        return "out" in self._overloadname.split("_")

    @property
    def is_view(self) -> bool:
        """Whether the result shares memory with the first argument."""
        if self.record is None or self.writes_self or self.writes_out:
            return False
        return bool(_C.op_info(self.record)["view"])

    def name(self) -> str:
        """The name with its namespace, as `aten::add.Tensor`; without the overload's name where it is `default`."""
        name = self._qualified_op_name
        return name if self._overloadname == "default" else f"{name}.{self._overloadname}"

    @functools.cached_property
    def _called(self) -> Callable[..., Any]:
        found = _FUNCTIONS.get(self._opname) if self.namespace == "aten" else None
        if found is None and self.record is not None:
            found = self._of_record(self.record)
        if found is None:
            found = _operator(self._opname)
        if found is None:
            raise _C.NotImplementedForError(
                f"ops.{self.namespace}.{self.__name__} is not in rabbet yet"
            )
        return found

    def _of_record(self, record: str) -> Callable[..., Any]:
        if not self.writes_self:
            return _C.op(record)
        try:
            return _C.op(self._opname)
        except KeyError:
            return _in_place(record)

    def _target(self) -> Callable[..., Any]:
        return self._called

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        op = f"{self.namespace}.{self._opname}"
        return f"<OpOverload(op='{op}', overload='{self._overloadname}')>"

    def __reduce__(self) -> Any:
        return _find, (self.namespace, self._opname, self._overloadname)


def _find(namespace: str, packet: str, overload: str | None = None) -> Any:
    found = getattr(space(namespace), packet)
    return found if overload is None else getattr(found, overload)


@functools.cache
def _record_set() -> frozenset[str]:
    return frozenset(_C.record_names())


class OpOverloadPacket(_Operator):
    """An operator of PyTorch; its attributes are its overloads."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace, self._opname, self.__name__ = namespace, name, name
        self.__module__ = f"torch._ops.{namespace}"

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(
                f"ops.{self.namespace}.{self._opname} has no attribute '{overload}'"
            )
        found = OpOverload(self, overload)
        setattr(self, overload, found)
        return found

    def _target(self) -> Callable[..., Any]:
        found = _operator(self._opname) if self.namespace == "aten" else self.default._target()
        if found is None:
            raise _C.NotImplementedForError(
                f"ops.{self.namespace}.{self._opname} is not in rabbet yet"
            )
        return found

    @property
    def op(self) -> Any:
        """The function that a call runs."""
        return self._target()

    def overloads(self) -> list[str]:
        """The names of the overloads that were used so far or that records define."""
        used = [name for name, value in vars(self).items() if isinstance(value, OpOverload)]
        known = [overload for packet, overload in _records_by_name() if packet == self._opname]
        return list(dict.fromkeys(used + known))

    def __iter__(self) -> Iterator[str]:
        return iter(self.overloads())

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> Any:
        return _find, (self.namespace, self._opname)


class _Space:
    """The operators of a namespace by name; a missing operator raises when it is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__") and not (name.endswith("__") and name.strip("_") in _SHIFTS):
            raise AttributeError(f"ops.{self._name} has no attribute '{name}'")
        found = OpOverloadPacket(self._name, name)
        setattr(self, name, found)
        return found


_SHIFTS = ("lshift", "rshift", "and", "or", "xor")


@functools.cache
def space(namespace: str) -> Any:
    """The operators of one namespace, as `aten`."""
    return _Space(namespace)
