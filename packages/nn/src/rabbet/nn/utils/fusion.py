"""Convolutions and linear layers that take in the batch normalisation behind them."""

from __future__ import annotations

import copy
from typing import Any

import rabbet
from rabbet import Tensor

from ..parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a copy of `conv` that computes `bn(conv(x))`; both in evaluation mode."""
    _expect_evaluation("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a convolution that includes the normalisation."""
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    with rabbet.no_grad():
        scale = rabbet.rsqrt(bn_rv + bn_eps)
        scale = scale if bn_w is None else scale * bn_w
        bias = -bn_rm if conv_b is None else conv_b - bn_rm
        bias = bias * scale if bn_b is None else bias * scale + bn_b
        weight = conv_w * scale.reshape(shape)
    trained = conv_w.requires_grad
    return (
        Parameter(weight.to(conv_w.dtype), trained),
        Parameter(bias.to(conv_w.dtype), trained if conv_b is None else conv_b.requires_grad),
    )


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a copy of `linear` that computes `bn(linear(x))`; both in evaluation mode."""
    _expect_evaluation("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got {linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a linear layer that includes the normalisation."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _expect_evaluation(name: str, layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError(f"{name}: fusion is only for modules in evaluation mode")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"{name}: expected running statistics in the normalisation, got None")
