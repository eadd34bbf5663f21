"""SummaryWriter: scalars, histograms, images and text as TensorBoard's event files."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ..._C import Tensor

__all__ = ["SummaryWriter"]


def _array(value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() and value.itemsize < 4 else value
        return value.numpy()
    return np.asarray(value)


def _scalar(function: str, value: Any) -> float:
    array = _array(value)
    if array.size != 1:
        raise ValueError(f"{function}: expected one number, got shape {array.shape}")
    return float(array.reshape(()))


def _histogram(values: Any, bins: Any) -> HistogramProto:
    numbers = _array(values).reshape(-1).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if numbers.size == 0:
        raise ValueError("add_histogram: there is no finite number in the values")
    counts, edges = np.histogram(numbers, bins="auto" if bins == "tensorflow" else bins)
    return HistogramProto(
        min=numbers.min(), max=numbers.max(), num=numbers.size, sum=numbers.sum(),
        sum_squares=(numbers**2).sum(), bucket_limit=edges[1:].tolist(), bucket=counts.tolist(),
    )  # fmt: skip


def _image(tensor: Any, dataformats: str) -> Summary.Image:
    import io

    from PIL import Image

    array = _array(tensor)
    if sorted(dataformats.upper()) != sorted(set(dataformats.upper())) or array.ndim != len(
        dataformats
    ):
        raise ValueError(
            f"add_image: dataformats={dataformats!r} does not describe shape {array.shape}"
        )
    axes = dataformats.upper()
    if "C" not in axes:
        array, axes = array[..., None], f"{axes}C"
    array = array.transpose([axes.index(axis) for axis in "HWC"])
    if array.dtype != np.uint8:
        array = (array * 255.0).clip(0, 255).astype(np.uint8)
    if array.shape[2] == 1:
        array = array.repeat(3, axis=2)
    file = io.BytesIO()
    Image.fromarray(array).save(file, format="PNG")
    return Summary.Image(
        height=array.shape[0], width=array.shape[1], colorspace=array.shape[2],
        encoded_image_string=file.getvalue(),
    )  # fmt: skip


class SummaryWriter:
    """Writes event files into a folder.

    Args:
        log_dir: the folder; by default one in `runs`, named by date and host.
        comment: an end of that name.
        purge_step: drop what was logged from this step on by a run that failed.
        max_queue, flush_secs: how much waits in memory, and how long.
        filename_suffix: an end of the files' names.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            started = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{started}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self.purge_step = purge_step
        self._writer = EventFileWriter(self.log_dir, max_queue, flush_secs, filename_suffix)
        if purge_step is not None:
            self._writer.add_event(
                Event(wall_time=time.time(), step=purge_step, file_version="brain.Event:2")
            )

    def _add(self, value: Summary.Value, step: int | None, walltime: float | None) -> None:
        event = Event(
            wall_time=time.time() if walltime is None else walltime, summary=Summary(value=[value])
        )
        if step is not None:
            event.step = int(step)
        self._writer.add_event(event)

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number at a step."""
        number = _scalar("add_scalar", scalar_value)
        self._add(Summary.Value(tag=tag, simple_value=number), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers at a step, shown together."""
        for tag, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{tag}", value, global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How numbers are distributed at a step."""
        self._add(Summary.Value(tag=tag, histo=_histogram(values, bins)), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: uint8, or floats from 0 to 1; `dataformats` names its dimensions."""
        self._add(
            Summary.Value(tag=tag, image=_image(img_tensor, dataformats)), global_step, walltime
        )

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A text in Markdown."""
        metadata = SummaryMetadata(
            plugin_data=SummaryMetadata.PluginData(plugin_name="text", content=b"")
        )
        tensor = TensorProto(
            dtype="DT_STRING",
            string_val=[text_string.encode("utf-8")],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        self._add(
            Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor),
            global_step,
            walltime,
        )

    def flush(self) -> None:
        """Write what waits."""
        self._writer.flush()

    def close(self) -> None:
        """Write what waits and close the file."""
        self._writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
