"""Linear maps and look-ups."""

from __future__ import annotations

import math
from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from .lazy import LazyModuleMixin
from .module import Module


class Identity(Module):
    """Return the input; takes and ignores any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """Map `(*, in_features)` to `(*, out_features)` by `input @ weight.T + bias`.

    Args:
        in_features: last size of the input.
        out_features: last size of the output.
        bias: whether there is a bias.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        shape = [out_features, in_features]
        self.weight = Parameter(rabbet.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias",
            Parameter(rabbet.empty([out_features], device=device, dtype=dtype)) if bias else None,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill weight and bias with values uniform on +-1 / sqrt(in_features)."""
        init_weight_and_bias(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        # Straight from the dict: attribute access on a Module costs about 0.3 us.
        own = self._parameters
        try:
            weight, bias = own["weight"], own["bias"]
        except KeyError:  # replaced by an ordinary attribute
            weight, bias = self.weight, self.bias
        return F.linear(input, weight, bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def init_weight_and_bias(weight: Tensor, bias: Tensor | None) -> None:
    """Start a layer's weight and bias as PyTorch does: both uniform on +-1 / sqrt(fan_in)."""
    fan_in = math.prod(weight.shape[1:])
    if 0 not in weight.shape:
        init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None and bias.numel():
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
        init.uniform_(bias, -bound, bound)


class Bilinear(Module):
    """Map `(*, in1)` and `(*, in2)` to `(*, out)` by `input1 @ weight[k] @ input2 + bias[k]`."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = [out_features, in1_features, in2_features]
        self.weight = Parameter(rabbet.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias",
            Parameter(rabbet.empty([out_features], device=device, dtype=dtype)) if bias else None,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill weight and bias with values uniform on +-1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.weight.shape[1])
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` that takes `in_features` from its first input."""

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Fill weight and bias, once they have a shape."""
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Take `in_features` from the last size of `input`."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_features,))  # type: ignore[attr-defined]
            self.reset_parameters()
        if self.in_features == 0:  # the weight was loaded
            self.in_features = self.weight.shape[-1]


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` that quantisation leaves alone: the output projection of attention."""
