"""`rabbet run` and `as_torch()`: torch means rabbet, as `python program.py` would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet
from rabbet.torch_version import TorchVersion


def python(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return python("-m", "rabbet", "run", *arguments, cwd=cwd)


def output(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def in_torch(code: str) -> list[str]:
    """What a piece of code prints after as_torch()."""
    return output(python("-c", f"import rabbet; rabbet.as_torch()\n{code}"))


# ---- what torch is


def test_modules_and_classes_are_the_same_objects():
    code = """
import torch, torch.nn as nn, torch.nn.functional as F, torch.optim
from torch.utils.data import DataLoader
from torch.nn.modules.module import Module
import rabbet, rabbet.utils.data, rabbet.nn, rabbet.optim
assert nn is rabbet.nn and F is rabbet.nn.functional and torch.Tensor is rabbet.Tensor
assert DataLoader is rabbet.utils.data.DataLoader and Module is rabbet.nn.Module
assert torch.optim.lr_scheduler is rabbet.optim.lr_scheduler and torch.add is rabbet.add
assert nn.__spec__.name == 'rabbet.nn' and nn.__name__ == 'rabbet.nn'
assert rabbet.as_torch() is torch and rabbet.nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)
"""
    assert in_torch(code) == []


def test_the_version_is_torchs_and_ours_stays():
    code = """
import torch, rabbet, importlib.metadata as metadata
print(torch.__version__, torch.version.__version__, metadata.version('torch'), torch.version.cuda)
print(rabbet.__version__, rabbet.version.__version__, metadata.version('rabbet-core'))
print(torch.__version__ >= (2, 1), torch.__version__ > '2.9', torch.__version__ < '3', '2.13' in torch.__version__)
"""
    torchs, ours, compared = in_torch(code)
    assert torchs.split() == ["2.13.0+rabbet"] * 3 + ["None"]
    assert ours.split() == [rabbet.__version__] * 3
    assert compared.split() == ["True"] * 4


@pytest.mark.parametrize(
    "code, error, text",
    [
        ("torch.foo", "AttributeError", "torch.foo is not in rabbet yet"),
        ("torch.nn.Foo", "AttributeError", "torch.nn.Foo is not in rabbet yet"),
        ("torch.utils.data.Foo", "AttributeError", "torch.utils.data.Foo is not in rabbet yet"),
        ("torch._C._foo", "AttributeError", "torch._C._foo is not in rabbet yet"),
        ("torch._pytree", "AttributeError", "torch._pytree is not in rabbet yet"),
        ("import torch.foo.bar", "ModuleNotFoundError", "No module named 'torch.foo'"),
        ("from torch import foo", "ImportError", "cannot import name 'foo' from 'torch'"),
        ("from torch.nn import Foo", "ImportError", "cannot import name 'Foo' from 'rabbet.nn'"),
        ("from torch._functions import x", "ModuleNotFoundError", "No module named 'torch._functions'"),
    ],
)  # fmt: skip
def test_a_missing_name_is_an_error_that_names_it(code, error, text):
    lines = in_torch(f"""
import torch, torch.utils.data
try:
    {code}
except Exception as error:
    print(type(error).__name__)
    print(error)
""")
    assert lines[0] == error and lines[1].startswith(text)


def test_missing_modules_have_no_spec():
    code = """
import importlib.util as util
print(util.find_spec('torch.fooo') is None, util.find_spec('torch.nn') is not None, hasattr(__import__('torch'), 'foo'))
"""
    assert in_torch(code) == ["True True False"]


def test_every_name_of_the_namespace_is_torchs_too():
    assert in_torch("""
import torch
for name in dir(rabbet):
    if not name.startswith('_'):
        assert getattr(torch, name) is getattr(rabbet, name) or name in ('nan', 'version', 'default_generator'), name
from torch import *
assert tensor is rabbet.tensor
""") == []  # fmt: skip


def test_texts_of_values_name_torch():
    code = """
import torch
x = torch.ones(2, 3, dtype=torch.float64)
print(x.dtype, x.shape, x.layout, torch.channels_last, x[0])
print(torch.finfo(x.dtype).dtype, torch.iinfo(torch.int8).max, str(x.dtype).split('.')[-1])
import io
file = io.BytesIO()
torch.save({'x': x, 'dtype': x.dtype}, file)
file.seek(0)
print(torch.load(file)['dtype'])
torch.testing.assert_close(x, x + 1e-12)
"""
    assert in_torch(code) == [
        "torch.float64 torch.Size([2, 3]) torch.strided torch.channels_last "
        "tensor([1., 1., 1.], dtype=torch.float64)",
        "float64 127 float64",
        "torch.float64",
    ]
    assert f"{rabbet.float32} {rabbet.ones(1).shape}" == "rabbet.float32 rabbet.Size([1])"


def test_real_torch_is_never_replaced(tmp_path):
    (tmp_path / "torch.py").write_text("")
    code = "import torch, rabbet\nrabbet.as_torch()"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: as_torch: PyTorch was imported already, from" in done.stderr


def test_torch_on_the_path_is_not_imported(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    (tmp_path / "program.py").write_text("import torch; print(torch.ones(1).item())")
    assert output(run("program.py", cwd=tmp_path)) == ["1.0"]


def test_importing_rabbet_loads_none_of_it():
    code = (
        "import sys, rabbet\n"
        "print([m for m in sys.modules if m.startswith(('rabbet._as', 'rabbet.utils', 'rabbet.cuda', 'rabbet._abs'))])"
    )
    assert output(python("-c", code)) == ["[]"]


# ---- programs


def test_a_program_sees_what_python_would_show_it(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "beside.py").write_text("value = 7")
    program = folder / "program.py"
    program.write_text(
        "import sys, beside\n"
        "print(sys.argv, __name__, __file__, sys.path[0], __spec__, __package__, beside.value)\n"
        "print(sys.modules['__main__'].__dict__ is globals())\n"
    )
    assert output(run(program, "a", "--b", cwd=tmp_path)) == output(
        python(program, "a", "--b", cwd=tmp_path)
    )


def test_a_module_runs_like_python_m(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import part\nprint(sys.argv, __name__, sys.path[0], part.x)"
    )
    (package / "part.py").write_text("import torch\nx = torch.ones(2).sum().item()")
    (shown,) = output(run("-m", "package", "a", cwd=tmp_path))
    assert shown == f"['{package / '__main__.py'}', 'a'] __main__ {tmp_path} 2.0"


def test_pytest_runs_tests_with_rabbet(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import torch, rabbet\ndef test_it(): assert torch.Tensor is rabbet.Tensor"
    )
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert "1 passed" in output(done)[-1]


def test_tracebacks_hold_the_program_alone(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import torch\ndef f():\n    return torch.ones(2) @ torch.ones(3)\nf()\n")
    done = run(program)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{program}", line 4, in <module>', f'  File "{program}", line 3, in f',
    ]  # fmt: skip


def test_a_failed_import_names_the_torch_name(tmp_path):
    program = tmp_path / "program.py"
    for code, name in (
        ("from torch.nn import Foo", "torch.nn.Foo"),
        ("from torch import foo", "torch.foo"),
        ("import torch.foo", "torch.foo"),
    ):
        program.write_text(code)
        done = run(program)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == f"{name} is not in rabbet yet"


@pytest.mark.parametrize(
    "code, status",
    [("raise SystemExit(3)", 3), ("import sys; sys.exit()", 0), ("raise KeyboardInterrupt", 130), ("1 +", 1)],
)  # fmt: skip
def test_the_exit_code_is_the_programs(tmp_path, code, status):
    program = tmp_path / "program.py"
    program.write_text(code)
    assert run(program).returncode == status


@pytest.mark.parametrize("arguments", [(), ("-m",), ("--scan",), ("--foo",), ("nowhere.py",)])
def test_wrong_arguments_say_how_it_is_used(arguments, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert "usage: rabbet run" in done.stderr or "there is no file 'nowhere.py'" in done.stderr


def test_classes_of_a_program_can_be_pickled(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import copy, pickle, torch\n"
        "class Net(torch.nn.Linear): pass\n"
        "net = pickle.loads(pickle.dumps(Net(2, 2)))\n"
        "print(type(net) is Net)\n"
    )
    assert output(run(program)) == ["True"]


STARTS_PROCESSES = """
import multiprocessing, sys
import torch

def total(queue, numbers):
    queue.put((torch.tensor(numbers).sum().item(), torch.__name__, hasattr(torch, "__rabbet__")))

if __name__ == "__main__":
    for module in (multiprocessing, torch.multiprocessing):
        context = module.get_context(sys.argv[1])
        queue = context.Queue()
        process = context.Process(target=total, args=(queue, [1, 2]))
        process.start()
        print(queue.get(timeout=60))
        process.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_a_program_have_the_same_torch(tmp_path, method):
    (tmp_path / "program.py").write_text(STARTS_PROCESSES)
    assert output(run(tmp_path / "program.py", method)) == ["(3, 'torch', True)"] * 2


# ---- scan

SCANNED = """
import torch
import torch.nn as nn
from torch.nn import functional as F, Foo
from torch import onnx as h

def f(x):
    y = torch.nn.functional.relu(x) + F.bar(x) + torch.Tensor.bar
    h.export("somewhere")
    return nn.Linear(2, 2), torch.fooo.bar.baz, later.Foo, x.torch.none

import torch.optim as later
"""


def test_scan_lists_names_and_what_is_missing(tmp_path):
    (tmp_path / "a.py").write_text(SCANNED)
    done = run("--scan", tmp_path)
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    there = {line[1] for line in lines if line[0] == "there"}
    missing = {line[1] for line in lines if line[0] == "missing"}
    refused = {line[1].rstrip(":") for line in lines if line[0] == "refuses"}
    assert {"torch", "torch.nn.functional.relu", "torch.nn.Linear", "torch.optim"} <= there
    assert missing == {
        "torch.nn.Foo", "torch.nn.functional.bar", "torch.Tensor.bar", "torch.fooo", "torch.optim.Foo",
    }  # fmt: skip
    assert refused == {"torch.onnx", "torch.onnx.export"}
    assert f"missing  torch.fooo ({tmp_path / 'a.py'}:10)" in done.stdout


USED_WRONGLY = """
import torch
from torch import nn, relu
from torch.distributed.tensor import DTensor

class A(torch.Generator): pass
class B(torch.add): pass
class C(nn.Module): pass
class D(DTensor): pass

def f(x, **options):
    with relu(x), torch.no_grad(), torch.device("meta") as d, nn.Linear(1, 2):
        torch.add(x, x, alpha=2, out=None)
    torch.add(x, x, frob=2)
    nn.Linear(2, 3, bias=True, colour=3)
    nn.functional.relu(x, inplace=True)
    nn.functional.relu(x, outplace=True, other=1)
    torch.sum(x, axis=0, keepdims=True)
    torch.zeros(2, requires_grad=True, pin_memory=False)
    torch.sum(x, **options)
"""


def test_scan_finds_keywords_with_statements_and_bases_that_do_not_work(tmp_path):
    (tmp_path / "a.py").write_text(USED_WRONGLY)
    done = run("--scan", tmp_path / "a.py")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.replace(f"{tmp_path}/", "").splitlines()
    assert lines[0].endswith("0 missing, 1 that refuse to work, 7 used in a way that does not work")
    assert [line.removeprefix("  wrong    ") for line in lines if "wrong" in line.split()[:1]] == [
        "torch.Generator cannot be the base of a class (a.py:6)",
        "torch.add cannot be the base of a class (a.py:7)",
        "torch.add takes no argument frob (a.py:14)",
        "torch.nn.Linear cannot be used in a `with` statement (a.py:12)",
        "torch.nn.Linear takes no argument colour (a.py:15)",
        "torch.nn.functional.relu takes no argument outplace, other (a.py:17)",
        "torch.relu cannot be used in a `with` statement (a.py:12)",
    ]


def test_scan_of_programs_without_gaps_succeeds():
    examples = Path(__file__).resolve().parent.parent / "examples/programs"
    done = run("--scan", examples)
    assert done.returncode == 0, done.stdout
    assert ", 0 missing, 0 that refuse to work, 0 used" in done.stdout.splitlines()[0]


def test_scan_says_what_it_cannot_read(tmp_path):
    (tmp_path / "a.py").write_text("import torch\n1 +")
    done = run("--scan", tmp_path / "a.py", tmp_path / "none.py")
    assert done.returncode == 2
    assert "a.py: invalid syntax" in done.stderr and "none.py" in done.stderr


# ---- versions

VERSIONS = [
    "1.0", "1.0.0", "1.0.1", "1.10.0", "1.9.0", "2.0.0a0", "2.0.0a0+git1", "2.0.0b1", "2.0.0rc2", "2.0.0.dev1",
    "2.0.0", "2.0.0+cpu", "2.0.0.post1", "2.13.0+rabbet", "2.13.0+cu121", "2.13", "10.0",
]  # fmt: skip


@pytest.mark.parametrize("a", VERSIONS)
def test_versions_compare_as_packaging_has_it(a):
    packaging = pytest.importorskip("packaging.version")
    for b in VERSIONS:
        ours, x, y = TorchVersion(a), packaging.Version(a), packaging.Version(b)
        assert (ours < b, ours <= b, ours == b, ours != b, ours >= b, ours > b) == (
            x < y, x <= y, x == y, x != y, x >= y, x > y,
        ), b  # fmt: skip


def test_versions_take_tuples_and_compare_other_texts_as_texts():
    version = TorchVersion("2.13.0+rabbet")
    assert version > (2, 12) and version >= (2, 13, 0) and version < (3,)
    assert (version == "parrot", version != "parrot", hash(version)) == (
        False, True, hash("2.13.0+rabbet"),
    )  # fmt: skip
    assert isinstance(version, str) and os.path.join("a", version)


def test_a_missing_wheel_is_named():
    lines = in_torch("""
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == 'rabbet.nn' else found(name, *rest)  # not installed
import torch.utils
import torch
for code in ('import torch.nn', 'torch.nn', 'from torch import nn'):
    try:
        exec(code)
    except ImportError as error:
        print(error)
""")
    assert lines == ["rabbet.nn needs the wheel 'rabbet-nn': pip install rabbet-nn"] * 3


def test_submodules_need_no_import_of_their_own():
    assert in_torch("""
import torch
torch.nn.utils.parameters_to_vector, torch.optim.lr_scheduler.StepLR, torch.utils.data.DataLoader
torch.autograd.profiler.record_function, torch.cuda.amp.GradScaler, torch.cuda.nvtx, torch.backends.cudnn.enabled
torch.utils.model_zoo, torch.ao.quantization, torch.torch.Tensor, torch.__config__.show()
print(torch.autograd.functional.jacobian(torch.sin, torch.zeros(2)).tolist())
""") == ["[[1.0, 0.0], [0.0, 1.0]]"]  # fmt: skip


def test_unpickled_tensors_and_dataloaders_live_under_both_names():
    assert in_torch("""
import pickle, torch, torch.utils.data as data
subset = pickle.loads(pickle.dumps(data.Subset(range(5), [1, 3])))
print(type(subset) is data.Subset, pickle.loads(pickle.dumps(torch.ones(2))).tolist(), torch.zeros(1).type())
""") == ["True [1.0, 1.0] torch.FloatTensor"]  # fmt: skip


# ---- files

SAVING = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
model(torch.ones(4, 2)).sum().backward()
optimizer.step()
scheduler.step()
torch.save(model.state_dict(), "model.pth")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
            "epoch": 3, "names": {"a", "b"}, "size": torch.Size([1, 2])}, "checkpoint.tar")
model.load_state_dict(torch.load("model.pth", weights_only=True))
got = torch.load("checkpoint.tar", map_location="cpu")
model.load_state_dict(got["model"])
optimizer.load_state_dict(got["optimizer"])
scheduler.load_state_dict(got["scheduler"])
assert got["epoch"] == 3 and got["names"] == {"a", "b"} and type(got["size"]) is torch.Size
torch.save(model, "whole.pt")
whole = torch.load("whole.pt", weights_only=False)
print(type(whole) is torch.nn.Sequential and torch.equal(whole[0].weight, model[0].weight))
import pickle
class Config: pass
open("config.pt", "wb").close()
with torch.serialization.safe_globals([Config]):
    torch.save({"config": Config()}, "config.pt")
    print(type(torch.load("config.pt")["config"]) is Config)
try:
    torch.load("config.pt", weights_only=True)
except pickle.UnpicklingError as error:
    print("torch.serialization.add_safe_globals([Config])" in str(error))
"""


def test_a_program_saves_and_loads_what_torch_loads(tmp_path):
    (tmp_path / "program.py").write_text(SAVING)
    assert output(run("program.py", cwd=tmp_path)) == ["True"] * 3
    for name in ("model.pth", "checkpoint.tar"):
        assert (tmp_path / name).read_bytes()[:4] == b"PK\x03\x04"
        torch = pytest.importorskip("torch")
        got = torch.load(tmp_path / name, weights_only=True)
        weights = got.get("model", got)
        assert weights["0.weight"].shape == (3, 2) and weights._metadata["1"] == {"version": 2}
