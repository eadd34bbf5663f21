"""Every operator whose record has a policy obeys it: dtypes, values, gradients; cases from the records."""

import pytest
import rabbet
from rabbet import _C
from rabbet_testing import Case, assert_close, cases, op_names

LOW = {"bfloat16": rabbet.bfloat16, "float16": rabbet.float16}
EPSILON = {"bfloat16": 2**-8, "float16": 2**-11}

# PyTorch's lists, as torch._C._dispatch_has_kernel_for_dispatch_key gives them for AutocastCPU and
# AutocastCUDA (2.13), under the names that the operators have here; all others are left alone.
TORCH = {
    "low": {
        "addmm", "attention", "baddbmm", "bmm", "convolution", "convolution_dw", "convolution_dx", "linear",
        "linear_activation", "matmul", "mm", "mv", "prelu", "recurrent_layer", "recurrent_step", "scaled_dot_product_attention",
    },
    "fp32": {
        "absolute_error", "acos", "asin", "binary_error", "cosh", "cross_entropy_loss", "cross_entropy_steps",
        "cumprod", "cumsum", "exp", "expm1", "group_norm", "huber_error", "layer_norm", "log", "log10", "log1p",
        "log2", "log_softmax", "logistic_error", "logsumexp", "nll_loss", "nll_loss_steps", "pow", "prod", "prod.dim",
        "reciprocal", "rms_norm", "rsqrt", "sinh", "smooth_l1_error", "softmax", "softplus", "squared_error", "sum",
        "tan",
    },
    "promote": {"addcdiv", "addcmul", "atan2", "cat", "dot", "index_put", "scatter_add", "stack"},
}  # fmt: skip


def with_policy(policy: str) -> list[str]:
    return [n for n in op_names() if "::" not in n and _C.op_info(n)["autocast"] == policy]


@pytest.mark.parametrize("policy", TORCH)
def test_the_records_follow_torch(policy):
    assert set(with_policy(policy)) == TORCH[policy]


def test_torch_lists_them():
    torch = pytest.importorskip("torch")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    # Those that torch has under another name, or as a part of what it lists.
    renamed = {
        "absolute_error": "l1_loss", "attention": "scaled_dot_product_attention", "binary_error": "binary_cross_entropy",
        "convolution": "conv2d", "convolution_dw": "conv2d", "convolution_dx": "conv_transpose2d.input",
        "cross_entropy_loss": "cross_entropy_loss", "cross_entropy_steps": "cross_entropy_loss",
        "huber_error": "huber_loss", "linear_activation": "linear", "log_softmax": "log_softmax.int", "logistic_error": "binary_cross_entropy_with_logits",
        "nll_loss_steps": "nll_loss", "pow": "pow.Tensor_Tensor", "prod.dim": "prod.dim_int",
        "recurrent_layer": "mkldnn_rnn_layer", "recurrent_step": "lstm_cell", "smooth_l1_error": "smooth_l1_loss",
        "softmax": "softmax.int", "squared_error": "mse_loss",
    }  # fmt: skip
    for names in TORCH.values():
        for name in names:
            there = f"aten::{renamed.get(name, name)}"
            assert has(there, "AutocastCPU") or has(there, "AutocastCUDA"), name
    for name in set(with_policy("pass")):
        there = f"aten::{name}"
        try:
            listed = has(there, "AutocastCPU") or has(there, "AutocastCUDA")
        except RuntimeError:  # not an operator of torch
            continue
        assert not listed, name


def tensors_of(values) -> list:
    found = []
    for value in values:
        if isinstance(value, rabbet.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += tensors_of(value)
    return found


def floating(values) -> list:
    return [t for t in tensors_of(values) if t.is_floating_point()]


def results_of(result) -> list:
    return floating([result] if isinstance(result, rabbet.Tensor) else list(result))


def converted(case: Case, dtype) -> Case:
    def convert(value):
        if isinstance(value, rabbet.Tensor) and value.is_floating_point():
            return value.detach().to(dtype)
        if isinstance(value, list | tuple):
            return [convert(v) for v in value]
        return value

    return Case(
        case.op, convert(case.args), {k: convert(v) for k, v in case.kwargs.items()}, case.label
    )


def with_dtypes(name: str, dtype, seed: int = 0):
    """Pairs of the same call in float32 and in another dtype."""
    for case in cases(name, rabbet.float32, seed):
        if not any(isinstance(a, rabbet.dtype) for a in case.args):
            yield case, converted(case, dtype)


def outside(case: Case):
    """The call without autocast, by float64 from the same numbers."""
    return results_of(converted(case, rabbet.float64).run())


# Of these a low result may hold integers or counts that no rounding touches.
WIDER = {"attention": 1}  # index of the result that stays float32: sums of exponentials


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", with_policy("low"))
def test_low(name, low):
    for single, other in with_dtypes(name, LOW["float16" if low == "bfloat16" else "bfloat16"]):
        with rabbet.autocast("cpu", LOW[low]):
            results = [results_of(single.run()), results_of(other.run())]
        for got in results:
            for i, result in enumerate(got):
                wide = WIDER.get(name) == i
                assert result.dtype == (rabbet.float32 if wide else LOW[low]), str(single)
        for result, exact in zip(results[0], outside(single), strict=True):
            error = (result.double() - exact).abs().max().item() if result.numel() else 0.0
            size = exact.abs().max().item() if result.numel() else 0.0
            assert error <= 24 * EPSILON[low] * max(size, 1.0), str(single)


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", with_policy("fp32"))
def test_fp32(name, low):
    for single, case in with_dtypes(name, LOW[low]):
        with rabbet.autocast("cpu", LOW[low]):
            results = results_of(case.run())
            unchanged = results_of(single.run())
        expected = results_of(converted(case, rabbet.float32).run())
        for result, wanted in zip(results, expected, strict=True):
            assert result.dtype == rabbet.float32, str(case)
            assert_close(result, wanted)
        for result, wanted in zip(unchanged, results_of(single.run()), strict=True):
            assert result.dtype == rabbet.float32 and result.tolist() == wanted.tolist(), str(case)


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", with_policy("promote"))
def test_promote(name, low):
    for single, case in with_dtypes(name, LOW[low]):
        with rabbet.autocast("cpu", LOW[low]):
            assert {r.dtype for r in results_of(case.run())} == {LOW[low]}, str(case)
            assert {r.dtype for r in results_of(single.run())} == {rabbet.float32}, str(case)
            mixed = [
                a if i else b for i, (a, b) in enumerate(zip(single.args, case.args, strict=True))
            ]
            if name in ("cat", "stack"):
                mixed = [[single.args[0][0], case.args[0][1]], *single.args[1:]]
            if len(tensors_of(mixed)) < 2:
                continue
            assert {r.dtype for r in results_of(single.run(*mixed))} == {rabbet.float32}, str(case)


def outcome(case: Case):
    """dtypes and values, or the kind of error."""
    try:
        return [(r.dtype, str(r.tolist())) for r in results_of(case.run())]
    except (TypeError, ValueError, NotImplementedError) as error:  # not in this dtype
        return type(error)


def stands_alone(name: str) -> bool:
    """Whether it is more than a name for others, whose policies count, and has cases."""
    info = _C.op_info(name)
    made_of_others = info["kind"] == "composite" and info["has_decomp"] and not info["has_vjp"]
    return not made_of_others and info["kind"] != "random"


@pytest.mark.parametrize("name", [n for n in with_policy("pass") if stands_alone(n)])
def test_pass(name):
    """An operator without a policy gives what it gives outside."""
    for dtype in (rabbet.float32, rabbet.bfloat16):
        for _, case in with_dtypes(name, dtype):
            rabbet.manual_seed(0)
            expected = outcome(case)
            rabbet.manual_seed(0)
            with rabbet.autocast("cpu"):
                assert outcome(case) == expected, str(case)


def gradients(case: Case, leaves: list) -> list:
    results = [r for r in results_of(case.run()) if r.requires_grad]
    total = sum(((r.float() * (i + 1)).sum() for i, r in enumerate(results)), rabbet.zeros(()))
    return list(rabbet.autograd.grad(total, leaves, allow_unused=True))


@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", [n for p in ("low", "fp32", "promote") for n in with_policy(p)])
def test_gradients_have_the_dtype_of_the_leaf(name, low):
    for case in cases(name, rabbet.float32, requires_grad=True):
        leaves = [t for t in floating([*case.args, *case.kwargs.values()]) if t.requires_grad]
        exact = gradients(case, leaves)
        with rabbet.autocast("cpu", LOW[low]):
            got = gradients(case, leaves)
        for leaf, gradient, wanted in zip(leaves, got, exact, strict=True):
            assert (gradient is None) == (wanted is None), str(case)
            if gradient is None:
                continue
            assert gradient.dtype == leaf.dtype == rabbet.float32, str(case)
            error = (gradient - wanted).abs().max().item() if leaf.numel() else 0.0
            size = wanted.abs().max().item() if leaf.numel() else 0.0
            assert error <= 48 * EPSILON[low] * max(size, 1.0), str(case)
