"""Every kernel compiles by the real NVRTC, spills nothing and keeps to the budget: what tools/check_kernels.py says."""

import json

import check_kernels
import kernel_texts
import pytest
from check_kernels import ARCHITECTURES, BUDGET, MAIN, PROGRAM
from nvrtc import CONTRACTED, Nvrtc, find_nvrtc, options_of

SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) rb_kernel(float* x) {
  float held[96];
  for (int i = 0; i < 96; ++i) held[i] = x[i * 1024 + threadIdx.x];
  for (int k = 0; k < 96; ++k)
    for (int i = 0; i < 96; ++i) held[i] = held[i] * held[(i * 7 + 3) % 96] + held[k];
  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = held[i];
}
"""
CUTS = (
    'extern "C" __global__ void rb_kernel(unsigned char* x, float y) { x[0] = (unsigned char)y; }'
)


@pytest.fixture(scope="module")
def kernels():
    return kernel_texts.kernels_of(PROGRAM)


@pytest.fixture(scope="module")
def chosen(kernels):
    return check_kernels.representatives(kernels)


@pytest.fixture(scope="module")
def library():
    found = find_nvrtc()
    if found is None:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    return found


@pytest.fixture(scope="module")
def budget():
    return json.loads(BUDGET.read_text())


def test_every_macro_and_file_of_kernels_is_among_those_that_are_checked(kernels):
    assert kernel_texts.missing(kernels) == []


@pytest.mark.parametrize("family,reported", [("softmax", "RB_SOFTMAX"), ("order", "RB_SELECT")])
def test_a_family_without_kernels_is_reported(kernels, family, reported):
    missing = kernel_texts.missing([k for k in kernels if k.family != family])
    assert f"{family}.cuh" in missing and reported in missing


def test_a_new_macro_is_reported(kernels, tmp_path, monkeypatch):
    for path in kernel_texts.KERNELS.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    with open(tmp_path / "scan.cuh", "a") as file:
        file.write('#define RB_NEW(x) \\\n  extern "C" __global__ void rb_kernel() { x; }\n')
    monkeypatch.setattr(kernel_texts, "KERNELS", tmp_path)
    assert "RB_NEW" in kernel_texts.missing(kernels)


def test_texts_of_another_version_are_refused(kernels):
    with pytest.raises(ValueError, match="install it anew"):
        kernel_texts.kernel_of(kernels[0].text.replace("struct", "class", 1))


def test_the_budget_is_kept_to(library, chosen, budget):
    """None spills on any architecture, and on sm_90 each is as the budget says."""
    jobs = check_kernels.jobs_of(chosen)
    assert check_kernels.check(library, jobs, budget, {k.name for k in chosen}) == []


@pytest.mark.slow
def test_every_kernel_compiles_without_spills(library, kernels, chosen, budget):
    jobs = check_kernels.jobs_of(kernels)
    assert check_kernels.check(library, jobs, budget, {k.name for k in chosen}) == []


def test_what_a_budget_does_not_allow_is_reported(library, chosen, budget):
    kernel = next(k for k in chosen if k.family == "reduce" and "RB_REDUCE(RB_PACK" in k.behind)
    jobs = [(kernel.name, kernel.text, MAIN)]
    own = {kernel.name: budget[kernel.name]}
    fewer = {"registers": budget[kernel.name]["registers"] // 2}
    for mutated, reported in (
        ({}, []),
        (fewer, ["registers"]),
        ({"load": 32}, ["loads of 16 bytes"]),
        ({"shared": 0}, ["bytes of shared"]),
    ):
        changed = {kernel.name: {**own[kernel.name], **mutated}}
        found = check_kernels.check(library, jobs, changed, {kernel.name})
        assert len(found) == len(reported)
        assert all(text in line for text, line in zip(reported, found, strict=True)), found
    assert "is not in the budget" in check_kernels.check(library, [], {}, {kernel.name})[0]
    assert "but not a kernel" in check_kernels.check(library, [], own, set())[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_no_kernel_may_do_is_reported(library, architecture):
    texts = {"broken": "no kernel", "cuts": CUTS, "wide": SPILLS}
    jobs = [(name, text, architecture) for name, text in texts.items()]
    broken, cuts, wide = check_kernels.check(library, jobs, {}, set())
    assert "does not compile" in broken and "spills" in wide and "unsigned integers" in cuts


def test_packs_are_read_and_written_at_once(budget):
    """Whatever the budget says of other kernels: flat tensors, rows and optimizers have 16 bytes, sums are read by them."""
    for start in ("elementwise: RB_FLAT", "elementwise: RB_ROWS", "optim: RB_OPTIM"):
        found = [
            line
            for name, line in budget.items()
            if name.startswith(start)
            and "Float8" not in name  # whose packs are as long as the widest operand's
        ]
        assert found and all(line["load"] == line["store"] == 16 for line in found)
    sums = [line for name, line in budget.items() if "; RB_REDUCE(RB_PACK" in name]
    assert sums and all(line["load"] == 16 for line in sums)


# Kernels that are launched with more threads than 256, which have room for 255 registers each.
MANY_THREADS = {
    "loss: RB_LOSS_SUM": 1024,
    "order: RB_SELECT": 512,
    "order: RB_SORT_SMALL": 512,
    "order: RB_SORT_STARTS": 1024,
    "search: RB_FIND_STARTS": 1024,
}


@pytest.mark.parametrize("name", MANY_THREADS)
def test_blocks_of_many_threads_have_registers_for_all(name):
    """A multiprocessor has 65536; a thread's are a multiple of 8. What the budget allows is enough."""
    budget = json.loads(BUDGET.read_text())
    taken = [kernel["registers"] for key, kernel in budget.items() if key.startswith(name)]
    assert taken
    most = int(max(taken) * check_kernels.SLACK)
    assert (most + 7) // 8 * 8 * MANY_THREADS[name] <= 65536


def test_families_whose_bits_must_be_the_formulas_are_not_contracted(kernels):
    contracted = {k.family for k in kernels if "--fmad=true" in options_of(k.text, MAIN)}
    exact = {k.family for k in kernels if "--fmad=false" in options_of(k.text, MAIN)}
    assert contracted == {
        "attention", "conv", "loss", "norm", "recurrent", "sequence", "softmax"
    }  # fmt: skip
    assert {"elementwise", "optim", "random", "reduce", "scan", "matmul"} <= exact
    assert not contracted & exact


def test_contracted_texts_have_fma_and_others_do_not(library):
    text = 'extern "C" __global__ void rb_kernel(float* x) { x[0] = x[1] * x[2] + x[3]; }\n'
    exact, contracted = (Nvrtc(library).compile(t, MAIN) for t in (text, CONTRACTED + "\n" + text))
    assert "fma.rn" in contracted.ptx and "fma.rn" not in exact.ptx
