"""The kit on composite tensors: a sound layer is conformant, a wrong one fails where it should and says why."""

from pathlib import Path

import pytest
from kit_runs import failures, kit
from plugin_wheels import MANIFEST, compile_library, install

HERE = Path(__file__).parent
MODULE = """
import os
from rabbet.composite import compose
from rabbet.library import require_layer
require_layer("sums")

def make(x):
    how = os.environ.get("SUMS_MISCHIEF")
    if how == "makes nothing" or not x.is_floating_point():
        return None
    if how == "makes a plain tensor":
        return x
    if how == "makes another shape":
        x = x.flatten()
    half = x.contiguous() * 0.5
    if how == "other strides" and x.ndim == 2:
        half = half.t().contiguous().t()
    return compose("sums", x.shape, x.dtype, (half, half.clone()), b"sum")

def rabbet_conformance_params(level):
    return {"make": make, **MORE} if level == "layer" else {}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the layer `sums`, as pip would have left it."""
    return made(tmp_path_factory.mktemp("sums"))


def made(folder, more="{}"):
    library = compile_library(
        folder, "sums", (HERE / "sums.cpp").read_text(), "-O1", "-fvisibility=hidden", "-Wall", "-Werror",
        "-DRB_ABI_NEEDED=6", language="cpp",
    )  # fmt: skip
    install(
        folder,
        "sums",
        MANIFEST.format("sums", "transform"),
        library,
        MODULE.replace("**MORE", f"**{more}"),
    )
    return folder


def test_a_sound_layer_is_conformant(wheel):
    done, data = kit(wheel, "--layer=sums", "-n", "2")
    assert done.returncode == 0 and data["conformant"], done.stdout[-3000:]
    passed = {r["test"] for r in data["results"] if r["outcome"] == "passed"}
    assert passed >= {
        "test_operators_see_the_values", "test_operators_in_place_see_the_values", "test_wrong_shapes_are_refused",
        "test_derivatives_and_batches", "test_copies_are_whole", "test_writes_are_seen", "test_several_threads",
        "test_views_and_bases_see_writes",
        "test_readers_get_copies_of_the_values", "test_nothing_is_left", "test_damaged_composites_are_refused",
        "test_calls_on_plain_tensors_cost_nothing", "test_opening_it_registers_nothing",
    }  # fmt: skip
    seen = [r for r in data["results"] if r["test"] == "test_operators_see_the_values"]
    assert sum(r["outcome"] == "passed" for r in seen) > 220
    assert "test_results_are_kept" not in {r["test"] for r in data["results"]}  # it has no switch


FAULTS = {  # the test that fails, and what it says
    "forgets a part": ("test_operators_see_the_values", "tensor 0 a composite of sums: expected"),
    "overwrites": ("test_operators_see_the_values", "what it is given as tensor 0, after the call: expected"),
    "raises": ("test_operators_see_the_values", "out of order, and nothing on its values"),
    "ignores alpha": ("test_operators_see_the_values", "alpha=3], tensor 0 a composite of sums: expected"),
    "writes nothing": ("test_operators_in_place_see_the_values", "neg[(3,4)], tensor 0 a composite of sums, in place: expected"),
    "copies share": ("test_copies_are_whole", "2 parts share their memory"),
    "changes the blob": ("test_copies_are_whole", "the blob differs"),
    "views are copies": ("test_views_and_bases_see_writes", "the view and a new one, after a write to the view"),
    "gives a part": ("test_readers_get_copies_of_the_values", "gave a part, or a tensor that shares memory with a part,"),
    "flat values": ("test_readers_get_copies_of_the_values", "the data hook of the layer 'sums' [sums-plugin 1.0] gave another shape or dtype"),
    "other strides": ("test_operators_see_the_values", "shows strides (4, 1), its values have (1, 3)"),
    "leaks": ("test_nothing_is_left", "40 uses of composites leave"),
    "believes files": ("test_damaged_composites_are_refused", "died of SIGSEGV: in the step 'use sums of shape|is accepted; it shows"),
    "makes nothing": ("test_copies_are_whole", "gives None for every one of"),
    "makes a plain tensor": ("test_copies_are_whole", "expected a composite tensor or None, got Tensor"),
    "makes another shape": ("test_copies_are_whole", "'make' of sums: expected a tensor of ((3, 4)"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_where_it_is(fault, wheel):
    test, said = FAULTS[fault]
    some = ["-k", f"{test} and ([neg] or [exp] or [add] or not [)"]
    done, data = kit(wheel, "--layer=sums", *some, SUMS_MISCHIEF=fault)
    assert done.returncode == 1 and not data["conformant"], done.stdout[-3000:]
    text = "\n".join(n for r in failures(data) if r["test"] == test for n in r["notes"])
    assert any(part in text for part in said.split("|")), text


def test_what_the_layer_refuses_is_reported(tmp_path):
    made(tmp_path, more="{'refuses': {'exp': 'not today'}}")
    some = ["-k", "test_operators_see_the_values and ([neg] or [exp])"]
    done, data = kit(tmp_path, "--layer=sums", *some, SUMS_MISCHIEF="raises")
    assert done.returncode == 0, done.stdout[-3000:]
    outcomes = {r["op"]: r["outcome"] for r in data["results"]}
    assert outcomes == {"neg": "passed", "exp": "not implemented"}
    assert "out of order" in str(data["results"])


@pytest.mark.parametrize(
    "more,message",
    [
        ("{'make': 3}", "'make' must be a callable"),
        ("{'enter': make, 'call': make}", "give one of 'enter' and 'call', or 'make'"),
    ],
)
def test_a_wrong_declaration_is_told(more, message, tmp_path):
    made(tmp_path, more=more)
    done, _ = kit(tmp_path, "--layer=sums")
    assert done.returncode == 4 and message in done.stderr, done.stderr
