"""What functions, methods and operators of tensors take as arguments, and what they refuse."""

import pytest
import rabbet
import rabbet.nn.functional


def tensor(m, value, dtype=None):
    return m.tensor(value, dtype=None if dtype is None else getattr(m, dtype))


def written(m):
    x = m.zeros(5)
    x[tensor(m, 1) : tensor(m, 3)] = 2
    return x


# What it gives, as lists, sizes and numbers.
TAKEN = {
    "slices of tensors": (lambda m: m.arange(5)[m.tensor(1) : m.tensor([3])], [1, 2]),
    "a step that is a tensor": (lambda m: m.arange(5)[:: m.tensor(2)], [0, 2, 4]),
    "a slice that is written": (written, [0, 2, 2, 0, 0]),
    "a size that is a tensor": (lambda m: m.ones(m.tensor(2)), [1, 1]),
    "a size of one element": (lambda m: m.zeros(m.tensor([2])), [0, 0]),
    "view to tensors": (lambda m: m.arange(4).view(m.tensor(2), 2), [[0, 1], [2, 3]]),
    "view(size=)": (lambda m: m.arange(4).view(size=(2, 2)), [[0, 1], [2, 3]]),
    "view(dtype=)": (lambda m: m.ones(1).view(dtype=m.int32), [0x3F800000]),
    "a dim that is a tensor": (lambda m: m.ones(2, 3).sum(m.tensor(0)), [2, 2, 2]),
    "dim= a tensor": (lambda m: m.ones(2, 3).sum(dim=m.tensor(1)), [3, 3]),
    "reversed": (lambda m: reversed(m.tensor([[1, 2], [3, 4]])), [[3, 4], [1, 2]]),
    "reversed of no dimensions": (lambda m: reversed(m.tensor(1)), 1),
    "float of a complex number": (lambda m: float(m.tensor(1.5 + 0j)), 1.5),
    "int of a complex number": (lambda m: int(m.tensor(2 + 0j)), 2),
    "gather by int32": (
        lambda m: m.gather(m.arange(3), 0, tensor(m, [2, 0], "int32")),
        [2, 0],
    ),
    "scatter by int32": (
        lambda m: m.scatter(m.ones(3), 0, tensor(m, [2, 0], "int32"), m.zeros(2)),
        [0, 1, 0],
    ),
    "scatter of a number by int32": (
        lambda m: m.scatter(m.ones(3), 0, tensor(m, [2], "int32"), 5),
        [1, 1, 5],
    ),
    "scatter_add by int32": (
        lambda m: m.scatter_add(m.ones(3), 0, tensor(m, [2, 2], "int32"), m.ones(2)),
        [1, 1, 3],
    ),
    "index_add by int32": (
        lambda m: m.index_add(m.ones(3), 0, tensor(m, [2, 0], "int32"), m.ones(2)),
        [2, 1, 2],
    ),
    "new_ones(size=)": (lambda m: m.ones(3).new_ones(size=(2,)), [1, 1]),
    "new_zeros(size=)": (lambda m: m.ones(3).new_zeros(size=(2,)), [0, 0]),
    "any of no dimensions": (
        lambda m: m.any(m.tensor([[0, 1], [0, 0]]), dim=[]),
        [[False, True], [False, False]],
    ),
    "all of no dimensions, kept": (
        lambda m: m.all(m.tensor([[0.0, 1.0]]), dim=[], keepdim=True),
        [[False, True]],
    ),
    "any of a list": (lambda m: m.any(m.tensor([[0, 1], [0, 0]]), dim=[0, 1]), True),
    "linspace to a complex end": (
        lambda m: m.linspace(0, 1 + 1j, 3),
        [0, 0.5 + 0.5j, 1 + 1j],
    ),
    "linspace from a complex start": (lambda m: m.linspace(1j, 1, 2), [1j, 1]),
    "complex linspace": (
        lambda m: m.linspace(0, 1j, 3, dtype=m.complex128),
        [0, 0.5j, 1j],
    ),
    "expand_as": (lambda m: m.ones(2).expand_as(m.ones(2, 2)), [[1, 1], [1, 1]]),
    "masked_select broadcasts": (
        lambda m: m.masked_select(m.arange(2), m.tensor([[True, False], [True, True]])),
        [0, 0, 1],
    ),
    "fill_ with a tensor": (lambda m: m.zeros(2).fill_(m.tensor(3.0)), [3, 3]),
}


def integers(m):
    return m.tensor([1, 2])


def pool(name, shape, *args):
    return lambda m: getattr(m.nn.functional, name)(m.ones(shape), *args)


REFUSED = {
    "a slice to a float tensor": lambda m: m.arange(5)[m.tensor(1.5) :],
    "a slice to several numbers": lambda m: m.arange(5)[m.tensor([1, 2]) :],
    "a size of several elements": lambda m: m.ones(m.tensor([2, 3])),
    "a size that is no integer": lambda m: m.ones(m.tensor(2.5)),
    "a size that is a bool": lambda m: m.ones(m.tensor(True)),
    "view by size and position": lambda m: m.ones(4).view(4, size=(4,)),
    "view by another keyword": lambda m: m.ones(4).view(sizes=(4,)),
    "float with an imaginary part": lambda m: float(m.tensor(1 + 1j)),
    "int with an imaginary part": lambda m: int(m.tensor(1 + 1j)),
    "expand_as of fewer dimensions": lambda m: m.ones(2, 3).expand_as(m.ones(3)),
    "expand_as of a smaller size": lambda m: m.ones(3).expand_as(m.ones(1)),
    "fill_ with one dimension": lambda m: m.ones(3).fill_(m.ones(1)),
    "fill_ with the same shape": lambda m: m.ones(3).fill_(m.ones(3)),
    "masked_fill with one dimension": lambda m: m.ones(2).masked_fill(
        m.tensor([True, False]), m.ones(1)
    ),
    "negative broadcast_shapes": lambda m: m.broadcast_shapes((2, -1), (2, 1)),
    "one negative size": lambda m: m.broadcast_shapes(-1),
    "linspace of a complex end to floats": lambda m: m.linspace(0, 1j, 3, dtype=m.float32),
    "linspace past the range of int8": lambda m: m.linspace(0, 300, 3, dtype=m.int8),
    "arange to a complex end": lambda m: m.arange(0, 3j),
    "a negative power of uint8": lambda m: m.pow(m.tensor([2], dtype=m.uint8), -1),
    "a negative power": lambda m: m.pow(integers(m), -1),
    "max_pool1d": pool("max_pool1d", (1, 4), 2, 0),
    "max_pool2d": pool("max_pool2d", (1, 4, 4), 2, 0),
    "max_pool3d": pool("max_pool3d", (1, 4, 4, 4), 2, 0),
    "avg_pool1d": pool("avg_pool1d", (1, 4), 2, 0),
    "avg_pool2d": pool("avg_pool2d", (1, 4, 4), 2, 0),
    "avg_pool2d of one stride 0": pool("avg_pool2d", (1, 4, 4), 2, (0, 1)),
    "avg_pool3d": pool("avg_pool3d", (1, 4, 4, 4), 2, 0),
}


def plain(result):
    return result if isinstance(result, float | int) else result.tolist()


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(name):
    call, expected = TAKEN[name]
    assert plain(call(rabbet)) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        REFUSED[name](rabbet)


@pytest.mark.parametrize("name", TAKEN)
def test_pytorch_takes_the_same(name):
    torch = pytest.importorskip("torch")
    call, expected = TAKEN[name]
    assert plain(call(torch)) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_pytorch_refuses_the_same(name):
    torch = pytest.importorskip("torch")
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        REFUSED[name](torch)


def test_strides_of_none_or_nothing_are_the_windows():
    x = rabbet.arange(16.0).reshape(1, 4, 4)
    for stride in (None, (), []):
        assert rabbet.nn.functional.max_pool2d(x, 2, stride).tolist() == [[[5, 7], [13, 15]]]


def test_any_over_listed_dimensions_under_vmap_and_out():
    x = rabbet.tensor([[0, 1], [0, 0]])
    each = rabbet.vmap(lambda row: rabbet.any(row, dim=[]))(x)
    assert each.tolist() == [[False, True], [False, False]]
    out = rabbet.empty(2, 2, dtype=rabbet.bool)
    assert rabbet.any(x, dim=[], out=out) is out and out.tolist() == each.tolist()
    assert rabbet.any(x.to("meta"), dim=[]).shape == (2, 2)
