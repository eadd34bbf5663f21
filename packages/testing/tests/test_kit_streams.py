"""The kit's judgement of streams: a backend that puts off all work passes, each wait that it leaves out is found."""

import pytest
from kit_runs import failures, kit
from plugin_wheels import MANIFEST, build_lazy, install

STREAMS = ["--device=lazy", "--level=L1", "-k", "streams"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lazy")
    install(folder, "lazy", MANIFEST.format("lazy", "backend"), build_lazy(folder))
    return folder


def test_a_backend_that_puts_off_all_work_passes(wheel):
    done, data = kit(wheel, *STREAMS)
    assert done.returncode == 0, done.stdout[-3000:]
    assert {r["outcome"] for r in data["results"]} == {"passed"} and len(data["results"]) >= 15


def test_a_backend_without_streams_has_not_implemented_them(tmp_path):
    done, data = kit(tmp_path, "--device=cpu", "--level=L1", "-k", "streams")
    assert done.returncode == 0 and {r["outcome"] for r in data["results"]} == {"not implemented"}
    assert "the backend 'cpu' has no streams" in str(data["results"])


MISCHIEF = {  # what is left out: what fails, with which words
    "wait": ("test_a_stream_waits_for_another", "additions on a stream that waits for another one's: expected"),
    "event sync": ("test_the_host_waits_for_an_event", "an event is not passed after synchronize"),
    "event query": ("test_asking_is_not_waiting", "additions when the event says that they are done: expected"),
    "device sync": ("test_waiting_for_the_device_is_waiting_for_all_streams", "after synchronize"),
    "kernel stream": ("test_work_on_a_stream_is_in_order", "a chain of additions on a stream: expected"),
    "free": ("test_memory_is_not_given_back_while_a_stream_uses_it", "given back by empty_cache"),
    "time": ("test_times_between_events", "nan ms between events"),
}  # fmt: skip


@pytest.mark.parametrize("mischief", MISCHIEF)
def test_what_is_left_out_is_found(mischief, wheel):
    test, words = MISCHIEF[mischief]
    done, data = kit(wheel, *STREAMS, LAZY_MISCHIEF=mischief)
    assert done.returncode == 1 and not data["conformant"]
    found = {r["test"]: str(r["notes"]) for r in failures(data)}
    assert words in found.get(test, ""), found
