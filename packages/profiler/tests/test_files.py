"""The files that a profile is written to."""

import gzip
import json
import re
import warnings

import pytest
import rabbet
from rabbet import nn
from rabbet.autograd.profiler_util import EventList, FunctionEvent
from rabbet.profiler import profile, record_function, tensorboard_trace_handler


@pytest.fixture(scope="module")
def prof():
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), rabbet.ones(5, 3)
    with profile(
        record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True
    ) as prof:
        with record_function("forward </script> & more"):
            loss = net(x).sum()
        loss.backward()
        prof.add_metadata("who", 'a "test"')
        prof.add_metadata_json("numbers", "[1, 2]")
    return prof


def read(prof, tmp_path, name="trace.json"):
    prof.export_chrome_trace(str(tmp_path / name))
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rt") as file:
        return json.load(file)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_chrome_trace_has_a_complete_event_for_each_event(prof, tmp_path, name):
    trace = read(prof, tmp_path, name)
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] == "ms"
    assert trace["who"] == 'a "test"' and trace["numbers"] == [1, 2]
    assert trace["trace_id"] == prof.get_trace_id() and trace["with_flops"] == 1
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    events = [e for e in prof.events() if e.name != "[memory]"]
    assert sorted(e["name"] for e in complete) == sorted(e.trace_name for e in events)
    for event in complete:
        assert {"pid", "tid", "ts", "dur", "cat", "args"} <= event.keys() and event["dur"] >= 0
    (linear, _) = [e for e in complete if e["name"] == "aten::linear"]
    assert linear["cat"] == "cpu_op" and linear["args"]["Input Dims"] == [[5, 3], [4, 3], [4]]
    assert linear["args"]["Input type"] == ["float"] * 3 and linear["args"]["Flops"] == 2 * 5 * 12
    assert "test_files.py" in linear["args"]["Call stack"]
    cats = {e["name"]: e["cat"] for e in complete}
    assert cats["nn.Module: Linear_0"] == "python_function"
    assert cats["forward </script> & more"] == "user_annotation"


def test_slices_of_a_chrome_trace_nest(prof, tmp_path):
    complete = [e for e in read(prof, tmp_path)["traceEvents"] if e["ph"] == "X"]
    open_until = []
    for event in sorted(complete, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + 1e-3
        open_until.append(end)


def test_arrows_lead_from_calls_to_their_backward_nodes(prof, tmp_path):
    events = read(prof, tmp_path)["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    by_number = {
        e["args"]["Sequence number"]: e["name"]
        for e in events
        if e["ph"] == "X" and e["name"].startswith("aten::") and "Sequence number" in e["args"]
    }
    assert starts.keys() == ends.keys() == by_number.keys()
    assert sorted(by_number.values()) == ["aten::linear", "aten::linear", "aten::relu", "aten::sum"]
    assert all(starts[i]["ts"] < ends[i]["ts"] for i in starts)


def test_memory_in_a_chrome_trace(prof, tmp_path):
    events = read(prof, tmp_path)["traceEvents"]
    counters = [e for e in events if e["ph"] == "C"]
    assert [e["ts"] for e in counters] == sorted(e["ts"] for e in counters) and counters
    assert all(e["args"]["CPU"] >= 0 for e in counters)


def test_types_of_arguments(tmp_path):
    with profile(record_shapes=True) as prof:
        rabbet.cat([rabbet.ones(2, dtype=rabbet.int64)] * 2)
        rabbet.ones(2, dtype=rabbet.bfloat16).mul(2.5)
    types = {
        e["name"]: (e["args"]["Input type"], e["args"]["Concrete Inputs"])
        for e in read(prof, tmp_path)["traceEvents"]
        if e["ph"] == "X"
    }
    assert types["aten::cat"] == (["TensorList", "Scalar"], ["", "0"])
    assert types["aten::mul"] == (["c10::BFloat16", "Scalar"], ["", "2.5"])


def test_lists_of_events_write_traces_too(tmp_path):
    events = EventList([FunctionEvent(0, "one", 1, 5.0, 7.5, device_resource_id=9)])
    events.export_chrome_trace(str(tmp_path / "list.json"))
    (event,) = json.loads((tmp_path / "list.json").read_text())["traceEvents"]
    assert (event["name"], event["ts"], event["dur"], event["tid"]) == ("one", 5.0, 2.5, 9)


def test_the_handler_for_tensorboard_names_its_files(tmp_path):
    for use_gzip, end in ((False, "json"), (True, "json.gz")):
        folder = tmp_path / end
        with profile(on_trace_ready=tensorboard_trace_handler(str(folder), "me", use_gzip)):
            rabbet.ones(1)
        (file,) = folder.iterdir()
        assert re.fullmatch(rf"me\.\d+\.pt\.trace\.{end}", file.name)
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeError, match="Can't create directory"):
        tensorboard_trace_handler(str(tmp_path / "file"))


def test_stacks_for_flame_graphs(prof, tmp_path):
    prof.export_stacks(str(tmp_path / "stacks.txt"), "self_cpu_time_total")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"[^ ;]+(;[^ ;]+)* \d+", line) for line in lines)
    with pytest.raises(ValueError, match=r"metric should be one of.*got 'speed'"):
        prof.export_stacks(str(tmp_path / "stacks.txt"), "speed")
    with profile() as without:
        rabbet.ones(1)
    with pytest.raises(ValueError, match="requires with_stack=True"):
        without.export_stacks(str(tmp_path / "stacks.txt"))


def test_speedscope_opens_and_closes_frames_in_order(prof, tmp_path):
    prof.export_speedscope(str(tmp_path / "a.speedscope.json"), name="test")
    found = json.loads((tmp_path / "a.speedscope.json").read_text())
    frames = [f["name"] for f in found["shared"]["frames"]]
    (thread,) = found["profiles"]
    stack, at, opened = [], 0, []
    for event in thread["events"]:
        assert event["at"] >= at
        at = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
            opened.append(frames[event["frame"]])
        else:
            assert stack.pop() == event["frame"]
    assert not stack and at <= thread["endValue"] and found["name"] == "test"
    assert sorted(opened) == sorted(e.trace_name for e in prof.events() if e.name != "[memory]")


def test_overlapping_ranges_are_cut_for_speedscope(tmp_path):
    first, second = record_function("first"), record_function("second")
    with profile() as prof:
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    prof.export_speedscope(str(tmp_path / "a.json"))
    (thread,) = json.loads((tmp_path / "a.json").read_text())["profiles"]
    assert [e["type"] for e in thread["events"]] == ["O", "O", "C", "C"]


def page_of(prof, tmp_path):
    prof.export_html(str(tmp_path / "page.html"), title="A <title>")
    text = (tmp_path / "page.html").read_text()
    data = re.search(r'<script id="data"[^>]*>(.*?)</script>', text, flags=re.S)[1]
    return text, json.loads(data.replace("<\\/", "</"))


def test_a_page_needs_no_network_and_holds_its_data(prof, tmp_path):
    text, data = page_of(prof, tmp_path)
    assert not re.search(r"https?://|src=|@import|url\(", text)
    assert "A &lt;title&gt;" in text and text.count("</script>") == 2
    assert data["graphs"].keys() == {"modules", "calls", "source lines", "memory"}
    for root in data["graphs"].values():
        todo = [root]
        while todo:
            node = todo.pop()
            assert sum(c["t"] for c in node["c"]) <= node["t"]
            todo += node["c"]
    assert data["graphs"].pop("memory")["unit"] == "bytes"
    assert len({root["t"] for root in data["graphs"].values()}) == 1
    assert {"aten::linear", "AddmmBackward0"} <= {row["name"] for row in data["operators"]}
    assert data["memory"] and all(0 <= at <= data["seconds"] for at, _ in data["memory"])


def paths(node, before=()):
    here = (*before, node["n"])
    yield here
    for inner in node["c"]:
        yield from paths(inner, here)


def test_a_page_shows_backward_in_the_module_of_the_forward_call(prof, tmp_path):
    _, data = page_of(prof, tmp_path)
    found = set(paths(data["graphs"]["modules"]))
    assert ("all", "Sequential", "0 (Linear)", "forward </script> & more", "aten::linear") in found
    assert any(p[:4] == ("all", "Sequential", "2 (Linear)", "backward") for p in found)
    lines = {p[-1] for p in paths(data["graphs"]["source lines"])}
    assert any("test_files.py" in line for line in lines)


def test_a_page_shows_which_lines_made_the_memory_that_is_kept(tmp_path):
    with profile(profile_memory=True, with_stack=True) as prof:
        kept = rabbet.ones(1000) * 2
        _ = [rabbet.ones(500) for _ in range(3)]
    _, data = page_of(prof, tmp_path)
    root = data["graphs"]["memory"]
    assert root["t"] >= kept.nbytes + 3 * 2000

    def bytes_at(node, line):
        inner = sum(bytes_at(child, line) for child in node["c"])
        return node["t"] if line in node["n"] else inner

    here = test_a_page_shows_which_lines_made_the_memory_that_is_kept.__code__
    first, second = (f"({here.co_firstlineno + i}): {here.co_name}" for i in (2, 3))
    # The product's memory is made in its line; ones(1000) is made there, too, and freed after the call.
    assert kept.nbytes <= bytes_at(root, first) <= 2 * kept.nbytes
    assert bytes_at(root, second) in (6000, 3 * 2048)
    with profile(with_stack=True) as without:
        _ = rabbet.ones(3)
    assert "memory" not in page_of(without, tmp_path)[1]["graphs"]


def test_memory_over_time_as_a_file(prof, tmp_path):
    for name in ("m.json", "m.json.gz", "m.html"):
        with pytest.warns(FutureWarning, match="export_memory_timeline"):
            prof.export_memory_timeline(str(tmp_path / name))
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert len(times) == len(sizes) > 0 and times == sorted(times)
    assert json.loads(gzip.decompress((tmp_path / "m.json.gz").read_bytes())) == [times, sizes]
    assert "Memory of tensors" in (tmp_path / "m.html").read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(ValueError, match=r"expected a path that ends in .*got 'm.raw.json.gz'"):
            prof.export_memory_timeline("m.raw.json.gz")
        with profile() as without:
            rabbet.ones(1)
        with pytest.raises(ValueError, match="profile_memory=True required"):
            without.export_memory_timeline("m.json")


def test_metadata_that_is_no_json_is_refused():
    with profile() as prof, pytest.raises(ValueError, match="Expecting value"):
        prof.add_metadata_json("key", "not json")


def test_metadata_for_each_trace_and_names_of_traces(tmp_path):
    prof = profile(custom_trace_id_callback=lambda: "named")
    prof.preset_metadata_json("rank", "3")
    assert prof.get_trace_id() is None
    with prof:
        rabbet.ones(1)
    trace = read(prof, tmp_path)
    assert trace["rank"] == 3 and trace["trace_id"] == prof.get_trace_id() == "named"
