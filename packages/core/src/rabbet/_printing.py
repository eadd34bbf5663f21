"""Printing of tensors in PyTorch's format."""

import math
from typing import Any

from . import _C
from ._C import Tensor
from ._overriding import is_wrapper


class _Options:
    precision = 4
    threshold: float = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


_options = _Options()
_PROFILES = {
    "default": (4, 1000, 3, 80),
    "short": (2, 1000, 2, 80),
    "full": (4, math.inf, 3, 80),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set digits after the point, the element count from which tensors are summarised, items kept at each edge,
    characters per line, a profile ('default', 'short', 'full'), and whether to use exponents."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(
                f"set_printoptions: profile must be one of {', '.join(_PROFILES)}, got {profile!r}"
            )
        _options.precision, _options.threshold, _options.edgeitems, _options.linewidth = _PROFILES[
            profile
        ]
    for name, value in (
        ("precision", precision),
        ("threshold", threshold),
        ("edgeitems", edgeitems),
        ("linewidth", linewidth),
    ):
        if value is not None:
            setattr(_options, name, value)
    _options.sci_mode = sci_mode


class _Format:
    """How the elements of one tensor are written: one width, integers, decimals or exponents."""

    def __init__(self, values: list[float], floating: bool) -> None:
        self.floating = floating
        # Zeros take no part: -0. may be wider than the rest.
        finite = [v for v in values if not floating or (math.isfinite(v) and v != 0)]
        self.integers = floating and all(v == int(v) for v in finite)
        self.scientific = False
        if floating and finite and not self.integers:
            sizes = [abs(v) for v in finite]
            low, high = min(sizes), max(sizes)
            self.scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        elif self.integers and finite:
            self.scientific = max(abs(v) for v in finite) > 1.0e8
        if _options.sci_mode is not None and finite and floating:
            self.scientific = _options.sci_mode
        self.width = max((len(self._text(v)) for v in finite), default=0)

    def _text(self, v: Any) -> str:
        if not self.floating:
            return str(v)
        if math.isnan(v) or math.isinf(v):
            return str(v)
        if self.scientific:
            return f"{v:.{_options.precision}e}"
        if self.integers:
            return f"{v:.0f}."
        return f"{v:.{_options.precision}f}"

    def __call__(self, v: Any) -> str:
        return self._text(v).rjust(self.width)


class _ComplexFormat:
    def __init__(self, values: list[complex]) -> None:
        self.real = _Format([v.real for v in values], True)
        self.imag = _Format([v.imag for v in values], True)
        self.width = self.real.width + self.imag.width + 2

    def __call__(self, v: complex) -> str:
        imag = self.imag._text(v.imag)
        sign = "" if imag.startswith("-") else "+"
        return f"{self.real(v.real)}{sign}{imag}j"


def _summarised(t: Tensor, edge: int) -> Any:
    """Nested lists in which None stands for what is left out."""
    if t.ndim == 0:
        return t.item()
    n = t.size(0)
    keep = range(n) if n <= 2 * edge else [*range(edge), None, *range(n - edge, n)]
    return [None if i is None else _summarised(t[i], edge) for i in keep]


def _leaves(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [] if data is None else [data]
    return [leaf for item in data for leaf in _leaves(item)]


def _write(data: Any, depth: int, indent: int, write: Any) -> str:
    if not isinstance(data, list):
        return "..." if data is None else write(data)
    if depth == 1:
        per_line = max(1, (_options.linewidth - indent) // (write.width + 2))
        gap = " ..." if _options.edgeitems else "..."
        cells = [gap if x is None else write(x) for x in data]
        lines = [", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    gap = "," + "\n" * (depth - 1) + " " * (indent + 1)
    return (
        "["
        + gap.join("..." if x is None else _write(x, depth - 1, indent + 1, write) for x in data)
        + "]"
    )


def _body(t: Tensor, indent: int) -> str:
    if t.numel() == 0:
        return "[]"
    t = t.detach()
    if t.dtype in (_C.float16, _C.bfloat16):
        t = t.float()
    elif not _C.can_cast(t.dtype, _C.complex128):  # opaque elements are shown as their bits
        t = t.view(getattr(_C, f"uint{8 * t.dtype.itemsize}", _C.uint8))
    edge = _options.edgeitems if t.numel() > _options.threshold else 10**9
    data = _summarised(t, edge) if t.numel() > _options.threshold else t.tolist()
    leaves = _leaves(data)
    write: Any = (
        _ComplexFormat(leaves) if t.is_complex() else _Format(leaves, t.is_floating_point())
    )
    return _write(data, t.ndim, indent, write)


def _grad_part(t: Tensor) -> list[str]:
    if not any(layer["name"] == "autograd" for layer in _C.layers()):
        return []
    if t.grad_fn is not None:
        return [f"grad_fn=<{type(t.grad_fn).__name__}>"]
    return ["requires_grad=True"] if t.requires_grad else []


def _composite_text(t: Tensor, made_of: dict[str, Any]) -> str:
    if made_of["text"]:
        return str(made_of["text"])
    parts = [
        "None" if part is None else f"{part.dtype.name}{tuple(part.shape)}"
        for part in made_of["parts"]
    ]
    where = "" if t.is_cpu else f", device='{t.device}'"
    grad = "".join(f", {part}" for part in _grad_part(t))
    return (
        f"composite(layer='{made_of['layer']}', shape={tuple(t.shape)}, dtype={t.dtype}, "
        f"parts=[{', '.join(parts)}]{where}{grad})"
    )


def represent(t: Tensor) -> str:
    """The text of repr(tensor): elements, then what is not the default."""
    if level := _C.transform_level(t):
        inner, second, _ = _C.unwrap(t)
        tangent = "" if second is None else f", tangent={represent(second)}"
        return f"wrapped(level={level}, shape={tuple(t.shape)}, value={represent(inner)}{tangent})"
    if is_wrapper(t):
        shown = [f"size={tuple(t.shape)}", f"dtype={t.dtype}"]
        where = [] if t.is_cpu else [f"device='{t.device}'"]
        return f"{type(t).__name__}({', '.join(['...', *shown, *where, *_grad_part(t)])})"
    made_of = _C.composite(t)
    if made_of and (made_of["text"] or not made_of["has_values"]):
        return _composite_text(t, made_of)
    wide = _C.get_default_dtype() is _C.float64
    default = {
        _C.get_default_dtype(), _C.complex128 if wide else _C.complex64, _C.int64, _C.bool,
    }  # fmt: skip
    prefix = (
        "tensor("
        if type(t) is Tensor or type(t).__name__ == "Buffer"
        else "Parameter containing:\ntensor("
        if (type(t).__name__ == "Parameter")
        else f"{type(t).__name__}("
    )
    indent = len(prefix.rsplit("\n", 1)[-1])
    parts = []
    if t.is_meta:
        body, parts = "...", [f"device='meta', size={tuple(t.shape)}"]
    else:
        body = _body(_C.composite_values(t) if made_of else t, indent)
        if not _options.edgeitems or (t.numel() == 0 and t.ndim != 1):
            parts.append(f"size={tuple(t.shape)}")
    if not t.is_meta and not t.is_cpu:
        parts.append(f"device='{t.device}'")
    if (
        t.dtype not in default
        or (t.numel() == 0 and t.dtype is not _C.get_default_dtype())
        or t.is_meta
    ) and not (t.is_meta and t.dtype is _C.get_default_dtype()):
        parts.append(f"dtype={t.dtype}")
    parts += _grad_part(t)
    return prefix + ", ".join([body, *parts]) + ")"
