"""Run a program under PyTorch where torchvision's library does not load: its operators are declared, none is there.

python with_torch.py PROGRAM ARGUMENTS
"""

import runpy
import sys
from pathlib import Path

import torch

for name in ("nms", "qnms"):
    torch.library.define(
        f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
    )
sys.argv.pop(0)
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
