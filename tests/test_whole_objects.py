"""Files of whole Modules, optimizers and objects of any class, exchanged with PyTorch where it is installed."""

import copy
import functools
import io
import os
import pickle
import subprocess
import sys
import warnings

import pytest
import rabbet
from rabbet import nn, optim
from rabbet.serialization import UnpicklingError
from rabbet.utils.data import TensorDataset


def layers(nn):
    """A module of most kinds, and an input for it."""
    return {
        "Linear": (nn.Linear(3, 4), (2, 3)),
        "Conv2d": (nn.Conv2d(2, 3, 3, padding="same", padding_mode="reflect"), (1, 2, 5, 5)),
        "ConvTranspose1d": (nn.ConvTranspose1d(2, 3, 3), (1, 2, 5)),
        "BatchNorm1d": (nn.BatchNorm1d(3), (4, 3)),
        "InstanceNorm1d": (nn.InstanceNorm1d(3, affine=True), (1, 3, 4)),
        "GroupNorm": (nn.GroupNorm(1, 3), (2, 3)),
        "LayerNorm": (nn.LayerNorm(3), (2, 3)),
        "LSTM": (nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), (2, 1, 3)),
        "GRU": (nn.GRU(3, 4), (2, 1, 3)),
        "LSTMCell": (nn.LSTMCell(3, 4), (1, 3)),
        "TransformerEncoder": (
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(
                    4, 2, 8, dropout=0.0, activation="gelu", batch_first=True
                ),
                1,
            ),
            (2, 3, 4),
        ),
        "MultiheadAttention": (nn.MultiheadAttention(4, 2), [(2, 1, 4)] * 3),
        "Sequential": (
            nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.GELU("tanh")),
            (2, 3),
        ),
        "PReLU": (nn.PReLU(), (2, 3)),
        "MaxPool2d": (nn.MaxPool2d(2), (1, 1, 4, 4)),
        "Upsample": (nn.Upsample(scale_factor=2), (1, 1, 2, 2)),
        "weight_norm": (nn.utils.weight_norm(nn.Linear(2, 2)), (1, 2)),
        "LazyLinear": (nn.LazyLinear(3), (1, 2)),
        "ZeroPad2d": (nn.ZeroPad2d(1), (1, 1, 2, 2)),
    }


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    NAMES = list(layers(nn))
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning", "ignore:.*Lazy")


def outputs(framework, module, shapes):
    """What an evaluated module gives for the same numbers in either framework."""
    framework.manual_seed(0)
    shapes = shapes if isinstance(shapes, list) else [shapes]
    inputs = [
        framework.linspace(-1, 2, functools.reduce(lambda a, b: a * b, s)).reshape(s)
        for s in shapes
    ]
    result = module.eval()(*inputs)
    while isinstance(result, tuple):
        result = result[0]
    return result.detach().tolist()


def through_file(value, save=rabbet.save, load=rabbet.load, **options):
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return load(file, **options)


@pytest.fixture(scope="module")
def made():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rabbet.manual_seed(0)
        return layers(nn)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_comes_back_and_computes_the_same(name, made):
    module, shapes = made[name]
    is_lazy = name == "LazyLinear"
    copies = [through_file(module, weights_only=False), pickle.loads(pickle.dumps(module))]
    if name != "weight_norm":  # its weight is no leaf
        copies.append(copy.deepcopy(module))
    for got in copies:
        assert type(got) is type(module) and repr(got) == repr(module)
        if is_lazy:
            assert outputs(rabbet, got, shapes) and type(got) is nn.Linear
        else:
            assert outputs(rabbet, got, shapes) == outputs(rabbet, module, shapes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_pytorch_and_rabbet_load_each_others_modules(name, made):
    torch = pytest.importorskip("torch")
    module, shapes = made[name]
    there = through_file(module, load=torch.load, weights_only=False)
    assert type(there).__module__.startswith("torch.")
    back = through_file(there, save=torch.save, weights_only=False)
    assert type(back) is type(module) and repr(back) == repr(module)
    if name == "LazyLinear":
        assert outputs(torch, there, shapes) and outputs(rabbet, back, shapes)
        return
    ours = rabbet.tensor(outputs(rabbet, back, shapes))
    assert outputs(rabbet, back, shapes) == outputs(rabbet, module, shapes)
    assert rabbet.allclose(ours, rabbet.tensor(outputs(torch, there, shapes)), atol=1e-5)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_an_optimizer_comes_back_with_its_parameters_and_goes_on(kind):
    def stepped(pair, times):
        model, optimizer = pair
        for _ in range(times):
            model(rabbet.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.weight.tolist()

    rabbet.manual_seed(0)
    model = nn.Linear(2, 2)
    pair = [model, getattr(optim, kind)(model.parameters(), lr=0.1)]
    stepped(pair, 2)
    for got in (
        through_file(pair, weights_only=False),
        pickle.loads(pickle.dumps(pair)),
        copy.deepcopy(pair),
    ):
        assert got[1].param_groups[0]["params"][0] is got[0].weight
        assert stepped(got, 2) == stepped(copy.deepcopy(pair), 2)


@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")  # as in PyTorch, of copies
def test_schedulers_datasets_and_distributions_are_pickled():
    model = nn.Linear(2, 2)
    scheduler = optim.lr_scheduler.StepLR(optim.SGD(model.parameters(), lr=1.0), 2, gamma=0.1)
    for got in (pickle.loads(pickle.dumps(scheduler)), through_file(scheduler, weights_only=False)):
        for _ in range(2):
            got.optimizer.step()
            got.step()
        assert got.get_last_lr() == [pytest.approx(0.1)] and scheduler.get_last_lr() == [1.0]
    data = TensorDataset(rabbet.arange(3), rabbet.ones(3, 2))
    assert through_file(data, weights_only=False)[2][0].item() == 2
    normal = rabbet.distributions.Normal(rabbet.zeros(2), rabbet.ones(2))
    assert through_file(normal, weights_only=False).mean.tolist() == [0, 0]


def test_values_of_rabbet_are_pickled():
    values = [
        rabbet.float32, rabbet.device("cpu"), rabbet.Size([1, 2]), rabbet.strided, rabbet.channels_last,
        rabbet.relu, rabbet.add, nn.functional.relu, nn.functional.gelu, nn.Linear, rabbet.Tensor, nn.Parameter,
    ]  # fmt: skip
    for got in (
        pickle.loads(pickle.dumps(values)),
        through_file(values, weights_only=False),
        copy.deepcopy(values),
    ):
        assert got == values
    generator = rabbet.Generator().manual_seed(5)
    rabbet.rand(3, generator=generator)
    for got in (pickle.loads(pickle.dumps(generator)), through_file(generator, weights_only=False)):
        assert rabbet.equal(
            rabbet.rand(2, generator=got), rabbet.rand(2, generator=copy.deepcopy(generator))
        )


class Config:
    """A class of the user."""

    def __init__(self, lr, weight):
        self.lr = lr
        self.weight = weight
        self.again = weight[:1]


class Ordered(dict):
    """A dict of its own class."""


@pytest.mark.parametrize("options", [{}, {"pickle_protocol": 4}, {"pickle_module": pickle}, {"_use_new_zipfile_serialization": False}], ids=str)  # fmt: skip
def test_objects_of_any_class_keep_the_memory_that_their_tensors_share(options):
    value = Ordered(config=Config(0.1, rabbet.arange(3.0)), own=nn.Parameter(rabbet.ones(2)))
    value["same"] = value["config"]
    got = through_file(value, save=functools.partial(rabbet.save, **options), weights_only=False)
    assert type(got) is Ordered and got["same"] is got["config"] and type(got["config"]) is Config
    got["config"].weight[0] = 7
    assert got["config"].again.tolist() == [7] and type(got["own"]) is nn.Parameter
    with pytest.raises(
        UnpicklingError,
        match=r"(?s)weights_only.*GLOBAL .*Ordered.*add_safe_globals\(\[Ordered\]\)",
    ):
        through_file(value, save=functools.partial(rabbet.save, **options))


class OwnPickle:
    """A module like pickle that notes that it was asked."""

    asked: list[str] = []

    class Pickler(pickle.Pickler):
        def dump(self, value):
            OwnPickle.asked.append("dump")
            super().dump(value)

    class Unpickler(pickle.Unpickler):
        def load(self):
            OwnPickle.asked.append("load")
            return super().load()


def test_another_pickle_module_reads_and_writes():
    del OwnPickle.asked[:]
    value = {
        "module": nn.Linear(2, 2),
        "storage": rabbet.ones(2).untyped_storage(),
        "dtype": rabbet.int8,
    }
    got = through_file(
        value, save=functools.partial(rabbet.save, pickle_module=OwnPickle), pickle_module=OwnPickle
    )
    assert OwnPickle.asked == ["dump", "load"] and got["dtype"] is rabbet.int8
    assert got["module"].weight.tolist() == value["module"].weight.tolist()
    assert got["storage"].tolist() == value["storage"].tolist()


def test_a_device_of_ones_own_is_named_by_its_package(monkeypatch):
    from rabbet._files import places

    monkeypatch.setattr(places, "registry", [])
    seen = []

    def deserialize(storage, location):
        seen.append((location, storage.nbytes()))
        return storage if location == "mine" else None

    rabbet.serialization.register_package(5, lambda storage: "mine", deserialize)
    got = through_file({"x": rabbet.ones(2), "y": {1}})
    assert seen == [("mine", 8)] and got["x"].tolist() == [1, 1]
    assert rabbet.serialization.location_tag(rabbet.ones(1).untyped_storage()) == "mine"
    for wrong in ((1.5, len, len), (1, None, len), (1, len, 3)):
        with pytest.raises(TypeError, match="register_package: expected"):
            rabbet.serialization.register_package(*wrong)


def test_skipped_data_keeps_its_place_in_the_file():
    value = {"x": rabbet.full((100,), 3.0), "y": {1}}
    whole, skipped = io.BytesIO(), io.BytesIO()
    rabbet.save(value, whole)
    with rabbet.serialization.skip_data():
        rabbet.save(value, skipped)
        whole.seek(0)
        assert rabbet.load(whole)["x"].shape == (100,)
    assert len(skipped.getvalue()) == len(whole.getvalue())
    skipped.seek(0)
    assert rabbet.load(skipped)["x"].tolist() == [0.0] * 100
    whole.seek(0)
    assert rabbet.load(whole)["x"].tolist() == [3.0] * 100


def test_the_unsafe_names_of_a_module_are_listed():
    file = io.BytesIO()
    rabbet.save(nn.Sequential(nn.Linear(2, 2)), file)
    file.seek(0)
    assert rabbet.serialization.get_unsafe_globals_in_checkpoint(file) == [
        "torch.nn.modules.container.Sequential",
        "torch.nn.modules.linear.Linear",
    ]
    file.seek(0)
    with rabbet.serialization.safe_globals([nn.Sequential, nn.Linear]):
        assert isinstance(rabbet.load(file), nn.Sequential)


PROGRAM = """
import io, pickle, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2)

net = Net()
file = io.BytesIO()
torch.save(net, file)
file.seek(0)
try:
    torch.load(file)
except pickle.UnpicklingError as error:
    assert "torch.serialization.add_safe_globals([Net])" in str(error), error
file.seek(0)
assert type(torch.load(file, weights_only=False)) is Net
assert type(pickle.loads(pickle.dumps(net))) is Net
names = [type(v).__module__ for v in (torch.ones(1), net.inner.in_proj_weight, torch.Size([1]), torch.float32,
         torch.device("cpu"), torch.Generator(), nn.Linear(1, 1), net.inner, torch.optim.SGD(net.parameters()))]
assert names == ["torch", "torch.nn.parameter", "torch", "torch", "torch", "torch._C", "torch.nn.modules.linear",
                 "torch.nn.modules.activation", "torch.optim.sgd"], names
assert str(torch.Tensor) == "<class 'torch.Tensor'>"
storage = torch.ones(3).untyped_storage()
file = io.BytesIO()
torch.save({"any": net, "storage": storage}, file)
file.seek(0)
assert torch.load(file, weights_only=False)["storage"].tolist() == storage.tolist()
torch.save(nn.Linear(2, 3), "PATH")
"""


def test_classes_name_pytorchs_modules_in_a_program_of_pytorchs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("PATH", str(tmp_path / "linear.pt")))
    subprocess.run(
        [sys.executable, "-m", "rabbet", "run", str(program)], check=True, env={**os.environ}
    )
    assert type(rabbet.load(tmp_path / "linear.pt", weights_only=False)) is nn.Linear
    assert (
        rabbet.Tensor.__module__ == "rabbet" and nn.Linear.__module__ == "rabbet.nn.modules.linear"
    )


def test_a_plain_pickle_of_pytorchs_is_read_in_a_program_of_pytorchs(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 3)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps([model, model.weight.detach()]))
    program = tmp_path / "program.py"
    program.write_text(
        "import pickle, sys, torch\n"
        "model, weight = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert torch.equal(model.weight, weight) and type(model) is torch.nn.Linear\n"
        "assert isinstance(model.weight, torch.nn.Parameter) and model(torch.ones(1, 2)).shape == (1, 3)\n"
    )
    command = [sys.executable, "-m", "rabbet", "run", str(program), str(tmp_path / "model.pkl")]
    subprocess.run(
        command, check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    )
