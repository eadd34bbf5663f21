"""`profile`: steps and schedules, results, tables, and errors."""

import warnings

import pytest
import rabbet
from rabbet import profiler
from rabbet.autograd import profiler as autograd_profiler
from rabbet.autograd import profiler_legacy, profiler_util
from rabbet.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule

NAMES = {"-": "NONE", "w": "WARMUP", "r": "RECORD", "s": "RECORD_AND_SAVE"}


@pytest.mark.parametrize(
    "options,expected",
    [
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}, "--wrs-wrs---"),
        (
            {"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1, "skip_first_wait": 1},
            "-wrs-wrs--",
        ),
        ({"wait": 0, "warmup": 0, "active": 1}, "ssss"),
        ({"wait": 0, "warmup": 2, "active": 3, "repeat": 1}, "wwrrs---"),
    ],
)  # fmt: skip
def test_a_schedule_says_what_to_do_in_each_step(options, expected):
    plan = schedule(**options)
    assert [plan(step).name for step in range(len(expected))] == [NAMES[c] for c in expected]


def test_wrong_schedules_are_refused():
    for wrong in ({"wait": -1, "warmup": 1, "active": 1}, {"wait": 1, "warmup": 1, "active": 0}):
        with pytest.raises(AssertionError, match=r"Invalid profiler schedule arguments.*got"):
            schedule(**wrong)
    with pytest.raises(AssertionError, match="Step must be non-negative, got -1"):
        schedule(wait=0, warmup=0, active=1)(-1)


def steps_of(actions):
    """The steps that each trace holds when a profile runs through actions, and the warnings."""
    traces = []
    plan = [ProfilerAction[NAMES[c]] for c in actions]

    def ready(prof):
        names = [e.trace_name for e in prof.events() if e.name == "ProfilerStep*"]
        traces.append([int(name.partition("#")[2]) for name in names])

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with profile(schedule=lambda step: plan[step], on_trace_ready=ready) as prof:
            for _ in plan[1:]:
                rabbet.ones(1)
                prof.step()
    return traces, [str(w.message) for w in said]


@pytest.mark.parametrize(
    "actions,traces",
    [
        ("-wrs-", [[2, 3]]),
        ("-wrs-wrs-", [[2, 3], [6, 7]]),
        ("ss-", [[0], [1]]),
        ("rs", [[0, 1]]),  # the end hands over the steps so far
        ("rrr", [[0, 1, 2]]),
        ("-w", []),
        ("wsw", [[1]]),
        ("srs-", [[0], [1, 2]]),
        ("----", []),
    ],
)
def test_traces_hold_the_steps_of_their_cycle(actions, traces):
    assert steps_of(actions) == (traces, [])


@pytest.mark.parametrize(
    "actions,said",
    [("r-", "RECORD followed by NONE"), ("w-", "WARMUP followed by NONE"), ("rw-", "RECORD followed by WARMUP")],
)  # fmt: skip
def test_schedules_that_lose_a_recording_are_told(actions, said):
    traces, warned = steps_of(actions)
    assert traces == [] and f"Incorrect schedule: {said}" in warned


def test_steps_are_counted():
    before = autograd_profiler.KinetoStepTracker.current_step()
    with profile() as prof:
        for _ in range(3):
            prof.step()
    assert prof.step_num == 3 and prof.current_action is ProfilerAction.RECORD
    assert autograd_profiler.KinetoStepTracker.current_step() >= before
    assert not [e for e in prof.events() if e.name.startswith("ProfilerStep")]  # without a schedule


def test_started_and_stopped_by_hand_and_again():
    prof = profile()
    for n in (1, 2):
        prof.start()
        for _ in range(n):
            rabbet.ones(1)
        prof.stop()
        assert [(e.key, e.count) for e in prof.key_averages()] == [("aten::ones", n)]


def test_events_of_earlier_cycles_are_kept_on_request():
    for keeps, expected in ((False, 1), (True, 2)):
        prof = profile(schedule=schedule(wait=1, warmup=0, active=1), acc_events=keeps)
        with prof:
            for _ in range(4):
                rabbet.ones(1)
                prof.step()
        assert sum(e.name == "aten::ones" for e in prof.events()) == expected


# ---- errors


@pytest.mark.parametrize(
    "second", [profile, autograd_profiler.profile], ids=["profile", "autograd"]
)
def test_a_second_profiler_is_refused_with_the_place_of_the_first(second):
    with profile() as prof:
        with (
            pytest.raises(RuntimeError, match=r"no other profiler .*test_profile\.py:\d+.*stop it"),
            second(),
        ):
            pass
        rabbet.ones(1)
    assert [e.name for e in prof.events()] == ["aten::ones"]


EXPORTS = {
    "events": lambda p: p.events(),
    "key_averages": lambda p: p.key_averages(),
    "export_chrome_trace": lambda p: p.export_chrome_trace("never"),
    "export_stacks": lambda p: p.export_stacks("never"),
    "export_html": lambda p: p.export_html("never"),
    "export_speedscope": lambda p: p.export_speedscope("never"),
}


@pytest.mark.parametrize("what", EXPORTS)
def test_results_before_the_end_are_refused(what):
    prof = profile(with_stack=True)
    with pytest.raises(RuntimeError, match=f"profile.{what}: expected a profiler that was started"):
        EXPORTS[what](prof)
    with prof, pytest.raises(RuntimeError, match=r"didn't finish running.*still running"):
        EXPORTS[what](prof)
    with pytest.raises(RuntimeError, match="expected a profiler that was started"):
        profile().stop()


def test_wrong_arguments_are_refused():
    with pytest.raises(AssertionError, match="No valid profiler activities found"):
        profile(activities=[])
    with pytest.raises(TypeError, match="expected activities of ProfilerActivity, got str"):
        profile(activities=["CPU"])
    with pytest.raises(TypeError, match="expected schedule to be a function or None, got int"):
        profile(schedule=3)
    with pytest.raises(
        TypeError, match="expected on_trace_ready to be a function or None, got str"
    ):
        profile(on_trace_ready="trace.json")


def test_activities_that_are_not_recorded_are_named():
    assert profiler.supported_activities() == {ProfilerActivity.CPU}
    with pytest.warns(UserWarning, match="activities of CUDA are not recorded"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.warns(FutureWarning, match="use_cuda.*deprecated"):
        profile(use_cuda=False)
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
        autograd_profiler.profile(use_cuda=True)


def test_ranges_of_other_profilers_are_refused():
    with (
        pytest.raises(RuntimeError, match=r"autograd\.profiler\.emit_itt: ITT .*profiler\.profile"),
        autograd_profiler.emit_itt(),
    ):
        pass
    for name in ("emit_nvtx", "emit_itt"):
        with getattr(autograd_profiler, name)(enabled=False):
            pass
    assert profiler.itt.is_available() is False
    for call in (
        lambda: profiler.itt.mark("a"),
        lambda: profiler.itt.range_push("a"),
        profiler.itt.range_pop,
    ):
        with pytest.raises(RuntimeError, match=r"profiler\.itt\.\w+: ITT functions not installed"):
            call()
    for read in (autograd_profiler.load_nvprof, autograd_profiler.parse_nvprof_trace):
        with pytest.raises(NotImplementedError, match="nvprof"):
            read("a.sql")
    with pytest.raises(NotImplementedError, match="ExecutionTraceObserver"):
        profiler.ExecutionTraceObserver()
    assert profiler.kineto_available() is True


# ---- tables


@pytest.fixture(scope="module")
def full():
    x, y = rabbet.ones(30, 40), rabbet.ones(40, 50)
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True) as prof:
        with record_function("a name that is much longer than a column of the table is wide, and then some"):  # fmt: skip
            for _ in range(2):
                x @ y
        x.flatten()
    return prof


def rows_of(table):
    """The cells below the heading of a table, by the heading."""
    lines = table.splitlines()
    rules = [i for i, line in enumerate(lines) if line.startswith("---")]
    widths = [len(rule) for rule in lines[rules[0]].split()]
    ends = [sum(widths[: i + 1]) + 2 * i for i in range(len(widths))]

    def cells(line):
        return [line[e - w : e].strip() for w, e in zip(widths, ends, strict=True)]

    heading = cells(lines[rules[0] + 1])
    return [dict(zip(heading, cells(line), strict=True)) for line in lines[rules[1] + 1 : rules[2]]]


def test_a_table_has_pytorchs_columns(full):
    rows = rows_of(full.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total"))
    assert list(rows[0]) == [
        "Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "CPU Mem", "Self CPU Mem",
        "# of Calls", "Input Shapes", "Total KFLOPs",
    ]  # fmt: skip
    by_name = {row["Name"]: row for row in rows}
    product = by_name["aten::matmul"]
    assert product["# of Calls"] == "2" and product["Input Shapes"] == "[[30, 40], [40, 50]]"
    assert product["Total KFLOPs"] == f"{2 * 2 * 30 * 40 * 50 / 1000:.3f}"
    assert product["CPU Mem"] == f"{2 * 30 * 50 * 4 / 1024:.2f} KB"
    assert any(name.endswith("...") and len(name) == 55 for name in by_name)


def test_a_table_is_sorted_and_cut(full):
    averages = full.key_averages()
    rows = rows_of(averages.table(sort_by="count", row_limit=2))
    assert len(rows) == 2 and rows[0]["# of Calls"] == "2"
    assert len(rows_of(averages.table(row_limit=-1))) == len(averages)
    sorted_rows = rows_of(averages.table(sort_by="self_cpu_memory_usage"))
    assert sorted_rows[0]["Name"] == "aten::matmul"
    with pytest.raises(
        AttributeError, match=r"sort_by expects an attribute of events.*got 'speed'"
    ):
        averages.table(sort_by="speed")
    assert averages.table(sort_by="self_cuda_time_total")  # PyTorch's name of a device's time


def test_times_of_a_table_in_one_unit(full):
    rows = rows_of(full.key_averages().table(time_unit="s"))
    assert all(row["CPU total"].endswith("s") and "us" not in row["CPU total"] for row in rows)
    with pytest.raises(ValueError, match="expected the unit 's', 'ms', 'us' or None, got 'h'"):
        full.key_averages().table(time_unit="h")


def test_a_table_of_single_events_and_of_those_inside_of_no_other(full):
    table = full.events().table(row_limit=-1, top_level_events_only=True, header="of the test")
    assert "of the test" in table and "only display top-level ops" in table
    names = [row["Name"] for row in rows_of(table)]
    assert "aten::flatten" in names and "aten::reshape" not in names and "aten::matmul" not in names


def test_a_table_with_stacks(full):
    rows = rows_of(full.key_averages(group_by_stack_n=2).table())
    of_product = next(i for i, row in enumerate(rows) if row["Name"] == "aten::matmul")
    assert "test_profile.py" in rows[of_product]["Source Location"]
    assert rows[of_product + 1]["Name"] == "" and rows[of_product + 1]["Source Location"]


def test_a_table_of_nothing():
    with profile() as prof:
        pass
    assert prof.key_averages().table() == "" and list(prof.events()) == []


def test_numbers_as_text():
    assert profiler_util._format_time(1.5) == "1.500us"
    assert profiler_util._format_time(2.5e6) == "2.500s"
    assert profiler_util._format_memory(-(3 << 20)) == "-3.00 MB"
    assert profiler_util._format_memory(5 << 30) == "5.00 GB"
    assert profiler_util._format_time_share(1, 3) == "33.33%"
    assert profiler_util._format_time_share(0, 0) == "NaN"


# ---- single events


def test_names_of_attributes_are_pytorchs(full):
    event = next(e for e in full.events() if e.name == "aten::matmul")
    assert event.key == event.trace_name == "aten::matmul" and event.count == 1
    assert event.time_range.elapsed_us() == event.cpu_time_total == event.cpu_time
    assert event.device_type == profiler.DeviceType.CPU and event.device_time_total == 0
    assert event.cpu_time_str.endswith("s") and event.use_device is None
    assert "name=aten::matmul" in repr(event) and "key=aten::matmul" in repr(full.key_averages()[1])
    with pytest.warns(FutureWarning, match="`cuda_time_total` is deprecated"):
        assert event.cuda_time_total == 0


def test_averages_take_events_with_their_key_only(full):
    first, *_ = full.events()
    average = profiler_util.FunctionEventAvg().add(first)
    average += first
    assert average.count == 2 and average.cpu_time_total == 2 * first.cpu_time_total
    other = next(e for e in full.events() if e.key != first.key)
    with pytest.raises(AssertionError, match="expected the key"):
        average.add(other)
    with pytest.raises(AssertionError, match="expected an event or an average, got int"):
        average.add(3)


def test_events_that_a_program_makes():
    outer = profiler_util.FunctionEvent(0, "outer", 1, 0.0, 10.0)
    inner = profiler_util.FunctionEvent(1, "inner", 1, 2.0, 5.0)
    inner.set_cpu_parent(outer)
    outer.append_cpu_child(inner)
    inner.append_kernel("kernel", 0, 4.0)
    assert outer.self_cpu_time_total == 7 and outer.device_time_total == 4
    assert outer.self_device_time_total == 0
    table = profiler_util.EventList([outer, inner], use_device="cuda").table()
    assert rows_of(table)[1]["Self CUDA"] == "4.000us" and "Self CUDA time total: 4.000us" in table


# ---- the profiler of autograd


def test_the_profiler_of_autograd():
    with autograd_profiler.profile(record_shapes=True, profile_memory=True) as prof:
        assert "unfinished" in repr(prof) and autograd_profiler._is_profiler_enabled
        rabbet.ones(2, 3).exp()
    assert not autograd_profiler._is_profiler_enabled
    assert [e.name for e in prof.function_events] == ["aten::ones", "aten::exp", "[memory]"]
    assert prof.total_average().count == 3 and "aten::exp" in prof.table() and str(prof)
    assert prof.self_cpu_time_total == prof.function_events.self_cpu_time_total
    assert prof.key_averages(group_by_input_shape=True)[1].input_shapes == [[2, 3]]
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()
    assert profiler_legacy.profile is autograd_profiler.profile


def test_a_recording_is_ended_from_outside():
    with pytest.raises(RuntimeError, match="not running"):
        rabbet.autograd._disable_profiler()
    prof = autograd_profiler.profile()
    prof.__enter__()
    assert rabbet.autograd._profiler_enabled()
    rabbet.ones(1)
    assert [e.name for e in rabbet.autograd._disable_profiler()] == ["aten::ones"]
    assert not rabbet.autograd._profiler_enabled()
    with pytest.raises(RuntimeError, match="this one has ended"):
        prof.__exit__(None, None, None)


def test_a_profiler_that_is_not_enabled():
    with autograd_profiler.profile(enabled=False) as prof:
        rabbet.ones(2)
    with pytest.raises(RuntimeError, match="never started"):
        prof.key_averages()


def test_keys_that_must_be_unique():
    seen = autograd_profiler.EnforceUnique()
    seen.see(1, 2)
    seen.see(1)
    with pytest.raises(RuntimeError, match=r"duplicate key: \(1, 2\)"):
        seen.see(1, 2)


def test_the_step_tracker():
    tracker = autograd_profiler.KinetoStepTracker
    start = tracker.current_step()
    assert tracker.increment_step("a") == start + 1 and tracker.increment_step("b") == start + 2
    assert tracker.increment_step("a") == start + 2
    assert tracker.erase_step_count("a") and not tracker.erase_step_count("a")
    tracker.erase_step_count("b")
