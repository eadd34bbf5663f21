"""RB_ALLOC_EXACT on the backend `lazy` with LAZY_EXACT: each tensor is a segment of its own bytes. A process of its own."""

import os
import subprocess
import sys

from plugin_wheels import build_lazy

CODE = """
import os, rabbet
from rabbet import _C, accelerator
_C.load_plugin(os.environ["LAZY"])
def block(nbytes): return rabbet.empty(nbytes, dtype=rabbet.uint8, device="lazy")
def sizes(): return sorted(s["total_size"] for s in accelerator.memory_snapshot() if s["backend"] == "lazy")
def reserved(): return accelerator.memory_stats("lazy")["reserved_bytes.all.current"]

kept = [block(n) for n in (1, 7, 513, 3 << 20)]
assert sizes() == [1, 7, 513, 3 << 20] and reserved() == 521 + (3 << 20)
del kept[1]
assert sizes() == [1, 513, 3 << 20], "it goes back with its tensor"
x, side = rabbet.ones(100, device="lazy"), rabbet.Stream("lazy")
side.wait_stream(rabbet.Stream._current(rabbet.device("lazy")))
with side: y = x * 2
x.record_stream(side)
del x
assert y.sum().item() == 200, "not before other streams have read it"
del y, kept
block(1)  # the other stream has done its work, as is seen now
assert sizes() == [] and reserved() == 0
pool = accelerator.MemPool()
with accelerator.use_mem_pool(pool, "lazy"): z = block(100)
del z
assert sizes() == [100], "pools keep theirs"
del pool
assert sizes() == [] and accelerator.get_memory_info("lazy")[0] == accelerator.get_memory_info("lazy")[1]
"""


def test_each_tensor_is_a_segment_of_its_own(tmp_path):
    env = {**os.environ, "LAZY": str(build_lazy(tmp_path)), "LAZY_EXACT": "1"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
