"""SummaryWriter writes what TensorBoard's own reader finds."""

import numpy as np
import pytest
import rabbet

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_what_is_written_is_read(tmp_path):
    from rabbet.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", rabbet.tensor(1.0 / (step + 1)), step, walltime=step)
        writer.add_scalars("both", {"a": 1, "b": np.float32(2)}, 7)
        writer.add_histogram("weights", rabbet.arange(10.0), 1)
        writer.add_image("image", rabbet.rand(3, 4, 5), 2)
        writer.add_image("gray", np.zeros((4, 5), np.uint8), 2, dataformats="HW")
        writer.add_text("note", "some words", 3)
        assert writer.get_logdir() == str(tmp_path)
    read = events(tmp_path)
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [
        (0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3)),
    ]  # fmt: skip
    assert read.Scalars("both/b")[0].value == 2
    histogram = read.Histograms("weights")[0].histogram_value
    assert (histogram.num, histogram.sum, histogram.min, histogram.max) == (10, 45, 0, 9)
    assert (read.Images("image")[0].height, read.Images("image")[0].width) == (4, 5)
    assert {"image", "gray"} <= set(read.Tags()["images"])
    assert read.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"some words"]


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda w: w.add_scalar("x", rabbet.zeros(2)),
            "add_scalar: expected one number, got shape",
        ),
        (lambda w: w.add_histogram("x", [np.nan]), "add_histogram: there is no finite number"),
        (
            lambda w: w.add_image("x", rabbet.zeros(3, 4)),
            "dataformats='CHW' does not describe shape",
        ),
        (
            lambda w: w.add_image("x", rabbet.zeros(3, 4), dataformats="HH"),
            "does not describe shape",
        ),
    ],
)
def test_wrong_values_are_refused(tmp_path, call, text):
    from rabbet.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match=text):
        call(writer)
