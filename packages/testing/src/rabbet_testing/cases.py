"""Inputs for every operator, drawn from its record: the types of its arguments say what fits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import rabbet
from rabbet import _C


@dataclass
class Case:
    """One call: `rabbet.ops(op)(*args, **kwargs)`."""

    op: str
    args: list[Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    label: str = ""

    def run(self, *args: Any) -> Any:
        """Call the operator, with other arguments if given."""
        return rabbet.ops(self.op)(*(args or self.args), **self.kwargs)

    def __str__(self) -> str:
        return f"{self.op}[{self.label}]" if self.label else self.op


def op_names() -> list[str]:
    """All records that a call can reach."""
    return [n for n in _C.record_names() if _C.op_info(n)["kind"] != "creation"]


_POSITIVE = {"log", "log2", "log10", "sqrt", "rsqrt", "pow", "reciprocal", "log1p"}
_INSIDE_ONE = {"asin", "acos"}
_PROBABILITY = {"binary_error"}


class Maker:
    """Draws tensors; equal seeds give equal tensors."""

    def __init__(self, seed: int, dtype: Any, requires_grad: bool) -> None:
        rabbet.manual_seed(seed)
        self.dtype, self.requires_grad = dtype, requires_grad

    def tensor(self, *shape: int, op: str = "", spread: bool = True) -> Any:
        """Values in about [-2, 2], away from the kinks at 0 and from each other; of integers 1 to 7 in size."""
        n = 1
        for s in shape:
            n *= s
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            return self._whole(n, op).reshape(shape).to(self.dtype)
        grid = rabbet.linspace(-1.9, 2.1, max(n, 1), dtype=rabbet.float64)[:n]
        x = grid[rabbet.randperm(n)] if spread and n else grid
        if op in _POSITIVE:
            x = x.abs() + 0.3
        if op in _INSIDE_ONE:
            x = x / 2.5
        if op in _PROBABILITY:
            x = x / 4.5 + 0.45
        x = (x.reshape(shape)).to(self.dtype)
        if self.dtype.is_complex:
            x = x + 0.3j * x.flip(list(range(x.ndim))) if x.ndim else x + 0.2j
        if self.requires_grad:
            x.requires_grad = True
        return x

    def _whole(self, n: int, op: str) -> Any:
        if self.dtype is rabbet.bool:
            return rabbet.randint(0, 2, (n,))
        x = rabbet.randperm(max(n, 1))[:n] % 7 + 1
        if not self.dtype.is_signed or op in _POSITIVE or op.endswith("shift"):
            return x
        return x * (1 - 2 * rabbet.randint(0, 2, (n,)))

    def index(self, size: int, *shape: int) -> Any:
        """int64 indices below `size`."""
        return rabbet.randint(0, size, shape)


def _case(name: str, args: list[Any], label: str = "", **kwargs: Any) -> Case:
    return Case(name, args, kwargs, label)


def _batch_norm_backward(m: Maker) -> list[Case]:
    """With the moments of the input, as the operator wants them."""
    x = m.tensor(3, 2, 2)
    mean, var = x.detach().mean([0, 2]), x.detach().var([0, 2], correction=0)
    given = [m.tensor(2), m.tensor(2, op="log")]
    return [
        _case("batch_norm_backward", [m.tensor(3, 2, 2), x, mean, var, m.tensor(2), 1e-5, True]),
        _case("batch_norm_backward", [m.tensor(3, 2, 2), x, *given, None, 1e-5, False], "eval"),
    ]


def _cross_entropy_backward(m: Maker) -> list[Case]:
    """With the sums that the forward operator keeps."""
    x, target = m.tensor(4, 3), rabbet.tensor([0, 2, 1, 2])
    weight = rabbet.tensor([0.5, 2.0, 1.0], dtype=m.dtype)
    options = ["mean", 1, 0.2]
    _, lse, total = rabbet.ops("cross_entropy_loss")(x.detach(), target, weight, *options)
    g = m.tensor()
    return [_case("cross_entropy_backward", [g, x, target, weight, lse, total, *options])]


def _qkv(m: Maker, heads: tuple[int, int] | None = None) -> list[Any]:
    """query (2, 4, 2), key (2, 5, 2), value (2, 5, 3), with a dimension of heads if given."""
    q, kv = ((heads[0],), (heads[1],)) if heads else ((), ())
    return [m.tensor(2, *q, 4, 2), m.tensor(2, *kv, 5, 2), m.tensor(2, *kv, 5, 3)]


def _attention_results(m: Maker, mask: Any, causal: bool, scale: Any, grouped: bool) -> list[Any]:
    """Arguments of `attention_backward`, whose gradients hold for any values."""
    q = (4,) if grouped else ()
    tensors = [m.tensor(2, *q, 4, 3), m.tensor(2, *q, 4), *_qkv(m, (4, 2) if grouped else None)]
    return [*tensors, mask, m.tensor(2, *q, 4, 3), m.tensor(2, *q, 4), causal, scale, grouped]


_RECURRENT = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


def _recurrent(m: Maker, mode: str, rows: int = 4) -> list[Any]:
    """mode, gates, h0 (2, 3), c0, weight_hh, bias_hh."""
    g = _RECURRENT[mode]
    c0 = m.tensor(2, 3) if mode == "lstm" else None
    return [mode, m.tensor(rows, g * 3), m.tensor(2, 3), c0, m.tensor(g * 3, 3), m.tensor(g * 3)]


def _recurrent_results(m: Maker, mode: str, rows: int = 4) -> list[Any]:
    """Arguments of `recurrent_layer_backward`, whose gradients hold for any values."""
    cells = rows if mode == "lstm" else 0
    saved = rows if mode in ("lstm", "gru") else 0
    kept = [m.tensor(cells, 3), m.tensor(saved, 12)]
    grads = [m.tensor(rows, 3), m.tensor(2, 3), m.tensor(2 if cells else 0, 3)]
    results = [m.tensor(rows, 3), m.tensor(cells, 3), m.tensor(saved, 12)]
    c0 = m.tensor(2, 3) if cells else None
    return [
        mode,
        *grads,
        *kept,
        *results,
        m.tensor(2, 3),
        c0,
        m.tensor(3 * _RECURRENT[mode], 3),
        True,
    ]


# Operators whose arguments the schema alone does not settle.
_SPECIAL: dict[str, Callable[[Maker], list[Case]]] = {
    "where": lambda m: [_case("where", [m.index(2, 3, 4) > 0, m.tensor(3, 4), m.tensor(4)])],
    "masked_fill": lambda m: [_case("masked_fill", [m.tensor(3, 4), m.index(2, 3, 4) > 0, 0.5])],
    "clamp": lambda m: [
        _case("clamp", [m.tensor(3, 4), -0.7, 0.9], "numbers"),
        _case("clamp", [m.tensor(3, 4)], "min", min=-0.7),
        _case("clamp", [m.tensor(3, 4)], "max", max=0.7),
    ],
    "pow": lambda m: [
        _case("pow", [m.tensor(3, 4, op="pow"), m.tensor(3, 4)], "tensors"),
        _case("pow", [m.tensor(3, 4, op="pow"), 3], "number"),
        _case("pow", [2.5, m.tensor(3)], "base"),
    ],
    "div": lambda m: [_case("div", [m.tensor(3, 4), m.tensor(4)]), _case("div", [m.tensor(3), 2.5], "number")],
    "remainder": lambda m: [_case("remainder", [m.tensor(3, 4), 0.77])],
    "fmod": lambda m: [_case("fmod", [m.tensor(3, 4), 0.77])],
    "fill": lambda m: [],
    "copy": lambda m: [],
    "zero": lambda m: [],
    "cast": lambda m: [_case("cast", [m.tensor(3, 4), rabbet.complex128 if m.dtype.is_complex else rabbet.float64])],
    "complex": lambda m: [_case("complex", [m.tensor(3), m.tensor(3)])] if not m.dtype.is_complex else [],
    "sgn_vjp": lambda m: [],
    "view": lambda m: [_case("view", [m.tensor(3, 4), [2, 6]])],
    "reshape": lambda m: [_case("reshape", [m.tensor(3, 4).t(), [2, -1]])],
    # The references compute in float64: the bytes of other dtypes are not theirs.
    "view.dtype": lambda m: [_case("view.dtype", [m.tensor(3, 4), rabbet.int64])]
    if m.dtype is rabbet.float64
    else [],
    "view.dtype_scatter": lambda m: [
        _case("view.dtype_scatter", [m.tensor(3, 4), m.tensor(3, 4).view(rabbet.int64), rabbet.int64])
    ]
    if m.dtype is rabbet.float64
    else [],
    "expand": lambda m: [_case("expand", [m.tensor(3, 1), [2, 3, 4]])],
    "permute": lambda m: [_case("permute", [m.tensor(2, 3, 4), [2, 0, 1]])],
    "movedim": lambda m: [_case("movedim", [m.tensor(2, 3, 4), [0], [2]])],
    "transpose": lambda m: [_case("transpose", [m.tensor(2, 3, 4), 0, -1])],
    "select": lambda m: [_case("select", [m.tensor(3, 4), 1, -2])],
    "select_scatter": lambda m: [_case("select_scatter", [m.tensor(3, 4), m.tensor(3), 1, 2])],
    "slice": lambda m: [_case("slice", [m.tensor(5, 3), 0, 1, 5, 2])],
    "slice_scatter": lambda m: [_case("slice_scatter", [m.tensor(5, 3), m.tensor(2, 3), 0, 1, 5, 2])],
    "narrow": lambda m: [_case("narrow", [m.tensor(3, 4), 1, 1, 2])],
    "squeeze": lambda m: [_case("squeeze", [m.tensor(3, 1, 2, 1)]), _case("squeeze", [m.tensor(3, 1), [1]], "dim")],
    "unflatten": lambda m: [_case("unflatten", [m.tensor(2, 6), 1, [2, -1]])],
    "diagonal": lambda m: [_case("diagonal", [m.tensor(3, 4), 1])],
    "diagonal_scatter": lambda m: [_case("diagonal_scatter", [m.tensor(3, 4), m.tensor(3), 1])],
    "as_strided": lambda m: [],
    "view_copy": lambda m: [_case("view_copy", [m.tensor(3, 4), [2, 6]])],
    "expand_copy": lambda m: [_case("expand_copy", [m.tensor(3, 1), [2, 3, 4]])],
    "permute_copy": lambda m: [_case("permute_copy", [m.tensor(2, 3, 4), [2, 0, 1]])],
    "transpose_copy": lambda m: [_case("transpose_copy", [m.tensor(2, 3, 4), 0, -1])],
    "select_copy": lambda m: [_case("select_copy", [m.tensor(3, 4), 1, -2])],
    "slice_copy": lambda m: [_case("slice_copy", [m.tensor(5, 3), 0, 1, 5, 2])],
    "squeeze_copy": lambda m: [_case("squeeze_copy", [m.tensor(3, 1), [1]])],
    "diagonal_copy": lambda m: [_case("diagonal_copy", [m.tensor(3, 4), 1])],
    "as_strided_copy": lambda m: [],
    "split": lambda m: [_case("split", [m.tensor(5, 2), 2])],
    "split.sizes": lambda m: [_case("split.sizes", [m.tensor(5, 2), [2, 3]])],
    "chunk": lambda m: [_case("chunk", [m.tensor(5, 2), 2])],
    "cat": lambda m: [_case("cat", [[m.tensor(2, 3), m.tensor(1, 3)]])],
    "stack": lambda m: [_case("stack", [[m.tensor(2, 3), m.tensor(2, 3)], 1])],
    "repeat": lambda m: [_case("repeat", [m.tensor(2, 3), [2, 1, 2]])],
    "pad_constant": lambda m: [_case("pad_constant", [m.tensor(2, 3), [1, 2, 0, 1], 0.5])],
    "sum_to": lambda m: [_case("sum_to", [m.tensor(4, 3, 2), [3, 1]])],
    "to_device": lambda m: [],
    "restore": lambda m: [_case("restore", [m.tensor(3), [3, 4], [1], False])],
    "gather": lambda m: [_case("gather", [m.tensor(4, 3), 0, m.index(4, 2, 3)])],
    "scatter_add": lambda m: [_case("scatter_add", [m.tensor(4, 3), 0, m.index(4, 5, 3), m.tensor(5, 3)])],
    "scatter": lambda m: [_case("scatter", [m.tensor(4, 3), 0, rabbet.tensor([[0, 1, 2], [2, 3, 0]]), m.tensor(2, 3)])],
    "scatter.value": lambda m: [_case("scatter.value", [m.tensor(4, 3), 0, m.index(4, 2, 3), 0.5])],
    "gather_as": lambda m: [_case("gather_as", [m.tensor(4, 3), 0, m.index(4, 2, 3), [3, 3]])],
    "pad_to": lambda m: [_case("pad_to", [m.tensor(2, 3), [4, 3]])],
    "index_select": lambda m: [_case("index_select", [m.tensor(4, 3), 0, m.index(4, 6)])],
    "pad_along": lambda m: [_case("pad_along", [m.tensor(4, 3), 0, m.index(4, 6)])],
    "index_add": lambda m: [_case("index_add", [m.tensor(4, 3), 0, m.index(4, 5), m.tensor(5, 3)])],
    "index": lambda m: [_case("index", [m.tensor(4, 3, 2), [m.index(4, 5), None, m.index(2, 5)]])],
    "index_put": lambda m: [
        _case("index_put", [m.tensor(4, 3), [rabbet.tensor([0, 2])], m.tensor(2, 3)]),
        _case("index_put", [m.tensor(4, 3), [m.index(4, 5)], m.tensor(5, 3), True], "accumulate"),
    ],
    "masked_select": lambda m: [_case("masked_select", [m.tensor(3, 4), m.index(2, 3, 4) > 0])],
    "mask_indices": lambda m: [],
    "nonzero": lambda m: [_case("nonzero", [m.tensor(3, 4)])],
    "expand_as": lambda m: [_case("expand_as", [m.tensor(3, 1), rabbet.zeros(2, 3, 4)])],
    "searchsorted": lambda m: [_case("searchsorted", [rabbet.linspace(-2, 2, 9, dtype=m.dtype), m.tensor(3, 4)])]
    if m.dtype.is_signed and not m.dtype.is_complex
    else [],
    "embedding": lambda m: [
        _case("embedding", [m.tensor(5, 3), m.index(5, 2, 4)]),
    ],
    "embedding_backward": lambda m: [
        _case("embedding_backward", [m.tensor(2, 4, 3), m.index(5, 2, 4), [5, 3], 1]),
    ],
    "matmul": lambda m: [
        _case("matmul", [m.tensor(3, 4), m.tensor(4, 2)], "2x2"),
        _case("matmul", [m.tensor(4), m.tensor(4)], "1x1"),
        _case("matmul", [m.tensor(3, 4), m.tensor(4)], "2x1"),
        _case("matmul", [m.tensor(4), m.tensor(2, 4, 3)], "1x3"),
        _case("matmul", [m.tensor(2, 1, 3, 4), m.tensor(5, 4, 2)], "batched"),
    ],
    "mm": lambda m: [_case("mm", [m.tensor(3, 4), m.tensor(4, 2)])],
    "bmm": lambda m: [_case("bmm", [m.tensor(2, 3, 4), m.tensor(2, 4, 2)])],
    "mv": lambda m: [_case("mv", [m.tensor(3, 4), m.tensor(4)])],
    "dot": lambda m: [_case("dot", [m.tensor(4), m.tensor(4)])],
    "outer": lambda m: [_case("outer", [m.tensor(3), m.tensor(4)])],
    "addmm": lambda m: [
        _case("addmm", [m.tensor(2), m.tensor(3, 4), m.tensor(4, 2)]),
        _case("addmm", [m.tensor(3, 1), m.tensor(3, 4), m.tensor(4, 2)], "scaled", beta=2, alpha=3),
        _case("addmm", [m.tensor(3, 2), m.tensor(3, 4), m.tensor(4, 2)], "not added", beta=0, alpha=-1),
    ],
    "baddbmm": lambda m: [
        _case("baddbmm", [m.tensor(2, 3, 2), m.tensor(2, 3, 4), m.tensor(2, 4, 2)], beta=-2),
        _case("baddbmm", [m.tensor(3, 2), m.tensor(2, 3, 4), m.tensor(2, 4, 2)], "broadcast", alpha=2),
    ],
    "softmax_vjp": lambda m: [_case("softmax_vjp", [m.tensor(3, 4), m.tensor(3, 4), -1])],
    "log_softmax_vjp": lambda m: [_case("log_softmax_vjp", [m.tensor(3, 4), m.tensor(3, 4), -1])],
    "linear": lambda m: [
        _case("linear", [m.tensor(2, 3, 4), m.tensor(5, 4), m.tensor(5)]),
        _case("linear", [m.tensor(3, 4), m.tensor(5, 4)], "no bias"),
    ],
    "linear_activation": lambda m: [
        _case("linear_activation", [m.tensor(3, 4), m.tensor(5, 4), m.tensor(5)], name, activation=name)
        for name in ("gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
    ],
    "convolution": lambda m: [
        _case("convolution", [m.tensor(2, 2, 5, 4), m.tensor(3, 2, 3, 2), m.tensor(3), [2, 1], [1, 0]]),
        _case("convolution", [m.tensor(1, 4, 6, 6), m.tensor(4, 2, 2, 2), None, [1], [1], [2], 2], "groups dilation"),
        _case("convolution", [m.tensor(2, 2, 7), m.tensor(3, 2, 3), m.tensor(3), [2], [1]], "line"),
        _case("convolution", [m.tensor(1, 2, 3, 4, 3), m.tensor(2, 2, 2, 3, 2), m.tensor(2), [1, 2, 1], [1, 1, 0]],
              "volume"),
    ],
    "convolution_dx": lambda m: [
        _case("convolution_dx", [m.tensor(1, 3, 3, 3), m.tensor(3, 2, 3, 3), [1, 2, 5, 5], [1, 1], [0, 0], [1, 1], 1])
    ],
    "convolution_dw": lambda m: [
        _case("convolution_dw", [m.tensor(1, 2, 5, 5), m.tensor(1, 3, 3, 3), [3, 2, 3, 3], [1, 1], [0, 0], [1, 1], 1])
    ],
    "layer_norm": lambda m: [
        _case("layer_norm", [m.tensor(3, 5), [5], m.tensor(5), m.tensor(5)]),
        _case("layer_norm", [m.tensor(2, 3, 2), [3, 2], None, m.tensor(3, 2)], "bias"),
    ],
    "layer_norm_backward": lambda m: [
        _case("layer_norm_backward", [m.tensor(3, 5), m.tensor(3, 5), [5], m.tensor(5), 1e-5]),
    ],
    "rms_norm": lambda m: [
        _case("rms_norm", [m.tensor(3, 5), [5], m.tensor(5)]),
        _case("rms_norm", [m.tensor(2, 3, 2), [3, 2]], "no weight"),
    ],
    "rms_norm_backward": lambda m: [
        _case("rms_norm_backward", [m.tensor(3, 5), m.tensor(3, 5), [5], m.tensor(5), 1e-5]),
    ],
    "group_norm": lambda m: [
        _case("group_norm", [m.tensor(2, 4, 3), 2, m.tensor(4), m.tensor(4)]),
        _case("group_norm", [m.tensor(2, 6), 2], "plain"),
    ],
    "group_norm_backward": lambda m: [
        _case("group_norm_backward", [m.tensor(2, 4, 3), m.tensor(2, 4, 3), 2, m.tensor(4), 1e-5]),
    ],
    "batch_norm_train": lambda m: [
        _case("batch_norm_train", [m.tensor(3, 2, 2, 2), m.tensor(2), m.tensor(2)]),
        _case("batch_norm_train", [m.tensor(5, 2)], "plain"),
    ],
    "batch_norm_eval": lambda m: [
        _case("batch_norm_eval", [m.tensor(3, 2, 2), m.tensor(2), m.tensor(2, op="log"), m.tensor(2), m.tensor(2)]),
    ],
    "batch_norm_backward": lambda m: _batch_norm_backward(m),
    "mean_vjp": lambda m: [_case("mean_vjp", [m.tensor(2), m.tensor(3, 2, 2)])],
    "var_vjp": lambda m: [_case("var_vjp", [m.tensor(2), m.tensor(3, 2, 2), m.tensor(2)])],
    "per_channel": lambda m: [_case("per_channel", [m.tensor(3), 4])],
    "cross_entropy_loss": lambda m: [
        _case("cross_entropy_loss", [m.tensor(4, 3), rabbet.tensor([0, 2, 1, 2])]),
        _case("cross_entropy_loss", [m.tensor(3), rabbet.tensor(1)], "one item"),
        _case("cross_entropy_loss", [m.tensor(2, 3, 2), m.index(3, 2, 2), None, "none", -100, 0.3], "places"),
        _case("cross_entropy_loss", [m.tensor(4, 3), rabbet.tensor([0, 2, 1, 2]), rabbet.tensor([0.5, 2.0, 1.0]),
                                     "mean", 1, 0.2], "weighted"),
    ],
    "cross_entropy_backward": lambda m: _cross_entropy_backward(m),
    "cross_entropy_steps": lambda m: [
        _case("cross_entropy_steps", [m.tensor(4, 3), rabbet.tensor([0, 2, 1, 2]), m.tensor(3, op="log"), "mean", 1,
                                      0.2])
    ],
    "cross_entropy_counts": lambda m: [
        _case("cross_entropy_counts", [rabbet.tensor([0, 2, 1, 2]), m.tensor(3), 1, m.dtype])
    ],
    "class_weights": lambda m: [_case("class_weights", [m.tensor(3), rabbet.zeros(2, 3, 2, dtype=m.dtype)])],
    "logsumexp_vjp": lambda m: [_case("logsumexp_vjp", [m.tensor(2, 2), m.tensor(2, 3, 2)])],
    "nll_loss": lambda m: [
        _case("nll_loss", [m.tensor(4, 3), rabbet.tensor([0, 2, 1, 2]), rabbet.tensor([0.5, 2.0, 1.0]), "mean", 1]),
        _case("nll_loss", [m.tensor(2, 3, 2), m.index(3, 2, 2), None, "none"], "places"),
    ],
    "nll_loss_backward": lambda m: [
        _case("nll_loss_backward", [m.tensor(4), rabbet.tensor([0, 2, 1, 2]), None, rabbet.tensor(4.0), [4, 3],
                                    "none", -100]),
    ],
    "nll_loss_steps": lambda m: [
        _case("nll_loss_steps", [m.tensor(4, 3), rabbet.tensor([0, 2, 1, 2]), m.tensor(3, op="log"), "mean", 1])
    ],
    "dropout": lambda m: [],
    "random": lambda m: [_case("random", [m.tensor(3, 4), 1, 90])],
    "randperm": lambda m: [],
    "bernoulli.tensor": lambda m: [_case("bernoulli.tensor", [m.tensor(3, 4), m.tensor(3, 4).abs() / 8])],
    "max_pool_with_indices": lambda m: [
        _case("max_pool_with_indices", [m.tensor(2, 2, 6, 5), [2, 3], [2, 1], [1, 0]]),
        _case("max_pool_with_indices", [m.tensor(2, 3, 4, 4), [2, 2, 2], [], [1]], "volume"),
    ],
    "max_pool_dx": lambda m: [
        _case("max_pool_dx", [m.tensor(1, 2, 2, 2), m.index(20, 1, 2, 2, 2), [1, 2, 4, 5], 2])
    ],
    "adaptive_max_pool_with_indices": lambda m: [
        _case("adaptive_max_pool_with_indices", [m.tensor(1, 2, 5, 7), [2, 3]])
    ],
    "avg_pool": lambda m: [
        _case("avg_pool", [m.tensor(2, 2, 6, 5), [2, 3], [2, 1], [1, 0]]),
        _case("avg_pool", [m.tensor(2, 3, 4, 4), [2, 2, 2], [], [1]], "volume"),
    ],
    "avg_pool_dx": lambda m: [
        _case("avg_pool_dx", [m.tensor(1, 2, 3, 3), [1, 2, 6, 6], [2, 2], [2, 2], [0, 0], False, True, None])
    ],
    "adaptive_avg_pool": lambda m: [_case("adaptive_avg_pool", [m.tensor(1, 2, 5, 7), [2, 3]])],
    "adaptive_avg_pool_dx": lambda m: [
        _case("adaptive_avg_pool_dx", [m.tensor(1, 2, 2, 3), [1, 2, 5, 7], 2])
    ],
    "scaled_dot_product_attention": lambda m: [
        _case("scaled_dot_product_attention", _qkv(m)),
        _case("scaled_dot_product_attention", _qkv(m), "causal", is_causal=True),
        _case("scaled_dot_product_attention", _qkv(m, heads=(4, 2)), "grouped", enable_gqa=True),
    ],
    "attention": lambda m: [
        _case("attention", _qkv(m)),
        _case("attention", [*_qkv(m), m.tensor(4, 5), True, 0.4], "mask causal"),
        _case("attention", [*_qkv(m), m.index(2, 2, 4, 5) + rabbet.eye(4, 5) > 0], "bool mask"),
        _case("attention", [*_qkv(m, heads=(4, 2)), m.tensor(5), False, None, True], "grouped"),
        _case("attention", [m.tensor(3, 2), m.tensor(2, 5, 2), m.tensor(4, 1, 5, 3)], "broadcast"),
    ],
    "attention_backward": lambda m: [
        _case("attention_backward", _attention_results(m, None, False, None, False)),
        _case("attention_backward", _attention_results(m, m.tensor(4, 5), True, 0.4, False), "mask causal"),
        _case("attention_backward", _attention_results(m, None, False, None, True), "grouped"),
    ],
    "attention_scores": lambda m: [_case("attention_scores", [*_qkv(m)[:2], m.tensor(4, 5)])],
    "attention_weights": lambda m: [_case("attention_weights", [m.tensor(2, 4, 5)])],
    "attention_score_grads": lambda m: [
        _case("attention_score_grads", _attention_results(m, None, False, None, False))
    ],
    "recurrent_layer": lambda m: [
        *(_case("recurrent_layer", _recurrent(m, mode), mode) for mode in _RECURRENT),
        *(_case("recurrent_layer", [*_recurrent(m, mode, 5), [2, 2, 1], True], f"{mode} packed")
          for mode in _RECURRENT),
    ],
    "recurrent_layer_backward": lambda m: [
        *(_case("recurrent_layer_backward", [*_recurrent_results(m, mode), [], False], mode) for mode in _RECURRENT),
        *(_case("recurrent_layer_backward", [*_recurrent_results(m, mode, 5), [2, 2, 1], True], f"{mode} packed")
          for mode in _RECURRENT),
    ],
    "recurrent_step": lambda m: [
        _case("recurrent_step", [mode, m.tensor(2, g * 3), *_recurrent(m, mode)[2:]], mode)
        for mode, g in _RECURRENT.items()
    ],
    "recurrent_step_grads": lambda m: [
        _case("recurrent_step_grads", [mode, m.tensor(2, 3), m.tensor(2, 3), m.tensor(2, 12), m.tensor(2, 3),
              m.tensor(2, 3), m.tensor(2, 3), m.tensor(2, 3), m.tensor(2, 12), m.tensor(g * 3, 3)], mode)
        for mode, g in _RECURRENT.items()
    ],
    "fused_adam": lambda m: [],
    "fused_sgd": lambda m: [],
    "fused_rmsprop": lambda m: [],
    "fused_adagrad": lambda m: [],
    "fused_adamax": lambda m: [],
    "fused_nadam": lambda m: [],
    "fused_radam": lambda m: [],
    "foreach_norm": lambda m: [_case("foreach_norm", [[m.tensor(2, 3), m.tensor(4)], 2.0])],
    "foreach_scale": lambda m: [],
    "foreach_clamp": lambda m: [],
    "var": lambda m: [_case("var", [m.tensor(3, 4)]), _case("var", [m.tensor(3, 4), [1]], "dim", correction=0)],
    "std": lambda m: [_case("std", [m.tensor(3, 4), [1]])],
    "logsumexp": lambda m: [_case("logsumexp", [m.tensor(3, 4), [1]])],
    "topk": lambda m: [_case("topk", [m.tensor(3, 4), 2])],
    "roll": lambda m: [_case("roll", [m.tensor(3, 4), [1, -2], [0, 1]])],
    "affine_scan": lambda m: [_case("affine_scan", [m.tensor(3, 4), m.tensor(3, 4), 1])],
    "softplus": lambda m: [_case("softplus", [m.tensor(3, 4)])],
    "threshold": lambda m: [_case("threshold", [m.tensor(3, 4), 0.1, -0.7])],
    "prod.dim": lambda m: [_case("prod.dim", [m.tensor(3, 4), 1])],
}  # fmt: skip


# What operators of others may take; one that does not says so.
_NUMBERS_OF_OTHERS = {"Scalar": 0.75, "float": 0.75, "int": 1, "bool": True}


def _argument(param: dict[str, Any], m: Maker, op: str, first: bool) -> Any:
    kind = param["type"]
    if kind == "Tensor":
        shift = op if op.endswith("shift") else ""
        return m.tensor(3, 4, op=op) if first else m.tensor(4, op=shift)
    if kind in ("dim", "newdim"):
        return -1
    if kind == "dim[]":
        return [0]
    if "::" in op and kind in _NUMBERS_OF_OTHERS:
        return _NUMBERS_OF_OTHERS[kind]
    raise LookupError(f"{op}: give a case for it: argument '{param['name']}' has type {kind}")


def _by_schema(name: str, m: Maker) -> list[Case]:
    info = _C.op_info(name)
    args, first = [], True
    for p in info["params"]:
        if p["keyword_only"] or (p["has_default"] and p["type"] != "Tensor"):
            break
        args.append(_argument(p, m, info["base"], first))
        first = False
    made = [_case(name, args)]
    names = {p["name"]: p for p in info["params"]}
    if info["kind"] == "reduction" and names.get("dim", {}).get("has_default"):
        dim: Any = 1 if names["dim"]["type"] == "dim" else [1]
        made.append(
            _case(name, [m.tensor(3, 4, op=info["base"])], "dim keepdim", dim=dim, keepdim=True)
            if "keepdim" in names
            else _case(name, [m.tensor(3, 4)], "dim", dim=dim)
        )
    if info["kind"] == "elementwise" and len(args) == 2:
        made.append(_case(name, [m.tensor(2, 3, op=info["base"]), 1.25], "number"))
    return made


def cases(
    name: str, dtype: Any = None, seed: int = 0, requires_grad: bool = False
) -> Iterator[Case]:
    """Calls of operator `name` with tensors of `dtype` (float64 by default), on the CPU.

    Raises:
        LookupError: if the schema of an operator of core does not say what fits, and no case is written down.
    """
    m = Maker(seed, dtype or rabbet.float64, requires_grad)
    try:
        yield from (_SPECIAL[name](m) if name in _SPECIAL else _by_schema(name, m))
    except LookupError:
        if "::" not in name:  # what others have registered may need more than its schema says
            raise


# What the numbers of an operator that writes its arguments are called, and what they may be.
_NUMBERS = {"lr": 0.1, "eps": 1e-3, "weight_decay": 0.05, "dampening": 0.25, "low": -0.75, "high": 0.5,
            "beta1": 0.75, "beta2": 0.9375, "alpha": 0.875}  # fmt: skip


def writing_cases(name: str, dtype: Any) -> Iterator[Case]:
    """Calls of an operator that writes lists of tensors, by its schema: with its options off and on."""
    params = _C.op_info(name)["params"]
    if not any(p["mutated"] and p["type"] == "Tensor[]" for p in params):
        return
    for on in (False, True):
        m = Maker(int(on), dtype, False)
        args: list[Any] = []
        for p in params:
            if p["type"] == "Tensor[]":
                # Second moments and the like are positive; those of an option that is off are not there.
                positive = (
                    "log" if p["name"].endswith(("sqs", "square_avgs", "sums", "infs")) else ""
                )
                left_out = not on and p["name"] in ("max_exp_avg_sqs", "grad_avgs")
                args.append(
                    [] if left_out else [m.tensor(3, 4, op=positive), m.tensor(5, op=positive)]
                )
            else:
                args.append(on if p["type"] == "bool" else _NUMBERS.get(p["name"], 0.5))
        yield Case(name, args, label="options" if on else "")


def differentiable_ops() -> list[str]:
    """Records that have a derivative of their own or by decomposition, and floating results."""
    names = []
    for name in op_names():
        info = _C.op_info(name)
        if (
            info["detached"]
            or info["kind"] == "random"
            or not (info["has_vjp"] or info["has_decomp"])
        ):
            continue
        names.append(name)
    return names


def differentiable_part(case: Case) -> tuple[Callable[..., tuple[Any, ...]], list[Any]]:
    """A function of the tensors in a case that require grad, and those tensors.

    It gives the case's floating and complex results as a tuple.
    """
    inputs, places = [], []
    for i, a in enumerate(case.args):
        for k, t in enumerate(a if isinstance(a, list) else [a]):
            if isinstance(t, rabbet.Tensor) and t.requires_grad:
                inputs.append(t)
                places.append((i, k if isinstance(a, list) else None))

    def call(*tensors: Any) -> tuple[Any, ...]:
        given = [list(a) if isinstance(a, list) else a for a in case.args]
        for t, (i, k) in zip(tensors, places, strict=True):
            if k is None:
                given[i] = t
            else:
                given[i][k] = t
        result = case.run(*given)
        results = [result] if isinstance(result, rabbet.Tensor) else list(result)
        return tuple(r for r in results if r.is_floating_point() or r.is_complex())

    return call, inputs
