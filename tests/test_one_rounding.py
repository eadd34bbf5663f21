"""Every record with a decomposition computes in float32 and rounds once for float16 and bfloat16 tensors."""

import importlib

import pytest
import rabbet
from rabbet import _C

examples = importlib.import_module("rabbet_testing.cases")
NARROW = [rabbet.float16, rabbet.bfloat16]

# Records whose results are others, with the reason.
OTHERS = {
    "nextafter": "the next number of the dtype itself",
    "einsum": "more than two operands are multiplied one after the other, as in PyTorch",
    "batch_norm_backward": "kernels read the moments that they are given, which the example rounds",
    "diff": "n differences are taken one after the other, as in PyTorch",
    **dict.fromkeys(["normal.tensors", "normal.means", "normal.stds"], "random numbers"),
}


def composites():
    """Records with a decomposition, but random ones."""
    for name in examples.op_names():
        info = _C.op_info(name)
        if info["has_decomp"] and info["kind"] != "random" and name not in OTHERS:
            yield name


def widened(value):
    """Arguments in float64."""
    if isinstance(value, rabbet.Tensor):
        return value.double() if value.dtype in NARROW else value
    if isinstance(value, (list, tuple)):
        return [widened(item) for item in value]
    return rabbet.float64 if value in NARROW else value


def results(found):
    if isinstance(found, rabbet.Tensor):
        return [found.detach()]
    return [part for item in found or () for part in results(item)]


def units(got, exact):
    """The largest distance in units of the last place; float32 may be off by 2e-6 of the largest number."""
    if not got.numel():
        return 0.0
    limits = rabbet.finfo(got.dtype)
    rounded = exact.to(got.dtype).double()
    got = got.double()
    finite = rounded.isfinite()
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    assert bool(same[~finite].all()), (got, exact)
    got, exact = got[finite], exact[finite]
    if not got.numel():
        return 0.0
    places = rabbet.floor(rabbet.log2(exact.abs().clamp(min=limits.smallest_normal)))
    slack = 2e-6 * exact.abs().amax().clamp(min=1)
    gap = ((got - exact).abs() - slack).clamp(min=0)
    return (gap / (2.0**places * limits.eps)).amax().item()


def test_the_derivative_of_sinc_is_rounded_once():
    x = rabbet.tensor([0.3, 1.7, 2.5, 12.5], dtype=rabbet.float64).bfloat16().double()
    for dtype in NARROW:
        narrow, wide = x.to(dtype).requires_grad_(), x.clone().requires_grad_()
        (got,) = rabbet.autograd.grad(rabbet.sinc(narrow).sum(), [narrow])
        (exact,) = rabbet.autograd.grad(rabbet.sinc(wide).sum(), [wide])
        assert units(got, exact) <= 0.51


def compare(case, call):
    args = [widened(value) for value in case.args]
    kwargs = {name: widened(value) for name, value in case.kwargs.items()}
    exact = results(rabbet.ops(case.op)(*args, **kwargs))
    for got, wanted in zip(results(call()), exact, strict=True):
        if got.dtype in NARROW and wanted.dtype is rabbet.float64:
            assert units(got, wanted) <= 0.51, (str(case), got, wanted)


@pytest.mark.parametrize("name", list(composites()))
def test_results_of_16_bits_are_those_of_float64_rounded_once(name):
    compared = 0
    for dtype in NARROW:
        for case in examples.cases(name, dtype):
            try:
                found = case.run()
            except (TypeError, NotImplementedError, ValueError):  # not defined for the dtype
                continue
            compared += 1
            compare(case, lambda found=found: found)
            op = _C.op(case.op)
            compare(case, lambda op=op, case=case: _C.decomposed(op, tuple(case.args), case.kwargs))
    if not compared:
        pytest.skip("not defined for 16 bits")
