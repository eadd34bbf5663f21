#!/bin/sh
# One command for a machine with a GPU: builds this tree, tests it there and measures it beside torch.
exec "$(dirname "$0")/../packages/backend-cuda/tools/gpu_check.sh" "$@"
