"""Captures with dynamic sizes: one graph for many sizes, and the sizes that it refuses."""

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn
from rabbet.graph import CaptureError, Dim, InputError, capture, cond, parse
from rabbet.utils._pytree import tree_leaves


def agree(program, graph, *inputs):
    found, wanted = tree_leaves(graph.run(*inputs)), tree_leaves(program(*inputs))
    return len(found) == len(wanted) and all(
        rabbet.equal(a, b) if isinstance(a, rabbet.Tensor) else a == b
        for a, b in zip(found, wanted, strict=True)
    )


def checked(graph):
    graph.check()
    assert str(parse(str(graph))) == str(graph)
    return graph


def test_an_encoder_layer_takes_batches_and_lengths():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with rabbet.no_grad():
        graph = checked(
            capture(layer, rabbet.randn(3, 5, 8), dynamic={"src": {0: "batch", 1: "length"}})
        )
        for batch, length in ((3, 5), (2, 7), (9, 2), (4, 16)):
            assert agree(layer, graph, rabbet.randn(batch, length, 8))
    assert list(graph.symbols) == ["batch", "length"]


def test_a_convolutional_network_takes_batches_and_sizes():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 2),
    ).eval()  # fmt: skip
    with rabbet.no_grad():
        graph = checked(
            capture(model, rabbet.randn(2, 3, 16, 16), dynamic=[{0: "n", 2: "h", 3: "w"}])
        )
        for n, h, w in ((2, 16, 16), (5, 20, 17), (3, 9, 33)):
            assert agree(model, graph, rabbet.randn(n, 3, h, w))


def test_gradients_inside_follow_sizes():
    def program(x, w):
        y = (x @ w).softmax(-1)
        loss = -(y.log().mean() + y.sum(0).max())
        return loss.detach(), *rabbet.autograd.grad(loss, (x, w))

    def inputs(n):
        return rabbet.randn(n, 4, requires_grad=True), rabbet.randn(4, 3, requires_grad=True)

    graph = checked(capture(program, *inputs(5), dynamic={"x": {0: True}}))
    for n in (5, 2, 12):
        assert agree(program, graph, *inputs(n))


def test_numbers_that_python_computes_stay_expressions():
    def program(x):
        b, t = x.shape
        if t > 3:
            x = x * 2
        halves = x.view(b * t // 2, 2) if t % 2 == 0 else x.reshape(-1, 1)
        scaled = halves.sum() / b + t**0.5 + x.numel()
        return (
            scaled,
            x[:, : t // 2],
            rabbet.zeros(b, t + 1),
            F.pad(x, (0, b)),
            x.expand(3, *x.size()),
            -b,
            max(b, t),
            x.size(1),
        )

    graph = checked(capture(program, rabbet.randn(4, 6), dynamic=[{0: "b", 1: "t"}]))
    for b, t in ((4, 6), (2, 10), (3, 4)):
        if b < t:
            assert agree(program, graph, rabbet.randn(b, t))
    lines = [str(c) for c in graph.constraints]
    assert lines[:2] == ["t > 3", "t % 2 == 0"]
    with pytest.raises(InputError) as found:
        graph.run(rabbet.randn(2, 7))
    assert "the sizes break the constraint t % 2 == 0" in str(found.value)
    assert "t is dimension 1 of input 'x', which is 7" in str(found.value)
    assert "test_sizes.py:" in str(found.value) and "in program relies" in str(found.value)


def test_a_branch_on_sizes_keeps_the_side_of_the_capture():
    def program(x):
        return x.sin() if x.shape[0] > 8 else x.cos() * 2

    graph = checked(capture(program, rabbet.ones(6), dynamic=True))
    assert agree(program, graph, rabbet.ones(8)) and agree(program, graph, rabbet.ones(3))
    with pytest.raises(
        InputError, match=r"the sizes break the constraint s0 <= 8, on which .*test_sizes\.py"
    ):
        graph.run(rabbet.ones(9))


def test_ranges_are_kept():
    n = Dim("n", min=3, max=12)
    graph = checked(capture(lambda x: x + 1, rabbet.ones(4), dynamic={"x": {0: n}}))
    assert graph.run(rabbet.ones(12)).shape == (12,)
    for size in (2, 13):
        with pytest.raises(
            InputError, match=rf"input 'x', dimension 0: expected a size in \[3, 12\], got {size}"
        ):
            graph.run(rabbet.ones(size))


def test_equal_sizes_are_found_with_their_line():
    def program(x, y):
        return x + y

    graph = checked(capture(program, rabbet.ones(4), rabbet.ones(4), dynamic=True))
    assert graph.run(rabbet.ones(7), rabbet.ones(7)).shape == (7,)
    with pytest.raises(InputError) as found:
        graph.run(rabbet.ones(5), rabbet.ones(6))
    assert "input 'y', dimension 0: expected size 5, got 6: it equals dimension 0 of 'x'" in str(
        found.value
    )
    assert "test_sizes.py" in str(found.value)


def test_sizes_with_one_dim_are_equal():
    n = Dim("n")
    graph = checked(
        capture(lambda x, y: x @ y, rabbet.ones(2, 3), rabbet.ones(3, 2), dynamic=[{1: n}, {0: n}])
    )
    assert graph.run(rabbet.ones(2, 5), rabbet.ones(5, 2)).tolist() == [[5, 5], [5, 5]]
    with pytest.raises(InputError, match="input 'y', dimension 0: expected size 5, got 4"):
        graph.run(rabbet.ones(2, 5), rabbet.ones(4, 2))
    with pytest.raises(ValueError, match="'n' has the size 2 elsewhere, got 3"):
        capture(lambda x: x, rabbet.ones(2, 3), dynamic=[{0: n, 1: n}])


def test_different_dims_that_must_be_equal_are_refused():
    with pytest.raises(CaptureError, match="sizes that must be equal need the same Dim"):
        capture(lambda x, y: x + y, rabbet.ones(4), rabbet.ones(4), dynamic=[{0: "a"}, {0: "b"}])


def test_programs_that_divide_sizes():
    def program(x):
        return x.unflatten(0, (-1, 4)).sum(1)

    graph = checked(capture(program, rabbet.randn(8, 3), dynamic=True))
    assert agree(program, graph, rabbet.randn(12, 3))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: [x := x + i for i in range(x.shape[0])][-1],
        lambda x: x * {4: 1.0}.get(x.shape[0], 2.0),
        lambda x: x * len([0] * x.shape[0]),
        lambda x: x * int(x.size(0)),
    ],
)
def test_sizes_that_python_fixes_are_refused_with_the_line(program):
    with pytest.raises(
        CaptureError, match=r"test_sizes.py:\d+ in .* needs a fixed number, but s0 = 4"
    ):
        capture(program, rabbet.ones(4), dynamic=True)


def test_a_size_that_must_be_what_it_is():
    with pytest.raises(
        CaptureError, match="does not accept other sizes than those of its arguments"
    ) as found:
        capture(nn.Linear(4, 2), rabbet.ones(3, 4), dynamic={"input": {1: True}})
    assert "linear" in str(found.value)


def test_numbers_that_no_expression_gives_are_refused():
    def program(x):
        import operator

        return x * hidden(operator.index(Plain(x.shape[0])))

    class Plain:  # a size that escapes through a Python object
        def __init__(self, n):
            self.n = n

        def __index__(self):
            return getattr(self.n, "value", self.n)

    def hidden(n):
        return [0, 1, 4, 9, 2, 6, 5, 3, 8, 7][n % 10] + n % 3

    with pytest.raises(CaptureError, match=r"mul at .* follows from the dynamic sizes in a way"):
        capture(program, rabbet.ones(4), dynamic=True)


def test_captures_at_other_sizes_leave_no_trace():
    model = nn.BatchNorm1d(3)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    twin = nn.BatchNorm1d(3)
    x = rabbet.randn(4, 3)
    rabbet.manual_seed(5)
    capture(lambda x: model(x) + rabbet.rand(3), x, dynamic=[{0: True}], state=model)
    drawn = rabbet.rand(2)
    rabbet.manual_seed(5)
    twin(x), rabbet.rand(3)
    assert rabbet.equal(drawn, rabbet.rand(2))
    after = model.state_dict()
    assert all(rabbet.equal(after[k], v) for k, v in twin.state_dict().items())
    assert not rabbet.equal(before["running_mean"], after["running_mean"])


def test_branches_with_dynamic_operands():
    def program(x):
        return cond(x.sum() > 0, lambda x: x * 2, lambda x: x.flip(0), (x,))

    graph = checked(capture(program, rabbet.ones(4), dynamic=True))
    for x in (rabbet.ones(7), -rabbet.arange(5.0)):
        assert agree(program, graph, x)


def test_edits_of_dynamic_graphs():
    def program(x):
        y = x.reshape(-1).sin()
        return y + x.reshape(-1).sin(), (x * 0).cos()

    graph = capture(program, rabbet.randn(3, 4), dynamic=True)
    graph.outputs = graph.outputs[:1]
    graph.out_spec = None
    assert graph.eliminate_dead() == 2 and graph.merge_common() == 2
    checked(graph)
    x = rabbet.randn(5, 6)
    assert rabbet.equal(graph.run(x), program(x)[0])


def test_dims():
    for wrong in ("2x", 3, ""):
        with pytest.raises(ValueError, match="the name must be an identifier"):
            Dim(wrong)
    with pytest.raises(ValueError, match="expected 0 <= min <= max for 'n', got min=5, max=3"):
        Dim("n", min=5, max=3)
    assert repr(Dim("n", max=3)) == "Dim('n', min=2, max=3)"
    with pytest.raises(ValueError, match=r"the size 4 is not in \[5, inf\]"):
        capture(lambda x: x, rabbet.ones(4), dynamic=[{0: Dim("n", min=5)}])
