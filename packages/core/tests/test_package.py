"""rabbet.package: the contents of packages, the actions of patterns, and reading."""

import importlib.resources
import importlib.util
import io
import os
import pickle
import subprocess
import sys
import traceback
import zipfile

import numpy as np
import pytest
import rabbet
from rabbet.package import (
    Directory,
    EmptyMatchError,
    GlobGroup,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)
from rabbet.package.analyze import find_first_use_of_broken_modules, trace_dependencies
from rabbet.serialization import SerializationError

PROJECT = {
    "packed/__init__.py": "LEVEL = 1\n",
    "packed/net.py": """
import math
import numpy as np
from . import helper
from .helper import double
from packed.heavy import thing


class Net:
    class Options:
        pass

    def __init__(self, weight):
        self.weight = weight
        self.options = Net.Options()

    def __call__(self, x):
        return double(x) * self.weight + math.floor(0.5)

    def fails(self):
        raise ValueError("inside")
""",
    "packed/helper.py": "import packed.deep.more\n\n\ndef double(x):\n    return 2 * x\n",
    "packed/deep/__init__.py": "",
    "packed/deep/more.py": "NUMBER = 3\n",
    "packed/heavy.py": "thing = 5\n",
    "packed/odd.py": "def f():\n    import not_installed_anywhere\n",
    "packed/custom.py": """
class Custom:
    def __init__(self, name):
        self.name = name

    def __reduce_package__(self, exporter):
        name = f"custom_{exporter.get_unique_id()}.txt"
        exporter.save_text("customs", name, self.name)
        return load, (name,)


def load(importer, name):
    return Custom(importer.load_text("customs", name) + "!")
""",
    "packed/resources.py": """
def texts():
    import torch_package_importer

    return torch_package_importer.load_text(__package__ + ".data", "a.txt")
""",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Makes the modules of a project importable."""
    for name, text in PROJECT.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] == "packed"]:
        del sys.modules[name]


def packaged(*steps, **options):
    """A file with the package that the steps write, positioned at its start."""
    file = io.BytesIO()
    with PackageExporter(file, **options) as exporter:
        for step in steps:
            step(exporter)
    file.seek(0)
    return file


def usual(exporter):
    exporter.extern("numpy.**")
    exporter.mock("packed.heavy")
    exporter.intern("packed.**")


def net_of(weight):
    from packed.net import Net

    return Net(weight)


# ---- values


def test_values_and_their_modules_come_back(project):
    weight = rabbet.arange(4.0)
    net = net_of(weight[1:])
    value = {"net": net, "all": weight, "n": np.arange(2), "dtype": rabbet.int8, "p": rabbet.nn.Parameter(weight)}  # fmt: skip
    file = packaged(usual, lambda e: e.save_pickle("model", "net.pkl", value))
    importer = PackageImporter(file)
    found = importer.load_pickle("model", "net.pkl")
    assert type(found["net"]) is not type(net)
    assert type(found["net"]).__module__ == f"{importer.id()}.packed.net"
    assert type(found["net"].options) is importer.import_module("packed.net").Net.Options
    assert found["net"](rabbet.ones(3)).tolist() == [2, 4, 6]
    found["all"][1] = 9
    assert found["net"].weight[0] == 9 and found["p"][1] == 9  # one storage
    assert isinstance(found["p"], rabbet.nn.Parameter) and found["dtype"] is rabbet.int8
    assert found["n"].tolist() == [0, 1]
    assert is_from_package(found["net"]) and not is_from_package(net)
    assert is_from_package(importer.import_module("packed.net")) and not is_from_package(np)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_each_protocol_of_pickle_is_read(project, protocol):
    value = [net_of(rabbet.ones(2)), rabbet.ones(2).untyped_storage(), type(net_of(1)).Options]
    file = packaged(usual, lambda e: e.save_pickle("m", "v", value, pickle_protocol=protocol))
    net, storage, nested = PackageImporter(file).load_pickle("m", "v")
    assert net.weight.tolist() == [1, 1] and storage.nbytes() == 8
    assert nested.__qualname__ == "Net.Options"


def test_modules_of_rabbet_are_pickled_by_their_names_in_pytorch():
    net = rabbet.nn.Sequential(rabbet.nn.Linear(2, 3), rabbet.nn.ReLU())
    file = packaged(lambda e: e.save_pickle("m", "net", net))
    importer = PackageImporter(file)
    assert "torch.nn.modules.linear" in importer.extern_modules
    assert not any(name.startswith("rabbet") for name in importer.extern_modules)
    x = rabbet.ones(1, 2)
    assert importer.load_pickle("m", "net")(x).tolist() == net(x).tolist()
    meta = importer.load_pickle("m", "net", map_location="meta")
    assert meta[0].weight.is_meta


def test_storages_are_stored_once_for_all_pickles(project):
    x = rabbet.arange(1000.0)
    file = packaged(lambda e: e.save_pickle("m", "a", x), lambda e: e.save_pickle("m", "b", [x[3:], x.untyped_storage()]))  # fmt: skip
    names = zipfile.ZipFile(file).namelist()
    assert [n for n in names if n.endswith(".storage")] == ["archive/.data/0.storage"]
    first, (second, storage) = (PackageImporter(file).load_pickle("m", n) for n in "ab")
    assert first.sum() == x.sum() and second.tolist() == x[3:].tolist() and storage.nbytes() == 4000


def test_texts_and_bytes_come_back_and_the_tree_shows_them(project):
    file = packaged(
        lambda e: e.save_text("res.deep", "t.txt", "é"),
        lambda e: e.save_binary("res", "b", b"\0\1"),
        lambda e: e.save_text("", "top", "x"),
    )
    importer = PackageImporter(file)
    assert importer.load_text("res.deep", "t.txt") == "é"
    assert importer.load_text("res.deep", "t.txt", "ascii", "ignore") == ""
    assert importer.load_binary("res", "b") == b"\0\1" and importer.load_text("", "top") == "x"
    assert importer.python_version().split(".")[0] == "3"
    tree = importer.file_structure(include="res/**", exclude="**/b")
    assert isinstance(tree, Directory) and tree.has_file("res/deep/t.txt")
    assert not tree.has_file("res/b") and not tree.has_file("top")
    assert str(tree) == "─── <binary>\n    └── res\n        └── deep\n            └── t.txt\n"


def test_objects_may_write_and_make_themselves(project):
    from packed.custom import Custom

    custom = Custom("me")
    file = packaged(usual, lambda e: e.save_pickle("m", "c", [custom, custom, Custom("you")]))
    importer = PackageImporter(file)
    first, again, other = importer.load_pickle("m", "c")
    assert first is again and (first.name, other.name) == ("me!", "you!")
    assert importer.load_text("customs", "custom_1.txt") == "you"


# ---- modules


def test_patterns_decide_what_happens_to_modules(project):
    seen = []
    exporter = PackageExporter(io.BytesIO())
    exporter.deny("json.**")
    usual(exporter)
    for action in ("intern", "extern", "mock"):
        register = getattr(exporter, f"register_{action}_hook")
        register(lambda e, name, action=action: seen.append((action, name)))
    register(lambda e, name: seen.append("removed")).remove()
    exporter.save_pickle("m", "p", net_of(1))
    assert set(exporter.interned_modules()) == {"packed.net", "packed.helper", "packed.deep.more"}
    assert set(exporter.externed_modules()) == {"builtins", "math", "numpy"}
    assert exporter.mocked_modules() == ["packed.heavy"] and exporter.denied_modules() == []
    assert exporter.get_rdeps("packed.helper") == ["packed.net"] and exporter.get_rdeps("x") == []
    assert '"packed.net" -> "packed.helper";' in exporter.dependency_graph_string()
    paths = exporter.all_paths("<m.p>", "packed.deep.more")
    assert '"packed.helper" -> "packed.deep.more";' in paths and "numpy" not in paths
    with pytest.raises(ValueError, match="nowhere"):
        exporter.all_paths("nowhere", "packed.net")
    exporter.close()
    assert ("intern", "packed.net") in seen and ("mock", "packed.heavy") in seen
    assert ("extern", "numpy") in seen and "removed" not in seen


def test_mocked_modules_can_be_imported_but_not_used(project):
    importer = PackageImporter(packaged(usual, lambda e: e.save_module("packed.net")))
    thing = importer.import_module("packed.net").thing
    assert repr(thing) == f"MockedObject({importer.id()}.packed.heavy.thing)"
    uses = {
        "__call__": lambda: thing(),
        "__getattr__": lambda: thing.x,
        "__add__": lambda: thing + 1,
        "__eq__": lambda: thing == 1,
        "__bool__": lambda: bool(thing),
        "__setattr__": lambda: setattr(thing, "x", 1),
        "__instancecheck__": lambda: isinstance(1, thing),
    }
    for use, call in uses.items():
        with pytest.raises(NotImplementedError, match=rf"heavy\.thing' was mocked out.*in {use}"):
            call()


def test_sources_are_found_and_shown_in_tracebacks(project):
    importer = PackageImporter(packaged(usual, lambda e: e.save_module("packed.net")))
    module = importer.import_module("packed.net")
    assert importer.get_source("packed.net") == PROJECT["packed/net.py"]
    assert module.__file__ == f"{importer.id()}.packed/net.py" and module.__torch_package__
    assert module.helper is importer.import_module(".helper", "packed")
    with pytest.raises(ValueError, match="inside") as error:
        module.Net(1).fails()
    assert 'raise ValueError("inside")' in "".join(traceback.format_tb(error.tb))


def test_modules_of_a_package_are_apart_from_those_of_the_program(project):
    import packed.helper

    file = packaged(usual, lambda e: e.save_module("packed.helper"))
    packed.helper.double = None
    importer, other = PackageImporter(file), PackageImporter(file)
    module = importer.import_module("packed.helper")
    assert module.double(2) == 4 and module is not packed.helper and "packed" in sys.modules
    assert module is not other.import_module("packed.helper")
    assert not hasattr(importer.import_module("packed"), "LEVEL")  # __init__.py is not packaged
    for name in ("packed.net", "packed.nothing", "json", "os"):
        with pytest.raises(ModuleNotFoundError, match="in self-contained archive"):
            importer.import_module(name)


def test_external_modules_are_the_programs(project):
    importer = PackageImporter(packaged(usual, lambda e: e.save_module("packed.net")))
    assert importer.import_module("packed.net").np is np
    assert importer.import_module("numpy.linalg") is np.linalg
    with pytest.raises(ImportError, match=r"needs the external module 'numpy'.*disallowed"):
        file = packaged(usual, lambda e: e.save_module("packed.net"))
        PackageImporter(file, module_allowed=lambda name: name != "numpy")


def test_submodules_of_external_modules_come_without_their_parents():
    source = (
        "import os.path as p, xml.dom.minidom as m\nfrom xml.dom import minidom\nimport xml.sax\n"
    )
    file = packaged(lambda e: e.save_source_string("user", source))
    module = PackageImporter(file).import_module("user")
    import xml.dom.minidom

    assert module.p is os.path and module.m is module.minidom is xml.dom.minidom
    assert module.xml.sax.__name__ == "xml.sax"


def test_sources_can_be_given_as_texts_files_and_folders(project, tmp_path):
    file = packaged(
        usual,
        lambda e: e.save_source_string("top", "from . import inner\nX = inner.Y", is_package=True),
        lambda e: e.save_source_string("top.inner", "from packed.deep.more import NUMBER as Y"),
        lambda e: e.save_source_file("single", tmp_path / "project/packed/deep/more.py"),
        lambda e: e.save_source_file("folder", tmp_path / "project/packed", dependencies=False),
    )
    importer = PackageImporter(file)
    assert importer.import_module("top").X == 3 and importer.import_module("single").NUMBER == 3
    assert importer.import_module("folder").LEVEL == 1
    assert importer.import_module("folder.deep.more").NUMBER == 3
    assert importer.is_package("top") and not importer.is_package("top.inner")


def test_resources_are_reached_from_the_package(project):
    file = packaged(
        usual,
        lambda e: e.extern("torch_package_importer"),
        lambda e: e.save_module("packed.resources"),
        lambda e: e.save_text("packed.data", "a.txt", "hello"),
    )
    importer = PackageImporter(file)
    assert importer.import_module("packed.resources").texts() == "hello"
    reader = importer.get_resource_reader("packed.data")
    assert reader.open_resource("a.txt").read() == b"hello" and list(reader.contents()) == ["a.txt"]
    assert reader.is_resource("a.txt") and not reader.is_resource("b.txt")
    with pytest.raises(FileNotFoundError):
        reader.open_resource("b.txt")
    assert importer.get_resource_reader("nothing") is None
    folder = importlib.resources.files(importer.import_module("packed.data"))
    assert folder.joinpath("a.txt").read_text() == "hello"


def test_objects_of_a_package_can_be_packaged_again(project):
    first = PackageImporter(packaged(usual, lambda e: e.save_pickle("m", "net", net_of(3))))
    net = first.load_pickle("m", "net")
    with pytest.raises(pickle.PicklingError, match="give the exporter the importers"):
        packaged(usual, lambda e: e.save_pickle("m", "net", net))
    file = packaged(usual, lambda e: e.save_pickle("m", "net", net), importer=[first, sys_importer])
    second = PackageImporter(file)
    assert second.load_pickle("m", "net")(2) == 12
    assert second.get_source("packed.net") == PROJECT["packed/net.py"]


def test_names_of_objects(project):
    net = net_of(1)
    importer = PackageImporter(packaged(usual, lambda e: e.save_pickle("m", "net", net)))
    ours, theirs = type(net), importer.import_module("packed.net").Net
    both = OrderedImporter(importer, sys_importer)
    assert sys_importer.get_name(ours) == ("packed.net", "Net")
    assert both.get_name(theirs) == (f"{importer.id()}.packed.net", "Net")
    with pytest.raises(ObjMismatchError, match="comes from the package"):
        both.get_name(ours)
    with pytest.raises(ObjNotFoundError, match=r"packed\.net\.Other"):
        sys_importer.get_name(ours, "Other")
    with pytest.raises(TypeError, match="expected importers, got int"):
        OrderedImporter(3)
    with pytest.raises(ModuleNotFoundError, match="no importer has the module 'not_there_at_all'"):
        OrderedImporter(sys_importer).import_module("not_there_at_all")


# ---- errors of packaging


def failing(*steps, debug=False):
    with pytest.raises(PackagingError) as error:
        packaged(*steps, debug=debug)
    return error.value


def test_modules_without_a_pattern_are_named(project):
    error = failing(lambda e: e.save_module("packed.net"))
    assert "did not match against any action pattern" in str(error)
    assert {n for n, node in error.dependency_graph.nodes.items() if node.get("error")} == {
        "numpy", "packed.helper", "packed.heavy",
    }  # fmt: skip
    assert "debug=True" in str(error)


@pytest.mark.parametrize(
    "steps, text, names",
    [
        ([lambda e: e.deny("packed.helper"), usual, lambda e: e.save_module("packed.net")], "denied by a pattern", ["packed.helper"]),
        ([lambda e: e.mock("packed.**"), lambda e: e.save_pickle("m", "net.pkl", net_of(1))], "mocked out, but is still being used", ["packed.net"]),
        ([lambda e: e.intern("**"), lambda e: e.save_module("math")], "C extension module", ["math"]),
        ([lambda e: e.save_source_string("a", "import sys")], "did not match against any action", ["sys"]),
        ([usual, lambda e: e.save_module("packed.odd")], "did not match against any action", ["not_installed_anywhere"]),
    ],
)  # fmt: skip
def test_reasons_are_given_with_the_modules(project, steps, text, names):
    error = failing(*steps)
    assert text in str(error)
    assert list(find_first_use_of_broken_modules(error)) == names
    assert all(name in str(error) for name in names)


def test_how_a_module_came_to_be_needed_is_shown(project):
    steps = [lambda e: e.deny("packed.deep.*"), usual, lambda e: e.save_pickle("m", "p", net_of(1))]
    error = failing(*steps, debug=True)
    assert "Path: <m.p> -> packed.net -> packed.helper -> packed.deep.more" in str(error)
    assert find_first_use_of_broken_modules(error)["packed.deep.more"][0] == "<m.p>"
    with pytest.raises(TypeError, match="expected a PackagingError, got ValueError"):
        find_first_use_of_broken_modules(ValueError())


def test_patterns_that_must_match_are_checked(project):
    steps = [lambda e: e.extern("nothing.*", allow_empty=False), lambda e: e.save_text("a", "b", "")]  # fmt: skip
    with pytest.raises(EmptyMatchError, match=r"nothing\.\*.*allow_empty=False"):
        packaged(*steps)
    packaged(lambda e: e.intern("packed.**", allow_empty=False), lambda e: e.save_module("packed.helper") or e.add_dependency("packed.heavy"))  # fmt: skip


def test_a_file_stays_as_it_was_if_packaging_fails(project, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"before")
    with pytest.raises(PackagingError), PackageExporter(path) as exporter:
        exporter.save_module("packed.net")
    with pytest.raises(KeyError), PackageExporter(path) as exporter:
        exporter.save_text("a", "b", "c")
        raise KeyError
    assert path.read_bytes() == b"before" and sorted(os.listdir(tmp_path)) == [
        "model.pt",
        "project",
    ]
    with PackageExporter(path) as exporter:
        exporter.save_text("a", "b", "c")
    assert zipfile.ZipFile(path).namelist()[0] == "model/a/b"
    assert PackageImporter(str(path)).load_text("a", "b") == "c"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "out")
    assert PackageImporter(tmp_path / "out/model").load_text("a", "b") == "c"


def closed(exporter):
    exporter.close()
    return exporter


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda e: e.save_module(3), TypeError, "save_module: expected the name of a module, got int"),
        (lambda e: e.save_text("a", "b", b""), TypeError, "save_text: expected a str, got bytes"),
        (lambda e: [e.save_text("a", "b", "") for _ in range(2)], ValueError, "has a file 'a/b' already"),
        (lambda e: e.save_text(3, "b", ""), TypeError, "a package and a resource by name"),
        (lambda e: e.save_pickle("a", "b", 1, pickle_protocol=6), ValueError, "`pickle_protocol` from 2 to 5, got 6"),
        (lambda e: e.save_pickle("a", "b", lambda: 1), pickle.PicklingError, "Can't pickle"),
        (lambda e: e.save_module("not_there_at_all"), ModuleNotFoundError, "not_there_at_all"),
        (lambda e: e.save_source_string("a", "def"), SyntaxError, "syntax"),
        (lambda e: e.save_source_string("a", "from ... import b"), ImportError, "out of the package"),
        (lambda e: e.intern("a.**b"), ValueError, "entire path segment"),
        (lambda e: closed(e).save_text("a", "b", ""), RuntimeError, "the package is closed"),
        (lambda e: PackageExporter(3), TypeError, "expected a path or a file to write to, got int"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(PackageExporter(io.BytesIO()))


# ---- errors of reading


def rewritten(file, change):
    """A copy of the archive with the files that `change` makes of a dict of their contents."""
    with zipfile.ZipFile(file) as archive:
        files = change({name: archive.read(name) for name in archive.namelist()})
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    made.seek(0)
    return made


def test_what_is_no_package_is_refused(tmp_path):
    for content in (b"", b"PK\3\4 nonsense"):
        with pytest.raises(SerializationError, match="this is no package"):
            PackageImporter(io.BytesIO(content))
    rabbet.save({"a": rabbet.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(SerializationError, match="no package of a PackageExporter"):
        PackageImporter(tmp_path / "a.pt")
    with pytest.raises(SerializationError, match="no unpacked package"):
        PackageImporter(tmp_path)
    with pytest.raises(FileNotFoundError):
        PackageImporter(tmp_path / "not_there")
    with pytest.raises(TypeError, match="expected a path or a file to read, got int"):
        PackageImporter(3)


def test_damage_is_named():
    file = packaged(lambda e: e.save_pickle("m", "x", rabbet.ones(4)), lambda e: e.save_text("m", "t", "some text"))  # fmt: skip
    with pytest.raises(SerializationError, match="there is no file 'm/y'"):
        PackageImporter(file).load_pickle("m", "y")
    data = bytearray(file.getvalue())
    data[data.index(b"some text")] ^= 1
    with pytest.raises(SerializationError, match="'m/t' is damaged: Bad CRC-32"):
        PackageImporter(io.BytesIO(bytes(data))).load_text("m", "t")
    storage = "archive/.data/0.storage"
    short = rewritten(file, lambda files: {**files, storage: b"abc"})
    with pytest.raises(SerializationError, match="storage 0 has 3 bytes, its tensors want 16"):
        PackageImporter(short).load_pickle("m", "x")
    cut = rewritten(file, lambda files: {**files, "archive/m/x": files["archive/m/x"][:-5]})
    with pytest.raises(SerializationError, match="pickle is damaged"):
        PackageImporter(cut).load_pickle("m", "x")


def test_a_module_that_fails_is_tried_again():
    source = "import builtins\nbuiltins.tries = getattr(builtins, 'tries', 0) + 1\nassert builtins.tries > 1\n"
    importer = PackageImporter(packaged(lambda e: e.save_source_string("fails", source)))
    try:
        with pytest.raises(AssertionError):
            importer.import_module("fails")
        assert importer.import_module("fails").__name__.endswith("fails")
    finally:
        import builtins

        del builtins.tries


# ---- tools


@pytest.mark.parametrize(
    "include, exclude, yes, no",
    [
        ("a.*", (), ["a.b", "a."], ["a", "a.b.c", "b.a"]),
        ("a.**", (), ["a", "a.b", "a.b.c"], ["ab", "b.a"]),
        ("**", "a.**", ["b", "b.a"], ["a", "a.b"]),
        ("**.b", (), ["b", "a.b", "c.a.b"], ["b.a", "ab"]),
        (["a*c", "x?"], (), ["ac", "abbc", "x?"], ["a.c", "xy"]),
    ],
)
def test_groups_of_names(include, exclude, yes, no):
    group = GlobGroup(include, exclude=exclude)
    assert [name for name in yes + no if group.matches(name)] == yes
    if include == "a.*":
        assert repr(group) == str(group) == "GlobGroup(include=['a.*'], exclude=[])"


def test_modules_that_a_call_runs_are_traced(project):
    net = net_of(1)
    assert {"packed.net", "packed.helper"} <= set(trace_dependencies(net, [(2,)]))


WITH_TORCH = """
import sys
import {module} as torch
from {module}.package import PackageExporter, PackageImporter
path, here, there = sys.argv[1:]
x = torch.arange(6.0).reshape(2, 3)
value = {{"x": x, "row": x[1], "layer": torch.nn.Linear(3, 2), "p": torch.nn.Parameter(torch.ones(2))}}
with PackageExporter(path + here) as e:
    e.extern("numpy.**")
    e.intern("packed.**", exclude="packed.heavy")
    e.mock("packed.heavy")
    from packed.net import Net
    e.save_pickle("model", "all.pkl", {{**value, "net": Net(x)}})
    e.save_text("model", "t.txt", "from " + here)
if there != "none":
    i = PackageImporter(path + there)
    got = i.load_pickle("model", "all.pkl")
    assert got["x"].tolist() == x.tolist() and got["row"].tolist() == [3, 4, 5]
    got["x"][1, 0] = 7
    assert got["row"][0] == 7 and got["layer"](got["x"]).shape == (2, 2)
    assert isinstance(got["p"], torch.nn.Parameter) and got["net"](1.0).shape == (2, 3)
    assert i.load_text("model", "t.txt") == "from " + there
    try:
        i.import_module("packed.heavy").thing()
    except NotImplementedError as error:
        assert "mocked out" in str(error)
"""


def test_pytorch_reads_our_packages_and_we_read_its(project, tmp_path):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    paths = os.pathsep.join([str(tmp_path / "project"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    turns = [("rabbet", "ours", "none"), ("torch", "theirs", "ours"), ("rabbet", "ours", "theirs")]
    for module, *names in turns:
        command = [sys.executable, "-c", WITH_TORCH.format(module=module), f"{tmp_path}/", *names]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
