#!/bin/sh
# Build this tree on a machine with a GPU, test it there and measure it beside torch; RUN is 1 to 5.
exec "$(dirname "$0")/../packages/backend-cuda/tools/gpu_check.sh" "$@"
