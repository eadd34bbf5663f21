"""Operators look like functions: attributes, signatures, defaults, copies, pickles, help."""

import copy
import functools
import gc
import inspect
import pickle
import pydoc
import typing
import weakref

import pytest
import rabbet
from rabbet import _C


def all_operators():
    methods = [o for o in vars(rabbet.Tensor).values() if isinstance(o, rabbet.Op)]
    return [_C.op(name) for name in _C.op_names()] + methods


def test_attributes_can_be_set_and_deleted():
    rabbet.add.note = "a note"
    assert rabbet.add.note == "a note" and vars(rabbet.add) == {"note": "a note"}
    del rabbet.add.note
    assert not hasattr(rabbet.add, "note")
    with pytest.raises(AttributeError):
        del rabbet.add.note


def test_names_are_those_of_the_function():
    add = rabbet.add
    assert (add.__name__, add.__qualname__, add.__module__) == ("add", "add", "rabbet")
    assert "add(Tensor input, Tensor other" in add.__doc__
    assert not hasattr(add, "__wrapped__")
    assert inspect.isroutine(add) and callable(add)


@pytest.mark.parametrize("name", ["__name__", "__qualname__", "__module__", "__doc__"])
def test_names_can_be_replaced_and_restored(name):
    before = getattr(rabbet.sub, name)
    setattr(rabbet.sub, name, "another")
    assert getattr(rabbet.sub, name) == "another"
    delattr(rabbet.sub, name)
    assert getattr(rabbet.sub, name) == before
    with pytest.raises(AttributeError, match=name):
        delattr(rabbet.sub, name)


def test_the_type_keeps_names_of_its_own():
    assert rabbet.Op.__module__ == "rabbet" and rabbet.Op.__name__ == "Op"
    assert isinstance(rabbet.Op.__doc__, str)
    with pytest.raises(TypeError):
        rabbet.Op()
    with pytest.raises(TypeError):
        rabbet.Op.anything = 1


def test_the_signature_is_that_of_the_record():
    signature = inspect.signature(rabbet.add)
    assert list(signature.parameters) == ["input", "other", "alpha", "out"]
    assert signature.parameters["alpha"].kind is inspect.Parameter.KEYWORD_ONLY
    assert signature.parameters["alpha"].default == 1
    assert signature.return_annotation is rabbet.Tensor
    assert rabbet.add.__defaults__ is None
    assert rabbet.add.__kwdefaults__ == {"alpha": 1, "out": None}
    assert rabbet.softmax.__defaults__ is None or isinstance(rabbet.softmax.__defaults__, tuple)
    assert rabbet.Tensor.uniform_.__defaults__ == (0.0, 1.0)
    assert rabbet.Tensor.uniform_.__kwdefaults__ == {"generator": None}
    assert typing.get_type_hints(rabbet.add)["return"] is rabbet.Tensor


def test_the_signature_of_overloads_takes_the_calls_of_each():
    signature = inspect.signature(rabbet.max)
    for arguments, options in [
        ((1,), {}),
        ((1, 2), {}),
        ((1,), {"dim": 0, "keepdim": True}),
        ((1,), {"other": 2}),
    ]:
        signature.bind(*arguments, **options)
    assert signature.parameters["input"].default is inspect.Parameter.empty
    assert signature.parameters["dim"].default is None


def test_the_signature_of_a_method_begins_with_its_object():
    assert list(inspect.signature(rabbet.Tensor.where).parameters)[:2] == ["input", "condition"]
    assert next(iter(inspect.signature(rabbet.ones(1).add).parameters)) == "other"


def test_every_operator_has_a_signature_and_help():
    operators = all_operators()
    assert len(operators) > 700
    for op in operators:
        signature = inspect.signature(op)
        assert set(op.__annotations__) == {*signature.parameters, "return"}, op
        assert op.__name__ in pydoc.plain(pydoc.render_doc(op))


def test_wraps_takes_what_it_takes_of_functions():
    @functools.wraps(rabbet.mul)
    def product(*args, **kwargs):
        return rabbet.mul(*args, **kwargs)

    assert product.__name__ == "mul" and product.__wrapped__ is rabbet.mul
    assert inspect.signature(product) == inspect.signature(rabbet.mul)


def test_copies_and_pickles_are_the_operator_itself():
    for op in (rabbet.add, rabbet.Tensor.where, rabbet.Tensor.add_, rabbet.ops("max.dim")):
        assert copy.copy(op) is op and copy.deepcopy([op])[0] is op
        assert pickle.loads(pickle.dumps(op)) is op


def test_an_operator_that_is_forgotten_is_freed_with_its_attributes():
    class Note:
        pass

    op = rabbet.library.op("objects::twice(Tensor x) -> Tensor")(lambda x: x * 2)
    note = Note()
    op.note, note.op = note, op  # a cycle
    freed = weakref.ref(note)
    assert weakref.ref(op)() is op
    op.handle.revoke()
    del op, note
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize(
    "module",
    [
        "rabbet",
        "rabbet.library",
        "rabbet.overrides",
        "rabbet.special",
        "rabbet.utils.data",
        "rabbet._C",
    ],
)
def test_help_of_modules_is_text(module):
    assert module in pydoc.plain(pydoc.render_doc(module)).splitlines()[0]
