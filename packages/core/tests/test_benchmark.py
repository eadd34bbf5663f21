"""rabbet.utils.benchmark, with clocks that the tests set; the tables are those that PyTorch prints."""

import pickle
import shutil

import pytest
import rabbet
from rabbet.utils import benchmark
from rabbet.utils.benchmark import (
    Compare,
    CopyIfCallgrind,
    FunctionCount,
    FunctionCounts,
    FuzzedParameter,
    FuzzedTensor,
    Fuzzer,
    Language,
    Measurement,
    ParameterAlias,
    TaskSpec,
    Timer,
)


class Clock:
    """Moves by `step` seconds for each execution of a statement that calls it."""

    def __init__(self, step=1e-3):
        self.now, self.step, self.calls = 0.0, step, 0

    def tick(self):
        self.now += self.step
        self.calls += 1

    def __call__(self):
        return self.now


def timed(clock, **options):
    return Timer("tick()", timer=clock, globals={"tick": clock.tick}, **options)


def measurement(times, number=1, **spec):
    return Measurement(number, times, TaskSpec(**{"stmt": "x + 1", "setup": "pass", **spec}))


def test_timeit_warms_up_and_times_one_run():
    clock = Clock()
    found = timed(clock, label="tick").timeit(500)
    assert found.number_per_run == 500 and found.median == pytest.approx(1e-3)
    assert clock.calls == 505 and found.title == "tick"


def test_blocked_autorange_runs_for_the_given_time():
    blocks = []
    found = timed(Clock()).blocked_autorange(lambda n, s: blocks.append((n, s)), min_run_time=0.1)
    assert sum(found.raw_times) >= 0.1 and found.median == pytest.approx(1e-3)
    assert blocks == [(found.number_per_run, t) for t in found.raw_times]


def test_adaptive_autorange_stops_at_a_small_spread():
    assert len(timed(Clock()).adaptive_autorange(min_run_time=1e-4).raw_times) == 4
    clock = Clock()

    def uneven():
        clock.step *= 1.5
        clock.tick()

    noisy = Timer("f()", timer=clock, globals={"f": uneven})
    assert sum(noisy.adaptive_autorange(max_run_time=3.0).raw_times) >= 3


def test_setup_and_threads_are_used():
    before = rabbet.get_num_threads()
    seen = []
    Timer(
        "seen.append((y, rabbet.get_num_threads()))",
        setup="""
            y = 3
        """,
        globals={"seen": seen},
        num_threads=1,
    ).timeit(1)
    assert set(seen) == {(3, 1)} and rabbet.get_num_threads() == before


def test_statistics_of_measurements():
    found = measurement([4.0, 1.0, 2.0, 3.0], number=2)
    assert found.times == [2.0, 0.5, 1.0, 1.5]
    assert (found.median, found.mean, found.iqr) == (1.25, 1.25, 0.75)
    assert found.has_warnings and found.meets_confidence(0.61) and not found.meets_confidence(0.6)
    assert measurement([1.0, 1.15, 1.15, 1.3]).has_warnings is False
    assert [measurement(t).significant_figures for t in ([1.0], [1.0, 1.0001], [1.0] * 10 + [1.001] * 10)] == [4, 4, 3]  # fmt: skip
    assert found.stmt == "x + 1" and found.num_threads == 1 and found.env is None
    assert pickle.loads(pickle.dumps(found)).times == found.times


@pytest.mark.parametrize(
    "found, text",
    [
        (
            measurement([1e-3, 1.1e-3, 1.05e-3]),
            "x + 1\n  Median: 1.05 ms\n  3 measurements, 1 runs per measurement, 1 thread",
        ),
        (measurement([1e-3]), "x + 1\n  1.00 ms\n  1 measurement, 1 runs , 1 thread"),
        (
            measurement([1e-3] * 20 + [2e-3] * 20, label="L", sub_label="S", description="D", env="E", num_threads=4),
            "L: S\nD\n  Median: 1.50 ms\n  IQR:    1.00 ms (1.00 to 2.00)\n"
            "  40 measurements, 1 runs per measurement, 4 threads\n"
            "  WARNING: Interquartile range is 66.7% of the median measurement.\n"
            "           This suggests significant environmental influence.",
        ),
        (
            measurement([1.0, 1.4, 1.4, 1.8], stmt="a=1\nb=2", setup="c=1\nd=2"),
            "stmt:\n  a=1\n  b=2\n\nsetup:\n  c=1\n  d=2\n\n  Median: 1.40 s\n"
            "  IQR:    0.20 s (1.30 to 1.50)\n"
            "  4 measurements, 1 runs per measurement, 1 thread\n"
            "  WARNING: Interquartile range is 14.3% of the median measurement.\n"
            "           This could indicate system fluctuation.",
        ),
    ],
)  # fmt: skip
def test_measurements_print_as_in_pytorch(found, text):
    assert repr(found).split("\n", 1)[1] == text


def test_merge_joins_runs_of_equal_tasks():
    parts = [measurement([1.0, 2.0]), measurement([3.0], stmt="y"), measurement([3.0], number=2)]
    merged = Measurement.merge(parts)
    assert [(m.number_per_run, m.raw_times) for m in merged] == [(1, [1.0, 2.0, 1.5]), (1, [3.0])]


def results():
    for label in ("L1", "L2"):
        for sub_label, time in (("s1", 1e-4), ("s2", 2e-4)):
            for description, factor in (("d1", 1.0), ("d2", 2.37)):
                if (label, sub_label, description) != ("L2", "s2", "d2"):
                    times = [time * factor * (1 + 0.01 * i) for i in range(5)]
                    for threads in (1, 4):
                        yield measurement(
                            times, label=label, sub_label=sub_label, description=description, num_threads=threads
                        )  # fmt: skip


TABLES = """\
[----------- L1 -----------]
          |    d1   |    d2 
1 threads: -----------------
      s1  |  102.0  |  241.7
      s2  |  204.0  |  483.5
4 threads: -----------------
      s1  |  102.0  |  241.7
      s2  |  204.0  |  483.5

Times are in microseconds (us).

[----------- L2 -----------]
          |    d1   |    d2 
1 threads: -----------------
      s1  |  102.0  |  241.7
      s2  |  204.0  |       
4 threads: -----------------
      s1  |  102.0  |  241.7
      s2  |  204.0  |       

Times are in microseconds (us).
"""  # noqa: W291


def test_tables_are_those_of_pytorch(capsys):
    table = Compare(list(results()))
    table.print()
    assert capsys.readouterr().out == TABLES + "\n"
    table.trim_significant_figures()
    assert "      s2  |  200  |  480\n" in str(table)
    table.colorize()
    assert "s1  |  \033[92m\033[1m100\033[0m\033[0m  |" in str(table)
    assert "|  \033[2m\033[91m480\033[0m\033[0m\n" in str(table)
    table.colorize(rowwise=True)
    assert "s2  |  \033[92m\033[1m200\033[0m\033[0m  |  \033[2m\033[91m480" in str(table)


def test_tables_tell_environments_and_warnings():
    times = [1e-3, 3e-3, 2e-3, 9e-3]
    found = Compare([measurement(times, label="x", sub_label="s", description="d", env=env) for env in ("base", "new")])  # fmt: skip
    found.highlight_warnings()
    found.trim_significant_figures()
    assert str(found) == (
        "[---------- x -----------]\n             |      d     \n1 threads: ---------------\n"
        "  (base)  s  |  2 (! 110%)\n  (new)   s  |  2 (! 110%)\n\nTimes are in milliseconds (ms).\n"
        "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
    )


def test_units_and_digits():
    assert benchmark.select_unit(3e-5) == ("us", 1e-6) and benchmark.select_unit(59) == ("s", 1)
    assert benchmark.unit_to_english("ns") == "nanosecond"
    assert [benchmark.trim_sigfig(x, 2) for x in (0.12345, 12345, -0.0, 9.96)] == [0.12, 12000, 0, 10]  # fmt: skip
    assert benchmark.ordered_unique([3, 1, 3, 2]) == [3, 1, 2]


def fuzzer(seed=3):
    return Fuzzer(
        parameters=[
            [FuzzedParameter("k", 1, 100, "loguniform"), FuzzedParameter("f", 0.0, 1.0, "uniform")],
            FuzzedParameter("d", distribution={3: 0.3, ParameterAlias("k"): 0.7}),
            FuzzedParameter("n", 1, 3, "uniform", strict=True),
        ],
        tensors=[FuzzedTensor("x", ("k", "d", 3), steps=(2, 1, 1), dim_parameter="n", max_elements=1000)],
        constraints=[lambda k, **other: k < 90],
        seed=seed,
    )  # fmt: skip


def test_fuzzer_draws_what_is_described():
    pytest.importorskip("numpy")
    found = list((drawer := fuzzer()).take(60))
    assert {p["n"] for _, _, p in found} == {1, 2, 3}
    for tensors, properties, params in found:
        assert params["d"] in (3, params["k"]) and 0 <= params["f"] <= 1 and 1 <= params["k"] < 90
        assert tuple(tensors["x"].shape) == (params["k"], params["d"], 3)[: params["n"]]
        assert tensors["x"].numel() == properties["x"]["numel"] <= 1000
        assert properties["x"]["is_contiguous"] == tensors["x"].is_contiguous()
    assert 0 < drawer.rejection_rate < 1
    again = [p for _, _, p in fuzzer().take(60)]
    assert again == [p for _, _, p in found] != [p for _, _, p in fuzzer(4).take(60)]


def test_fuzzed_tensors_of_other_dtypes_and_constructors():
    pytest.importorskip("numpy")
    made = [FuzzedTensor.default_tensor_constructor((50,), d) for d in (rabbet.bool, rabbet.int32)]
    assert made[0].dtype == rabbet.bool and made[1].min() >= 0 and made[1].max() < 127
    ones = FuzzedTensor("y", ("n",), tensor_constructor=lambda size, dtype, n: rabbet.full(size, n, dtype=dtype))  # fmt: skip
    [(tensors, _, params)] = Fuzzer([FuzzedParameter("n", 2, 5, "uniform")], [ones], seed=0).take(1)
    assert tensors["y"].tolist() == [params["n"]] * params["n"]


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: Timer(3), TypeError, "stmt must be a str, got int"),
        (lambda: Timer(globals=[]), TypeError, "globals must be a dict or None, got list"),
        (lambda: Timer(timer=3), TypeError, "timer must be callable, got int"),
        (lambda: Timer(num_threads=0), ValueError, "num_threads must be a positive int, got 0"),
        (lambda: Timer(global_setup="int x;"), ValueError, "global_setup is C\\+\\+ only"),
        (lambda: Timer(language="c++"), NotImplementedError, "must be Python"),
        (lambda: Timer(language=Language.CPP), NotImplementedError, "must be Python"),
        (lambda: Timer(language="go"), ValueError, "language must be .* got 'go'"),
        (lambda: Timer().timeit(0), ValueError, "number must be a positive int, got 0"),
        (lambda: Timer().blocked_autorange(min_run_time=-1), ValueError, "min_run_time must be"),
        (lambda: Timer().adaptive_autorange("x"), ValueError, "threshold must be a non-negative"),
        (lambda: Timer().repeat(), NotImplementedError, "blocked_autorange"),
        (lambda: Timer().autorange(), NotImplementedError, "blocked_autorange"),
        (lambda: Timer().collect_callgrind(0), ValueError, "number must be a positive int"),
        (lambda: measurement([]).median, RuntimeError, "expected at least one time"),
        (lambda: Compare([1]), ValueError, "Expected an instance of `Measurement`"),
        (lambda: benchmark.trim_sigfig(1.0, 0), ValueError, "n must be a positive int, got 0"),
        (lambda: benchmark.unit_to_english("h"), KeyError, "expected one of"),
        (lambda: CopyIfCallgrind(1, setup=2), TypeError, "setup must be a str, got int"),
        (lambda: FuzzedParameter("k", 1, 100), ValueError, "distribution must be .* got None"),
        (lambda: FuzzedParameter("k", 3, 1, "uniform"), ValueError, "minval <= maxval"),
        (lambda: FuzzedParameter("k", 0, 1, "loguniform"), ValueError, "minval must be positive"),
        (lambda: FuzzedParameter("k", 1, 2, {1: 1.0}), ValueError, "must be None with a dict"),
        (lambda: FuzzedParameter("k", distribution={1: 0.4}), ValueError, "sum to 1, got \\[0.4\\]"),
        (lambda: FuzzedTensor("x", (1, 2), steps=(1,)), ValueError, "expected 2 steps"),
        (lambda: FuzzedTensor("x", (1,), None, 2.0), ValueError, "must be from 0 to 1, got 2.0"),
        (lambda: FuzzedTensor("x", (1,), min_elements=5, max_elements=2), ValueError, "exceeds"),
        (lambda: Fuzzer([3], []), ValueError, "expected FuzzedParameter objects, got int"),
        (lambda: Fuzzer([FuzzedParameter("k", 1, 2, "uniform")] * 2, []), ValueError, "'k' names"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    "parameters, tensors, constraint, text",
    [
        ({"k": {1: 1.0}}, [FuzzedTensor("x", ("z",))], True, "no parameter is named 'z'"),
        ({"k": {ParameterAlias("z"): 1.0}}, [], True, "'z', which is not a parameter"),
        ({"k": {ParameterAlias("k"): 1.0}}, [], True, "aliases of each other in a cycle"),
        ({"k": {1: 1.0}}, [], False, "none of 1000 draws met the constraints"),
    ],
)
def test_impossible_fuzzers_are_refused(parameters, tensors, constraint, text):
    pytest.importorskip("numpy")
    made = [FuzzedParameter(name, distribution=d) for name, d in parameters.items()]
    with pytest.raises((ValueError, RuntimeError), match=text):
        next(Fuzzer(made, tensors, [lambda **params: constraint]).take(1))


def counts(**functions):
    return FunctionCounts._from_dict(functions, inclusive=False)


def test_counts_of_functions():
    a, b = counts(f=5, g=2, PyDict_GetItem=7), counts(f=1, h=4)
    assert list(a - b) == [(7, "PyDict_GetItem"), (4, "f"), (2, "g"), (-4, "h")]
    assert (a + b).sum() == 19 and a.denoise().sum() == 7
    assert a[0] == FunctionCount(7, "PyDict_GetItem") and len(a[:2]) == 2
    assert list(a.transform(lambda name: "x")) == [(14, "x")]
    assert list(a.filter(lambda name: name == "g")) == [(2, "g")]
    assert "Total: 14" in repr(a) and "..." in repr(counts(**{f"f{i}": i + 1 for i in range(40)}))
    with pytest.raises(ValueError, match="cannot combine inclusive and exclusive"):
        a + FunctionCounts((), inclusive=True)


def test_callgrind_is_asked_for(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OSError, match="needs the program 'valgrind', which is not installed"):
        Timer("x = 1").collect_callgrind()


def test_callgrind_takes_what_it_can_copy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    with pytest.raises(ValueError, match="the global 'x' is a Tensor, which the other process"):
        Timer("x", globals={"x": rabbet.ones(2)}).collect_callgrind()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("callgrind_annotate"), reason="Valgrind is not installed")
def test_callgrind_counts_the_statement():
    timer = Timer("x + y", setup="y = x * 2", globals={"x": CopyIfCallgrind(rabbet.ones(4))})
    found = timer.collect_callgrind(number=10, retain_out_file=True)
    assert found.counts() > found.baseline_exclusive_stats.sum() > 0
    assert found.stats().sum() == found.counts() - found.baseline_exclusive_stats.sum()
    assert found.delta(found).sum() == 0 and "ffi_call" in found.stmt_callgrind_out
    assert found.as_standardized().counts() == found.counts()
    with pytest.raises(OSError, match="NameError: name 'missing'"):
        Timer("missing").collect_callgrind(number=2)
