"""utils.checkpoint: the gradients of the plain run, with less memory, whatever is around it."""

import functools
import gc
import threading
import warnings

import pytest
import rabbet
import rabbet.utils.checkpoint as module
from rabbet import nn
from rabbet.autograd import grad
from rabbet.autograd.graph import save_on_cpu, saved_tensors_hooks
from rabbet.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

F64 = rabbet.float64
both_kinds = pytest.mark.parametrize("use_reentrant", [False, True])
cut = functools.partial(checkpoint, use_reentrant=False)


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


def gradients(function, *inputs):
    for x in inputs:
        x.grad = None
    function(*inputs).sum().backward()
    return [None if x.grad is None else x.grad.tolist() for x in inputs]


def chain(x):
    return x.sin().exp().mul(x).tanh()


@both_kinds
def test_gradients_are_those_of_the_plain_run(use_reentrant):
    x = leaf(0.3, -1.2, 2.0)
    assert gradients(lambda x: checkpoint(chain, x, use_reentrant=use_reentrant), x) == gradients(
        chain, x
    )


@both_kinds
def test_a_module_with_dropout_draws_the_same_numbers_again(use_reentrant):
    rabbet.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 20), nn.Dropout(0.5), nn.GELU(), nn.Linear(20, 4))
    x = rabbet.randn(6, 5, requires_grad=True)

    def run(call):
        rabbet.manual_seed(11)
        found = gradients(lambda x: call(x) * rabbet.rand(6, 4), x)
        after = rabbet.rand(3).tolist()
        found += [p.grad.tolist() for p in model.parameters()]
        model.zero_grad()
        return found, after

    assert run(lambda x: checkpoint(model, x, use_reentrant=use_reentrant)) == run(model)


def test_without_preserved_states_the_numbers_differ():
    model = nn.Dropout(0.5)
    x = rabbet.ones(1000, requires_grad=True)
    y = cut(lambda x: model(x) * x, x, preserve_rng_state=False)
    y.sum().backward()
    assert not rabbet.equal(x.grad, 2 * y.detach())


@both_kinds
def test_autocast_of_the_forward_pass_is_there_again(use_reentrant):
    model = nn.Linear(4, 4)
    seen = []

    def run(x):
        seen.append((x.detach() @ x.detach().T).dtype)
        return model(x).float()

    x = rabbet.randn(2, 4, requires_grad=True)
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        y = checkpoint(run, x, use_reentrant=use_reentrant, preserve_rng_state=True)
        plain = run(x)
    y.sum().backward()
    assert seen == [rabbet.bfloat16] * 3
    first, x.grad = x.grad, None
    plain.sum().backward()
    assert rabbet.equal(first, x.grad)


def test_double_backward_and_retained_graphs():
    x = leaf(0.4, 0.9)
    (g,) = grad(cut(chain, x).sum(), x, create_graph=True)
    (plain,) = grad(chain(x).sum(), x, create_graph=True)
    assert g.tolist() == plain.tolist()
    second, expected = grad(g.sum(), x)[0], grad(plain.sum(), x)[0]
    assert second.tolist() == pytest.approx(expected.tolist(), rel=1e-14)
    y = cut(chain, x).sum()
    assert [grad(y, x, retain_graph=True)[0].tolist() for _ in range(3)] == [plain.tolist()] * 3


def test_nested_checkpoints_of_both_kinds():
    x = leaf(0.4, 0.9)
    expected = gradients(lambda x: chain(chain(chain(x))), x)
    calls = []

    def counted(x):
        calls.append(1)
        return chain(x)

    def nested(x):
        return cut(lambda x: cut(lambda x: cut(counted, x), counted(x)), counted(x))

    assert gradients(nested, x) == expected
    assert len(calls) < 3 * 2**3
    mixed = lambda x: checkpoint(lambda x: cut(chain, cut(chain, x)), chain(x), use_reentrant=True)  # noqa: E731
    assert gradients(mixed, x) == expected


def test_keywords_structures_and_outputs_of_all_kinds():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)

    def run(pair, *, scale, name, extra=None):
        return {"out": pair[0] * pair[1]["w"].exp() * scale, "name": name, "none": extra}

    out = cut(run, (x, {"w": w}), scale=w, name="n")
    assert (out["name"], out["none"]) == ("n", None)
    found = grad(out["out"].sum(), [x, w])
    expected = grad(run((x, {"w": w}), scale=w, name="n")["out"].sum(), [x, w])
    assert [g.tolist() for g in found] == [g.tolist() for g in expected]

    outputs = checkpoint(lambda a, k: (a * k, "text", a.detach()), x, 3, use_reentrant=True)
    assert outputs[1] == "text"
    outputs[0].sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_hooks_see_each_gradient_once():
    x = leaf(1.0, 2.0)
    seen = []

    def run(x):
        y = x * x
        if y.requires_grad:
            y.register_hook(lambda g: seen.append(g.tolist()))
        return y.exp()

    leaf_hook = []
    x.register_hook(lambda g: leaf_hook.append(1))
    x.register_post_accumulate_grad_hook(lambda t: leaf_hook.append(2))
    gradients(lambda x: cut(run, x), x)
    assert len(seen) == 1 and leaf_hook == [1, 2]


def test_backward_inside_of_the_function():
    x = leaf(0.5, 0.7)

    def run(x):
        y = x.sin().exp()
        (g,) = grad(y.sum(), x, create_graph=True)
        return (g * y).sum()

    for early in (True, False):
        with set_checkpoint_early_stop(early):
            assert gradients(lambda x: cut(run, x), x)[0] == pytest.approx(gradients(run, x)[0])


def test_recomputation_stops_when_all_is_there():
    ran = []

    def run(x):
        y = x.exp()
        ran.append("first")
        y = y.exp()
        ran.append("second")
        return y

    x = leaf(0.1)
    gradients(lambda x: cut(run, x), x)
    assert ran == ["first", "second", "first"]
    del ran[:]
    with set_checkpoint_early_stop(False):
        y = cut(run, x)
    y.backward()
    assert ran == ["first", "second"] * 2
    del ran[:]
    gradients(lambda x: cut(run, x, early_stop=False), x)
    assert ran == ["first", "second"] * 2


def test_code_that_catches_exceptions_does_not_catch_the_end():
    def run(x):
        try:
            return x.exp()
        except Exception:
            raise AssertionError("the recomputation was seen to end") from None

    gradients(lambda x: cut(run, x), leaf(0.1))


def test_the_graph_of_a_checkpoint_goes_and_keeps_only_its_arguments():
    def peak(call):
        gc.collect()
        rabbet.accelerator.reset_peak_memory_stats("cpu")
        start = rabbet.accelerator.memory_allocated("cpu")
        y = x
        for _ in range(8):
            y = call(layer, y)
        held = rabbet.accelerator.memory_allocated("cpu") - start
        y.sum().backward()
        x.grad = None
        highest = rabbet.accelerator.max_memory_allocated("cpu") - start
        del y
        assert rabbet.accelerator.memory_allocated("cpu") - start < 4096
        return held, highest

    def layer(x):
        for _ in range(8):
            x = x.sin().exp()
        return x

    x = rabbet.zeros(1 << 16, requires_grad=True)
    size = x.nbytes
    plain = peak(lambda f, x: f(x))
    for use_reentrant in (False, True):
        held, highest = peak(functools.partial(checkpoint, use_reentrant=use_reentrant))
        assert plain[0] > 60 * size and held < 12 * size
        assert highest < plain[1] / 3


def test_other_hooks_work_inside_and_outside():
    x = leaf(0.3, 0.6)
    expected = gradients(lambda x: chain(chain(x)), x)
    with saved_tensors_hooks(lambda t: t.tolist(), lambda v: rabbet.tensor(v, dtype=F64)):
        assert gradients(lambda x: cut(chain, chain(x)), x) == expected

    def inside(x):
        with save_on_cpu():
            return chain(chain(x))

    assert gradients(lambda x: cut(inside, x), x) == expected


def test_threads_run_checkpoints_at_the_same_time():
    x0 = leaf(0.3, 0.6)
    expected = gradients(lambda x: cut(chain, cut(chain, x)), x0)
    found, errors = [], []

    def work():
        try:
            x = leaf(0.3, 0.6)
            for _ in range(50):
                found.append(gradients(lambda x: cut(chain, cut(chain, x)), x))
        except BaseException as error:  # shown by the assert below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and found == [expected] * 200


def test_one_graph_in_two_threads():
    x = leaf(0.3, 0.6)
    y = cut(chain, x).sum()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(grad(y, x, retain_graph=True)[0].tolist()))
        for _ in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [gradients(chain, x)[0]] * 4


def test_func_grad_through_a_checkpoint():
    x = rabbet.tensor([0.3, 0.6], dtype=F64)
    f = lambda x: cut(chain, x).sum()  # noqa: E731
    assert rabbet.func.grad(f)(x).tolist() == rabbet.func.grad(lambda x: chain(x).sum())(x).tolist()


@both_kinds
@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_sequential(use_reentrant, segments):
    rabbet.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(3) for layer in (nn.Linear(3, 3), nn.Tanh())])
    x = rabbet.randn(2, 3, requires_grad=True)
    expected = gradients(model, x)
    for steps in (model, list(model)):
        run = functools.partial(checkpoint_sequential, steps, segments, use_reentrant=use_reentrant)
        assert gradients(lambda x, run=run: run(input=x), x) == expected


def test_without_recording_nothing_is_kept():
    x = leaf(0.3)
    calls = []
    with rabbet.no_grad():
        y = cut(lambda x: calls.append(1) or x.exp(), x)
    assert not y.requires_grad and calls == [1]


# ---- selective


def test_a_policy_keeps_what_it_says():
    w, x = rabbet.randn(3, 3, requires_grad=True), rabbet.randn(3, 3, requires_grad=True)
    run = lambda a: rabbet.sigmoid(w @ (w @ a).sin())  # noqa: E731
    expected = gradients(run, x)
    asked = []

    def policy(context, op, *args):
        asked.append((context.is_recompute, op.__name__))
        assert (context.op_output is None) == context.is_recompute
        return op is rabbet.matmul  # True: keep

    for choice in (policy, [rabbet.matmul]):
        contexts = functools.partial(create_selective_checkpoint_contexts, choice)
        assert gradients(lambda x, c=contexts: cut(run, x, context_fn=c), x) == expected
    assert (False, "matmul") in asked and (True, "sin") in asked


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
def test_every_policy_gives_the_same_gradients_and_saving_computes_nothing_again(policy):
    x = leaf(0.3, 0.6)
    ran = []

    def choose(context, op, *args):
        if not context.is_recompute:
            ran.append(op.__name__)
        return policy

    contexts = functools.partial(create_selective_checkpoint_contexts, choose)
    assert gradients(lambda x: cut(chain, x, context_fn=contexts), x) == gradients(chain, x)
    assert ran


@pytest.mark.parametrize("preserve", [True, False])
def test_random_operators_that_are_kept_draw_nothing_new_for_the_others(preserve):
    x = rabbet.full((1000,), 0.5, dtype=F64, requires_grad=True)
    drawn = []

    def run(x):
        first = rabbet.bernoulli(x.detach())
        second = rabbet.rand(1000, dtype=F64)
        drawn.append((first, second))
        return (x * first).exp() * second

    def keep_some(context, op, *args):
        return op.__name__.startswith("bernoulli")

    contexts = functools.partial(create_selective_checkpoint_contexts, keep_some)
    y = cut(run, x, context_fn=contexts, preserve_rng_state=preserve, early_stop=False)
    y.sum().backward()
    (first, second), (first_again, second_again) = drawn
    assert rabbet.equal(first, first_again)
    assert rabbet.equal(second, second_again) == preserve
    assert 0 < first.sum() < 1000


def test_kept_results_that_were_written_are_refused():
    x = leaf(0.3, 0.6)

    def run(x):
        y = x.sin()
        z = y.exp()
        y.detach().mul_(2)
        return z * 2

    def contexts(allow=False):
        return create_selective_checkpoint_contexts([rabbet.sin], allow)

    with pytest.raises(RuntimeError, match="has been mutated"):
        cut(run, x, context_fn=contexts).sum().backward()
    y = cut(chain, x, context_fn=contexts).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward an extra time"):
        y.backward()


# ---- refusals


def differing(first, again):
    calls = []

    def run(x):
        calls.append(1)
        return first(x) if len(calls) == 1 else again(x)

    return run


@pytest.mark.parametrize(
    "first, again, early, message",
    [
        (
            lambda x: x.sin().sin(),
            lambda x: x.sin(),
            True,
            "A different number of tensors was saved during the original forward and recomputation.\n"
            "Number of tensors saved during forward: 2\nNumber of tensors saved during recomputation: 1.",
        ),
        (
            lambda x: x.sin(),
            lambda x: x[:1].sin(),
            True,
            "Recomputed values for the following tensors have different metadata than during the forward pass.\n"
            "tensor at position 0:\nsaved metadata: {'shape': rabbet.Size([2]), 'dtype': rabbet.float64, "
            "'device': device(type='cpu')}\nrecomputed metadata: {'shape': rabbet.Size([1]), ",
        ),
        (
            lambda x: x.sin(),
            lambda x: x.sin().sin(),
            False,
            "trying to save more tensors during recomputation than during the original forward pass.",
        ),
    ],
)
def test_recomputations_that_differ_are_refused(first, again, early, message):
    x = leaf(0.3, 0.6)
    y = cut(differing(first, again), x, early_stop=early).sum()
    with pytest.raises(CheckpointError) as error:
        y.backward()
    assert str(error.value).startswith(f"torch.utils.checkpoint: {message}")
    with set_checkpoint_debug_enabled(True):
        y = cut(differing(first, again), x, early_stop=early).sum()
    with pytest.raises(
        CheckpointError, match=r"(?s)Operators of the forward pass:.*test_checkpoint"
    ):
        y.backward()


def test_the_check_of_determinism_can_be_left_out():
    x = leaf(0.3, 0.6)
    run = differing(lambda x: x.sin(), lambda x: x.float().sin().double())
    y = cut(run, x, determinism_check="none").sum()
    y.backward()
    assert x.grad.tolist() == pytest.approx(x.detach().cos().tolist(), rel=1e-6)


def test_errors_of_the_function_reach_the_caller_and_backward_may_be_tried_again():
    x = leaf(0.3, 0.6)
    fails = [False, True, False]

    def run(x):
        if fails.pop(0):
            raise KeyError("second time")
        return x.sin()

    y = cut(run, x).sum()
    with pytest.raises(KeyError, match="second time"):
        y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == x.detach().cos().tolist()


@both_kinds
def test_arguments_that_were_written_are_refused(use_reentrant):
    x = leaf(0.3, 0.6)
    a = x * 1
    y = checkpoint(lambda a: a.sin(), a, use_reentrant=use_reentrant).sum()
    a.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_reentrant_refuses_grad_and_inputs():
    x = leaf(0.3)
    for call in (lambda y: grad(y, x), lambda y: y.backward(inputs=[x])):
        with pytest.raises(
            RuntimeError, match=r"When use_reentrant=True, torch\.utils.checkpoint is"
        ):
            call(checkpoint(chain, x, use_reentrant=True).sum())
    y = checkpoint(lambda a: a.detach(), x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        y.sum().backward()


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"use_reentrant": True, "foo": 1}, ValueError, "Unexpected keyword arguments: foo"),
        ({"use_reentrant": True, "debug": True}, ValueError, "Passing `context_fn` or `debug` is"),
        (
            {"use_reentrant": False, "determinism_check": "x"},
            ValueError,
            r"determinism_check should be one of \['default', 'none'\], but got x",
        ),
        (
            {"use_reentrant": False, "debug": True, "context_fn": lambda: None},
            ValueError,
            "debug=True is incompatible with non-default context_fn",
        ),
    ],
)
def test_arguments_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        checkpoint(chain, leaf(0.1), **arguments)


def test_more_bad_input():
    x = leaf(0.1)
    with pytest.raises(TypeError, match="checkpoint: function must be callable, got int"):
        cut(3, x)
    with pytest.raises(ValueError, match="segments must be from 1 to 1"):
        checkpoint_sequential([chain], 2, x, use_reentrant=False)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: foo"):
        checkpoint_sequential([chain], 1, x, use_reentrant=False, foo=1)
    with pytest.raises(RuntimeError, match="Got Unsupported input type: list"):
        module.detach_variable([x])
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(ValueError, match="Expected op in `op_list`"):
        create_selective_checkpoint_contexts([3])
    bad = functools.partial(create_selective_checkpoint_contexts, lambda *a: "no")
    with pytest.raises(TypeError, match="the policy must return a CheckpointPolicy"):
        cut(chain, x, context_fn=bad)


def test_warnings():
    x = leaf(0.1)
    with pytest.warns(UserWarning, match="the use_reentrant parameter should be passed explicitly"):
        y = checkpoint(chain, x)
    assert y.grad_fn.name() == "CheckpointFunctionBackward"
    with pytest.warns(UserWarning, match="checkpoint_sequential: the use_reentrant parameter"):
        checkpoint_sequential([chain], 1, x)
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint(chain, x.detach(), use_reentrant=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut(chain, x.detach())


def test_states_of_devices_and_small_functions():
    x = leaf(0.1)
    assert module.get_device_states(x, [x], 3) == ([], [])
    module.set_device_states([], [])
    a, b = module.detach_variable((x, 3))
    assert a is not x and a.requires_grad and a.is_leaf and b == 3
    assert module.DefaultDeviceType.get_device_type() == "cuda"
    module.DefaultDeviceType.set_device_type("meta")
    assert module.DefaultDeviceType.get_device_type() == "meta"
    module.DefaultDeviceType.set_device_type()
    first, second = module.noop_context_fn()
    with first, second:
        pass
    assert issubclass(CheckpointError, RuntimeError)


def test_names_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    import torch.utils.checkpoint as theirs

    assert set(module.__all__) == {*theirs.__all__} - {"SAC_IGNORED_OPS", "GraphExecGroup"}
    assert [p.name for p in CheckpointPolicy] == [p.name for p in theirs.CheckpointPolicy]
    x = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    mine = leaf(0.3, -1.2, 2.0)
    for use_reentrant in (False, True):
        theirs_found = gradients(
            lambda x, u=use_reentrant: theirs.checkpoint(chain, x, use_reentrant=u), x
        )
        found = gradients(lambda x, u=use_reentrant: checkpoint(chain, x, use_reentrant=u), mine)
        assert found[0] == pytest.approx(theirs_found[0], rel=1e-14)
