"""SummaryWriter, which logs for TensorBoard, and FileWriter, which writes one event file."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import summary as _summary
from ._arrays import require
from ._embedding import write_embedding
from ._graph import module_graph
from ._hparams import hparams

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes one event file.

    Args:
        log_dir: the folder of the file.
        max_queue, flush_secs: how many events wait in memory, and for how many seconds.
        filename_suffix: the end of the file's name.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder of the file."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Event, step: int | None = None, walltime: float | None = None) -> None:  # fmt: skip
        """Write an event with a step and a time, by default the current one."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(
        self, summary: Summary, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Write a summary."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[GraphDef, Any], walltime: float | None = None) -> None:
        """Write a graph, and the metadata of its run unless they are None."""
        graph, metadata = graph_profile
        self.add_event(Event(graph_def=graph.SerializeToString()), None, walltime)
        if metadata is not None:
            tagged = TaggedRunMetadata(tag="step1", run_metadata=metadata.SerializeToString())
            self.add_event(Event(tagged_run_metadata=tagged), None, walltime)

    def flush(self) -> None:
        """Write what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what waits and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Open the file again after `close`."""
        self.event_writer.reopen()


class SummaryWriter:
    """Logs for TensorBoard: writes event files into a folder.

    Args:
        log_dir: the folder; by default one in `runs`, named by date and host.
        comment: the end of that default name.
        purge_step: TensorBoard hides the events that a failed run logged from this step on.
        max_queue, flush_secs: how many events wait in memory, and for how many seconds.
        filename_suffix: the end of the files' names.

    Each method takes `global_step`, the step that a value belongs to, and `walltime`, its time in seconds, by default the
    current one.

    Example:
        >>> with SummaryWriter(folder) as writer:
        ...     writer.add_scalar("loss", 0.5, global_step=1)
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
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.all_writers: dict[str, FileWriter] = {}
        self.file_writer = self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of `log_dir`, which is made again after `close`."""
        is_new = self.log_dir not in self.all_writers
        self.file_writer = self._writer_in(self.log_dir)
        if is_new and self.purge_step is not None:
            step = self.purge_step
            self.file_writer.add_event(Event(file_version="brain.Event:2"), step)
            start = SessionLog(status=SessionLog.START)
            self.file_writer.add_event(Event(session_log=start), step)
            self.purge_step = None
        return self.file_writer

    def _writer_in(self, folder: str) -> FileWriter:
        if folder not in self.all_writers:
            self.all_writers[folder] = FileWriter(
                folder, self.max_queue, self.flush_secs, self.filename_suffix
            )
        return self.all_writers[folder]

    def _add(self, found: Summary, step: int | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(found, step, walltime)

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.log_dir

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Hyperparameters and the metrics that they led to, as a run in a folder of its own.

        Args:
            hparam_dict: numbers, strings and booleans by name.
            metric_dict: numbers by name.
            hparam_domain_discrete: the values that a hyperparameter may have, by its name.
            run_name: the folder in `log_dir`; by default the time.
        """
        summaries = hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        scalars = [_summary.scalar(tag, value) for tag, value in metric_dict.items()]
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        writer = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
        for found in summaries:
            writer.add_summary(found, global_step)
        for found in scalars:
            writer.add_summary(found, global_step)
        writer.close()

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number; `new_style` writes it as a tensor, with `double_precision` of 64 bits."""
        self._add(_summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)  # fmt: skip

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers in one chart: each is a run, in the folder `LOG_DIR/MAIN_TAG_TAG`."""
        walltime = time.time() if walltime is None else walltime
        found = {tag: _summary.scalar(main_tag, value) for tag, value in tag_scalar_dict.items()}
        for tag, one in found.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._writer_in(folder).add_summary(one, global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A whole tensor."""
        self._add(_summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How numbers are distributed; `bins` is 'tensorflow' or what `numpy.histogram` takes."""
        self._add(_summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that was counted before; `bucket_limits` are upper limits."""
        found = _summary.histogram_raw(
            tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts
        )
        self._add(found, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: uint8, or floats from 0 to 1; `dataformats` names its dimensions."""
        self._add(_summary.image("add_image", tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures in rows of 8."""
        self._add(_summary.image("add_images", tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Sequence[str] | None = None,
    ) -> None:
        """A picture with rectangles.

        Args:
            box_tensor: rows of left, top, right and bottom, in pixels.
            rescale: the factor by which the picture grows.
            labels: a text for each rectangle.
        """
        found = _summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._add(found, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A figure of matplotlib, or a list of them; `close` closes them."""
        agg = require("add_figure", "matplotlib", "matplotlib.backends.backend_agg")
        figures = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        drawn = []
        for one in figures:
            canvas = agg.FigureCanvasAgg(one)
            canvas.draw()
            drawn.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
            if close:
                require("add_figure", "matplotlib", "matplotlib.pyplot").close(one)
        self.add_images(tag, np.stack(drawn), global_step, walltime, dataformats="NHWC")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Films (N, T, C, H, W), uint8 or floats from 0 to 1, as an animated GIF."""
        self._add(_summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound (1, L) of numbers from -1 to 1."""
        self._add(_summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: str,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A text in Markdown."""
        self._add(_summary.text(tag, text_string), global_step, walltime)

    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:
        """The operators of a module, which runs once with the input.

        Args:
            model: the module.
            input_to_model: a tensor, or a tuple of arguments.
            verbose: also print the graph.
            use_strict_trace: has no effect: the operators are recorded while the module runs.
        """
        if not callable(getattr(model, "named_modules", None)):
            raise TypeError(f"add_graph: model must be a Module, got {type(model).__name__}")
        if input_to_model is None:
            raise ValueError("add_graph: expected input_to_model, a tensor or a tuple of arguments")
        graph = module_graph(model, input_to_model)
        if verbose:
            print(graph)
        self._get_file_writer().add_graph((graph, None))

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Points for the projector.

        Args:
            mat: (N, D), one row for each point.
            metadata: a label for each point, or a row of labels with `metadata_header`.
            label_img: a picture (C, S, S) for each point.
            tag: the name of the points.
        """
        step = f"{0 if global_step is None else int(global_step):05d}"
        folder = Path(self._get_file_writer().get_logdir())
        write_embedding(
            folder, f"{tag}:{step}", f"{step}/{tag}", mat, metadata, label_img, metadata_header
        )

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision and recall of predictions from 0 to 1, for labels that are 0 or 1."""
        found = _summary.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._add(found, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A curve of precision and recall that was counted before; `weights` has no effect, as in PyTorch."""
        found = _summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision,
            recall, num_thresholds,
        )  # fmt: skip
        self._add(found, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A chart with several lines."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """A chart with a line between two limits: `tags` are those of the value, the lower and the upper limit."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """Charts of scalars: `{category: {title: ['Multiline' or 'Margin', tags]}}`."""
        self._add(_summary.custom_scalars(layout), None, None)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Points (B, N, 3), their colours from 0 to 255, and triangles (B, M, 3) of indices of points.

        Args:
            config_dict: settings of the scene, as the classes of THREE.js take them.
        """
        found = _summary.mesh(tag, vertices, colors, faces, config_dict)
        self._add(found, global_step, walltime)

    def _for_all(self, act: Callable[[FileWriter], None]) -> None:
        for writer in self.all_writers.values():
            act(writer)

    def flush(self) -> None:
        """Write what waits."""
        self._for_all(FileWriter.flush)

    def close(self) -> None:
        """Write what waits and close the files; a later call of a method opens a new one."""
        self._for_all(FileWriter.close)
        self.all_writers.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
