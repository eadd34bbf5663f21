"""Futures: results that come later, chains, callbacks, several together."""

import threading

import pytest
import rabbet
from rabbet.futures import Future, collect_all, wait_all


def test_a_result_from_another_thread_is_waited_for():
    future = Future()
    assert not future.done()
    timer = threading.Timer(0.02, future.set_result, (rabbet.ones(2),))
    timer.start()
    assert future.wait().tolist() == [1, 1] and future.done() and future.value().shape == (2,)
    assert rabbet.Future is Future and Future[int].__origin__ is Future
    timer.join()


def test_callbacks_run_in_order_and_chains_pass_results_and_errors_on():
    future, seen = Future(), []
    doubled = future.then(lambda f: f.wait() * 2)
    failed = doubled.then(lambda f: 1 / 0)
    after = failed.then(lambda f: f.wait())
    future.add_done_callback(lambda f: seen.append(f.value()))
    assert not doubled.done() and seen == []
    future.set_result(21)
    assert doubled.wait() == 42 and seen == [21]
    for broken in (failed, after):
        with pytest.raises(ZeroDivisionError):
            broken.wait()
    assert future.then(lambda f: "at once").wait() == "at once"


def test_the_exception_of_a_callback_is_printed_and_the_rest_goes_on(capsys):
    future, seen = Future(), []
    future.add_done_callback(lambda f: 1 / 0)
    future.add_done_callback(seen.append)
    future.set_result(1)
    assert seen == [future] and "ZeroDivisionError" in capsys.readouterr().err


def test_several_futures_are_done_when_all_are():
    futures = [Future() for _ in range(3)]
    whole = collect_all(futures)
    for i, future in enumerate(futures):
        assert not whole.done()
        future.set_result(i)
    assert whole.wait() == futures and wait_all(futures) == [0, 1, 2] and wait_all([]) == []
    failing = [Future(), Future()]
    together = collect_all(failing)
    failing[1].set_exception(KeyError("second"))
    assert not together.done()
    failing[0].set_result(0)
    with pytest.raises(KeyError, match="second"):
        together.wait()
    with pytest.raises(KeyError, match="second"):
        wait_all(failing)


def test_wrong_uses_of_futures():
    future = Future()
    with pytest.raises(RuntimeError, match="not done"):
        future.value()
    with pytest.raises(AssertionError, match="not an Exception"):
        future.set_exception("text")
    future.set_result(1)
    with pytest.raises(RuntimeError, match="only once"):
        future.set_result(2)
    with pytest.raises(RuntimeError, match="only once"):
        future.set_exception(ValueError())
