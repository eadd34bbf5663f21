"""A tensor given for a number is read when the arguments are; where none can be read, the error says so."""

import pytest
import rabbet
from rabbet import _C

NUMBERS = {"Scalar", "float", "int"}
LISTS = {"int[]", "size[]", "bsize[]"}


def takes_a_tensor(name, at) -> bool:
    """Whether another signature of the function takes a tensor in that place: then it is none for a number."""
    base = _C.op_info(name)["base"]
    others = (_C.op_info(n) for n in _C.record_names() if n.startswith(f"{base}."))
    return any(
        at < len(o["params"]) and o["params"][at]["type"] == "Tensor"
        for o in others
        if o["base"] == base
    )


def number_arguments() -> list:
    """Every argument of a record that takes a number or a list of them."""
    found = []
    for name in _C.record_names():
        for at, param in enumerate(_C.op_info(name)["params"]):
            if param["type"] in NUMBERS | LISTS and not takes_a_tensor(name, at):
                found.append(pytest.param(name, param, id=f"{name}-{param['name']}"))
    return found


def given(param, tensor):
    return [tensor] if param["type"] in LISTS else tensor


@pytest.mark.parametrize(("name", "param"), number_arguments())
def test_a_number_that_is_batched_is_refused_in_words(name, param):
    called = []

    def f(x):
        called.append(param["name"])
        _C.op(name)(**{param["name"]: given(param, x)})

    with pytest.raises(RuntimeError, match=r"argument '\w+': not possible inside 'vmap'") as error:
        rabbet.vmap(f)(rabbet.arange(3))
    assert called
    assert param["name"] in str(error.value)


@pytest.mark.parametrize("name", ["linspace", "logspace"])
@pytest.mark.parametrize("at", [0, 1])
def test_bounds_that_are_batched(name, at):
    def f(x):
        bounds = [0.0, 1.0]
        bounds[at] = x
        return getattr(rabbet, name)(*bounds, 3)

    x = rabbet.rand(3)
    assert rabbet.vmap(f)(x).equal(rabbet.stack([f(one) for one in x]))


def test_bounds_from_outside_are_numbers_inside():
    bound = rabbet.tensor(2.0)
    out = rabbet.vmap(lambda x: x * rabbet.linspace(0.0, bound, 3))(rabbet.ones(2, 1))
    assert out.tolist() == [[0.0, 1.0, 2.0]] * 2


@pytest.mark.parametrize("transform", ["grad", "functionalize"])
def test_bounds_that_can_be_read_inside_a_transform(transform):
    def f(x):
        return (rabbet.linspace(0.0, x, 3) * x).sum()

    out = getattr(rabbet.func, transform)(f)(rabbet.tensor(2.0))
    assert out.item() == {"grad": 3.0, "functionalize": 6.0}[transform]


@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_a_bound_without_data(name):
    found = getattr(rabbet, name)(rabbet.empty((), device="meta"), 1.0, 3)
    assert found.is_meta and found.shape == (3,)


@pytest.mark.parametrize("read", [bool, int, float, list, lambda x: [1, 2, 3][x], lambda x: 1 in x])
def test_other_readers_of_a_batched_tensor(read):
    with pytest.raises((RuntimeError, TypeError)):
        rabbet.vmap(lambda x: read(x))(rabbet.arange(3))
