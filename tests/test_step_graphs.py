"""`accelerator.graphed` and graphed callables on the backend `lazy`: each call does what one call of the function does."""

from pathlib import Path

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from lazy_device import X, seen, there
from rabbet import _C, accelerator, nn
from rabbet._graphed_callables import make_graphed_callables

pytestmark = pytest.mark.usefixtures("lazy", "settled")


def graphed(fn, **options):
    return accelerator.graphed(fn, device="lazy", **options)


def test_a_call_does_what_one_call_of_the_function_does():
    runs = []
    total = there(np.zeros(3, np.float32))

    @graphed
    def step(x, scale):
        runs.append(scale)
        total.add_(x)
        return {"scaled": x * scale, "name": "kept"}

    for n in range(1, 6):
        found = step(there(n * X), 2.0)
        assert (seen(found["scaled"]) == 2 * n * X).all() and found["name"] == "kept"
        assert (seen(total) == sum(range(1, n + 1)) * X).all()
    assert runs == [2.0, 2.0] and step.graphs == 1  # warm-up and capture
    assert step.__name__ == "step"


KINDS = {
    "shape": lambda: (there(np.ones(4, np.float32)), 2.0),
    "strides": lambda: (rabbet.ones(6).to("lazy")[::2], 2.0),
    "a number": lambda: (there(), 3.0),
    "a number's type": lambda: (there(), 2),
    "structure": lambda: ([there()], 2.0),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_another_kind_of_arguments_is_another_graph(make):
    step = graphed(lambda x, n: (x[0] if isinstance(x, list) else x) * n)
    for _ in range(3):
        step(there(), 2.0)
    assert step.graphs == 1
    x, n = make()
    expected = seen(x[0] if isinstance(x, list) else x) * n
    for _ in range(3):
        assert (seen(step(x, n)) == expected).all()
    assert step.graphs == 2
    assert (seen(step(there(), 2.0)) == 2 * X).all() and step.graphs == 2


def test_whether_gradients_are_recorded_is_part_of_the_kind():
    step = graphed(lambda x: x + 1)
    for _ in range(2):
        step(there())
        with rabbet.no_grad():
            step(there())
    assert step.graphs == 2


def test_results_are_overwritten_unless_copies_are_asked_for():
    plain, cloned = graphed(lambda x: x + 1), graphed(lambda x: x + 1, clone=True)
    for step, same in ((plain, True), (cloned, False)):
        step(there())
        first = step(there())
        second = step(there(10 * X))
        assert (first.data_ptr() == second.data_ptr()) is same
        assert (seen(first) == ((10 * X + 1) if same else X + 1)).all()


def train(x, target, w, b):
    w.grad = b.grad = None
    error = (F.dropout(x, 0.5) * w).sum(1, keepdim=True) + b - target
    loss = (error * error).sum()
    loss.backward()
    with rabbet.no_grad():
        w -= 0.1 * w.grad
        b -= 0.1 * b.grad
    return loss


def test_a_whole_training_step_is_that_of_the_cpu():
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)

    def run(place, wrap):
        rabbet.manual_seed(4)
        w = rabbet.tensor(X).to(place).requires_grad_()
        b = rabbet.zeros(1).to(place).requires_grad_()
        step = wrap(lambda x, target: train(x, target, w, b))
        losses = []
        for n in range(6):
            x = rabbet.tensor(data * (n + 1) / 6).to(place)
            losses.append(float(seen(step(x, x[:, :1] * 2))))
        return losses, seen(w)

    losses, weights = run("lazy", graphed)
    expected, expected_weights = run("cpu", lambda f: f)
    assert np.allclose(losses, expected, rtol=1e-5) and len(set(losses)) == 6
    assert np.allclose(weights, expected_weights, rtol=1e-5)


def test_what_cannot_be_captured_names_the_line():
    def step(x):
        y = x + 1
        return y.sum().item()  # the line

    wrapped = graphed(step)
    assert wrapped(there()) == 9.0
    with pytest.raises(
        _C.StateError, match=r"cannot be captured.*test_step_graphs\.py:\d+"
    ) as told:
        wrapped(there())
    line = int(str(told.value).rsplit(":", 1)[1].split()[0])
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "# the line" in source[line - 1]
    assert wrapped.graphs == 0
    assert (seen(there() + 1) == X + 1).all()  # the thread captures no more


def twice(step):
    step(there())
    step(there())


REFUSED = {
    "a tensor elsewhere": (lambda s: s(rabbet.tensor(X)), ValueError, "is on cpu, the graph on lazy:0"),
    "a gradient": (lambda s: s(there().requires_grad_()), ValueError, "requires grad"),
    "no hash": (lambda s: s({1, 2}), TypeError, "tensors and hashable values"),
    "no function": (lambda s: graphed(3), TypeError, "expected a function"),
    "no warm-up": (lambda s: graphed(s, warmup=0), ValueError, "at least 1"),
    "a pool that is none": (lambda s: twice(graphed(s.fn, pool=(0, 10**6))), ValueError, "no memory pool"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_argument_is_told(case):
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call(graphed(lambda x: x + 1 if isinstance(x, _C.Tensor) else x))


def test_a_result_elsewhere_is_refused():
    host = rabbet.tensor(X)
    step = graphed(lambda x: (x + 1, host))
    step(there())
    with pytest.raises(_C.StateError, match="returns a tensor on cpu"):
        step(there())


def test_reset_drops_the_graphs():
    step = graphed(lambda x: x + 1)
    for _ in range(2):
        step(there())
    step.reset()
    assert step.graphs == 0 and (seen(step(there())) == X + 1).all() and step.graphs == 0


# ---- graphed callables


def graphed_callable(function, args, allow_unused=False):
    return make_graphed_callables(function, args, 2, allow_unused, None, rabbet.device("lazy:0"))


def test_a_graphed_function_has_the_values_and_gradients_of_the_function():
    def f(x, y):
        return x * y + x, (y * y).sum()

    g = graphed_callable(f, (there().requires_grad_(), there().requires_grad_()))
    for n in (1, 2, 5):
        x, y = there(n * X).requires_grad_(), there(X + n).requires_grad_()
        a, b = g(x, y)
        ((a * 2).sum() + b).backward()
        cx, cy = rabbet.tensor(n * X, requires_grad=True), rabbet.tensor(X + n, requires_grad=True)
        ca, cb = f(cx, cy)
        ((ca * 2).sum() + cb).backward()
        for found, expected in ((a, ca), (b, cb), (x.grad, cx.grad), (y.grad, cy.grad)):
            assert np.allclose(seen(found), seen(expected))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(rabbet.tensor(X))

    def forward(self, x):
        return x * self.weight if self.training else x


def test_a_graphed_module_learns_and_evaluates():
    module = Scale().to("lazy")
    assert graphed_callable(module, (there(),)) is module
    x = there(3 * X)
    module(x).sum().backward()
    assert (seen(module.weight.grad) == 3 * X).all()
    with rabbet.no_grad():
        module.weight += 1
    assert (seen(module(x)) == 3 * X * (X + 1)).all()
    module.eval()
    assert (seen(module(x)) == 3 * X).all()
    other = there(2 * X)
    module.train()
    assert (seen(module(other)) == 2 * X * (X + 1)).all()


def test_several_callables_share_a_pool():
    double, add = graphed_callable(
        (lambda x: x * 2, lambda x: x + 1),
        ((there().requires_grad_(),), (there().requires_grad_(),)),
    )
    x = there(4 * X).requires_grad_()
    y = add(double(x))
    y.sum().backward()
    assert (seen(y) == 8 * X + 1).all() and (seen(x.grad) == 2).all()


def test_samples_must_be_tensors():
    with pytest.raises(TypeError, match="must contain only Tensors"):
        graphed_callable(lambda x, n: x * n, (there(), 2))
