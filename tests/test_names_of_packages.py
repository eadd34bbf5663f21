"""Names of torch that packages mention are there under `rabbet run`, and names that PyTorch lacks are not."""

import subprocess
import sys
from pathlib import Path

NAMES = Path(__file__).with_name("names_of_packages.txt")

PROGRAM = """
import sys
import warnings

warnings.simplefilter("ignore")  # names of PyTorch's that warn where they are used
import rabbet

rabbet.as_torch()
from rabbet._as_torch.scan import missing_part

lines = [line for line in open(sys.argv[1]).read().split() if line.lstrip("-").startswith("torch")]
assert len(lines) > 1900
print([n for n in lines if n[0] != "-" and missing_part(n)])
print([n for n in lines if n[0] == "-" and missing_part(n[1:]) is None])
"""

FORMS = """
import rabbet

torch = rabbet.as_torch()
import torch.distributed.fsdp
import torch.distributed.tensor.parallel as parallel
from torch.distributed.checkpoint import state_dict
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed import *
import torch._inductor.config, torch._dynamo.eval_frame, torch.multiprocessing.spawn

assert torch.distributed.checkpoint.state_dict is state_dict
assert torch.distributed.tensor.parallel is parallel
assert torch.fx.experimental.symbolic_shapes.guard_int(2) == 2  # without an import of its own
assert torch.nn.quantized.dynamic is torch.ao.nn.quantized.dynamic or torch.nn.quantized.dynamic
assert not is_available() and torch.torch is torch
assert not hasattr(torch, "npu") and not hasattr(torch.distributed, "frobnicate")
try:
    get_model_state_dict(None)
except NotImplementedError as error:
    print(error)
try:
    import torch.distributed.frobnicate
except ModuleNotFoundError as error:
    print(error)
"""


def printed(program: str, *arguments: object) -> list[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_that_packages_mention_are_there_and_others_are_not():
    assert printed(PROGRAM, NAMES) == ["[]", "[]"]


def test_what_refuses_imports_in_every_form():
    assert printed(FORMS) == [
        "rabbet.distributed.checkpoint.state_dict.get_model_state_dict: rabbet has no distributed package yet: "
        "it runs in one process",
        "No module named 'torch.distributed.frobnicate'",
    ]
