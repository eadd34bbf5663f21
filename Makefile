# The one door: make demo | test | test-full | test-abi | test-packages | test-array-api | conformance | test-sanitize | test-opencl | check | bench | wheels | docs | clean
SHELL := /bin/bash
PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
STAMPS := $(CURDIR)/build/stamps
export PATH := $(BIN):$(PATH)
export UV_PROJECT_ENVIRONMENT := $(VENV)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

KIT := $(BIN)/python -m pytest -q -p no:cacheprovider -n 2 --pyargs rabbet_testing
PACKAGES := core backend-cpu backend-cuda autograd autocast vmap nn optim distributions profiler compile graph testing rabbet
stamps = $(foreach p,$(PACKAGES),$(STAMPS)/$(p))
sources = $(shell find packages/$(1) -type f -not -path '*/build/*' -not -path '*/tests/*' -not -name '*.pyc')

.PHONY: demo test test-full test-abi test-packages test-array-api conformance test-sanitize test-opencl check bench wheels docs clean setup

demo: $(filter-out $(STAMPS)/testing,$(stamps)) $(STAMPS)/group-examples
	$(BIN)/python examples/digits.py

test: setup $(STAMPS)/group-test $(STAMPS)/group-examples
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"
	$(MAKE) conformance

test-full: setup $(STAMPS)/group-test $(STAMPS)/group-examples wheels
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(MAKE) conformance
	$(SIMULATED) $(KIT) --device=cuda --level=L0,L1,L2
	RABBET_CUDA_EXACT=1 CUSIM_CHECK=all $(SIMULATED) $(KIT) --device=cuda --level=L2 -k float32
	$(BIN)/python -m rabbet_testing.fuzz --seed 1 --minutes 4
	$(BIN)/python -m rabbet_testing.fuzz --files --seed 1 --minutes 0.5
	$(BIN)/python -m rabbet_testing.fuzz --plugins --seed 1 --minutes 0.5

# What a third party runs: its options come from the kit, which pytest finds by --pyargs. CUDA devices are simulated; of
# their dtypes two are judged here, all of them by test-full.
SIMULATED := RABBET_CUDA_FALLBACK=error env $$($(BIN)/python packages/backend-cuda/sim/build.py)
conformance: setup $(STAMPS)/group-test
	$(KIT) --device=cpu
	$(SIMULATED) $(KIT) --device=cuda --level=L2 -k "float32 or int64"
	for layer in autograd autocast vmap functionalize compile; do $(KIT) --layer=$$layer || exit 1; done

# Plugins of earlier and later versions of the boundary header (also part of test).
test-abi: setup $(STAMPS)/group-test
	$(BIN)/python -m pytest tests/test_abi.py tests/test_host_checks.py

# Packages that are built on torch, from PyPI: their own tests, and models beside PyTorch's numbers. Not part of test.
test-packages: setup $(STAMPS)/group-test $(STAMPS)/group-examples
	$(BIN)/python tests/packages/run.py

# The consortium's suite for the array API standard, which is not part of this repository. Not part of test.
SUITE ?= ../shared/array-api-tests
EXAMPLES ?= 20
test-array-api: setup $(STAMPS)/group-test $(STAMPS)/group-array-api
	$(BIN)/python tests/array_api/run.py --suite $(SUITE) --examples $(EXAMPLES)

test-sanitize: setup $(STAMPS)/group-test
	$(BIN)/python tools/sanitize.py thread
	$(BIN)/python tools/sanitize.py address

# The backend of examples/backend-opencl, on OpenCL's implementation for CPUs, which Debian's packages bring.
test-opencl: setup $(STAMPS)/group-test $(STAMPS)/group-examples
	ls /etc/OpenCL/vendors/*.icd /usr/include/CL/cl.h || apt-get install -y pocl-opencl-icd ocl-icd-opencl-dev opencl-headers
	$(BIN)/python -m pytest tests/test_backends.py tests/test_backend_plugins.py -rs

check: setup $(STAMPS)/group-test $(STAMPS)/group-check wheels
	$(BIN)/ruff format --check packages tests examples benchmarks tools
	$(BIN)/ruff check packages tests examples benchmarks tools
	$(BIN)/python tools/check_native.py
	$(BIN)/python tools/check_op_names.py
	$(BIN)/python tools/write_stubs.py --check
	$(BIN)/python tools/check_types.py
	$(BIN)/python tools/check_instructions.py
	$(BIN)/python tools/wheel_sizes.py dist
	$(BIN)/python -m pytest -k in_style tests/test_new_plugin.py
	$(BIN)/python -m pytest tests/test_typing.py
	$(BIN)/python -m pytest -m slow tests/test_subsets.py tests/test_sdists.py

bench: setup $(STAMPS)/group-test $(STAMPS)/group-examples
	$(BIN)/python benchmarks/run_all.py

# With compiled kernels in the wheel of CUDA where NVRTC is installed (minutes); SEED_PACK=0 leaves them out.
SEED_PACK ?= 1
check test-full: SEED_PACK := 0
wheels: $(stamps)
	mkdir -p dist
	rm -f packages/backend-cuda/build/kernels.seed
	if [ $(SEED_PACK) = 1 ]; then $(BIN)/python packages/backend-cuda/tools/make_seed_pack.py --if-there; fi
	for p in $(PACKAGES); do $(BIN)/python -m pip wheel -q --no-build-isolation --no-deps -w dist packages/$$p || exit 1; done
	rm -f packages/backend-cuda/build/kernels.seed  # not for what is installed here: the simulator runs no such kernels
	ls -l dist
	$(BIN)/python tools/wheel_sizes.py dist

docs: setup $(STAMPS)/group-docs $(STAMPS)/group-test
	$(BIN)/python tools/write_reference.py docs/reference
	$(KIT) --device=cpu --conformance-table=docs/reference/conformance-cpu.md
	$(SIMULATED) $(KIT) --device=cuda --level=L2 --conformance-table=docs/reference/conformance-cuda.md
	$(BIN)/mkdocs build -q

setup: $(stamps)

clean:
	rm -rf $(VENV) build dist site packages/*/build

# ---- the environment, from the lock file

$(STAMPS)/venv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip uv
	mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tools: $(STAMPS)/venv uv.lock
	$(BIN)/python tools/install_locked.py build
	touch $@

$(STAMPS)/group-%: $(STAMPS)/tools
	$(BIN)/python tools/install_locked.py $*
	touch $@

# ---- the packages: installed as users get them, each with a build folder of its own that makes rebuilds quick

define install_rule
$(STAMPS)/$(1): $(STAMPS)/tools $(call sources,$(1)) $(2)
	$(BIN)/python -m pip install -q --no-build-isolation --no-deps --force-reinstall packages/$(1)
	touch $$@
endef
$(eval $(call install_rule,core,))
$(eval $(call install_rule,backend-cpu,$(STAMPS)/core))
$(eval $(call install_rule,backend-cuda,$(STAMPS)/core))
$(eval $(call install_rule,autograd,$(STAMPS)/core))
$(eval $(call install_rule,autocast,$(STAMPS)/core $(STAMPS)/autograd))
$(eval $(call install_rule,vmap,$(STAMPS)/core))
$(eval $(call install_rule,nn,))
$(eval $(call install_rule,optim,))
$(eval $(call install_rule,distributions,))
$(eval $(call install_rule,profiler,$(STAMPS)/core))
$(eval $(call install_rule,compile,$(STAMPS)/core))
$(eval $(call install_rule,graph,$(STAMPS)/core))
$(eval $(call install_rule,testing,))
$(eval $(call install_rule,rabbet,))
