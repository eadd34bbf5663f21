"""Where tensors are made that name no device: `with device`, `set_default_device`, modules on `meta`."""

import threading

import numpy as np
import pytest
import rabbet

CREATIONS = {
    "arange": lambda **o: rabbet.arange(3, **o),
    "as_tensor": lambda **o: rabbet.as_tensor([1.0], **o),
    "asarray": lambda **o: rabbet.asarray([1.0], **o),
    "as_tensor of an array": lambda **o: rabbet.as_tensor(np.ones(2), **o),
    "bartlett_window": lambda **o: rabbet.bartlett_window(4, **o),
    "empty": lambda **o: rabbet.empty(2, **o),
    "empty_permuted": lambda **o: rabbet.empty_permuted((2, 3), (1, 0), **o),
    "empty_strided": lambda **o: rabbet.empty_strided((2,), (1,), **o),
    "eye": lambda **o: rabbet.eye(2, **o),
    "fftfreq": lambda **o: rabbet.fft.fftfreq(4, **o),
    "full": lambda **o: rabbet.full((2,), 3, **o),
    "hann_window": lambda **o: rabbet.hann_window(4, **o),
    "linspace": lambda **o: rabbet.linspace(0, 1, 3, **o),
    "logspace": lambda **o: rabbet.logspace(0, 1, 3, **o),
    "ones": lambda **o: rabbet.ones(2, **o),
    "rand": lambda **o: rabbet.rand(2, **o),
    "randint": lambda **o: rabbet.randint(0, 3, (2,), **o),
    "randn": lambda **o: rabbet.randn(2, **o),
    "randperm": lambda **o: rabbet.randperm(3, **o),
    "scalar_tensor": lambda **o: rabbet.scalar_tensor(1.0, **o),
    "tensor": lambda **o: rabbet.tensor([1.0], **o),
    "tensor of a tensor": lambda **o: rabbet.tensor(7, **o),
    "zeros": lambda **o: rabbet.zeros(2, **o),
}


@pytest.mark.parametrize("make", CREATIONS.values(), ids=CREATIONS)
def test_creations_follow_the_block_unless_they_name_a_device(make):
    with rabbet.device("meta") as entered:
        assert entered == rabbet.device("meta") == rabbet.get_default_device()
        assert make().device.type == "meta" and make(device=None).device.type == "meta"
        assert make(device="cpu").device.type == "cpu"
    assert make().device.type == "cpu" and rabbet.get_default_device() == rabbet.device("cpu")


def test_what_is_made_like_a_tensor_or_by_older_functions_stays_beside_it():
    there = rabbet.ones(2)
    with rabbet.device("meta"):
        made = [
            rabbet.zeros_like(there), there.new_ones(2), rabbet.randn_like(there), rabbet.normal(0.0, 1.0, (2,)),
            rabbet.Tensor(2, 3), rabbet.FloatTensor([1.0]), rabbet.from_numpy(np.ones(2)), there + 1, there.sort().values,
        ]  # fmt: skip
        assert rabbet.as_tensor(there).device.type == "meta"
    assert {t.device.type for t in made} == {"cpu"}


def test_blocks_nest_and_end_by_exceptions():
    with pytest.raises(KeyError), rabbet.device("meta"):
        with rabbet.device("cpu"):
            assert rabbet.ones(1).device.type == "cpu"
        assert rabbet.ones(1).device.type == "meta"
        raise KeyError
    assert rabbet.ones(1).device.type == "cpu"


def test_the_default_device_is_below_all_blocks_and_the_threads_own():
    found = []
    try:
        rabbet.set_default_device("meta")
        assert rabbet.ones(1).device.type == "meta"
        thread = threading.Thread(target=lambda: found.append(rabbet.ones(1).device.type))
        thread.start()
        thread.join()
        with rabbet.device("cpu"):
            rabbet.set_default_device(rabbet.device("meta"))
            assert rabbet.ones(1).device.type == "cpu"
        assert rabbet.get_default_device() == rabbet.device("meta")
    finally:
        rabbet.set_default_device(None)
    assert found == ["cpu"] and rabbet.ones(1).device.type == "cpu"


def test_a_device_decorates_functions():
    @rabbet.device("meta")
    def made(size, *, scale):
        """What it makes."""
        return rabbet.ones(size) * scale

    assert made(2, scale=3).device.type == "meta" and made.__doc__ == "What it makes."
    assert rabbet.ones(1).device.type == "cpu"
    from rabbet.utils._device import DeviceContext, set_device

    assert set_device("meta")(lambda: rabbet.ones(1))().device.type == "meta"
    with DeviceContext("meta"):
        assert rabbet.ones(1).device.type == "meta"


def test_a_device_without_a_backend_is_an_error_where_a_tensor_is_made():
    with rabbet.device("xpu"):
        assert rabbet.ones(1, device="cpu").device.type == "cpu"
        with pytest.raises(RuntimeError, match="xpu"):
            rabbet.ones(1)
    assert rabbet.ones(1).device.type == "cpu"


def test_modules_are_made_without_memory_and_get_it_later():
    nn = pytest.importorskip("rabbet.nn")
    source = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with rabbet.device("meta"):
        first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        second = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    tensors = [*first.parameters(), *first.buffers()]
    assert all(t.is_meta for t in tensors) and len(tensors) == 7
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        first.to("cpu")
    first.load_state_dict(source.state_dict(), assign=True)
    second.to_empty(device="cpu").load_state_dict(source.state_dict())
    x = rabbet.randn(5, 3)
    for model in (first, second):
        assert all(isinstance(p, nn.Parameter) and not p.is_meta for p in model.parameters())
        assert rabbet.equal(model.eval()(x), source.eval()(x))
