"""Operators of PyTorch's schemas with optional results, and with arguments that an exclamation mark alone marks."""

import pytest
import rabbet
from library_ops import clean  # noqa: F401


def above_op():
    rabbet.library.define("mine::above", "(Tensor x, float threshold=0.0) -> (Tensor, Tensor?)")
    outlier = rabbet.library.register_fake(
        "mine::above",
        lambda x, threshold=0.0: (
            rabbet.empty_like(x),
            rabbet.empty_like(x, dtype=rabbet.bool) if threshold else None,
        ),
    )
    assert callable(outlier)

    @rabbet.library.impl("mine::above", "cpu")
    def above(x, threshold=0.0):
        return x * 2, x > threshold if threshold else None

    return rabbet.ops.mine.above


def test_an_optional_result_is_a_tensor_or_none():
    above, x = above_op(), rabbet.arange(3.0)
    assert [r if r is None else r.tolist() for r in above(x)] == [[0, 2, 4], None]
    doubled, found = above(x, 1.5)
    assert doubled.tolist() == [0, 2, 4] and found.tolist() == [False, False, True]
    meta = rabbet.empty(3, device="meta")
    assert above(meta)[1] is None
    assert above(meta, 1.0)[1].dtype == rabbet.bool and above(meta, 1.0)[1].device.type == "meta"
    with pytest.raises(NotImplementedError, match="an argument requires grad"):
        above(x.requires_grad_())


@pytest.mark.filterwarnings("ignore:vmap. 'mine")
def test_an_optional_result_inside_vmap():
    above = above_op()
    rows = rabbet.arange(6.0).reshape(2, 3)
    assert rabbet.vmap(lambda x: above(x)[0])(rows).tolist() == (rows * 2).tolist()
    _, found = rabbet.vmap(lambda x: above(x, 1.5))(rows)
    assert found.tolist() == (rows > 1.5).tolist()
    seen = []

    def sometimes(x):
        seen.append(x)
        return (x * 2, None) if len(seen) == 1 else (x * 2, x.clone())

    rabbet.library.define("mine::sometimes", "(Tensor x) -> (Tensor, Tensor?)")
    rabbet.library.impl("mine::sometimes", "cpu", sometimes)
    with pytest.raises(RuntimeError, match="result 1 is None for 1 of 2 examples"):
        rabbet.vmap(lambda x: rabbet.ops.mine.sometimes(x)[0])(rows)


def test_wrong_optional_results_are_refused():
    x = rabbet.ones(2)
    for name, schema, result in [
        ("number", "(Tensor, Tensor?)", (x.clone(), 3)),
        ("single", "(Tensor, Tensor?)", 3),
        ("required", "(Tensor, Tensor)", (x.clone(), None)),
    ]:
        rabbet.library.define(f"mine::{name}", f"(Tensor x) -> {schema}")
        rabbet.library.impl(f"mine::{name}", "cpu", lambda x, result=result: result)
        with pytest.raises(TypeError, match=f"mine::{name}: the function must return"):
            getattr(rabbet.ops.mine, name)(x)
    with pytest.raises(NotImplementedError, match="rabbet has none that returns"):
        rabbet.library.define("mine::only", "(Tensor x) -> Tensor?")


def test_an_exclamation_mark_alone_says_that_an_argument_is_written():
    rabbet.library.define("mine::fill_both", "(Tensor x, Tensor! a, Tensor! b) -> ()")

    @rabbet.library.impl("mine::fill_both", "cpu")
    def fill_both(x, a, b):
        a.copy_(x)
        b.copy_(x + 1)

    a, b = rabbet.zeros(2), rabbet.zeros(2)
    assert rabbet.ops.mine.fill_both(rabbet.ones(2), a, b) is None
    assert (a.tolist(), b.tolist()) == ([1, 1], [2, 2]) and a._version and b._version
