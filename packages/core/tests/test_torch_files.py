"""load() of PyTorch's files: the zip and the legacy form, written here byte by byte."""

import argparse
import collections
import gc
import io
import pathlib
import pickle
import struct
import types
import zipfile

import numpy as np
import pytest
import rabbet
from rabbet.serialization import (
    LoadEndianness,
    SerializationError,
    UnpicklingError,
    safe_globals,
    set_default_load_endianness,
)
from torch_layout import (  # fmt: skip
    HOOKS,
    STORAGES,
    Call,
    Name,
    Raw,
    Stored,
    legacy,
    parameter,
    storage,
    tensor,
    zipped,
)

FLOATS = struct.pack("<6f", *range(6))


def load(content, **options):
    return rabbet.load(io.BytesIO(content), **options)


def both(value, dtype="float32", data=FLOATS):
    """The value of both forms, with one storage '0' or none."""
    if data is None:
        return [load(zipped(value)), load(legacy(in_legacy(value)))]
    count = len(data) // getattr(rabbet, dtype).itemsize
    return [load(zipped(value, {"0": data})), load(legacy(in_legacy(value), {"0": (count, data)}))]


def in_legacy(value):
    """The value with the sixth part of persistent ids that the legacy form has."""
    if isinstance(value, Stored):
        return Stored((*value.key, None))
    if isinstance(value, Call):
        return Call(in_legacy(value.function), in_legacy(value.args), in_legacy(value.state), value.instruction, value.items)  # fmt: skip
    if isinstance(value, Name) or not isinstance(value, (list, tuple, dict)):
        return value
    if isinstance(value, dict):
        return {k: in_legacy(v) for k, v in value.items()}
    return type(value)(map(in_legacy, value))


# ---- tensors

VALUES = {
    "bool": [True, False, True], "uint8": [0, 7, 255], "int8": [-128, 0, 127], "int16": [-2, 1, 300],
    "int32": [-(2**31), 0, 5], "int64": [2**62, -1, 3], "float16": [0.5, -1.5, 2048.0], "float32": [0.5, -1.5, 2.0**100],
    "float64": [0.1, -1e300, 3.0], "bfloat16": [1.0, -2.0, 0.5], "complex64": [1 + 2j, -1j, 0j],
    "complex128": [0.1 + 2j, -1j, 0j],
}  # fmt: skip


def bytes_of(dtype, values, order="<"):
    if dtype == "bfloat16":  # the upper halves of float32
        return b"".join(struct.pack(f"{order}I", struct.unpack("<I", struct.pack("<f", v))[0] >> 16)[slice(2, 4) if order == ">" else slice(2)] for v in values)  # fmt: skip
    return np.array(values, np.dtype(dtype).newbyteorder(order)).tobytes()


@pytest.mark.parametrize("dtype", STORAGES)
def test_every_dtype_is_read_in_both_forms(dtype):
    data = bytes_of(dtype, VALUES[dtype])
    for got in both(tensor(storage(dtype, "0", 3), [3], [1]), dtype, data):
        assert got.dtype is getattr(rabbet, dtype) and got.tolist() == VALUES[dtype]
        assert type(got) is rabbet.Tensor and not got.requires_grad and got.device.type == "cpu"


@pytest.mark.parametrize("dtype", STORAGES)
def test_a_big_endian_zip_is_read(dtype):
    data = bytes_of(dtype, VALUES[dtype], ">")
    value = tensor(storage(dtype, "0", 3), [3], [1])
    assert load(zipped(value, {"0": data}, order=b"big")).tolist() == VALUES[dtype]


def test_a_file_without_a_mark_has_the_default_byte_order():
    content = zipped(
        tensor(storage("int16", "0", 1), [1], [1]), {"0": struct.pack(">h", 5)}, order=None
    )
    assert rabbet.serialization.get_default_load_endianness() is None
    assert load(content).tolist() == [5 << 8]
    try:
        set_default_load_endianness(LoadEndianness.BIG)
        assert load(content).tolist() == [5]
    finally:
        set_default_load_endianness(None)
    with pytest.raises(TypeError, match="Invalid argument type in function set_default_load"):
        set_default_load_endianness("big")


@pytest.mark.parametrize("dtype,data", [("uint16", struct.pack("<2H", 1, 65535)), ("uint64", struct.pack("<2Q", 1, 2**64 - 1)), ("float8_e4m3fn", b"\x38\xb8")])  # fmt: skip
def test_dtypes_without_a_storage_class_come_with_bytes(dtype, data):
    args = (storage("bytes", "0", len(data)), 0, (2,), (1,), False, HOOKS, Name("torch", dtype))
    value = Call(Name("torch._utils", "_rebuild_tensor_v3"), args)
    for got in (load(zipped(value, {"0": data})), load(legacy(in_legacy(value), {"0": (len(data), data)}))):  # fmt: skip
        expected = [1.0, -1.0] if dtype.startswith("float8") else [1, 2 ** (8 * len(data) // 2) - 1]
        assert got.dtype is getattr(rabbet, dtype) and got.tolist() == expected


def test_views_of_one_storage_share_memory_and_keep_their_strides():
    whole = storage("float32", "0", 6)
    value = [
        tensor(whole, [2, 3], [3, 1]),
        tensor(whole, [3, 2], [1, 3]),
        tensor(whole, [2], [2], 1),
        tensor(whole, [4, 2], [0, 1], 4),
        tensor(whole, [], [], 5),
        tensor(whole, [0, 3], [3, 1], 6),
    ]
    for a, t, step, wide, scalar, empty in both(value):
        assert a.tolist() == [[0, 1, 2], [3, 4, 5]] and t.stride() == (1, 3)
        assert step.tolist() == [1, 3] and step.storage_offset() == 1
        assert wide.tolist() == [[4, 5]] * 4 and wide.stride() == (0, 1)
        assert scalar.shape == () and scalar.item() == 5 and empty.shape == (0, 3)
        a[1, 2] = 9
        assert t[2, 1] == 9 and wide[0, 1] == 9 and scalar.item() == 9
        assert a.untyped_storage() == step.untyped_storage()


def test_channels_last_stays():
    value = tensor(storage("float32", "0", 6), [1, 2, 3, 1], [6, 1, 2, 2])
    for got in both(value):
        assert got.stride() == (6, 1, 2, 2) and got.is_contiguous(
            memory_format=rabbet.channels_last
        )
        assert got[0, :, :, 0].tolist() == [[0, 2, 4], [1, 3, 5]]  # fmt: skip


def test_an_empty_storage():
    for got in both(tensor(storage("float32", "0", 0), [0, 2], [2, 1]), data=b""):
        assert got.shape == (0, 2) and got.dtype is rabbet.float32


def test_requires_grad_and_conjugates():
    whole = storage("float32", "0", 6)
    for got in both(tensor(whole, [6], [1], 0, True)):
        assert got.requires_grad and got.is_leaf
    value = tensor(
        storage("complex64", "0", 3), [3], [1], 0, False, {Raw(instructions_of("conj")): True}
    )
    for got in both(value, "complex64"):
        assert got.tolist() == [0 - 1j, 2 - 3j, 4 - 5j]


def instructions_of(text):
    return pickle.dumps(text, 2)[2:-1]


def test_the_oldest_form_of_a_tensor():
    args = (storage("float32", "0", 6), 1, (2,), (2,))
    for got in both(Call(Name("torch._utils", "_rebuild_tensor"), args)):
        assert got.tolist() == [1, 3]


def test_a_tensor_of_the_meta_device():
    args = (Name("torch", "bfloat16"), (2, 3), (1, 2), False)
    for got in both(Call(Name("torch._utils", "_rebuild_meta_tensor_no_storage"), args), data=None):
        assert got.is_meta and got.stride() == (1, 2) and got.dtype is rabbet.bfloat16


def test_parameters_buffers_and_attributes():
    nn = pytest.importorskip("rabbet.nn")
    t = tensor(storage("float32", "0", 6), [6], [1])
    state = Call(
        Name("torch._utils", "_rebuild_parameter_with_state"), (t, False, HOOKS, {"tag": [1]})
    )
    of_type = Name("torch._tensor", "_rebuild_from_type_v2")
    buffer = Call(of_type, (t.function, Name("torch", "Tensor"), t.args, {"persistent": False, "_is_buffer": True}))  # fmt: skip
    marked = Call(of_type, (t.function, Name("torch", "Tensor"), t.args, {"mark": "here"}))
    cast = Call(of_type, (t.function, Name("torch.nn.parameter", "Parameter"), t.args, {}), None)
    for p, s, b, m in both([parameter(t), state, buffer, marked]):
        assert type(p) is nn.Parameter and p.requires_grad and p.tolist() == list(range(6))
        assert type(s) is nn.Parameter and not s.requires_grad and s.tag == [1]
        assert type(b) is nn.Buffer and b.persistent is False and not hasattr(b, "_is_buffer")
        assert type(m) is rabbet.Tensor and m.mark == "here"
        s[0] = 5
        assert p[0] == 5 and b[0] == 5
    with pytest.raises(UnpicklingError, match="of the class Parameter"):
        load(zipped(cast, {"0": FLOATS}))


def test_storages_as_values():
    untyped, typed = load(
        zipped([storage("bytes", "0", 24), storage("float32", "0", 6)], {"0": FLOATS})
    )
    assert isinstance(untyped, rabbet.UntypedStorage) and untyped.nbytes() == 24
    assert isinstance(typed, rabbet.TypedStorage) and typed.tolist() == list(range(6))
    assert typed.untyped() == untyped


# ---- values of Python

A = ("_codecs", "encode")
CONTAINERS = [
    ({"a": [1, (2.5, None)], 3: True}, {"a": [1, (2.5, None)], 3: True}),
    (Call(Name("collections", "OrderedDict"), (), {"_metadata": {"": {"version": 2}}}, items={"b": 1, "a": 2}),
     collections.OrderedDict(b=1, a=2)),
    (Call(Name("collections", "OrderedDict"), ([["b", 1], ["a", 2]],)), collections.OrderedDict(b=1, a=2)),
    (Call(Name("collections", "defaultdict"), (Name("__builtin__", "list"),), items={"x": [1]}),
     collections.defaultdict(list, x=[1])),
    (Call(Name("collections", "Counter"), ({"a": 2},)), collections.Counter("aa")),
    (Call(Name("__builtin__", "set"), ([1, "x"],)), {1, "x"}),
    (Call(Name("builtins", "frozenset"), ([1],)), frozenset([1])),
    (Call(Name("__builtin__", "complex"), (1.0, -2.0)), 1 - 2j),
    (Call(Name(*A), ("\u00e4b", "latin1")), b"\xe4b"),
    (Call(Name("__builtin__", "bytearray"), ("\u00e4", "latin1")), bytearray(b"\xe4")),
    (Call(Name("__builtin__", "slice"), (1, None, 2)), slice(1, None, 2)),
    (Call(Name("__builtin__", "range"), (1, 5, 2)), range(1, 5, 2)),
    (Call(Name("torch", "Size"), ((2, 3),)), rabbet.Size([2, 3])),
    (Call(Name("torch", "device"), ("cpu",)), rabbet.device("cpu")),
    (Call(Name("torch.serialization", "_get_layout"), ("torch.strided",)), rabbet.strided),
    (Name("torch", "float16"), rabbet.float16),
    (Call(Name("pathlib", "PosixPath"), ("/", "a")), pathlib.Path("/a")),
    (Call(Name("argparse", "Namespace"), (), {"lr": 0.1}, pickle.NEWOBJ), argparse.Namespace(lr=0.1)),
    (Call(Name("types", "SimpleNamespace"), (), {"x": 1}), types.SimpleNamespace(x=1)),
    ([2**70, -(2**40), 255, 256, -1, 65536, 1e-300, float("inf"), "\u20ac", "", "\ud800", False],
     [2**70, -(2**40), 255, 256, -1, 65536, 1e-300, float("inf"), "\u20ac", "", "\ud800", False]),
]  # fmt: skip


@pytest.mark.parametrize("value,expected", CONTAINERS, ids=range(len(CONTAINERS)))
def test_plain_values_come_back(value, expected):
    for got in both(value, data=None):
        assert got == expected and type(got) is type(expected)


def test_attributes_of_an_ordered_dict_and_a_factory():
    got = load(zipped(CONTAINERS[1][0]))
    assert got._metadata == {"": {"version": 2}}
    assert load(zipped(CONTAINERS[3][0]))["new"] == []


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_pickles_of_all_protocols(protocol):
    shared = [1]
    value = {"a": {1, 2}, "b": b"\0\xff", "c": bytearray(b"x"), "d": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
             "e": frozenset([3]), "f": [shared, shared], "g": 2**3000, "h": "x" * 300, "i": "short", "j": 1j,
             "k": collections.OrderedDict(x=1), "l": [None] * 2000}  # fmt: skip
    got = load(zipped(pickle.dumps(value, protocol)))
    assert got == value and got["f"][0] is got["f"][1]


def test_a_list_that_holds_itself():
    value = []
    value.append(value)
    got = load(zipped(pickle.dumps(value, 2)))
    assert got[0] is got


ARRAYS = [
    np.arange(6.0).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.array(3, np.int16), np.zeros((0, 2), np.complex64),
    np.array([True, False]), np.array(["a", "bcd"]), np.array([b"x", b"yz"]), np.array([1, 2], ">i4"),
    np.float32(1.5), np.int64(-3), np.bool_(True), np.complex128(1j), np.dtype("float16"), np.dtype(">u2"),
    np.asfortranarray(np.ones((2, 2), np.float16)),
]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("value", ARRAYS, ids=lambda v: repr(v)[:30])
def test_arrays_and_scalars_of_numpy(value, protocol):
    got = load(zipped(pickle.dumps({"x": value}, protocol)))["x"]
    value = pickle.loads(pickle.dumps(value, protocol))  # NumPy makes some arrays native
    assert type(got) is type(value)
    if isinstance(value, np.dtype):
        assert got == value
    else:
        assert got.dtype == value.dtype and got.shape == value.shape and np.array_equal(got, value)
    if isinstance(value, np.ndarray) and value.size:
        got[...] = got  # it can be written
    assert np.dtype("int32").isnative and np.dtype("uint16").isnative


def test_numpys_older_module_names():
    code = pickle.dumps(np.arange(3.0), 2).replace(
        b"numpy._core.multiarray", b"numpy.core.multiarray"
    )
    assert load(zipped(code)).tolist() == [0, 1, 2]  # fmt: skip


@pytest.mark.parametrize("value", [np.array([object()]), np.zeros(2, "i4,f4"), np.array(["2020"], "M8[D]")], ids=["object", "fields", "time"])  # fmt: skip
def test_arrays_of_other_things_are_refused(value):
    with pytest.raises(UnpicklingError, match="only numbers, bools and strings are read"):
        load(zipped(pickle.dumps(value, 2)))


def test_byte_strings_of_python_2():
    value = {
        b"w": tensor(Stored((b"storage", Name("torch", "FloatStorage"), b"0", b"cpu", 6)), [6], [1])
    }
    for encoding, key in (("utf-8", "w"), ("latin1", "w"), ("bytes", b"w")):
        assert list(load(zipped(value, {"0": FLOATS}), encoding=encoding)) == [key]  # fmt: skip
    with pytest.raises(UnpicklingError, match="codec can't decode"):
        load(zipped({b"\xe4": 1}))
    assert load(zipped({b"\xe4": 1}), encoding="latin1") == {"\u00e4": 1}


OPTIMIZER = {
    "state": {0: {"step": tensor(storage("float32", "1", 1), [], []),
                  "exp_avg": tensor(storage("float32", "0", 6), [2, 3], [3, 1])}},
    "param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "foreach": None, "params": [0]}],
}  # fmt: skip


def test_the_state_of_an_optimizer():
    got = load(zipped(OPTIMIZER, {"0": FLOATS, "1": struct.pack("<f", 7)}))
    assert got["state"][0]["step"].item() == 7 and got["state"][0]["exp_avg"].shape == (2, 3)
    assert got["param_groups"] == OPTIMIZER["param_groups"]


# ---- files

ONE = tensor(storage("float32", "0", 6), [6], [1])


def test_records_may_be_compressed_and_the_archive_may_have_any_name():
    data = struct.pack("<6000f", *range(6000))
    value = tensor(storage("float32", "0", 6000), [6000], [1])
    content = zipped(value, {"0": data}, compression=zipfile.ZIP_DEFLATED, root="my model")
    assert len(content) < len(data) and load(content).tolist() == list(range(6000))


def test_what_else_an_archive_holds_is_left_alone():
    more = {".data/serialization_id": b"12", ".format_version": b"1", "extra/files": b"?"}
    assert load(zipped(ONE, {"0": FLOATS, "unused": b"x"}, more=more)).tolist() == list(range(6))


def test_a_file_is_read_from_where_it_stands():
    for content in (zipped(ONE, {"0": FLOATS}), legacy(in_legacy(ONE), {"0": (6, FLOATS)})):
        file = io.BytesIO(b"before" + content)
        file.seek(6)
        assert rabbet.load(file).tolist() == list(range(6))


def test_legacy_values_one_after_the_other(tmp_path):
    one = legacy([1], {})
    two = legacy(in_legacy(ONE), {"0": (6, FLOATS)})
    file = io.BytesIO(one + two + one)
    assert rabbet.load(file) == [1] and rabbet.load(file).tolist() == list(range(6))
    assert rabbet.load(file) == [1]
    (tmp_path / "x").write_bytes(one + two)
    with open(tmp_path / "x", "rb", buffering=0) as raw:
        assert rabbet.load(raw) == [1] and rabbet.load(raw).tolist() == list(range(6))


def test_views_of_storages_in_the_oldest_files_are_refused():
    view = Stored(("storage", Name("torch", "FloatStorage"), "0", "cpu", 6, ("v", 2, 3)))
    with pytest.raises(
        UnpicklingError, match=r"a view of a storage, as PyTorch before 0\.4 wrote it"
    ):
        load(legacy(tensor(view, [3], [1]), {"0": (6, FLOATS)}))


def test_checksums_can_be_left_out():
    content = bytearray(zipped(ONE, {"0": FLOATS}))
    content[content.index(FLOATS)] ^= 1
    with pytest.raises(
        SerializationError, match=r"the record 'archive/data/0' is damaged: its CRC"
    ):
        load(bytes(content))  # fmt: skip
    assert load(bytes(content), verify=False).shape == (6,)


def test_files_whose_checksums_were_never_computed():
    content = zipped(ONE, {"0": FLOATS})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            content = content.replace(struct.pack("<I", info.CRC), bytes(4))
    assert load(content).tolist() == list(range(6))


# ---- options


def at(location, **options):
    return load(zipped(tensor(storage("float32", "0", 6, location), [6], [1]), {"0": FLOATS}), **options)  # fmt: skip


def test_map_location_takes_all_its_forms():
    device = rabbet.device("cpu")
    restore = rabbet.serialization.default_restore_location
    forms = [lambda s, place: restore(s, "cpu"), "cpu", device, {"cuda:1": "cpu"}, {"cuda:1": device}, lambda s, place: s, lambda s, place: s.cpu(),
             lambda s, place: rabbet.TypedStorage(rabbet.arange(6.0))]  # fmt: skip
    for form in forms:
        assert at("cuda:1", map_location=form).tolist() == list(range(6))
    assert at("cpu", map_location={"cuda:1": "meta"}).tolist() == list(range(6))
    assert at("cuda:1", map_location="meta").is_meta


def test_a_function_sees_each_storage_once_and_where_it_was():
    seen = []

    def place(stored, location):
        seen.append((type(stored), stored.nbytes(), location))

    whole = storage("float32", "0", 6)
    value = [
        tensor(whole, [6], [1]),
        tensor(whole, [3], [1]),
        tensor(storage("int64", "1", 1), [1], [1]),
    ]
    load(zipped(value, {"0": FLOATS, "1": bytes(8)}), map_location=place)  # fmt: skip
    assert seen == [(rabbet.UntypedStorage, 24, "cpu"), (rabbet.UntypedStorage, 8, "cpu")]


def test_a_device_that_is_not_there_is_named_with_what_to_do():
    for form in (None, {"cpu": "cpu"}, lambda s, place: None):
        with pytest.raises(SerializationError, match=r"device 'cuda:1', which is not available .*map_location=device\('cpu'\)"):  # fmt: skip
            at("cuda:1", map_location=form)
    restore = rabbet.serialization.default_restore_location
    with pytest.raises(SerializationError, match="on the device 'cuda:1', which is not available"):
        at("cuda:1", map_location=restore)
    assert rabbet.serialization.location_tag(rabbet.ones(1).untyped_storage()) == "cpu"
    with pytest.raises(TypeError, match="must return a UntypedStorage or None, got int"):
        at("cpu", map_location=lambda s, place: 3)
    with pytest.raises(TypeError, match="`map_location` to be a device, a dict, a function or None, got list"):  # fmt: skip
        at("cpu", map_location=["cpu"])


@pytest.mark.parametrize("location", [None, "meta"])
def test_map_location_of_the_legacy_form_keeps_sharing(location):
    whole = in_legacy(storage("float32", "0", 6))
    content = legacy([tensor(whole, [6], [1]), tensor(whole, [2], [1], 4)], {"0": (6, FLOATS)})
    a, b = load(content, map_location=location)
    assert a._storage_id() == b._storage_id() and a.is_meta == (location == "meta")


def test_mapped_tensors_are_the_file_until_they_are_written(tmp_path):
    path, data = tmp_path / "x.pt", bytes(2**16)
    path.write_bytes(zipped(tensor(storage("float32", "0", 2**14), [2**14], [1]), {"0": data}))
    before = path.read_bytes()
    got = rabbet.load(path, mmap=True)
    got += 1
    assert path.read_bytes() == before and got.tolist() == [1] * 2**14
    odd = zipped(tensor(storage("int64", "0", 1), [1], [1]), {"0": struct.pack("<q", 5)}, root="a")
    for root in ("a", "ab", "abc", "abcd", "abcdefg"):
        path.write_bytes(zipped(tensor(storage("int64", "0", 1), [1], [1]), {"0": struct.pack("<q", 5)}, root=root))  # fmt: skip
        assert rabbet.load(path, mmap=True).tolist() == [5]
    damaged = bytearray(odd)
    damaged[damaged.index(struct.pack("<q", 5))] ^= 2
    path.write_bytes(damaged)
    with pytest.raises(SerializationError, match="the record 'a/data/0' is damaged"):
        rabbet.load(path, mmap=True)
    assert rabbet.load(path, mmap=True, verify=False).tolist() == [7]


def test_what_cannot_be_mapped_is_refused(tmp_path):
    with pytest.raises(ValueError, match="load: mmap=True needs a path"):
        rabbet.load(io.BytesIO(zipped([1])), mmap=True)
    (tmp_path / "x").write_bytes(legacy([1]))
    with pytest.raises(SerializationError, match="mmap=True needs the zip form"):
        rabbet.load(tmp_path / "x", mmap=True)


def test_memory_is_given_back_with_the_last_tensor(tmp_path):
    (tmp_path / "x").write_bytes(zipped(OPTIMIZER, {"0": FLOATS, "1": bytes(4)}))
    rabbet.load(tmp_path / "x")
    gc.collect()
    before = rabbet._C.live_counts()
    for mmap in (False, True):
        rabbet.load(tmp_path / "x", mmap=mmap)
        gc.collect()
        assert rabbet._C.live_counts() == before


def test_keywords_of_pickle():
    content = zipped([1])
    assert load(content, weights_only=None) == [1]
    assert load(content, weights_only=False, pickle_module=pickle) == [1]
    assert load(content, pickle_module=pickle) == [1]
    with pytest.raises(
        RuntimeError, match="Can not safely load weights when explicit pickle_module"
    ):
        load(content, weights_only=True, pickle_module=pickle)
    with pytest.raises(TypeError, match="with a class Unpickler, got types"):
        load(content, weights_only=False, pickle_module=types)


# ---- classes of the user


class Config:
    """A class of a user."""

    def __init__(self, *args):
        self.args = args


class Marked(rabbet.Tensor):
    """A class of tensors of a user."""


def test_a_class_that_was_declared_is_made():
    config = Config()
    config.lr = [1]
    content = zipped(pickle.dumps({"c": config}, 2))
    name = f"{Config.__module__}.Config"
    with pytest.raises(UnpicklingError, match=rf"GLOBAL {name} was not an allowed global.*add_safe_globals"):  # fmt: skip
        load(content)
    with safe_globals([Config]):
        got = load(content)["c"]
        assert type(got) is Config and got.lr == [1]
    with safe_globals([(Config, "elsewhere.Other")]):
        got = load(zipped(Call(Name("elsewhere", "Other"), (1, 2))))
        assert type(got) is Config and got.args == (1, 2)
    with pytest.raises(UnpicklingError):
        load(content)


def test_classes_of_rabbet_have_their_names_of_pytorch():
    got = rabbet.random.fork_rng
    content = zipped(Name("torch.random", "fork_rng"))
    with pytest.raises(UnpicklingError, match=r"GLOBAL torch\.random\.fork_rng was not an allowed"):
        load(content)
    with safe_globals([got]):
        assert load(content) is got
        file = io.BytesIO()
        rabbet.save(got, file, format="pt")
        assert b"torch.random\nfork_rng" in file.getvalue()
        assert load(file.getvalue()) is got


def test_functions_can_be_declared_but_not_of_blocked_modules():
    with safe_globals([(sum, "my.total")]):
        assert load(zipped(Call(Name("my", "total"), ([1, 2, 3],)))) == 6
    with safe_globals([(sum, "os.total")]), pytest.raises(UnpicklingError, match=r"GLOBAL os\.total whose module os is blocked"):  # fmt: skip
        load(zipped(Call(Name("os", "total"), ([1, 2, 3],))))
    with pytest.raises(ValueError, match="expected pairs"):
        rabbet.serialization.add_safe_globals([(sum, "a", "b")])
    with pytest.raises(TypeError, match="the name in files must be a str, got int"):
        rabbet.serialization.add_safe_globals([(sum, 3)])


def test_a_class_of_tensors_comes_back_if_it_is_declared():
    cls = Name(Marked.__module__, "Marked")
    value = Call(Name("torch._tensor", "_rebuild_from_type_v2"), (ONE.function, cls, ONE.args, {"note": 1}))  # fmt: skip
    with pytest.raises(UnpicklingError, match="Marked was not an allowed global"):
        load(zipped(value, {"0": FLOATS}))
    with safe_globals([Marked]):
        got = load(zipped(value, {"0": FLOATS}))
    assert type(got) is Marked and got.note == 1 and got.tolist() == list(range(6))


def test_the_names_that_would_be_refused_are_listed(tmp_path):
    value = [Call(Name("os", "system"), ("true",)), ONE, Call(Name("my", "Thing"), (), {}), {}]
    content = zipped(value, {"0": FLOATS})
    unsafe = rabbet.serialization.get_unsafe_globals_in_checkpoint
    assert unsafe(io.BytesIO(content)) == ["my.Thing", "os.system"]
    (tmp_path / "x").write_bytes(content)
    with safe_globals([(Config, "my.Thing")]):
        assert unsafe(tmp_path / "x") == ["os.system"]
    with pytest.raises(ValueError, match="is in no zip form of PyTorch's"):
        unsafe(io.BytesIO(legacy([1])))


def test_a_device_that_does_not_exist_here_is_named():
    assert load(zipped(Call(Name("torch", "device"), ("cuda", 1)))) == rabbet.device("cuda:1")
    with pytest.raises(UnpicklingError, match="holds the device 'moon:1' as a value: no backend"):
        load(zipped(Call(Name("torch", "device"), ("moon", 1))))
