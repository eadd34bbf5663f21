"""SummaryWriter: logs for TensorBoard, through the package `tensorboard`, which must be installed."""

try:
    import tensorboard as _tensorboard  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "rabbet.utils.tensorboard needs the package 'tensorboard': pip install tensorboard"
    ) from error

from tensorboard.summary.writer.record_writer import RecordWriter

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
