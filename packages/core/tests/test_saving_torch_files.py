"""save() in the form of PyTorch's files: what stands in them, who reads them, and what is refused."""

import argparse
import bz2
import collections
import enum
import gzip
import io
import lzma
import os
import pathlib
import pickle
import pickletools
import signal
import struct
import subprocess
import sys
import types
import zipfile

import numpy as np
import pytest
import rabbet
from rabbet.serialization import SerializationError, safe_globals

# What PyTorch's weights_only unpickler takes (torch/_weights_only_unpickler.py of PyTorch 2.13).
INSTRUCTIONS = {
    "PROTO", "STOP", "GLOBAL", "REDUCE", "BUILD", "NEWOBJ", "MARK", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE",
    "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "NONE", "NEWTRUE", "NEWFALSE",
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "BINPERSID", "BINGET", "LONG_BINGET", "BINPUT",
    "LONG_BINPUT",
}  # fmt: skip
GLOBALS = {
    "collections OrderedDict", "collections Counter", "torch.serialization _get_layout", "torch Size", "torch Tensor",
    "torch device", "_codecs encode", "builtins bytearray", "builtins set", "builtins complex",
    "torch.storage UntypedStorage", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state",
    "torch._utils _rebuild_meta_tensor_no_storage", "torch._tensor _rebuild_from_type_v2",
}  # fmt: skip


def saved(value, **options):
    file = io.BytesIO()
    rabbet.save(value, file, **{"format": "pt", **options})
    return file.getvalue()


def again(value, **options):
    """The value after a way through a file of PyTorch's."""
    return rabbet.load(io.BytesIO(saved(value, **options)))


def instructions(content):
    """The pickle of a file as (instruction, argument)."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(code.name, argument) for code, argument, _ in pickletools.genops(archive.read("archive/data.pkl"))]  # fmt: skip


def tree():
    """A value of everything that PyTorch loads with weights_only=True."""
    x = rabbet.arange(12.0).reshape(3, 4)
    return {
        "x": x, "t": x.t(), "rows": x[1:], "even": x[:, ::2], "wide": x[0].expand(2, 4), "same": x,
        "scalar": rabbet.tensor(4), "empty": rabbet.zeros(0, 2), "none": x[3:],
        "channels": rabbet.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=rabbet.channels_last),
        "dtypes": [rabbet.ones(2).to(getattr(rabbet, n)) for n in rabbet._C.dtype_names() if n not in rabbet._NAMED_DTYPES],
        "grad": rabbet.ones(2, requires_grad=True), "meta": rabbet.ones(2, 3, device="meta").t(),
        "ordered": collections.OrderedDict(b=1, a=[None, True, -1, 255, 65536, -(2**40), 2**70, 1e300]),
        "count": collections.Counter("aab"), "texts": ("", "text", "\u20ac", "text"), "bytes": [b"", b"a\xff", bytearray(b"x")],
        "others": [{1, 2}, 1 - 2j, rabbet.Size([2, 3]), rabbet.device("cpu"), rabbet.bfloat16, rabbet.strided, (), [], {}],
        3: float("inf"), (1, "k"): {"deep": [[[1]]]},
    }  # fmt: skip


def same(a, b):
    """Whether values are equal to the type, the strides and the bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, rabbet.Tensor):
        looks = (a.shape, a.stride(), a.dtype, a.requires_grad, a.is_meta, a.storage_offset()) == (
            b.shape, b.stride(), b.dtype, b.requires_grad, b.is_meta, b.storage_offset())  # fmt: skip
        return looks and (a.is_meta or rabbet.equal(a, b)) and same(vars(a), vars(b))
    if isinstance(a, dict):
        return list(map(str, a)) == list(map(str, b)) and all(map(same, a.values(), b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(np.array_equal(a, b)) if isinstance(a, (np.ndarray, np.generic)) else a == b


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_tree_comes_back_as_it_was(zipped):
    value = tree()
    got = again(value, _use_new_zipfile_serialization=zipped)
    assert same(value, got)
    assert got["x"] is got["same"]
    got["x"][1, 0] = 100
    assert got["t"][0, 1] == 100 and got["rows"][0, 0] == 100 and got["even"][1, 0] == 100


def test_only_what_weights_only_allows_stands_in_the_file():
    nn = pytest.importorskip("rabbet.nn")
    value = tree()
    value["parameter"], value["buffer"] = nn.Parameter(rabbet.ones(2)), nn.Buffer(rabbet.ones(2))
    value["parameter"].tag, value["x"].note = 1, {"of": value["t"]}
    value["state"] = nn.BatchNorm1d(3).state_dict()
    seen = instructions(saved(value))
    assert {name for name, _ in seen} <= INSTRUCTIONS
    names = {argument for name, argument in seen if name == "GLOBAL"}
    dtypes = {f"torch {name}" for name in rabbet._C.dtype_names()}
    assert {n for n in names if not n.endswith("Storage")} <= GLOBALS | dtypes
    assert seen[0] == ("PROTO", 2) and seen[-1][0] == "STOP"
    got = again(value)
    assert same(value, got) and got["x"].note["of"] is got["t"]
    assert got["state"]._metadata == {"": {"version": 2}}


def test_the_archive_is_laid_out_as_pytorchs():
    content = saved({"a": rabbet.arange(5.0), "b": rabbet.arange(3)})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        names = [
            "data.pkl",
            ".format_version",
            ".storage_alignment",
            "byteorder",
            "data/0",
            "data/1",
            "version",
        ]
        assert archive.namelist() == [f"archive/{name}" for name in names]
        for name, text in (("version", b"3\n"), ("byteorder", b"little"), (".format_version", b"1"), (".storage_alignment", b"64")):  # fmt: skip
            assert archive.read(f"archive/{name}") == text
        assert archive.read("archive/data/0") == struct.pack("<5f", *range(5))
        assert archive.read("archive/data/1") == struct.pack("<3q", *range(3))
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED and not info.flag_bits
            sizes = struct.unpack_from("<HH", content, info.header_offset + 26)
            assert (info.header_offset + 30 + sum(sizes)) % 64 == 0
    assert content == saved({"a": rabbet.arange(5.0), "b": rabbet.arange(3)})  # the same every time


def test_whole_storages_are_written_once():
    x = rabbet.arange(1000.0)
    content = saved([x[100:103], x[500:], x.view(rabbet.int32)])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        data = [i.file_size for i in archive.infolist() if "/data/" in i.filename]
    assert data == [4000]
    small, part, bits = rabbet.load(io.BytesIO(content))
    assert small.tolist() == [100, 101, 102] and small.untyped_storage().nbytes() == 4000
    assert small.untyped_storage() == part.untyped_storage() and bits.dtype is rabbet.int32
    small[0] = -1.0
    assert bits[100] == struct.unpack("<i", struct.pack("<f", -1))[0]


def test_storages_are_values():
    x = rabbet.arange(3.0)
    view, untyped, typed = again([x, x.untyped_storage(), rabbet.TypedStorage(x)])
    assert untyped == view.untyped_storage() == typed.untyped() and typed.tolist() == [0, 1, 2]


class Colour(enum.Enum):
    RED = 7


class Config:
    """A class of a user."""

    def __init__(self):
        self.lr = [1]

    def __eq__(self, other):
        return vars(self) == vars(other)


class Slotted:
    """A class of a user with slots."""

    __slots__ = ("a",)


Point = collections.namedtuple("Point", "x y")


class Marked(rabbet.Tensor):
    """A class of tensors of a user."""


def test_more_of_python_and_numpy_comes_back():
    shared, ring = [1], []
    ring.append(ring)
    value = {
        "d": collections.defaultdict(list, a=[1]), "n": argparse.Namespace(lr=0.1, x=None), "s": types.SimpleNamespace(y=2),
        "p": pathlib.Path("/a/b.pt"), "f": frozenset([1]), "slice": slice(1, None, 2), "range": range(3),
        "array": np.arange(6.0).reshape(2, 3).T, "text": np.array(["a", "bcd"]), "number": np.float32(0.5),
        "bool": np.array(True), "dtype": np.dtype("int16"), "z": np.complex64(1j), "none": np.zeros((0, 3)),
        "shared": [shared, shared, (shared,)],
    }  # fmt: skip
    got = again(value)
    assert same(value, got) and got["d"]["new"] == []
    assert got["shared"][0] is got["shared"][1] is got["shared"][2][0]
    got = again(ring)
    assert got[0] is got


def test_values_that_hold_themselves():
    pair, x = ([],), rabbet.ones(2)
    pair[0].append(pair)
    got = again([pair, "later", pair])
    assert got[0][0][0][0] is got[0][0] and got[1] == "later" and got[2][0] is got[0][0]
    x.note = (x,)
    with pytest.raises(SerializationError, match="nested too deeply"):
        saved(x)


def test_pickle_itself_reads_the_same_arrays():
    """The arrays and containers of a file are ordinary pickles."""
    value = [np.arange(6.0).reshape(2, 3), np.array(["a"]), np.float32(2), collections.defaultdict(int, a=1), b"\xff", 2**70, {"k": (1, None)}]  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(saved(value))) as archive:
        assert same(pickle.loads(archive.read("archive/data.pkl")), value)


def test_classes_of_the_user_come_back_if_they_are_declared():
    slotted = Slotted()
    slotted.a = 5
    marked = rabbet.Tensor._make_subclass(Marked, rabbet.ones(2))
    marked.note = "here"
    value = [Config(), Colour.RED, Point(1, 2), slotted, marked, Config, len]
    for item, name in zip(value, ("Config", "Colour", "Point", "Slotted", "Marked", "Config", "len"), strict=True):  # fmt: skip
        content = saved({"a": [item]})
        with pytest.raises(SerializationError, match=rf"(?s)GLOBAL .*{name} was not an allowed global by default.*add_safe_globals\(\[{name}\]"):  # fmt: skip
            rabbet.load(io.BytesIO(content))
    with safe_globals([Config, Colour, Point, Slotted, Marked, len]):
        got = again(value)
        assert got[:3] == value[:3] and type(got[2]) is Point and got[3].a == 5
        assert type(got[4]) is Marked and got[4].note == "here" and got[5:] == [Config, len]


class OwnDict(dict):
    """A dict of its own class."""


def test_objects_that_pickle_refuses_are_refused():
    for value in ((i for i in ()), lambda: 1):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError), match="pickle"):
            saved({"x": [value]})


def test_depth_without_end_is_refused():
    value = []
    for _ in range(100_000):
        value = [value]
    for held in (value, OwnDict(a=value)):
        with pytest.raises(SerializationError, match="nested too deeply"):
            saved(held)


def test_a_tensor_inside_a_transform_is_refused():
    vmap = pytest.importorskip("rabbet.vmap").vmap
    with pytest.raises(SerializationError, match="at 'x' stands for others inside a transform"):
        vmap(lambda row: saved({"x": row}))(rabbet.ones(2, 3))


# ---- which form a file gets


def form(path):
    return "pt" if path.read_bytes()[:2] == b"PK" else "safetensors"


@pytest.mark.parametrize("name,value,expected", [
    ("x.pt", {"a": 1}, "pt"), ("x.PTH", {"a": 1}, "pt"), ("x.safetensors", {"a": 1}, "safetensors"),
    ("x", {"a": 1}, "safetensors"), ("x.ckpt", [1, {"n": None}], "safetensors"), ("x", {"a": {1, 2}}, "pt"),
    ("x.bin", [np.ones(2)], "pt"),
])  # fmt: skip
def test_the_form_follows_from_the_path_and_the_value(name, value, expected, tmp_path):
    rabbet.save(value, tmp_path / name)
    assert form(tmp_path / name) == expected and same(rabbet.load(tmp_path / name), value)


def test_the_form_can_be_said(tmp_path):
    rabbet.save({"a": 1}, tmp_path / "x.pt", format="safetensors")
    assert form(tmp_path / "x.pt") == "safetensors"
    rabbet.save({"a": 1}, tmp_path / "x.safetensors", format="pt")
    assert form(tmp_path / "x.safetensors") == "pt"
    with pytest.raises(ValueError, match="`format` to be one of pt, safetensors, got 'zip'"):
        rabbet.save(1, tmp_path / "x", format="zip")
    with pytest.raises(SerializationError, match="cannot store the set at 'a'"):
        rabbet.save({"a": {1}}, tmp_path / "y.safetensors")
    assert not (tmp_path / "y.safetensors").exists()


def test_keywords_of_pickle():
    for protocol in range(2, 6):
        assert again([1], pickle_module=pickle, pickle_protocol=protocol) == [1]
    for protocol in (0, 6, 2.0):
        with pytest.raises(ValueError, match="`pickle_protocol` from 1 to 5, got"):
            saved([1], pickle_protocol=protocol)
    with pytest.raises(TypeError, match="with a class Pickler, got types"):
        saved([1], pickle_module=types)


# ---- files


@pytest.mark.parametrize("opened", [gzip.open, bz2.open, lzma.open])
@pytest.mark.parametrize("options", [{"format": "pt"}, {"format": "pt", "_use_new_zipfile_serialization": False}, {"format": "safetensors"}])  # fmt: skip
def test_compressed_files(opened, options, tmp_path):
    with opened(tmp_path / "x", "wb") as file:
        rabbet.save({"x": rabbet.zeros(10_000)}, file, **options)
    assert (tmp_path / "x").stat().st_size < 5_000
    with opened(tmp_path / "x", "rb") as file:
        assert rabbet.load(file)["x"].shape == (10_000,)


def test_saved_files_are_mapped(tmp_path):
    rabbet.save({"x": rabbet.arange(1000.0), "b": rabbet.ones(3, dtype=rabbet.uint8), "z": rabbet.ones(1, dtype=rabbet.complex128)}, tmp_path / "x.pt")  # fmt: skip
    got = rabbet.load(tmp_path / "x.pt", mmap=True)
    assert got["x"].tolist() == list(range(1000)) and all(t.data_ptr() % 64 == 0 for t in got.values())  # fmt: skip
    rabbet.save({"x": 1}, tmp_path / "x.pt")
    assert got["x"][999] == 999 and rabbet.load(tmp_path / "x.pt") == {"x": 1}


KILLED = """
import os, signal, sys, rabbet
from rabbet._files import memory
def die(*args, **keywords):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "write":
    memory.snapshot = lambda t: die()
else:
    setattr(os, sys.argv[2], die)
rabbet.save({"x": rabbet.zeros(100_000)}, sys.argv[1])
"""


@pytest.mark.parametrize("when", ["write", "fsync", "rename"])
def test_a_kill_leaves_the_old_file(when, tmp_path):
    path = tmp_path / "x.pt"
    rabbet.save({"x": 1}, path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), when])
    assert done.returncode == -signal.SIGKILL and rabbet.load(path) == {"x": 1}
    rabbet.save({"x": 2}, path)
    assert rabbet.load(path) == {"x": 2} and os.listdir(tmp_path) == ["x.pt"]


def test_kills_at_any_time_leave_a_whole_file(tmp_path):
    path = tmp_path / "x.pt"
    code = (
        "import itertools, sys, rabbet\nfor i in itertools.count():\n"
        "    rabbet.save({'x': rabbet.full((200_000,), i)}, sys.argv[1])\n    print(i, flush=True)"
    )
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as p:
            for _ in range(3):
                p.stdout.readline()
            p.kill()
        x = rabbet.load(path)["x"]
        assert x.shape == (200_000,) and (x == x[0]).all()


def test_what_is_refused_leaves_the_old_file(tmp_path):
    rabbet.save({"x": 1}, tmp_path / "x.pt")
    with pytest.raises(TypeError):
        rabbet.save({"x": rabbet.ones(3), "y": (i for i in ())}, tmp_path / "x.pt")
    assert rabbet.load(tmp_path / "x.pt") == {"x": 1} and os.listdir(tmp_path) == ["x.pt"]


# ---- PyTorch itself, where it is installed


def agree(ours, theirs, torch):
    """Whether a value of ours is the same as one of torch's."""
    if isinstance(ours, rabbet.Tensor):
        looks = (tuple(ours.shape), tuple(ours.stride()), ours.dtype.name, ours.requires_grad) == (
            tuple(theirs.shape), tuple(theirs.stride()), str(theirs.dtype)[6:], theirs.requires_grad)  # fmt: skip
        return looks and (ours.is_meta or bytes_of(ours) == theirs.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if ours.numel() and ours.ndim else True)  # fmt: skip
    if isinstance(ours, dict):
        return list(map(str, ours)) == list(map(str, theirs)) and all(agree(a, b, torch) for a, b in zip(ours.values(), theirs.values(), strict=True))  # fmt: skip
    if isinstance(ours, rabbet.Size):
        return tuple(ours) == tuple(theirs)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(agree(a, b, torch) for a, b in zip(ours, theirs, strict=True))  # fmt: skip
    if isinstance(ours, (rabbet.dtype, rabbet.device, rabbet.layout)):
        return str(ours).rpartition(".")[2] == str(theirs).rpartition(".")[2]
    return type(ours) is type(theirs) and ours == theirs


def bytes_of(t):
    return t.detach().contiguous().flatten().view(rabbet.uint8).numpy().tobytes()


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_a_tree_with_weights_only(mmap, tmp_path):
    torch = pytest.importorskip("torch")
    value = tree()
    rabbet.save(value, tmp_path / "x.pt")
    got = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mmap)
    assert agree(value, got, torch)
    got["x"][1, 0] = 100
    assert got["t"][0, 1] == 100 and got["rows"][0, 0] == 100 and got["same"] is got["x"]


def test_torch_loads_models_and_optimizers(tmp_path):
    torch = pytest.importorskip("torch")
    nn, optim = pytest.importorskip("rabbet.nn"), pytest.importorskip("rabbet.optim")
    value, theirs = [], []
    for module, target in ((nn, value), (torch.nn, theirs)):
        model = module.Sequential(module.Linear(3, 4), module.BatchNorm1d(4), module.LSTM(4, 2))
        maker = optim.Adam if module is nn else torch.optim.Adam
        optimizer = maker(model.parameters(), lr=0.01)
        data = (rabbet if module is nn else torch).ones(2, 3)
        model(data)[0].sum().backward()
        optimizer.step()
        target.extend([model, optimizer])
    for save, load, name, (model, optimizer), (other, other_optimizer) in (
        (rabbet.save, torch.load, "ours.pt", value, theirs),
        (torch.save, rabbet.load, "theirs.pt", theirs, value),
    ):
        save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3},
            tmp_path / name,
        )
        got = load(tmp_path / name, weights_only=True)
        assert got["epoch"] == 3
        other.load_state_dict(got["model"])
        other_optimizer.load_state_dict(got["optimizer"])
    ours, torchs = value[0].state_dict(), theirs[0].state_dict()
    assert all(np.allclose(ours[k].numpy(), torchs[k].numpy()) for k in torchs)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_what_torch_writes_is_read(zipped, tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.arange(12.0).reshape(3, 4)
    value = {
        "x": x, "t": x.t(), "rows": x[1:], "wide": x[0].expand(2, 4), "scalar": torch.tensor(3), "empty": torch.zeros(0, 2),
        "channels": torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last), "grad": torch.ones(2, requires_grad=True),
        "dtypes": [torch.ones(2).to(getattr(torch, n)) for n in rabbet._C.dtype_names()], "size": torch.Size([1, 2]),
        "ordered": collections.OrderedDict(a=1), "dtype": torch.bfloat16, "device": torch.device("cpu"), "layout": torch.strided,
        "conj": None, "plain": [1, 2.5, None, True, "text", b"bytes", (1, 2), 1 + 2j, 2**70, {1, 2}],
    }  # fmt: skip
    torch.save(value, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    got = rabbet.load(tmp_path / "x.pt")
    assert agree(got, value, torch)
    got["x"][1, 0] = 100
    assert got["t"][0, 1] == 100 and got["rows"][0, 0] == 100
    torch.save({"conj": torch.tensor([1 + 2j]).conj(), "neg": torch.tensor([1 + 2j]).conj().imag}, tmp_path / "y.pt", _use_new_zipfile_serialization=zipped)  # fmt: skip
    got = rabbet.load(tmp_path / "y.pt")
    assert got["conj"].tolist() == [1 - 2j] and got["neg"].tolist() == [-2]
    torch.save({"s": torch.eye(2).to_sparse()}, tmp_path / "s.pt", _use_new_zipfile_serialization=zipped)  # fmt: skip
    with pytest.raises(SerializationError, match="sparse"):
        rabbet.load(tmp_path / "s.pt")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        SerializationError, match=r"whole Module|modules\.linear\.Linear was not an allowed"
    ):
        rabbet.load(tmp_path / "m.pt")
    nn = pytest.importorskip("rabbet.nn")
    assert type(rabbet.load(tmp_path / "m.pt", weights_only=False)) is nn.Linear
