"""Casts of weights: kept within a region, dropped when they would be wrong."""

import gc
import threading
import weakref

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.amp import _C


def weight(*shape):
    return rabbet.randn(*(shape or (3, 3)), requires_grad=True)


def nodes(y):
    """Of the product's second argument."""
    return y.grad_fn.next_functions[-1][0]


def test_a_weight_is_cast_once():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        first, second = x @ w, x @ w
        assert _C.cached_casts() == 1
        assert nodes(first) == nodes(second)
        with rabbet.autocast("cpu"):
            assert nodes(x @ w) == nodes(first)
        assert nodes(x @ w) == nodes(first) and _C.cached_casts() == 1
    assert _C.cached_casts() == 0
    (first + second).sum().backward()
    assert w.grad.tolist() == [[4.0] * 3] * 3 and w.grad.dtype == rabbet.float32


def test_a_new_region_starts_afresh():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        first = x @ w
    with rabbet.autocast("cpu"):
        assert nodes(x @ w) != nodes(first)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rabbet.randn(3, 3),
        lambda: weight() * 1.0,
        lambda: weight().t(),
        lambda: weight().double(),
        lambda: weight().half().detach().requires_grad_(),
    ],
    ids=["no grad", "not a leaf", "view", "float64", "float16"],
)
def test_only_float32_leaves_are_kept(make):
    w = make()
    with rabbet.autocast("cpu"):
        rabbet.ones(3, 3).to(w.dtype if w.dtype == rabbet.float64 else rabbet.float32) @ w
        assert _C.cached_casts() == 0


def test_the_cache_can_be_off():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu", cache_enabled=False):
        assert not rabbet.is_autocast_cache_enabled()
        assert nodes(x @ w) != nodes(x @ w) and _C.cached_casts() == 0
    assert rabbet.is_autocast_cache_enabled()
    rabbet.set_autocast_cache_enabled(False)
    try:
        with rabbet.autocast("cpu"):
            x @ w
            assert _C.cached_casts() == 0
            with rabbet.autocast("cpu", cache_enabled=True):
                x @ w
                assert _C.cached_casts() == 1
    finally:
        rabbet.set_autocast_cache_enabled(True)


def test_it_can_be_cleared():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        x @ w
        rabbet.clear_autocast_cache()
        assert _C.cached_casts() == 0
        x @ w
        assert _C.cached_casts() == 1


def test_other_dtypes_have_casts_of_their_own():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        assert (x @ w).dtype == rabbet.bfloat16
        with rabbet.autocast("cpu", rabbet.float16):
            assert (x @ w).dtype == rabbet.float16
        assert (x @ w).dtype == rabbet.bfloat16


@pytest.mark.parametrize("how", ["step", "copy", "data", "fill"])
def test_a_written_weight_is_cast_again(how):
    w, x = weight(), rabbet.ones(2, 3)
    optimizer = optim.SGD([w], lr=1.0)
    with rabbet.autocast("cpu"):
        (x @ w).float().sum().backward()
        with rabbet.no_grad():
            if how == "step":
                optimizer.step()
            elif how == "copy":
                w.copy_(rabbet.eye(3))
            elif how == "data":
                w.detach().mul_(2)
            else:
                w.fill_(3.0)
        expected = x.bfloat16() @ w.detach().bfloat16()
        assert (x @ w).tolist() == expected.tolist()
        w.grad = None
        (x @ w).float().sum().backward()
        assert w.grad.tolist() == [[2.0] * 3] * 3


@pytest.mark.parametrize("mode", [rabbet.no_grad, rabbet.inference_mode])
def test_a_cast_without_history_is_not_used_with_one(mode):
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        with mode():
            (x @ w) + (x @ w)
            assert _C.cached_casts() == 1
        y = x @ w
        assert y.requires_grad and _C.cached_casts() == 2
        with mode():
            assert not (x @ w).requires_grad and _C.cached_casts() == 2
        y.float().sum().backward()
        (x @ w).float().sum().backward()
    assert w.grad.tolist() == [[4.0] * 3] * 3


def test_gradients_of_several_backwards_add_up_in_one_region():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        for _ in range(3):
            (x @ w).float().sum().backward()
    assert w.grad.tolist() == [[6.0] * 3] * 3


def test_freezing_a_weight_counts_at_once():
    w, x = weight(), rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        assert (x @ w).requires_grad
        w.requires_grad_(False)
        assert not (x @ w).requires_grad
        w.requires_grad_(True)
        assert (x @ w).requires_grad


def test_nothing_is_held_after_a_region():
    w, x = weight(), rabbet.ones(2, 3)
    gc.collect()  # nodes of other tests
    nodes_before = rabbet.autograd._C.live_nodes()
    alive = weakref.ref(w)
    with rabbet.autocast("cpu"):
        (x @ w).float().sum().backward()
        assert rabbet.autograd._C.live_nodes() > nodes_before
    del w
    gc.collect()
    assert alive() is None and rabbet.autograd._C.live_nodes() == nodes_before


def test_an_exception_clears_it():
    with pytest.raises(KeyError), rabbet.autocast("cpu"):
        rabbet.ones(2, 3) @ weight()
        raise KeyError
    assert _C.cached_casts() == 0


def test_threads_have_casts_of_their_own():
    w, x, failures = weight(), rabbet.ones(2, 3), []

    def work():
        rabbet.set_autocast_enabled("cpu", True)
        for _ in range(100):
            if (x @ w).dtype != rabbet.bfloat16 or _C.cached_casts() != 1:
                failures.append(_C.cached_casts())
        # The thread ends within the region: its casts go with it.

    with rabbet.autocast("cpu"):
        x @ w
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert _C.cached_casts() == 1
    assert not failures


def test_tied_weights_are_cast_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    with rabbet.autocast("cpu"):
        model(rabbet.ones(2, 3))
        assert _C.cached_casts() == 1
