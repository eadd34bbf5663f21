"""Graphs that are built and edited by hand."""

import pytest
import rabbet
from rabbet.graph import Graph, GraphError, capture, parse


def built():
    graph = Graph("built")
    x = graph.add_input(rabbet.float32, (2, 3), label="x")
    y = graph.call("mul", x, 2)
    z = graph.call("sum", y, [0])
    graph.outputs = [z]
    return graph, x, y, z


def test_a_built_graph_runs():
    graph, *_ = built()
    graph.check()
    assert graph.run(rabbet.ones(2, 3)).tolist() == [4, 4, 4]


def test_call_fills_in_defaults_and_infers_types():
    graph, _, y, z = built()
    assert (z.dtype, [str(n) for n in z.shape]) == (rabbet.float32, ["3"])
    values, indices = graph.call("max.dim", y, dim=1)
    assert indices.dtype == rabbet.int64 and values.node.args == (y, 1, False)
    parts = graph.call("split", y, 1, 1)
    assert len(parts) == 3 and all(part.buffer is y.buffer for part in parts)


def test_call_writes_into_a_value():
    graph, _, y, z = built()
    assert graph.call("add", y, 1, outs=(y,), before=z.node) is y
    graph.check()
    assert graph.run(rabbet.ones(2, 3)).tolist() == [6, 6, 6]


def test_call_infers_sizes_that_follow_from_symbols():
    graph = capture(lambda x: x * 1, rabbet.ones(3, 4), dynamic={"x": {0: "n"}})
    made = graph.call("cat", [graph.inputs[0], graph.outputs[0]], 0)
    assert str(made.shape[0]) == "n * 2"
    graph.outputs = [made]
    graph.check()
    assert graph.run(rabbet.ones(5, 4)).shape == (10, 4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda g, x: g.call("no_such_operator", x), "there is no operator 'no_such_operator'"),
        (lambda g, x: g.call("mul", x), "the argument 'other' of mul"),
        (lambda g, x: g.call("mul", x, 2, 3), "expected at most 2 arguments"),
        (lambda g, x: g.call("mul", x, 2, others=3), "has no parameter 'others'"),
        (lambda g, x: g.call("mul", x, 2, other=3), "the argument 'other' is given twice"),
        (lambda g, x: g.call("matmul", x, x), "matmul: "),
        (lambda g, x: g.call("add", x, built()[1]), "is not defined before the place of the call"),
        (lambda g, x: g.add_input(rabbet.float32, (2,), kind="thing"), "kind must be one of"),
    ],
)
def test_wrong_calls_are_refused_by_name(call, message):
    graph, x, *_ = built()
    before = str(graph)
    with pytest.raises(GraphError, match=message):
        call(graph, x)
    assert str(graph) == before


def test_replace_and_erase():
    graph, x, y, z = built()
    tripled = graph.call("mul", x, 3, before=y.node)
    graph.replace(y.node, tripled)
    assert graph.run(rabbet.ones(2, 3)).tolist() == [6, 6, 6]
    assert graph.users(tripled) == [z.node] and graph.users(x) == [tripled.node]
    with pytest.raises(GraphError, match="mul is used by"):
        graph.erase(tripled.node)
    with pytest.raises(GraphError, match="sum is returned by the graph"):
        graph.erase(z.node)


def test_a_replacement_has_the_same_type():
    graph, _, y, z = built()
    with pytest.raises(GraphError, match=r"%1 is float32\[2, 3\], but %2 is float32\[3\]"):
        graph.replace_uses(y, z)


def test_dead_nodes_go_and_effects_stay():
    def program(x):
        dead = x.sin()
        dead.add_(1)
        lost = x * 2
        view = lost[0]
        view.zero_()
        rabbet.rand(2)
        kept = x.cos()
        kept[0].fill_(1)
        x.add_(1)
        return kept

    graph = capture(program, rabbet.ones(2, 3))
    assert graph.eliminate_dead() == 5
    assert [node.op for node in graph.nodes] == ["rand", "cos", "select", "fill", "add"]
    graph.check()


def test_common_calls_merge_unless_memory_changes():
    def program(x, w):
        a, b = x.sin(), x.sin()
        c, d = w.sin(), None
        w.add_(1)
        d = w.sin()
        e, f = rabbet.rand(3), rabbet.rand(3)
        return (a + b) * 2, c + d, e + f, x * 1, x * 1, x * 1.0

    graph = capture(program, rabbet.ones(3), rabbet.ones(3))
    before = len(graph.nodes)
    assert graph.merge_common() == 1
    assert len(graph.nodes) == before - 1
    graph.check()
    rabbet.manual_seed(0)
    wanted = program(rabbet.ones(3), rabbet.ones(3))
    rabbet.manual_seed(0)
    found = graph.run(rabbet.ones(3), rabbet.ones(3))
    assert all(map(rabbet.equal, wanted, found))


def test_sorting_keeps_the_order_of_writes_and_draws():
    def program(x):
        y = x * 2
        x.add_(1)
        return y + x, rabbet.rand(2), rabbet.rand(2)

    graph = capture(program, rabbet.ones(2))
    graph.nodes[:] = [graph.nodes[i] for i in (0, 1, 4, 3, 2)]
    graph.sort()
    order = [node.op for node in graph.nodes]
    assert order.index("mul") < order.index("add")
    graph.check()


def test_a_cycle_is_named():
    graph = parse(
        'graph "g" {\n input %x: float32[3]\n %1: float32[3] = sin(%x)\n %2: float32[3] = cos(%1)\n return %2\n}'
    )
    first, second = graph.nodes
    first.args = (second.results[0],)
    with pytest.raises(GraphError, match="'g' has a cycle: %1 = sin, %2 = cos need each other"):
        graph.sort()
    with pytest.raises(GraphError, match="node 0 sin: %2 is used before it is defined"):
        graph.check()


def test_a_copy_is_edited_alone():
    graph, *_ = built()
    text = str(graph)
    other = graph.copy()
    assert str(other) == text
    other.call("relu", other.outputs[0])
    assert str(graph) == text


# ---- the checks

LINES = {
    "%1: float32[3] = sine(%x)": "there is no operator 'sine'; did you mean",
    "%1: float32[3] = sin(%x, %x)": "expected 1 arguments for sin(Tensor input) -> Tensor, got 2",
    "%1: float32[3] = sin([%x])": "argument 'input': expected Tensor, got [%x]",
    "%1: float32[3] = sum(%x, 0.5, False, None)": "argument 'dim': expected dim[], got 0.5",
    "%1: float32[3] = sum(%x, [0], False, \"x\")": "argument 'dtype': expected dtype, got \"x\"",
    "%1: float32[4] = sin(%x)": "%1: expected shape (3,), got float32[4]",
    "%1: float64[3] = sin(%x)": "%1: expected dtype float32, got float64",
    "%1: float32[3] = matmul(%x, %y)": "refused for these arguments: matmul",
    "(%1: float32[3], %2: float32[3]) = sin(%x)": "expected 1 results, got 2",
    "%1: float32[3] = max.dim(%x, 0, False)": "expected 2 results, got 1",
    "[%1: float32[3]] = sin(%x)": "expected a value as the result, got [%1]",
    "[%1: float32[2] of %x] = split(%x, 2, 0)": "expected 2 values in the list, got 1",
    "%1: float32[2] = slice(%x, 0, 0, 2, 1)": "%1 is a view, but shares no memory with an argument",
    "%1: float32[3] of %x = sin(%x)": "%1 shares memory with an argument, but is no view",
    "write %x, %y = sin(%x)": "expected 1 values to write, got 2",
    "write %y = sin(%x)": "%y: expected shape (3,) to write, got float32[4]",
    "%1: float32[] = if(%x, %x) { then \"t\" { input %0: float32[3] %1: float32[] = sum(%0, None, False, None) return %1 }"
    " else \"e\" { input %0: float32[3] return %0 } }": "the condition: expected one element, got float32[3]",
    "%1: float32[] = call(%x) { graph \"c\" { input %0: float32[4] %1: float32[] = sum(%0, None, False, None) return %1 } }":
        "operand %x of 'graph': expected float32[4], got float32[3]",
    "%1: float32[3] = call(%x) { graph \"c\" { input %0: float32[3] return %0 } }":
        "the graph 'graph' returns %0, which shares memory with an input",
    "%1: float32[3] = call(%x, %y) { graph \"c\" { input %0: float32[3] %1: float32[3] = sin(%0) return %1 } }":
        "the graph 'graph' takes 1 inputs, got 2 operands",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_each_fault_is_named_with_its_node(line):
    text = (
        f'graph "g" {{\n  input %x: float32[3]\n  input %y: float32[4]\n  {line}\n  return %x\n}}\n'
    )
    with pytest.raises(GraphError) as found:
        parse(text).check()
    assert LINES[line] in str(found.value)
    assert "graph 'g', node 0 " in str(found.value) or "graph 'c'" in str(found.value)


def test_faults_of_values_are_named():
    graph, *_ = built()
    other = built()[0]
    graph.nodes[1].args = (other.nodes[0].results[0], [0], False, None)
    with pytest.raises(GraphError, match="node 1 sum: %1 is not defined in the graph"):
        graph.check()
    graph, _, _, z = built()
    z.name = "1"
    with pytest.raises(GraphError, match="two values have the name %1"):
        graph.check()
    graph, *_ = built()
    graph.nodes.append(graph.nodes[0])
    with pytest.raises(GraphError, match="%1 is defined twice"):
        graph.check()
    graph, _, y, _ = built()
    graph.outputs = [y, other.inputs[0], [y]]
    with pytest.raises(GraphError, match="%0 is returned, but not defined"):
        graph.check()


def test_all_faults_are_listed():
    graph = parse(
        'graph "g" {\n input %x: float32[3]\n %1: float32[4] = sin(%x)\n %2: float64[3] = cos(%x)\n return %2\n}'
    )
    with pytest.raises(GraphError, match=r"\(2 faults\)"):
        graph.check()
