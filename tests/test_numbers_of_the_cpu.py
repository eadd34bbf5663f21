"""Tensors without dimensions on the CPU beside tensors of another device: elementwise calls take them as numbers."""

import pytest
import rabbet
from rabbet.autograd import grad

pytestmark = pytest.mark.usefixtures("lazy")


def there(*values):
    return rabbet.tensor(values).to("lazy")


def test_a_number_goes_to_the_tensors_device():
    x, n = there(1.0, 2.0), rabbet.tensor(3.0)
    for made in (x * n, n * x):
        assert made.device.type == "lazy" and made.cpu().tolist() == [3, 6]
    assert x.add(n, alpha=2).cpu().tolist() == [7, 8]
    assert x.mul_(n).cpu().tolist() == [3, 6] and n.device.type == "cpu"


def test_it_takes_part_in_promotion_as_a_number():
    x = rabbet.ones(2, device="meta", dtype=rabbet.float16)
    assert (x * rabbet.tensor(3.0, dtype=rabbet.float64)).dtype is rabbet.float16
    assert (x.to(rabbet.uint8) * rabbet.tensor(-3)).dtype is rabbet.uint8
    assert (x.to(rabbet.int32) * rabbet.tensor(0.5)).dtype is rabbet.float32


def test_its_gradient_comes_back_to_the_cpu():
    x, n = there(1.0, 2.0), rabbet.tensor(3.0, requires_grad=True)
    (slope,) = grad((x * n).sum(), n)
    assert slope.device.type == "cpu" and slope.item() == 3.0
    x.requires_grad_()
    (slope,) = grad((n * x).sum(), x)
    assert slope.device.type == "lazy" and slope.cpu().tolist() == [3, 3]


def test_meta_tensors_take_numbers_of_the_cpu():
    x = rabbet.empty(2, 3, device="meta")
    assert (x + rabbet.tensor(1.0)).shape == (2, 3) and (rabbet.tensor(1) / x).device.type == "meta"
    assert rabbet.lerp(x, x, rabbet.tensor(0.5)).shape == (2, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * rabbet.tensor([3.0, 4.0]),  # it has dimensions
        lambda x: rabbet.tensor(3.0).mul_(x),  # the target is on the CPU
        lambda x: x * rabbet.empty((), device="meta"),  # it is not on the CPU
        lambda x: rabbet.matmul(x, rabbet.tensor(3.0)),  # not elementwise
    ],
)
def test_everything_else_is_refused(call):
    with pytest.raises(rabbet.DeviceError, match=r"on one device|on cpu"):
        call(there(1.0, 2.0))
