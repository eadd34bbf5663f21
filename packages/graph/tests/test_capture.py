"""Programs that are captured, and run as graphs beside the eager program."""

import subprocess
import sys
import threading

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import nn
from rabbet.graph import CaptureError, GraphError, InputError, capture, cond, parse, while_loop
from rabbet.utils._pytree import tree_leaves


def same(found, wanted):
    """Whether two results have equal bits."""
    a, b = tree_leaves(found), tree_leaves(wanted)
    return len(a) == len(b) and all(
        (x.dtype == y.dtype and x.stride() == y.stride() and rabbet.equal(x, y))
        if isinstance(x, rabbet.Tensor)
        else x == y
        for x, y in zip(a, b, strict=True)
    )


def agree(program, graph, *inputs):
    """Whether program and graph give the same for the same random numbers."""
    rabbet.manual_seed(11)
    wanted = program(*inputs)
    rabbet.manual_seed(11)
    return same(graph.run(*inputs), wanted)


def checked(graph):
    """A graph that passes its checks and is read back from its text."""
    graph.check()
    assert str(parse(str(graph))) == str(graph)
    return graph


def test_a_module_keeps_the_names_of_its_state():
    model = nn.Sequential(
        nn.Linear(4, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
    )
    twin = nn.Sequential(
        nn.Linear(4, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
    )
    twin.load_state_dict(model.state_dict())
    x = rabbet.randn(5, 4)
    graph = checked(capture(model, x))
    twin(x)
    labels = [value.label for value in graph.inputs if value.kind != "input"]
    assert sorted(labels) == sorted(model.state_dict())
    for _ in range(2):
        x = rabbet.randn(5, 4)
        assert agree(twin, graph, x) or pytest.fail("results differ")
        graph.bound["2.running_mean"].copy_(twin[2].running_mean)
    assert same(model[2].num_batches_tracked, twin[2].num_batches_tracked)


def test_a_training_step_with_its_optimizer():
    def made():
        rabbet.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = rabbet.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, optimizer, step

    model, optimizer, step = made()
    twin, _, wanted = made()
    batches = [(rabbet.randn(6, 4), rabbet.randint(0, 2, (6,))) for _ in range(5)]
    assert same(step(*batches[0]), wanted(*batches[0]))
    graph = checked(capture(step, *batches[1], state=[model, optimizer]))
    wanted(*batches[1])
    for batch in batches[2:]:
        assert same(graph.run(*batch), wanted(*batch))
    assert same(list(model.state_dict().values()), list(twin.state_dict().values()))
    assert same([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


def test_gradients_that_stay_are_part_of_the_graph():
    weight = rabbet.randn(4, requires_grad=True)

    def program(x):
        (x * weight).sum().backward()

    graph = checked(capture(program, rabbet.ones(4)))
    with pytest.raises(InputError, match="has a gradient already"):
        graph.run(rabbet.ones(4))
    weight.grad = None
    graph.run(rabbet.full((4,), 3.0))
    assert weight.grad.tolist() == [3, 3, 3, 3]


def test_graphs_are_differentiable_as_the_program_is():
    layer = nn.Linear(4, 3)

    def program(x):
        with rabbet.no_grad():
            scale = layer.weight.sum()
        y = layer(x).relu() * scale
        return y.sum() + (y.detach() * layer.bias).sum()

    x = rabbet.randn(2, 4)
    graph = checked(capture(program, x))
    program(x).backward()
    wanted = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    graph.run(x).backward()
    assert same([p.grad for p in layer.parameters()], wanted)


def test_the_gradient_of_a_function_in_python_is_refused():
    class Double(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = rabbet.randn(3, requires_grad=True)
    graph = checked(capture(lambda x: Double.apply(x).sum(), x))
    with pytest.raises(GraphError, match=r"autograd.Function at .*test_capture.py:\d+ in forward"):
        graph.run(x)
    with rabbet.no_grad():
        assert graph.run(x) == x.sum() * 2


def test_transforms_and_autocast_inside():
    from rabbet import func

    def program(x):
        with rabbet.autocast("cpu"):
            low = x @ x.t()
        return (
            low,
            func.grad(lambda v: (v.sin() ** 2).sum())(x),
            rabbet.vmap(lambda v: v.cumsum(0))(x),
            func.jvp(lambda v: v.exp(), (x,), (x,)),
            func.hessian(lambda v: (v**3).sum())(x[0]),
        )

    graph = checked(capture(program, rabbet.randn(3, 4)))
    x = rabbet.randn(3, 4)
    assert agree(program, graph, x)
    with rabbet.autocast("cpu"):
        assert agree(program, graph, x)
    stacked = rabbet.stack([x, x])
    summed = capture(lambda x: x.sin().sum(), x)
    assert same(rabbet.vmap(summed.run)(stacked), stacked.sin().sum((1, 2)))


@pytest.mark.parametrize("dtype", [rabbet.bfloat16, rabbet.float16, rabbet.float32, rabbet.float64])
@pytest.mark.parametrize(
    "name", ["sin", "exp", "tanh", "sigmoid", "gelu", "silu", "softplus", "sqrt"]
)
def test_derivatives_round_as_they_do_eagerly(name, dtype):
    function = getattr(F, name, None) or getattr(rabbet, name)

    def program(x):
        x = x.detach().requires_grad_()
        (grad,) = rabbet.autograd.grad(function(x).sum(), x)
        return grad

    x = (rabbet.rand(64) + 0.1).to(dtype)
    graph = checked(capture(program, x))
    assert agree(program, graph, x)


def test_containers_plain_arguments_and_results():
    def program(batch, scale, *, names, extra=None):
        x, (y, z) = batch["x"], batch["pair"]
        return {"sum": x * scale + y, "kept": [z, None, 3, "text"], "names": tuple(names)}

    def arguments(n=2):
        return {"x": rabbet.ones(n), "pair": (rabbet.ones(n), rabbet.zeros(n))}, 2.5

    graph = checked(capture(program, *arguments(), names=["a", "b"]))
    assert [v.label for v in graph.inputs] == ["batch['x']", "batch['pair'][0]", "batch['pair'][1]"]
    assert same(graph.run(*arguments(), names=["a", "b"]), program(*arguments(), names=["a", "b"]))
    with pytest.raises(InputError, match=r"expected 2\.5 at place 3, got 2"):
        graph.run(arguments()[0], 2, names=["a", "b"])
    with pytest.raises(InputError, match="captured with arguments of the structure"):
        graph.run(*arguments(), names=["a"])


def test_tensors_made_of_data_are_new_in_each_run():
    def program(x):
        total = rabbet.tensor([1.0, 2.0])
        total.add_(x)
        return total

    graph = checked(capture(program, rabbet.ones(2)))
    assert [graph.run(rabbet.ones(2)).tolist() for _ in range(2)] == [[2, 3], [2, 3]]


def test_generators_are_the_programs_own_objects():
    generator = rabbet.Generator()

    def program(x):
        return x + rabbet.rand(2, generator=generator), rabbet.rand(
            2, generator=rabbet.Generator().manual_seed(3)
        )

    graph = checked(capture(program, rabbet.ones(2)))
    kept, made = graph.objects.values()
    assert kept is generator and made is not generator
    generator.manual_seed(5), made.manual_seed(3)
    found = graph.run(rabbet.ones(2))
    generator.manual_seed(5)
    assert same(found, program(rabbet.ones(2)))
    with pytest.raises(GraphError, match="nothing is given for the object 'generator_1'"):
        parse(str(graph), objects={"generator_0": generator}).run(rabbet.ones(2))


def test_constants_are_the_programs_own_tensors():
    bias = rabbet.zeros(2)
    graph = checked(capture(lambda x: x + bias, rabbet.ones(2)))
    bias.fill_(5)
    assert graph.run(rabbet.ones(2)).tolist() == [6, 6]


def test_shapes_that_depend_on_values():
    def program(x):
        chosen = x[x > 0]
        return chosen.sum(), chosen * 2, rabbet.unique(x.round())

    graph = checked(capture(program, rabbet.randn(10)))
    for seed in range(3):
        x = rabbet.randn(10, generator=rabbet.Generator().manual_seed(seed))
        assert agree(program, graph, x)


def test_branches_run_the_side_that_values_choose():
    bias = rabbet.randn(3)

    def program(x, count):
        y = cond(x.sum() > 0, lambda x: x * 2 + bias, lambda x: x.sin().add_(x.mul_(3)), (x,))
        return y, *while_loop(
            lambda k, z: k < count,
            lambda k, z: (k + 1, z * 1.5 + rabbet.rand(3)),
            (rabbet.tensor(0), y),
        )

    first = rabbet.ones(3)
    graph = checked(capture(program, first, rabbet.tensor(2)))
    assert first.tolist() == [1, 1, 1]  # the side that was not taken writes its operand
    for sign, count in ((1, 0), (1, 3), (-1, 0), (-1, 2)):
        a, b = (rabbet.full((3,), float(sign)) for _ in range(2))
        rabbet.manual_seed(3)
        wanted = program(a, rabbet.tensor(count))
        rabbet.manual_seed(3)
        assert same(graph.run(b, rabbet.tensor(count)), wanted) and same(a, b)


def test_branches_inside_branches():
    def program(x):
        def inner(a):
            return cond(a[0] > 1, lambda a: a + 10, lambda a: a + 20, (a,))

        return cond(x.sum() > 0, inner, lambda a: a * 1, (x,))

    graph = checked(capture(program, rabbet.ones(2)))
    for values in ([2.0, 1.0], [0.5, 1.0], [-2.0, 1.0]):
        x = rabbet.tensor(values)
        assert agree(program, graph, x)


# ---- what is refused

outside = rabbet.zeros(4)
READS = {
    "item": (lambda x: x.sum().item(), r"item\(\) at .* reads the values of a tensor, a result of sum at"),
    "bool": (lambda x: 1 if x.sum() > 0 else 2, "the truth value at .* a result of gt"),
    "int": (lambda x: int(x[0]), r"int\(\) at "),
    "float": (lambda x: float(x[0]), r"float\(\) at "),
    "index": (lambda x: [1, 2][x.int()[0]], "at .*test_capture.py"),
    "tolist": (lambda x: x.tolist(), r"tolist\(\) at .*, 'x'"),
    "numpy": (lambda x: x.numpy(), "buffer at "),
    "memoryview": (lambda x: memoryview(x), "buffer at "),
    "dlpack": (lambda x: rabbet.from_dlpack(x.__dlpack__()), "__dlpack__ at "),
    "address": (lambda x: x.data_ptr(), r"data_ptr\(\) at "),
    "print": (lambda x: str(x), "reads the values"),
    "equal": (lambda x: rabbet.equal(x, x), "reads the values|truth value"),
    "size of values": (lambda x: rabbet.zeros(x.nonzero().shape[0]), "depends on values: nonzero at"),
    "length of values": (lambda x: len(x[x > 0]), "dimension 0 is dynamic|depends on values"),
    "seed": (lambda x: rabbet.manual_seed(3) and None, "seeds the random number generator"),
    "resize": (lambda x: x.resize_(2), "gives 'x' other memory or another shape"),
    "set": (lambda x: x.set_(rabbet.ones(4)), "gives 'x' other memory or another shape"),
    "out": (lambda x: rabbet.add(x, 1, out=rabbet.empty(0)), "resizes a tensor"),
    "constant": (lambda x: outside.add_(x), "writes to a tensor that is neither an argument nor state"),
    "object": (lambda x: object(), "returns an object of type object"),
    "nested": (lambda x: capture(lambda y: y, x), "a capture is in progress already"),
    "branch types": (
        lambda x: cond(x[0] > 0, lambda a: a, lambda a: a.double(), (x,)),
        r"true_fn has \(float32\[4\]\), but false_fn returns \(float64\[4\]\)",
    ),
    "branch structure": (
        lambda x: cond(x[0] > 0, lambda a: a, lambda a: (a, a), (x,)), "return different structures"
    ),
    "branch predicate": (lambda x: cond(x > 0, lambda a: a, lambda a: a, (x,)), "a condition of one element"),
    "loop": (
        lambda x: while_loop(lambda a: a[0] < 3, lambda a: a[:2], (x,)), "carried_inputs has .* but body_fn returns"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
def test_what_a_graph_cannot_repeat_is_refused_with_its_line(case):
    seed = rabbet.initial_seed()
    program, message = READS[case]
    with pytest.raises(CaptureError, match=message) as found:
        capture(program, rabbet.ones(4))
    rabbet.manual_seed(seed)
    if case not in ("resize", "set", "seed", "object", "nested"):
        assert "test_capture.py:" in str(found.value)
    assert outside.tolist() == [0, 0, 0, 0]
    assert (
        capture(lambda x: x + 1, rabbet.ones(1)).run(rabbet.ones(1)).item() == 2
    )  # nothing is left behind


def test_errors_of_the_program_are_its_own():
    with pytest.raises(RuntimeError, match="matmul"):
        capture(lambda x: x @ x, rabbet.ones(2, 3))
    with pytest.raises(ZeroDivisionError):
        capture(lambda x: 1 / 0, rabbet.ones(2))
    with pytest.raises(KeyboardInterrupt):
        capture(interrupted, rabbet.ones(2))
    assert capture(lambda x: x.sum().sin(), rabbet.ones(2)).find("sin")


def interrupted(x):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: capture(3), TypeError, "expected a function or module, got int"),
        (lambda: capture(len, dynamic=3), TypeError, "dynamic must be True, a dict or a sequence, got int"),
        (
            lambda: capture(lambda x: x, rabbet.ones(2), dynamic={"z": {0: True}}),
            ValueError, "dynamic names 'z', but the arguments are x",
        ),
        (
            lambda: capture(lambda x: x, rabbet.ones(2), dynamic={"x": {1: True}}),
            ValueError, "dimension 1 of a tensor of 1 dimensions",
        ),
        (
            lambda: capture(lambda x: x, rabbet.ones(1), dynamic={"x": {0: True}}),
            ValueError, r"x, dimension 0: the size 1 is not in \[2, inf\]",
        ),
        (lambda: capture(lambda x: x, 3, dynamic=[{0: True}]), TypeError, "of an argument of type int"),
        (lambda: capture(lambda x: x, rabbet.ones(2), dynamic=[{0: 3}]), TypeError, "expected a Dim, a name or True"),
    ],
)  # fmt: skip
def test_wrong_uses_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_faults_inside_a_run_name_the_node():
    graph = capture(lambda x, i: x[i].sin(), rabbet.ones(3), rabbet.tensor([0, 2]))
    with pytest.raises(IndexError) as found:
        graph.run(rabbet.ones(3), rabbet.tensor([0, 7]))
    assert any(
        "in node 0, index, of the graph '<lambda>' at" in note for note in found.value.__notes__
    )


@pytest.mark.parametrize(
    "argument, message",
    [
        (lambda: rabbet.ones(2, 3).double(), "input 'x': expected dtype float32, got float64"),
        (lambda: rabbet.ones(2), "input 'x': expected 2 dimensions"),
        (lambda: rabbet.ones(3, 3), "input 'x', dimension 0: expected size 2, got 3"),
        (lambda: rabbet.ones(3, 2).t(), "expected a contiguous tensor"),
        (lambda: rabbet.ones(2, 3, device="meta"), "expected device cpu, got meta"),
        (lambda: 3.0, "expected a Tensor, got float"),
    ],
)
def test_other_inputs_are_refused(argument, message):
    graph = capture(lambda x: x * 2, rabbet.ones(2, 3))
    with pytest.raises(InputError, match=message):
        graph.run(argument())


def test_inputs_overlap_as_they_did():
    def program(x, y):
        x.add_(1)
        return y * 1

    graph = capture(program, rabbet.ones(2), rabbet.ones(2))
    both = rabbet.ones(2)
    with pytest.raises(InputError, match="'x' and 'y' share memory, which the graph writes"):
        graph.run(both, both)
    shared = capture(program, both, both)
    x = rabbet.zeros(2)
    assert shared.run(x, x).tolist() == [1, 1]
    with pytest.raises(InputError, match="shared memory at the capture"):
        shared.run(rabbet.zeros(2), rabbet.zeros(2))


def test_unbound_state_is_named():
    text = str(capture(nn.Linear(2, 2), rabbet.ones(1, 2)))
    with pytest.raises(GraphError, match="the parameter 'weight' is not bound"):
        parse(text).run(rabbet.ones(1, 2))
    with pytest.raises(GraphError, match="has no 'weights' "):
        parse(text, {"weights": rabbet.ones(2, 2)})
    with pytest.raises(InputError, match="'weight', dimension 1: expected size 2, got 3"):
        parse(text, {"weight": rabbet.ones(2, 3)})


class Counter(rabbet.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", rabbet.zeros(2))

    def count(self, x):
        self.calls += 1
        return x * self.calls

    def replace(self, x):
        self.total = self.total + x
        return self.total * 2


@pytest.mark.parametrize(
    "method,text", [("count", r"changes Counter\.calls"), ("replace", r"changes Counter\.total")]
)
def test_a_module_that_changes_its_attributes_is_refused(method, text):
    with pytest.raises(CaptureError, match=text):
        capture(getattr(Counter(), method), rabbet.ones(2))


@pytest.mark.parametrize(
    "options,steps,text",
    [
        ({}, 1, r"Adam\.state\[parameter 0\]\['step'\]"),  # 1 - beta**step would be frozen
        ({"capturable": True}, 0, r"Adam\.state\[parameter 0\]\['step'\].* before the capture"),
    ],
)
def test_an_optimizer_whose_state_is_not_in_tensors_yet_is_refused(options, steps, text):
    model = rabbet.nn.Linear(2, 1)
    optimizer = rabbet.optim.Adam(model.parameters(), lr=0.1, **options)

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    for _ in range(steps):
        step(rabbet.ones(3, 2))
    with pytest.raises(CaptureError, match=text):
        capture(step, rabbet.ones(3, 2), state=[model, optimizer])


def test_values_go_after_their_last_use():
    size = 1 << 20
    graph = capture(lambda x: ((((x + 1) * 2).sin() - 3).exp() / 2).abs().sum(), rabbet.ones(size))
    x = rabbet.ones(size)
    rabbet._C.reset_peak_memory("cpu")
    before = rabbet._C.memory_stats("cpu")["allocated_bytes.all.current"]
    graph.run(x)
    peak = rabbet._C.memory_stats("cpu")["allocated_bytes.all.peak"]
    assert 4 * size <= peak - before <= 3 * 4 * size


def test_captures_of_threads_do_not_meet():
    graphs = {}

    def work(i):
        graphs[i] = capture(lambda x: [x := x + i for _ in range(20)][-1], rabbet.zeros(3))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, graph in graphs.items():
        assert len(graph.nodes) == 20 and graph.run(rabbet.zeros(3)).tolist() == [20 * i] * 3


def test_wrappers_are_refused():
    class Wrapper(rabbet.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return rabbet.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*[a.inner if isinstance(a, cls) else a for a in args])

    with pytest.raises(CaptureError, match="made of parts"):
        capture(lambda x: x + 1, Wrapper(rabbet.ones(2)))


def test_importing_rabbet_does_not_load_the_wheel():
    code = "import sys, rabbet; rabbet.ones(2); assert not any(n.startswith('rabbet.graph') for n in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_branches_have_the_names_of_pytorch():
    assert rabbet.cond is cond and rabbet.while_loop is while_loop
    assert rabbet.cond(True, lambda x: x + 1, lambda x: x, (rabbet.ones(1),)).item() == 2
    count, doubled = rabbet.while_loop(
        lambda k, x: k < 3, lambda k, x: (k + 1, x * 2), (rabbet.tensor(0), rabbet.ones(1))
    )
    assert count == 3 and doubled.item() == 8
