"""save() and load(): round trips, exchange with safetensors, and damaged files."""

import json

import numpy as np
import pytest
import rabbet
from rabbet.serialization import SerializationError

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


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _entry(**changes):
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


DAMAGED = [
    (b"", "empty"),
    (b"abc", "truncated"),
    ((10**12).to_bytes(8, "little") + b"{}", "too large"),
    ((100).to_bytes(8, "little") + b"{}", "truncated"),
    (_file(b"not json"), "no JSON"),
    (_file([1]), "must be a JSON object"),
    (_file({"x": 3}), "lacks dtype"),
    (_file(_entry(dtype="F7"), b"\0" * 8), "unknown dtype 'F7'"),
    (_file(_entry(shape=[-2]), b"\0" * 8), "damaged shape"),
    (_file(_entry(), b"\0" * 4), "truncated"),
    (_file(_entry(shape=[3]), b"\0" * 8), "needs 12 bytes"),
    (
        _file(
            {**_entry(), "y": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, b"\0" * 12
        ),
        "overlap",
    ),
    (_file({"__metadata__": {"rabbet.skeleton": '{"t": "gone"}'}}), "does not hold"),
    (_file({"__metadata__": {"rabbet.skeleton": "{"}}), "skeleton is damaged"),
]


@pytest.mark.parametrize("content,message", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_explained(content, message, tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(SerializationError, match=message) as caught:
        rabbet.load(path)
    assert "damaged" in str(caught.value)


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_every_truncation_is_found(cut, tmp_path):
    rabbet.save({"x": rabbet.randn(50)}, tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(whole[:-cut])
    with pytest.raises(SerializationError, match="truncated"):
        rabbet.load(tmp_path / "x")


def test_what_cannot_be_stored_is_named_and_leaves_the_old_file(tmp_path):
    rabbet.save({"x": 1}, tmp_path / "x")
    with pytest.raises(SerializationError, match=r"cannot store the object at 'a\.b'"):
        rabbet.save({"a": {"b": object()}}, tmp_path / "x")
    assert rabbet.load(tmp_path / "x") == {"x": 1} and len(list(tmp_path.iterdir())) == 1


def test_a_missing_file_raises_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        rabbet.load(tmp_path / "nothing")
