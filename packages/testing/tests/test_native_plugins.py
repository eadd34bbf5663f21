"""Wrong plugins in C++: no process that uses one crashes or hangs, and what is refused names who did what."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from rabbet_testing.fuzz import native

ONE_BY_ONE = [(f, b) for f, bodies in native.BODIES.items() for b in list(bodies)[1:]]


def plugin(bodies, struct="", phase=150):
    return {"bodies": bodies, "struct": struct, "phase": phase}


def wrong(call):
    return native.fault(call, *native.work(call, native.library(), 120.0))


def wrong_of(calls):
    native.library()
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(wrong, calls)
        return [f"{call['bodies']} {call['struct']} {call['phase']}: {text}" for call, text in zip(calls, found, strict=True) if text]  # fmt: skip


def test_a_healthy_plugin_is_not_found():
    assert wrong(plugin({})) == ""
    assert wrong_of([plugin({}, phase=phase) for phase in native.PHASES[1::3]]) == []


def test_what_a_plugin_did_is_told_apart():
    """The judge finds what is not contained, and messages that name nobody."""
    call = plugin({"kernel": "throws"})
    assert "crash: -6" in native.fault(call, "crash: -6: terminate called", "")
    here = [[0, 2, 4], [2, 2], [2, 2], 0]
    silent = {"f": ["", [[2], "rabbet.float32", "cpu"]], "here": here}
    assert "nothing says" in native.fault(call, silent, "")
    nobody = {"f": ["a call failed with code 1 and left no message", "StateError"], "here": here}
    assert "names nobody" in native.fault(call, nobody, "")
    broken = {"here": [[0, 0, 0], *here[1:]]}
    assert "the CPU gave" in native.fault(call, broken, "")


QUICK = [
    ("layer", "makes a full call"), ("layer", "makes another call"), ("layer", "returns a code"), ("layer", "throws"),
    ("layer", "gives another dtype"), ("layer", "gives another device"), ("layer", "replaces the destination"), ("layer", "returns no result"),
    ("kernel", "calls itself"), ("kernel", "throws"), ("kernel", "returns a code"), ("kernel", "throws on one thread"),
    ("kernel", "adopts with a throwing deleter"), ("allocating", "gives another shape"), ("alloc", "gives too little"), ("alloc", "misaligns"),
    ("count", "returns a code"), ("drop", "throws"), ("retire", "throws"), ("entry", "throws"), ("init", "adds a wrong formula"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "body"), QUICK)
def test_a_wrong_function_is_contained(function, body):
    bodies = {function: body}
    if function == "drop":
        bodies["kernel"] = "sets a slot"
    assert wrong(plugin(bodies)) == ""


def test_a_slot_that_is_set_twice_ends_what_it_held():
    said, _ = native.work(plugin({"kernel": "sets a slot twice"}), native.library())
    once, _ = native.work(plugin({"kernel": "sets a slot"}), native.library())
    assert (said["here"][3], once["here"][3]) == (2, 1)


@pytest.mark.slow
def test_every_wrong_function_is_contained():
    assert wrong_of([plugin({function: body}) for function, body in ONE_BY_ONE]) == []


@pytest.mark.slow
def test_three_hundred_wrong_plugins():
    assert wrong_of([native.call(17, index) for index in range(300)]) == []
