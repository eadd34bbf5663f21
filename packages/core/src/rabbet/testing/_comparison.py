"""assert_close(): whether values agree as far as their dtypes let them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rabbet

from .. import _C
from .._C import Tensor

__all__ = ["assert_allclose", "assert_close"]

_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
_EXACT = (0.0, 0.0)
_Message = str | Callable[[str], str] | None


def _tolerance(dtype: Any) -> tuple[float, float]:
    return _TOLERANCES.get(dtype.name, _EXACT)


class _Comparison:
    """The options of one call, and the comparison of pairs of values with them."""

    def __init__(self, options: dict[str, Any]) -> None:
        rtol, atol = options["rtol"], options["atol"]
        if (rtol is None) != (atol is None):
            raise ValueError(
                "Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                f"{'rtol' if rtol is None else 'atol'}."
            )
        self.options = options

    def fail(self, text: str, where: str) -> None:
        msg: _Message = self.options["msg"]
        place = f"\n\nThe failure occurred for item {where}" if where else ""
        text = f"{text}{place}"
        if isinstance(msg, str):
            text = msg
        elif msg is not None:
            text = msg(text)
        raise AssertionError(text)

    def compare(self, actual: Any, expected: Any, where: str = "") -> None:
        """Compare values of any kind; `where` is the path to them."""
        if _is_sequence(actual) and _is_sequence(expected):
            return self._sequences(actual, expected, where)
        if isinstance(actual, Mapping) and isinstance(expected, Mapping):
            return self._mappings(actual, expected, where)
        if _is_sequence(actual) != _is_sequence(expected):
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
            )
        if actual is None or expected is None:
            if actual is not expected:
                self.fail(f"None mismatch: {actual} is not {expected}", where)
            return None
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not self.options["allow_subclasses"]:
            related = type(actual) is type(expected)
        if not related and not (_is_number(actual) and _is_number(expected)):
            raise TypeError(
                f"Except for scalars, type equality is required: got {type(actual)} and {type(expected)} instead."
            )
        self._tensors(self._tensor(actual), self._tensor(expected), where, _is_number(actual))
        return None

    def _tensor(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value.detach()
        try:
            if _is_number(value):  # exactly, whatever the default dtype
                kinds = {float: _C.float64, complex: _C.complex128}
                return _C.tensor(value, kinds.get(type(value)))
            return _C.as_tensor(value)
        except Exception:
            raise TypeError(
                f"No comparison pair was able to handle inputs of type {type(value)}"
            ) from None

    def _sequences(self, actual: Any, expected: Any, where: str) -> None:
        if len(actual) != len(expected):
            self.fail(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", where
            )
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            self.compare(a, e, f"{where}[{i}]")

    def _mappings(self, actual: Any, expected: Any, where: str) -> None:
        if actual.keys() != expected.keys():
            here = sorted(map(repr, actual.keys() - expected.keys()))
            there = sorted(map(repr, expected.keys() - actual.keys()))
            self.fail(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: [{', '.join(there)}]\n"
                f"Additional keys in the actual mapping: [{', '.join(here)}]",
                where,
            )
        for key in actual:
            self.compare(actual[key], expected[key], f"{where}[{key!r}]")

    def _attributes(self, actual: Tensor, expected: Tensor, where: str, is_number: bool) -> None:
        asked = {name: self.options[f"check_{name}"] for name in ("layout", "device", "dtype")}
        asked["dtype"] = asked["dtype"] and not is_number
        for name, on in {"shape": True, **asked}.items():
            a, e = getattr(actual, name), getattr(expected, name)
            if on and a != e:
                self.fail(f"The values for attribute '{name}' do not match: {a} != {e}.", where)
        if self.options["check_stride"] and actual.stride() != expected.stride():
            self.fail(
                f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}.",
                where,
            )

    def _tensors(self, actual: Tensor, expected: Tensor, where: str, is_number: bool) -> None:
        self._attributes(actual, expected, where, is_number)
        rtol, atol = self.options["rtol"], self.options["atol"]
        if rtol is None:
            both = [_tolerance(actual.dtype), _tolerance(expected.dtype)]
            rtol, atol = max(r for r, _ in both), max(a for _, a in both)
        if actual.is_meta or expected.is_meta:
            return
        actual, expected = actual.cpu(), expected.cpu()
        if actual.dtype is not expected.dtype:
            wide = _C.promote_types(actual.dtype, expected.dtype)
            actual, expected = actual.to(wide), expected.to(wide)
        close = rabbet.isclose(actual, expected, rtol, atol, self.options["equal_nan"])
        if not bool(close.all()):
            self.fail(_mismatch(actual, expected, ~close, rtol, atol), where)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex))


def _differences(actual: Tensor, expected: Tensor) -> Tensor:
    if not actual.is_floating_point() and not actual.is_complex():
        actual, expected = actual.long(), expected.long()
    return (actual - expected).abs()


def _worst(values: Tensor, wrong: Tensor, bound: float, what: str) -> str:
    """The line on the greatest difference among the wrong elements."""
    shown = values.double().masked_fill(~wrong, -1.0)
    place = int(shown.reshape(-1).argmax())
    index = []
    for size in reversed(tuple(values.shape)):
        place, at = divmod(place, size)
        index.append(at)
    index.reverse()
    here = tuple(index)
    greatest = float(shown[here]) if here else float(shown)
    allowed = f" (up to {bound} allowed)" if bound else ""
    return f"Greatest {what} difference: {greatest} at index {here}{allowed}"


def _mismatch(actual: Tensor, expected: Tensor, wrong: Tensor, rtol: float, atol: float) -> str:
    absolute = _differences(actual, expected).double()
    relative = absolute / expected.abs().double()
    exact = rtol == 0 and atol == 0
    kind = "equal" if exact else "close"
    if actual.ndim == 0:
        return (
            f"Scalars are not {kind}!\n\nExpected {expected.item()} but got {actual.item()}.\n"
            f"Absolute difference: {float(absolute)} (up to {atol} allowed)\n"
            f"Relative difference: {float(relative)} (up to {rtol} allowed)"
        )
    count, total = int(wrong.sum()), wrong.numel()
    return (
        f"Tensor-likes are not {kind}!\n\n"
        f"Mismatched elements: {count} / {total} ({100 * count / total:.1f}%)\n"
        f"{_worst(absolute, wrong, atol, 'absolute')}\n{_worst(relative, wrong, rtol, 'relative')}"
    )


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise unless `|actual - expected| <= atol + rtol * |expected|` everywhere.

    Tensors, numbers, arrays, and sequences and mappings of them. Tolerances follow from the dtypes where none are given;
    integers must be equal.

    Raises:
        AssertionError: with what differs most and where; `msg` replaces or rewrites the text.
        TypeError: for values of different kinds.
        ValueError: if only one of `rtol` and `atol` is given.
    """
    options = {
        "allow_subclasses": allow_subclasses, "rtol": rtol, "atol": atol, "equal_nan": equal_nan,
        "check_device": check_device, "check_dtype": check_dtype, "check_layout": check_layout,
        "check_stride": check_stride, "msg": msg,
    }  # fmt: skip
    __tracebackhide__ = True
    _Comparison(options).compare(actual, expected)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """assert_close() without its checks of dtype and device, under the older name."""
    dtypes = [
        x.dtype if isinstance(x, Tensor) else _C.get_default_dtype() for x in (actual, expected)
    ]
    if rtol is None and atol is None:
        pairs = [_tolerance(d) for d in dtypes]
        rtol, atol = max(r for r, _ in pairs), max(a for _, a in pairs)
    assert_close(
        _C.as_tensor(actual), _C.as_tensor(expected), rtol=rtol, atol=atol, equal_nan=equal_nan,
        check_device=True, check_dtype=False, msg=msg or None,
    )  # fmt: skip
