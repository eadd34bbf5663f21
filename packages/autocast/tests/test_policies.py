"""The records have the policies of PyTorch; that operators obey them is L3 of the conformance kit."""

import pytest
from rabbet import _C
from rabbet_testing import op_names

# PyTorch's lists, as torch._C._dispatch_has_kernel_for_dispatch_key gives them for AutocastCPU and
# AutocastCUDA (2.13), under the names that the operators have here; all others are left alone.
TORCH = {
    "low": {
        "addbmm", "addmm", "addmv", "addr", "attention", "baddbmm", "bmm", "convolution", "convolution_dw", "convolution_dx", "einsum", "linear",
        "linear_activation", "matmul", "mm", "mv", "prelu", "recurrent_layer", "recurrent_step", "scaled_dot_product_attention",
    },
    "fp32": {
        "absolute_error", "absolute_loss", "acos", "asin", "binary_error", "binary_loss", "cdist", "cosh", "cross_entropy_loss", "cross_entropy_steps",
        "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "group_norm", "huber_error", "huber_loss", "layer_norm", "log", "log10", "log1p",
        "log2", "log_softmax", "logistic_error", "logistic_loss", "logsumexp", "nanquantile", "nanquantile.number", "nll_loss", "nll_loss_steps",
        "polar", "pow", "prod", "prod.dim", "quantile", "quantile.number", "reciprocal", "renorm", "rms_norm", "rsqrt", "sinh", "smooth_l1_error", "smooth_l1_loss", "softmax", "softplus",
        "squared_error", "squared_loss", "sum",
        "tan", "trace", "view_as_complex",
        "_linalg_cholesky", "_linalg_eig", "_linalg_eigh", "_linalg_householder_product", "_linalg_lstsq", "_linalg_lstsq_solution", "_linalg_qr",
        "_linalg_solve", "_linalg_svd", "_ormqr", "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "inverse", "linalg_cholesky",
        "linalg_cholesky_ex", "linalg_cond", "linalg_cond.p_str", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh",
        "linalg_householder_product", "linalg_inv", "linalg_inv_ex", "linalg_lstsq", "linalg_matrix_rank", "linalg_matrix_rank.tol",
        "linalg_pinv.rcond", "linalg_qr", "linalg_solve", "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "lu_solve",
        "orgqr", "ormqr", "pinverse", "qr", "svd", "triangular_solve",
    },
    "promote": {"addcdiv", "addcmul", "atan2", "cat", "cross", "dot", "index_copy", "index_put", "scatter_add", "stack", "vdot"},
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
        "absolute_error": "l1_loss", "absolute_loss": "l1_loss", "attention": "scaled_dot_product_attention", "binary_error": "binary_cross_entropy", "binary_loss": "binary_cross_entropy",
        "convolution": "conv2d", "convolution_dw": "conv2d", "convolution_dx": "conv_transpose2d.input",
        "cross_entropy_loss": "cross_entropy_loss", "cross_entropy_steps": "cross_entropy_loss",
        "huber_error": "huber_loss", "linear_activation": "linear", "log_softmax": "log_softmax.int", "logistic_error": "binary_cross_entropy_with_logits",
        "logistic_loss": "binary_cross_entropy_with_logits",
        "nanquantile.number": "nanquantile.scalar", "nll_loss_steps": "nll_loss", "pow": "pow.Tensor_Tensor", "prod.dim": "prod.dim_int", "quantile.number": "quantile.scalar",
        "_linalg_cholesky": "linalg_cholesky", "_linalg_eig": "linalg_eig", "_linalg_eigh": "linalg_eigh", "_linalg_householder_product": "orgqr",
        "_linalg_lstsq": "linalg_lstsq", "_linalg_lstsq_solution": "linalg_lstsq", "_linalg_qr": "qr", "_linalg_solve": "linalg_solve",
        "_linalg_svd": "svd", "_ormqr": "ormqr", "linalg_matrix_rank.tol": "linalg_matrix_rank", "linalg_pinv.rcond": "pinverse",
        "recurrent_layer": "mkldnn_rnn_layer", "recurrent_step": "lstm_cell", "smooth_l1_error": "smooth_l1_loss",
        "softmax": "softmax.int", "squared_error": "mse_loss", "squared_loss": "mse_loss",
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
