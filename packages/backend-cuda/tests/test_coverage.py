"""How much of the CPU's work the device does itself, by what is registered: the kit judges whether it is right."""

MISSING = """
import rabbet
from rabbet import _C
rabbet.zeros(1), rabbet.zeros(1, device="cuda")
info = {name: _C.op_info(name) for name in _C.record_names()}
primitives = [n for n, i in info.items() if not i["has_decomp"] and "cpu" in i["kernels"]]
dtypes = lambda n, kind: set(info[n]["kernel_dtypes"].get(kind, []))
missing = [n for n in primitives if "cuda" not in info[n]["kernels"]]
narrower = [n for n in primitives if n not in missing and dtypes(n, "cpu") - dtypes(n, "cuda")]
print(len(primitives), len(missing), len(narrower), *missing, "|", *narrower)
"""


def test_nearly_all_primitives_run_on_the_device(run, simulator):
    """At least 95 in 100 have a kernel, and 90 in 100 one for all dtypes that the CPU's takes."""
    found = run(MISSING, **simulator).split()
    primitives, missing, narrower = map(int, found[:3])
    assert primitives > 90
    assert missing <= 0.05 * primitives, found[3:]
    assert missing + narrower <= 0.1 * primitives, found[3:]
