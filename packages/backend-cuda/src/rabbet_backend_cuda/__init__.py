"""CUDA devices. On the way of an operator nothing here is imported: core reads `rabbet_plugin.toml` and loads the library."""

from typing import Any

# The largest error of float32, in units in the last place beside the correctly rounded result, of each function that
# kernels/elementwise.cuh calls rb_NAME: the CUDA C++ Programming Guide, "Mathematical Functions", table of single
# precision, for code that is compiled without fast math. 0 is IEEE 754's rounding, or no rounding at all. None: the
# result jumps where a quotient is near an integer, which no number of units bounds.
FLOAT32_ULPS: dict[str, int | None] = {
    # arithmetic, and what only chooses, cuts or compares
    "add": 0, "sub": 0, "mul": 0, "div": 0, "sqrt": 0, "fmod": 0, "remainder": 0,
    "neg": 0, "abs": 0, "sgn": 0, "relu": 0, "relu_vjp": 0, "clamp": 0, "maximum": 0, "minimum": 0,
    "floor": 0, "ceil": 0, "trunc": 0, "round": 0, "copysign": 0, "real": 0, "imag": 0, "conj": 0,
    "isnan": 0, "isinf": 0, "isfinite": 0, "logical_not": 0,
    "eq": 0, "ne": 0, "lt": 0, "le": 0, "gt": 0, "ge": 0,
    "div_floor": None, "div_trunc": None,
    # functions
    "exp": 2, "expm1": 1, "log": 1, "log2": 1, "log10": 2, "log1p": 1, "pow": 4,
    "sin": 2, "cos": 2, "tan": 4, "asin": 2, "acos": 2, "atan": 2, "atan2": 3,
    "sinh": 3, "cosh": 2, "tanh": 2, "erf": 2, "erfc": 4,
}  # fmt: skip


def rabbet_conformance_params(level: str) -> dict[str, Any]:
    """How exact the functions are."""
    return {"ulps": {"float32": FLOAT32_ULPS}} if level == "L2" else {}
