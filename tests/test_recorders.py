"""Modes that record calls as core makes them, and that are asked before values are read."""

import threading

import numpy
import pytest
import rabbet
from rabbet import _C
from rabbet.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Keeps (record, arguments, tensors to write) of each call."""

    def __init__(self, refuse=False):
        super().__init__()
        self.calls, self.reads, self.refuse = [], [], refuse

    def __record_dispatch__(self, name, args, outs):
        self.calls.append((name, args, outs))
        returned = _C.call_record(name, args, outs)
        rets = _C.op_info(name)["rets"]
        if outs is not None or not rets:
            return ()
        return tuple(returned) if len(rets) > 1 else (returned,)

    def __read_dispatch__(self, tensor, what):
        self.reads.append((what, tuple(tensor.shape)))
        if self.refuse:
            raise ValueError(f"refused: {what}")

    def __torch_dispatch__(self, *args, **kwargs):
        raise AssertionError("calls go to __record_dispatch__")

    @property
    def names(self):
        return [name for name, _, _ in self.calls]


def test_calls_come_as_core_makes_them():
    x = rabbet.arange(6.0).reshape(2, 3)
    with Recorder() as recorder:
        values, indices = x.max(dim=1)
        parts = x.split(1)
        x.add_(1)
        rabbet.mul(x, 2, out=values.new_empty(2, 3))
    assert recorder.names == ["max.dim", "split", "add", "empty", "mul"]
    _, args, outs = recorder.calls[2]
    assert args == (x, 1, 1) and outs == (x,)
    assert values.tolist() == [2, 5] and indices.tolist() == [2, 2] and len(parts) == 2
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_recorders_nest():
    outer, inner = Recorder(), Recorder()
    with outer, inner:
        rabbet.ones(2).sin()
    assert inner.names == outer.names == ["ones", "sin"]


def test_derivatives_come_as_single_calls_to_recorders_only():
    def gradient():
        x = rabbet.full((4,), 0.3, dtype=rabbet.bfloat16).requires_grad_()
        return rabbet.autograd.grad(x.exp().sum(), x)[0]

    wanted = gradient()
    with Recorder() as recorder:
        found = gradient()
    assert "exp.vjp.input" in recorder.names
    assert rabbet.equal(found, wanted)
    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    with Log():
        gradient()
    assert seen[-1] == "aten::mul.Tensor" and not any("vjp" in name for name in seen)


READS = {
    "item()": lambda x: x[0].item(),
    "tolist()": lambda x: x.tolist(),
    "the truth value": lambda x: bool(x[0] > 0),
    "float()": lambda x: float(x[0]),
    "int()": lambda x: int(x[0]),
    "buffer": lambda x: numpy.asarray(x),
    "__dlpack__": lambda x: x.__dlpack__(),
    "data_ptr()": lambda x: x.data_ptr(),
}


@pytest.mark.parametrize("what", READS)
def test_reads_are_asked_for_and_may_be_refused(what):
    x = rabbet.ones(3)
    with Recorder() as recorder:
        READS[what](x)
    assert recorder.reads[0][0] == what
    with pytest.raises((ValueError, BufferError), match="refused"), Recorder(refuse=True):
        READS[what](x)
    READS[what](x)  # outside of the mode nobody is asked


def test_other_threads_are_not_asked():
    x, found = rabbet.ones(3), []
    with Recorder(refuse=True) as recorder:
        thread = threading.Thread(target=lambda: found.append(x.tolist()))
        thread.start()
        thread.join()
    assert found == [[1, 1, 1]] and not recorder.reads


def test_a_generator_is_the_object_that_was_passed():
    generator = rabbet.Generator()
    with Recorder() as recorder:
        rabbet.rand(2, generator=generator)
    assert recorder.calls[0][1][1] is generator
    default = _C.default_generator("cpu")
    with Recorder() as recorder:
        rabbet.rand(2, generator=default)
    assert recorder.calls[0][1][1].initial_seed() == default.initial_seed()


@pytest.mark.parametrize(
    "args, error, message",
    [
        (("no_such", ()), KeyError, "no operator 'no_such'"),
        (("sin.vjp.other", ()), KeyError, r"no operator 'sin\.vjp\.other'"),
        (("add", (1,)), TypeError, "add: expected an argument for each of the 3 parameters of add"),
        (("sin", ("x",)), TypeError, "input"),
        (("sin", (rabbet.ones(2),), ()), TypeError, "sin: expected 1 tensors to write, got 0"),
        (("sin", (rabbet.ones(2),), (3,)), TypeError, "sin: expected a Tensor to write, got int"),
        (("matmul", (rabbet.ones(2, 3), rabbet.ones(2, 3))), RuntimeError, "matmul"),
    ],
)
def test_call_record_names_what_is_wrong(args, error, message):
    with pytest.raises(error, match=message):
        _C.call_record(*args)
