"""Every record, batched in every way: vmap is the loop."""

import warnings

import pytest
import rabbet
from batching import Batched, choices
from rabbet.vmap import _C
from rabbet_testing.cases import cases, differentiable_ops, op_names

DATA_DEPENDENT = {"nonzero", "masked_select", "mask_indices"}
OPS = [name for name in op_names() if name not in DATA_DEPENDENT]


@pytest.mark.parametrize("name", OPS)
def test_vmap_is_the_loop(name):
    for case in cases(name):
        for dims in choices(case):
            Batched(case, dims).check()


@pytest.mark.parametrize(
    "name", ["add", "mul", "sum", "matmul", "conj", "cumprod", "prod.dim", "linear"]
)
def test_complex_numbers(name):
    for case in cases(name, rabbet.complex128):
        for dims in choices(case):
            Batched(case, dims).check()


def routes() -> dict[str, int]:
    """How each operator with cases was batched, over all ways to batch it."""
    found = {}
    for name in OPS:
        _C.record_routes(True)
        for case in cases(name):
            for dims in choices(case):
                Batched(case, dims).mapped()()
        found[name] = _C.routes().get(name, 0)
    _C.record_routes(False)
    return found


def test_few_operators_run_example_by_example(capsys):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "vmap: ", UserWarning)
        found = routes()
    tested = {n: r for n, r in found.items() if r}
    slow = {n for n, r in tested.items() if r & _C.LOOP}
    differentiable = set(differentiable_ops()) & tested.keys()
    with capsys.disabled():
        rules = sum(bool(r & _C.RULE) for r in tested.values())
        decompositions = sum(r & _C.DECOMPOSITION == r for r in tested.values())
        print(
            f"\nvmap: of {len(tested)} operators {rules} have a rule, {decompositions} their "
            f"decomposition, {len(slow)} a loop: {sorted(slow)}"
        )
    assert len(slow & differentiable) < 0.05 * len(differentiable), sorted(slow & differentiable)
