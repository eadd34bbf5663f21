"""Is what a device computes right? Every case of an operator, in every form of call, against a reference.

The reference is the NumPy function that the record names, else the CPU's result, both in float64, complex128 or int64
from the very numbers that the device got. Tolerances follow from the dtype and the kind of the operator:
`|got - want| <= FACTOR[kind] * eps(dtype) * (1 + |want|)`; integers, bools and what only moves data are exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import rabbet
from rabbet import _C

from ..cases import Case, cases, writing_cases
from .calls import (
    REFUSALS,
    changed,
    first_line,
    moved,
    not_declared,
    refusing_kernel,
    results,
    skip_not_applicable,
    skip_not_declared,
    tensors,
)
from .numpy_references import numpy_reference

FACTOR = {"elementwise": 16, "movement": 0, "indexing": 16, "reduction": 32, "along": 32, "batched": 32,
          "composite": 64, "opaque": 64, "random": 64, "creation": 16}  # fmt: skip
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
       "complex64": 2.0**-23, "complex128": 2.0**-52}  # fmt: skip


def dtype_name(dtype: Any) -> str:
    """ "float32" of rabbet.float32."""
    return str(dtype).removeprefix("rabbet.")


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
    if dtype not in EPS:
        return not classes or "int" in classes or "real" in classes
    return not classes or ("complex" if dtype.startswith("complex") else "real") in classes


def wide(t: Any) -> Any:
    """The same numbers in float64, complex128 or int64; bools stay."""
    t = t.detach()
    if t.is_complex():
        return t.to(rabbet.complex128)
    if t.is_floating_point():
        return t.to(rabbet.float64)
    return t if t.dtype is rabbet.bool else t.to(rabbet.int64)


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
    """What the plugin declares may loosen, never tighten: {"OP": number or {"DTYPE": number}}."""

    def __init__(self, op: str, declared: dict[str, Any] | None = None) -> None:
        self.factor = FACTOR[_C.op_info(op)["kind"]]
        given = (declared or {}).get(op, {})
        self.given = given if isinstance(given, dict) else dict.fromkeys(EPS, given)

    def of(self, dtype: str) -> float:
        """Relative to 1 + |want|; 0: exact."""
        return max(self.factor * EPS.get(dtype, 0.0), float(self.given.get(dtype, 0.0)))


def difference(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], tolerance: float) -> str:
    """Where two arrays of one shape differ, or ""."""
    with np.errstate(invalid="ignore", over="ignore"):
        same = (got == want) | ((got != got) & (want != want))
        if tolerance:
            same |= np.abs(got - want) <= tolerance * (1 + np.abs(want))
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


def _strided(case: Case, device: str) -> Case:
    count = iter(range(1000))
    return changed(case, lambda t: with_strides(t, device, next(count) % 2 == 1))


def _target(like: Any, device: str) -> Any:
    """Memory to write a result to: on the device, with gaps."""
    return with_strides(rabbet.zeros(like.shape, dtype=like.dtype), device, False)


def has_out(name: str) -> bool:
    """Whether a call may be given the tensors to write to."""
    info = _C.op_info(name)
    views = info["view"] or info["maybe_view"] or info["returns_list"]
    return bool(info["function"] and not views and not any(p["mutated"] for p in info["params"]))


def _into(case: Case, likes: list[Any], device: str) -> list[Any]:
    out = [_target(t, device) for t in likes]
    rabbet.ops(case.op)(*case.args, **case.kwargs, out=out[0] if len(out) == 1 else tuple(out))
    return out


def _in_place(case: Case) -> list[Any]:
    base = _C.op_info(case.op)["base"]
    target = case.args[0]
    getattr(target, f"{base}_")(*case.args[1:], **case.kwargs)
    return [target]


def small(case: Case) -> Iterator[Case]:
    """The case without elements, and with tensors without dimensions, where that may make sense."""
    kind = _C.op_info(case.op)["kind"]
    given = tensors([case.args, list(case.kwargs.values())])
    if kind == "elementwise":
        for label, cut in (
            ("empty", lambda t: t.reshape(-1)[:0]),
            ("0-d", lambda t: t.reshape(-1)[0]),
        ):
            made = changed(case, cut)
            yield Case(made.op, made.args, made.kwargs, f"{case.label} {label}".strip())
    elif len(given) == 1 and given[0].ndim:
        made = changed(case, lambda t: t[:0])
        yield Case(made.op, made.args, made.kwargs, f"{case.label} empty".strip())


# ---- the judgement


def _drawn(op: str, dtype: Any) -> list[Case]:
    try:
        return [*cases(op, dtype), *writing_cases(op, dtype)]
    except REFUSALS:  # what the case is made of has no meaning in this dtype
        return []


class Judgement:
    """All cases of one operator in one dtype on one device.

    Attributes:
        notes: what is not offered, for the report.
        by_numpy: how many calls NumPy's function was the reference of.
    """

    def __init__(
        self, device: str, op: str, dtype: str, declared: dict[str, Any] | None = None
    ) -> None:
        self.device, self.op, self.dtype = device, op, dtype
        self.partial: dict[str, str] = (declared or {}).get("partial", {})
        self.tolerance = Tolerance(op, (declared or {}).get("tolerances"))
        self.random = _C.op_info(op)["kind"] == "random"
        self.passed, self.by_numpy, self.notes = 0, 0, list[str]()

    def run(self) -> list[str]:
        """Judge; skips where nothing is declared or there is nothing to judge, returns the notes."""
        applicable = False
        for case in _drawn(self.op, getattr(rabbet, self.dtype)):
            for one in (case, *small(case)):
                applicable |= self._judge(one)
        if not applicable:
            skip_not_applicable(f"the CPU takes no case of {self.op} in {self.dtype}")
        if not self.passed:
            skip_not_declared(self.notes[0])
        return sorted(set(self.notes))

    def _judge(self, case: Case) -> bool:
        """Whether there was something to judge."""
        try:
            rabbet.manual_seed(0)
            here: list[Any] | None = results(changed(case, lambda t: t.clone()))
        except NotImplementedError as error:
            if self.device.partition(":")[0] == "cpu" or self.random:
                return self._missing(case, error)
            here = None
        except REFUSALS:
            return False
        want = self._expected(case, here)
        if want is None:
            return False
        self._compare(case, "", here, want, lambda: results(moved(case, self.device)))
        if here is None or self.random or not self.passed:
            return True
        self._compare(case, "strided", here, want, lambda: results(_strided(case, self.device)))
        if has_out(self.op) and _taken(lambda: _into(case, here, "cpu")):
            there = moved(case, self.device)
            self._compare(case, "out=", here, want, lambda: _into(there, here, self.device))
        if _C.op_info(self.op)["inplace"] and _taken(
            lambda: _in_place(changed(case, lambda t: t.clone()))
        ):
            target = case.args[0].dtype
            kept = [here[0].to(target)] if here[0].dtype is not target else here
            there = moved(case, self.device)
            self._compare(case, "in place", kept, want, lambda: _in_place(there))
        return True

    def _expected(self, case: Case, here: list[Any] | None) -> list[np.ndarray[Any, Any]] | None:
        real = here is not None and any(t.is_floating_point() for t in here)
        if self.dtype == "bool" and real and _C.op_info(self.op)["has_decomp"]:
            return None  # whether its sums count or join is nowhere said
        if here is not None and (self.random or self._own_way(real)):
            return [array(t) for t in here]
        wider = changed(case, wide)
        if real and self.dtype not in EPS:  # numbers that an operator makes real
            kind = getattr(rabbet, self.dtype)
            wider = changed(case, lambda t: t.double() if t.dtype is kind else wide(t))
        want = self._by_numpy(wider, here)
        if want is not None:
            return want
        try:
            return [array(t) for t in results(changed(wider, lambda t: t.clone()))]
        except REFUSALS:
            return None if here is None else [array(t) for t in here]

    def _own_way(self, real: bool) -> bool:
        """Whether wider numbers would not give what the operator gives: steps that wrap or round, masks."""
        if self.dtype == "bool":
            return numpy_reference(self.op) is None
        whole = self.dtype not in EPS
        return (
            whole and _C.op_info(self.op)["has_decomp"] and (real or self.dtype.startswith("uint"))
        )

    def _by_numpy(self, case: Case, here: list[Any] | None) -> list[np.ndarray[Any, Any]] | None:
        reference = numpy_reference(self.op)
        if reference is None or here is None or len(here) != 1:
            return None
        try:
            args = [_arrays(a) for a in case.args]
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                want = np.asarray(
                    reference(*args, **{k: _arrays(v) for k, v in case.kwargs.items()})
                )
        except (TypeError, ValueError):  # NumPy has no such call
            return None
        if want.shape != tuple(here[0].shape):
            return None
        self.by_numpy += 1
        return [want]

    def _compare(
        self,
        case: Case,
        form: str,
        here: list[Any] | None,
        want: list[np.ndarray[Any, Any]],
        call: Callable[[], list[Any]],
    ) -> None:
        what = f"{case} in {self.dtype} on {self.device}" + (f", {form}" if form else "")
        try:
            rabbet.manual_seed(0)
            found = call()
        except Exception as error:
            self._missing(case, error, what)
            return
        assert len(found) == len(want), f"{what}: expected {len(want)} results, got {len(found)}"
        for k, (got, exact) in enumerate(zip(found, want, strict=True)):
            name = what if len(want) == 1 else f"{what}, result {k}"
            place = "cpu" if self.op == "to_device" else self.device.partition(":")[0]
            assert got.device.type == place, f"{name}: is on {got.device}, expected {place}"
            if here is not None:
                expected, shape = here[k].dtype, tuple(here[k].shape)
                assert got.dtype is expected, f"{name}: expected dtype {expected}, got {got.dtype}"
                assert tuple(got.shape) == shape, (
                    f"{name}: expected shape {shape}, got {tuple(got.shape)}"
                )
            kind = dtype_name(got.dtype)
            values = array(got)
            if kind not in EPS:  # as the result's dtype wraps or cuts
                with np.errstate(invalid="ignore"):
                    exact = array(rabbet.tensor(_whole(exact)).to(got.dtype))
            found_difference = difference(
                values, exact, self.tolerance.of(_inexact(kind, self.dtype))
            )
            assert not found_difference, f"{name}: {found_difference}"
        self.passed += 1

    def _missing(self, case: Case, error: Exception, what: str = "") -> bool:
        """A call that raised: not offered, declared as partial, or a failure."""
        if not_declared(error):
            self.notes.append(f"{case}: {first_line(error)}")
            return True
        kernel = refusing_kernel(error)
        refusing = kernel.split()[2] if kernel else ""
        if isinstance(error, NotImplementedError) and refusing in self.partial:
            self.notes.append(f"{case}: {refusing} is partial: {self.partial[refusing]}")
            return True
        if isinstance(error, NotImplementedError):
            raise AssertionError(
                f"{what}: the device declares {refusing} in this dtype, but its kernel refuses the call: {error}"
            ) from error
        raise AssertionError(f"{what}: raised {type(error).__name__}: {error}") from error


def _whole(exact: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return exact if exact.dtype == np.bool_ else exact.astype(np.int64)


def _inexact(result: str, dtype: str) -> str:
    """The dtype that decides the tolerance: the least exact of the result's and the argument's."""
    if result not in EPS:
        return result
    return max((d for d in (result, dtype) if d in EPS), key=lambda d: EPS[d])


def _arrays(value: Any) -> Any:
    if isinstance(value, rabbet.Tensor):
        return value.numpy()
    return [_arrays(v) for v in value] if isinstance(value, list) else value


def _taken(call: Callable[[], Any]) -> bool:
    """Whether the CPU has this form of call."""
    try:
        rabbet.manual_seed(0)
        call()
    except (*REFUSALS, AttributeError):
        return False
    return True
