"""The files that TensorBoard's projector reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from ._arrays import as_array, as_image, encode_png, grid

__all__ = ["write_embedding"]


def _write_rows(path: Path, rows: list[list[Any]]) -> None:
    lines = ("\t".join(str(x).replace("\t", " ").replace("\n", " ") for x in row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _metadata_rows(
    metadata: Sequence[Any], header: Sequence[str] | None, n: int
) -> list[list[Any]]:
    if len(metadata) != n:
        raise ValueError(f"add_embedding: expected {n} labels in metadata, got {len(metadata)}")
    if not header:
        return [[x] for x in metadata]
    for row in metadata:
        if len(row) != len(header):
            raise ValueError(
                f"add_embedding: expected {len(header)} columns in metadata, as in metadata_header, got {len(row)}"
            )
    return [list(header), *(list(row) for row in metadata)]


def _sprite(images: Any, n: int) -> np.ndarray:
    array = as_array(images)
    if array.ndim != 4 or len(array) != n or array.shape[2] != array.shape[3]:
        raise ValueError(
            f"add_embedding: expected label_img of shape ({n}, C, S, S), got {array.shape}"
        )
    cells = np.stack([as_image("add_embedding", one, "CHW") for one in array])
    side = math.ceil(math.sqrt(n))
    found = grid(cells, side)
    whole = np.zeros((side * cells.shape[1], *found.shape[1:]), np.uint8)
    whole[: len(found)] = found
    return whole


def write_embedding(
    folder: Path, name: str, path: str, mat: Any, metadata: Any, label_img: Any, header: Any
) -> None:
    """Write the points, their labels and pictures below `folder`, and name them in the projector's configuration."""
    points = as_array(mat)
    if points.ndim != 2:
        raise ValueError(f"add_embedding: expected mat of shape (N, D), got {points.shape}")
    n = len(points)
    labels = None if metadata is None else _metadata_rows(metadata, header, n)
    sprite = None if label_img is None else _sprite(label_img, n)
    config = ProjectorConfig()
    config_file = folder / "projector_config.pbtxt"
    if config_file.exists():
        text_format.Parse(config_file.read_text(encoding="utf-8"), config)
    found = next((e for e in config.embeddings if e.tensor_name == name), None)
    entry = config.embeddings.add() if found is None else found
    entry.Clear()
    entry.tensor_name, entry.tensor_path = name, f"{path}/tensors.tsv"
    (folder / path).mkdir(parents=True, exist_ok=True)
    _write_rows(folder / path / "tensors.tsv", points.tolist())
    if labels is not None:
        _write_rows(folder / path / "metadata.tsv", labels)
        entry.metadata_path = f"{path}/metadata.tsv"
    if sprite is not None:
        (folder / path / "sprite.png").write_bytes(encode_png("add_embedding", sprite))
        entry.sprite.image_path = f"{path}/sprite.png"
        size = as_array(label_img).shape
        entry.sprite.single_image_dim.extend([size[3], size[2]])
    config_file.write_text(text_format.MessageToString(config), encoding="utf-8")
