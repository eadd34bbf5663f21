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
    for fault in range(9):
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
    1: "returned RB_OK without result 0",
    2: "returned out of shape (3,) and dtype int8; by the record it has shape (3,) and dtype float32",
    3: "returned out of shape (7,) and dtype float32; by the record it has shape (3,) and dtype float32",
    4: "returned out on meta, but 'input' is on cpu",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_results_of_a_layer_are_refused(process, fault):
    text = process(f"""
lib.set_fault({fault})
for layer in ("boxed", "boxed_few"):
    c = box(rabbet.ones(3), layer=layer)
    print(error(lambda: c * 2))
""")
    for line, layer in zip(text.splitlines(), ("boxed", "boxed_few"), strict=True):
        assert line.startswith("PluginError: mul: ") and FAULTS[fault] in line, line
        assert f"the layer '{layer}' [boxed 1.0]" in line, line


def test_a_failure_without_a_message_names_the_layer(process):
    process("""
c, few = box(rabbet.ones(3)), box(rabbet.ones(3), layer="boxed_few")
error(lambda: c + rabbet.ones(4))  # an earlier error
lib.set_fault(8)
assert error(lambda: c * 2).startswith("StateError: mul: the handler of the layer 'boxed' [boxed 1.0] returned code 7 and left no message"), error(lambda: c * 2)
told = error(lambda: few[1])
assert "select: the handler of the layer 'boxed_few' [boxed 1.0] returned code" in told, told
""")


def test_a_replaced_destination_is_refused(process):
    process("""
lib.set_fault(5)
c = box(rabbet.ones(3))
told = error(lambda: c.mul_(2))
assert "mul: the layer 'boxed' [boxed 1.0] put another value in place of result 0" in told, told
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


# ---- other parts, layouts, large shapes


def test_parts_are_replaced_in_place(process):
    process("""
c = box(rabbet.ones(3), second=rabbet.ones(3))
identity, before = id(c), c._version
replace(c, rabbet.arange(3.0))
assert composite.parts(c)[0].equal(rabbet.arange(3.0)) and len(composite.parts(c)) == 1 and c._version == before + 1
assert plain(c * 2).equal(2 * rabbet.arange(3.0)) and id(c) == identity
composite.parts(c)[0].add_(1)
assert c._version == before + 2
replace(c, composite.parts(c)[0], second=rabbet.ones(3))
assert plain(c).equal(rabbet.arange(3.0) + 1)
""")


def test_views_and_aliases_of_replaced_parts_are_refused(process):
    process("""
message = "a composite tensor of the layer 'boxed' is a view or an alias of one whose parts were replaced since"
c = box(rabbet.ones(3, 4))
v, d, nested = c[1], c.detach(), box(c.detach())
replace(c, rabbet.zeros(3, 4))
for t in (v, d):
    for use in (lambda: t * 2, lambda: t.mul_(2), t.tolist, lambda: t.clone(), lambda: rabbet.cat([t, t]), lambda: replace(t, rabbet.ones(t.shape))):
        assert message in error(use), error(use)
again = c[1]
again.add_(1)
assert plain(c)[1].equal(rabbet.ones(4)) and plain(c.detach()).sum().item() == 4
replace(c, rabbet.ones(3, 4))
assert message in error(lambda: again * 2) and plain(c[1]).sum().item() == 4
""")


def test_what_is_saved_must_not_be_replaced(process):
    process("""
w = rabbet.ones(3, requires_grad=True)
c = box(rabbet.arange(3.0))
loss = (c * w).sum()
replace(c, rabbet.zeros(3))
assert "has been modified by an inplace operation" in error(loss.backward)
leaf = box(rabbet.arange(3.0)).requires_grad_()
replace(leaf, rabbet.ones(3))
(leaf * leaf).sum().backward()
assert plain(leaf.grad).equal(2 * rabbet.ones(3))
""")


def test_parts_are_not_replaced_by_what_does_not_fit(process):
    process("""
import ctypes
c, other = box(rabbet.ones(3)), box(rabbet.ones(3), layer="boxed_few")
assert "requires grad" in error(lambda: replace(c, rabbet.ones(3, requires_grad=True)))
assert "replace: part 0 contains the composite" in error(lambda: replace(c, c))
assert "replace: part 1 contains the composite" in error(lambda: replace(c, rabbet.ones(3), second=box(c)))
lib.set_answer(2)
assert "replace: the composite is read-only" in error(lambda: replace(c[:2], rabbet.ones(2)))
lib.set_answer(0)
on_plain = box(rabbet.ones(100, 100), base=rabbet.ones(100, 100))
assert "replace: the composite has the storage of a plain tensor" in error(lambda: replace(on_plain, rabbet.ones(3)))
""")


def test_nothing_of_replaced_parts_leaks(process):
    process("""
import gc
def work():
    c = box(rabbet.ones(3, 4), second=rabbet.ones(3))
    v, d = c[1], c.detach()
    replace(c, rabbet.zeros(3, 4))
    replace(c, rabbet.zeros(3, 4), second=rabbet.ones(2))
    try:
        v * 2
    except Exception:
        pass
    c[1].mul_(2)
work(); gc.collect()
before = rabbet._C.live_counts()
for _ in range(20):
    work()
gc.collect()
assert rabbet._C.live_counts() == before, (rabbet._C.live_counts(), before)
""")


def test_a_composite_reports_its_layout(process):
    process("""
import copy, io, pickle
names = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
for number, name in enumerate(names):
    t = shown((2, 3), number)
    assert t.layout is getattr(rabbet, name) and str(t.layout) == f"rabbet.{name}"
    assert (t.is_sparse, t.is_sparse_csr, t.is_nested) == (number == 1, number == 2, number == 6)
    file = io.BytesIO()
    rabbet.save({"t": t}, file)
    file.seek(0)
    for other in (t.clone(), t.detach(), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), rabbet.load(file)["t"],
                  rabbet.nn.Parameter(t), composite.compose("boxed_hook", (2, 3), t.dtype, composite.parts(t), layout=t.layout)):
        assert other.layout is t.layout and composite.is_composite(other), name
    if 2 <= number <= 5:
        kind = name[-3:].upper()
        assert error(t.is_contiguous) == f"RuntimeError: Sparse {kind} tensors do not have is_contiguous"
        assert error(t.stride) == f"RuntimeError: Sparse {kind} tensors do not have strides"
    else:
        assert t.is_contiguous() == (number != 1) and t.stride() == ((0, 0) if number == 1 else (3, 1))
        assert t.stride(0) == t.stride()[0]
meta = copy.deepcopy(shown((2, 3), 1).to("meta"))
assert meta.is_meta and composite.is_composite(meta) and meta.layout is rabbet.sparse_coo
p = rabbet.nn.Parameter(rabbet.zeros(2, 3))
p.data = shown((2, 3), 1)
assert p.layout is rabbet.sparse_coo
p.data = rabbet.zeros(2, 3)
assert p.layout is rabbet.strided and p.is_contiguous() and not p.is_sparse
""")


def test_the_number_of_elements_may_be_larger_than_memory(process):
    process("""
t = shown((10**9, 10**9), 1)
assert t.numel() == 10**18 and t.shape == (10**9, 10**9) and t.clone().numel() == 10**18
assert "index 1000000000 is out of range for dimension 0 of size 1000000000" in error(lambda: t[10**9])
assert "do not broadcast" in error(lambda: t + rabbet.ones(3))
assert "slice: the layer 'boxed_hook'" in error(lambda: t[1:])
largest = shown((2**31, 2**31), 1)
assert largest.numel() == 2**62
assert "too large" in error(lambda: shown((2**32, 2**31), 1)) and "too large" in error(lambda: shown((2**40, 0, 2**40)))
assert "too large" in error(lambda: rabbet.zeros_like(t))
""")


# ---- attributes of a layer's composites


ATTRIBUTES = """
import types
from rabbet import _C
from rabbet._discovery import Plugin
from rabbet._hookspecs import HookManager
import pytest, inspect

print_error = lambda call: print(error(call))
def plugin(name, provides, attributes, listed=None):
    made = Plugin(name, name, name + "-wheel", "1.0", None)
    made.manifest = {"provides": provides, "attributes": list(attributes if listed is None else listed)}
    module = types.ModuleType(name)
    def rabbet_tensor_attributes():
        return attributes
    module.rabbet_tensor_attributes = rabbet_tensor_attributes
    return made, module
hooks = HookManager(lambda: rabbet.library)
"""


def test_layers_have_attributes_of_their_own(process):
    process(
        ATTRIBUTES
        + """
import rabbet.library
def set_first(self, value):
    composite.parts(self)[0].copy_(value)
hooks.register_plugin(*plugin("one", ["boxed"], {
    "boxed.inside": property(lambda self: composite.parts(self)[0], set_first),
    "boxed.values": lambda self: "values of boxed",
    "boxed.label": "a constant"}))
hooks.register_plugin(*plugin("two", ["boxed_few"], {"boxed_few.inside": property(lambda self: 2)}))
x, c, few = rabbet.ones(3), box(rabbet.arange(3.0)), box(rabbet.ones(3), layer="boxed_few")
assert c.inside is composite.parts(c)[0] and few.inside == 2 and c.values() == "values of boxed" and c.label == "a constant"
c.inside = rabbet.ones(3)
assert plain(c).equal(rabbet.ones(3))
for write in (lambda: setattr(few, "inside", 1), lambda: setattr(c, "label", 1), lambda: setattr(c, "values", 1)):
    assert "AttributeError" in error(write), error(write)
for t in (x, few):
    assert error(t.values) == "RuntimeError: values expected sparse tensor layout but got Strided", error(t.values)
    assert not hasattr(t, "label")
assert error(lambda: x.inside) == "AttributeError: 'Tensor' object has no attribute 'inside'; composites of 'boxed', 'boxed_few' have it"
assert not hasattr(x, "inside") and "ones" not in vars(x)
x.inside = 5
assert x.inside == 5
del x.inside
assert not hasattr(x, "inside") and error(lambda: delattr(x, "inside")).startswith("AttributeError")
"""
    )


@pytest.mark.parametrize(
    "attributes,message",
    [
        (
            "{'boxed.shape': 1}",
            "wants to put 'shape' on composites of the layer 'boxed', but all tensors have Tensor.shape already",
        ),
        (
            "{'other.inside': 1}",
            "wants to put 'inside' on composites of the layer 'other', which its manifest does not provide",
        ),
        ("{'boxed.inside.x': 1}", "must return a dict of descriptors by name"),
        ("{'boxed.': 1}", "must return a dict of descriptors by name"),
        ("{'boxed.backward': 1}", "but all tensors have Tensor.backward already"),
    ],
)
def test_wrong_attributes_of_layers_are_refused(process, attributes, message):
    text = process(
        ATTRIBUTES
        + f"""
before = dict(vars(rabbet.Tensor))
given = {{"boxed.first": 1, **{attributes}}}
print_error(lambda: hooks.register_plugin(*plugin("one", ["boxed"], given)))
assert dict(vars(rabbet.Tensor)) == before and not hooks.of_layers and not hooks.attributes
"""
    )
    assert message in text, text


def test_a_plugin_that_fails_takes_its_attributes_of_layers_back(process):
    process(
        ATTRIBUTES
        + """
import rabbet.library
before = dict(vars(rabbet.Tensor))
given, module = plugin("one", ["boxed"], {"boxed.inside": 1, "boxed.values": 2})
def rabbet_register_ops(lib):
    assert box(rabbet.ones(3)).inside == 1
    raise OSError("no licence")
module.rabbet_register_ops = rabbet_register_ops
assert "no licence" in error(lambda: hooks.register_plugin(given, module))
assert dict(vars(rabbet.Tensor)) == before and not hooks.of_layers and not hooks.attributes
hooks.register_plugin(*plugin("two", ["boxed_few"], {"boxed_few.inside": 3}))
given, module = plugin("one", ["boxed"], {"boxed.inside": 1})
module.rabbet_register_ops = rabbet_register_ops
assert "no licence" in error(lambda: hooks.register_plugin(given, module))
assert not hasattr(box(rabbet.ones(3)), "inside") and box(rabbet.ones(3), layer="boxed_few").inside == 3
assert "is an attribute of plugin 'two'" in error(lambda: hooks.register_plugin(*plugin("three", [], {"inside": 1})))
"""
    )
