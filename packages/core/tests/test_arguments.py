"""Arguments that an operator's schema does not take: refused before anything reads them."""

import operator

import pytest
import rabbet
import rabbet.nn.functional as F

# ---- numbers in the place of tensors


@pytest.mark.parametrize("number", [2, 2.5, True, 1j, None, "2"])
def test_an_operator_between_tensors_takes_no_number(number):
    t = rabbet.ones(2)
    for call in (operator.matmul, operator.imatmul):
        with pytest.raises(TypeError, match=r"unsupported operand type.*@"):
            call(t, number)
    with pytest.raises(TypeError, match=r"unsupported operand type.*@"):
        operator.matmul(number, t)
    assert (t @ rabbet.ones(2)).item() == 2 and t.tolist() == [1, 1]


def test_the_other_operand_is_asked():
    class Twice:
        def __rmatmul__(self, other):
            return "mine"

    assert rabbet.ones(2) @ Twice() == "mine"


# ---- meta tensors in the place of numbers

NUMBERS = {
    "full.*'fill_value'": lambda m: rabbet.full((2,), m),
    "full.*'fill_value' *": lambda m: rabbet.full((2,), m, device="meta"),
    "arange": lambda m: rabbet.arange(m),
    "add.*'alpha'": lambda m: rabbet.add(rabbet.ones(2), rabbet.ones(2), alpha=m),
    "leaky_relu.*'negative_slope'": lambda m: F.leaky_relu(rabbet.ones(2), m),
    "layer_norm.*'eps'": lambda m: F.layer_norm(rabbet.ones(2), (2,), eps=m),
    "zeros.*'size'": lambda m: rabbet.zeros((m.to(rabbet.int64),)),
    "select.*'index'": lambda m: rabbet.select(rabbet.ones(2), 0, m.to(rabbet.int64)),
    r"item\(\)": lambda m: rabbet.ones(2)[m.to(rabbet.int64)],
    r"item\(\) *": lambda m: rabbet.tensor([m]),
    r"float\(\)": float,
    r"int\(\)": int,
    "truth": bool,
    "an index": lambda m: range(m.to(rabbet.int64)),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_a_meta_tensor_has_no_number(what):
    with pytest.raises(RuntimeError, match=f"{what}.*a meta tensor has no data"):
        NUMBERS[what](rabbet.ones((), device="meta"))


def test_a_meta_tensor_beside_data_is_refused():
    m, x = rabbet.ones((), device="meta"), rabbet.ones(2)
    for call in (
        lambda: x + m,
        lambda: m - x,
        lambda: x.add_(m),
        lambda: x.pow(m),
        lambda: rabbet.clamp(x, m),
        lambda: x.fill_(m),
        lambda: x.masked_fill(x > 0, m),
        lambda: rabbet.where(x > 0, m, x),
    ):
        with pytest.raises(rabbet.DeviceError, match="on meta"):
            call()
    assert x.tolist() == [1, 1]


def test_an_optimizers_hyperparameter_is_no_meta_tensor():
    optim = pytest.importorskip("rabbet.optim")
    x = rabbet.ones(2, requires_grad=True)
    for make in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop):
        with pytest.raises(RuntimeError, match="meta tensor has no data"):
            make([x], lr=rabbet.ones((), device="meta"))


# ---- lists that change, or contain themselves


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_a_list_that_contains_itself_is_refused():
    empty, begun = [], [0]
    for items in (empty, begun):
        items.append(items)
    wide = []
    wide += [wide, wide]
    for items in (empty, begun, wide):
        for call in (
            rabbet.tensor,
            rabbet.as_tensor,
            lambda items: rabbet.ones(2, 2)[items],
            lambda items: rabbet.ones(2, 2)[[items]],
            lambda items: rabbet.ones(2).new_tensor(items),
            lambda items: operator.setitem(rabbet.ones(2), 0, items),
        ):
            error = TypeError if items is begun else ValueError
            with pytest.raises(error, match=r"ragged|nested deeper than 32"):
                call(items)
    deep = 1.0
    for _ in range(32):
        deep = [deep]
    assert rabbet.tensor(deep).ndim == 32
    with pytest.raises(ValueError, match="nested deeper than 32"):
        rabbet.tensor([deep])


@pytest.mark.parametrize("n", [2, 5, 100])
@pytest.mark.parametrize(
    "read, want",
    [
        (rabbet.tensor, [1.0]),
        (lambda items: rabbet.tensor(items, dtype=rabbet.float32), [1.0]),
        (lambda items: rabbet.tensor([items, items])[1], [1.0]),
        (lambda items: rabbet.ones(3).new_tensor(items), [1.0]),
        (lambda items: rabbet.arange(3.0)[items], [1.0]),
        (lambda items: rabbet.arange(3.0)[(items,)], [1.0]),
    ],
)
def test_a_list_that_its_elements_change_is_read_as_it_was(n, read, want):
    class Clears:
        def __float__(self):
            items.clear()
            return 1.0

        def __index__(self):
            items.clear()
            return 1

    items: list[Clears] = []
    items += [Clears() for _ in range(n)]
    assert read(items).tolist() == want * n and not items


def test_arange_of_integers_cuts_fractions_off_first():
    assert rabbet.arange(2.5, dtype=rabbet.int64).tolist() == [0, 1]
    assert rabbet.arange(0.5, 3, dtype=rabbet.int64).tolist() == [0, 1, 2]
    assert rabbet.arange(2.5).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("bounds", [(1, 0.25, 2), (5, 2), (0.0, 1.0, -3.0)])
def test_arange_away_from_its_end_is_refused(bounds):
    with pytest.raises(RuntimeError, match="inconsistent with step sign"):
        rabbet.arange(*bounds)


@pytest.mark.parametrize(
    "call",
    [lambda: rabbet.where(2, rabbet.ones(2), rabbet.ones(2)), lambda: rabbet.complex(1.0, rabbet.ones(2)),
     lambda: rabbet.masked_fill(rabbet.ones(2), 1, 2.0)],
)  # fmt: skip
def test_a_number_where_the_dtype_of_a_tensor_matters_is_refused(call):
    with pytest.raises(TypeError, match="expected a tensor, got a number"):
        call()


@pytest.mark.parametrize("dims", [(-2, 0), (0, 2), (2, 2)])
def test_flatten_of_a_number_checks_its_dimensions(dims):
    assert rabbet.tensor(3).flatten(-1, 0).shape == (1,)
    with pytest.raises(IndexError):
        rabbet.tensor(3).flatten(*dims)


def test_diff_joins_tensors_of_the_same_sizes():
    with pytest.raises(RuntimeError, match=r"prepend .* input.size\(1\) = 3, but got 2"):
        rabbet.ones(2, 3).diff(dim=0, prepend=rabbet.ones(1, 2))


def test_names_of_other_operators_are_not_in_the_namespace():
    assert not hasattr(rabbet, "fused_adam") and rabbet.ops.fused_adam
    assert not hasattr(rabbet, "relu_vjp") and rabbet.ops("relu_vjp")
    assert rabbet.layer_norm(rabbet.ones(2, 3), (3,)).shape == (2, 3)
