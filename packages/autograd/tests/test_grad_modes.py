"""Grad modes as context managers and decorators, of functions of all kinds."""

import asyncio
import inspect

import pytest
import rabbet
from rabbet.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

OFF = {
    "no_grad": no_grad,
    "no_grad()": no_grad(),
    "set_grad_enabled": lambda f: set_grad_enabled(False)(f),
    "inference_mode": inference_mode,
    "inference_mode()": inference_mode(),
}


@pytest.fixture(params=OFF)
def off(request):
    yield OFF[request.param]
    assert is_grad_enabled() and not is_inference_mode_enabled()


def test_a_decorated_function_runs_in_the_mode(off):
    @off
    def f(x, *, y=2):
        """What it says."""
        return is_grad_enabled(), x + y

    assert f(1) == (False, 3) and f(1, y=5) == (False, 6)
    assert f.__name__ == "f" and f.__doc__ == "What it says."
    assert is_grad_enabled()


def test_recursion_and_an_exception_restore_the_mode(off):
    @off
    def f(n):
        if n == 0:
            raise ZeroDivisionError
        with enable_grad():
            f(n - 1)

    with pytest.raises(ZeroDivisionError):
        f(3)


def test_a_generator_is_in_the_mode_while_it_runs(off):
    @off
    def steps():
        got = yield is_grad_enabled()
        try:
            yield got, is_grad_enabled()
        except KeyError as error:
            yield error.args[0], is_grad_enabled()
        return is_grad_enabled()

    assert inspect.isgeneratorfunction(steps)
    g = steps()
    assert next(g) is False and is_grad_enabled()
    assert g.send(7) == (7, False) and is_grad_enabled()
    assert g.throw(KeyError("k")) == ("k", False) and is_grad_enabled()
    with pytest.raises(StopIteration) as stop:
        next(g)
    assert stop.value.value is False


def test_closing_a_generator_runs_its_end_in_the_mode(off):
    seen = []

    @off
    def steps():
        try:
            yield 1
        finally:
            seen.append(is_grad_enabled())

    g = steps()
    next(g)
    g.close()
    assert seen == [False]


def test_a_generator_that_raises_does_so_outside(off):
    @off
    def steps():
        yield 1
        raise KeyError("end")

    g = steps()
    next(g)
    with pytest.raises(KeyError, match="end"):
        next(g)


def test_a_coroutine_is_in_the_mode_and_others_are_not(off):
    @off
    async def inside():
        seen = [is_grad_enabled()]
        for _ in range(2):
            await asyncio.sleep(0)
            seen.append(is_grad_enabled())
        return seen

    async def outside():
        seen = []
        for _ in range(3):
            seen.append(is_grad_enabled())
            await asyncio.sleep(0)
        return seen

    async def both():
        return await asyncio.gather(inside(), outside())

    assert inspect.iscoroutinefunction(inside)
    assert asyncio.run(both()) == [[False] * 3, [True] * 3]


def test_cancelling_a_coroutine_reaches_it_in_the_mode(off):
    seen = []

    @off
    async def inside():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(is_grad_enabled())
            raise

    async def cancel():
        task = asyncio.create_task(inside())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert seen == [False]


def test_an_asynchronous_generator_is_in_the_mode_while_it_runs(off):
    seen = []

    @off
    async def steps():
        try:
            got = yield is_grad_enabled()
            await asyncio.sleep(0)
            try:
                yield got, is_grad_enabled()
            except KeyError:
                yield "caught", is_grad_enabled()
        finally:
            seen.append(is_grad_enabled())

    async def drive():
        g = steps()
        found = [await anext(g), is_grad_enabled(), await g.asend(7), await g.athrow(KeyError())]
        with pytest.raises(StopAsyncIteration):
            await anext(g)
        other = steps()
        await anext(other)
        await other.aclose()
        return found

    assert inspect.isasyncgenfunction(steps)
    assert asyncio.run(drive()) == [False, True, (7, False), ("caught", False)]
    assert seen == [False, False]


def test_a_class_is_decorated_with_a_warning(off):
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):

        @off
        class Model:
            def __init__(self):
                self.made = is_grad_enabled()

            def call(self):
                return is_grad_enabled()

    model = Model()
    assert (model.made, model.call()) == (False, True)


def test_one_instance_can_be_entered_again_and_again():
    mode, seen = no_grad(), []
    with mode:
        with enable_grad():
            with mode:
                seen.append(is_grad_enabled())
            seen.append(is_grad_enabled())
        seen.append(is_grad_enabled())
    assert seen == [False, True, False] and is_grad_enabled()


def test_set_grad_enabled_is_a_function_too():
    mode = set_grad_enabled(mode=False)
    assert not is_grad_enabled() and mode.mode is False
    assert repr(mode) == "rabbet.autograd.grad_mode.set_grad_enabled(mode=False)"
    set_grad_enabled(True)
    assert is_grad_enabled()
    with set_grad_enabled(False):
        assert not is_grad_enabled()
    assert is_grad_enabled()


@pytest.mark.parametrize("value", [None, "a", 1, rabbet.ones(1)])
def test_set_grad_enabled_wants_a_bool(value):
    with pytest.raises(TypeError, match=r"argument 'enabled' .* must be bool, not"):
        set_grad_enabled(value)
    assert is_grad_enabled()


def test_a_view_of_an_inference_tensor_is_one():
    with inference_mode():
        base = rabbet.ones(2, 3)
    for view in (base[0], base.view(6), base.t(), base.detach()):
        assert view.is_inference()
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            view.add_(1)
    weight = rabbet.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        (base[0] * weight).sum().backward()
    with inference_mode():
        base[0].add_(1)
    assert base.tolist() == [[2, 2, 2], [1, 1, 1]]


def test_a_view_made_in_inference_mode_of_a_normal_tensor_is_normal():
    x = rabbet.ones(2, 2)
    with inference_mode():
        view = x[0]
    assert not view.is_inference()
    assert (view * rabbet.ones(2, requires_grad=True)).requires_grad
