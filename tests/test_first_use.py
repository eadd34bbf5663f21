"""What a newcomer does in the first minutes: completion, help, misspelled names, one-liners that fail."""

import json
import os
import pydoc
import re
import subprocess
import sys

import pytest
import rabbet
from rabbet._misspelled import nearest

EXPECTED = {
    "nn", "optim", "autograd", "func", "vmap", "amp", "distributions", "profiler", "utils", "cuda", "linalg", "fft", "sparse",
    "no_grad", "enable_grad", "autocast", "save", "load", "compile", "conv2d", "FloatTensor", "poisson",
    "default_generator", "Tensor", "zeros", "float32",
}  # fmt: skip


def fresh(code):
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lazy_names_are_listed_before_their_first_use():
    code = (
        "import json, sys, rabbet\n"
        "names = dir(rabbet)\n"
        "print(json.dumps([names, sorted(n for n in sys.modules if n.startswith('rabbet.'))]))"
    )
    names, loaded = json.loads(fresh(code))
    assert set(names) >= EXPECTED and names == sorted(set(names))
    assert not {"rabbet.nn", "rabbet.optim", "rabbet.autograd", "rabbet.cuda"} & set(loaded)


def test_importing_loads_neither_numpy_nor_what_few_programs_need():
    code = "import sys, rabbet\nprint([n for n in ('numpy', 'difflib', 'inspect') if n in sys.modules])"
    assert fresh(code) == "[]\n"


@pytest.mark.parametrize(
    "module", ["rabbet", "rabbet.nn", "rabbet.optim", "rabbet.utils", "rabbet.func", "rabbet.cuda"]
)
def test_every_name_that_is_listed_is_there(module):
    namespace = __import__(module, fromlist=["name"])
    missing = [name for name in dir(namespace) if not hasattr(namespace, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rabbet.no_g", ["rabbet.no_grad("]),
        ("rabbet.opti", ["rabbet.optim"]),
        ("rabbet.optim.swa", ["rabbet.optim.swa_utils"]),
        ("rabbet.utils.check", ["rabbet.utils.checkpoint"]),
        ("rabbet.func.jacr", ["rabbet.func.jacrev("]),
    ],
)
def test_completion_finds_lazy_names(text, names):
    code = (
        "import rabbet, rlcompleter\n"
        "complete = rlcompleter.Completer({'rabbet': rabbet}).complete\n"
        f"found = [complete({text!r}, i) for i in range(3)]\n"
        "print(*(name.rstrip(')') for name in found if name))"
    )
    assert fresh(code).split() == names


@pytest.mark.parametrize(
    ("name", "meant"),
    [("zeross", "zeros"), ("Tensr", "Tensor"), ("tensor_", "tensor"), ("matmull", "matmul"), ("optm", "optim"), ("no_grd", "no_grad")],
)  # fmt: skip
def test_a_misspelled_name_is_answered_with_the_nearest(name, meant):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; did you mean '{meant}'\?$"):
        getattr(rabbet, name)


@pytest.mark.parametrize("name", ["frobnicate", "_zeros_", "__frob__", "q"])
def test_a_name_like_no_other_gets_no_suggestion(name):
    with pytest.raises(AttributeError, match=rf"^module 'rabbet' has no attribute '{name}'$"):
        getattr(rabbet, name)


def test_the_nearest_name_begins_alike_and_has_about_the_length():
    assert nearest("doctr", ["run", "doctor"]) == "doctor"
    assert nearest("Run", ["run"]) == "run"
    assert nearest("octor", ["doctor"]) == "" == nearest("", ["a"]) == nearest("doc", ["doctor"])


@pytest.mark.parametrize(
    "name",
    ["", "nn", "nn.functional", "optim", "optim.lr_scheduler", "autograd", "amp", "func", "vmap", "library", "linalg",
     "utils.data", "distributions", "cuda", "special", "serialization", "random", "overrides"],
)  # fmt: skip
def test_help_shows_every_public_module(name):
    text = pydoc.render_doc(f"rabbet.{name}".rstrip("."), renderer=pydoc.plaintext)
    assert text.startswith("Python Library Documentation: ") and len(text) > 500


@pytest.mark.parametrize("name", ["softmax", "nn.Linear", "Tensor.sum", "optim.Adam", "no_grad"])
def test_help_explains_functions_and_classes(name):
    text = pydoc.render_doc(f"rabbet.{name}", renderer=pydoc.plaintext)
    assert name.split(".")[-1] in text and len(text.splitlines()) > 3


BAD = [
    ("rabbet.load('gone.pt')", "FileNotFoundError", "gone.pt"),
    ("rabbet.device('foo')", "rabbet.PluginError", "no backend for device 'foo' is installed; installed devices: "),
    ("rabbet.ones(2, device='foo')", "rabbet.PluginError", "no backend for device 'foo' is installed; installed devices: "),
    ("rabbet.ones(3, requires_grad=True).backward()", "rabbet.StateError", r"only for scalar outputs, .* shape \(3,\)"),
    ("rabbet.nn.Linear(3, 4)(rabbet.ones(2, 5))", "rabbet.ArgumentError",
     r"linear: in_features differs: input has 5, weight 3 \(input is \(2, 5\), weight is \(4, 3\)"),
    ("rabbet.ones(2, 3) @ rabbet.ones(2, 3)", "rabbet.ArgumentError", r"input is \(2, 3\), other is \(2, 3\)"),
    ("rabbet.ones(2) + rabbet.ones(3)", "rabbet.ArgumentError", r"\(2,\).*\(3,\)"),
    ("rabbet.zeross(2)", "AttributeError", "did you mean 'zeros'"),
    ("rabbet.ones(3).numpy().sum().backward()", "AttributeError", "backward"),
    ("rabbet.nn.Linaer(3, 4)", "AttributeError", "Linaer"),
    ("import rabbet.no_such_module", "ModuleNotFoundError", "rabbet.no_such_module"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "error", "message"), BAD, ids=[line for line, *_ in BAD])
def test_a_line_that_fails_ends_with_an_error_that_says_why(line, error, message):
    code = f"import rabbet; {line}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = done.stderr.strip().splitlines()
    assert done.returncode == 1
    last = next(i for i, text in enumerate(said) if text.startswith(f"{error}: "))
    assert re.search(message, said[last]), said[last]


@pytest.mark.parametrize(
    "line", ["rabbet.randn(3).cuda()", "rabbet.ones(2, device='cuda')", "rabbet.nn.Linear(2, 2).to('cuda')"]
)  # fmt: skip
def test_a_device_whose_wheel_is_missing_is_answered_with_what_to_install(line):
    done = subprocess.run(
        [sys.executable, "-c", f"import rabbet; {line}"],
        capture_output=True,
        text=True,
        env={**os.environ, "RABBET_PLUGINS": "cpu,autograd"},
    )
    assert done.returncode == 1
    assert (
        "no backend for device 'cuda' is installed: pip install 'rabbet-backend-cuda[cuda13]', or [cuda12]"
        in done.stderr
    )
