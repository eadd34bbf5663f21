"""Counts of floating-point operations: of products of matrices, convolutions and attention, by module.

    counter = FlopCounterMode(display=False)
    with counter:
        model(x).sum().backward()
    counter.get_total_flops()

Counts follow from the shapes of each operator call, those of backward among them. A multiplication and an addition
are two operations.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Self

import rabbet
from rabbet import _C, Tensor
from rabbet.autograd import _C as tape
from rabbet.autograd import enable_grad
from rabbet.autograd.graph import call_mode

from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

aten = rabbet.ops.aten
Shape = Sequence[int]

# ---- formulas of PyTorch's operators, of shapes

flop_registry: dict[Any, Callable[..., int]] = {}


def _with_shapes(formula: Callable[..., int]) -> Callable[..., int]:
    """The formula, called with a call's arguments and its result as `out_val`."""

    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        given = {name: _shapes(value) for name, value in kwargs.items()}
        return formula(*map(_shapes, args), out_shape=_shapes(out_val), **given)

    return counted


def _shapes(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, (list, tuple)) and any(isinstance(x, Tensor) for x in value):
        return (
            type(value)(map(_shapes, value))
            if type(value) in (list, tuple)
            else tuple(map(_shapes, value))
        )
    return value


def register_flop_formula(
    targets: Any, get_raw: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorator: register how many operations a call of `targets` takes.

    Args:
        targets: operators, such as `rabbet.ops.aten.mm`, `rabbet.add` or `rabbet.ops.mine.scale`; one or a list.
        get_raw: whether the formula gets the tensors and the result as `out_val`; else it gets shapes, and that of the
            result as `out_shape`.

    Raises:
        RuntimeError: if an operator has a formula.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counted = formula if get_raw else _with_shapes(formula)
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counted
        return formula

    return register


@register_flop_formula(aten.mm)
def mm_flop(
    a_shape: Shape, b_shape: Shape, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    """Operations of (m, k) @ (k, n).

    Raises:
        AssertionError: if the sizes differ.
    """
    m, k = a_shape
    k2, n = b_shape
    assert k == k2, f"mm_flop: {tuple(a_shape)} and {tuple(b_shape)} do not fit"
    return 2 * m * n * k


@register_flop_formula(aten.addmm)
def addmm_flop(
    self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kwargs: Any
) -> int:
    """Operations of a matrix plus (m, k) @ (k, n); those of the sum do not count."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kwargs: Any) -> int:
    """Operations of (b, m, k) @ (b, k, n)."""
    assert a_shape[0] == b_shape[0], f"bmm_flop: {tuple(a_shape)} and {tuple(b_shape)} do not fit"
    return int(a_shape[0]) * mm_flop(a_shape[1:], b_shape[1:])


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(
    self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kwargs: Any
) -> int:
    """Operations of matrices plus (b, m, k) @ (b, k, n); those of the sum do not count."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(
    x_shape: Shape, w_shape: Shape, out_shape: Shape, transposed: bool = False
) -> int:
    """Operations of a convolution of (N, C, *) with (C_out, C_in, *) to (N, C_out, *)."""
    places = (x_shape if transposed else out_shape)[2:]
    return 2 * int(x_shape[0]) * math.prod(places) * math.prod(w_shape)


@register_flop_formula(aten.convolution)
def conv_flop(
    x_shape: Shape, w_shape: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
    *args: Any, out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    """Operations of a convolution, as PyTorch's operator takes its arguments."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


def sdpa_flop_count(query_shape: Shape, key_shape: Shape, value_shape: Shape) -> int:
    """Operations of attention: the scores and the weighted sums of (B, H, S, D)."""
    b, h, queries, width = query_shape
    keys, value_width = key_shape[2], value_shape[3]
    return 2 * b * h * queries * keys * (width + value_width)


def sdpa_backward_flop_count(
    grad_out_shape: Shape, query_shape: Shape, key_shape: Shape, value_shape: Shape
) -> int:
    """Operations of attention's derivative: the scores again, and the gradients of weights, value, query and key."""
    b, h, queries, width = query_shape
    keys, value_width = key_shape[2], value_shape[3]
    return 2 * b * h * queries * keys * (3 * width + 2 * value_width)


@register_flop_formula(aten._scaled_dot_product_flash_attention)
def sdpa_flop(
    query_shape: Shape, key_shape: Shape, value_shape: Shape, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:  # fmt: skip
    """Operations of attention."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


@register_flop_formula(aten._scaled_dot_product_flash_attention_backward)
def sdpa_backward_flop(
    grad_out_shape: Shape, query_shape: Shape, key_shape: Shape, value_shape: Shape,
    *args: Any, out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    """Operations of attention's derivative."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)


# ---- rabbet's operators, as those of PyTorch that count

_Count = tuple[Any, int] | None  # PyTorch's operator, and how many operations


def _count_matmul(a: Tensor, b: Tensor) -> _Count:
    x, y = a.shape, b.shape
    if len(x) == 2 and len(y) == 2:
        return aten.mm, mm_flop(x, y)
    if len(y) == 1 or (len(x) == 1 and len(y) == 2):
        return None  # a product with a vector
    if len(y) == 2:
        return aten.mm, mm_flop((math.prod(x[:-1]), x[-1]), y)
    rows = 1 if len(x) == 1 else x[-2]
    leading = rabbet.broadcast_shapes(x[:-2], y[:-2])
    return aten.bmm, math.prod(leading) * mm_flop((rows, x[-1]), y[-2:])


def _count_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *_: Any) -> _Count:
    rows = math.prod(x.shape[:-1])
    key = aten.mm if bias is None else aten.addmm
    return key, 2 * rows * math.prod(weight.shape)


def _count_convolution(places: Tensor, x: Tensor, weight: Tensor) -> _Count:
    key = aten.convolution_backward if _in_backward() else aten.convolution
    return key, 2 * x.shape[0] * math.prod(places.shape[2:]) * math.prod(weight.shape)


def _count_weight_gradient(x: Tensor, g: Tensor, shape: Shape, *_: Any) -> _Count:
    # PyTorch counts the channels of all groups with each other.
    window = math.prod(shape[2:])
    return (
        aten.convolution_backward,
        2 * x.shape[0] * math.prod(g.shape[2:]) * window * x.shape[1] * g.shape[1],
    )


def _count_attention(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> _Count:
    count = sdpa_flop_count(*map(_four_sizes, (query, key, value)))
    return aten._scaled_dot_product_flash_attention, count


def _count_attention_backward(
    g: Tensor, g_logsumexp: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> _Count:
    count = sdpa_backward_flop_count(*map(_four_sizes, (g, query, key, value)))
    return aten._scaled_dot_product_flash_attention_backward, count


def _four_sizes(x: Tensor) -> list[int]:
    return [math.prod(x.shape[:-3]), *([1] * (x.ndim < 3)), *x.shape[-3:]][-4:]


def _count_recurrent(
    mode: str, gates: Tensor, h0: Any, c0: Any, weight_hh: Tensor, *_: Any
) -> _Count:
    return aten.mm, 2 * gates.shape[0] * math.prod(weight_hh.shape)


_COUNTS: dict[str, Callable[..., _Count]] = {
    "matmul": lambda a, b, out: _count_matmul(a, b),
    "mm": lambda a, b, out: (aten.mm, mm_flop(a.shape, b.shape)),
    "bmm": lambda a, b, out: (aten.bmm, bmm_flop(a.shape, b.shape)),
    "addmm": lambda x, a, b, *_: (aten.addmm, mm_flop(a.shape, b.shape)),
    "baddbmm": lambda x, a, b, *_: (aten.baddbmm, bmm_flop(a.shape, b.shape)),
    "_scaled_mm": lambda a, b, *_: (aten._scaled_mm, mm_flop(a.shape, b.shape)),
    "_scaled_mm_v2": lambda a, b, *_: (aten._scaled_mm, mm_flop(a.shape, b.shape)),
    "linear": _count_linear,
    "linear_activation": _count_linear,
    "convolution": lambda x, w, *rest: _count_convolution(rest[-1], x, w),
    "convolution_dx": lambda g, w, *rest: _count_convolution(g, g, w),
    "convolution_dw": _count_weight_gradient,
    "attention": _count_attention,
    "attention_backward": _count_attention_backward,
    "recurrent_layer": _count_recurrent,
}  # fmt: skip


def count_operations(op: str, args: Sequence[Any], results: Sequence[Any]) -> int:
    """Operations of a call of the record `op`; 0 for one that is not a product, a convolution or attention.

    Args:
        args, results: those of the call; of tensors only `shape` and `ndim` are read.
    """
    found = _COUNTS[op](*args, *results) if op in _COUNTS else None
    return 0 if found is None else found[1]


def _in_backward() -> bool:
    """Whether backward makes the call."""
    return tape.current_run() > 0


# ---- the counter


class FlopCounterMode:
    """Context manager: counts the floating-point operations inside, also of backward, in all and by module.

    Args:
        mods: has no effect: modules are found when they are called.
        depth: of the modules in the table; None: all.
        display: whether leaving prints the table.
        custom_mapping: formulas for further operators, as `register_flop_formula` takes them with shapes; those with the
            attribute `_get_raw` get tensors.

    Example:
        >>> with FlopCounterMode(display=False) as counter:
        ...     _ = rabbet.ones(2, 3) @ rabbet.ones(3, 4)
        >>> counter.get_total_flops()
        48
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: dict[Any, Callable[..., int]] | None = None,
    ) -> None:
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        custom = {
            key: formula if getattr(formula, "_get_raw", False) else _with_shapes(formula)
            for key, formula in (custom_mapping or {}).items()
        }
        self.flop_registry = {**flop_registry, **custom}
        self._tracker = ModuleTracker()
        self._mode: call_mode | None = None

    def get_total_flops(self) -> int:
        """All operations that were counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """For each module, by its path ("Net.layer"), and for "Global" the operations of each operator."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text: a line for each module down to `depth`, and for each of its operators."""
        depth = self.depth if depth is None else depth
        depth = 999999 if depth is None else depth
        total = self.get_total_flops()
        suffix = get_suffix_str(total)
        rows: list[tuple[str, str, str]] = []
        for name in sorted(self.flop_counts, key=lambda n: (n != "Global", n)):
            level = name.count(".") + (name != "Global")
            if level > depth:
                continue
            counts = self.flop_counts[name]
            for label, count in [
                (name, sum(counts.values())),
                *((f" - {k}", v) for k, v in counts.items()),
            ]:
                flops = convert_num_with_suffix(count, suffix)
                rows.append((" " * level + label, flops, convert_to_percent_str(count, total)))
        return _table(("Module", "FLOP", "% Total"), rows)

    def __enter__(self) -> Self:
        self.flop_counts.clear()
        self.flop_counts["Global"] = defaultdict(int)
        self._tracker.__enter__()
        self._mode = call_mode(self._note)
        self._mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._mode is not None
        self._mode.__exit__(*exc)
        self._tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    def _note(self, op: str, args: tuple[Any, ...], targets: Any, run: Any) -> Any:
        results = run()
        self._count(op, args, results)
        return results if targets is None else None

    def _count(self, op: str, args: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        found = self._registered(op, args, results)
        if found is None and op in _COUNTS:
            found = _COUNTS[op](*args, *results)
        elif found is None and _is_made_of_others(op):
            for inner, inner_args, inner_results in _parts(op, args):
                self._count(inner, inner_args, inner_results)
        if found is not None:
            for name in self._tracker.parents:
                self.flop_counts[name][found[0]] += found[1]

    def _registered(self, op: str, args: tuple[Any, ...], results: tuple[Any, ...]) -> _Count:
        """Count by the formula that was registered for the operator."""
        name = op.partition(".")[0]
        for key, formula in self.flop_registry.items():
            if getattr(key, "__name__", None) == name and name not in _COUNTS:
                out = results[0] if len(results) == 1 else results
                return key, formula(*args, out_val=out)
            if isinstance(key, _C.Op) and op in key.overloads:
                return key, formula(*args, out_val=results[0] if len(results) == 1 else results)
        return None


def _is_made_of_others(op: str) -> bool:
    """Whether counts are those of the operators that it is made of, such as `einsum`."""
    info = _C.op_info(op)
    return (
        info["kind"] == "composite"
        and info["has_decomp"]
        and not info["has_vjp"]
        and not info["view"]
    )


def _parts(op: str, args: tuple[Any, ...]) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    """The calls that an operator is made of: those that are recorded for shapes in its tensors' places."""

    def shape_of(value: Any) -> Any:
        if isinstance(value, Tensor):
            made = rabbet.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device="meta"
            )
            return made.requires_grad_() if value.dtype.is_floating_point else made
        return [shape_of(v) for v in value] if isinstance(value, (list, tuple)) else value

    calls: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = []

    def note(inner: str, inner_args: tuple[Any, ...], targets: Any, run: Any) -> Any:
        results = run()
        if inner != op:
            calls.append((inner, inner_args, results))
        return results if targets is None else None

    info = _C.op_info(op)
    positional = sum(not p["keyword_only"] for p in info["params"])
    names = [p["name"] for p in info["params"]]
    given = [shape_of(a) for a in args]
    try:
        with enable_grad(), call_mode(note):
            _C.op(op)(
                *given[:positional],
                **dict(zip(names[positional:], given[positional:], strict=True)),
            )
    except (NotImplementedError, _C.RabbetError):
        return []  # what it does depends on values; no product does
    return calls


# ---- text

_SUFFIXES = ["", "K", "M", "B", "T"]


def get_suffix_str(number: int) -> str:
    """The suffix with which a number has at most three digits in front of the point: "K" of 12345."""
    return _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: int, suffix: str) -> str:
    """A number in units of a suffix: "12.345K"."""
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: int, denom: int) -> str:
    """The share of two numbers: "33.33%"."""
    return f"{num / denom:.2%}" if denom else "0%"


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row: tuple[str, ...]) -> str:
        cells = [row[0].ljust(widths[0])] + [
            c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *map(line, rows)])
