"""Does a layer's composite tensor behave as the plain tensor whose values it has?

The plugin makes them: `make` of `rabbet_conformance_params("layer")`, see `Through`.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import rabbet
from rabbet import _C, composite

from ..cases import cases, differentiable_ops
from .calls import REFUSALS, first_line, shape_depends_on_data, tensors
from .layers import Through, compare, error_of, function_of, quietly, result_of, total
from .reasons import Reason, skip
from .reference import array, difference

# Of the tensors that are judged where no operator says it.
SHAPES = ((3, 4), (2, 8), (64,), (4, 64), (2, 3, 32), (2, 2, 4, 64), ())
ODD = (7, 5, 3, 2)  # fits nothing
THREADS, TURNS = 4, 40


def made(t: Through, x: Any) -> Any:
    """The layer's composite in place of `x`, or None where the plugin has none for it."""
    assert t.make is not None
    c = t.make(x.detach().clone())
    if c is None:
        return None
    assert isinstance(c, rabbet.Tensor) and composite.is_composite(c), (
        f"'make' of {t.name}: expected a composite tensor or None, got {type(c).__name__}"
    )
    owner = composite.layer(c)
    assert owner == t.name, f"'make' of {t.name}: the composite is of the layer {owner}"
    shown, given = (tuple(c.shape), c.dtype, c.device), (tuple(x.shape), x.dtype, x.device)
    assert shown == given, f"'make' of {t.name}: expected a tensor of {given}, got {shown}"
    return c


def values(c: Any, what: str) -> Any:
    """A plain tensor with the values of a composite; any other tensor itself."""
    v = composite.values(c)
    assert (tuple(v.shape), v.dtype) == (tuple(c.shape), c.dtype), (
        f"{what}: a tensor of {c.dtype} {tuple(c.shape)} has values of {v.dtype} {tuple(v.shape)}"
    )
    # Operators decide by them whether a result is a view.
    steps = [(a, b) for a, b, n in zip(c.stride(), v.stride(), c.shape, strict=True) if n > 1]
    assert all(a == b for a, b in steps) or not c.numel(), (
        f"{what}: it shows strides {c.stride()}, its values have {v.stride()}"
    )
    return v


def samples(t: Through) -> list[Any]:
    """Composites of several shapes, at least one."""
    found = []
    for shape in SHAPES:
        x = rabbet.linspace(-1.9, 2.1, math.prod(shape), dtype=getattr(rabbet, t.dtype))
        c = made(t, x.reshape(shape))
        if c is not None:
            found.append(c)
    assert found, f"'make' of {t.name} gives None for every one of {SHAPES}"
    return found


def _same(got: Any, want: Any, what: str) -> None:
    """Bit for bit."""
    got, want = values(got, what), values(want, what)
    assert (tuple(got.shape), got.dtype) == (tuple(want.shape), want.dtype), (
        f"{what}: expected {want.dtype} {tuple(want.shape)}, got {got.dtype} {tuple(got.shape)}"
    )
    found = difference(array(got), array(want), 0.0)
    assert not found, f"{what}: {found}"


def _refused(t: Through, op: str, error: Exception) -> bool:
    return isinstance(error, NotImplementedError) or op in (t.refuses or {})


# ---- operators


def _choices(t: Through, xs: list[Any]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The arguments with one of them as a composite, and with all of them; beside them the plain values."""
    there = [made(t, x) for x in xs]
    places = [i for i, c in enumerate(there) if c is not None]
    for use in [[i] for i in places] + ([places] if len(places) > 1 else []):
        given = [there[i] if i in use else x for i, x in enumerate(xs)]
        plain = [values(there[i], t.name) if i in use else x for i, x in enumerate(xs)]
        yield f"tensor {' and '.join(map(str, use))} a composite of {t.name}", given, plain


def judge_results(t: Through, op: str, inplace: bool = False) -> None:
    """A composite in place of any argument gives what its values give, or an error that says it is refused."""
    if inplace and not _C.op_info(op)["inplace"]:
        skip(Reason.NO_SUCH_FORM, f"{op} has no in-place form")
    judged, refused = 0, ""
    with quietly():
        for case in cases(op, getattr(rabbet, t.dtype)):
            f, xs = function_of(case, inplace)
            for told, given, plain in _choices(t, xs):
                want = result_of(f, [x.clone() for x in plain])
                if not want:
                    continue
                what = f"{case}, {told}" + (", in place" if inplace else "")
                try:
                    rabbet.manual_seed(0)
                    got = f(*given)
                except Exception as error:
                    assert _refused(t, op, error), (
                        f"{what}: raised {first_line(error)}, and nothing on its values"
                    )
                    refused = f"{what}: {first_line(error)}"
                    continue
                compare([values(r, what) for r in tensors(got)], want, t, what)
                judged += 1
                if not inplace and not _writes(op):
                    for i, (c, v) in enumerate(zip(given, plain, strict=True)):
                        _same(c, v, f"{what}: what it is given as tensor {i}, after the call")
    if judged:
        return
    if refused:
        skip(Reason.REFUSED_BY_LAYER, refused)
    skip(Reason.NO_EXAMPLE, f"{op} has no case with a tensor that 'make' takes")


def _writes(op: str) -> bool:
    return any(p["mutated"] for p in _C.op_info(op)["params"])


def judge_errors(t: Through, op: str) -> None:
    """A composite of a shape that does not fit is refused by an error of the kind that its values get."""
    if op in (t.lenient or {}):
        skip(Reason.REFUSED_BY_LAYER, f"{op} takes more: {(t.lenient or {})[op]}")
    with quietly():
        for case in cases(op, getattr(rabbet, t.dtype)):
            f, xs = function_of(case)
            odd = made(t, xs[0].new_zeros(ODD)) if xs else None
            if odd is None:
                continue
            want = error_of(partial(f, values(odd, t.name), *xs[1:]))
            if not isinstance(want, REFUSALS):
                continue
            got = error_of(partial(f, odd, *xs[1:]))
            what = f"{case} with a composite of {t.name} of shape {ODD}"
            assert got is not None, f"{what}: expected {first_line(want)}, got a result"
            assert isinstance(got, type(want)) or _refused(t, op, got), (
                f"{what}: expected {first_line(want)}, got {first_line(got)}"
            )
            return
    skip(Reason.NO_SUCH_FORM, f"{op} takes any shape, or 'make' none of {ODD}")


# ---- derivatives and batches


def judge_transforms(t: Through, op: str) -> None:
    """Gradients of a composite and of what stands beside it, and batches of both, are those on its values."""
    if op not in differentiable_ops():
        skip(Reason.NOT_DIFFERENTIABLE, f"{op} has no derivative")
    judged, refused = 0, ""
    loose = Through(t.name, changes="rounding" if t.changes == "nothing" else t.changes)
    with quietly():
        for case in cases(op, getattr(rabbet, t.dtype)):
            f, xs = function_of(case)
            if not result_of(f, [x.clone() for x in xs]):
                continue
            for name, i, c, transformed in _transforms(t, op, f, xs):
                what = f"{name} of {case}, tensor {i} a composite of {t.name}"
                want = result_of(transformed, [values(c, what)])
                if not want:
                    continue
                try:
                    rabbet.manual_seed(0)
                    got = transformed(c)
                except Exception as error:
                    assert _refused(t, op, error), (
                        f"{what}: raised {first_line(error)}, and nothing on its values"
                    )
                    refused = f"{what}: {first_line(error)}"
                    continue
                compare([values(r, what) for r in got], want, loose, what)
                judged += 1
            if judged or refused:
                break
    if judged:
        return
    if refused:
        skip(Reason.REFUSED_BY_LAYER, refused)
    skip(
        Reason.NOT_DIFFERENTIABLE,
        f"{op} has no case with a composite and something to differentiate",
    )


def _transforms(
    t: Through, op: str, f: Callable[..., Any], xs: list[Any]
) -> Iterator[tuple[str, int, Any, Callable[[Any], list[Any]]]]:
    """A name, the place of a composite, the composite, and a function of it or of its values.

    The function returns no tensor where there is nothing to differentiate.
    """
    from rabbet.func import grad, jvp, vmap

    floating = [j for j, x in enumerate(xs) if x.is_floating_point()]

    def loss(given: dict[int, Any]) -> Any:
        placed = [given.get(k, x) for k, x in enumerate(xs)]
        return total(f(*placed), xs[min(floating)].dtype)

    def backward(i: int, c: Any) -> list[Any]:
        leaf = c.detach().requires_grad_()
        result = loss({i: leaf})
        if not result.requires_grad:
            return []
        result.backward()
        return tensors([leaf.grad])

    def gradient(i: int, j: int, c: Any) -> list[Any]:
        return [grad(lambda x: loss({i: c, j: x}))(xs[j])]

    def tangent(i: int, j: int, c: Any) -> list[Any]:
        return list(jvp(lambda x: loss({i: c, j: x}), (xs[j],), (xs[j] * 0.5,)))

    def rows(i: int, j: int, c: Any) -> list[Any]:
        return [vmap(lambda x: loss({i: c, j: x}))(rabbet.stack([xs[j], xs[j] * 0.97]))]

    def rows_of_it(i: int, c: Any) -> list[Any]:
        return [vmap(lambda x: loss({i: x}))(c)]

    for i in floating:
        c = made(t, xs[i])
        if c is not None:
            yield "backward", i, c, partial(backward, i)
            others = [j for j in floating if j != i][:1]
            for j in others:
                yield f"grad with respect to tensor {j}", i, c, partial(gradient, i, j)
                yield f"jvp with respect to tensor {j}", i, c, partial(tangent, i, j)
            if not shape_depends_on_data(op):
                for j in others:
                    yield f"vmap over tensor {j}", i, c, partial(rows, i, j)
        both = (
            made(t, rabbet.stack([xs[i], xs[i] * 0.97])) if not shape_depends_on_data(op) else None
        )
        if both is not None:
            yield "vmap over it", i, both, partial(rows_of_it, i)


# ---- what core does for every composite


def judge_copies(t: Through) -> None:
    """Copies have the values, the layer and the blob of what is copied, and parts of their own."""
    for c in samples(t):
        moved = c.to("meta")
        assert moved.is_meta and composite.layer(moved) == t.name, (
            f"{t.name}: to('meta') gives {moved.device}, not a composite there"
        )
        copies = {
            "clone()": c.clone(),
            "copy.deepcopy": copy.deepcopy(c),
            "pickle": pickle.loads(pickle.dumps(c)),
            "save and load": _saved(c),
            "compose": composite.compose(
                _name(c), c.shape, c.dtype, composite.parts(c.clone()), composite.blob(c)
            ),
        }  # fmt: skip
        for how, other in copies.items():
            what = f"{how} of a composite of {t.name} of shape {tuple(c.shape)}"
            assert composite.is_composite(other) and composite.layer(other) == t.name, (
                f"{what}: expected another one, got {type(other).__name__}"
            )
            _same(other, c, what)
            assert composite.blob(other) == composite.blob(c), f"{what}: the blob differs"
            shared = _storages(other) & _storages(c)
            assert not shared, f"{what}: {len(shared)} parts share their memory"


def _name(c: Any) -> str:
    """What its layer's composites are called in files."""
    described = _C.composite(c)
    assert described is not None
    return str(described["name"])


def _saved(c: Any) -> Any:
    file = io.BytesIO()
    rabbet.save({"c": c}, file)
    file.seek(0)
    return rabbet.load(file)["c"]


def _storages(c: Any) -> set[int]:
    return {p._storage_id() for p in composite.parts(c) if p is not None and p.numel()}


def judge_writes(t: Through) -> None:
    """`copy_` of a composite gives its values and counts the write, which aliases see; or it is refused in words."""
    refused = ""
    for c in samples(t):
        what = f"copy_ to a composite of {t.name} of shape {tuple(c.shape)}"
        other = made(t, values(c, what) * -0.5)
        assert other is not None, f"'make' of {t.name} takes a tensor, and None of its half"
        seen, before = c.detach(), c._version
        _same(seen, c, "detach()")
        try:
            c.copy_(other)
        except NotImplementedError as error:
            refused = f"{what}: {first_line(error)}"
            assert c._version == before, f"{what}: refused, but counted as a write"
            continue
        _same(c, other, what)
        _same(seen, other, f"{what}, seen through detach()")
        assert c._version > before, f"{what}: the version is {before} before and after"
    if refused:
        skip(Reason.REFUSED_BY_LAYER, refused)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "a row": lambda x: x.select(0, 0),
    "some columns": lambda x: x.narrow(-1, 0, max(x.shape[-1] // 2, 1)),
    "two dimensions swapped": lambda x: x.transpose(0, -1),
    "a flat one": lambda x: x.view(-1),
    "one of several": lambda x: x.split(1)[-1],
    "a view of a view": lambda x: x.unsqueeze(0).squeeze(0),
}


def judge_views(t: Through) -> None:
    """A view and its base see each other's writes, which are counted; what is no view cannot be written."""
    judged, refused = 0, ""
    for c in samples(t):
        for name, view in VIEWS.items():
            what = f"{name} of a composite of {t.name} of shape {tuple(c.shape)}"
            if not c.ndim:
                continue
            base = c.clone()
            try:
                v = view(base)
                _same(v, view(values(base, what)), what)
                for told, target in (("the view", v), ("the base", base)):
                    count = base._version
                    if v._base is not base and target is v:
                        _must_be_read_only(v, what)
                        break
                    if not _overwrite(t, target):
                        refused = f"{what}: no write to {told} is supported"
                        continue
                    _same(view(base), v, f"{what}: the view and a new one, after a write to {told}")
                    assert base._version > count, f"{what}: the version is {count} before and after"
                judged += 1
            except NotImplementedError as error:
                refused = f"{what}: {first_line(error)}"
    if not judged:
        skip(Reason.REFUSED_BY_LAYER, refused)


def _overwrite(t: Through, target: Any) -> bool:
    """Write other values to a composite; False where the layer refuses."""
    other = made(t, values(target, t.name) * -0.5)
    writes: list[Callable[[], Any]] = [lambda: target.copy_(other), lambda: target.mul_(-0.5)]
    for write in writes:
        try:
            write()
            return True
        except NotImplementedError:
            continue
    return False


def _must_be_read_only(v: Any, what: str) -> None:
    try:
        v.mul_(2)
    except (RuntimeError, NotImplementedError):
        return
    raise AssertionError(f"{what}: it is no view, and a write to it is lost")


def judge_reading(t: Through) -> None:
    """Whoever reads gets the values, as copies; printing works without them too."""
    for c in samples(t):
        what = f"a composite of {t.name} of shape {tuple(c.shape)}"
        assert repr(c), f"repr of {what} is empty"
        v = values(c, what).clone()
        assert c.tolist() == v.tolist(), f"tolist() of {what} gives other values"
        array_of, view = c.numpy(), memoryview(c)
        assert not array_of.flags.writeable, f"numpy() of {what} can be written to"
        assert view.readonly, f"memoryview of {what} can be written to"
        for how, read in (("numpy()", array_of.tolist()), ("memoryview", view.tolist())):
            assert read == v.tolist(), f"{how} of {what} gives other values"
        rabbet.from_dlpack(c).zero_()
        composite.values(c).zero_()
        _same(c, v, f"{what}, after its values were taken and overwritten")
        for plain in (rabbet.zeros_like(c), rabbet.empty_like(c), c.new_ones((2,))):
            assert not composite.is_composite(plain), f"creation after {what} gives a composite"


def judge_threads(t: Through) -> None:
    """Composites made and used in several threads at once give what they give in one."""

    def work() -> list[Any]:
        found = samples(t)
        return [r for c in found for r in (values(c, t.name) * 2, values(c.clone(), t.name).sum())]

    want, results, errors = work(), list[list[Any]](), list[Exception]()

    def run() -> None:
        try:
            results.extend(work() for _ in range(TURNS))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, f"{t.name}: in several threads: {first_line(errors[0])}"
    for found in results:
        for got, expected in zip(found, want, strict=True):
            _same(got, expected, f"composites of {t.name} in {THREADS} threads")


def judge_leaks(t: Through) -> None:
    """Nothing is left of composites that were used and dropped."""

    def use() -> None:
        for c in samples(t):
            other = pickle.loads(pickle.dumps(c.clone().detach()))
            error_of(partial(c.copy_, other))
            error_of(partial(rabbet.add, c, 1))
            error_of(partial(rabbet.add, c, 1, out=other))
            values(c.to("cpu"), t.name), repr(c)

    for _ in range(3):
        use()
    before = _C.live_counts()["tensors"]
    for _ in range(TURNS):
        use()
    left = _C.live_counts()["tensors"] - before
    assert left <= 0, f"{t.name}: {TURNS} uses of composites leave {left} tensors"


# ---- what a file may hold


def damages(c: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Arguments of `compose` that are not those of a sound composite, and what is wrong with them."""
    name, shape, dtype = _name(c), tuple(c.shape), c.dtype
    parts, blob = composite.parts(c), composite.blob(c)
    other = rabbet.int16 if dtype is not rabbet.int16 else rabbet.int64
    yield "without its parts", (name, shape, dtype, (), blob)
    yield "with a part more", (name, shape, dtype, (*parts, *parts[:1]), blob)
    yield "of another shape", (name, (*shape, 3), dtype, parts, blob)
    yield "of a longer shape", (name, tuple(n + 1 for n in shape) or (5,), dtype, parts, blob)
    yield "of another dtype", (name, shape, other, parts, blob)
    for size in sorted({0, len(blob) // 2, max(len(blob) - 1, 0)}):
        if size < len(blob):
            yield f"with {size} bytes of its blob", (name, shape, dtype, parts, blob[:size])
    if blob:
        yield "with a blob of ones", (name, shape, dtype, parts, b"\xff" * len(blob))
        yield "with a blob of zeros", (name, shape, dtype, parts, bytes(len(blob)))
    for i, part in enumerate(parts):
        for what, odd in _odd_parts(part):
            yield f"with part {i} {what}", (name, shape, dtype, (*parts[:i], odd, *parts[i + 1 :]), blob)  # fmt: skip


def _odd_parts(part: Any) -> Iterator[tuple[str, Any]]:
    if part is None:
        yield "present", rabbet.zeros(3)
        return
    yield "missing", None
    yield "empty", part.new_empty((0,))
    yield "without dimensions", part.new_zeros(())
    yield "of one dimension more", part.unsqueeze(0)
    yield (
        "of another dtype",
        part.to(rabbet.int16 if part.dtype is not rabbet.int16 else rabbet.int8),
    )
    if part.numel() > 1:
        yield "cut short", part.flatten()[: part.numel() // 2].clone()
    if not part.dtype.is_floating_point and not part.dtype.is_complex:
        yield "of large numbers", part | 0x7F


def probe_damage(t: Through, step: Callable[[str], None]) -> list[str]:
    """Damaged composites are refused by an error, or have values of the shape that they show; run in a process of its own."""
    findings = []
    for c in samples(t):
        for what, given in damages(c):
            step(f"compose {t.name} of shape {tuple(c.shape)} {what}")
            try:
                got = composite.compose(*given)
            except Exception as error:
                if not isinstance(error, (*REFUSALS, RuntimeError)) or not str(error):
                    findings.append(f"a composite {what} raises {first_line(error)}")
                continue
            step(f"use {t.name} of shape {tuple(c.shape)} {what}")
            v = error_or(partial(composite.values, got))
            if isinstance(v, rabbet.Tensor):
                shown = tuple(v.shape) == tuple(got.shape) and v.dtype is got.dtype
                if not shown:
                    findings.append(
                        f"a composite {what} is accepted; it shows {got.dtype} {tuple(got.shape)}, "
                        f"its values are {v.dtype} {tuple(v.shape)}"
                    )
            error_or(partial(repr, got))
            error_or(partial(rabbet.add, got, 1))
    return findings[:20]


def error_or(call: Callable[[], Any]) -> Any:
    """What a call returns, or the exception that it raises."""
    try:
        return call()
    except Exception as error:
        return error
