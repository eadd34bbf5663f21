"""rabbet_nan names the operator that makes NaN, wherever that runs."""

import threading

import pytest
import rabbet
import rabbet_nan
import rabbet_profile

NAN = float("nan")


def findings(f, **options):
    with rabbet_nan.check(record=True, **options) as found:
        f()
    return found


def refusal(f):
    with pytest.raises(RuntimeError) as caught, rabbet_nan.check():
        f()
    return str(caught.value)


def test_the_operator_that_makes_nan_is_named():
    x = rabbet.tensor([[-1.0, 0.0, 2.0], [-3.0, 1.0, 1.0]])
    assert refusal(lambda: (x.log() * 2).sum()) == (
        "log made NaN or inf: 'out' of shape (2, 3) holds 2 NaN and 1 inf among 6 elements; "
        "its arguments hold none"
    )
    assert x.log().isnan().sum() == 2  # off again


def test_what_is_finite_passes():
    x = rabbet.randn(4, 5, requires_grad=True)
    with rabbet_nan.check(inf=True) as found:
        rabbet.nn.functional.gelu(x @ x.t()).logsumexp(0).sum().backward()
        rabbet.tensor([1, 2]) // 2
        rabbet.empty(100).fill_(1.0)
    assert found == []


def test_what_passes_it_on_names_the_first_one():
    x = rabbet.tensor([-1.0, 2.0])
    made, *passed = findings(lambda: (x.sqrt()[:1] * 3).add_(1).sum())
    assert made.startswith("sqrt made NaN or inf: 'out' of shape (2,) holds 1 NaN and 0 inf")
    assert [text.split()[0] for text in passed] == ["slice", "mul", "add", "sum"]
    for text in passed:
        assert " passed on NaN" in text and "its argument" in text
        assert text.endswith("held some, made by sqrt")


def test_nan_from_outside_is_told_apart():
    data = rabbet.tensor([1.0, NAN])
    text = refusal(lambda: rabbet.ones(2) * data)
    assert text.startswith("mul passed on NaN or inf: 'out' of shape (2,) holds 1 NaN")
    assert text.endswith("its argument 'other' held some, made by something before the check")
    text = refusal(lambda: data.add_(1))
    assert text.startswith("add passed on") and "its argument 'input' held some" in text
    with rabbet_nan.check() as found:  # overwritten or masked
        rabbet.where(data == data, data, 0.0)
        data.fill_(0.0)
    assert found == []


def test_infinities_count_if_asked_for():
    x = rabbet.tensor([1000.0])
    assert findings(x.exp) == []
    (found,) = findings(x.exp, inf=True)
    assert found.startswith("exp made NaN or inf: 'out' of shape (1,) holds 0 NaN and 1 inf")
    (difference,) = findings(lambda: x.exp() - x.exp())
    assert difference.startswith("sub made NaN or inf") and "1 NaN" in difference


def test_backward_is_checked():
    x = rabbet.zeros(2, requires_grad=True)
    with rabbet_nan.check():
        loss = (x.sqrt() * 0).sum()
    text = refusal(loss.backward)
    assert text.startswith("div made NaN or inf: 'out' of shape (2,) holds 2 NaN and 0 inf")


def test_transforms_are_checked():
    rows = rabbet.tensor([[1.0, 2.0], [3.0, -4.0]])
    text = refusal(lambda: rabbet.vmap(rabbet.log)(rows))
    assert text.startswith("log made NaN or inf: 'out' of shape (2, 2) holds 1 NaN and 0 inf")
    zero = rabbet.zeros(3)
    for derivative in (
        lambda: rabbet.func.grad(lambda x: (x.sqrt() * 0).sum())(zero),
        lambda: rabbet.func.jvp(rabbet.sqrt, (zero,), (zero,)),
        lambda: rabbet.vmap(rabbet.func.grad(lambda x: x.sqrt() * 0))(zero),
    ):
        assert "made NaN or inf" in findings(derivative)[0]


def test_low_precision_under_autocast():
    x = rabbet.full((2, 2), 300.0)
    with rabbet.autocast("cpu", dtype=rabbet.float16):
        found = findings(lambda: (x @ x) - (x @ x))
    assert found[0].startswith("sub made NaN or inf: 'out' of shape (2, 2) holds 4 NaN")


@pytest.mark.parametrize(
    "dtype", [rabbet.float16, rabbet.bfloat16, rabbet.float64, rabbet.complex64]
)
def test_every_floating_dtype(dtype):
    x = rabbet.tensor([0.0, 1.0], dtype=dtype)
    (found,) = findings(lambda: x / rabbet.zeros(2, dtype=dtype))
    assert found.startswith("div made NaN or inf") and "among 2 elements" in found


def test_results_in_place_and_given_and_several():
    x = rabbet.tensor([-1.0, 2.0])
    out = rabbet.zeros(2)
    assert findings(lambda: rabbet.log(x, out=out))[0].startswith("log made")
    assert refusal(x.log_).startswith("log made")
    assert x.isnan().sum() == 1  # written all the same
    rows = rabbet.tensor([[1.0, NAN]])
    (found,) = findings(lambda: rabbet.max(rows, 1))
    assert found.startswith("max.dim passed on NaN or inf: 'values' of shape (1,)")


def test_arguments_that_an_operator_writes():
    p = rabbet.ones(2, requires_grad=True)
    p.grad = rabbet.tensor([1.0, NAN])
    optimizer = rabbet.optim.SGD([p], lr=0.1)
    text = refusal(optimizer.step)
    assert " passed on NaN" in text and text.endswith("made by something before the check")


def test_a_tensor_that_is_clean_again_is_not_blamed_on_anybody():
    x = rabbet.tensor([-1.0])
    y = rabbet.ones(1)
    found = findings(lambda: (rabbet.log(x, out=y), y.fill_(-1.0), rabbet.sqrt(y, out=y), y + 1))
    assert [text.split()[0] for text in found] == ["log", "sqrt", "add"]
    assert found[2].endswith("made by sqrt")


def test_checks_nest_and_the_innermost_decides():
    x = rabbet.tensor([-1.0])
    with pytest.raises(RuntimeError, match="log made"), rabbet_nan.check():
        assert len(findings(x.sqrt)) == 1
        x.log()
    x.log()


def test_each_thread_checks_for_itself():
    x, outcomes = rabbet.tensor([-1.0]), {}
    start = threading.Barrier(4)

    def work(k):
        start.wait()
        for _ in range(200):
            if k % 2:
                outcomes[k] = findings(x.log)
            else:
                outcomes[k] = x.log()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(outcomes[1]) == len(outcomes[3]) == 1
    assert outcomes[0].isnan().all() and outcomes[2].isnan().all()


def test_checks_are_not_counted():
    x = rabbet.ones(3)
    with rabbet_profile.count() as c, rabbet_nan.check():
        x + x
    assert [row.name for row in c.rows()] == ["add"]


def test_nothing_leaks():
    x = rabbet.tensor([-1.0])
    before = rabbet._C.live_counts()["tensors"]
    for _ in range(3):
        with pytest.raises(RuntimeError), rabbet_nan.check():
            x.log()
        findings(x.log)
    assert rabbet._C.live_counts()["tensors"] == before


def test_meta_tensors_hold_nothing_to_check():
    assert findings(lambda: rabbet.ones(2, device="meta").log()) == []
