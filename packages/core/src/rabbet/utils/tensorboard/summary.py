"""TensorBoard's summaries of numbers, histograms, pictures, sounds, texts, curves and meshes."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

from ._arrays import as_array, as_image, as_number, encode_gif, encode_png, require

__all__ = [
    "audio",
    "custom_scalars",
    "histogram",
    "histogram_raw",
    "image",
    "image_boxes",
    "mesh",
    "pr_curve",
    "pr_curve_raw",
    "scalar",
    "tensor_proto",
    "text",
    "video",
]

_TINY = 1e-7  # the least denominator of a rate
_MAX_THRESHOLDS = 127  # that TensorBoard shows


def _metadata(plugin: str, content: bytes = b"") -> SummaryMetadata:
    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return SummaryMetadata(plugin_data=data)


def _tensor(array: np.ndarray) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in array.shape])
    values = array.reshape(-1)
    if array.dtype == np.float64:
        return TensorProto(dtype="DT_DOUBLE", double_val=values, tensor_shape=shape)
    if array.dtype.kind == "f":
        return TensorProto(dtype="DT_FLOAT", float_val=values, tensor_shape=shape)
    if array.dtype == np.bool_:
        return TensorProto(dtype="DT_BOOL", bool_val=values, tensor_shape=shape)
    if array.dtype == np.int64:
        return TensorProto(dtype="DT_INT64", int64_val=values, tensor_shape=shape)
    kind = {"int32": "DT_INT32", "int16": "DT_INT16", "int8": "DT_INT8", "uint8": "DT_UINT8"}
    if array.dtype.name not in kind:
        raise ValueError(
            f"add_tensor: expected numbers or booleans of up to 64 bits, got {array.dtype}"
        )
    return TensorProto(dtype=kind[array.dtype.name], int_val=values, tensor_shape=shape)


def _strings(strings: Sequence[bytes], shape: Sequence[int]) -> TensorProto:
    dims = [TensorShapeProto.Dim(size=n) for n in shape]
    return TensorProto(dtype="DT_STRING", string_val=strings, tensor_shape=TensorShapeProto(dim=dims))  # fmt: skip


def _one(tag: str, **content: Any) -> Summary:
    return Summary(value=[Summary.Value(tag=tag, **content)])


def scalar(
    tag: str, value: Any, new_style: bool = False, double_precision: bool = False
) -> Summary:
    """One number; of the new style as a tensor, in double precision if that is asked for."""
    number = as_number("add_scalar", value)
    if not new_style:
        return _one(tag, simple_value=number)
    array = np.asarray(number, np.float64 if double_precision else np.float32)
    return _one(tag, tensor=_tensor(array), metadata=_metadata("scalars"))


def tensor_proto(tag: str, tensor: Any) -> Summary:
    """A whole tensor."""
    return _one(tag, tensor=_tensor(as_array(tensor)), metadata=_metadata("tensor"))


def _default_edges() -> np.ndarray:
    """Edges in steps of 10 % from 1e-12 to 1e20, for both signs."""
    positive = [1e-12]
    while positive[-1] < 1e20:
        positive.append(positive[-1] * 1.1)
    return np.concatenate([-np.array(positive[::-1]), [0.0], positive])


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Summary:
    """How finite numbers are distributed.

    Args:
        bins: 'tensorflow', or what `numpy.histogram` takes.
        max_bins: join neighbours until there are at most so many.
    """
    numbers = as_array(values).reshape(-1).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if numbers.size == 0:
        raise ValueError("add_histogram: there is no finite number in the values")
    if max_bins is not None and max_bins < 1:
        raise ValueError(f"add_histogram: max_bins must be positive, got {max_bins}")
    counts, edges = np.histogram(numbers, _default_edges() if bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        step = -(-len(counts) // max_bins)
        counts = np.add.reduceat(counts, range(0, len(counts), step))
        edges = np.append(edges[:-1:step], edges[-1])
    used = np.flatnonzero(counts)
    if used.size == 0:
        raise ValueError("add_histogram: no value is in one of the bins")
    first, last = used[0], used[-1] + 1
    return histogram_raw(
        tag, numbers.min(), numbers.max(), numbers.size, numbers.sum(), (numbers**2).sum(),
        edges[first : last + 1].tolist(), [0, *counts[first:last].tolist()],
    )  # fmt: skip


def histogram_raw(
    tag: str,
    min: float,
    max: float,
    num: float,
    sum: float,
    sum_squares: float,
    bucket_limits: Any,
    bucket_counts: Any,
) -> Summary:
    """A histogram that the caller counted: `bucket_limits` are upper limits."""
    limits, counts = as_array(bucket_limits).tolist(), as_array(bucket_counts).tolist()
    if len(limits) != len(counts):
        raise ValueError(
            "add_histogram_raw: expected as many bucket_limits as bucket_counts, got "
            f"{len(limits)} and {len(counts)}"
        )
    histo = HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=limits, bucket=counts
    )  # fmt: skip
    return _one(tag, histo=histo)


def _picture(tag: str, picture: np.ndarray, encoded: bytes) -> Summary:
    height, width, channels = picture.shape
    found = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encoded)  # fmt: skip
    return _one(tag, image=found)


def image(function: str, tag: str, tensor: Any, dataformats: str) -> Summary:
    """A picture, or several in a grid."""
    picture = as_image(function, tensor, dataformats)
    return _picture(tag, picture, encode_png(function, picture))


def image_boxes(
    tag: str,
    tensor: Any,
    boxes: Any,
    rescale: float = 1,
    dataformats: str = "CHW",
    labels: Sequence[str] | None = None,
) -> Summary:
    """A picture with rectangles: `boxes` has rows of left, top, right and bottom."""
    function = "add_image_with_boxes"
    corners = as_array(boxes)
    if corners.ndim != 2 or corners.shape[1] != 4:
        raise ValueError(f"{function}: expected boxes of shape (N, 4), got {corners.shape}")
    labels = [labels] if isinstance(labels, str) else labels
    if labels is not None and len(labels) != len(corners):
        raise ValueError(f"{function}: expected {len(corners)} labels, got {len(labels)}")
    drawn = require(function, "pillow", "PIL.Image").fromarray(as_image(function, tensor, dataformats))  # fmt: skip
    pen = require(function, "pillow", "PIL.ImageDraw").Draw(drawn)
    for i, (left, top, right, bottom) in enumerate(corners.tolist()):
        pen.rectangle([(left, top), (right, bottom)], outline="red", width=2)
        if labels is not None:
            pen.rectangle(pen.textbbox((left, top), labels[i]), fill="red")
            pen.text((left, top), labels[i], fill="black")
    size = int(drawn.width * rescale), int(drawn.height * rescale)
    picture = np.asarray(drawn.resize(size))
    return _picture(tag, picture, encode_png(function, picture))


def video(tag: str, tensor: Any, fps: float = 4) -> Summary:
    """An animated GIF of (N, T, C, H, W); the N films are arranged in a grid."""
    array = as_array(tensor)
    if array.ndim != 5 or not array.size:
        raise ValueError(f"add_video: expected shape (N, T, C, H, W), got {array.shape}")
    if not fps > 0:
        raise ValueError(f"add_video: fps must be positive, got {fps}")
    frames = [as_image("add_video", array[:, t], "NCHW") for t in range(array.shape[1])]
    return _picture(tag, frames[0], encode_gif("add_video", frames, fps))


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Summary:
    """A sound of one channel as a WAV file of 16 bits; numbers beyond -1 and 1 are clipped."""
    samples = as_array(tensor)
    if samples.ndim == 2 and samples.shape[0] == 1:
        samples = samples[0]
    if samples.ndim != 1:
        raise ValueError(f"add_audio: expected shape (1, L) or (L), got {as_array(tensor).shape}")
    data = (samples.astype(np.float64).clip(-1, 1) * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(data.tobytes())
    sound = Summary.Audio(
        sample_rate=sample_rate, num_channels=1, length_frames=len(samples),
        encoded_audio_string=file.getvalue(), content_type="audio/wav",
    )  # fmt: skip
    return _one(tag, audio=sound)


def text(tag: str, string: str) -> Summary:
    """A text in Markdown."""
    if not isinstance(string, str):
        raise TypeError(f"add_text: text_string must be a str, got {type(string).__name__}")
    tensor = _strings([string.encode("utf-8")], [1])
    return _one(f"{tag}/text_summary", metadata=_metadata("text"), tensor=tensor)


def _check_thresholds(function: str, number: int) -> int:
    if number < 2:
        raise ValueError(f"{function}: num_thresholds must be at least 2, got {number}")
    return min(number, _MAX_THRESHOLDS)


def pr_curve(
    tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None
) -> Summary:
    """Precision and recall at thresholds from 0 to 1."""
    n = _check_thresholds("add_pr_curve", num_thresholds)
    truth, predicted = (as_array(x).reshape(-1).astype(np.float64) for x in (labels, predictions))
    share = np.ones_like(truth) if weights is None else as_array(weights).astype(np.float64)
    share = np.broadcast_to(share.reshape(-1), truth.shape)
    if truth.shape != predicted.shape:
        raise ValueError(
            f"add_pr_curve: expected as many labels as predictions, got {truth.size} and {predicted.size}"
        )
    if not ((predicted >= 0) & (predicted <= 1)).all():
        raise ValueError("add_pr_curve: predictions must be from 0 to 1")
    bucket = np.floor(predicted * (n - 1)).astype(np.int64)

    def at_least(weight: np.ndarray) -> np.ndarray:
        return np.bincount(bucket, weight, n)[::-1].cumsum()[::-1]

    hits, false_alarms = at_least(truth * share), at_least((1 - truth) * share)
    misses, rejections = hits[0] - hits, false_alarms[0] - false_alarms
    precision = hits / np.maximum(_TINY, hits + false_alarms)
    recall = hits / np.maximum(_TINY, hits + misses)
    return pr_curve_raw(tag, hits, false_alarms, rejections, misses, precision, recall, n)


def pr_curve_raw(
    tag: str,
    true_positive_counts: Any,
    false_positive_counts: Any,
    true_negative_counts: Any,
    false_negative_counts: Any,
    precision: Any,
    recall: Any,
    num_thresholds: int = 127,
) -> Summary:
    """A curve of precision and recall that the caller counted."""
    n = _check_thresholds("add_pr_curve_raw", num_thresholds)
    rows = [as_array(x).reshape(-1) for x in (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall)]  # fmt: skip
    if {len(row) for row in rows} != {n}:
        raise ValueError(
            f"add_pr_curve_raw: expected {n} numbers in each argument, got {[len(r) for r in rows]}"
        )
    content = PrCurvePluginData(version=0, num_thresholds=n).SerializeToString()
    tensor = _tensor(np.stack(rows).astype(np.float32))
    return _one(tag, tensor=tensor, metadata=_metadata("pr_curves", content))


def _chart(title: str, description: Any) -> layout_pb2.Chart:
    kind, tags = description
    if kind == "Multiline":
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))
    if kind != "Margin" or len(tags) != 3:
        raise ValueError(
            "add_custom_scalars: expected ['Multiline', tags] or ['Margin', [value, lower, upper]], got "
            f"{description!r}"
        )
    series = layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
    return layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series]))


def custom_scalars(layout: Mapping[str, Mapping[str, Any]]) -> Summary:
    """The charts of the custom scalars: `{category: {title: ['Multiline' or 'Margin', tags]}}`."""
    categories = [
        layout_pb2.Category(title=title, chart=[_chart(name, c) for name, c in charts.items()])
        for title, charts in layout.items()
    ]
    content = layout_pb2.Layout(category=categories).SerializeToString()
    return _one(
        "custom_scalars__config__", tensor=_strings([content], []), metadata=_metadata("custom_scalars")
    )  # fmt: skip


def mesh(
    tag: str, vertices: Any, colors: Any = None, faces: Any = None, config: Any = None
) -> Summary:
    """Points (B, N, 3) with colours of the same shape from 0 to 255, and triangles (B, M, 3) of their indices."""
    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData

    parts = [
        (vertices, MeshPluginData.VERTEX, np.float32),
        (faces, MeshPluginData.FACE, np.int32),
        (colors, MeshPluginData.COLOR, np.uint8),
    ]
    given = [(as_array(x), content, dtype) for x, content, dtype in parts if x is not None]
    for array, content, _ in given:
        if array.ndim != 3 or array.shape[2] != 3:
            name = MeshPluginData.ContentType.Name(content).lower()
            raise ValueError(f"add_mesh: expected shape (B, N, 3) of {name}, got {array.shape}")
    components = metadata.get_components_bitmask([content for _, content, _ in given])
    values = [
        Summary.Value(
            tag=metadata.get_instance_name(tag, content),
            tensor=_tensor(array.astype(dtype)),
            metadata=metadata.create_summary_metadata(
                tag, None, content, components, array.shape, json_config=json.dumps(config or {})
            ),
        )
        for array, content, dtype in given
    ]
    return Summary(value=values)
