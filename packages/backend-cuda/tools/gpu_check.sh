#!/bin/sh
# Check this tree on the GPU of this machine, without network: see gpu_check/main.py. RUN is 1 to 5, OUT says where results
# go, --simulate puts the simulator in the place of the GPU.
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_check/main.py" "$@"
