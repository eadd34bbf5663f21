"""What gradcheck says when derivatives differ."""

from rabbet import Tensor


class GradcheckError(RuntimeError):
    """The analytical and the numerical derivative differ, or backward does not do what it must."""


NOT_REENTRANT = (
    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different "
    "values, although analytical gradient matches numerical gradient."
    "The tolerance for nondeterminism was {}."
)
FAST_ONLY = """
Fast gradcheck failed but element-wise differences are small. This means that the
test might've passed in slow_mode! Pass `fast_mode=False` to see.
"""


def mismatch(
    analytical: Tensor,
    numerical: Tensor,
    output: int,
    checked: int,
    part: str | None,
    forward: bool,
) -> str:
    """That a Jacobian, or a product with it, is wrong. `part`: of what is complex, which part was looked at."""
    kind = "inputs" if forward else "outputs"
    prefix = "" if part is None else f"While considering the {part} of complex {kind} only, "
    mode = "computed with forward mode " if forward else ""
    return (
        f"{prefix}Jacobian {mode}mismatch for output {output} with respect to input {checked},\n"
        f"numerical:{numerical}\nanalytical:{analytical}\n"
    )


def slow_mode_report(numerical: Tensor, analytical: Tensor, passes: bool) -> str:
    """The Jacobians, for an error of fast mode, which knows products with them only."""
    worst = (numerical - analytical).abs().max()
    text = (
        "\nThe above quantities relating the numerical and analytical jacobians are computed \nin fast mode. Below, we "
        f"recompute numerical and analytical jacobians in slow mode:\n\nNumerical:\n {numerical}\n"
        f"Analytical:\n{analytical}\n\nThe max per-element difference (slow mode) is: {worst}.\n"
    )
    return text + FAST_ONLY if passes else text
