"""Seeing into the tape: check_numerics, draw, memory_report, lines, anomaly mode."""

import os
import re
import threading

import pytest
import rabbet
from rabbet.autograd import (
    Function,
    NumericsError,
    check_numerics,
    detect_anomaly,
    is_multithreading_enabled,
    set_multithreading_enabled,
)
from rabbet.autograd.graph import draw, keep_lines, memory_report, saved_tensors_hooks

F64 = rabbet.float64


def leaf(*values):
    return rabbet.tensor(values, dtype=F64, requires_grad=True)


# ---- check_numerics


@pytest.mark.parametrize(
    "run, op, text",
    [
        (lambda x: (x - 1).log(), "log", r"1 NaN and 1 Inf of 3"),
        (lambda x: (x * 1000).exp(), "exp", r"0 NaN and 2 Inf of 3"),
        (lambda x: x * float("nan"), "mul", "3 NaN"),
        (lambda x: x * 1e200 * 1e200, "mul", "3 Inf of 3"),
        (lambda x: (x * 1).div_(0.0), "div", "3 Inf"),
        (lambda x: rabbet.cat([x, x / 0]), "div", "3 Inf"),
        (lambda x: x.to(rabbet.complex128).mul(float("inf")) * 0, "mul", "NaN"),
    ],
)
def test_the_first_fault_of_forward_is_named_with_line_and_statistics(run, op, text):
    x = leaf(0.5, 1.0, 2.0)
    with pytest.raises(NumericsError) as error, check_numerics():
        run(x)
    assert error.value.op == op and not error.value.in_backward
    assert re.search(rf"{op} made (NaN|Inf) at .*test_seeing\.py:\d+ in <lambda>", str(error.value))
    assert re.search(f"result 0: .*{text}", str(error.value))
    assert "argument 0: " in str(error.value) and "test_seeing.py" in error.value.line


def test_statistics_tell_the_range_of_the_rest():
    x = rabbet.tensor([-1.0, 1.0, 4.0])
    with pytest.raises(NumericsError) as error, check_numerics():
        x.sqrt()
    assert (
        "argument 0: float32(3,): 0 NaN and 0 Inf of 3, the others from -1 to 4, mean 1.33333"
        in str(error.value)
    )
    assert "result 0: float32(3,): 1 NaN and 0 Inf of 3, the others from 1 to 2, mean 1.5" in str(
        error.value
    )


def test_the_first_fault_of_backward_is_named_with_the_line_of_forward():
    x = leaf(0.0, 1.0)
    with pytest.raises(NumericsError) as error, check_numerics():
        y = x.sqrt()
        (y * 2).sum().backward()
    assert error.value.in_backward and error.value.op == "SqrtBackward0"
    assert "SqrtBackward0 made Inf in backward; its forward call is at " in str(error.value)
    assert "test_the_first_fault_of_backward" in error.value.line
    assert "gradient of input 0: float64(2,): 0 NaN and 1 Inf of 2" in str(error.value)
    (x.sqrt() * 2).sum().backward()  # outside nothing is checked


def test_user_functions_are_checked():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g * float("nan")

    with pytest.raises(NumericsError, match="BadBackward made NaN in backward"), check_numerics():
        Bad.apply(leaf(1.0)).backward()


def test_masks_of_infinity_and_uninitialized_memory_are_accepted():
    scores = rabbet.randn(3, 3, requires_grad=True)
    with check_numerics():
        mask = rabbet.full((3, 3), float("-inf")).triu(1)
        rabbet.softmax(scores + mask, -1).sum().backward()
        other = rabbet.zeros(3, 3).masked_fill(rabbet.eye(3, dtype=rabbet.bool), float("-inf"))
        rabbet.softmax(scores.detach() + other, -1)
        for _ in range(20):
            rabbet.empty(1000)
            rabbet.empty_like(scores)
        rabbet.ones(3, dtype=rabbet.int64) + 1
        rabbet.empty(0) / 0


def test_parts_of_the_check_can_be_left_out():
    x = leaf(0.0)
    with check_numerics(inf=False):
        (1 / x).item()
    with check_numerics(forward=False), pytest.raises(NumericsError, match="SqrtBackward0"):
        (x.sqrt() + 1 / rabbet.zeros(1)).backward()
    with check_numerics(backward=False):
        x.sqrt().backward()
    with check_numerics(ignore=["sqrt", "SqrtBackward0"]):
        (x.sqrt() * 1).backward()
        (-rabbet.ones(1)).sqrt()
    with pytest.raises(TypeError, match="ignore must hold names, got a single str"):
        check_numerics(ignore="sqrt")


def test_checks_nest_and_end_after_an_error():
    x = leaf(0.0)
    with check_numerics():
        with pytest.raises(NumericsError), check_numerics(ignore=["log"]):
            x.sqrt().backward()
        with pytest.raises(NumericsError, match="SqrtBackward0"):
            x.sqrt().backward()
        with pytest.raises(NumericsError, match="log made Inf"):
            x.log()
    x.log()
    x.sqrt().backward()


# ---- anomaly mode


def test_anomaly_mode_names_the_line_of_forward():
    x = leaf(-1.0)
    with detect_anomaly():
        y = x.sqrt()
        with pytest.raises(
            RuntimeError,
            match=r"SqrtBackward0 returned NaN.*test_seeing\.py:\d+ in test_anomaly_mode",
        ):
            y.backward()
    assert x.sqrt().grad_fn._source() is None
    with detect_anomaly(), keep_lines():
        pass
    assert x.sqrt().grad_fn._source() is None
    with keep_lines():
        with detect_anomaly():
            pass
        assert "test_seeing.py" in x.sqrt().grad_fn._source()


# ---- memory_report


def test_the_report_has_what_is_kept_largest_first():
    w = rabbet.randn(30, 30, requires_grad=True)
    x = rabbet.randn(1000, 30)
    with keep_lines():
        h = x @ w
        y = h.exp()
        loss = (y * y).sum() + (w * w).sum()
    report = memory_report(loss)
    sizes = [(e.nbytes, e.node, e.argument, e.is_leaf) for e in report.entries]
    assert [e[0] for e in sizes] == [120_000, 120_000, 3600]
    assert {e[1] for e in sizes[:2]} <= {
        "MmBackward0",
        "ExpBackward0",
        "MulBackward0",
    }
    assert sizes[2][3] and not sizes[0][3]
    assert report.nbytes == 240_000
    assert all("test_seeing.py" in e.line for e in report.entries)
    text = str(report)
    assert "nodes keep 240,000 bytes besides leaves" in text
    assert "(leaf)" in text and "float32(1000, 30)" in text
    loss.backward()
    freed = memory_report(loss)
    assert freed.entries == [] and freed.nbytes == 0


class Keeper(Function):
    @staticmethod
    def forward(ctx, x):
        made, out = x * 2, x * 3
        ctx.save_for_backward(x, made, None, out)
        ctx.pair = (x + 1, "text")
        return out

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[1]


def test_the_report_counts_what_functions_keep():
    x = rabbet.randn(1000, requires_grad=True)
    out = Keeper.apply(x)
    report = memory_report(out)
    found = sorted((e.node, e.argument, e.nbytes, e.is_leaf) for e in report.entries)
    assert found == [
        ("KeeperBackward", "pair", 4000, False),
        ("KeeperBackward", "saved_tensors", 4000, False),
        ("KeeperBackward", "saved_tensors", 4000, False),
        ("KeeperBackward", "saved_tensors", 4000, True),
    ]
    assert report.nbytes == 12_000 and report.packed == 0
    out.sum().backward()
    assert [e.argument for e in memory_report(out).entries] == ["pair"]


def test_the_report_counts_what_hooks_pack_of_functions():
    x = rabbet.randn(1000, requires_grad=True)
    with saved_tensors_hooks(lambda t: t.tolist(), rabbet.tensor):
        out = Keeper.apply(x)
    report = memory_report(out)
    assert report.packed == 3
    assert [e.argument for e in report.entries] == ["pair"]


def test_reports_without_lines_and_of_packed_values():
    x = leaf(1.0, 2.0)
    report = memory_report([x.exp(), x.sin()])
    assert "record inside of autograd.graph.keep_lines()" in str(report)

    def unpack(packed):
        raise AssertionError("the report unpacks nothing")

    with saved_tensors_hooks(lambda t: t.tolist(), unpack):
        y = (x * x).exp()
    report = memory_report(y)
    assert report.packed == 3 and report.entries == []
    assert "3 more tensors are packed" in str(report)


def test_reports_of_long_chains():
    y = leaf(1.0)
    for _ in range(5000):
        y = y * y
    assert len(memory_report(y).entries) == 5000


@pytest.mark.parametrize("function", [draw, memory_report])
def test_tensors_without_history_are_refused(function):
    with pytest.raises(
        RuntimeError, match=f"{function.__name__}: the tensor does not require grad"
    ):
        function(rabbet.ones(1))
    with pytest.raises(
        TypeError, match=f"{function.__name__}: expected a Tensor or several, got int"
    ):
        function([3])


# ---- draw


def test_without_graphviz_the_drawing_is_its_text(monkeypatch):
    monkeypatch.setenv("PATH", "")
    w, b = leaf(1.0, 2.0), leaf(3.0)
    with keep_lines():
        y = (w * b).sum()
    text = draw(y, names={"weight": w, "loss": y})
    assert text.startswith("digraph tape {") and text.endswith("}\n")
    labels = dict(re.findall(r'(\w+) \[label="(.*?)"[\],]', text))
    names = {key: label.split("\\n")[0] for key, label in labels.items()}
    assert sorted(names.values()) == ["MulBackward0", "SumBackward0", "leaf", "loss", "weight"]
    at = {name: key for key, name in names.items()}
    edges = set(re.findall(r"(\w+) -> (\w+);", text))
    assert edges == {
        (at["weight"], at["MulBackward0"]),
        (at["leaf"], at["MulBackward0"]),
        (at["MulBackward0"], at["SumBackward0"]),
        (at["SumBackward0"], at["loss"]),
    }
    assert "float64(2,)" in labels[at["weight"]] and "test_seeing.py" in labels[at["MulBackward0"]]


@pytest.mark.skipif(os.name != "posix", reason="a script stands for the program")
def test_with_graphviz_it_is_what_the_program_draws(monkeypatch, tmp_path):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nread first\necho "<svg>$1 $first</svg>"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert draw(leaf(1.0) * 2) == "<svg>-Tsvg digraph tape {</svg>\n"
    program.write_text("#!/bin/sh\necho no fonts >&2\nexit 3\n")
    with pytest.raises(RuntimeError, match="draw: dot failed with status 3: no fonts"):
        draw(leaf(1.0) * 2)


# ---- threads of backward


def test_multithreading_is_a_setting_of_the_thread():
    assert is_multithreading_enabled()
    with set_multithreading_enabled(False):
        assert not is_multithreading_enabled()
        seen = []
        thread = threading.Thread(target=lambda: seen.append(is_multithreading_enabled()))
        thread.start()
        thread.join()
        assert seen == [True]
        x = leaf(2.0)
        (x * x).backward()
        assert x.grad.item() == 4
    assert is_multithreading_enabled()
    set_multithreading_enabled(False)
    assert not is_multithreading_enabled()
    set_multithreading_enabled(True)
    with pytest.raises(TypeError, match="mode must be a bool, got int"):
        set_multithreading_enabled(1)


def test_anomaly_mode_can_be_asked_for():
    assert (rabbet.is_anomaly_enabled(), rabbet.is_anomaly_check_nan_enabled()) == (False, True)
    with detect_anomaly(check_nan=False):
        assert (rabbet.is_anomaly_enabled(), rabbet.is_anomaly_check_nan_enabled()) == (True, False)
        x = rabbet.tensor(0.0, requires_grad=True)
        (x.sqrt() * 0).backward()  # NaN passes
    rabbet.set_anomaly_enabled(True)
    try:
        with pytest.raises(RuntimeError, match="returned NaN"):
            (x.sqrt() * 0).backward()
    finally:
        rabbet.set_anomaly_enabled(False)
    assert not rabbet.is_anomaly_enabled()
