"""Does an operator obey the autocast policy of its record: dtypes, values, gradients?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rabbet
from rabbet import _C

from ..cases import Case, cases
from ..compare import assert_close
from .calls import changed, moved, tensors
from .gradients import offered
from .reasons import Reason, skip
from .reference import declared_dtypes

LOW = {"bfloat16": rabbet.bfloat16, "float16": rabbet.float16}
EPSILON = {"bfloat16": 2**-8, "float16": 2**-11}


def policy_of(op: str) -> str:
    """ "low", "fp32", "promote" or "pass"."""
    return str(_C.op_info(op)["autocast"])


def floating(values: Any) -> list[Any]:
    """The floating tensors among values."""
    return [t for t in tensors(values) if t.is_floating_point()]


def results_of(result: Any) -> list[Any]:
    """The floating results of a call."""
    return floating([result] if isinstance(result, rabbet.Tensor) else list(result))


def converted(case: Case, dtype: Any) -> Case:
    """The same call with floating tensors of another dtype."""
    return changed(case, lambda t: t.detach().to(dtype) if t.is_floating_point() else t)


def names_dtype(case: Case) -> bool:
    """Whether an argument says in which dtype the result is, which no policy changes."""
    return any(isinstance(a, rabbet.dtype) for a in [*case.args, *case.kwargs.values()])


def with_dtypes(op: str, dtype: Any, device: str, seed: int = 0) -> Iterator[tuple[Case, Case]]:
    """Pairs of the same call in float32 and in another dtype."""
    for case in cases(op, rabbet.float32, seed):
        if case.smooth and not names_dtype(case):
            # Converted on the CPU: a device need not have a cast to this dtype.
            yield moved(case, device), moved(converted(case, dtype), device)


def _off(result: Any, exact: Any, factor: float, what: str) -> None:
    result, exact = result.detach().cpu().double(), exact.detach().cpu().double()
    error = (result - exact).abs().max().item() if result.numel() else 0.0
    size = exact.abs().max().item() if result.numel() else 0.0
    assert error <= factor * max(size, 1.0), f"{what}: off by {error:.3g} of {size:.3g}"


def _kind(device: str) -> str:
    return device.partition(":")[0]


def judge(op: str, low: str, device: str) -> None:
    """The operator under autocast to a low dtype, as its policy says."""
    policy = policy_of(op)
    check = {
        "low": _judge_low,
        "fp32": _judge_fp32,
        "promote": _judge_promote,
        "pass": _judge_pass,
    }.get(policy)
    if check is None:
        skip(Reason.NO_POLICY, f"{op} has the policy {policy}")
    if low not in declared_dtypes(device):
        skip(Reason.NO_KERNEL, f"{device} declares no {low}")
    with offered(op):
        check(op, low, device)


def _judge_low(op: str, low: str, device: str) -> None:
    for single, other in with_dtypes(
        op, LOW["float16" if low == "bfloat16" else "bfloat16"], device
    ):
        with rabbet.autocast(_kind(device), LOW[low]):
            results = [results_of(single.run()), results_of(other.run())]
        # As the record's rules say of tensors in the low dtype.
        kinds = [r.dtype for r in results_of(moved(converted(single, LOW[low]), "meta").run())]
        for got in results:
            for result, want in zip(got, kinds, strict=True):
                assert result.dtype == want, (
                    f"{single} under autocast: expected {want}, got {result.dtype}"
                )
        # Without autocast, by float64 from the same numbers.
        outside = results_of(converted(moved(single, "cpu"), rabbet.float64).run())
        for result, exact in zip(results[0], outside, strict=True):
            _off(result, exact, 24 * EPSILON[low], f"{single} under autocast to {low}")


def _judge_fp32(op: str, low: str, device: str) -> None:
    for single, case in with_dtypes(op, LOW[low], device):
        with rabbet.autocast(_kind(device), LOW[low]):
            results, unchanged = results_of(case.run()), results_of(single.run())
        for result, wanted in zip(
            results, results_of(converted(case, rabbet.float32).run()), strict=True
        ):
            assert result.dtype == rabbet.float32, (
                f"{case} under autocast: expected float32, got {result.dtype}"
            )
            assert_close(result.cpu(), wanted.cpu(), message=f"{case} under autocast")
        for result, wanted in zip(unchanged, results_of(single.run()), strict=True):
            same = result.dtype == rabbet.float32 and result.tolist() == wanted.tolist()
            assert same, f"{single} under autocast: float32 arguments give another result"


def _judge_promote(op: str, low: str, device: str) -> None:
    def dtypes(case: Case, *args: Any) -> set[Any]:
        return {r.dtype for r in results_of(case.run(*args))}

    for single, case in with_dtypes(op, LOW[low], device):
        with rabbet.autocast(_kind(device), LOW[low]):
            assert dtypes(case) == {LOW[low]}, (
                f"{case} under autocast: {low} arguments give {dtypes(case)}"
            )
            assert dtypes(single) == {rabbet.float32}, (
                f"{single} under autocast: float32 gives {dtypes(single)}"
            )
            mixed = [
                a if i else b for i, (a, b) in enumerate(zip(single.args, case.args, strict=True))
            ]
            if isinstance(single.args[0], list):
                mixed = [[single.args[0][0], *case.args[0][1:]], *single.args[1:]]
            if len(tensors(mixed)) > 1:
                wide = {rabbet.float32}
                assert dtypes(single, *mixed) == wide, (
                    f"{single} under autocast: mixed dtypes are not promoted"
                )


def outcome(case: Case) -> Any:
    """dtypes and values, or the kind of error."""
    rabbet.manual_seed(0)
    try:
        return [(r.dtype, str(r.tolist())) for r in results_of(case.run())]
    except (TypeError, ValueError, NotImplementedError) as error:  # not in this dtype
        return type(error)


def stands_alone(op: str) -> bool:
    """Whether it is more than a name for others, whose policies count, and draws no random numbers."""
    info = _C.op_info(op)
    made_of_others = info["kind"] == "composite" and info["has_decomp"] and not info["has_vjp"]
    return not made_of_others and info["kind"] != "random"


def _judge_pass(op: str, low: str, device: str) -> None:
    """An operator without a policy gives what it gives outside."""
    if not stands_alone(op):
        skip(Reason.NO_POLICY, f"{op} is made of others, whose policies count")
    for dtype in (rabbet.float32, LOW[low]):
        for _, case in with_dtypes(op, dtype, device):
            # Copies: some operators write their arguments.
            expected = outcome(moved(case, device))
            with rabbet.autocast(_kind(device), LOW[low]):
                given = outcome(moved(case, device))
                assert given == expected, f"{case} under autocast differs, without a policy"


def _gradients(case: Case, leaves: list[Any]) -> list[Any]:
    results = [
        rabbet.view_as_real(r) if r.is_complex() else r
        for r in tensors([case.run()])
        if r.requires_grad
    ]
    if not results:
        return [None] * len(leaves)
    zero = rabbet.zeros(()).to(leaves[0].device)
    total = sum(((r.float() * (i + 1)).sum() for i, r in enumerate(results)), zero)
    return list(rabbet.autograd.grad(total, leaves, allow_unused=True))


def judge_gradients(op: str, low: str, device: str) -> None:
    """Gradients through a policy have the dtype of the leaf, and the values of float32 but for rounding."""
    if policy_of(op) not in ("low", "fp32", "promote"):
        skip(Reason.NO_POLICY, f"{op} has no policy")
    if low not in declared_dtypes(device):
        skip(Reason.NO_KERNEL, f"{device} declares no {low}")
    with offered(op):
        for drawn in cases(op, rabbet.float32, requires_grad=True):
            if not names_dtype(drawn):
                _judge_gradients(moved(drawn, device), low, device)


def _judge_gradients(case: Case, low: str, device: str) -> None:
    leaves = [t for t in floating([*case.args, *case.kwargs.values()]) if t.requires_grad]
    if not leaves:
        return
    exact = _gradients(case, leaves)
    with rabbet.autocast(_kind(device), LOW[low]):
        got = _gradients(case, leaves)
    for leaf, gradient, wanted in zip(leaves, got, exact, strict=True):
        assert (gradient is None) == (wanted is None), str(case)
        if gradient is not None:
            what = f"gradient of {case} under autocast to {low}"
            assert gradient.dtype == leaf.dtype == rabbet.float32, (
                f"{what} has dtype {gradient.dtype}"
            )
            _off(gradient, wanted, 48 * EPSILON[low], what)
