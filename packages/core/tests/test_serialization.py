"""save() and load(): round trips, shared memory, exchange with safetensors, files of earlier versions."""

import enum
import gc
import io
import subprocess
import sys

import numpy as np
import pytest
import rabbet
from rabbet.serialization import SerializationError, safe_globals

DTYPES = [
    "bool",
    "uint8",
    "int16",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex128",
]


def test_a_structure_comes_back_as_it_was(tmp_path):
    shared = rabbet.randn(3)
    value = {
        "model": {
            "w": shared,
            "tied": shared,
            3: [1, 2.5, None, True, "text", b"bytes", (1, 2), 1 + 2j],
        },
        "nan": float("nan"),
        "dtype": rabbet.float16,
        "empty": rabbet.zeros(0, 2),
        "scalar": rabbet.tensor(4),
    }
    rabbet.save(value, tmp_path / "x.rb")
    got = rabbet.load(tmp_path / "x.rb")
    assert got["model"]["w"] is got["model"]["tied"] and rabbet.equal(got["model"]["w"], shared)
    assert (
        got["model"][3] == value["model"][3]
        and np.isnan(got["nan"])
        and got["dtype"] is rabbet.float16
    )
    assert got["empty"].shape == (0, 2) and got["scalar"].item() == 4


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_survives(name, tmp_path):
    x = rabbet.arange(6).reshape(2, 3).to(getattr(rabbet, name))
    rabbet.save({"x": x.t()}, tmp_path / "x.safetensors")
    got = rabbet.load(tmp_path / "x.safetensors")["x"]
    assert got.dtype is x.dtype and got.tolist() == x.t().tolist()


def test_files_are_exchanged_with_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    rabbet.save({"a": rabbet.ones(2, 3), "b": rabbet.arange(4)}, tmp_path / "ours.safetensors")
    theirs = safetensors.load_file(tmp_path / "ours.safetensors")
    assert theirs["a"].tolist() == np.ones((2, 3)).tolist() and theirs["b"].tolist() == [0, 1, 2, 3]
    safetensors.save_file({"c": np.eye(3)}, tmp_path / "theirs.safetensors")
    assert rabbet.load(tmp_path / "theirs.safetensors")["c"].tolist() == np.eye(3).tolist()


def test_what_cannot_be_stored_is_named_and_leaves_the_old_file(tmp_path):
    rabbet.save({"x": 1}, tmp_path / "x")
    with pytest.raises(SerializationError, match=r"cannot store the object at 'a\.b'"):
        rabbet.save({"a": {"b": object()}}, tmp_path / "x", format="safetensors")
    assert rabbet.load(tmp_path / "x") == {"x": 1} and len(list(tmp_path.iterdir())) == 1


def test_a_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        rabbet.load(tmp_path / "nothing")


def again(value, **options):
    """The value after a way through a file."""
    file = io.BytesIO()
    rabbet.save(value, file)
    file.seek(0)
    return rabbet.load(file, **options)


# ---- names

X, Y = [1.0, 2.0], [3.0, 4.0]
COLLIDING = [
    {"a": {"b": X}, "a.b": Y},
    {"a.b": X, "a": {"b": Y}},
    {1: X, "1": Y},
    {None: X, "None": Y},
    {True: X, "True": Y},
    {"a": [X], "a.0": Y},
    {"a#2": X, "a": {"": Y}, "a.": X},
    {"__metadata__": X},
    {"__metadata__": X, "__metadata__#2": Y},
    {"rabbet.crc32": X, "rabbet.skeleton": Y, "rabbet.version": X},
    {"\ud800": X, "\\ud800": Y},
    {"": X, "tensor": Y},
    {(1, "k"): X, 2.5: Y, b"bytes": X},
    {"t": X, "d": {"r": Y}},
]


def as_tensors(value):
    if isinstance(value, dict):
        return {k: as_tensors(v) for k, v in value.items()}
    numbers = isinstance(value[0], float)
    return rabbet.tensor(value) if numbers else [as_tensors(v) for v in value]


def as_lists(value):
    if isinstance(value, dict):
        return {k: as_lists(v) for k, v in value.items()}
    return [as_lists(v) for v in value] if isinstance(value, list) else value.tolist()


@pytest.mark.parametrize("value", COLLIDING, ids=range(len(COLLIDING)))
def test_every_key_keeps_its_own_tensor(value):
    got = as_lists(again(as_tensors(value)))
    assert got == value and [type(k) for k in got] == [type(k) for k in value]


# ---- memory


def test_views_of_one_storage_share_memory_after_load():
    x = rabbet.arange(12.0).reshape(3, 4)
    got = again({"x": x, "rows": x[1:], "t": x.t(), "even": [x[:, ::2]], "other": x.clone()})
    assert got["t"].stride() == (1, 4) and got["even"][0].stride() == (4, 2)
    assert got["rows"].tolist() == x[1:].tolist() and got["even"][0].tolist() == x[:, ::2].tolist()
    got["rows"][0, 0] = 100
    assert got["x"][1, 0] == 100 and got["t"][0, 1] == 100 and got["even"][0][1, 0] == 100
    assert got["other"].tolist() == x.tolist()


def test_views_share_though_nothing_saved_is_all_of_them(tmp_path):
    x = rabbet.arange(1000.0)
    rabbet.save([x[100:103], x[102:105]], tmp_path / "x")
    assert (tmp_path / "x").stat().st_size < 1000
    for mmap in (False, True):
        first, second = rabbet.load(tmp_path / "x", mmap=mmap)
        assert first.tolist() == [100, 101, 102] and second.tolist() == [102, 103, 104]
        first[2] = -1
        assert second[0] == -1


def test_views_in_another_dtype_share():
    data = rabbet.arange(9, dtype=rabbet.uint8)
    got = again([data, data[:4].view(rabbet.int32), data[4:8].view(rabbet.int16)])
    got[0][0] = 7
    assert got[1].item() == 0x03020107 and got[2].tolist() == [0x0504, 0x0706]


@pytest.mark.parametrize("mmap", [False, True])
def test_views_in_another_dtype_are_aligned(mmap, tmp_path):
    data = rabbet.arange(9, dtype=rabbet.uint8)
    one = rabbet.ones(1, dtype=rabbet.uint8)
    rabbet.save([one, data, data[4:8].view(rabbet.int32)], tmp_path / "x")
    _, bytes_, view = rabbet.load(tmp_path / "x", mmap=mmap)
    assert view.data_ptr() % 4 == 0 and view.item() == 0x07060504
    bytes_[4] = 0
    assert view.item() == 0x07060500


def test_separate_parts_of_one_storage_stay_ordinary_entries():
    parts = dict(zip("abc", rabbet.arange(9.0).split(3), strict=True))
    file = io.BytesIO()
    rabbet.save(parts, file)
    assert b"rabbet.skeleton" not in file.getvalue() and as_lists(again(parts)) == as_lists(parts)


def test_one_tensor_stays_one_and_two_stay_two():
    x = rabbet.ones(3)
    one, two, other = again([x, x, x.detach()])
    assert one is two and other is not one
    other.zero_()
    assert one.tolist() == [0, 0, 0]


def test_expanded_and_empty_views_come_back():
    x = rabbet.arange(3.0)
    got = again([x, x.expand(4, 3), x[3:], x[:0].reshape(0, 5)])
    assert got[1].stride() == (0, 1) and got[1].tolist() == [[0, 1, 2]] * 4
    assert got[2].shape == (0,) and got[3].shape == (0, 5)


# ---- what a tensor is beside its values


class Marked(rabbet.Tensor):
    """A class of tensors of a user."""


def test_requires_grad_and_attributes_come_back():
    x, y = rabbet.ones(2, requires_grad=True), rabbet.zeros(2)
    y.note = {"of": x}
    got = again({"x": x, "twice": x * 2, "y": y})
    assert got["x"].requires_grad and got["x"].is_leaf and not got["y"].requires_grad
    assert got["twice"].requires_grad and got["twice"].is_leaf
    assert got["y"].note["of"] is got["x"]


def test_views_of_a_leaf_need_no_gradients():
    x = rabbet.ones(3, requires_grad=True)
    leaf, view = again([x, x.detach()[1:]])
    assert leaf.requires_grad and not view.requires_grad
    view[0] = 5
    assert leaf.tolist() == [1, 5, 1]


def test_a_class_of_a_user_comes_back_if_it_is_made_known():
    value = rabbet.Tensor._make_subclass(Marked, rabbet.ones(2))
    value.mark = "here"
    file = io.BytesIO()
    with pytest.raises(
        SerializationError, match=r"at 'a\.0' is of the class .*Marked.*add_safe_globals"
    ):
        rabbet.save({"a": [value]}, file)
    with safe_globals([Marked]):
        rabbet.save({"a": [value]}, file)
        file.seek(0)
        got = rabbet.load(file)["a"][0]
        assert type(got) is Marked and got.mark == "here" and got.tolist() == [1, 1]
    file.seek(0)
    with pytest.raises(SerializationError, match=r"class '.*Marked'.*add_safe_globals"):
        rabbet.load(file)


def test_safe_globals_are_classes_and_end_with_their_block():
    with pytest.raises(TypeError, match=r"expected classes, functions, .* got str"):
        rabbet.serialization.add_safe_globals(["os.system"])
    with safe_globals([Marked]):
        assert rabbet.serialization.get_safe_globals() == [Marked]
    assert rabbet.serialization.get_safe_globals() == []


# ---- other values


class Colour(enum.IntEnum):
    RED = 7


LEAVES = [
    2**62, 2**63, -(2**64), 10**5000, 0, Colour.RED, 1e300, float("inf"), -float("inf"), complex(1, float("inf")), "",
    "\ud800", b"", b"\0", (), [], {}, ((),), rabbet.float8_e4m3fn, rabbet.device("cpu"), rabbet.strided,
    rabbet.channels_last, rabbet.Size([2, 3]),
]  # fmt: skip


@pytest.mark.parametrize("value", LEAVES, ids=range(len(LEAVES)))
def test_a_value_comes_back(value):
    assert again([value, {"k": value}]) == [value, {"k": value}]


def test_a_value_that_holds_itself_is_refused():
    value = {"a": []}
    value["a"].append(value)
    with pytest.raises(SerializationError, match=r"the dict at 'a\.0' holds itself"):
        again(value)


def test_depth_is_limited_in_both_directions():
    def nested(depth):
        value = []
        for _ in range(depth - 1):
            value = [value]
        return value

    assert again(nested(100)) == nested(100)
    with pytest.raises(SerializationError, match="nested more than 100 deep"):
        again(nested(101))
    with pytest.raises(SerializationError, match="nested more than 100 deep"):
        again(nested(100_000))


REFUSED = [
    (lambda: rabbet.ones(2, device="meta"), "on the meta device and has no data"),
    (lambda: {1, 2}, "cannot store the set at 'x'"),
    (lambda: len, "cannot store the builtin_function_or_method at 'x'"),
    (lambda: np.ones(2), "cannot store the ndarray at 'x'"),
]


@pytest.mark.parametrize("make,message", REFUSED)
def test_a_value_that_no_file_can_hold_is_refused(make, message):
    file = io.BytesIO()
    with pytest.raises(SerializationError, match=message):
        rabbet.save({"x": make()}, file, format="safetensors")
    assert not file.getvalue()


def test_a_tensor_inside_a_transform_is_refused():
    rabbet_vmap = pytest.importorskip("rabbet.vmap").vmap

    def save(row):
        again({"x": row})

    with pytest.raises(SerializationError, match="at 'x' stands for others inside a transform"):
        rabbet_vmap(save)(rabbet.ones(2, 3))


@pytest.mark.parametrize("function", ["save", "load"])
def test_what_is_no_file_is_refused(function):
    arguments = ({}, 3) if function == "save" else (3,)
    message = f"{function}: expected `f` to be a path or a binary file, got int"
    with pytest.raises(TypeError, match=message):
        getattr(rabbet, function)(*arguments)


def test_a_file_of_text_is_refused(tmp_path):
    (tmp_path / "x").write_text("text")
    with open(tmp_path / "x") as file, pytest.raises(TypeError, match="expected a binary file"):
        rabbet.load(file)


# ---- files and their memory


class Dribble(io.RawIOBase):
    """Reads and writes 7 bytes at once, and cannot seek."""

    def __init__(self, data=b""):
        self.data = bytearray(data)

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        count = min(7, len(buffer), len(self.data))
        buffer[:count] = self.data[:count]
        del self.data[:count]
        return count

    def write(self, data):
        self.data += bytes(data[:7])
        return min(7, len(data))


def test_files_that_cannot_seek_will_do():
    value = {"x": rabbet.arange(100.0)}
    file = Dribble()
    rabbet.save(value, file)
    assert rabbet.load(Dribble(file.data))["x"].tolist() == list(range(100))


def test_a_file_is_read_from_where_it_stands():
    file = io.BytesIO(b"before")
    file.seek(6)
    rabbet.save({"x": 1}, file)
    file.seek(6)
    assert rabbet.load(file) == {"x": 1}


LIVES = """
import os, sys, rabbet
path = sys.argv[1]
x = rabbet.load(path)["x"]
os.truncate(path, 0)
assert x.sum().item() == 2**20
x += 1
"""


def test_truncating_a_loaded_file_does_no_harm(tmp_path):
    rabbet.save({"x": rabbet.ones(2**20)}, tmp_path / "x")
    done = subprocess.run(
        [sys.executable, "-c", LIVES, str(tmp_path / "x")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_overwriting_a_loaded_file_changes_no_tensor(tmp_path):
    rabbet.save({"x": rabbet.ones(2**12)}, tmp_path / "x")
    x = rabbet.load(tmp_path / "x")["x"]
    size = (tmp_path / "x").stat().st_size
    with open(tmp_path / "x", "r+b") as file:
        file.write(b"\x41" * size)
    assert x.tolist() == [1] * 2**12


def test_mapped_tensors_are_the_file_until_they_are_written(tmp_path):
    path = tmp_path / "x"
    rabbet.save({"x": rabbet.ones(2**12), "odd": rabbet.ones(3, dtype=rabbet.uint8)}, path)
    before = path.read_bytes()
    got = rabbet.load(path, mmap=True)
    got["x"] += 1
    got["odd"] += 1
    assert path.read_bytes() == before and got["x"].tolist() == [2] * 2**12
    mapped = rabbet.load(path, mmap=True)["x"]
    with open(path, "r+b") as file:  # the documented hazard shows that the file is mapped
        file.seek(-(2**14) - 3, 2)
        file.write(bytes(4))
    assert mapped[0] == 0
    rabbet.save({"x": rabbet.zeros(1)}, path)
    assert mapped[1] == 1


@pytest.mark.parametrize("mmap", [False, True])
def test_memory_is_given_back_with_the_last_tensor(mmap, tmp_path):
    x = rabbet.ones(3, requires_grad=True)
    rabbet.save({"x": [x, x.detach()[1:]], "w": rabbet.ones(100)}, tmp_path / "x")
    rabbet.load(tmp_path / "x")
    gc.collect()
    before = rabbet._C.live_counts()
    gc.disable()
    try:
        rabbet.load(tmp_path / "x", mmap=mmap)
        assert rabbet._C.live_counts() == before
    finally:
        gc.enable()


def test_mapping_needs_a_path():
    with pytest.raises(ValueError, match="load: mmap=True needs a path"):
        rabbet.load(io.BytesIO(b""), mmap=True)


@pytest.mark.parametrize("mmap", [False, True])
def test_map_location_keeps_sharing(mmap, tmp_path):
    x = rabbet.ones(4)
    rabbet.save([x, x[1:]], tmp_path / "x")
    seen = []

    def move(t, device):
        seen.append(device)
        return t * 2 if len(seen) == 1 else None

    whole, part = rabbet.load(tmp_path / "x", move, mmap=mmap)
    whole[1] = 5
    assert part.tolist() == [5, 2, 2] and seen == ["cpu"]
    assert rabbet.load(tmp_path / "x", "meta")[1].is_meta
    with pytest.raises(TypeError, match="map_location must return a Tensor or None, got int"):
        rabbet.load(tmp_path / "x", lambda t, device: 3)


# ---- other writers and readers


def test_other_readers_find_the_tensors_of_nested_values_by_their_paths(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    x = rabbet.arange(6.0).reshape(2, 3)
    value = {"a": [{"b": x.t()}, rabbet.ones(3, dtype=rabbet.int8)], "n": 3}
    rabbet.save(value, tmp_path / "x")
    with safetensors.safe_open(tmp_path / "x", "np") as file:
        assert sorted(file.keys()) == ["a.0.b", "a.1"]
        assert file.get_tensor("a.1").tolist() == [1, 1, 1]
        assert file.metadata()["format"] == "rabbet"


def test_dtypes_of_a_plain_dict_are_read_by_others(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    names = [
        n for n in DTYPES if n not in ("bfloat16", "complex128")
    ]  # what NumPy and safetensors lack
    value = {name: rabbet.ones(3).to(getattr(rabbet, name)) for name in names}
    value["empty"] = rabbet.ones(0, 3)
    rabbet.save(value, tmp_path / "x")
    theirs = safetensors.load_file(tmp_path / "x")
    assert list(rabbet.load(tmp_path / "x")) == list(value) and set(theirs) == set(value)
    for name, array in theirs.items():
        assert array.tolist() == value[name].tolist(), name


# What version 1 wrote: no checksums.
OLD = (
    b'x\x02\x00\x00\x00\x00\x00\x00{"__metadata__":{"format":"rabbet","rabbet.skeleton":"{\\"d\\": [[\\"model\\", '
    b'{\\"d\\": [[\\"w\\", {\\"t\\": \\"model.w\\"}], [\\"tied\\", {\\"t\\": \\"model.w\\"}], [3, {\\"l\\": [1, 2.5, '
    b'null, true, \\"text\\", {\\"b\\": \\"Ynl0ZXM=\\"}, {\\"u\\": [1, 2]}, {\\"c\\": [1.0, 2.0]}]}]]}], [\\"nan\\", '
    b'{\\"f\\": \\"nan\\"}], [\\"dtype\\", {\\"y\\": \\"float16\\"}], [\\"empty\\", {\\"t\\": \\"empty\\"}], '
    b'[\\"scalar\\", {\\"t\\": \\"scalar\\"}]]}"},"model.w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
    b'"empty":{"dtype":"F32","shape":[0,2],"data_offsets":[24,24]},"scalar":{"dtype":"I64","shape":[],'
    b'"data_offsets":[24,32]}}                                                        \x00\x00\x00\x00\x00\x00'
    b"\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x80@\x00\x00\xa0@\x04\x00\x00\x00\x00\x00\x00\x00"
)
OLD_PLAIN = (
    b'\xb8\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"format":"rabbet"},"b":{"dtype":"BOOL","shape":[3],'
    b'"data_offsets":[0,3]},"h":{"dtype":"BF16","shape":[2],"data_offsets":[3,7]}}                                 '
    b"       \x01\x00\x01\x80?\x80?"
)


@pytest.mark.parametrize("mmap", [False, True])
def test_files_of_the_first_version_are_read(mmap, tmp_path):
    (tmp_path / "x").write_bytes(OLD)
    got = rabbet.load(tmp_path / "x", mmap=mmap)
    assert got["model"]["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert got["model"]["tied"] is got["model"]["w"]
    assert got["model"][3] == [1, 2.5, None, True, "text", b"bytes", (1, 2), 1 + 2j]
    assert np.isnan(got["nan"]) and got["dtype"] is rabbet.float16
    assert got["empty"].shape == (0, 2) and got["scalar"].item() == 4
    (tmp_path / "x").write_bytes(OLD_PLAIN)
    got = rabbet.load(tmp_path / "x", mmap=mmap)
    assert got["b"].tolist() == [True, False, True] and got["h"].tolist() == [1, 1]
    assert got["h"].dtype is rabbet.bfloat16
