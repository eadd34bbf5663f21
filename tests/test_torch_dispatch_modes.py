"""Modes of __torch_dispatch__: how they nest, which calls they see, and how they are left."""

import threading

import pytest
import rabbet
from rabbet.utils._python_dispatch import (
    BaseTorchDispatchMode,
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _pop_mode_temporarily,
    _push_mode,
    is_in_torch_dispatch_mode,
)
from test_torch_dispatch import Log, _no_calls, matrix, names_of  # noqa: F401

aten = rabbet.ops.aten


def test_modes_nest_and_the_outer_one_sees_what_the_inner_one_calls():
    with Log() as outer:
        with Log() as inner:
            rabbet.ones(2)
        rabbet.zeros(2)
    assert inner.calls == ["aten.ones.default"]
    assert outer.calls == ["aten.ones.default", "aten.zeros.default"]


def test_a_mode_is_off_while_it_runs():
    class Twice(Log):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = super().__torch_dispatch__(func, types, args, kwargs)
            return rabbet.mul(result, 2) if func is aten.add.Tensor else result

    x = matrix()
    with Twice() as mode:
        assert (x + 1).tolist() == [[4.0, 6.0], [8.0, 10.0]]
    assert mode.calls == ["aten.add.Tensor"]


def test_a_mode_can_be_entered_twice():
    log = Log()
    with log, log:
        rabbet.ones(2)
    assert log.calls == ["aten.ones.default"] * 2
    with log:
        rabbet.ones(2)
    assert len(log.calls) == 3


def test_a_mode_sees_backward_and_the_calls_of_transforms():
    x, plain = matrix().requires_grad_(), matrix()
    calls = names_of(lambda: (x * x).sum().backward())
    assert (
        calls[:2] == ["aten.mul.Tensor", "aten.sum.default"] and calls.count("aten.mul.Tensor") == 3
    )
    assert names_of(lambda: rabbet.vmap(lambda a: a.sin())(plain)) == ["aten.sin.default"]


def test_modes_are_left_by_exceptions():
    class Failing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise ValueError("no")

    with pytest.raises(ValueError, match=r"^no$"), Log(), Failing():
        rabbet.ones(2)
    assert _get_current_dispatch_mode() is None and rabbet.ones(2).sum().item() == 2.0


def test_a_mode_belongs_to_its_thread():
    seen = []

    def other():
        seen.append(_get_current_dispatch_mode())
        rabbet.ones(2)

    with Log() as log:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [None] and log.calls == []


def test_modes_in_many_threads_at_once():
    counts = []

    def work():
        for _ in range(20):
            with Log() as log:
                (rabbet.ones(3) + 1).sum()
            counts.append(log.calls)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [["aten.ones.default", "aten.add.Tensor", "aten.sum.default"]] * 80


def test_the_stack_of_modes():
    first, second = Log(), BaseTorchDispatchMode()
    with first, second:
        assert _get_current_dispatch_mode() is second
        assert _get_current_dispatch_mode_stack() == [first, second]
        with _pop_mode_temporarily() as off:
            assert off is second and _get_current_dispatch_mode() is first
        with _disable_current_modes() as off:
            assert off == [second, first] and not is_in_torch_dispatch_mode()
            rabbet.ones(2)
        assert _get_current_dispatch_mode_stack() == [first, second]
    assert first.calls == []
    _push_mode(first)
    assert _pop_mode() is first
    with pytest.raises(RuntimeError, match="no mode of __torch_dispatch__"):
        _pop_mode()
    with pytest.raises(TypeError, match="expected a TorchDispatchMode, got int"):
        _push_mode(3)
    with pytest.warns(UserWarning, match="no longer necessary"):
        assert isinstance(Log.push(), Log)


def test_a_mode_that_defines_nothing_says_so():
    class Empty(TorchDispatchMode):
        pass

    with (
        pytest.raises(NotImplementedError, match="Empty does not define __torch_dispatch__"),
        Empty(),
    ):
        rabbet.ones(2)
