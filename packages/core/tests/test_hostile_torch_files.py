"""load() of PyTorch's files that somebody made to do harm, that are damaged, or that end early: nothing is executed.

With weights_only=False only damage is refused: the user says that the file is trusted.
"""

import io
import os
import pickle
import random
import struct
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import rabbet
from hypothesis import given, settings
from hypothesis import strategies as st
from rabbet.serialization import SerializationError, UnpicklingError
from torch_layout import (  # fmt: skip
    HOOKS,
    Call,
    Name,
    Raw,
    Stored,
    instructions,
    legacy,
    parameter,
    pickled,
    storage,
    tensor,
    zipped,
)

FLOATS = struct.pack("<6f", *range(6))
ONE = tensor(storage("float32", "0", 6), [6], [1])


WATCHED = (
    "exec",
    "compile",
    "import",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.",
    "pickle.",
    "shutil.",
    "webbrowser.",
)
_events = None


def _hook(event, arguments):
    if _events is not None and event.startswith(WATCHED):
        _events.append((event, arguments))


sys.addaudithook(_hook)


def load(f, **options):
    """rabbet.load, of which Python's own audit says that it executes and imports nothing."""
    global _events
    _events = []
    try:
        return rabbet.load(io.BytesIO(f) if isinstance(f, bytes) else f, **options)
    finally:
        events, _events = _events, None
        assert not events


@pytest.fixture(autouse=True, scope="module")
def modules_are_there():
    """What loads when it is first needed does so before anything is watched."""
    for content in (GOOD, GOOD_LEGACY, zipped(parameter(ONE), {"0": FLOATS}), zipped(pickle.dumps(np.ones(2), 2)), zipped(pickle.dumps(np.ones(2), 5))):  # fmt: skip
        rabbet.load(io.BytesIO(content))


def test_the_audit_sees_what_it_shall():
    global _events
    _events = []
    eval("1")
    os.system("true")
    events, _events = _events, None
    assert {"compile", "exec", "os.system"} <= {event for event, _ in events}


def call(module, name, *args):
    return Call(Name(module, name), args)


def state_of(value, state):
    return Raw(instructions(value) + instructions(state) + b"b")


class Harm:
    def __reduce__(self):
        return os.system, ("true",)


DEEP = b"(" * 3000 + b")" + b"t" * 3000
KEY = instructions("k")
WIDE = b")q\x00" + b"0h\x00h\x00\x86q\x00" * 60  # a tuple of 2^60 values
WEAKER = Call(Name("torch._tensor", "_rebuild_from_type_v2"), (Name("os", "system"), Name("torch", "Tensor"), ("true",), {}))  # fmt: skip
QUANTIZED = call("torch._utils", "_rebuild_qtensor", storage("uint8", "0", 24), 0, (24,), (1,), (Name("torch", "uint8"), 0.1, 0), False, HOOKS)  # fmt: skip
SPARSE = call("torch._utils", "_rebuild_sparse_tensor", call("torch.serialization", "_get_layout", "torch.sparse_coo"), (ONE, ONE, (6,)))  # fmt: skip

# What the pickle of a zip file holds, and what the error says.
HOSTILE = {
    "os.system": (pickle.dumps(Harm(), 2), "GLOBAL posix.system whose module posix is blocked"),
    "os.system by a later protocol": (pickle.dumps(Harm(), 4), "GLOBAL posix.system whose module posix"),
    "sys": (pickled(Name("sys", "modules")), "GLOBAL sys.modules whose module sys is blocked"),
    "eval": (pickled(call("builtins", "eval", "1")), r"GLOBAL eval was not an allowed global.*add_safe_globals\(\[eval\]"),
    "exec of Python 2": (pickled(call("__builtin__", "exec", "1")), "GLOBAL exec was not an allowed"),
    "getattr": (pickled(call("builtins", "getattr", Name("torch", "Tensor"), "x")), "GLOBAL getattr was not an allowed"),
    "a subprocess": (pickled(call("subprocess", "Popen", "true")), "GLOBAL subprocess.Popen was not"),
    "an import": (pickled(Name("antigravity", "fly")), "GLOBAL antigravity.fly was not an allowed"),
    "a dotted name": (pickled(Name("collections", "OrderedDict.fromkeys")), "OrderedDict.fromkeys was not an allowed"),
    "import_module": (pickled(call("importlib", "import_module", "this")), "importlib.import_module was not"),
    "a function inside of a tensor": (pickled(WEAKER), "GLOBAL os.system whose module os is blocked"),
    "a list as a function": (pickled(Call([], ())), "reduce for unrecognized function list"),
    "a dtype as a function": (pickled(call("torch", "float32")), "reduce for unrecognized function dtype"),
    "encode with another codec": (pickled(call("_codecs", "encode", "x", "rot13")), "bytes of the file are damaged"),
    "a factory that runs code": (pickled(call("collections", "defaultdict", Name("torch.serialization", "_get_layout"))), "a defaultdict's factory"),
    "a bytearray of any size": (pickled(call("builtins", "bytearray", 1 << 60)), "a bytearray of the file is damaged"),
    "a state for a function": (pickled(state_of(Name("torch._utils", "_rebuild_tensor_v2"), {"__code__": 1})), "Can only build Tensor"),
    "a state for a class": (pickled(state_of(Name("collections", "OrderedDict"), {"x": 1})), "Can only build Tensor"),
    "a state that hides a method": (pickled(state_of(HOOKS, {"items": 1})), "would hide its method 'items'"),
    "a state of dunder names": (pickled(state_of(HOOKS, {"__class__": 1})), "would hide its method '__class__'"),
    "slots": (pickled(state_of(HOOKS, (None, {"x": 1}))), "the state of a OrderedDict is no dict"),
    "an attribute of a tensor that hides a method": (pickled(state_of(ONE, {"add": 1})), "would hide its method 'add'"),
    "new of a class that is no container": (pickled(Call(Name("torch", "Tensor"), (), None, pickle.NEWOBJ)), "Can only create new object"),
    "an old class": (b"\x80\x02(cos\nsystem\no.", "Unsupported operand|whose module os is blocked"),
    "an instance": (b"\x80\x02(ios\nsystem\n.", "Unsupported operand 105"),
    "an extension": (b"\x80\x02\x82\x01.", "Unsupported operand 130"),
    "a persistent id in text": (b"\x80\x02Pstorage\n.", "Unsupported operand 80"),
    "a buffer outside": (b"\x80\x05\x97.", "Unsupported operand 151"),
    "a text of 4 GB": (b"\x80\x02X\xff\xff\xff\xff.", "4294967295 bytes are wanted, 1 are left"),
    "bytes of 2^63": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 63) + b".", "bytes are wanted, 1 are left"),
    "an integer of 2 GB": (b"\x80\x02\x8b\xff\xff\xff\x7f.", "bytes are wanted, 1 are left"),
    "an empty stack": (b"\x80\x02.", "its stack is empty"),
    "an append to nothing": (b"\x80\x02Na.", "its stack is empty"),
    "an append to a tuple": (b"\x80\x02)Na.", "Can only APPEND for list, but got tuple"),
    "items for a list": (b"\x80\x02]NNs.", "Can only SETITEM for dict.* but got list"),
    "a key without a value": (b"\x80\x02}(Nu.", "a key has no value"),
    "a key that has no hash": (b"\x80\x02}]Ns.", "unhashable type"),
    "a deep key": (b"\x80\x02}" + DEEP + b"Ns.", "a key is a tuple of too many values"),
    "a key of 2^60 values": (b"\x80\x02}" + WIDE + b"Ns.", "a key is a tuple of too many values"),
    "a deep member of a set": (b"\x80\x04\x8f(" + DEEP + b"\x90.", "a key is a tuple of too many values"),
    "a value before it is made": (b"\x80\x02h\x05.", "value 5 is used before it is made"),
    "no mark": (b"\x80\x02NNt.", "its stack is empty"),
    "no end": (b"\x80\x02N", "1 bytes are wanted, 0 are left; it is truncated"),
    "nothing": (b"", "1 bytes are wanted, 0 are left; it is truncated"),
    "a name without an end": (b"\x80\x02ctorch", "the end of a name is missing"),
    "a name of no text": (b"\x80\x02c\xff\n\xff\n.", "codec can't decode"),
    "a stack of wrong names": (b"\x80\x04NN\x93.", "a global's name is no string"),
    "arguments in a list": (b"\x80\x02ctorch\nSize\n]R.", "the arguments of a call are no tuple but list"),
    "another persistent id": (pickled(Stored(("thing", "x", "y", "z", 1))), "Only persistent_load of storage is allowed"),
    "a persistent id of text": (pickled(Stored("storage")), "a persistent id of the file is damaged"),
    "a storage of no type": (pickled(Stored(("storage", "x", "0", "cpu", 6))), "a storage of the file has a damaged type"),
    "a storage of negative size": (pickled(storage("float32", "0", -6)), "a storage of the file has a damaged size"),
    "a storage of another size": (pickled(storage("float32", "0", 7)), "has 24 bytes, its storage 28"),
    "a storage of 2^61 elements": (pickled(storage("float32", "0", 1 << 61)), "has 24 bytes, its storage"),
    "a storage that is missing": (pickled(storage("float32", "1", 6)), "the record 'archive/data/1' of a storage is missing"),
    "a storage outside": (pickled(storage("float32", "../data.pkl", 6)), "of a storage is missing"),
    "a tensor beyond its storage": (pickled(tensor(storage("float32", "0", 6), [7], [1])), "reaches beyond its storage of 6"),
    "a stride beyond its storage": (pickled(tensor(storage("float32", "0", 6), [2], [6])), "reaches beyond its storage"),
    "an offset beyond its storage": (pickled(tensor(storage("float32", "0", 6), [1], [1], 6)), "reaches beyond its storage"),
    "an offset of 2^62": (pickled(tensor(storage("float32", "0", 6), [1], [1], 1 << 62)), "reaches beyond its storage"),
    "a negative offset": (pickled(tensor(storage("float32", "0", 6), [1], [1], -1)), "a tensor's geometry is damaged"),
    "a negative stride": (pickled(tensor(storage("float32", "0", 6), [2], [-1], 3)), "a tensor's stride is damaged"),
    "a size of fractions": (pickled(tensor(storage("float32", "0", 6), [1.5], [1])), "a tensor's size is damaged"),
    "more strides than sizes": (pickled(tensor(storage("float32", "0", 6), [1], [1, 1])), "a tensor's geometry is damaged"),
    "sizes that overflow": (pickled(tensor(storage("float32", "0", 6), [1 << 40, 1 << 40], [0, 0])), "a tensor's geometry is damaged"),
    "100 dimensions": (pickled(tensor(storage("float32", "0", 6), [1] * 100, [1] * 100)), "a tensor's geometry is damaged"),
    "a tensor of a number": (pickled(tensor(5, [1], [1])), "a tensor's storage is a int"),
    "a tensor that lacks arguments": (pickled(call("torch._utils", "_rebuild_tensor_v2", storage("float32", "0", 6))), "missing 3 required"),
    "an integer that wants gradients": (pickled(tensor(storage("int32", "0", 6), [6], [1], 0, True)), "the pickle is damaged: "),
    "a parameter of text": (pickled(call("torch._utils", "_rebuild_parameter", "x", True, HOOKS)), "the data of a Parameter is a str|pip install rabbet-nn"),
    "a size of text": (pickled(call("torch", "Size", ("a",))), "a tensor's size is damaged"),
    "a device of text": (pickled(call("torch", "device", "no device!")), "holds the device 'no device!'"),
    "a NumPy array of objects": (pickled(Call(Name("numpy", "dtype"), ("O8", False, True))), "only numbers, bools and strings"),
    "a NumPy array with too many bytes": (pickled(state_of(call("numpy.core.multiarray", "_reconstruct", Name("numpy", "ndarray"), (0,), "b"), (1, (9,), call("numpy", "dtype", "f8", False, True), False, "x"))), "do not fit its shape"),
    "a NumPy function": (pickled(call("numpy", "load", "x")), "GLOBAL numpy.load was not an allowed"),
    "a sparse tensor": (pickled(SPARSE), r"holds (a sparse tensor|the layout).*rabbet has not|sparse tensor, which rabbet has not: save tensor.to_dense"),
    "a quantized tensor": (pickled(QUANTIZED), r"a quantized tensor, which rabbet has not: save tensor.dequantize\(\)"),
    "a quantized storage": (pickled(Stored(("storage", Name("torch", "QUInt8Storage"), "0", "cpu", 24))), "a quantized tensor, which rabbet has not"),
    "a nested tensor": (pickled(call("torch._utils", "_rebuild_nested_tensor", ONE)), "a nested tensor, which rabbet has not"),
    "a dtype that is not there": (pickled(Name("torch", "qint8")), "holds torch.qint8, a dtype which rabbet has not"),
    "a function of PyTorch's": (pickled(call("torch", "from_file", "x")), "GLOBAL torch.from_file was not an allowed"),
    "a class of builtins that is not there": (pickled(Name("builtins", "OrderedDict")), "GLOBAL OrderedDict was not"),
    "a Module": (pickled(Call(Name("torch.nn.modules.linear", "Linear"), (), {}, pickle.NEWOBJ)), r"GLOBAL torch.nn.modules.linear.Linear was not an allowed global by default.*add_safe_globals\(\[Linear\]\)"),
}  # fmt: skip


def hostile_file(name, form):
    code, _ = HOSTILE[name]
    return zipped(code, {"0": FLOATS}) if form == "zip" else legacy(code, {"0": (6, FLOATS)})


@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused(name, form):
    message = HOSTILE[name][1] if form == "zip" else ".*"  # storages are looked at first
    for options in ({"weights_only": True}, {}):
        with pytest.raises(SerializationError, match=f"(?s){message}") as caught:
            load(hostile_file(name, form), **options)
        assert str(caught.value).startswith("<file>: ")
        if form == "zip" and "storage" not in name:
            assert isinstance(caught.value, pickle.UnpicklingError)


# What is wrong even if the user trusts the file.
DAMAGED = [
    "a list as a function", "a dtype as a function", "a bytearray of any size", "a state for a class", "an extension",
    "a persistent id in text", "a buffer outside", "a text of 4 GB", "bytes of 2^63", "an integer of 2 GB",
    "an empty stack", "an append to nothing", "an append to a tuple", "items for a list", "a key without a value",
    "a key that has no hash", "a value before it is made", "a name of no text", "a stack of wrong names",
    "arguments in a list", "another persistent id", "a persistent id of text", "a storage of no type",
    "a storage of negative size", "a storage of another size", "a storage of 2^61 elements",
    "a storage that is missing", "a storage outside", "a tensor beyond its storage", "a stride beyond its storage",
    "an offset beyond its storage", "an offset of 2^62", "a negative offset", "a negative stride",
    "a size of fractions", "more strides than sizes", "sizes that overflow", "100 dimensions", "a tensor of a number",
    "a tensor that lacks arguments", "an integer that wants gradients", "a parameter of text", "a sparse tensor",
    "a quantized tensor", "a quantized storage", "a nested tensor",
]  # fmt: skip


@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_pickle_is_refused_though_it_is_trusted(name, form):
    with pytest.raises(SerializationError) as caught:
        rabbet.load(io.BytesIO(hostile_file(name, form)), weights_only=False)
    assert str(caught.value).startswith("<file>: ")
    if form == "zip" and "storage" not in name:
        assert isinstance(caught.value, pickle.UnpicklingError)


PYTHON_1 = [pickle.dumps([1, "x", Harm()], protocol) for protocol in (0, 1)]


@pytest.mark.parametrize("protocol", [0, 1])
def test_pickles_of_python_1_are_refused(protocol):
    with pytest.raises(UnpicklingError, match=r"Unsupported operand|whose module posix is blocked"):
        load(zipped(PYTHON_1[protocol]))


def test_errors_are_pickles_and_rabbets():
    assert issubclass(UnpicklingError, SerializationError)
    assert issubclass(UnpicklingError, pickle.UnpicklingError)
    with pytest.raises(
        pickle.UnpicklingError, match=r"(?s)Weights only load failed\..*Unsupported global"
    ):
        load(zipped(pickled(Name("my", "Thing"))), weights_only=True)  # fmt: skip
    with pytest.raises(
        UnpicklingError,
        match=r"`weights_only` set to `False`(?s:.*)GLOBAL my\.Thing was not an allowed global",
    ):
        load(zipped(pickled(Name("my", "Thing"))))


def harmful(path):
    class Writes:
        def __reduce__(self):
            return open, (str(path), "w")

    return Writes()


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_only_weights_only_false_executes_what_a_file_names(form, protocol, tmp_path):
    code = pickle.dumps(harmful(tmp_path / "written"), protocol)
    content = zipped(code, {}) if form == "zip" else legacy(code, {})
    for options in ({}, {"weights_only": True}, {"weights_only": None}):
        with pytest.raises(UnpicklingError, match=r"GLOBAL io\.open was not|module"):
            load(content, **options)
        assert not (tmp_path / "written").exists()
    rabbet.load(io.BytesIO(content), weights_only=False).close()
    assert (tmp_path / "written").exists()


def test_what_a_call_in_a_trusted_file_raises_reaches_the_caller():
    import fractions  # a class of Python code: its frames say that the error is its own

    code = pickled(call("fractions", "Fraction", 1, 0))
    with pytest.raises(ZeroDivisionError):
        rabbet.load(io.BytesIO(zipped(code)), weights_only=False)
    assert fractions.Fraction(1, 2) == rabbet.load(
        io.BytesIO(zipped(pickled(call("fractions", "Fraction", 1, 2)))), weights_only=False
    )


@pytest.mark.parametrize("name", ["no_such_module_of_anybody", "torch.no_such_module"])
def test_a_class_that_is_nowhere_is_named(name):
    content = zipped(pickled(Name(name, "Thing")))
    with pytest.raises((ImportError, UnpicklingError), match=name):
        rabbet.load(io.BytesIO(content), weights_only=False)


@pytest.mark.parametrize("given", [2, "no", object()])
def test_weights_only_is_a_bool(given):
    with pytest.raises(TypeError, match="expected `weights_only` to be a bool or None"):
        rabbet.load(io.BytesIO(GOOD), weights_only=given)


# ---- containers

GOOD = zipped(ONE, {"0": FLOATS})
GOOD_LEGACY = legacy(tensor(Stored((*storage("float32", "0", 6).key, None)), [6], [1]), {"0": (6, FLOATS)})  # fmt: skip


def directory_entry(content, name, offset, form, value):
    """The archive with a field of a record's entry in the directory changed."""
    at = content.rindex(b"PK\x01\x02", 0, content.rindex(name.encode()))
    return content[: at + offset] + struct.pack(form, value) + content[at + offset + struct.calcsize(form) :]  # fmt: skip


FILES = {
    "a zip of other things": (zipped(ONE, root="a/b"), "a zip archive, but not one that torch.save wrote"),
    "an empty zip": (b"PK\x05\x06" + bytes(18), "a zip archive, but not one that torch.save wrote"),
    "TorchScript": (zipped(ONE, more={"constants.pkl": b"", "code/x.py": b""}), r"a TorchScript archive, which holds code: save the module's state_dict\(\)"),
    "no version": (zipped(ONE, {"0": FLOATS}, version=None), "the zip archive has no version"),
    "a version of no number": (zipped(ONE, {"0": FLOATS}, version=b"x"), "the zip archive has no version"),
    "a later version": (zipped(ONE, {"0": FLOATS}, version=b"11\n"), "a later PyTorch wrote it"),
    "an unknown byte order": (zipped(ONE, {"0": FLOATS}, order=b"middle"), "Unknown endianness type: b'middle'"),
    "a big-endian storage of bytes": (zipped(storage("bytes", "0", 24), {"0": FLOATS}, order=b"big"), "big-endian machine"),
    "an encrypted record": (directory_entry(GOOD, "archive/data/0", 8, "<H", 1), "encrypted or compressed in an unknown way"),
    "an unknown compression": (directory_entry(GOOD, "archive/data/0", 10, "<H", 14), "encrypted or compressed in an unknown way"),
    "a record of 4 GB": (directory_entry(directory_entry(GOOD, "archive/data/0", 20, "<I", 2**31), "archive/data/0", 24, "<I", 2**31), "truncated|damaged"),
    "a record of two sizes": (directory_entry(GOOD, "archive/data/0", 24, "<I", 28), "has a damaged size"),
    "a record that lies elsewhere": (directory_entry(GOOD, "archive/data/0", 42, "<I", 3), "damaged"),
    "records on top of each other": (directory_entry(GOOD, "archive/version", 42, "<I", GOOD.index(b"PK\x03\x04", 1)), "damaged"),
    "a bomb": (directory_entry(zipped(ONE, {"0": bytes(24)}, compression=zipfile.ZIP_DEFLATED), "archive/data/0", 24, "<I", 2**31), "has a damaged size"),
    "a magic number and no more": (pickled(0x1950A86A20F9469CFC6C), "truncated"),
    "another legacy version": (legacy([1], protocol=1002), "unknown version of PyTorch's legacy format"),
    "a big-endian legacy file": (legacy([1], little=False), "legacy format of a big-endian machine"),
    "legacy keys that do not fit": (legacy([1], {"0": (6, FLOATS)}), "the list of storages does not fit"),
    "legacy keys of no list": (legacy([1], keys=5), "the list of storages does not fit"),
    "a legacy storage of another size": (GOOD_LEGACY[:-32] + struct.pack("<q", 7) + FLOATS, "has 7 elements"),
    "a legacy storage of negative size": (GOOD_LEGACY[:-32] + struct.pack("<q", -6) + FLOATS, "has -6 elements"),
    "a legacy storage of 2^60": (legacy(tensor(Stored((*storage("float32", "0", 1 << 58).key, None)), [6], [1]), {"0": (1 << 58, FLOATS)}), "24 are left; the file is truncated"),
    "another pickle": (pickle.dumps({"a": 1}, 4), "a pickle, but not one that torch.save wrote"),
    "a pickle that harms": (pickle.dumps([Harm()] * 3, 2), "a pickle, but not one that torch.save wrote"),
    "a tar": (b"sys_info" + bytes(249) + b"ustar\x0000" + bytes(300), r"the \.tar format of PyTorch before 0\.2"),
}  # fmt: skip


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused(name, mmap, tmp_path):
    content, message = FILES[name]
    (tmp_path / "x.pt").write_bytes(content)
    if (mmap and "egacy" in name) or "magic" in name:
        message = "mmap=True needs the zip form|truncated"
    with pytest.raises(SerializationError, match=message) as caught:
        load(tmp_path / "x.pt", mmap=mmap)
    assert str(caught.value).startswith(str(tmp_path / "x.pt"))


def test_two_records_of_one_name_are_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", pickled([1]))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a/data.pkl", pickled([2]))
        archive.writestr("a/version", "3")
    file.seek(0)
    with pytest.raises(SerializationError, match="two records have one name"):
        load(file)


@pytest.mark.parametrize("content", [GOOD, GOOD_LEGACY], ids=["zip", "legacy"])
def test_every_truncation_is_found(content):
    for end in range(len(content)):
        with pytest.raises(SerializationError):
            load(content[:end])


def test_every_changed_byte_of_a_record_is_found():
    """The checksums cover names, values and data; what is left are fields that say nothing about the value."""
    harmless = 0
    for i in range(len(GOOD)):
        content = GOOD[:i] + bytes([GOOD[i] ^ 0x10]) + GOOD[i + 1 :]
        try:
            got = load(content)
        except SerializationError:
            continue
        assert got.tolist() == list(range(6)), i
        harmless += 1
    assert harmless < len(GOOD) // 2


EDITS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 30), st.binary(max_size=30)), min_size=1, max_size=4)  # fmt: skip
FUZZ = settings(max_examples=400, deadline=None)


def harmless(value):
    """Whether a value holds nothing but what files may hold."""
    allowed = (rabbet.Tensor, rabbet.TypedStorage, rabbet.UntypedStorage, rabbet.dtype, rabbet.device, str, bytes,
               int, float, complex, type(None), bytearray, list, dict, tuple, set, frozenset, slice, range)  # fmt: skip
    return isinstance(value, allowed) or type(value).__module__ in ("numpy", "pathlib", "argparse", "types", "rabbet._files.torch_names", "builtins")  # fmt: skip


def judge(content):
    for verify in (True, False):
        try:
            value = load(content, verify=verify)
        except SerializationError:
            continue
        assert harmless(value)


@FUZZ
@given(EDITS, st.booleans())
def test_edited_files(edits, zip_form):
    content = GOOD if zip_form else GOOD_LEGACY
    for start, count, inserted in edits:
        content = content[:start] + inserted + content[start + count :]
    judge(content)


PARTS = st.sampled_from([
    *(bytes([i]) for i in range(256)), instructions(ONE), instructions(HOOKS), instructions(parameter(ONE)), KEY,
    instructions(storage("float32", "0", 6)), b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy\nndarray\n",
    b"cnumpy\ndtype\n", instructions(("f8", False, True)), b"q\x00", b"h\x00", b"(", b"t", b"R", b"b", b"}", b"]", b")",
    b"\x81", b"\x92", b"\x93", b"cos\nsystem\n", b"cbuiltins\neval\n", b"ccollections\ndefaultdict\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch\nTensor\n", b"s", b"u", b"a", b"e", b"Q", b"\x86", b"\x87",
])  # fmt: skip


@FUZZ
@given(st.lists(PARTS, max_size=40))
def test_made_up_pickles(parts):
    judge(zipped(b"\x80\x02" + b"".join(parts) + b".", {"0": FLOATS}))


def test_made_up_pickles_of_valid_parts():
    draw = random.Random(5)
    parts = [instructions(v) for v in (ONE, HOOKS, 5, "x", None, [1], {"a": 1}, (1, 2))]
    moves = [
        b"(",
        b"t",
        b"R",
        b"b",
        b"s",
        b"u",
        b"a",
        b"e",
        b"q\x00",
        b"h\x00",
        b"\x85",
        b"\x86",
        b"\x81",
        b"0",
        b"2",
    ]
    for _ in range(2000):
        code = b"".join(
            draw.choice(parts if draw.random() < 0.5 else moves) for _ in range(draw.randrange(30))
        )
        judge(zipped(b"\x80\x02" + code + b".", {"0": FLOATS}))  # fmt: skip


FRUGAL = """
import io, resource, sys, rabbet
from rabbet.serialization import SerializationError
content = open(sys.argv[1], "rb").read()
rabbet.load(io.BytesIO(open(sys.argv[2], "rb").read()))
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20), size + (256 << 20)))
try:
    rabbet.load(io.BytesIO(content))
except SerializationError as error:
    print(type(error).__name__)
"""
COSTLY = {
    "a text": zipped(b"\x80\x02X\xff\xff\xff\xff."),
    "a memo": zipped(b"\x80\x02Nr\xff\xff\xff\xff0."),
    "a storage": legacy(
        tensor(Stored((*storage("float32", "0", 1 << 40).key, None)), [6], [1]),
        {"0": (1 << 40, FLOATS)},
    ),
    "a bomb": FILES["a bomb"][0],
    "an array": zipped(HOSTILE["a NumPy array with too many bytes"][0]),
}


@pytest.mark.parametrize("name", COSTLY)
def test_made_up_sizes_cost_no_memory(name, tmp_path):
    (tmp_path / "x").write_bytes(COSTLY[name])
    (tmp_path / "good").write_bytes(GOOD)
    command = [sys.executable, "-c", FRUGAL, str(tmp_path / "x"), str(tmp_path / "good")]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.endswith("Error\n"), done.stderr
    assert time.monotonic() - started < 30
