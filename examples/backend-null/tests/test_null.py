"""The device `null`, and `null2` beside it, against plain Python numbers."""

import pytest
import rabbet

DEVICES = ("null", "null2")
pytestmark = pytest.mark.parametrize("device", DEVICES)


def test_kernels_compute_and_broadcast(device):
    a = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    row = rabbet.tensor([10.0, 20.0], device=device)
    assert (a + row).tolist() == [[11, 22], [13, 24]] and (a * row.t()).tolist() == [
        [10, 40],
        [30, 80],
    ]
    assert (a @ a).tolist() == [[7, 10], [15, 22]] and (a @ a.t()).tolist() == [[5, 11], [11, 25]]
    assert rabbet.add(a, a, alpha=2).tolist() == [[3, 6], [9, 12]] and (1 + a * 2).tolist() == [
        [3, 5],
        [7, 9],
    ]
    assert a.t().contiguous().tolist() == [[1, 3], [2, 4]] and a.t().clone()[0].tolist() == [1, 3]
    assert (a.device.type, (a + a).device.type) == (device, device)


def test_integers_are_exact(device):
    x = rabbet.full((2, 2), 2**60 + 1, dtype=rabbet.int64, device=device)
    y = rabbet.tensor([[1, 2**53 + 1], [-(2**63), 2**63 - 1]], device=device)
    assert x.tolist() == [[2**60 + 1] * 2] * 2
    assert y.t().clone().tolist() == [[1, -(2**63)], [2**53 + 1, 2**63 - 1]]


def test_creation_writes_and_casts(device):
    x = rabbet.zeros(2, 3, device=device)
    x[:, 1] = 5
    x += rabbet.ones(3, device=device)
    assert x.tolist() == [[1, 6, 1], [1, 6, 1]] and rabbet.full(
        (2,), 7, device=device
    ).tolist() == [7, 7]
    assert x.to(rabbet.int64).tolist() == [[1, 6, 1], [1, 6, 1]]
    assert (
        rabbet.zeros(0, 3, device=device).tolist() == []
        and rabbet.tensor(2.5, device=device).item() == 2.5
    )


def test_decompositions_of_core_run_on_the_kernels(device):
    a = rabbet.tensor([1.0, 2.0], device=device)
    assert a.square().tolist() == [1, 4] and rabbet.addcmul(a, a, a).tolist() == [2, 6]
    weight = rabbet.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    bias = rabbet.tensor([1.0, 1.0], device=device)
    assert rabbet.ops("linear")(weight, weight, bias).tolist() == [[6, 12], [12, 26]]


def test_gradients_flow_through_it(device):
    pytest.importorskip("rabbet.autograd")
    x = rabbet.tensor([[1.0, 2.0]], device=device, requires_grad=True)
    (x @ x.t()).backward(rabbet.ones(1, 1, device=device))
    assert x.grad.tolist() == [[2, 4]] and x.grad.device.type == device


def test_what_is_missing_is_said(device):
    x = rabbet.ones(2, device=device)
    with pytest.raises(
        NotImplementedError, match=f"exp: no kernel for '{device}' in rabbet-backend-null"
    ):
        x.exp()
    with pytest.raises(NotImplementedError, match=f"add on '{device}' supports float32; got int64"):
        x.to(rabbet.int64) + x.to(rabbet.int64)
    with pytest.raises(NotImplementedError, match=f"'{device}' supports float32 and int64"):
        x.to(rabbet.float64)
    with pytest.raises(
        NotImplementedError, match=f"matmul on '{device}': expected two matrices, got 1-d"
    ):
        x @ x
    # Core has checked the shapes before it calls a kernel.
    with pytest.raises(ValueError, match="k differs"):
        rabbet.ones(2, 2, device=device) @ rabbet.ones(1, 2, device=device)


def test_two_backends_stay_apart(device):
    other = DEVICES[1 - DEVICES.index(device)]
    x = rabbet.tensor([1.0, 2.0], device=device)
    with pytest.raises(RuntimeError, match=rf"'input' is on {device} and 'other' is on {other}"):
        x + x.to(other)
    assert x.to(other).to("cpu").tolist() == [1, 2] and x.to(other).device.type == other
