"""Programs: graphs that run without Python between their calls."""

import copy
import pickle
import threading

import pytest
import rabbet
import rabbet.graph._run as runs
from rabbet import nn
from rabbet.graph import _C, InputError, Size, capture
from rabbet.graph._program import lowered


def program_of(graph, with_grad=False, **symbols):
    return lowered(graph).program(graph, symbols, with_grad)


def both_ways(graph, monkeypatch, *inputs):
    """The results of the program, and of the executor in Python."""
    assert program_of(graph) is not None
    first = graph.run(*inputs)
    with monkeypatch.context() as patch:
        patch.setattr("rabbet.graph._program.Lowered.program", lambda *args: None)
        return first, graph.run(*inputs)


# ---- results


def test_a_program_gives_what_the_executor_in_python_gives(monkeypatch):
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    graph = capture(model, rabbet.randn(3, 8))
    x = rabbet.randn(3, 8)
    first, second = both_ways(graph, monkeypatch, x)
    assert first.equal(second) and first.equal(model(x))


def test_lists_of_tensors_go_in_and_come_out(monkeypatch):
    def parts(x):
        a, b, c = rabbet.split(x, [1, 2, 3])
        return rabbet.cat([c, a, b]), rabbet.stack([b, b]), [a, c]

    graph = capture(parts, rabbet.arange(6.0))
    first, second = both_ways(graph, monkeypatch, rabbet.arange(6.0) + 1)
    assert first[0].tolist() == [4, 5, 6, 1, 2, 3] and first[1].tolist() == [[2, 3], [2, 3]]
    assert [t.tolist() for t in first[2]] == [t.tolist() for t in second[2]] == [[1], [4, 5, 6]]


def test_writes_and_views_take_place_in_order(monkeypatch):
    def write(x):
        x[1:].mul_(2)
        y = x.sum()
        x.view(-1)[:1].add_(y)
        return x, x[0]

    graph = capture(write, rabbet.ones(4))
    x = rabbet.ones(4)
    whole, first = graph.run(x)
    assert whole is x and x.tolist() == [8, 2, 2, 2] and first.item() == 8


def test_random_numbers_are_those_of_the_program():
    generator = rabbet.Generator().manual_seed(3)
    graph = capture(
        lambda x: x + rabbet.rand(4) + rabbet.rand(4, generator=generator), rabbet.zeros(4)
    )
    assert program_of(graph) is not None
    rabbet.manual_seed(5)
    generator.manual_seed(7)
    made = graph.run(rabbet.zeros(4))
    rabbet.manual_seed(5)
    generator.manual_seed(7)
    assert made.equal(rabbet.rand(4) + rabbet.rand(4, generator=generator))


def test_gradients_pass_only_through_what_autograd_recorded():
    weight = nn.Parameter(rabbet.tensor([2.0, 3.0]))

    def mixed(x):
        with rabbet.no_grad():
            scale = (weight * 10).sum()
        return (x * weight).sum() * scale

    graph = capture(mixed, rabbet.ones(2), state=[nn.ParameterList([weight])])
    assert program_of(graph, with_grad=True) is not None
    graph.run(rabbet.tensor([1.0, 5.0])).backward()
    assert weight.grad.tolist() == [50.0, 250.0]
    assert rabbet.is_grad_enabled()


def test_a_training_step_runs_as_a_program_and_matches_eager_steps():
    def trained(steps):
        rabbet.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = rabbet.optim.Adam(model.parameters(), lr=0.01, capturable=True)
        x, y = rabbet.randn(16, 4), rabbet.randn(16, 1)

        def step(x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step(x, y)
        run = step
        if steps == "graph":
            graph = capture(step, x, y, state=[model, optimizer])
            assert not lowered(graph).has_history and not graph.find("contiguous_clone")
            run = graph.run
        else:
            step(x, y)
        losses = [run(x, y).item() for _ in range(4)]
        return losses, [p.tolist() for p in model.parameters()]

    assert trained("graph") == trained("eager")


def test_a_gradient_that_the_program_also_returns_keeps_its_copy():
    weight = nn.Parameter(rabbet.ones(3))

    def step(x):
        weight.grad = None
        product = x * weight
        product.retain_grad()
        product.sum().backward()
        return weight.grad

    graph = capture(step, rabbet.ones(3), state=[nn.ParameterList([weight])])
    weight.grad = None
    made = graph.run(rabbet.tensor([1.0, 2.0, 3.0]))
    assert made is weight.grad and made.tolist() == [1, 2, 3]


# ---- sizes and edits


def test_a_graph_keeps_a_program_for_each_size_and_only_the_last_ones():
    graph = capture(
        lambda x: x.reshape(x.shape[0] * 2, -1).sum(1), rabbet.ones(3, 4), dynamic={"x": {0: "n"}}
    )
    for n in range(2, 30):
        assert graph.run(rabbet.ones(n, 4)).tolist() == [2.0] * (2 * n)
    assert program_of(graph, n=7) is program_of(graph, n=7) is not program_of(graph, n=8)
    assert len(lowered(graph)._programs) <= 16


def test_an_edit_drops_the_programs():
    graph = capture(lambda x: (x + 1) * 2, rabbet.ones(2))
    assert graph.run(rabbet.ones(2)).tolist() == [4, 4]
    (product,) = graph.find("mul")
    product.args = (product.args[0], 5, *product.args[2:])
    assert graph.run(rabbet.ones(2)).tolist() == [10, 10]
    graph.outputs[0] = graph.find("add")[0].results[0]
    graph.eliminate_dead()
    assert graph.run(rabbet.ones(2)).tolist() == [2, 2]
    graph.inputs[0].shape = (Size("const", 3),)
    with pytest.raises(InputError, match="expected size 3, got 2"):
        graph.run(rabbet.ones(2))


def test_a_graph_that_has_run_is_copied_and_pickled():
    graph = capture(nn.Linear(2, 2), rabbet.ones(1, 2))
    x = rabbet.randn(1, 2)
    wanted = graph.run(x)
    for other in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert other.run(x).equal(wanted)
    module = copy.deepcopy(rabbet.graph.GraphModule(graph))
    assert module(x).equal(wanted)


def test_branches_and_shapes_that_depend_on_values_are_left_to_python():
    graph = capture(lambda x: x.nonzero().sum(), rabbet.ones(3))
    assert graph.run(rabbet.tensor([0.0, 1.0, 1.0])).item() == 3
    graph = capture(
        lambda x: rabbet.graph.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, [x]),
        rabbet.ones(2),
    )
    assert program_of(graph) is None and graph.run(-rabbet.ones(2)).tolist() == [-2, -2]


# ---- errors


def test_an_error_names_the_step_and_leaves_the_thread_as_it_was():
    def pick(x, i):
        with rabbet.no_grad():
            y = x + 1
            return y.index_select(0, i)

    graph = capture(pick, rabbet.ones(3), rabbet.tensor([0]))
    with pytest.raises(IndexError, match="index_select") as caught:
        graph.run(rabbet.ones(3), rabbet.tensor([9]))
    assert any(
        "in node 1, index_select, of the graph 'pick'" in note for note in caught.value.__notes__
    )
    assert rabbet.is_grad_enabled()
    assert graph.run(rabbet.ones(3), rabbet.tensor([2])).tolist() == [2]


def test_wrong_inputs_are_refused_before_anything_runs():
    graph = capture(lambda x: x.add_(1), rabbet.ones(3))
    x = rabbet.ones(4)
    with pytest.raises(InputError, match="dimension 0: expected size 3, got 4"):
        graph.run(x)
    assert x.tolist() == [1] * 4
    program = program_of(graph)
    with pytest.raises(TypeError, match="expected tensors, got int"):
        program.run([3])
    with pytest.raises(ValueError, match="expected 1 inputs and 1 outputs, got 2 and 1"):
        program.run([x, x])


ADD = ("add", (rabbet.zeros(()), rabbet.zeros(()), 1))
PLACES = [(0, -1, 0), (1, -1, 0)]


@pytest.mark.parametrize(
    "step,error,text",
    [
        ((*ADD, PLACES, [], [7], False, [], 0), RuntimeError, "slot 7 is taken"),
        ((*ADD, PLACES, [], [0], False, [], 0), RuntimeError, "slot 0 is taken"),
        ((*ADD, [(0, -1, 1), (1, -1, 0)], [], [1], False, [], 0), RuntimeError, "slot 1 is not made yet"),
        ((*ADD, [(0, -1, 9), (1, -1, 0)], [], [1], False, [], 0), IndexError, "there is no slot 9"),
        ((*ADD, [(5, -1, 0)], [], [1], False, [], 0), IndexError, "add has no argument 5"),
        ((*ADD, [(0, 2, 0)], [], [1], False, [], 0), IndexError, "argument 0 has no tensor 2"),
        ((*ADD, PLACES[:1], [], [1], False, [], 0), ValueError, "argument 1 is a tensor without a slot"),
        ((*ADD, PLACES, [], [], False, [], 0), ValueError, "add has 1 results, got 0"),
        ((*ADD, PLACES, [0, 0], [], False, [], 0), ValueError, "and 2 tensors to write"),
        ((*ADD, PLACES, [], [1], False, [0], 0), RuntimeError, "slot 0 is an input"),
        (("add", (1,), [], [], [1], False, [], 0), TypeError, "expected an argument for each of the 3 parameters"),
        (("nothing", (), [], [], [1], False, [], 0), KeyError, "no operator 'nothing'"),
    ],
)  # fmt: skip
def test_wrong_steps_are_refused(step, error, text):
    program = _C.Program(1, 2)
    with pytest.raises(error, match=text):
        program.add(*step)
    program.add(*ADD, PLACES, [], [1], False, [], 0)  # nothing is left of the refused one
    program.finish([1])
    assert program.run([rabbet.ones(2)])[0].tolist() == [2, 2]


def test_a_program_is_finished_once_and_before_it_runs():
    program = _C.Program(1, 1)
    with pytest.raises(RuntimeError, match="not finished"):
        program.run([rabbet.ones(1)])
    with pytest.raises(IndexError, match="there is no slot 4"):
        program.finish([4])
    program.finish([0])
    for call in (
        lambda: program.finish([0]),
        lambda: program.add(*ADD, PLACES, [], [], False, [], 0),
    ):
        with pytest.raises(RuntimeError, match="is finished"):
            call()
    with pytest.raises(ValueError, match="3 inputs do not fit into 2 slots"):
        _C.Program(3, 2)


# ---- threads and memory


def test_threads_run_one_program_at_once():
    graph = capture(lambda x: ((x @ x).relu() + x).sum(0), rabbet.ones(16, 16))
    inputs = [rabbet.randn(16, 16) for _ in range(8)]
    wanted = [graph.run(x) for x in inputs]
    program, wrong = program_of(graph), []

    def work(i):
        for _ in range(50):
            if not program.run([inputs[i]])[0].equal(wanted[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_runs_keep_no_memory():
    graph = capture(lambda x: (x + 1).exp().sum(), rabbet.ones(1 << 18))
    x = rabbet.ones(1 << 18)
    graph.run(x)
    before = rabbet._C.memory_stats("cpu")["allocated_bytes.all.current"]
    for _ in range(5):
        graph.run(x)
    assert rabbet._C.memory_stats("cpu")["allocated_bytes.all.current"] == before
    assert runs.lowered(graph).program(graph, {}, False) is program_of(graph)


def test_a_run_may_give_numbers_anew():
    program = _C.Program(1, 2)
    program.add(
        "add", (rabbet.ones(1), 2.5, 1), [(0, -1, 0)], [], [1], False, [], 0, [(1, 0), (2, 1)]
    )
    program.finish([1])
    x = rabbet.arange(3.0)
    assert program.run([x], [4.0, 3])[0].tolist() == [12, 13, 14]
    assert program.run([x], [2, 1])[0].tolist() == [2, 3, 4]  # an integer in the place of a float
    with pytest.raises(RuntimeError, match="program_run: expected 2 numbers, got 1"):
        program.run([x], [1.0])
    with pytest.raises(TypeError, match="add: expected an integer of the run, got another value"):
        program.run([x], [1.0, 2.5])
    with pytest.raises(TypeError, match=r"Program\.run: expected numbers, got str"):
        program.run([x], ["a", 1])
    program = _C.Program(1, 2)
    with pytest.raises(RuntimeError, match="program_add: add: argument 0 is no number"):
        program.add("add", (rabbet.ones(1), 2.5, 1), [(0, -1, 0)], [], [1], False, [], 0, [(0, 0)])
