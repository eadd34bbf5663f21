"""The kit's judgement of what a device may offer of memory and graphs."""

import pytest
from kit_runs import kit
from plugin_wheels import MANIFEST, build_lazy, install

OPTIONAL = {
    "test_blocks_of_a_segment_are_apart",
    "test_free_memory_follows_what_is_allocated",
    "test_properties_have_names",
    "test_pinned_memory_holds_values",
    "test_a_graph_runs_at_each_replay",
}
CHOICE = ["--level=L1", "-k", " or ".join(sorted(OPTIONAL))]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lazy")
    install(folder, "lazy", MANIFEST.format("lazy", "backend"), build_lazy(folder))
    return folder


def test_a_backend_that_offers_all_passes(wheel):
    done, data = kit(wheel, "--device=lazy", *CHOICE)
    assert done.returncode == 0, done.stdout[-3000:]
    assert {r["test"] for r in data["results"]} == OPTIONAL
    assert {r["outcome"] for r in data["results"]} == {"passed"}, data["results"]


def test_a_backend_that_offers_nothing_has_not_implemented_it(tmp_path):
    done, data = kit(tmp_path, "--device=cpu", *CHOICE)
    assert done.returncode == 0, done.stdout[-3000:]
    outcomes = {r["test"]: r["outcome"] for r in data["results"]}
    assert outcomes.pop("test_blocks_of_a_segment_are_apart") == "passed"
    assert set(outcomes.values()) == {"not implemented"}


def test_graphs_that_run_once_are_found(wheel):
    done, data = kit(wheel, "--device=lazy", *CHOICE, LAZY_MISCHIEF="replay")
    assert done.returncode == 1 and not data["conformant"]
    failed = {r["test"]: str(r["notes"]) for r in data["results"] if r["outcome"] == "failed"}
    assert set(failed) == {"test_a_graph_runs_at_each_replay"} and "replay 1 of a graph" in str(
        failed
    )
