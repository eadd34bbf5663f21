"""Is what a device computes right? Every case of an operator, in every form of call, against a reference.

The reference is a definition in references.py or the NumPy function that the record names, else the decomposition; it
gets float64, complex128 or int64 from the very numbers that the device got. Shape and dtype are compared with what the
record's rules say of tensors without memory, and the class of the dtype with the reference. Tolerances follow from the dtype and the kind of the operator:
`|got - want| <= FACTOR[kind] * eps(dtype) * (1 + |want|)`; integers, bools and what only moves data are exact. What runs
along a dimension rounds more the longer that is, and near a pole a function changes by more than that where its
arguments change in their last digit: both are allowed for.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rabbet
from rabbet import _C

from ..cases import Case, cases
from .calls import changed, first_line, moved, not_declared, refusing_kernel, results, tensors
from .reasons import Reason, reason_of, skip, tagged
from .references import OF_STORAGE, NoReference, Unset, reference

FACTOR = {"elementwise": 16, "movement": 0, "indexing": 16, "reduction": 32, "along": 32, "batched": 32,
          "composite": 64, "opaque": 64, "random": 64, "creation": 16}  # fmt: skip
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
       "complex32": 2.0**-10, "complex64": 2.0**-23, "complex128": 2.0**-52}  # fmt: skip


def dtype_name(dtype: Any) -> str:
    """ "float32" of rabbet.float32."""
    return dtype if isinstance(dtype, str) else dtype.name


def declared_dtypes(device: str) -> list[str]:
    """The dtypes that kernels of a device name; all of them where no kernel names any."""
    rabbet.empty(0, device=device)  # its backend is loaded now
    kind = device.partition(":")[0]
    found, everything = set[str](), list[str]()
    for name in _C.record_names():
        listed = _C.op_info(name)["kernel_dtypes"].get(kind, [])
        everything = listed if len(listed) > len(everything) else everything
        if len(listed) < len(ALL_DTYPES):
            found |= set(listed)
    return [d for d in ALL_DTYPES if d in (found or set(everything))]


ALL_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16",
               "bfloat16", "float32", "float64", "complex64", "complex128")  # fmt: skip


def meaningful(name: str, dtype: str) -> bool:
    """Whether the record lets the operator take tensors of a dtype, as far as it says so."""
    classes = _C.op_info(name)["dtypes"].split()
    if "real" in classes:
        classes += ["int", "float"]
    kind = "float" if dtype in EPS else "bool" if dtype == "bool" else "int"
    return not classes or ("complex" if dtype.startswith("complex") else kind) in classes


def wide(t: Any) -> Any:
    """The same numbers in float64, complex128 or int64; bools stay."""
    t = t.detach()
    if t.is_complex():
        return t.to(rabbet.complex128)
    if t.is_floating_point():
        return t.to(rabbet.float64)
    return t if t.dtype is rabbet.bool else t.to(rabbet.int64)


def _places(t: Any) -> Any:
    """Like `wide`, but keep integers: in a call on inexact numbers they are indices or pivots."""
    return wide(t) if t.is_floating_point() or t.is_complex() else t.detach()


def fetched(t: Any) -> Any:
    """A copy on the CPU, made without a kernel of the device: a view's memory is copied as it lies there."""
    t = t.detach()
    if t.is_contiguous() or t.device.type == "cpu":
        return t.cpu()
    whole = t.as_strided([t._storage_nbytes() // t.itemsize], [1], 0).cpu()
    return whole.as_strided(list(t.shape), list(t.stride()), t.storage_offset())


def array(t: Any) -> np.ndarray[Any, Any]:
    """The numbers of a tensor, on any device, in a dtype that NumPy has."""
    return np.asarray(wide(fetched(t)).numpy())


class Tolerance:
    """What the plugin declares as `tolerances` may loosen, never tighten: {"OP": number or {"DTYPE": number}}.

    Its `ulps`, {"DTYPE": {"OP": number or None}}, replace the tolerance of calls on tensors of the dtype alone.
    """

    def __init__(self, op: str, declared: dict[str, Any] | None = None) -> None:
        info = _C.op_info(op)
        self.factor = FACTOR[info["kind"]]
        # A conversion of each element, to the nearest.
        self.rounds_once = info["kind"] == "elementwise" and "dtype" in [
            p["name"] for p in info["params"]
        ]
        given = (declared or {}).get("tolerances", {}).get(op, {})
        self.given = given if isinstance(given, dict) else dict.fromkeys(EPS, given)
        ulps = (declared or {}).get("ulps", {})
        self.ulps = {dtype: of[op] for dtype, of in ulps.items() if of.get(op) is not None}

    def of(self, dtype: str) -> float:
        """Relative to 1 + |want|; 0: exact."""
        if self.rounds_once and dtype == "float32":
            return float(self.given.get(dtype, 0.0))
        return max(self.factor * EPS.get(dtype, 0.0), float(self.given.get(dtype, 0.0)))


def difference(
    got: np.ndarray[Any, Any],
    want: np.ndarray[Any, Any],
    tolerance: float,
    slack: np.ndarray[Any, Any] | float = 0.0,
) -> str:
    """Where two arrays of one shape differ by more than a tolerance and a slack, or ""."""
    with np.errstate(invalid="ignore", over="ignore"):
        same = (got == want) | ((got != got) & (want != want))
        if tolerance:
            same |= np.abs(got - want) <= tolerance * (1 + np.abs(want)) + slack
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    size = f" (a tolerance of {tolerance:.3g} * (1 + |expected|))" if tolerance else ""
    where = f" at {list(at)}" if at else ""
    return f"expected {want[at]}, got {got[at]}{where}{size}; {int((~same).sum())} of {same.size} differ"


# ---- forms of a call: the same values, given or returned otherwise


def with_strides(t: Any, device: str, turned: bool) -> Any:
    """A view on the device with the values of `t`, whose elements lie apart, or in another order."""
    t = t.detach()
    if turned and t.ndim > 1:
        return (
            t.transpose(0, -1)
            .clone(memory_format=rabbet.contiguous_format)
            .to(device)
            .transpose(0, -1)
        )
    if t.ndim == 0:
        return rabbet.stack([t, t]).to(device)[0]
    return rabbet.stack([t, t], -1).flatten(-2).to(device)[..., ::2]


def _strided(case: Case, device: str, first: int) -> Case:
    """Its tensors with gaps and with the order of dimensions turned, by turns; the first has gaps for 0."""
    count = iter(range(first, 1000))
    return changed(case, lambda t: with_strides(t, device, next(count) % 2 == 1))


def _first_row(t: Any) -> Any:
    return t.detach()[:1] if t.ndim and t.shape[0] > 1 else t.detach()


def _repeated(case: Case, device: str) -> tuple[Case, Case]:
    """The call with tensors whose rows are all the first one: on the CPU, and on the device by a stride of 0."""
    return (
        changed(
            case,
            lambda t: _first_row(t).expand(t.shape).clone(memory_format=rabbet.contiguous_format),
        ),
        changed(case, lambda t: _first_row(t).contiguous().to(device).expand(t.shape)),
    )


def _target(like: Any, device: str) -> Any:
    """Memory to write a result to: on the device, with gaps."""
    return with_strides(rabbet.zeros(like.shape, dtype=like.dtype), device, False)


def has_out(name: str) -> bool:
    """Whether a call may be given the tensors to write to."""
    info = _C.op_info(name)
    views = info["view"] or info["maybe_view"] or info["returns_list"]
    made = info["kind"] == "creation"
    return bool(
        info["function"]
        and not views
        and not made
        and not any(p["mutated"] for p in info["params"])
    )


def _into(case: Case, likes: list[Any], device: str) -> list[Any]:
    out = [_target(t, device) for t in likes]
    before = [t._version for t in out]
    rabbet.ops(case.op)(*case.args, **case.kwargs, out=out[0] if len(out) == 1 else tuple(out))
    _bumped(out, before, f"{case} with out= on {device}")
    return out


def _in_place(case: Case, what: str) -> list[Any]:
    base = _C.op_info(case.op)["base"]
    target = case.args[0]
    before = target._version
    returned = getattr(target, f"{base}_")(*case.args[1:], **case.kwargs)
    assert returned is target, f"{what}: expected the tensor itself to be returned"
    _bumped([target], [before], what)
    return [target]


def _bumped(written: list[Any], before: list[int], what: str) -> None:
    """A write counts as one: what autograd has saved of the tensor is then known to be stale."""
    for t, version in zip(written, before, strict=True):
        assert t._version > version, (
            f"{what}: the version of what it writes is {version} before and after"
        )


# ---- what is expected


class Expected:
    """The results of a call: by a reference that calls no operator, or else by the decomposition in wide dtypes.

    Attributes:
        values: arrays, or `Unset` where only the shape is known.
        independent: whether a reference has made them.
        nudged: gives the values for arguments that differ in their last digit, None where a decomposition made them.
        direct: whether all arguments are tensors of the dtype that is judged, so that they are not rounded before.
    """

    def __init__(
        self,
        values: list[Any],
        independent: bool,
        nudged: Callable[[], list[Any]] | None = None,
        direct: bool = False,
    ) -> None:
        self.values, self.independent, self.nudged = values, independent, nudged
        self.direct = direct

    def condition(self, k: int) -> np.ndarray[Any, Any] | float:
        """By how much result `k` changes where its arguments change in their last digit."""
        if self.nudged is None:
            return 0.0
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.abs(self.nudged()[k] - self.values[k]), posinf=0.0)


def expected(case: Case, dtype: str) -> Expected:
    """Raises NoReference, with what is missing."""
    info = _C.op_info(case.op)
    made = info["kind"] == "composite"
    wraps = dtype.startswith("uint") and made  # its steps wrap, as NumPy's do
    inexact = dtype in EPS or dtype.startswith("complex")
    wider = case if wraps else changed(case, lambda t: _places(t) if inexact else wide(t))
    found = reference(case.op)
    if found is not None:
        try:
            values = _evaluated(found, wider, dtype)
            smooth = info["kind"] == "elementwise" and dtype in EPS
            again = changed(case, lambda t: wide(_nudged(t))) if smooth else None
            nudged = None if again is None else lambda: _evaluated(found, again, dtype)
            same = getattr(rabbet, dtype)
            direct = not case.kwargs and all(
                isinstance(a, rabbet.Tensor) and a.dtype is same for a in case.args
            )
            return Expected(values, True, nudged, direct)
        except NoReference:
            if not info["has_decomp"]:
                raise
    if not info["has_decomp"]:
        raise NoReference(f"{case.op} has neither a reference nor a decomposition")
    rabbet.manual_seed(0)
    values = [array(t) for t in decomposed(wider)]
    return Expected(values, False)


def beyond_ulps(
    got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: str, most: float
) -> str:
    """Where results differ from the rounded reference by more than `most` units in the last place, or ""."""
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        exact = rounded.astype(np.float64)
        right = (
            (got == exact)
            | (np.isnan(got) & np.isnan(exact))
            | (np.abs(got - exact) <= most * unit)
        )
    if right.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~right)[0])
    found = abs(got[at] - exact[at]) / unit[at]
    return f"expected {exact[at]}, got {got[at]} at {list(at)}: {found:.3g} units in the last place, at most {most} are declared"


def _nudged(t: Any) -> Any:
    """The next number of the dtype, or nearly."""
    eps = EPS.get(dtype_name(t.dtype), 0.0)
    return t.detach() * (1 + 2 * eps) if eps else t


def decomposed(case: Case) -> list[Any]:
    """The results by the operator's decomposition."""
    own = changed(case, lambda t: t.clone())
    return tensors(_C.decomposed(rabbet.ops(case.op), tuple(own.args), own.kwargs))


def _evaluated(found: Any, case: Case, dtype: str) -> list[Any]:
    given = _by_name(case, dtype)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        results_found = found(given)
        low = (np.float16, np.float32)  # what NumPy makes of bools and small integers
        if any(getattr(r, "dtype", None) in low for r in results_found):
            results_found = found({k: _doubled(v) for k, v in given.items()})
    return [r if isinstance(r, Unset) else np.asarray(r) for r in results_found]


def _doubled(value: Any) -> Any:
    return (
        value.astype(np.float64) if getattr(value, "dtype", np.dtype("f")).kind in "bu" else value
    )


def _by_name(case: Case, dtype: str) -> dict[str, Any]:
    given: dict[str, Any] = {"dtype_name": dtype}
    params = _C.op_info(case.op)["params"]
    for i, p in enumerate(params):
        value = case.args[i] if i < len(case.args) else case.kwargs.get(p["name"], p["default"])
        given[p["name"]] = _arrays(value)
    return given


def _arrays(value: Any) -> Any:
    if isinstance(value, rabbet.Tensor):
        return (wide(value) if _C.buffer_format(value.dtype) is None else value).numpy()
    if isinstance(value, rabbet.dtype):
        name = dtype_name(value)
        return "float64" if name == "bfloat16" else name
    return [_arrays(v) for v in value] if isinstance(value, (list, tuple)) else value


_CLASSES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
_NOT_OF_NUMPY = {"bfloat16": "float", "complex32": "complex"}


def dtype_class(dtype: str) -> str:
    """ "bool", "int", "float" or "complex"."""
    return _NOT_OF_NUMPY.get(dtype) or _CLASSES[np.dtype(dtype).kind]


# ---- the judgement

# Functions whose results of zeros have a sign that does not depend on how they are computed: the `ref` of records.
_SIGNED = {
    "numpy.abs", "numpy.add", "numpy.ceil", "numpy.floor", "numpy.multiply", "numpy.negative", "numpy.round",
    "numpy.sqrt", "numpy.subtract", "numpy.trunc",
}  # fmt: skip


class Judgement:
    """All examples of one operator in one dtype on one device.

    Attributes:
        notes: what was not judged, each with its reason.
        passed: how many forms of calls agreed.
        independent: how many calls a reference that calls no operator was compared with.
        examples: how many calls have been judged.
    """

    def __init__(
        self, device: str, op: str, dtype: str, declared: dict[str, Any] | None = None
    ) -> None:
        self.device, self.op, self.dtype = device, op, dtype
        self.partial: dict[str, str] = (declared or {}).get("partial", {})
        self.tolerance = Tolerance(op, declared)
        self.info = _C.op_info(op)
        self.passed, self.independent, self.notes = 0, 0, list[str]()
        self.examples = 0

    def run(self) -> list[str]:
        """Judge; skips where nothing is declared or there is nothing to judge, returns the notes."""
        left_out: list[str] = []
        dtype = getattr(rabbet, self.dtype)
        for case in cases(self.op, dtype, left_out=left_out, further=True):
            self._judge(self._typed(case))
            self.examples += 1
        for text in left_out:
            self._note(Reason.NO_EXAMPLE, text)
        if not self.notes and not self.passed:
            skip(Reason.NO_EXAMPLE, f"{self.op} has no example")
        if not self.passed:
            first = min(self.notes, key=lambda n: reason_of(n) is not Reason.NO_KERNEL)
            pytest.skip(first)
        return sorted(set(self.notes))

    def _typed(self, case: Case) -> Case:
        """What makes tensors is told the dtype."""
        named = [p["name"] for p in self.info["params"]]
        if (
            "dtype" in named
            and self.info["kind"] in ("creation", "random")
            and "dtype" not in case.kwargs
        ):
            case.kwargs["dtype"] = getattr(rabbet, self.dtype)
        return case

    def _note(self, reason: Reason, text: str) -> None:
        self.notes.append(tagged(reason, text))

    def _judge(self, case: Case) -> None:
        what = f"{case} in {self.dtype} on {self.device}"
        if case.label == "exact" and self._rounds(case):
            return
        foreign = self._foreign(case)
        if foreign:
            self._note(Reason.NO_KERNEL, f"{what}: no kernel of the device names {foreign}")
            return
        meta, refusal = self._on_meta(case)
        try:
            there = moved(case, self.device)
            untouched = [array(t).copy() for t in self._given(there)]
            rabbet.manual_seed(0)
            found = results(there)
        except Exception as error:
            self._missing(what, error, refusal)
            return
        if refusal is not None:
            self._note(
                Reason.DTYPE_REFUSED, f"{what}: for meta tensors only: {first_line(refusal)}"
            )
        try:
            want = expected(case, self.dtype)
        except NoReference as why:
            self._note(Reason.NO_REFERENCE, f"{what}: {why}")
            return
        self.independent += want.independent
        self._agree(what, found, want, meta)
        if case.label == "signed zeros" and self.info["ref"] in _SIGNED and want.independent:
            self._signs(what, found, want)
        if case.label == "4-d":
            self._rows(case, what)
        if not self._written(there):
            self._left_alone(what, there, untouched)
        self._memory(what, there, found)
        self._forms(case, what, found, want, meta)

    def _forms(
        self, case: Case, what: str, found: list[Any], want: Expected, meta: list[Any] | None
    ) -> None:
        def form(name: str, call: Callable[[], list[Any]], want: Expected = want) -> None:
            rabbet.manual_seed(0)
            try:
                got = call()
            except AssertionError:
                raise
            except Exception as error:
                self._missing(f"{what}, {name}", error)
                return
            self._agree(f"{what}, {name}", got, want, None)

        # A view may need the order of dimensions.
        first = self.examples % 2 if self.info["kind"] == "elementwise" else 0
        if tensors(list(case.args)) and self.op not in OF_STORAGE:
            form("strided", lambda: results(_strided(case, self.device, first)))
        if has_out(self.op):
            form("out=", lambda: _into(moved(case, self.device), found, self.device))
        target = case.args[0] if case.args else None
        if self.info["inplace"] and isinstance(target, rabbet.Tensor):
            refused = self._meta_in_place(case, found)
            if refused:
                self._note(Reason.NO_SUCH_FORM, f"{what}, in place: {refused}")
            else:
                there = moved(case, self.device)
                kept = Expected(
                    [_as_kind(v, target.dtype) for v in want.values], False, want.nudged
                )
                form("in place", lambda: _in_place(there, f"{what}, in place"), kept)
        exact = self.dtype not in ("float16", "bfloat16")  # which round at every step
        if self.info["has_decomp"] and want.independent and exact and self.info["kind"] != "random":
            steps = Expected(want.values, want.independent, want.nudged)
            form("decomposed", lambda: decomposed(moved(case, self.device)), steps)

    def _signs(self, what: str, found: list[Any], want: Expected) -> None:
        """Zeros have the sign that IEEE 754 says."""
        for got, exact in zip(found, want.values, strict=True):
            ours = array(got)
            wrong = (exact == 0) & (np.signbit(exact) != np.signbit(ours))
            assert not wrong.any(), (
                f"{what}: expected {exact[wrong][0]}, got {ours[wrong][0]}; {int(wrong.sum())} zeros have the other sign"
            )

    def _rows(self, case: Case, what: str) -> None:
        """Tensors of stride 0."""
        name = f"{what}, rows of stride 0"
        plain, there = _repeated(case, self.device)
        try:
            want = expected(plain, self.dtype)
            rabbet.manual_seed(0)
            found = results(there)
        except NoReference as why:
            self._note(Reason.NO_REFERENCE, f"{name}: {why}")
        except Exception as error:
            self._missing(name, error)
        else:
            self._agree(name, found, want, None)

    def _rounds(self, case: Case) -> bool:
        """Whether floating results are made of integers: their digits are lost before the operator computes."""
        meta, _ = self._on_meta(case)
        inexact = meta is not None and any(dtype_name(t.dtype) in EPS for t in meta)
        return inexact and self.dtype not in EPS

    def _on_meta(self, case: Case) -> tuple[list[Any] | None, Exception | None]:
        """What the record's rules say of the results, or how they refuse the call."""
        try:
            return results(moved(case, "meta")), None
        except (TypeError, ValueError, IndexError) as error:
            return None, error
        except Exception:  # a shape that depends on data, a kernel's own results
            return None, None

    def _meta_in_place(self, case: Case, found: list[Any]) -> str:
        """Why the rules of core refuse the call in place, or ""."""
        target = case.args[0]
        if tuple(found[0].shape) != tuple(target.shape):
            return f"the result has shape {tuple(found[0].shape)}, not that of the tensor"
        try:
            _in_place(moved(case, "meta"), "meta")
        except (TypeError, ValueError, RuntimeError) as error:
            return first_line(error)
        return ""

    def _foreign(self, case: Case) -> str:
        """A dtype that the call names and the device does not, or ""."""
        given = [a for a in (*case.args, *case.kwargs.values()) if isinstance(a, rabbet.dtype)]
        known = declared_dtypes(self.device) if given else []
        return next((dtype_name(d) for d in given if dtype_name(d) not in known), "")

    def _written(self, case: Case) -> list[Any]:
        """The arguments that the operator writes."""
        mutated = [p["mutated"] for p in self.info["params"]]
        return [t for a, m in zip(case.args, mutated, strict=False) if m for t in tensors(a)]

    def _given(self, case: Case) -> list[Any]:
        return tensors([*case.args, *case.kwargs.values()])

    def _left_alone(self, what: str, there: Case, before: list[Any]) -> None:
        for k, (t, old) in enumerate(zip(self._given(there), before, strict=True)):
            changed_at = difference(array(t), old, 0.0)
            assert not changed_at, f"{what}: it writes to tensor {k} of its arguments: {changed_at}"

    def _memory(self, what: str, there: Case, found: list[Any]) -> None:
        """Results of other than views have memory of their own."""
        part = self.info["kind"] == "composite" and not (
            self.info["function"] or self.info["method"]
        )
        if self.info["view"] or self.info["maybe_view"] or self._written(there) or part:
            return  # parts of formulas may pass on what they get
        if self.info["itself_if_real"] and not there.args[0].is_complex():
            assert found[0] is there.args[0], f"{what}: the result is not the argument itself"
            return
        theirs = {t._storage_id() for t in self._given(there) if t.numel()}
        for k, r in enumerate(found):
            shared = r.numel() and r._storage_id() in theirs
            assert not shared, f"{what}: result {k} shares memory with an argument, and is no view"

    def _agree(self, what: str, found: list[Any], want: Expected, meta: list[Any] | None) -> None:
        count = len(want.values)
        assert len(found) == count, f"{what}: expected {count} results, got {len(found)}"
        for k, (got, exact) in enumerate(zip(found, want.values, strict=True)):
            name = what if count == 1 else f"{what}, result {k}"
            place = "cpu" if self.op == "to_device" else self.device.partition(":")[0]
            assert got.device.type == place, f"{name}: is on {got.device}, expected {place}"
            shape = tuple(exact) if isinstance(exact, Unset) else exact.shape
            assert tuple(got.shape) == shape, (
                f"{name}: expected shape {shape}, got {tuple(got.shape)}"
            )
            if meta is not None:
                self._as_declared(name, got, meta[k])
            if not isinstance(exact, Unset):
                self._values(name, got, want, k)
        self.passed += 1

    def _as_declared(self, name: str, got: Any, meta: Any) -> None:
        same = got.dtype is meta.dtype
        assert same, f"{name}: expected dtype {meta.dtype} by the record's rules, got {got.dtype}"
        shape = tuple(meta.shape)
        assert tuple(got.shape) == shape, (
            f"{name}: the record's rules give shape {shape}, got {tuple(got.shape)}"
        )

    def _values(self, name: str, got: Any, want: Expected, k: int) -> None:
        exact, kind = want.values[k], dtype_name(got.dtype)
        if want.independent and self.info["kind"] not in ("creation", "random"):
            told, ours = _CLASSES[exact.dtype.kind], dtype_class(kind)
            is_mask = told == "bool" and kind == self.dtype == "uint8"  # any() and all() of uint8
            assert told == ours or is_mask, f"{name}: expected a dtype of class {told}, got {kind}"
        exact = _as_kind(exact, got.dtype)
        if want.direct and kind == self.dtype and kind in self.tolerance.ulps:
            found = beyond_ulps(array(got), exact, kind, self.tolerance.ulps[kind])
            assert not found, f"{name}: {found}"
            return
        tolerance = self.tolerance.of(_inexact(kind, self.dtype))
        if self.info["kind"] == "along":
            tolerance *= max(exact.shape, default=1) ** 0.5
        found = difference(array(got), exact, tolerance)
        if found and tolerance:
            found = difference(
                array(got), exact, tolerance, FACTOR["elementwise"] * want.condition(k)
            )
        assert not found, f"{name}: {found}"

    def _missing(self, what: str, error: Exception, refusal: Exception | None = None) -> None:
        """A call that raised: not offered, refused by the rules, declared as partial, or a failure."""
        if refusal is not None and isinstance(error, type(refusal)):
            self._note(Reason.DTYPE_REFUSED, f"{what}: {first_line(error)}")
            return
        if not_declared(error):
            self._note(Reason.NO_KERNEL, f"{what}: {first_line(error)}")
            return
        kernel = refusing_kernel(error)
        refusing = kernel.split()[2] if kernel else ""
        if isinstance(error, NotImplementedError) and refusing in self.partial:
            self._note(Reason.PARTIAL, f"{what}: {refusing} is partial: {self.partial[refusing]}")
            return
        if isinstance(error, NotImplementedError):
            raise AssertionError(
                f"{what}: the device declares {refusing} in this dtype, but its kernel refuses the call: {error}"
            ) from error
        raise AssertionError(f"{what}: raised {type(error).__name__}: {error}") from error


def _as_kind(exact: Any, dtype: Any) -> Any:
    """Numbers as a dtype wraps or cuts them."""
    if isinstance(exact, Unset):
        return exact
    kind = dtype_name(dtype)
    if kind in EPS:
        with np.errstate(over="ignore"):
            fits = kind in ("float16", "float32") and exact.dtype.kind == "f"
            return (
                np.where(np.abs(exact) > np.finfo(kind).max, exact.astype(kind), exact)
                if fits
                else exact
            )
    with np.errstate(invalid="ignore"):
        whole = (
            exact if exact.dtype == np.bool_ or exact.dtype.kind == "u" else exact.astype(np.int64)
        )
        return array(rabbet.tensor(whole).to(dtype))


def _inexact(result: str, dtype: str) -> str:
    """The dtype that decides the tolerance: the least exact of the result's and the argument's."""
    if result not in EPS:
        return result
    return max((d for d in (result, dtype) if d in EPS), key=lambda d: EPS[d])
