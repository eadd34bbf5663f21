"""Products of matrices of few bits whose scales stand apart."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, TypeVar

import rabbet
from rabbet import Tensor

T = TypeVar("T")


class ScalingType(enum.Enum):
    """What one scale belongs to."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.Enum):
    """The order in which scales lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | list[Tensor],
    scale_recipe_a: ScalingType | list[ScalingType],
    scale_b: Tensor | list[Tensor],
    scale_recipe_b: ScalingType | list[ScalingType],
    swizzle_a: SwizzleType | list[SwizzleType] | None = None,
    swizzle_b: SwizzleType | list[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: Any = rabbet.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """mat_a @ mat_b times the scales of both, plus `bias`.

    Args:
        mat_a: (M, K), in float8_e4m3fn or float8_e5m2.
        mat_b: (K, N), in float8_e4m3fn or float8_e5m2; devices multiply fastest where its columns lie together.
        scale_a, scale_b: in float32; one number each, or (M, 1) and (1, N).
        scale_recipe_a, scale_recipe_b: TensorWise or RowWise, the same for both.
        swizzle_a, swizzle_b: NO_SWIZZLE or None.
        bias: (N), of any floating dtype.
        output_dtype: of the result; None: that of `mat_a`.
        contraction_dim: not used.
        use_fast_accum: whether tensor cores may keep sums in fewer bits.

    Returns:
        (M, N).

    Raises:
        ValueError: for other scales, dtypes and shapes.
    """
    return rabbet.ops._scaled_mm_v2(
        mat_a,
        mat_b,
        _listed(scale_a),
        [kind.value for kind in _listed(scale_recipe_a)],
        [kind.value for kind in _listed(swizzle_a)],
        _listed(scale_b),
        [kind.value for kind in _listed(scale_recipe_b)],
        [kind.value for kind in _listed(swizzle_b)],
        bias,
        output_dtype,
        list(contraction_dim),
        use_fast_accum,
    )


def _listed(given: T | list[T] | tuple[T, ...] | None) -> list[T]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]
