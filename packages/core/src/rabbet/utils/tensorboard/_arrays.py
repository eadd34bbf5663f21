"""Arguments as NumPy arrays, and pictures as arrays of height, width and channels."""

from __future__ import annotations

import importlib
import io
import math
from typing import Any

import numpy as np

from ..._C import Tensor

__all__ = ["as_array", "as_image", "as_number", "encode_gif", "encode_png", "grid", "require"]


def require(function: str, package: str, module: str) -> Any:
    """Import a module of an optional package.

    Raises:
        ImportError: naming the package, if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{function} needs the package {package!r}: pip install {package}"
        ) from error


def as_array(value: Any) -> np.ndarray:
    """A tensor, array, number or sequence as an array; floating-point numbers of at least 32 bits."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() and value.itemsize < 4 else value
        return value.resolve_conj().resolve_neg().numpy()
    return np.asarray(value)


def as_number(function: str, value: Any) -> float:
    """One number.

    Raises:
        ValueError: if there are more, or none.
    """
    array = as_array(value)
    if array.size != 1 or array.dtype.kind not in "buif":
        raise ValueError(
            f"{function}: expected one number, got shape {array.shape} of {array.dtype}"
        )
    return float(array.reshape(()))


def grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Arrange (N, H, W, C) as one picture, row by row; cells that are left over are black."""
    n, height, width, channels = images.shape
    rows = math.ceil(n / columns)
    cells = np.zeros((rows * columns, height, width, channels), images.dtype)
    cells[:n] = images
    cells = cells.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return cells.reshape(rows * height, columns * width, channels)


def as_image(function: str, tensor: Any, dataformats: str) -> np.ndarray:
    """Pictures as bytes of shape (H, W, C) with 3 or 4 channels; several are arranged in rows of 8.

    Raises:
        ValueError: if `dataformats` does not describe the shape, or there is another number of channels than 1, 3 or 4.
    """
    array, axes = as_array(tensor), dataformats.upper()
    if (
        len(set(axes)) != len(axes)
        or array.ndim != len(axes)
        or not set("HW") <= set(axes) <= set("NCHW")
    ):
        raise ValueError(
            f"{function}: dataformats={dataformats!r} does not describe shape {array.shape}"
        )
    for axis in "CN":
        if axis not in axes:
            array, axes = array[..., None], axes + axis
    array = array.transpose([axes.index(axis) for axis in "NHWC"])
    if array.shape[3] not in (1, 3, 4) or not array.size:
        raise ValueError(
            f"{function}: expected pictures of 1, 3 or 4 channels, got shape {tuple(as_array(tensor).shape)} as "
            f"{dataformats!r}"
        )
    if array.dtype != np.uint8:
        array = (array * 255.0).clip(0, 255).astype(np.uint8)
    if array.shape[3] == 1:
        array = array.repeat(3, axis=3)
    return grid(array, min(len(array), 8))


def encode_png(function: str, picture: np.ndarray) -> bytes:
    """The PNG file of a picture of bytes."""
    file = io.BytesIO()
    require(function, "pillow", "PIL.Image").fromarray(picture).save(file, format="PNG")
    return file.getvalue()


def encode_gif(function: str, frames: list[np.ndarray], fps: float) -> bytes:
    """The animated GIF file of pictures of bytes, repeated without end."""
    pictures = [require(function, "pillow", "PIL.Image").fromarray(frame) for frame in frames]
    file = io.BytesIO()
    pictures[0].save(
        file, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / fps), loop=0,
    )  # fmt: skip
    return file.getvalue()
