"""Images: resizing, sampling at points, patches, and shuffles between channels and positions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor, ops
from rabbet._functions import dense_format
from rabbet._interpolation import along

from .._accumulate import accumulated
from ._dtypes import INTEGERS, refuse, require_floating
from .convolution import Sizes, pad, sizes_of
from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .resampling import antialias_windows, resize_uint8, source_step

_resample = ops.resample
_grid_sample = ops.grid_sample

# ---- shuffles


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Move channels to positions: (*, C r^2, H, W) to (*, C, H r, W r) (Shi et al. 2016)."""
    _expect_images(input, "pixel_shuffle")
    if upscale_factor <= 0:
        raise RuntimeError(
            f"pixel_shuffle expects a positive upscale_factor, but got {upscale_factor}"
        )
    *batch, channels, height, width = input.shape
    r = upscale_factor
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    n = len(batch)
    split = input.reshape([*batch, channels // (r * r), r, r, height, width])
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    turned = split.permute(order).clone(memory_format=rabbet.contiguous_format)
    return turned.view([*batch, channels // (r * r), height * r, width * r])


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Move positions to channels: (*, C, H r, W r) to (*, C r^2, H, W)."""
    _expect_images(input, "pixel_unshuffle")
    if downscale_factor <= 0:
        raise RuntimeError(
            f"pixel_unshuffle expects a positive downscale_factor, but got {downscale_factor}"
        )
    *batch, channels, height, width = input.shape
    r = downscale_factor
    for what, size, dim in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {what} to be divisible by downscale_factor, "
                f"but input.size({dim})={size} is not divisible by {r}"
            )
    n = len(batch)
    split = input.reshape([*batch, channels, height // r, r, width // r, r])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    turned = split.permute(order).clone(memory_format=rabbet.contiguous_format)
    return turned.view([*batch, channels * r * r, height // r, width // r])


def _expect_images(input: Tensor, name: str) -> None:
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, "
            f"but got input with {input.ndim} dimension(s)"
        )


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave `groups` groups of channels of (N, C, *) (Zhang et al. 2018)."""
    if input.ndim < 3:
        raise RuntimeError(
            "channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    batch, channels, *sizes = input.shape
    if channels % groups:
        raise RuntimeError(
            "Number of channels must be divisible by groups. "
            f"Got {channels} channels and {groups} groups."
        )
    split = input.reshape([batch, groups, channels // groups, *sizes])
    return split.transpose(1, 2).reshape(input.shape)


native_channel_shuffle = channel_shuffle

# ---- patches


def _patch_indices(
    sizes: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    name: str,
    device: Any,
) -> tuple[Tensor, list[int]]:
    """Where in the padded, flattened plane element k of patch l lies, and the padded sizes."""
    for what, values, least in (
        ("kernel_size", kernel, 1),
        ("dilation", dilation, 1),
        ("padding", padding, 0),
        ("stride", stride, 1),
    ):
        if min(values) < least:
            wanted = "greater than zero" if least else "non-negative"
            raise RuntimeError(f"{name}: {what} should be {wanted}, but got {tuple(values)}")
    padded = [n + 2 * p for n, p in zip(sizes, padding, strict=True)]
    index = rabbet.zeros([1, 1, 1, 1], dtype=rabbet.int64, device=device)
    for d in range(2):
        count = (padded[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        if count <= 0:
            raise RuntimeError(
                f"{name}: given an input of {tuple(sizes)}, kernel_size={tuple(kernel)}, "
                f"dilation={tuple(dilation)}, padding={tuple(padding)}, stride={tuple(stride)}, "
                f"calculated {count} patches in direction {d}, but there must be at least one"
            )
        inside = rabbet.arange(kernel[d], device=device) * dilation[d]
        starts = rabbet.arange(count, device=device) * stride[d]
        places = inside.reshape([-1, 1]) + starts
        shape = [1, 1, 1, 1]
        shape[d], shape[d + 2] = kernel[d], count
        index = index + (places * (padded[1] if d == 0 else 1)).reshape(shape)
    return index.reshape([kernel[0] * kernel[1], -1]), padded


def unfold(
    input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """Return the patches of (N, C, H, W) as columns (N, C * kh * kw, L); a batch may be missing."""
    if input.ndim not in (3, 4):
        raise RuntimeError(
            "unfold: expected 3D or 4D (batch mode) tensor, but got input of size: "
            f"{list(input.shape)}"
        )
    refuse("unfold", input, *INTEGERS)
    kernel, dilations, paddings, strides = (
        sizes_of(value, 2, what, "unfold")
        for what, value in (
            ("kernel_size", kernel_size),
            ("dilation", dilation),
            ("padding", padding),
            ("stride", stride),
        )
    )
    single = input.ndim == 3
    images = input.unsqueeze(0) if single else input
    batch, channels = images.shape[:2]
    index, padded = _patch_indices(
        images.shape[2:], kernel, dilations, paddings, strides, "unfold", input.device
    )
    widths = [paddings[1], paddings[1], paddings[0], paddings[0]]
    flat = (pad(images, widths) if any(widths) else images).reshape(
        [batch, channels, padded[0] * padded[1]]
    )
    columns = flat.index_select(2, index.reshape([-1]))
    columns = columns.reshape([batch, channels * index.shape[0], index.shape[1]])
    return columns.squeeze(0) if single else columns


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Add up patches: (N, C * kh * kw, L) to (N, C, H, W), the transpose of `unfold`."""
    if input.ndim not in (2, 3):
        raise RuntimeError(
            "fold: expected 2D or 3D (batch mode) tensor for input, but got input of size: "
            f"{list(input.shape)}"
        )
    refuse("fold", input, *INTEGERS)
    sizes, kernel, dilations, paddings, strides = (
        sizes_of(value, 2, what, "fold")
        for what, value in (
            ("output_size", output_size),
            ("kernel_size", kernel_size),
            ("dilation", dilation),
            ("padding", padding),
            ("stride", stride),
        )
    )
    single = input.ndim == 2
    columns = input.unsqueeze(0) if single else input
    batch, rows, count = columns.shape
    elements = kernel[0] * kernel[1]
    if elements and rows % elements:
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={rows} and kernel_size={tuple(kernel)}."
        )
    index, padded = _patch_indices(
        sizes, kernel, dilations, paddings, strides, "fold", input.device
    )
    if index.shape[1] != count:
        raise RuntimeError(
            f"Given output_size={tuple(sizes)}, kernel_size={tuple(kernel)}, "
            f"dilation={tuple(dilations)}, padding={tuple(paddings)}, stride={tuple(strides)}, "
            f"expected size of input's dimension 2 to match the calculated number of sliding "
            f"blocks {index.shape[1]}, but got input.size(2)={count}."
        )
    channels = rows // elements
    plane = rabbet.zeros(
        [batch, channels, padded[0] * padded[1]], dtype=input.dtype, device=input.device
    )
    plane = plane.index_add(
        2, index.reshape([-1]), columns.reshape([batch, channels, elements * count])
    )
    images = plane.reshape([batch, channels, *padded])
    images = images.narrow(2, paddings[0], sizes[0]).narrow(3, paddings[1], sizes[1])
    return images.squeeze(0) if single else images


# ---- resizing

_LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5}
_AREA = {3: adaptive_avg_pool1d, 4: adaptive_avg_pool2d, 5: adaptive_avg_pool3d}


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize (N, C, L), (N, C, H, W) or (N, C, D, H, W).

    Args:
        input: the values, floating, or uint8 unless the mode is 'linear', 'trilinear' or 'area'
            (the results are then rounded to nearest and clamped to 0..255).
        size: of the result, one int or one per direction.
        scale_factor: in place of `size`, one number or one per direction.
        mode: 'nearest', 'nearest-exact', 'linear', 'bilinear', 'bicubic', 'trilinear' or 'area'.
        align_corners: whether the corners' centres (True) or outer edges lie on each other.
        recompute_scale_factor: compute the scale from the sizes instead of taking it as given.
        antialias: low-pass before shrinking; for 'bilinear' and 'bicubic'.

    Raises:
        NotImplementedError: if `input` has another dtype or number of dimensions.
        ValueError: if the arguments contradict each other.

    Example::

        >>> image = rabbet.tensor([[[[0, 255], [255, 0]]]], dtype=rabbet.uint8)
        >>> F.interpolate(image, (1, 3), mode="bilinear", align_corners=True).tolist()
        [[[[0, 128, 255]]]]
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: "
                "linear | bilinear | bicubic | trilinear"
            )
    elif align_corners is None:
        align_corners = False
    rank = input.ndim - 2
    sizes, scales = _resized(input, size, scale_factor, recompute_scale_factor)
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    if input.ndim not in (3, 4, 5):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported "
            f"(got {input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear "
            f"| area | nearest-exact (got {mode})"
        )
    nearest = mode in ("nearest", "nearest-exact")
    if not nearest and mode != "area":
        wanted = _LINEAR.get(mode, 4 if mode == "bicubic" else None)
        if wanted is None:
            raise NotImplementedError(
                "Input Error: Only 3D, 4D and 5D input Tensors supported "
                f"(got {input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | "
                f"trilinear | area | nearest-exact (got {mode})"
            )
        if wanted != input.ndim:
            raise NotImplementedError(
                f"Got {input.ndim}D input, but {mode} mode needs {wanted}D input"
            )
    whole = input.dtype == rabbet.uint8
    takes_uint8 = mode not in ("linear", "trilinear", "area")
    if not (input.is_floating_point() or (whole and takes_uint8)):
        raise NotImplementedError(
            f"interpolate: mode '{mode}' takes floating tensors"
            f"{' and uint8' if takes_uint8 else ''}, got {input.dtype}"
        )
    if mode == "area":
        return _AREA[input.ndim](input, sizes)
    if min(*sizes, *input.shape[2:]) <= 0:
        raise RuntimeError(
            "Input and output sizes should be greater than 0, "
            f"but got input {tuple(input.shape[2:])} and output {tuple(sizes)}"
        )
    if nearest:
        factors = [
            # PyTorch ignores the given scale for these two sizes.
            None if mode == "nearest" and out in (n, 2 * n) else factor
            for n, out, factor in zip(input.shape[2:], sizes, scales, strict=True)
        ]
        return _resample(input, sizes, _steps(input, sizes, factors, False), mode, False)
    cubic = mode == "bicubic"
    if not whole and not antialias:
        steps = _steps(input, sizes, scales, bool(align_corners))
        return _resample(input, sizes, steps, "cubic" if cubic else "linear", bool(align_corners))
    # Weights of half precision would be too coarse.
    half = input.dtype in (rabbet.float16, rabbet.bfloat16)
    result = input.float() if half else input
    for d in reversed(range(rank)):
        args = (result, d + 2, sizes[d], scales[d], bool(align_corners), cubic)
        if not whole:
            result = _filtered(*args)
        elif result.shape[d + 2] != sizes[d]:
            result = resize_uint8(*args, antialias)
    return result.to(input.dtype).contiguous(memory_format=dense_format(input))


def _steps(
    input: Tensor, sizes: list[int], scales: list[float | None], align_corners: bool
) -> list[float]:
    """Distances in the input between neighbours of the result, for each direction."""
    return [
        source_step(n, out, scale, align_corners)
        for n, out, scale in zip(input.shape[2:], sizes, scales, strict=True)
    ]


def _resized(
    input: Tensor, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """The result's sizes and, per direction, the scale that was given."""
    rank = input.ndim - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        if isinstance(size, (list, tuple)):
            if len(size) != rank:
                raise ValueError(
                    "Input and output must have the same number of spatial dimensions, but got "
                    f"input with spatial dimensions of {list(input.shape[2:])} and output size of "
                    f"{size}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
                    "output size in (o1, o2, ...,oK) format."
                )
            sizes = list(size)
        else:
            sizes = [size] * rank
        for value in sizes:
            if not hasattr(value, "__index__"):
                raise TypeError(
                    f"expected size to be one of int or Tuple[int] or Tuple[int, int] or "
                    f"Tuple[int, int, int], but got size with types {[type(s) for s in sizes]}"
                )
        return [int(value) for value in sizes], [None] * rank
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if isinstance(scale_factor, (list, tuple)):
        if len(scale_factor) != rank:
            raise ValueError(
                "Input and scale_factor must have the same number of spatial dimensions, but got "
                f"input with spatial dimensions of {list(input.shape[2:])} and scale_factor of "
                f"shape {scale_factor}. Please provide input tensor in (N, C, d1, d2, ...,dK) "
                "format and scale_factor in (s1, s2, ...,sK) format."
            )
        factors = [float(factor) for factor in scale_factor]
    else:
        factors = [float(scale_factor)] * rank
    sizes = [math.floor(n * f) for n, f in zip(input.shape[2:], factors, strict=True)]
    return sizes, [None if recompute else f for f in factors]


def _filtered(
    x: Tensor, dim: int, out: int, scale: float | None, align_corners: bool, cubic: bool
) -> Tensor:
    """Interpolation whose filter widens with the step, as one matrix along `dim`."""
    n = x.shape[dim]
    indices, weights = antialias_windows(n, out, scale, align_corners, cubic)
    matrix = rabbet.zeros([out, n], dtype=rabbet.float64, device="cpu")
    matrix = matrix.scatter_add(1, indices, weights)
    matrix = matrix.to(dtype=x.dtype, device=x.device)
    return (x.transpose(dim, -1) @ matrix.transpose(0, 1)).transpose(dim, -1)


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Another name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode='nearest'."""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode='bilinear' and align_corners=True."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# ---- sampling


@accumulated
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return the points that affine maps `theta` give to the positions of an output.

    Args:
        theta: (N, 2, 3) or (N, 3, 4).
        size: of the output, (N, C, H, W) or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the corners' centres or their outer edges.
    """
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    rank = len(size) - 2
    if rank not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {tuple(size)}."
        )
    if theta.ndim != 3 or tuple(theta.shape[-2:]) != (rank, rank + 1):
        raise ValueError(
            f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size "
            f"{tuple(size)}. Got {tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    spatial = list(size[2:])
    if align_corners is None:
        _warn_of_corners("affine_grid")
    elif align_corners and min(spatial) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. This is not an intended use case of affine_grid.",
            stacklevel=2,
        )
    columns = []
    for d in reversed(range(rank)):
        n = spatial[d]
        line = rabbet.linspace(-1, 1, n, dtype=theta.dtype, device=theta.device)
        if n <= 1:
            line = rabbet.zeros([n], dtype=theta.dtype, device=theta.device)
        if not align_corners:
            line = line * ((n - 1) / n)
        columns.append(along(line, d, rank).expand(spatial))
    columns.append(rabbet.ones(spatial, dtype=theta.dtype, device=theta.device))
    base = rabbet.stack(columns, -1).reshape([1, -1, rank + 1])
    return (base @ theta.transpose(1, 2)).reshape([size[0], *spatial, rank])


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Return the values of `input` at the points `grid` (Jaderberg et al. 2015).

    Args:
        input: (N, C, H, W) or (N, C, D, H, W).
        grid: (N, Ho, Wo, 2) or (N, Do, Ho, Wo, 3), x first; -1 and 1 are the ends of `input`.
        mode: 'bilinear', 'nearest' or, of planes, 'bicubic'.
        padding_mode: what lies outside: 'zeros', the 'border', or a 'reflection'.
        align_corners: whether -1 and 1 are the corners' centres or their outer edges.
    """
    for what, value, known in (
        ("mode", mode, ("bilinear", "nearest", "bicubic")),
        ("padding_mode", padding_mode, ("zeros", "border", "reflection")),
    ):
        if value not in known:
            listed = ", ".join(f"'{name}'" for name in known[:-1])
            raise ValueError(
                f"nn.functional.grid_sample(): expected {what} to be {listed} or '{known[-1]}', "
                f"but got: '{value}'"
            )
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, "
            f"but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != rank:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {rank} in last dimension, "
            f"but got grid with sizes {list(grid.shape)}"
        )
    require_floating("grid_sample", input, grid)
    if min(input.shape[2:]) <= 0:
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, "
            f"but input has sizes {list(input.shape)}"
        )
    if mode == "bicubic" and rank == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if align_corners is None:
        _warn_of_corners("grid_sample")
    return _grid_sample(input, grid, mode, padding_mode, bool(align_corners))


def _warn_of_corners(name: str) -> None:
    warnings.warn(
        "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
        f"1.3.0. Please specify align_corners=True if the old behavior is desired ({name}).",
        stacklevel=3,
    )
