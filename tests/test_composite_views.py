"""Views and parts of composite tensors: what autograd has to know of them, and what is refused."""

import pytest
from plugin_wheels import process_with


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """Runs code after composite_views_prelude.py in a process of its own; returns what it prints."""
    folder = tmp_path_factory.mktemp("views")
    return process_with(folder, "composite_views_plugin.cpp", "composite_views_prelude")


# What is done with a base `y` and a view `v` of it, each a function of the leaf `x` and the view's maker.
PROGRAMS = {
    "a view is written, then both are used": """
    y = x * 2; v = view(y); v.mul_(3)
    return (y * y).sum() + (v * v * v).sum()""",
    "the base is written, then both are used": """
    y = x * 2; v = view(y); y.mul_(3)
    return (y * y).sum() + (v * v * v).sum()""",
    "only the base is used": """
    y = x * 2; view(y).mul_(3)
    return (y * y).sum()""",
    "only the view is used": """
    y = x * 2; v = view(y); y.mul_(3)
    return (v * v).sum()""",
    "both are written by turns": """
    y = x * 2; v = view(y); v.mul_(3); y.add_(1); v.mul_(v * 2); y.mul_(x)
    return (y * y).sum() + (v * v).sum()""",
    "two views": """
    y = x * 2; v = view(y); w = y[:2]; v.mul_(3); w.mul_(x[:2])
    return (y * v.sum()).sum() + (w * w).sum()""",
    "a view is written by values that need grad": """
    y = (x * 2).detach(); v = view(y); v.mul_(view(x * 1))
    return (y * y).sum() + v.sum()""",
    "a view is filled": """
    y = x * 2; v = view(y); v.fill_(2.0)
    return (y * y * y).sum() + v.sum()""",
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("answer", [0, 1], ids=["parts", "base"])
def test_gradients_through_written_views(process, program, answer):
    body = PROGRAMS[program]
    process(f"""
lib.set_answer({answer})
for layer, names in (("boxed", VIEWS), ("boxed_few", FEW)):
    for name in names:
        view = VIEWS[name]
        def program(x):{body.replace(chr(10), chr(10) + "        ")}
        try:
            agree(program, layer)
        except Exception as failed:
            raise AssertionError(f"{{layer}}: {{name}}: {{failed}}") from failed
""")


def test_a_view_and_its_base_share_their_version(process):
    process("""
for layer, names in (("boxed", VIEWS), ("boxed_few", FEW)):
    for name in names:
        y = box(rabbet.ones(3, 4), layer=layer)
        v = VIEWS[name](y)
        assert composite.is_composite(v) and v._is_view() and v._base is y, name
        before = y._version, v._version
        v.mul_(2)
        assert y._version > before[0] and v._version > before[1], name
        before = y._version, v._version
        y.mul_(2)
        assert y._version > before[0] and v._version > before[1], name
        assert v.detach()._version == v._version
""")


def test_lists_of_views_are_views_of_one_base(process):
    process("""
for make in (lambda y: y.split(2, dim=1), lambda y: y.chunk(2), lambda y: y.unbind(1), lambda y: y.hsplit(2)):
    with rabbet.no_grad():
        y = box(rabbet.arange(12.).reshape(3, 4))
        x = rabbet.arange(12.).reshape(3, 4)
        views, plains = make(y), make(x)
        assert all(v._base is y for v in views) and len(views) == len(plains)
        views[1].mul_(10)
        plains[1].mul_(10)
        assert plain(y).equal(x)
    x = box(rabbet.ones(3, 4)).requires_grad_()
    y = x * 1
    with rabbet.no_grad():
        views = make(y)
    assert "no_grad" in error(lambda: views[0].mul_(2))
""")


def test_what_is_saved_for_backward_must_not_be_written_through_a_view(process):
    process("""
for name, view in VIEWS.items():
    x = box(rabbet.ones(3, 4)).requires_grad_()
    y = x * 1
    v = view(y)
    loss = (y * y).sum() + (v * v).sum()
    v.mul_(2)
    assert "modified by an inplace operation" in error(loss.backward), name
    y = x * 1
    v = view(y)
    loss = (v * v).sum()
    y.mul_(2)
    assert "modified by an inplace operation" in error(loss.backward), name
    y = x * 1
    loss = (y * y).sum()
    view(y.detach()).mul_(2)
    assert "modified by an inplace operation" in error(loss.backward), name
""")


def test_views_of_leaves_and_of_no_grad_are_refused_as_plain_ones(process):
    process("""
for name, view in VIEWS.items():
    leaf = box(rabbet.ones(3, 4)).requires_grad_()
    want = error(lambda: view(rabbet.ones(3, 4).requires_grad_()).mul_(2))
    assert error(lambda: view(leaf).mul_(2)) == want and "leaf" in want, name
    y = leaf * 1
    with rabbet.no_grad():
        v = view(y)
    assert "A view was created in no_grad mode" in error(lambda: v.mul_(2)), name
    with rabbet.no_grad():
        view(leaf).mul_(2)  # as an optimizer's step
    assert plain(leaf).sum().item() > 12 and leaf.is_leaf and leaf.requires_grad, name
""")


def test_a_layer_that_returns_its_argument_as_a_view(process):
    process("""
x = box(rabbet.ones(3, 4)).requires_grad_()
lib.set_answer(6)
v = x.view(3, 4)
assert v is not x and v._base is x and x.is_leaf and x.grad_fn is None
(v * 3).sum().backward()
assert plain(x.grad).equal(rabbet.full((3, 4), 3.0))
lib.set_answer(0)
lib.set_fault(6)
y = x * 2
assert y is not x and x.is_leaf
""")


def test_a_copy_in_place_of_a_view_is_read_only(process):
    process("""
x = box(rabbet.ones(3, 4)).requires_grad_()
y = x * 2
for answer in (2, 5):
    lib.set_answer(answer)
    v = y[1]
    lib.set_answer(0)
    assert composite.is_composite(v) == (answer == 2) and not v._is_view()
    for write in (lambda: v.mul_(2), lambda: v.copy_(v), lambda: v.fill_(1.0), lambda: v[0].mul_(2), lambda: v.detach().mul_(2)):
        assert "read-only memory" in error(write), error(write)
    version = v._version
    with rabbet.no_grad():
        y.mul_(1)
    assert v._version == version and v.clone().mul_(2).sum().item() == 16
    rabbet.autograd.grad((v * v).sum(), x, retain_graph=True)
""")


def test_what_may_be_a_view_or_a_copy_is_refused(process):
    process("""
y = box(rabbet.ones(3, 4))
lib.set_answer(3)
mixed = "RuntimeError|PluginError"
for layer in ("boxed", "boxed_few"):
    y = box(rabbet.ones(3, 4), layer=layer)
    lib.set_answer(3)
    told = error(lambda: y[1])
    who = "the kernel of the layer 'boxed_few' [boxed 1.0]" if layer == "boxed_few" else "the fallback of the layer 'boxed' [boxed 1.0]"
    assert f"select: {who} returned a composite whose part 0 shares memory with 'input' while part 1 does not" in told, told
    assert "compose it with `base`" in told
    lib.set_answer(4)
    told = error(lambda: y[1])
    assert f"select: {who} returned a plain tensor that shares memory with a part of 'input'" in told, told
""")


def test_nothing_leaks(process):
    process("""
import gc
def work():
    for answer in range(7):
        lib.set_answer(answer)
        x = box(rabbet.ones(3, 4)).requires_grad_()
        try:
            y = x * 2
            v = y[:, 1:].t()
            pieces = y.split(2, dim=1)
            v.mul_(2)
            (y.sum() + v.sum()).backward()
        except Exception:
            pass
    lib.set_answer(0)
    for fault in range(8):
        lib.set_fault(fault)
        try:
            box(rabbet.ones(3, 4)).mul_(2) * 2
        except Exception:
            pass
    lib.set_fault(0)
work(); gc.collect()
before = rabbet._C.live_counts()
for _ in range(20):
    work()
gc.collect()
assert rabbet._C.live_counts() == before, (rabbet._C.live_counts(), before)
""")


# ---- parts


def test_parts_that_require_grad_are_refused(process):
    process("""
message = (
    "StateError: {}: part {} of a composite tensor of the layer 'boxed' [boxed 1.0] requires grad, but gradients do "
    "not reach the parts of a composite: detach() the part, and let the composite require grad"
)
a, w = rabbet.ones(3), rabbet.ones(3, requires_grad=True)
for part in (w, w * 2, w.view(3), rabbet.nn.Parameter(a)):
    assert error(lambda: box(part)) == message.format("compose", 0), error(lambda: box(part))
    assert error(lambda: box(a, second=part)) == message.format("compose", 1)
    with rabbet.no_grad():
        c = box(part)
    assert not composite.parts(c)[0].requires_grad and composite.parts(c)[0].data_ptr() == part.data_ptr()
    assert not (c * 2).requires_grad
box(w.detach()).requires_grad_().mul(2).sum().backward()
c = box(a)
a.requires_grad_()
assert error(lambda: c * 2) == message.format("mul", 0)
assert error(lambda: c * w) == message.format("mul", 0)
assert error(lambda: rabbet.cat([w, c])) == message.format("cat", 0)
assert error(lambda: c.clone()) == message.format("clone", 0)
with rabbet.no_grad():
    assert not (c * 2).requires_grad
a.requires_grad_(False)
assert plain(c * 2).sum().item() == 6
""")


def test_what_a_layer_computes_from_an_argument_that_requires_grad(process):
    process("""
w = rabbet.arange(3.0).requires_grad_()
c = box(rabbet.ones(3))
y = c * w  # the layer multiplies by w itself, and makes the product a part
assert composite.is_composite(y) and y.requires_grad and not composite.parts(y)[0].requires_grad
(y * y).sum().backward()
assert plain(w.grad).equal(2 * w.detach())
""")


@pytest.mark.parametrize("write", ["part.mul_(2)", "part[0].fill_(7.0)", "part.detach().zero_()",
                                   "c.copy_(box(part.clone()))", "c.detach().mul_(2)", "second.add_(1)"])  # fmt: skip
def test_a_part_that_is_written_after_it_was_saved(process, write):
    process(f"""
part, second = rabbet.arange(3.0), rabbet.ones(3)
c = box(part, second=second, layer="boxed_few")
nested = box(c)
for saved in (c, nested):
    w = rabbet.ones(3, requires_grad=True)
    loss = (saved * w).sum()
    loss.backward()
    assert plain(w.grad).equal(rabbet.arange(3.0))
    loss = (saved * w).sum()
    before = saved._version
    with rabbet.no_grad():
        {write if "c.copy_" not in write else 'c.copy_(box(part.clone(), second=second.clone(), layer="boxed_few"))'}
    assert saved._version != before
    assert "has been modified by an inplace operation" in error(loss.backward)
    with rabbet.no_grad():
        part.copy_(rabbet.arange(3.0))
""")


# ---- handlers and hooks that are wrong


FAULTS = {
    1: "mul: {} returned nothing where a tensor is due",
    2: "mul: {} returned out of shape (3,) and dtype int8; by the record it has shape (3,) and dtype float32",
    3: "mul: {} returned out of shape (7,) and dtype float32; by the record it has shape (3,) and dtype float32",
    4: "mul: {} returned out on meta, but 'input' is on cpu",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_results_of_a_layer_are_refused(process, fault):
    text = process(f"""
lib.set_fault({fault})
for layer in ("boxed", "boxed_few"):
    c = box(rabbet.ones(3), layer=layer)
    print(error(lambda: c * 2))
""")
    kinds = (
        "the fallback of the layer 'boxed' [boxed 1.0]",
        "the kernel of the layer 'boxed_few' [boxed 1.0]",
    )
    for line, who in zip(text.splitlines(), kinds, strict=True):
        assert line.startswith("PluginError: " + FAULTS[fault].format(who)), line


def test_a_replaced_destination_is_refused(process):
    process("""
lib.set_fault(5)
c = box(rabbet.ones(3))
told = error(lambda: c.mul_(2))
assert "mul: the fallback of the layer 'boxed' [boxed 1.0] put another tensor in the place of the destination" in told
lib.set_fault(0)
assert plain(c).equal(rabbet.ones(3))
""")


def test_core_counts_writes_that_a_layer_does_not(process):
    process("""
lib.set_fault(7)
for layer in ("boxed", "boxed_few"):
    c = box(rabbet.ones(3), layer=layer)
    before = c._version
    c.mul_(2)
    assert c._version == before + 1 and plain(c).sum().item() == 0
""")


def test_handlers_get_arguments_that_fit_the_record(process):
    process("""
for layer in ("boxed", "boxed_few"):
    c = box(rabbet.ones(3, 4), layer=layer)
    x = rabbet.ones(3, 4)
    before = lib.count_calls()
    for call in (
        lambda t: t + rabbet.ones(5), lambda t: t[7], lambda t: t[:, -9], lambda t: t.view(5, 5), lambda t: t.expand(2, 2),
        lambda t: t.mul_(rabbet.ones(2, 3, 4)), lambda t: t.copy_(rabbet.ones(9)), lambda t: t.permute(0),
        lambda t: t.mul_(1j), lambda t: t.narrow(1, 3, 5), lambda t: t.diagonal(0, 1, 1), lambda t: t.matmul(rabbet.ones(3)),
        lambda t: rabbet.nn.functional.conv2d(t, x), lambda t: t.split(-1), lambda t: t.sum(dim=4), lambda t: t.add(1, alpha=1.5j),
    ):
        assert error(lambda: call(c)) == error(lambda: call(x)), (error(lambda: call(c)), error(lambda: call(x)))
    assert lib.count_calls() == before
""")


@pytest.mark.parametrize(
    "gives,what",
    [
        (1, "a part, or a tensor that shares memory with a part,"),
        (2, "a part, or a tensor that shares memory with a part,"),
        (3, "another composite of the layer"),
    ],
)
def test_a_data_hook_gives_values_of_its_own(process, gives, what):
    process(f"""
lib.set_hook({gives})
c = box(rabbet.ones(3))
for read in (c.tolist, c.numpy, lambda: composite.values(c), lambda: repr(c), c.sum().item, lambda: memoryview(c)):
    told = error(read)
    assert "PluginError" in told and "the data hook of the layer 'boxed' [boxed 1.0] gave {what}" in told, told
""")


def test_data_hooks_that_give_composites_of_each_other_end(process):
    process("""
lib.set_hook(4)
told = error(box(rabbet.ones(3)).tolist)
assert "the data hooks of the layer 'boxed' [boxed 1.0] and others give composites of one another" in told, told
""")


@pytest.mark.parametrize("gives", [1, 3, 4])
def test_loading_gives_the_composite_that_the_file_says(process, gives):
    process(f"""
import io
file = io.BytesIO()
rabbet.save({{"c": box(rabbet.ones(1, 3))}}, file)
file.seek(0)
assert plain(rabbet.load(file)["c"]).equal(rabbet.ones(1, 3))
lib.set_load({gives})
file.seek(0)
told = error(lambda: rabbet.load(file))
assert "load: the layer 'boxed' [boxed 1.0] returned" in told and "is due" in told, told
""")
