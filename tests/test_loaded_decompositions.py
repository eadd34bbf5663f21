"""A decomposition that is loaded inside the first call of its operator leaves what derivatives read as it was."""

import pytest
import rabbet
from library_ops import clean  # noqa: F401
from rabbet import _C, library


@pytest.mark.parametrize("times", [1, 2])
def test_a_derivative_reads_the_result_of_the_first_call(times):
    name = f"loaded{times}::root"

    def root(x):
        return x.sqrt()

    made = []

    def first(x):  # as core's loader does: the decomposition comes while the call runs
        if not made:
            made.append(_C.add_python_kernel(name, "decomp", root, "test"))
        return root(x)

    op = library.define(
        f"{name}(Tensor x) -> Tensor",
        fields={"kind": "opaque", "dtypes": "float", "dtype": "x", "shape": "x.shape"},
        vjp={"x": "grad / (2 * out)"},
    )
    library.impl(name, "cpu")(first)
    for _ in range(times):
        x = rabbet.tensor([4.0, 9.0], requires_grad=True)
        y = rabbet.op(name)(x) if op is None else op(x)
        y.sum().backward()
        assert x.grad.tolist() == pytest.approx([1 / 4, 1 / 6])
    assert made
