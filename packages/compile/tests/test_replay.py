"""Replay: calls of compiled functions without their Python code, and what ends it."""

import functools
import types
from collections import OrderedDict, deque

import pytest
import rabbet
import rabbet_compile
from rabbet import nn
from rabbet_compile import _replay
from rabbet_compile._guards import Kind
from rabbet_compile._replaying import MOST_VARIANTS, state_of


def replays(compiled):
    return state_of(compiled).variants.runs


def why_not(fn, *args):
    """The reason for which a function is not replayed."""
    compiled = rabbet.compile(fn)
    for _ in range(3):
        compiled(*args)
    assert replays(compiled) == 0
    return state_of(compiled).refusal


def follow(fn, changes, *args):
    """Check that a compiled function is replayed, and sees each change that is made between two calls."""
    compiled = rabbet.compile(fn)
    for _ in range(4):
        assert rabbet.equal(compiled(*args), fn(*args))
    assert replays(compiled) == 2
    for change in changes:
        before = fn(*args)
        change()
        after = fn(*args)
        assert not rabbet.equal(before, after), "the test changes nothing"
        assert rabbet.equal(compiled(*args), after)
    return compiled


class Box:
    """An object with attributes."""

    limit = 2.0

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    @property
    def twice(self):
        return self.value * 2


class Slots:
    __slots__ = ("value",)


def test_the_second_call_is_recorded_and_later_ones_run_no_python_code():
    calls = []

    def fn(x, y):
        seen(len)
        return {"sum": x + y, "both": [(x * 2).relu(), x.shape[0]], "x": x}

    def seen(what):
        return what

    compiled = rabbet.compile(fn)
    for i in range(5):
        x, y = rabbet.randn(3, 2), rabbet.randn(2)
        made, expected = compiled(x, y), fn(x, y)
        assert list(made) == list(expected) and made["x"] is x and made["both"][1] == 3
        assert rabbet.equal(made["sum"], expected["sum"])
        assert rabbet.equal(made["both"][0], expected["both"][0])
        assert replays(compiled) == max(0, i - 1)
    assert not calls and compiled.__name__ == "fn"


def test_other_shapes_and_dtypes_get_variants_of_their_own():
    compiled = rabbet.compile(lambda x: x * 2 if x.shape[0] > 3 else x + 1)
    for _ in range(4):
        for x in (
            rabbet.ones(2),
            rabbet.ones(5),
            rabbet.ones(5, dtype=rabbet.float64),
            rabbet.ones(4, 2).t(),
        ):
            expected = x * 2 if x.shape[0] > 3 else x + 1
            made = compiled(x)
            assert rabbet.equal(made, expected) and made.stride() == expected.stride()
            assert made.dtype == expected.dtype
    assert replays(compiled) == 8 and len(state_of(compiled).variants) == 4


def test_attributes_of_objects_are_guarded():
    box, slots = Box(value=1.0, inner=Box(value=3.0), items=[1, 2]), Slots()
    slots.value = 4.0

    def fn(x):
        return (x * box.value + box.inner.value + box.twice + box.limit) * slots.value

    def other_dict():
        box.__dict__ = {**box.__dict__, "value": 9.0}

    changes = [
        lambda: setattr(box, "value", 2.0),
        lambda: setattr(box.inner, "value", 5.0),
        lambda: setattr(box, "inner", Box(value=8.0)),
        lambda: setattr(slots, "value", -1.0),
        lambda: setattr(Box, "limit", 6.0),
        lambda: setattr(box, "limit", 7.0),
        other_dict,
    ]
    try:
        follow(fn, changes, rabbet.ones(2))
    finally:
        Box.limit = 2.0


@pytest.mark.filterwarnings("ignore:compile. .* runs as Python code from now on")
def test_containers_are_guarded():
    numbers, table, ordered, some, queue = (
        [1, 2],
        {"a": 1.0},
        OrderedDict(a=2.0, b=3.0),
        {1},
        deque([1]),
    )

    def fn(x):
        for n in numbers:
            x = x * 2 + n
        for value in ordered.values():
            x = x * 3 + value
        x = x[: numbers[0]] + table.get("a", 5.0) + (7 if "b" in table else 8)
        return x + len(some) + sum(queue) + (100 if table else 0) + x[numbers[0] - 1]

    follow(
        fn,
        [
            lambda: numbers.append(3),
            lambda: numbers.reverse(),
            lambda: numbers.__setitem__(0, 1),
            lambda: table.__setitem__("a", 4.0),
            lambda: table.__setitem__("b", 4.0),
            table.clear,
            lambda: ordered.move_to_end("a"),
            lambda: ordered.__setitem__("a", 5.0),
            lambda: some.add(2),
            lambda: queue.append(4),
        ],
        rabbet.ones(4),
    )


def test_functions_closures_and_defaults_are_guarded():
    k = 2.0

    def inner(x, scale=1.0, *, shift=0.0):
        return x * scale + shift + k

    def other(x, scale=1.0, *, shift=0.0):
        return x * 50

    def set_k():
        nonlocal k
        k = 3.0

    part = functools.partial(inner, scale=3.0)

    def fn(x):
        return inner(x) + part(x)

    follow(
        fn,
        [
            set_k,
            lambda: setattr(inner, "__defaults__", (4.0,)),
            lambda: setattr(inner, "__kwdefaults__", {"shift": 5.0}),
            lambda: inner.__kwdefaults__.update(shift=6.0),
            lambda: part.keywords.update(scale=9.0),
            lambda: setattr(inner, "__code__", (lambda x, scale=1.0, *, shift=0.0: x * 50).__code__)
            if not inner.__code__.co_freevars
            else setattr(inner, "__defaults__", (8.0,)),
        ],
        rabbet.ones(2),
    )


def test_globals_and_modules_are_guarded():
    names = {"rabbet": rabbet, "SCALE": 2.0, "module": types.ModuleType("module")}
    names["module"].value = 1.0
    exec("def fn(x):\n    return x * SCALE + module.value + len([1])", names)
    follow(
        names["fn"],
        [
            lambda: names.__setitem__("SCALE", 3.0),
            lambda: setattr(names["module"], "value", 4.0),
            lambda: names.__setitem__("len", lambda items: 9.0),
        ],
        rabbet.ones(2),
    )


def test_modes_are_guarded():
    weight = rabbet.ones(2, 2, requires_grad=True)
    compiled = rabbet.compile(lambda x: x @ weight)
    x = rabbet.ones(2, 2)
    for _ in range(4):
        assert compiled(x).requires_grad
    with rabbet.no_grad():
        for _ in range(4):
            assert not compiled(x).requires_grad
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        for _ in range(4):
            assert compiled(x).dtype == rabbet.bfloat16
    assert compiled(x).requires_grad and compiled(x).dtype == rabbet.float32
    assert replays(compiled) == 10 and len(state_of(compiled).variants) == 3
    weight.requires_grad_(False)
    assert not compiled(x).requires_grad
    zeros = rabbet.compile(lambda x: x + rabbet.zeros(2))
    for _ in range(3):
        zeros(x)
    rabbet.set_default_dtype(rabbet.float64)
    try:
        assert zeros(x).dtype == rabbet.float64
    finally:
        rabbet.set_default_dtype(rabbet.float32)


def test_the_module_and_its_state_are_guarded():
    rabbet.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2)).eval()
    compiled = rabbet.compile(model)
    x = rabbet.randn(2, 3)

    def check():
        for _ in range(4):
            rabbet.manual_seed(1)
            made = compiled(x)
            rabbet.manual_seed(1)
            assert rabbet.equal(made, model(x)) and made.requires_grad

    check()
    for change in (
        lambda: model.train(),
        lambda: model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()}),
        lambda: model.__setitem__(0, nn.Linear(3, 3)),
        lambda: model[0].register_forward_hook(lambda module, args, result: result * 2),
        lambda: setattr(model[2], "weight", nn.Parameter(rabbet.ones(2, 3))),
        lambda: setattr(model[2], "forward", lambda x: x * 3),
    ):
        change()
        check()
    assert replays(compiled._compiled) > 10


def test_gradients_flow_through_a_replayed_call():
    weight = rabbet.randn(3, 3, requires_grad=True)

    def fn(x):
        return (x @ weight).tanh().sum()

    compiled = rabbet.compile(fn)
    for _ in range(4):
        x = rabbet.randn(2, 3, requires_grad=True)
        found = []
        for call in (fn, compiled):
            weight.grad = x.grad = None
            call(x).backward()
            found.append((weight.grad, x.grad))
        assert all(rabbet.equal(a, b) for a, b in zip(*found, strict=True))
    assert replays(compiled) == 2


OPTIMIZERS = {
    "SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {}, "RMSprop": {}, "Adagrad": {}, "RAdam": {}, "Adamax": {},
    "NAdam": {},
}  # fmt: skip


@pytest.mark.parametrize("limit", [None, 0.5, 100.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_step_is_replayed(optimizer, limit):
    def make():
        rabbet.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
        updates = getattr(rabbet.optim, optimizer)(
            model.parameters(), lr=0.05, **OPTIMIZERS[optimizer]
        )

        def step(x, y):
            loss = nn.functional.cross_entropy(model(x), y)
            updates.zero_grad()
            loss.backward()
            if limit is not None:
                nn.utils.clip_grad_norm_(model.parameters(), limit)
            updates.step()
            return loss.detach()

        return step, model, updates

    (step, model, updates), (other, other_model, other_updates) = make(), make()
    compiled = rabbet.compile(other)
    for i in range(12):
        x, y = rabbet.randn(5, 4), rabbet.randint(0, 3, (5,))
        assert rabbet.equal(step(x, y), compiled(x, y))
        for p, q in zip(model.parameters(), other_model.parameters(), strict=True):
            assert rabbet.equal(p, q) and rabbet.equal(p.grad, q.grad)
        if i == 6:
            for o in (updates, other_updates):
                o.param_groups[0]["lr"] = 0.01
    assert replays(compiled) >= 3, state_of(compiled).refusal


def test_effects_on_objects_are_repeated():
    box = Box(last=None, note="", table={})

    def fn(x):
        box.last = x.detach() * 2
        box.note = "seen"
        box.table["n"] = x.shape[0]
        return x + 1

    compiled = rabbet.compile(fn)
    for i in range(5):
        box.note, box.table = "", box.table
        box.table.pop("n", None)
        x = rabbet.full((2,), float(i))
        compiled(x)
        assert rabbet.equal(box.last, x * 2) and box.note == "seen" and box.table == {"n": 2}
    assert replays(compiled) == 3


def test_random_numbers_are_drawn_anew():
    compiled = rabbet.compile(lambda x: x + rabbet.rand(3))
    x = rabbet.zeros(3)
    rabbet.manual_seed(3)
    expected = [rabbet.rand(3) for _ in range(5)]
    rabbet.manual_seed(3)
    assert all(rabbet.equal(compiled(x), numbers) for numbers in expected)
    assert replays(compiled) == 3


def test_identities_of_arguments_are_guarded():
    special = rabbet.ones(2)

    def fn(x, y):
        return x + (10 if x is y else 20) + (100 if x is special else 200)

    compiled = rabbet.compile(fn)
    x, y = rabbet.ones(2), rabbet.ones(2)
    for args in [(x, y)] * 3 + [(x, x)] * 3 + [(special, y)] * 3 + [(x, y), (x, x), (special, y)]:
        assert rabbet.equal(compiled(*args), fn(*args))


def test_writes_to_arguments_that_share_memory_are_not_replayed():
    def fn(x, y):
        x.add_(1)
        return y * 2

    compiled = rabbet.compile(fn)
    for _ in range(4):
        assert rabbet.equal(compiled(rabbet.ones(2), rabbet.ones(2)), rabbet.ones(2) * 2)
    x = rabbet.ones(2)
    assert rabbet.equal(compiled(x, x[:]), rabbet.full((2,), 4.0))


def test_errors_of_operators_are_those_of_the_function():
    weight = rabbet.randn(4, 2)

    def fn(index):
        try:
            return nn.functional.embedding(index, weight)
        except IndexError:
            return rabbet.zeros(1)

    compiled = rabbet.compile(fn)
    for index in ([0, 3], [1, 2], [2, 2], [0, 9], [3, 3]):
        index = rabbet.tensor(index)
        assert rabbet.equal(compiled(index), fn(index))
    assert replays(compiled) == 2


def test_exceptions_are_raised_as_they_are():
    box = Box(fails=False)

    def fn(x):
        if box.fails:
            raise ValueError("no")
        return x + 1

    compiled = rabbet.compile(fn)
    for fails in (False, False, False, True, False):
        box.fails = fails
        if fails:
            with pytest.raises(ValueError, match=r"^no$"):
                compiled(rabbet.ones(2))
        else:
            assert rabbet.equal(compiled(rabbet.ones(2)), rabbet.full((2,), 2.0))
    assert replays(compiled) == 2


def test_what_changes_at_each_call_ends_replay_with_a_notice():
    box = Box(note="")

    def fn(x):
        box.note += "a"
        return x * len(box.note)

    compiled = rabbet.compile(fn)
    x = rabbet.ones(2)
    with pytest.warns(
        UserWarning,
        match=r"fn runs as Python code from now on, since .* 'note' of a dict is 'a+'",
    ):
        for i in range(MOST_VARIANTS + 4):
            assert rabbet.equal(compiled(x), x * (i + 1))
    assert len(box.note) == MOST_VARIANTS + 4 and len(state_of(compiled).variants) == MOST_VARIANTS


def test_numbers_that_change_at_each_call_are_followed():
    box = Box(count=0, rate=0.5, log={"steps": 0}, ends=9)

    def step(box, x):
        box.count += 1
        box.rate = box.rate * 0.9 if box.count % 4 else max(box.rate / 2, 0.01)
        box.log["steps"] = -(+box.count) + 1
        if box.count == box.ends:
            x = x - 1
        return x * box.rate + box.count / 3, box.count, round(box.rate, 3)

    compiled, other = rabbet.compile(step), Box(count=0, rate=0.5, log={"steps": 0}, ends=9)
    for i in range(40):
        x = rabbet.randn(3)
        (a, *numbers), (b, *others) = compiled(box, x), step(other, x)
        assert rabbet.equal(a, b) and numbers == others and vars(box) == vars(other)
        assert list(map(type, numbers)) == [int, float]
        if i == 20:
            box.count = other.count = 100
        if i == 25:
            box.rate = other.rate = 1  # another class: recorded again
        if i == 30:
            box.count = other.count = 2**70
    assert replays(compiled) > 15


def test_numbers_are_followed_through_containers_and_comparisons():
    box = Box(counts=[{"n": 0}, {"n": 0}])

    def step(box, x):
        groups = {}
        for entry in box.counts:
            entry["n"] += 1
            groups.setdefault(entry["n"], []).append(entry)
        for n, entries in groups.items():
            x = x * n + len(entries)
        return x

    compiled, other = rabbet.compile(step), Box(counts=[{"n": 0}, {"n": 0}])
    for i in range(20):
        x = rabbet.ones(3)
        assert rabbet.equal(compiled(box, x), step(other, x)), i
        if i == 10:
            box.counts[0]["n"] += 5
            other.counts[0]["n"] += 5
    assert replays(compiled) > 8


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda box, x: x + len(f"{box.n}"), "prints|cannot be followed"),
        (lambda box, x: x[box.n % 2 :], "cannot be followed"),
        (lambda box, x: x + [1.0, 2.0][box.n % 2], "as an index of a list"),
        (lambda box, x: x + {True: 1}.get(box.n > 2, 0) + sum([box.n, 1]), "a number that changes"),
        (lambda box, x: x + (box.n.real), "reads the attribute 'real' of a number that changes"),
        (lambda box, x: x + (1 if box.n is len([1]) else 2), "is another object"),
        (lambda box, x: x + ({box.n: 1, 3: 2} and 1), "uses a number that changes as a key"),
        (lambda box, x: x + (1 if 3 in {7: box.n} | dict(zip([box.n], [1])) else 2), "a number that changes"),
    ],
)  # fmt: skip
def test_other_uses_of_numbers_that_change_are_not_replayed(fn, reason):
    import re

    def step(box, x):
        box.n += 1
        return fn(box, x)

    box, other = Box(n=0), Box(n=0)
    compiled = rabbet.compile(step)
    for _ in range(8):
        assert rabbet.equal(compiled(box, rabbet.ones(2)), step(other, rabbet.ones(2)))
    assert replays(compiled) == 0 and re.search(reason, state_of(compiled).reason)


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: x * x.sum().item(), r"reads the values of a tensor \(item\) at test_replay.py:\d+ in <lambda>"),
        (lambda x: x if x.sum() > 0 else -x, "reads the values of a tensor"),
        (lambda x: (print(), x)[1], r"calls builtins.print, of which it is not known what it reads"),
        (lambda x: x + __import__("time").time(), "of which it is not known what it reads"),
        (lambda x: x[x > 0], "the shape of the result of .* depends on values"),
        (lambda x: x.numpy() and x, "of which it is not known what it reads|reads the values"),
        (lambda x: rabbet.manual_seed(0) and x, "of which it is not known what it reads"),
        (lambda x: Box(value=x), "returns or keeps a new Box"),
        (lambda x: x.requires_grad_(), "calls Tensor.requires_grad_"),
        (lambda x: x * id(x), "asks for the id of a Tensor that another call may not get"),
        (lambda x: x * (id(x + 1) > 0), "asks for the id of a Tensor"),
        (lambda x: x * id("word"), "asks for the id of a str"),
    ],
)  # fmt: skip
def test_what_cannot_be_guarded_is_not_replayed(fn, reason):
    import re

    found = why_not(lambda x: _swallow(fn, x), rabbet.ones(2))
    assert re.search(reason, found), found


def _swallow(fn, x):
    try:
        return fn(x)
    except (TypeError, ValueError):
        return x


def test_a_list_that_was_there_before_is_not_changed_by_a_replay():
    kept = []

    def fn(x):
        kept.append(x.shape[0])
        return x + 1

    compiled = rabbet.compile(fn)
    for i in range(5):
        compiled(rabbet.ones(2))
        assert len(kept) == i + 1
    assert "changes a list that was there before the call" in state_of(compiled).reason


def test_explain_says_whether_a_call_was_replayed():
    explained = rabbet_compile.explain(lambda x: x * 2)
    reports = [str(explained(rabbet.ones(2))).splitlines()[-1] for _ in range(3)]
    assert reports[0].startswith("not replayed: no call like this one was recorded")
    assert reports[1].startswith("recorded: ") and reports[2].startswith("replayed: ")
    counts = {"calls": 0.0}

    def count(x):
        counts["calls"] += 1
        return x + counts["calls"]

    explained = rabbet_compile.explain(count)
    reports = [str(explained(rabbet.ones(2))).splitlines()[-1] for _ in range(4)]
    assert (
        reports[1]
        == "not replayed: it computes with numbers that change; the next recording follows them"
    )
    assert reports[2].startswith("recorded: ") and reports[3].startswith("replayed: ")
    explained = rabbet_compile.explain(rabbet.compile(lambda x: x * x.sum().item()))
    text = [str(explained(rabbet.ones(2))) for _ in range(3)][-1]
    assert "not replayed: reads the values of a tensor (item) at test_replay.py" in text


def test_replay_can_be_switched_off(monkeypatch):
    compiled = rabbet.compile(lambda x: x + 1, options={"replay": False})
    assert state_of(compiled) is None
    monkeypatch.setenv("RABBET_COMPILE", "regions")
    assert state_of(rabbet.compile(lambda x: x + 1)) is None


def test_compiled_functions_nest():
    inner = rabbet.compile(lambda x: x * 2)
    box = Box(value=1.0)
    outer = rabbet.compile(lambda x: inner(x) + box.value)
    x = rabbet.ones(2)
    for _ in range(4):
        inner(x)
    for _ in range(4):
        assert rabbet.equal(outer(x), rabbet.full((2,), 3.0))
    box.value = 2.0
    assert rabbet.equal(outer(x), rabbet.full((2,), 4.0)) and replays(outer) == 2


def test_replayed_calls_run_fused():
    rabbet_compile.configure(least_bytes=1 << 16)
    compiled = rabbet.compile(lambda x: (x * 1.5 + 0.25).relu() - 0.5)
    x = rabbet.randn(1 << 16)
    for _ in range(3):
        rabbet_compile.reset()
        made = compiled(x)
    assert rabbet.equal(made, (x * 1.5 + 0.25).relu() - 0.5) and replays(compiled) == 1
    assert rabbet_compile.totals()["tiled"] == 1 and rabbet_compile.totals()["unstored"] == 3


def test_hooks_of_tensors_end_the_replay_of_backward_passes():
    weight = rabbet.ones(2, requires_grad=True)

    def step(x):
        weight.grad = None
        (weight * x).sum().backward()

    compiled = rabbet.compile(step)

    def gradient(x):
        compiled(x)
        return weight.grad

    x = rabbet.full((2,), 3.0)
    for _ in range(4):
        assert rabbet.equal(gradient(x), x)
    assert replays(compiled) == 2
    hook = weight.register_hook(lambda grad: grad * 2)
    for _ in range(3):
        assert rabbet.equal(gradient(x), x * 2)
    hook.remove()
    after = weight.register_post_accumulate_grad_hook(lambda leaf: leaf.grad.mul_(5))
    assert rabbet.equal(gradient(x), x * 5)
    after.remove()
    assert rabbet.equal(gradient(x), x) and replays(compiled) == 3


def test_gradients_that_are_there_before_are_guarded():
    weight = rabbet.ones(2, requires_grad=True)

    def step(x):
        (weight * x).sum().backward()

    compiled = rabbet.compile(step)
    x = rabbet.full((2,), 3.0)
    for _ in range(4):
        weight.grad = None
        compiled(x)
        assert rabbet.equal(weight.grad, x)
    compiled(x)
    assert rabbet.equal(weight.grad, x * 2) and replays(compiled) == 2


def test_numbers_that_no_longer_fit_run_python_code():
    box = Box(n=4)

    def step(x):
        box.n -= 1
        return x + 6 // box.n

    compiled, x = rabbet.compile(step), rabbet.zeros(1)
    assert [int(compiled(x)) for _ in range(3)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        compiled(x)
    box.n = 7
    assert int(compiled(x)) == 1 and box.n == 6


@pytest.mark.parametrize(
    ("guards", "error", "message"),
    [
        ((), TypeError, "Guards: expected a list of tuples"),
        ([3], TypeError, "Guards: expected tuples that begin with a kind"),
        ([(99,)], ValueError, "Guards: there is no kind 99 with 1 parts"),
        ([(Kind.CELL, 1)], ValueError, "Guards: there is no kind 5 with 2 parts"),
    ],
)
def test_guards_check_how_they_are_given(guards, error, message):
    with pytest.raises(error, match=message):
        _replay.holds(guards)


def test_guards_take_numbers_and_strings_by_value_and_all_else_by_identity():
    same, different = _replay.same, [1]
    assert same(1.5, float("1.5")) and same((1, "a" * 30), (1, "a" * 30)) and same(10**30, 10**30)
    assert not same(1, 1.0) and not same(1, True) and not same(0.0, -0.0) and not same([], [])
    assert same(float("nan"), float("nan")) and not same({}, {}) and same(different, different)
    assert _replay.holds([(Kind.LENGTH, [1, 2], 2)]) and not _replay.holds([(Kind.LENGTH, [1], 2)])


def test_variants_check_how_they_are_given():
    variants = _replay.Variants()
    with pytest.raises(TypeError, match="Variant: expected a tuple with a part 0"):
        variants.add(())
    with pytest.raises(TypeError, match=r"Variants.call: expected a tuple and a dict"):
        variants.call([], {})
    assert variants.call((), {}) is _replay.MISSING and len(variants) == 0
    with pytest.raises(TypeError, match="unique_number: expected an int or a float, got str"):
        _replay.unique_number("a")
    for number in (0, -3, 5, 2**70, 0.5):
        made = _replay.unique_number(number)
        assert made == number and type(made) is type(number) and made is not number


def test_errors_behind_writes_find_memory_as_it_was():
    def make():
        rabbet.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))

        def step(x, y):
            try:
                return nn.functional.cross_entropy(model(x), y).detach()
            except IndexError as error:
                return rabbet.tensor(float(len(str(error))))

        return step, model

    (step, model), (other, other_model) = make(), make()
    compiled = rabbet.compile(other)
    for i, target in enumerate([0, 1, 2, 3, 9, 1, 2, 9, 0]):
        x, y = rabbet.randn(3, 4), rabbet.tensor([0, target, 1])
        rabbet.manual_seed(i)
        expected = step(x, y)
        after = rabbet.get_rng_state()
        rabbet.manual_seed(i)
        assert rabbet.equal(compiled(x, y), expected)
        assert rabbet.equal(rabbet.get_rng_state(), after)
        for (name, a), b in zip(
            model.state_dict().items(), other_model.state_dict().values(), strict=True
        ):
            assert rabbet.equal(a, b), (i, name)
    assert replays(compiled) == 5


def test_large_writes_before_an_operator_that_looks_at_values_are_refused():
    big = rabbet.zeros(1 << 19)

    def step(x, index):
        big.add_(1)
        return nn.functional.embedding(index, x)

    found = why_not(step, rabbet.ones(3, 2), rabbet.tensor([0, 1]))
    assert "embedding, which may raise an error, comes behind a write" in found


def test_operators_that_return_their_argument_are_replayed():
    compiled = rabbet.compile(lambda x: nn.functional.dropout(x, 0.5, False)[1:])
    for _ in range(4):
        x = rabbet.randn(3, 2)
        assert rabbet.equal(compiled(x), x[1:])
    assert replays(compiled) == 2


def test_gradients_that_a_program_clears_are_cleared_by_replays():
    weight = rabbet.ones(2, requires_grad=True)

    def fn(x):
        weight.grad = None
        return x + 1

    compiled = rabbet.compile(fn)
    for i in range(6):
        weight.grad = rabbet.ones(2) if i % 2 else None
        compiled(rabbet.ones(2))
        assert weight.grad is None
    assert replays(compiled) == 4


def test_what_a_proxy_shows_is_guarded():
    table = {"a": 2.0}
    proxy = types.MappingProxyType(table)

    class Settings:
        scale = 3.0

    def fn(x):
        x = x * proxy["a"] + (1 if "b" in proxy else 2) + proxy.get("c", 4.0)
        return x * vars(Settings)["scale"]

    follow(
        fn,
        [
            lambda: table.update(a=5.0),
            lambda: table.update(b=1.0),
            lambda: table.update(c=6.0),
            lambda: setattr(Settings, "scale", 7.0),
        ],
        rabbet.ones(2),
    )
