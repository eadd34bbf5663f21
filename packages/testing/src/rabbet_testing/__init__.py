"""The conformance kit: cases from the op records, and comparisons."""

from .cases import Case, cases, differentiable_ops, differentiable_part, op_names
from .compare import assert_close

__all__ = ["Case", "assert_close", "cases", "differentiable_ops", "differentiable_part", "op_names"]
