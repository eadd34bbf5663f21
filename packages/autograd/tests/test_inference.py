"""Inference mode: tensors made inside have no versions, are not saved and not written outside."""

import threading

import pytest
import rabbet
from rabbet.autograd import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
)


@pytest.fixture
def made():
    with inference_mode():
        return rabbet.ones(2, 3)


def test_what_is_an_inference_tensor(made):
    x = rabbet.ones(2, 3, requires_grad=True)
    with inference_mode():
        assert is_inference_mode_enabled() and not is_grad_enabled()
        y = x * 2
        view, written = x[0], rabbet.ones(2)
        assert y.is_inference() and not y.requires_grad and y.is_leaf
        assert not view.is_inference()  # a view is what its base is
        assert made.clone().is_inference() and rabbet.tensor([1.0]).is_inference()
        assert written.add_(1).tolist() == [2, 2]
    assert not is_inference_mode_enabled() and is_grad_enabled()
    assert made.is_inference() and made[0].is_inference() and made.detach().is_inference()
    assert not made.clone().is_inference() and not (made * 2).is_inference()


def test_normal_tensors_are_written_inside(made):
    x = rabbet.ones(2, 3)
    with inference_mode():
        x.add_(made)
        x[0] = 5
    assert x.tolist() == [[5, 5, 5], [2, 2, 2]] and x._version == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t[0].add_(1),
        lambda t: t.__setitem__(0, 1.0),
        lambda t: rabbet.add(t, t, out=t),
        lambda t: t.normal_(),
        lambda t: t.zero_(),
        lambda t: t.index_add_(0, rabbet.tensor([0]), rabbet.ones(1, 3)),
    ],
)
def test_writing_one_outside_raises_and_changes_nothing(made, write):
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside Inference"):
        write(made)
    with pytest.raises(RuntimeError, match="Inplace update"), no_grad():
        write(made)
    assert made.tolist() == [[1, 1, 1]] * 2
    with inference_mode():
        write(made)


def test_saving_one_for_backward_raises(made):
    w = rabbet.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        w * made
    (w + made).sum().backward()  # nothing is saved
    (w * made.clone()).sum().backward()
    assert w.grad.tolist() == [[2, 2, 2]] * 2


def test_gradients_and_versions_of_one_are_refused_outside(made):
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
        made.requires_grad_()
    with pytest.raises(RuntimeError, match="do not track version counter"):
        _ = made._version
    with inference_mode():
        made.requires_grad_()
    assert made.requires_grad


def test_nesting_and_decorators():
    @inference_mode
    def plain():
        return rabbet.ones(1).is_inference()

    @inference_mode()
    def called():
        return is_inference_mode_enabled()

    assert plain() and called()
    with inference_mode():
        with inference_mode(False):
            assert not is_inference_mode_enabled() and is_grad_enabled()
            assert not rabbet.ones(1).is_inference()
        with enable_grad():
            x = rabbet.ones(1)
            assert (x * 2).is_inference()
        assert is_inference_mode_enabled()
    with pytest.raises(ZeroDivisionError), inference_mode():
        _ = 1 / 0
    assert not is_inference_mode_enabled()


def test_other_threads_are_not_in_the_mode():
    found = []
    with inference_mode():
        thread = threading.Thread(target=lambda: found.append(rabbet.ones(1).is_inference()))
        thread.start()
        thread.join()
    assert found == [False]
