"""SummaryWriter writes what TensorBoard's own readers find."""

import importlib
import io
import sys
import wave

import numpy as np
import pytest
import rabbet

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def writer(tmp_path):
    from rabbet.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as found:
        yield found


def read(writer, folder=""):
    """The events that TensorBoard reads after the writer is closed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer.close()
    found = EventAccumulator(f"{writer.log_dir}/{folder}", {"images": 0, "tensors": 0, "audio": 0})
    found.Reload()
    return found


def events(folder):
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    (file,) = folder.glob("events.*")
    return [Event.FromString(raw) for raw in RawEventFileLoader(str(file)).Load()]


def values(folder):
    return [value for event in events(folder) for value in event.summary.value]


def pixels(image):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(image.encoded_image_string)))


def test_scalars(writer):
    for step in range(3):
        writer.add_scalar("loss", rabbet.tensor(1.0 / (step + 1)), step, walltime=step)
    writer.add_scalar("new", rabbet.tensor(0.1, dtype=rabbet.float64), 2, new_style=True, double_precision=True)  # fmt: skip
    assert writer.get_logdir() == writer.log_dir
    found = read(writer)
    assert [(e.wall_time, e.step, e.value) for e in found.Scalars("loss")] == [
        (0, 0, 1.0), (1, 1, 0.5), (2, 2, pytest.approx(1 / 3)),
    ]  # fmt: skip
    assert list(found.Tensors("new")[0].tensor_proto.double_val) == [0.1]


def test_scalars_of_one_chart_are_runs(writer):
    writer.add_scalars("both/x", {"a": 1, "b": np.float32(2)}, 7)
    assert [e.value for e in read(writer, "both_x_a").Scalars("both/x")] == [1]
    assert [(e.step, e.value) for e in read(writer, "both_x_b").Scalars("both/x")] == [(7, 2)]


def test_histograms(writer, tmp_path):
    writer.add_histogram("weights", rabbet.arange(10.0), 1)
    writer.add_histogram("few", np.arange(100.0), bins=4, max_bins=2)
    writer.add_histogram_raw("raw", 0, 1, 3, 2.0, 3.0, [1.0, 2.0], [1, 2], 4)
    writer.add_histogram("later", [-1.0, 1.0], bins=[-3.0, -2.0, 0.0, 2.0, 3.0])
    writer.close()
    found = {value.tag: value.histo for value in values(tmp_path)}
    weights = found["weights"]
    assert (weights.num, weights.sum, weights.min, weights.max, weights.sum_squares) == (10, 45, 0, 9, 285)  # fmt: skip
    assert sum(weights.bucket) == 10
    # The numbers of PyTorch 2.13.
    assert list(found["few"].bucket_limit) == [0, 49.5, 99]
    assert list(found["few"].bucket) == [0, 50, 50]
    assert list(found["later"].bucket_limit) == [-2, 0, 2] and list(found["later"].bucket) == [0, 1, 1]  # fmt: skip
    assert list(found["raw"].bucket) == [1, 2] and found["raw"].sum_squares == 3


def test_images(writer):
    picture = rabbet.rand(3, 4, 5)
    writer.add_image("image", picture, 2)
    writer.add_image("gray", np.full((4, 5), 7, np.uint8), 2, dataformats="HW")
    writer.add_images("several", rabbet.ones(9, 1, 2, 4), 2)
    found = read(writer)
    seen = pixels(found.Images("image")[0])
    assert np.array_equal(seen, (picture * 255).to(rabbet.uint8).permute(1, 2, 0).numpy())
    assert pixels(found.Images("gray")[0]).tolist() == [[[7] * 3] * 5] * 4
    grid = pixels(found.Images("several")[0])
    assert grid.shape == (4, 32, 3) and grid[:2].min() == 255 and grid[2:, :4].min() == 255
    assert grid[2:, 4:].max() == 0


def test_boxes_are_drawn(writer):
    boxes = rabbet.tensor([[2, 3, 12, 13]])
    writer.add_image_with_boxes("box", rabbet.zeros(3, 20, 30), boxes, rescale=2)
    writer.add_image_with_boxes("label", rabbet.zeros(3, 20, 30), boxes, labels=["a"])
    found = read(writer)
    assert pixels(found.Images("box")[0]).shape == (40, 60, 3)
    drawn = pixels(found.Images("label")[0])
    assert drawn[13, 8].tolist() == [255, 0, 0] and drawn[18, 25].tolist() == [0, 0, 0]


def test_figures(writer):
    figures = pytest.importorskip("matplotlib.figure")
    made = [figures.Figure(figsize=(2, 1), dpi=50, facecolor="blue") for _ in range(2)]
    writer.add_figure("one", made[0], 1)
    writer.add_figure("two", made, 1)
    found = read(writer)
    assert pixels(found.Images("one")[0])[0, 0].tolist() == [0, 0, 255]
    assert pixels(found.Images("two")[0]).shape == (50, 200, 3)


def test_videos_are_animated_gifs(writer):
    from PIL import Image

    frames = rabbet.zeros(2, 3, 1, 4, 6)
    frames[:, 1] = 1.0
    writer.add_video("film", frames, fps=10)
    film = Image.open(io.BytesIO(read(writer).Images("film")[0].encoded_image_string))
    assert (film.n_frames, film.size, film.info["duration"]) == (3, (12, 4), 100)
    film.seek(1)
    assert np.asarray(film.convert("RGB")).min() == 255


def test_audio(writer):
    writer.add_audio("sound", rabbet.tensor([[0.0, 1.0, -1.0, 2.0]]), 1, sample_rate=8000)
    (sound,) = read(writer).Audio("sound")
    with wave.open(io.BytesIO(sound.encoded_audio_string)) as file:
        samples = np.frombuffer(file.readframes(4), "<i2")
        assert (file.getframerate(), file.getnchannels()) == (8000, 1)
    assert samples.tolist() == [0, 32767, -32767, 32767] and sound.length_frames == 4


def test_texts_and_tensors(writer):
    writer.add_text("note", "some words", 3)
    writer.add_tensor("t", rabbet.tensor([[1, 2]]), 1)
    writer.add_tensor("half", rabbet.tensor([0.5], dtype=rabbet.bfloat16), 1)
    found = read(writer)
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"some words"]
    tensor = found.Tensors("t")[0].tensor_proto
    assert list(tensor.int64_val) == [1, 2]
    assert [d.size for d in tensor.tensor_shape.dim] == [1, 2]
    assert list(found.Tensors("half")[0].tensor_proto.float_val) == [0.5]


def test_hyperparameters(writer, tmp_path):
    from tensorboard.plugins.hparams import metadata

    writer.add_hparams(
        {"lr": 0.1, "b": True, "n": "x", "i": rabbet.tensor(3)}, {"accuracy": 0.5}, {"n": ["x", "y"]}, "run", 4
    )  # fmt: skip
    found = {value.tag: value for value in values(tmp_path / "run")}
    content = found[metadata.SESSION_START_INFO_TAG].metadata.plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content)
    assert start.hparams["lr"].number_value == 0.1 and start.hparams["b"].bool_value is True
    assert start.hparams["i"].number_value == 3 and start.hparams["n"].string_value == "x"
    content = found[metadata.EXPERIMENT_TAG].metadata.plugin_data.content
    experiment = metadata.parse_experiment_plugin_data(content)
    assert [info.name for info in experiment.hparam_infos] == ["lr", "b", "n", "i"]
    assert list(experiment.hparam_infos[2].domain_discrete) == ["x", "y"]
    assert [info.name.tag for info in experiment.metric_infos] == ["accuracy"]
    assert found["accuracy"].simple_value == 0.5


def test_curves_have_the_numbers_of_pytorch(writer):
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    writer.add_pr_curve("pr", np.array([1, 0, 1, 0, 1]), rabbet.tensor([0.9, 0.2, 0.6, 0.7, 0.4]), 1, num_thresholds=5)  # fmt: skip
    rows = [[3, 3, 2, 1, 0], [2, 1, 1, 0, 0], [0, 1, 1, 2, 2], [0, 0, 1, 2, 3], [0.6, 0.75, 2 / 3, 1, 0], [1, 1, 2 / 3, 1 / 3, 0]]  # fmt: skip
    writer.add_pr_curve_raw("raw", *rows, num_thresholds=5)
    found = read(writer)
    for tag in ("pr", "raw"):
        assert np.allclose(found.Tensors(tag)[0].tensor_proto.float_val, np.ravel(rows))
    content = found.SummaryMetadata("pr").plugin_data.content
    assert PrCurvePluginData.FromString(content).num_thresholds == 5


def test_charts_of_scalars(writer):
    from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

    writer.add_custom_scalars({"T": {"x": ["Multiline", ["a", "b"]], "y": ["Margin", ["m", "l", "u"]]}})  # fmt: skip
    (tensor,) = read(writer).Tensors("custom_scalars__config__")
    (category,) = Layout.FromString(tensor.tensor_proto.string_val[0]).category
    assert category.title == "T" and [chart.title for chart in category.chart] == ["x", "y"]
    assert list(category.chart[0].multiline.tag) == ["a", "b"]
    series = category.chart[1].margin.series[0]
    assert (series.value, series.lower, series.upper) == ("m", "l", "u")


def test_meshes(writer):
    from tensorboard.plugins.mesh import metadata

    points = rabbet.rand(1, 4, 3)
    faces = rabbet.tensor([[[0, 1, 2]]])
    writer.add_mesh("m", points, rabbet.full((1, 4, 3), 9), faces, {"camera": {"cls": "Perspective"}})  # fmt: skip
    found = read(writer)
    assert np.allclose(found.Tensors("m_VERTEX")[0].tensor_proto.float_val, points.flatten().numpy())  # fmt: skip
    assert list(found.Tensors("m_FACE")[0].tensor_proto.int_val) == [0, 1, 2]
    assert list(found.Tensors("m_COLOR")[0].tensor_proto.int_val) == [9] * 12
    data = metadata.parse_plugin_metadata(found.SummaryMetadata("m_FACE").plugin_data.content)
    assert data.components == 14 and "Perspective" in data.json_config


def test_embeddings(writer, tmp_path):
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    points = rabbet.rand(3, 2)
    writer.add_embedding(points, ["a", "b", "c"], rabbet.rand(3, 3, 4, 4), 7, "emb")
    writer.add_embedding(points, [["a", 1], ["b", 2], ["c", 3]], metadata_header=["x", "y"])
    writer.add_embedding(points + 1, ["d", "e", "f"], global_step=7, tag="emb")
    config = ProjectorConfig()
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    assert [e.tensor_name for e in config.embeddings] == ["emb:00007", "default:00000"]
    entry = config.embeddings[0]
    assert np.allclose(np.loadtxt(tmp_path / entry.tensor_path), (points + 1).numpy())
    assert (tmp_path / entry.metadata_path).read_text() == "d\ne\nf\n"
    assert (tmp_path / "00000/default/metadata.tsv").read_text() == "x\ty\na\t1\nb\t2\nc\t3\n"
    assert pixels_of_file(tmp_path / "00007/emb/sprite.png").shape == (8, 8, 3)


def pixels_of_file(path):
    from PIL import Image

    return np.asarray(Image.open(path))


def test_graphs_of_modules(writer):
    nn = pytest.importorskip("rabbet.nn")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 2)
            self.rest = nn.Sequential(nn.ReLU())

        def forward(self, x):
            return self.rest(self.first(x)) * rabbet.ones(2)

    net = Net()
    writer.add_graph(net, rabbet.rand(4, 3))
    assert not net._forward_hooks and not net.first._forward_pre_hooks
    nodes = {node.name: node for node in read(writer).Graph().node}
    relu = nodes["Net/Sequential[rest]/ReLU[0]/relu"]
    assert relu.op == "aten::relu" and relu.input[0].startswith("Net/Linear[first]/")
    shape = relu.attr["_output_shapes"].list.shape[0]
    assert [d.size for d in shape.dim] == [4, 2]
    assert nodes["Net/first/weight"].op == "Parameter" and nodes["input/0"].op == "IO Node"
    names = {"Net/first/weight", "Net/first/bias", "input/0"}
    assert names <= {name for node in nodes.values() for name in node.input}
    assert all(name in nodes for node in nodes.values() for name in node.input)
    assert nodes["output/0"].input[0] == "Net/mul"


def test_a_closed_writer_opens_a_new_file(writer, tmp_path):
    writer.add_scalar("x", 1, 1)
    writer.close()
    writer.add_scalar("x", 2, 2)
    assert [e.value for e in read(writer).Scalars("x")] == [1, 2]


def test_a_later_run_hides_the_steps_of_a_failed_one(tmp_path):
    from rabbet.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as first:
        for step in range(5):
            first.add_scalar("x", step, step)
    with SummaryWriter(tmp_path, purge_step=3, filename_suffix=".z") as second:
        second.add_scalar("x", 30, 3)
    assert [e.value for e in read(second).Scalars("x")] == [0, 1, 2, 30]


Z = rabbet.zeros


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda w: w.add_scalar("x", Z(2)), "add_scalar: expected one number, got shape"),
        (lambda w: w.add_scalar("x", "a"), "add_scalar: expected one number, got shape"),
        (lambda w: w.add_scalars("x", {"a": Z(2)}), "add_scalar: expected one number"),
        (lambda w: w.add_histogram("x", [np.nan]), "add_histogram: there is no finite number"),
        (lambda w: w.add_histogram("x", [1.0], max_bins=0), "max_bins must be positive, got 0"),
        (lambda w: w.add_histogram("x", [9.0], bins=[0, 1]), "no value is in one of the bins"),
        (lambda w: w.add_histogram_raw("x", 0, 1, 1, 1, 1, [1, 2], [1]), "got 2 and 1"),
        (lambda w: w.add_image("x", Z(3, 4)), "dataformats='CHW' does not describe shape"),
        (lambda w: w.add_image("x", Z(3, 4), dataformats="HH"), "does not describe shape"),
        (lambda w: w.add_image("x", Z(2, 4, 4)), "expected pictures of 1, 3 or 4 channels"),
        (lambda w: w.add_images("x", Z(3, 4, 4)), "add_images: dataformats='NCHW' does not"),
        (lambda w: w.add_image_with_boxes("x", Z(3, 4, 4), Z(4)), "expected boxes of shape"),
        (lambda w: w.add_image_with_boxes("x", Z(3, 4, 4), Z(1, 4), labels=[]), "expected 1 labels"),
        (lambda w: w.add_video("x", Z(3, 4, 4)), "add_video: expected shape"),
        (lambda w: w.add_video("x", Z(1, 1, 1, 4, 4), fps=0), "fps must be positive, got 0"),
        (lambda w: w.add_audio("x", Z(2, 2)), "add_audio: expected shape"),
        (lambda w: w.add_text("x", 3), "add_text: text_string must be a str, got int"),
        (lambda w: w.add_tensor("x", Z(2, dtype=rabbet.complex64)), "add_tensor: expected numbers"),
        (lambda w: w.add_graph(3, Z(2)), "add_graph: model must be a Module, got int"),
        (lambda w: w.add_hparams(3, {}), "hparam_dict must be a dict, got int"),
        (lambda w: w.add_hparams({"a": [1]}, {}), "str, bool or tensor for 'a', got list"),
        (lambda w: w.add_hparams({}, {}, {"z": [1]}), "unknown names \\['z'\\]"),
        (lambda w: w.add_embedding(Z(3)), "expected mat of shape \\(N, D\\), got \\(3,\\)"),
        (lambda w: w.add_embedding(Z(3, 2), ["a"]), "expected 3 labels in metadata, got 1"),
        (lambda w: w.add_embedding(Z(1, 2), [["a"]], metadata_header=["x", "y"]), "expected 2 columns"),
        (lambda w: w.add_embedding(Z(1, 2), label_img=Z(1, 3, 2, 4)), "expected label_img of shape"),
        (lambda w: w.add_pr_curve("x", [1], [0.5, 0.6]), "got 1 and 2"),
        (lambda w: w.add_pr_curve("x", [1], [1.5]), "predictions must be from 0 to 1"),
        (lambda w: w.add_pr_curve("x", [1], [0.5], num_thresholds=1), "must be at least 2, got 1"),
        (lambda w: w.add_pr_curve_raw("x", *[[1]] * 6), "expected 127 numbers in each argument"),
        (lambda w: w.add_mesh("x", Z(2, 3)), "expected shape \\(B, N, 3\\) of vertex"),
        (lambda w: w.add_custom_scalars({"a": {"b": ["Foo", []]}}), "expected \\['Multiline', tags\\]"),
        (lambda w: w.add_custom_scalars_marginchart(["a"]), "expected \\['Multiline', tags\\]"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(writer, call, text):
    with pytest.raises((ValueError, TypeError), match=text):
        call(writer)


def test_a_missing_image_library_is_named(monkeypatch, writer):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="add_image needs the package 'pillow'"):
        writer.add_image("x", rabbet.zeros(3, 2, 2))


def test_a_missing_tensorboard_is_named(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("rabbet.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="needs the package 'tensorboard': pip install tensorbo"):
        importlib.import_module("rabbet.utils.tensorboard")
