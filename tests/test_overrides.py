"""The protocol of __torch_function__: subclasses of Tensor, other types, and modes."""

import copy
import inspect
import pickle
import threading

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet import Tensor, nn, overrides
from rabbet.overrides import (
    BaseTorchFunctionMode,
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    TorchFunctionMode,
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
    wrap_torch_function,
)


class Plain(Tensor):
    """A subclass that overrides nothing itself."""


class Derived(Plain):
    pass


class Logging(Tensor):
    """Notes the functions that it is asked about."""

    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, tuple(types), args, kwargs))
        return super().__torch_function__(func, types, args, kwargs)


class Answer:
    """No tensor; answers with what it was asked."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, types, args, kwargs


class Refusal:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def called(tensor):
    Logging.calls.clear()
    return Logging.calls


# ---- subclasses


RESULTS_OF_A_SUBCLASS = {
    "number": lambda t: t + 1,
    "reflected number": lambda t: 1 - t,
    "tensor": lambda t: t * rabbet.ones(2, 2),
    "reflected tensor": lambda t: rabbet.ones(2, 2) * t,
    "comparison": lambda t: t < 1,
    "unary": lambda t: -t,
    "matmul": lambda t: t @ t,
    "power": lambda t: 2**t,
    "function": lambda t: rabbet.exp(t),
    "method": lambda t: t.exp(),
    "reduction": lambda t: t.sum(),
    "view": lambda t: t.view(4),
    "transposed": lambda t: t.T,
    "index": lambda t: t[0],
    "index by tensor": lambda t: t[rabbet.tensor([0])],
    "plain tensor indexed by it": lambda t: rabbet.ones(3)[t.long()],
    "conversion": lambda t: t.double(),
    "data": lambda t: t.data,
    "detached": lambda t: t.detach(),
    "function of a list": lambda t: rabbet.cat([rabbet.ones(2, 2), t]),
    "functional": lambda t: F.relu(t),
    "linear": lambda t: F.linear(t, rabbet.ones(3, 2)),
    "module": lambda t: nn.Linear(2, 3)(t),
    "new_zeros": lambda t: t.new_zeros(2),
    "where": lambda t: t.where(t > 0, t),
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "in place": lambda t: t.add_(1),
    "clone": lambda t: t.clone(),
    "einsum": lambda t: rabbet.einsum("ij,jk->ik", t, t),
    "iteration": lambda t: next(iter(t)),
}


@pytest.mark.parametrize("function", RESULTS_OF_A_SUBCLASS.values(), ids=RESULTS_OF_A_SUBCLASS)
def test_results_of_functions_of_a_subclass_are_of_the_subclass(function):
    assert type(function(Plain([[1.0, 0.0], [0.0, 1.0]]))) is Plain


def test_lists_and_tuples_of_results_keep_their_type_and_hold_the_subclass():
    t = Plain([[1.0, 3.0], [4.0, 2.0]])
    values = t.max(dim=0)
    assert type(values) is rabbet.return_types.max
    assert type(values.values) is Plain and type(values.indices) is Plain
    assert [type(part) for part in t.split(1)] == [Plain, Plain]
    assert t.tolist() == [[1.0, 3.0], [4.0, 2.0]]


def test_results_that_are_no_tensors_stay_as_they_are():
    t = Plain([1.0, 2.0])
    assert t.shape == (2,) and type(t.shape) is rabbet.Size
    assert t.dtype is rabbet.float32 and len(t) == 2 and t.numel() == 2 and t.dim() == 1
    assert bool(Plain([1.0])) and float(Plain([1.5])) == 1.5 and int(Plain([3.0])) == 3
    assert 2.0 in t and list(range(3))[Plain([1.0]).long()] == 1


def test_the_more_derived_class_decides_the_type_of_the_result():
    assert type(Plain([1.0]) + Derived([1.0])) is Derived
    assert type(Derived([1.0]) + Plain([1.0])) is Derived


def test_unrelated_subclasses_do_not_mix():
    with pytest.raises(TypeError, match="unsupported operand"):
        Plain([1.0]) + Logging([1.0])
    with pytest.raises(TypeError, match=r"no implementation found for 'rabbet\.add'"):
        rabbet.add(Plain([1.0]), Logging([1.0]))


def test_gradients_flow_through_a_subclass_and_stay_plain_tensors():
    t = Plain([1.0, 2.0]).requires_grad_()
    (t * 2).sum().backward()
    assert type(t.grad) is Tensor and t.grad.tolist() == [2.0, 2.0]


def test_parameters_and_buffers_override_nothing():
    p = nn.Parameter(rabbet.ones(2))
    assert type(p + 1) is Tensor and type(p.exp()) is Tensor
    assert type(nn.Buffer(rabbet.ones(2)) + 1) is Tensor
    assert not has_torch_function((p, rabbet.ones(1), 1, None))


def test_a_class_that_disables_the_protocol_gives_plain_tensors():
    class Quiet(Tensor):
        __torch_function__ = rabbet._C._disabled_torch_function_impl

    assert type(Quiet([1.0]) + 1) is Tensor
    assert type(rabbet.exp(Quiet([1.0]))) is Tensor


def test_overriding_set_later_is_seen():
    class Late(Tensor):
        __torch_function__ = rabbet._C._disabled_torch_function_impl

    t = Late([1.0])
    assert type(t + t) is Tensor
    Late.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: 7)
    assert t + t == 7 and rabbet.exp(t) == 7


def test_as_subclass_shares_memory_and_history():
    x = rabbet.ones(3, requires_grad=True)
    t = x.as_subclass(Plain)
    assert type(t) is Plain and t.data_ptr() == x.data_ptr()
    (t * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert type(t.as_subclass(Tensor)) is Tensor
    with pytest.raises(TypeError, match="as_subclass"):
        x.as_subclass(int)
    with pytest.raises(TypeError, match="as_subclass"):
        x.as_subclass(3)


def test_a_subclass_is_pickled_and_copied_as_itself():
    t = Derived([1.0, 2.0])
    t.note = "kept"
    for made in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(made) is Derived and made.tolist() == [1.0, 2.0] and made.note == "kept"


def test_a_subclass_prints_with_its_name():
    assert repr(Plain([1.0, 2.0])) == "Plain([1., 2.])"


# ---- what an override gets


def test_an_override_gets_function_types_and_arguments_as_written():
    a = Answer()
    one = rabbet.ones(1)
    assert rabbet.add(a, one, alpha=2) == (rabbet.add, (Answer,), (a, one), {"alpha": 2})
    assert rabbet.cat([one, a], dim=0) == (rabbet.cat, (Answer,), ([one, a],), {"dim": 0})
    assert one + a == (Tensor.add, (Answer,), (one, a), {})
    assert one.mul(a) == (Tensor.mul, (Answer,), (one, a), {})
    assert F.linear(a, one) == (F.linear, (Answer,), (a, one), {})
    assert rabbet.add(one, 1, out=a) == (rabbet.add, (Answer,), (one, 1), {"out": a})
    assert one[a] == (Tensor.__getitem__, (Answer,), (one, a), {})
    assert nn.init.zeros_(a)[0] is nn.init.zeros_
    assert rabbet.einsum("i,i", a, one)[0] is rabbet.einsum
    assert rabbet.autograd.grad(a, one)[0] is rabbet.autograd.grad


OVERRIDDEN_MEMBERS = {
    "add": (lambda t: t + 1, Tensor.add),
    "radd": (lambda t: 1 + t, Tensor.add),
    "rsub": (lambda t: 1 - t, Tensor.__rsub__),
    "rtruediv": (lambda t: 1 / t, Tensor.__rtruediv__),
    "rpow": (lambda t: 1**t, Tensor.__rpow__),
    "iadd": (lambda t: t.__iadd__(1), Tensor.add_),
    "neg": (lambda t: -t, Tensor.neg),
    "abs": (lambda t: abs(t), Tensor.abs),
    "invert": (lambda t: ~t.bool(), Tensor.bitwise_not),
    "eq": (lambda t: t == 1, Tensor.eq),
    "getitem": (lambda t: t[0], Tensor.__getitem__),
    "setitem": (lambda t: t.__setitem__(0, 1.0), Tensor.__setitem__),
    "len": (lambda t: len(t), Tensor.__len__),
    "bool": (lambda t: bool(t), Tensor.__bool__),
    "float": (lambda t: float(t), Tensor.__float__),
    "int": (lambda t: int(t), Tensor.__int__),
    "contains": (lambda t: 1 in t, Tensor.__contains__),
    "repr": (lambda t: repr(t), Tensor.__repr__),
    "size": (lambda t: t.size(0), Tensor.size),
    "dim": (lambda t: t.dim(), Tensor.dim),
    "to": (lambda t: t.to("cpu"), Tensor.to),
    "view": (lambda t: t.view(1), Tensor.view),
    "view_as": (lambda t: t.view_as(t), Tensor.view_as),
    "shape": (lambda t: t.shape, Tensor.shape.__get__),
    "dtype": (lambda t: t.dtype, Tensor.dtype.__get__),
    "device": (lambda t: t.device, Tensor.device.__get__),
    "requires_grad": (lambda t: t.requires_grad, Tensor.requires_grad.__get__),
    "set requires_grad": (lambda t: setattr(t, "requires_grad", False), Tensor.requires_grad.__set__),
    "grad": (lambda t: t.grad, Tensor.grad.__get__),
    "is_leaf": (lambda t: t.is_leaf, Tensor.is_leaf.__get__),
    "requires_grad_": (lambda t: t.requires_grad_(False), Tensor.requires_grad_),
    "new_zeros": (lambda t: t.new_zeros(1), Tensor.new_zeros),
    "numpy": (lambda t: t.numpy(), Tensor.numpy),
    "array": (lambda t: t.__array__(), Tensor.__array__),
    "format": (lambda t: f"{t}", Tensor.__format__),
    "deepcopy": (copy.deepcopy, Tensor.__deepcopy__),
    "functional": (lambda t: F.softmax(t, dim=0), F.softmax),
}  # fmt: skip


@pytest.mark.parametrize("use, function", OVERRIDDEN_MEMBERS.values(), ids=OVERRIDDEN_MEMBERS)
def test_every_use_of_a_tensor_asks_its_class_first(use, function):
    t = Logging([1.0])
    Logging.calls.clear()
    use(t)
    functions = [call[0] for call in Logging.calls]
    assert function in functions
    assert all(call[1] == (Logging,) for call in Logging.calls)


def test_subclasses_are_asked_before_their_bases_and_others_from_left_to_right():
    order = []

    def make(name, *bases):
        def override(cls, func, types, args=(), kwargs=None):
            order.append(cls.__name__)
            return NotImplemented

        return type(name, bases, {"__torch_function__": classmethod(override)})

    Base, Other = make("Base"), make("Other")
    Sub = make("Sub", Base)
    with pytest.raises(TypeError) as error:
        rabbet.cat([Base(), Other(), Sub(), Base()])
    assert order == ["Sub", "Base", "Other"]
    assert "no implementation found for 'rabbet.cat'" in str(error.value)
    assert "Sub" in str(error.value) and "Other" in str(error.value)


def test_not_implemented_lets_the_next_type_answer():
    refusal, answer = Refusal(), Answer()
    assert rabbet.mul(refusal, answer)[1] == (Refusal, Answer)
    assert rabbet.mul(answer, refusal)[0] is rabbet.mul


def test_exceptions_of_an_override_reach_the_caller():
    class Raises:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise KeyError("its own")

    for use in (rabbet.exp, F.relu, lambda x: rabbet.ones(1) + x, lambda x: rabbet.ones(1)[x]):
        with pytest.raises(KeyError, match="its own"):
            use(Raises())


def test_endless_recursion_is_a_recursion_error():
    class Endless(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    t = Endless([1.0])
    for use in (lambda: t + 1, lambda: t.exp(), lambda: t.shape, lambda: F.relu(t), lambda: t[0]):
        with pytest.raises(RecursionError):
            use()
    assert type(Plain([1.0]) + 1) is Plain


def test_a_plain_method_works_with_a_warning():
    class Old:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return self, func

    old = Old()
    with pytest.warns(DeprecationWarning, match="define it as a classmethod"):
        assert rabbet.exp(old) == (old, rabbet.exp)


def test_objects_without_the_protocol_are_refused_as_before():
    with pytest.raises(
        TypeError, match=r"exp\(\): argument 'input' must be Tensor or number, not object"
    ):
        rabbet.exp(object())
    with pytest.raises(TypeError, match="unsupported operand"):
        rabbet.ones(1) + object()


# ---- the functions of rabbet.overrides


def test_has_torch_function_looks_at_types():
    assert has_torch_function((1, Answer())) and has_torch_function([Plain([1.0])])
    assert has_torch_function_unary(Answer()) and not has_torch_function_unary(rabbet.ones(1))
    assert has_torch_function_variadic(1, Answer()) and not has_torch_function_variadic(1, "a")
    assert not has_torch_function(())
    with pytest.raises(TypeError, match="iterable"):
        has_torch_function(3)


def double(x, *, times=2):
    if has_torch_function_unary(x):
        return handle_torch_function(double, (x,), x, times=times)
    return x * times


def test_python_functions_take_part():
    a = Answer()
    assert double(a, times=3) == (double, (Answer,), (a,), {"times": 3})
    assert type(double(Plain([1.0]))) is Plain
    with pytest.raises(TypeError, match=r"no implementation found for '.*double'"):
        double(Refusal())

    @wrap_torch_function(lambda x, y: (y,))
    def pair(x, y):
        return x, y

    assert pair(1, 2) == (1, 2)
    assert pair(1, a) == (pair, (Answer,), (1, a), {})
    assert pair.__name__ == "pair"


class Redispatching(rabbet.Tensor):
    """Records the name of each overridden function, and calls the function without its override."""

    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return overrides.redispatch_function(func, types, args, kwargs)


def add_one_to_product(a, b):
    if overrides.has_torch_function((a, b)):
        return handle_torch_function(add_one_to_product, (a, b), a, b)
    return a * b + 1


def test_a_function_is_called_past_its_own_override_only():
    Redispatching.seen.clear()
    a, b = Redispatching([3.0]), Redispatching([4.0])
    result = add_one_to_product(a, b)
    assert type(result) is rabbet.Tensor and result.item() == 13
    assert Redispatching.seen == ["add_one_to_product", "mul"]  # the product is a plain tensor
    Redispatching.seen.clear()
    rabbet.nn.functional.gaussian_nll_loss(a, rabbet.ones(1), rabbet.ones(1))
    assert Redispatching.seen[0] == "gaussian_nll_loss"


def test_a_mode_that_is_entered_again_sees_the_parts_of_a_function():
    class Mode(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func.__name__)
            with self:
                return overrides.redispatch_function(func, types, args, kwargs)

    with Mode() as mode:
        assert add_one_to_product(rabbet.tensor([3.0]), rabbet.tensor([4.0])).item() == 13
    assert mode.seen == ["tensor", "tensor", "add_one_to_product", "mul", "add", "item"]


def test_a_call_past_overrides_refuses_what_it_cannot_call():
    with pytest.raises(TypeError, match="redispatch_function: 'func' must be callable, not int"):
        overrides.redispatch_function(3, (), (), {})
    with pytest.raises(TypeError, match="'kwargs' must be a dict or None, not list"):
        overrides.redispatch_function(double, (), (), [])
    with pytest.raises(ZeroDivisionError):
        overrides.redispatch_function(lambda: 1 / 0, (), (), None)
    assert has_torch_function_unary(Answer())  # the failed call leaves nothing behind


def test_overridable_functions_are_listed_and_named():
    functions = overrides.get_overridable_functions()
    assert rabbet.add in functions[rabbet] and F.linear in functions[F]
    assert Tensor.shape.__get__ in functions[Tensor] and Tensor.__getitem__ in functions[Tensor]
    assert rabbet.ones not in functions[rabbet]
    assert rabbet.ones in overrides.get_ignored_functions()
    assert rabbet.add not in overrides.get_ignored_functions()
    assert overrides.resolve_name(rabbet.add) == "rabbet.add"
    assert overrides.resolve_name(F.linear) == "rabbet.nn.functional.linear"
    assert overrides.resolve_name(Tensor.shape.__get__) == "rabbet.Tensor.shape.__get__"
    assert overrides.resolve_name(len) is None and overrides.resolve_name([]) is None
    assert overrides.is_tensor_method_or_property(Tensor.add)
    assert overrides.is_tensor_method_or_property(Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(F.linear)


def test_every_overridable_function_calls_the_override_of_its_argument():
    a, missed = Answer(), []
    for function in overrides.get_overridable_functions()[rabbet]:
        try:
            answer = function(a)
        except Exception as error:
            answer = error
        if not isinstance(answer, tuple) or answer[0] is not function:
            missed.append((function, answer))
    assert not missed


def test_testing_overrides_have_the_signatures_of_the_functions():
    table = overrides.get_testing_overrides()
    assert table[rabbet.exp](rabbet.ones(1)) == -1
    assert list(inspect.signature(table[F.cosine_similarity]).parameters) == [
        "x1",
        "x2",
        "dim",
        "eps",
    ]


def test_functions_in_python_keep_what_makes_them_functions():
    function = F.cosine_similarity
    assert function.__name__ == "cosine_similarity"
    assert function.__module__.startswith("rabbet.nn.functional")
    assert function.__doc__ and callable(function)
    assert list(inspect.signature(function).parameters) == ["x1", "x2", "dim", "eps"]
    assert pickle.loads(pickle.dumps(rabbet.einsum)) is rabbet.einsum
    assert copy.deepcopy(function) is function
    function.note = 1
    assert function.note == 1
    del function.note


# ---- switches


def test_disabling_subclasses_gives_plain_results():
    t = Plain([1.0])
    with DisableTorchFunctionSubclass():
        assert type(t + 1) is Tensor and type(F.relu(t)) is Tensor and type(t.T) is Tensor
        with pytest.raises(TypeError):
            rabbet.exp(Answer())
        assert not has_torch_function((t,))
    assert type(t + 1) is Plain


def test_switches_are_restored_after_exceptions_and_belong_to_a_thread():
    with pytest.raises(ValueError), DisableTorchFunction():
        raise ValueError
    assert type(Plain([1.0]) + 1) is Plain
    found = []
    with DisableTorchFunctionSubclass():
        thread = threading.Thread(target=lambda: found.append(type(Plain([1.0]) + 1)))
        thread.start()
        thread.join()
    assert found == [Plain]


# ---- modes


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.functions = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_function():
    t = rabbet.ones(2)
    uses = [
        lambda: rabbet.ones(2), lambda: rabbet.tensor([1.0]), lambda: t + 1, lambda: 1 - t, t.exp,
        lambda: F.cosine_similarity(t, t, dim=0), lambda: t.shape, t.size, lambda: t[0],
        lambda: t.__setitem__(0, 3.0), lambda: t.__iadd__(1), lambda: -t, lambda: t == t,
        lambda: t.requires_grad,
    ]  # fmt: skip
    with Counting() as mode:
        for use in uses:
            use()
    assert mode.functions == [
        rabbet.ones, rabbet.tensor, Tensor.add, Tensor.__rsub__, Tensor.exp,
        F.cosine_similarity, Tensor.shape.__get__, Tensor.size, Tensor.__getitem__, Tensor.__setitem__, Tensor.add_,
        Tensor.neg, Tensor.eq, Tensor.requires_grad.__get__,
    ]  # fmt: skip
    seen = len(mode.functions)
    t + 1
    t.exp()
    assert len(mode.functions) == seen


def test_a_mode_can_replace_results_and_is_off_inside_itself():
    class Zeros(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            assert rabbet.ones(1).item() == 1  # not overridden here
            return 0

    with Zeros():
        assert rabbet.ones(2) == 0 and rabbet.cat([]) == 0


def test_modes_nest_and_the_innermost_is_asked_first():
    order = []

    class Named(TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append(self.name)
            return func(*args, **(kwargs or {}))

    with Named("outer"), Named("inner"):
        rabbet.ones(1)
    assert order == ["inner", "outer"]


def test_a_mode_may_be_entered_twice():
    mode = Counting()
    with mode, mode:
        rabbet.ones(1)
    assert mode.functions == [rabbet.ones, rabbet.ones]
    assert overrides._get_current_function_mode() is None


def test_a_mode_is_left_by_exceptions():
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), Counting():
            raise error
    assert overrides._get_current_function_mode_stack() == []

    class Raises(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError(func)

    with Raises() as mode:
        with pytest.raises(KeyError):
            rabbet.ones(1)
        assert overrides._get_current_function_mode() is mode
    assert rabbet.ones(1).item() == 1


def test_a_mode_that_answers_nothing_leaves_it_to_the_arguments():
    class Nothing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with Nothing():
        assert rabbet.exp(Answer())[0] is rabbet.exp
        with pytest.raises(TypeError, match="nor in mode"):
            rabbet.ones(1)
    with TorchFunctionMode(), pytest.raises(NotImplementedError):
        rabbet.ones(1)


def test_a_mode_gets_the_types_of_overriding_arguments():
    class Types(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return types

    with Types():
        assert rabbet.exp(Plain.__new__(Plain)) == (Plain,)
        assert rabbet.exp(rabbet.ones) == ()


def test_a_mode_belongs_to_its_thread():
    here, there = Counting(), []
    with here:
        thread = threading.Thread(target=lambda: there.append(rabbet.zeros(1) + 1))
        thread.start()
        thread.join()
    assert there[0].item() == 1.0 and here.functions == []


def test_modes_in_several_threads_do_not_disturb_each_other():
    def work(results):
        for _ in range(50):
            with Counting() as mode:
                rabbet.zeros(1) + 1
            results.append(len(mode.functions))

    results: list = []
    threads = [threading.Thread(target=work, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [2] * 200


def test_disabling_subclasses_leaves_modes_on_and_disabling_all_does_not():
    with Counting() as mode:
        with DisableTorchFunctionSubclass():
            rabbet.ones(1)
        with DisableTorchFunction():
            rabbet.ones(1)
    assert mode.functions == [rabbet.ones]


def test_a_mode_can_be_taken_off_for_a_while():
    with Counting() as mode:
        with overrides._pop_mode_temporarily() as taken:
            assert taken is mode
            rabbet.ones(1)
        rabbet.ones(1)
    assert len(mode.functions) == 1
    with pytest.raises(RuntimeError, match="no TorchFunctionMode is active"):
        overrides._pop_mode()


def test_the_base_mode_changes_nothing():
    with BaseTorchFunctionMode():
        assert (rabbet.ones(2) + 1).tolist() == [2.0, 2.0]
    with pytest.warns(UserWarning, match="no longer necessary"):
        assert isinstance(Counting.push(), Counting)


def test_operators_registered_inside_a_mode_take_part():
    with Counting() as mode:

        @rabbet.library.op("overrides_test::twice(Tensor x) -> Tensor")
        def twice(x):
            return x * 2

        rabbet.ops.overrides_test.twice(rabbet.ones(1))
    assert any(getattr(f, "__name__", "").endswith("twice") for f in mode.functions)
    assert rabbet.ops.overrides_test.twice(Answer())[1] == (Answer,)
