"""Every operator with a reference against it, in float64, and in float32 with its tolerance."""

import importlib

import numpy as np
import pytest
import rabbet
from rabbet import _C
from rabbet_testing import assert_close, cases

WITH_REFERENCE = [
    n for n in _C.record_names() if _C.op_info(n)["ref"] and _C.op_info(n)["kind"] != "creation"
]
# Where NumPy's function takes its arguments in another form.
ADAPTED = {
    "transpose": lambda x, dims: np.transpose(x, dims),
    "unsqueeze": np.expand_dims,
    "gather": lambda x, dim, index: np.take_along_axis(x, index, dim),
    "index_select": lambda x, dim, index: np.take(x, index, dim),
    "cat": lambda xs, dim=0: np.concatenate(xs, dim),
    "stack": lambda xs, dim=0: np.stack(xs, dim),
    "var": lambda x, dim=None, correction=1, keepdim=False: np.var(
        x, _axis(dim), ddof=correction, keepdims=keepdim
    ),
    "std": lambda x, dim=None, correction=1, keepdim=False: np.std(
        x, _axis(dim), ddof=correction, keepdims=keepdim
    ),
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    "roll": lambda x, shifts, dims: np.roll(x, shifts, dims),
    "clamp": lambda x, min=None, max=None: np.clip(x, min, max),
    "searchsorted": lambda s, x: np.searchsorted(s, x),
    "repeat": lambda x, repeats: np.tile(x, repeats),
    "diagonal": lambda x, offset: np.diagonal(x, offset),
    "movedim": lambda x, a, b: np.moveaxis(x, a, b),
    "round": lambda x: np.round(x),
    "prod.dim": lambda x, dim: np.prod(x, dim),
    "angle": np.angle,
    "logsumexp": lambda x, dim: np.log(np.exp(x).sum(tuple(dim))),
    "count_nonzero": lambda x, dim=None: np.count_nonzero(x, _axis(dim)),
    "tril": np.tril,
    "triu": np.triu,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "permute": lambda x, dims: np.transpose(x, dims),
    "argsort": lambda x: np.argsort(x, -1, kind="stable"),
}
INTEGER_ONLY = {n for n in WITH_REFERENCE if _C.op_info(n)["accepts"] == "int"}


def _axis(dim):
    return tuple(dim) if isinstance(dim, list) else dim


def _reference(name):
    if name in ADAPTED:
        return ADAPTED[name]
    module, function = _C.op_info(name)["ref"].rsplit(".", 1)
    found = getattr(importlib.import_module(module), function)
    info = _C.op_info(name)
    if info["kind"] in ("reduction", "along"):

        def along(x, dim=None, keepdim=None):
            kwargs = {} if keepdim is None else {"keepdims": keepdim}
            return found(x, axis=_axis(dim), **kwargs)

        return along
    return found


def _numpy(value):
    if isinstance(value, rabbet.Tensor):
        return value.numpy()
    return [_numpy(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.float32], ids=str)
@pytest.mark.parametrize("name", [n for n in WITH_REFERENCE if n not in INTEGER_ONLY])
def test_operator_matches_its_reference(name, dtype):
    reference = _reference(name)
    for case in cases(name, dtype):
        want = reference(*map(_numpy, case.args), **{k: _numpy(v) for k, v in case.kwargs.items()})
        got = case.run()
        assert_close(got, want.astype(got.numpy().dtype), message=str(case))


@pytest.mark.parametrize("name", sorted(INTEGER_ONLY))
def test_integer_operator_matches_its_reference(name):
    a, b = np.array([5, -3, 12, 0, 7]), np.array([1, 2, 3, 1, 0])
    arity = sum(p["type"] == "Tensor" for p in _C.op_info(name)["params"])
    got = rabbet.ops(name)(*map(rabbet.tensor, (a, b)[:arity]))
    assert got.tolist() == _reference(name)(*(a, b)[:arity]).tolist()
