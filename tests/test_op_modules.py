"""Modules that records make: `expose MODULE` and `expose MODULE as NAME`."""

import importlib
import subprocess
import sys

import pytest
import rabbet
from rabbet import _C


@pytest.fixture
def added():
    """A function that adds records; they are removed after the test."""
    before = set(_C.record_names())
    yield rabbet.library.register_records
    for name in set(_C.record_names()) - before:
        _C.remove_op(name)
    for name in [n for n in sys.modules if n.startswith("rabbet.shown_")]:
        del sys.modules[name]
    for name in [n for n in vars(rabbet) if n.startswith("shown_")]:
        delattr(rabbet, name)


RECORD = """
shown::half(Tensor input, *, float by=0.5) -> Tensor
  kind    composite
  expose  {}
  decomp  input * by
  doc     The product.
"""


def test_a_module_exists_on_first_use(added):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rabbet.shown_deep.inner")
    added(RECORD.format("shown_deep.inner, shown_deep.inner as halved"))
    inner = importlib.import_module("rabbet.shown_deep.inner")
    assert inner is rabbet.shown_deep.inner and inner.half is inner.halved
    assert inner.__all__ == ["half", "halved"] and "shown_deep" in dir(rabbet)
    x = rabbet.tensor([2.0, 4.0], requires_grad=True)
    inner.half(x, by=0.25).sum().backward()
    assert x.grad.tolist() == [0.25, 0.25]
    out = rabbet.empty(0)
    assert inner.halved(input=x.detach(), out=out) is out and out.tolist() == [1, 2]
    assert "The product." in inner.half.__doc__
    with pytest.raises(AttributeError, match=r"rabbet.shown_deep.inner.third"):
        inner.third  # noqa: B018
    assert "half" not in _C.op_names() and not hasattr(rabbet.Tensor, "half_")


def test_operators_that_come_and_go(added):
    added(RECORD.format("shown_later"))
    module = importlib.import_module("rabbet.shown_later")
    added(
        "shown::twice(Tensor input) -> Tensor\n  kind composite\n  expose shown_later\n  decomp input * 2\n"
    )
    assert module.twice(rabbet.ones(1)).item() == 2 and "twice" in dir(module)
    _C.remove_op("shown::twice")
    assert "twice" not in dir(module) and not hasattr(module, "twice")


def test_the_prefix_of_the_module_is_left_out(added):
    added(
        "shown::shown_at_home_x(Tensor a) -> Tensor\n  kind composite\n  expose shown_at.home, shown_at\n  decomp -a\n"
    )
    assert list(_C.ops_of_module("shown_at.home")) == ["x"]
    assert list(_C.ops_of_module("shown_at")) == ["home_x"]
    assert _C.op_info("shown::shown_at_home_x")["modules"] == {
        "shown_at.home": ["x"],
        "shown_at": ["home_x"],
    }


def test_overloads_are_one_function_there(added):
    added(
        "shown::pick(Tensor a) -> Tensor\n  kind composite\n  expose shown_forms\n  decomp a\n"
        "shown::pick.by(Tensor a, float by) -> Tensor\n  kind composite\n  expose shown_forms\n  decomp a * by\n"
    )
    pick = importlib.import_module("rabbet.shown_forms").pick
    assert pick(rabbet.ones(1)).item() == 1 and pick(rabbet.ones(1), 3.0).item() == 3


def test_one_name_for_two_operators_is_refused(added):
    with pytest.raises(
        rabbet.PluginError, match=r"'digamma' and 'shown::half' are both exposed as 'special.psi'"
    ):
        rabbet.library.register_records(RECORD.format("special as psi"))
    assert "shown::half" not in _C.record_names()
    added(RECORD.format("shown_once"))
    other = "shown::other(Tensor a) -> Tensor\n  kind composite\n  expose shown_once as half\n  decomp a\n"
    with pytest.raises(
        rabbet.PluginError,
        match=r"'shown::half' and 'shown::other' are both exposed as 'shown_once.half'",
    ):
        rabbet.library.register_records(other)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "expose: expected function, method, inplace, none, or a module such as linalg or nn.functional, got nothing"),
        ("in-place", "expose: expected function, .* got 'in-place'"),
        ("nn..functional", "got 'nn..functional'"),
        (".functional", "got '.functional'"),
        ("functional.", "got 'functional.'"),
        ("3d", "got '3d'"),
        ("linalg special", "got 'linalg special'"),
        ("functon", "'functon' is taken for a misspelled 'function'"),
        ("methods", "'methods' is taken for a misspelled 'method'"),
        ("nome", "'nome' is taken for a misspelled 'none'"),
        ("implace", "'implace' is taken for a misspelled 'inplace'"),
        ("ethod", "'ethod' is taken for a misspelled 'method'"),
        ("special as", "got 'special as'"),
        ("special as 1x", "expected a name after 'as', got 'special as 1x'"),
        ("special as a.b", "expected a name after 'as', got 'special as a.b'"),
        ("none, special", "'none' stands alone, got 'none, special'"),
        ("method, method", "'method' stands twice"),
        ("special, special as half", "'special.half' stands twice"),
    ],
)  # fmt: skip
def test_malformed_entries_are_refused(value, message):
    with pytest.raises(rabbet.PluginError, match=message):
        rabbet.library.register_records(RECORD.format(value))
    assert "shown::half" not in _C.record_names()


def test_a_module_written_by_hand_defines_no_name_of_a_record():
    from rabbet import _op_modules

    with pytest.raises(
        RuntimeError, match=r"rabbet.special defines what records expose there: psi"
    ):
        _op_modules.add_to({"__name__": "rabbet.special", "psi": None})


def test_torch_special_is_the_same_module():
    program = (
        "import rabbet; rabbet.as_torch(); import torch.special as s, torch; from torch.special import expit;"
        "assert s is rabbet.special is torch.special and expit is torch.sigmoid and s.psi is torch.digamma"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_modules_load_when_they_are_used():
    program = (
        "import rabbet, sys; assert not {'rabbet.special', 'rabbet._op_modules'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
