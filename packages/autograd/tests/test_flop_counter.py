"""FlopCounterMode: counts by operator and by module, forward and backward, against those known by hand."""

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet.utils import flop_counter
from rabbet.utils.flop_counter import FlopCounterMode

aten = rabbet.ops.aten


def x(*shape):
    return rabbet.randn(*shape)


def g(*shape):
    return rabbet.randn(*shape, requires_grad=True)


def counted(run, **options):
    with FlopCounterMode(display=False, **options) as counter:
        run()
    counts = counter.get_flop_counts()["Global"]
    assert counter.get_total_flops() == sum(counts.values())
    return {key.__name__: n for key, n in counts.items()}


CASES = {
    "mm": (lambda: rabbet.mm(x(3, 4), x(4, 5)), {"mm": 120}),
    "matmul folded": (lambda: x(2, 3, 4) @ x(4, 5), {"mm": 240}),
    "matmul batched": (lambda: x(2, 3) @ x(5, 3, 4), {"bmm": 240}),
    "matmul of a row": (lambda: x(4) @ x(2, 4, 3), {"bmm": 48}),
    "vectors": (lambda: (x(4) @ x(4), x(3, 4) @ x(4), rabbet.outer(x(3), x(4))), {}),
    "bmm": (lambda: rabbet.bmm(x(2, 3, 4), x(2, 4, 5)), {"bmm": 240}),
    "baddbmm": (lambda: rabbet.baddbmm(x(2, 3, 5), x(2, 3, 4), x(2, 4, 5)), {"baddbmm": 240}),
    "addmm": (lambda: rabbet.addmm(x(3, 5), x(3, 4), x(4, 5)), {"addmm": 120}),
    "linear": (lambda: F.linear(x(2, 3, 4), x(5, 4), x(5)), {"addmm": 240}),
    "linear without bias": (lambda: F.linear(x(3, 4), x(5, 4)), {"mm": 120}),
    "einsum": (lambda: rabbet.einsum("bij,bjk->bik", x(2, 3, 4), x(2, 4, 5)), {"bmm": 240}),
    "tensordot": (lambda: rabbet.tensordot(x(3, 4), x(4, 5), 1), {"mm": 120}),
    "convolution": (lambda: F.conv2d(x(2, 3, 8, 8), x(6, 3, 3, 3), x(6), padding=1), {"convolution": 41472}),
    "convolution in groups": (lambda: F.conv2d(x(2, 4, 8, 8), x(6, 2, 3, 3), groups=2, stride=2), {"convolution": 3888}),
    "convolution of a line": (lambda: F.conv1d(x(2, 3, 8), x(6, 3, 3)), {"convolution": 1296}),
    "transposed": (lambda: F.conv_transpose2d(x(2, 3, 8, 8), x(3, 6, 3, 3)), {"convolution": 41472}),
    "mm backward": (lambda: rabbet.mm(g(3, 4), g(4, 5)).sum().backward(), {"mm": 360}),
    "bmm backward": (lambda: rabbet.bmm(g(2, 3, 4), g(2, 4, 5)).sum().backward(), {"bmm": 720}),
    "linear backward": (lambda: F.linear(x(3, 4), g(5, 4), g(5)).sum().backward(), {"addmm": 120, "mm": 120}),
    "convolution backward": (
        lambda: F.conv2d(g(2, 3, 8, 8), g(6, 3, 3, 3), g(6), padding=1).sum().backward(),
        {"convolution": 41472, "convolution_backward": 82944},
    ),
    "transposed backward": (
        lambda: F.conv_transpose2d(g(2, 3, 8, 8), g(3, 6, 3, 3)).sum().backward(),
        {"convolution": 41472, "convolution_backward": 82944},
    ),
    "elementwise": (lambda: (x(3) + x(3), rabbet.softmax(x(3, 3), 0)), {}),
}  # fmt: skip


@pytest.mark.parametrize("run, counts", CASES.values(), ids=CASES)
def test_counts_of_operators(run, counts):
    assert counted(run) == counts


def test_attention_counts_scores_and_sums():
    q, k, v = x(2, 3, 5, 4), x(2, 3, 7, 4), x(2, 3, 7, 6)
    assert sum(counted(lambda: F.scaled_dot_product_attention(q, k, v)).values()) == 4200
    q, k, v = (g(2, 3, 5, 4) for _ in range(3))
    counts = counted(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    assert counts == {
        "_scaled_dot_product_flash_attention": 2400,
        "_scaled_dot_product_flash_attention_backward": 6000,
    }


def test_modules_have_their_paths():
    net = rabbet.nn.Sequential(rabbet.nn.Linear(4, 8), rabbet.nn.ReLU(), rabbet.nn.Linear(8, 2))
    with FlopCounterMode(display=False) as counter:
        net(x(3, 4)).sum().backward()
    counts = {
        n: {k.__name__: v for k, v in c.items()} for n, c in counter.get_flop_counts().items()
    }
    assert counts["Global"] == counts["Sequential"] == {"addmm": 288, "mm": 384}
    assert counts["Sequential.0"] == {"addmm": 192, "mm": 192}
    assert counts["Sequential.2"] == {"addmm": 96, "mm": 192}
    table = counter.get_table()
    assert (
        "Sequential.0" in table
        and "Sequential.0" not in counter.get_table(depth=1)
        and "100.00%" in table
    )


def test_what_follows_backward_belongs_to_no_module():
    net = rabbet.nn.Linear(4, 2)
    with FlopCounterMode(display=False) as counter:
        net(x(3, 4)).sum().backward()
        x(2, 2) @ x(2, 2)
    assert counter.get_total_flops() == 48 + 48 + 16
    assert sum(counter.get_flop_counts()["Linear"].values()) == 96


def test_entering_again_starts_at_zero(capsys):
    counter = FlopCounterMode()
    for _ in range(2):
        with counter:
            x(2, 2) @ x(2, 2)
        assert counter.get_total_flops() == 16
    assert capsys.readouterr().out.count("Global") == 2


def test_formulas_can_be_registered_and_given(monkeypatch):
    monkeypatch.setattr(flop_counter, "flop_registry", dict(flop_counter.flop_registry))

    @flop_counter.register_flop_formula(aten.add)
    def add_flop(a, b, *args, out_shape=None, **kwargs):
        return out_shape[0] * 1000

    assert counted(lambda: x(3) + x(3)) == {"add": 3000}
    given = {aten.mul: lambda a, b, *args, out_shape=None, **kwargs: 5}
    assert counted(lambda: x(3) * x(3), custom_mapping=given) == {"mul": 5}
    with pytest.raises(RuntimeError, match="duplicate"):
        flop_counter.register_flop_formula(aten.mm)(add_flop)


def test_formulas_of_shapes():
    assert flop_counter.mm_flop((2, 3), (3, 4)) == 48
    assert flop_counter.conv_flop_count([1, 2, 3, 3], [4, 2, 1, 1], [1, 4, 3, 3]) == 144
    assert flop_counter.sdpa_flop_count((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)) == 600
    assert (
        flop_counter.sdpa_backward_flop_count(
            (1, 2, 3, 6), (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)
        )
        == 1440
    )
    with pytest.raises(AssertionError):
        flop_counter.mm_flop((2, 3), (4, 5))


@pytest.mark.parametrize(
    "number, suffix, text", [(5, "", "5.000"), (123456, "K", "123.456K"), (10**13, "T", "10.000T")]
)
def test_numbers_have_suffixes(number, suffix, text):
    assert flop_counter.get_suffix_str(number) == suffix
    assert flop_counter.convert_num_with_suffix(number, suffix) == text
    assert flop_counter.convert_to_percent_str(1, 3) == "33.33%"
    assert flop_counter.convert_to_percent_str(1, 0) == "0%"


def test_an_error_inside_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError), FlopCounterMode(display=False):
        raise ZeroDivisionError
    net = rabbet.nn.Linear(2, 2)
    net(x(1, 2))
    assert counted(lambda: net(x(1, 2))) == {"addmm": 8}
