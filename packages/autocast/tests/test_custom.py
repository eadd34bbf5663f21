"""custom_fwd and custom_bwd: a Function that knows the autocast state."""

import pytest
import rabbet
from rabbet import amp


def make(cast_inputs=None, device_type="cpu"):
    class Product(rabbet.autograd.Function):
        seen: list = []

        @staticmethod
        @amp.custom_fwd(device_type=device_type, cast_inputs=cast_inputs)
        def forward(ctx, a, b, extra=None):
            ctx.save_for_backward(a, b)
            Product.seen.append(("forward", rabbet.is_autocast_enabled("cpu"), a.dtype))
            return a @ b

        @staticmethod
        @amp.custom_bwd(device_type=device_type)
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            result = g @ b.t(), a.t() @ g, None
            Product.seen.append(("backward", rabbet.is_autocast_enabled("cpu"), result[0].dtype))
            return result

    return Product


def run(function, dtype=None):
    a, b = (rabbet.ones(2, 2, requires_grad=True) for _ in range(2))
    with rabbet.autocast("cpu", dtype):
        y = function.apply(a, b)
        assert rabbet.is_autocast_enabled("cpu")
    y.sum().backward()
    assert a.grad.dtype == b.grad.dtype == rabbet.float32
    assert a.grad.tolist() == [[2, 2], [2, 2]]
    assert not rabbet.is_autocast_enabled("cpu")
    return y, function.seen


@pytest.mark.parametrize("dtype", [rabbet.bfloat16, rabbet.float16])
def test_backward_runs_as_forward_did(dtype):
    y, seen = run(make(), dtype)
    assert y.dtype == dtype
    assert seen == [("forward", True, rabbet.float32), ("backward", True, dtype)]


def test_inputs_are_cast_and_forward_runs_without():
    y, seen = run(make(rabbet.float32))
    assert y.dtype == rabbet.float32
    assert seen == [("forward", False, rabbet.float32), ("backward", False, rabbet.float32)]
    y, seen = run(make(rabbet.bfloat16))
    assert y.dtype == rabbet.bfloat16 and seen[0] == ("forward", False, rabbet.bfloat16)


def test_outside_a_region_nothing_happens():
    function = make(rabbet.bfloat16)
    a = rabbet.ones(2, 2, requires_grad=True)
    y = function.apply(a, a)
    y.sum().backward()
    assert y.dtype == rabbet.float32 and function.seen[1] == ("backward", False, rabbet.float32)


def test_containers_are_cast():
    seen = {}

    @amp.custom_fwd(device_type="cpu", cast_inputs=rabbet.bfloat16)
    def forward(ctx, *args, **kwargs):
        seen.update(args=args, kwargs=kwargs)

    class Context:
        pass

    import numpy

    x, exact, array = rabbet.ones(1), rabbet.ones(1, dtype=rabbet.float64), numpy.ones(1)
    with rabbet.autocast("cpu"):
        forward(Context(), [x, (x, "name")], {"k": x}, exact, array, rabbet.ones(1).int(), 3, key=x)
    (pair, mapping, kept, same, whole, number), low = seen["args"], rabbet.bfloat16
    assert pair[0].dtype == pair[1][0].dtype == mapping["k"].dtype == low and pair[1][1] == "name"
    assert kept is exact and same is array and whole.dtype == rabbet.int32 and number == 3
    assert seen["kwargs"]["key"].dtype == low


@pytest.mark.parametrize("make", [amp.custom_fwd, amp.custom_bwd])
def test_bad_input(make):
    with pytest.raises(ValueError, match="`device_type` of type `str`"):
        make(device_type=3)
    with pytest.raises(TypeError):
        make(lambda ctx: None)
