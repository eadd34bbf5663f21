"""utils.cpp_extension: builds, rebuilds, refused requests, and the arguments and results of bound functions."""

import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import rabbet
from rabbet.utils import cpp_extension
from rabbet.utils.cpp_extension import load, load_inline

FUNCTIONS = """
using Strings = std::vector<std::string>;
rb::Ref scaled(const RbTensor& x, double by) { return rb::Operator("mul")(x, by); }
rb::Ref shifted(const RbTensor& x, float by) {
  const float* from = rb::data<float>(x, "x");
  rb::Ref made = rb::empty_like(x);
  float* to = rb::data<float>(*made.get());
  for (int64_t i = 0; i < x.numel; ++i) to[i] = from[i] + by;
  return made;
}
std::tuple<rb::Ref, int64_t, std::string, bool> several(rb::Ref x, int64_t n, const std::string& s) {
  return {std::move(x), n + 1, s + "!", n > 0};
}
int64_t total(const std::vector<rb::Ref>& xs, std::optional<int64_t> more, const RbTensor* last) {
  int64_t n = more.value_or(1000);
  for (const rb::Ref& x : xs) n += x->numel;
  return last ? n + last->numel : n;
}
std::vector<int64_t> shape(const RbTensor& x) { return {x.shape, x.shape + x.ndim}; }
std::vector<rb::Ref> twice(const RbTensor& x) {
  std::vector<rb::Ref> made;
  made.push_back(rb::Operator("neg")(x));
  made.push_back(rb::Ref());
  return made;
}
std::optional<double> maybe(bool there, uint8_t small) {
  return there ? std::optional<double>(small) : std::nullopt;
}
Strings echo(const Strings& words) { return words; }
void fill(RbTensor& x, float value) {
  float* to = rb::data<float>(x, "x");
  for (int64_t i = 0; i < x.numel; ++i) to[i] = value;
  rb::check(rb::host->version_bump(&x));
}
void fail(const std::string& why) { rb::fail(RB_E_INDEX, "because of %s", why.c_str()); }
void unknown() { rb::Operator("frobnicate"); }
"""
NAMES = re.findall(r"^[\w:<>, ]+ (\w+)\(", FUNCTIONS, flags=re.M)


@pytest.fixture(scope="module")
def bound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bound")
    docs = {name: f'"{name}" — \\ text' for name in NAMES}
    return load_inline("bound_functions", FUNCTIONS, functions=docs, build_directory=folder)


# ---- functions


def test_values_cross_in_both_directions(bound):
    x = rabbet.ones(2, 3)
    assert bound.shifted(x, 1).tolist() == [[2.0] * 3] * 2 and bound.shape(x) == [2, 3]
    same, n, text, positive = bound.several(x, 41, "é")
    assert same is x and (n, text, positive) == (42, "é!", True)
    assert bound.total([x, x], None, None) == 1012 and bound.total((x,), 1, x) == 13
    negative, nothing = bound.twice(x)
    assert negative.sum() == -6 and nothing is None
    assert bound.maybe(True, 255) == 255.0 and bound.maybe(False, 0) is None
    assert bound.echo(["a", ""]) == ["a", ""]
    assert bound.scaled.__doc__ == '"scaled" — \\ text' and bound.scaled.__name__ == "scaled"


def test_operators_that_are_called_record_gradients_and_apply_transforms(bound):
    x = rabbet.ones(2, requires_grad=True)
    bound.scaled(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert rabbet.vmap(lambda row: bound.scaled(row, 2.0))(rabbet.ones(2, 2)).sum() == 8


def test_backward_notices_what_an_extension_writes(bound):
    x = rabbet.zeros(2)
    assert bound.fill(x, 7.0) is None and x.tolist() == [7, 7]
    y = rabbet.ones(2, requires_grad=True) * x
    bound.fill(x, 1.0)
    with pytest.raises(RuntimeError, match="modified by an in"):
        y.sum().backward()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda m, x: m.scaled(3, 2.0), TypeError, "scaled: argument 1 must be a Tensor, not int"),
        (lambda m, x: m.scaled(x, "2"), TypeError, "scaled: argument 2 must be a float, not str"),
        (lambda m, x: m.scaled(x), TypeError, "scaled: expected 2 arguments, got 1"),
        (lambda m, x: m.scaled(x, by=2.0), TypeError, "keyword"),
        (lambda m, x: m.total([x, 1], 1, None), TypeError, "total: argument 1 must be a Tensor, not int"),
        (lambda m, x: m.total(x, 1, None), TypeError, "total: argument 1 must be a list or tuple, not rabbet.Tensor"),
        (lambda m, x: m.total([], 1, 2), TypeError, "total: argument 3 must be a Tensor or None, not int"),
        (lambda m, x: m.total([], 1.5, x), TypeError, "total: argument 2 must be an int, not float"),
        (lambda m, x: m.total([], 2**63, x), OverflowError, "total: argument 2 does not fit 8 bytes"),
        (lambda m, x: m.maybe(1, 2), TypeError, "maybe: argument 1 must be a bool, not int"),
        (lambda m, x: m.maybe(True, 256), OverflowError, "maybe: argument 2 does not fit 1 bytes"),
        (lambda m, x: m.maybe(True, -1), OverflowError, "maybe: argument 2 does not fit 1 bytes"),
        (lambda m, x: m.echo([b"a"]), TypeError, "echo: argument 1 must be a str, not bytes"),
        (lambda m, x: m.fail("rain"), IndexError, "because of rain"),
        (lambda m, x: m.unknown(), ValueError, "there is no operator 'frobnicate'"),
        (lambda m, x: m.shifted(x.double(), 1.0), TypeError, "x must be float32, not float64"),
        (lambda m, x: m.shifted(x.t(), 1.0), ValueError, "x must be contiguous"),
        (lambda m, x: m.shifted(x.to("meta"), 1.0), TypeError, "x must be a plain tensor on the CPU"),
        (lambda m, x: rabbet.vmap(lambda r: m.shifted(r, 1.0))(x), TypeError, "x must be a plain tensor"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(bound, call, error, text):
    with pytest.raises(error, match=text):
        call(bound, rabbet.ones(2, 3))


# ---- building


def write(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def compiled(output):
    """The names of the sources that the printed commands compile."""
    return [Path(line.split(" -c ")[1].split()[0]).name for line in output.splitlines() if " -c " in line]  # fmt: skip


def test_only_what_has_changed_is_compiled_again(tmp_path, capfd):
    header = write(tmp_path, "number.h", "int number();\n#define MORE 0\n")
    one = write(tmp_path, "one.c", '#include "number.h"\nint number() { return 1 + MORE; }')
    two = write(
        tmp_path,
        "two.cpp",
        '#include "rabbet/extension.hpp"\nextern "C" int number();\n'
        'int64_t get() { return number() * FACTOR; }\nRABBET_MODULE(m) { m.def<get>("get"); }',
    )

    def build(factor=1):
        module = load("numbers_", [one, two], extra_cflags=[f"-DFACTOR={factor}"], build_directory=tmp_path, verbose=True)  # fmt: skip
        return module.get(), sorted(compiled(capfd.readouterr().out))

    assert build() == (1, ["one.c", "two.cpp"])
    assert build() == (1, [])
    header.write_text(header.read_text().replace("MORE 0", "MORE 4"))
    assert build() == (5, ["one.c"])
    os.utime(one)  # modification times do not matter
    assert build() == (5, [])
    two.write_text(two.read_text() + "\n// more")
    assert build() == (5, ["two.cpp"])
    assert build(factor=2) == (10, ["one.c", "two.cpp"])


def test_the_former_version_of_an_extension_goes_on_working(tmp_path):
    source = "int64_t number() { return 1; }"
    first = load_inline("versions_", source, functions=["number"], build_directory=tmp_path)
    again = load_inline("versions_", source, functions=["number"], build_directory=tmp_path)
    second = load_inline("versions_", source.replace("1", "2"), functions=["number"], build_directory=tmp_path)  # fmt: skip
    assert first is again and (first.number(), second.number()) == (1, 2)


def test_what_the_compiler_says_is_in_the_error(tmp_path):
    with pytest.raises(RuntimeError, match="Error building extension 'wrong_'") as error:
        load_inline("wrong_", "int64_t f() { return nowhere; }", build_directory=tmp_path)
    assert re.search(r"nowhere.* was not declared", str(error.value))
    assert "main-" in str(error.value) and " -std=c++17 " in str(error.value)
    with pytest.raises(
        RuntimeError, match=r"(?s)Error building extension 'wrong_'.*lmissing_library"
    ):
        load_inline("wrong_", "", extra_ldflags=["-lmissing_library"], build_directory=tmp_path)
    module = load_inline("wrong_", "int64_t f() { return 3; }", functions="f", build_directory=tmp_path)  # fmt: skip
    assert module.f() == 3


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"no-such-compiler cannot be run.*CXX and CC"):
        load_inline("missing_", "", build_directory=tmp_path)
    assert not cpp_extension.check_compiler_ok_for_platform("no-such-compiler")
    assert cpp_extension.get_compiler_abi_compatibility_and_version("no-such-compiler")[0] is False


PROCESS = """
import sys
import time
from rabbet.utils.cpp_extension import load_inline
while time.time() < float(sys.argv[2]):
    pass
source = "int64_t number() { return 5; }"
print(load_inline("shared_", source, functions=["number"], build_directory=sys.argv[1], verbose=True).number())
"""


def test_processes_that_load_one_extension_build_it_once(tmp_path):
    at = str(time.time() + 3)
    command = [sys.executable, "-c", PROCESS, str(tmp_path), at]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0] for process in processes]
    assert [text.splitlines()[-1] for text in said] == ["5"] * 3
    assert sum(len(compiled(text)) for text in said) == 1


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    code = "import fcntl, os, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "killed_.lock")])
    module = load_inline("killed_", "int64_t f() { return 1; }", functions="f", build_directory=tmp_path)  # fmt: skip
    assert module.f() == 1


def test_objects_need_not_be_kept(tmp_path, capfd):
    source = "int64_t f() { return 1; }"
    for _ in range(2):
        load_inline("bare_", source, functions="f", build_directory=tmp_path, verbose=True, keep_intermediates=False)  # fmt: skip
    assert len(compiled(capfd.readouterr().out)) == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".o")]


def test_programs_can_be_built(tmp_path):
    main = write(tmp_path, "main.cpp", '#include <cstdio>\nint main() { std::puts("hello"); }')
    path = load("program_", main, is_standalone=True, build_directory=tmp_path)
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "hello\n"


def test_extensions_are_built_below_a_folder_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "torch"))
    assert cpp_extension.get_default_build_root() == str(tmp_path / "torch")
    monkeypatch.setenv("RABBET_EXTENSIONS_DIR", str(tmp_path / "own"))
    module = load_inline("rooted_", "int64_t f() { return 1; }", functions="f")
    (tag,) = (tmp_path / "own").iterdir()
    assert Path(module.__file__) == tag / "rooted_" / "rooted_.so"
    monkeypatch.delenv("RABBET_EXTENSIONS_DIR")
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cpp_extension.get_default_build_root() == "/caches/rabbet_extensions"


# ---- plugins

PLUGIN = """
#include "rabbet/plugin.hpp"
static int32_t init(const RbHost* host, RbTxn* txn) {
  rb::host = host;
  return host->add_ops(txn, "extended::NAME(Tensor x) -> Tensor\\n  kind elementwise\\n  expose none\\n"
                            "  decomp x * FACTOR\\n  doc  `x` times a number\\n");
}
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED, 0, 0,
                                "extended-NAME", "1", init, 0};
extern "C" RB_EXPORT const RbPlugin* rabbet_plugin_v0() { return &plugin; }
"""


def plugin(name):
    return PLUGIN.replace("NAME", name).replace("FACTOR", "3")


def test_a_plugin_registers_its_operators(tmp_path):
    path = load("tripled", write(tmp_path, "a.cpp", plugin("tripled")), is_python_module=False, build_directory=tmp_path)  # fmt: skip
    assert path == str(tmp_path / "tripled.so")
    assert rabbet.ops.extended.tripled(rabbet.ones(2)).tolist() == [3, 3]


def test_a_library_may_be_a_plugin_and_a_module(tmp_path):
    source = plugin("both") + "int64_t number() { return 8; }"
    module = load_inline("both_", source, functions=["number"], build_directory=tmp_path)
    assert module.number() == 8 and rabbet.ops.extended.both(rabbet.ones(1)).item() == 3


def test_load_library_loads_plugins_and_refuses_other_libraries(tmp_path):
    code = f"""
from rabbet.utils.cpp_extension import load
load("later", {str(write(tmp_path, "l.cpp", plugin("later")))!r}, is_python_module=False, build_directory={str(tmp_path)!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    rabbet.ops.load_library(tmp_path / "later.so")
    assert rabbet.ops.extended.later(rabbet.ones(1)).item() == 3
    with pytest.raises(OSError, match="exports no rabbet_plugin_v0"):
        rabbet.ops.load_library(__file__)


def test_a_library_without_a_module_is_an_import_error(tmp_path):
    with pytest.raises(ImportError, match="PyInit_nothing_"):
        load_inline("nothing_", "", build_directory=tmp_path)


# ---- refused requests


@pytest.mark.parametrize("header", ["torch/extension.h", "ATen/ATen.h", "c10/util/Exception.h", "torch/all.h"])  # fmt: skip
def test_headers_of_pytorch_are_refused_before_compiling(tmp_path, header):
    text = f'// #include <torch/torch.h>\n/* #include <ATen/a.h> */ const char* s = "//";\n  #  include <{header}> // x\n'
    with pytest.raises(NotImplementedError, match=rf"load_inline: `cpp_sources` includes <{header}> in line 3.*porting-ext"):  # fmt: skip
        load_inline("refused_", text, build_directory=tmp_path)
    write(tmp_path, "inner.h", text)
    write(tmp_path, "outer.h", '#include "inner.h"\n#include "outer.h"\n#include "not_there.h"')
    source = write(tmp_path, "a.cpp", '#include "outer.h"')
    with pytest.raises(NotImplementedError, match=rf"load: '.*inner.h' includes <{header}> in line 3"):  # fmt: skip
        load("refused_", source, build_directory=tmp_path)
    assert not list(tmp_path.glob("*.o")) and not list(tmp_path.glob("*.lock"))


def test_the_page_that_errors_name_is_there():
    from rabbet.utils.cpp_extension._sources import PORTING

    root = Path(__file__).resolve().parents[3]
    assert (root / PORTING).is_file()


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda f: load("x", [f / "a.cu"], build_directory=f), NotImplementedError, "a.cu' cannot be compiled, as rabbet runs no nvcc"),
        (lambda f: load("x", [f / "a.cpp"], build_directory=f), FileNotFoundError, "there is no source file"),
        (lambda f: load("x", [], build_directory=f), ValueError, "`sources` is empty"),
        (lambda f: load("x", 3, build_directory=f), TypeError, "`sources` must be a path or a list of paths, got 3"),
        (lambda f: load("a-b", [], build_directory=f), ValueError, "`name` must be an identifier, got 'a-b'"),
        (lambda f: load("x", [f], with_cuda=True), NotImplementedError, "with_cuda=True"),
        (lambda f: load_inline("x", "", build_directory=f / "none"), FileNotFoundError, "there is no folder"),
        (lambda f: load_inline("x", 3), TypeError, "`cpp_sources` must be a str or a list of str, got 3"),
        (lambda f: load_inline("x", "", functions=3), TypeError, "`functions` must be a str or a list"),
        (lambda f: load_inline("x", "", "__global__"), NotImplementedError, "`cuda_sources`"),
        (lambda f: load_inline("x", "", extra_cflags="-O3", build_directory=f), TypeError, "`extra_cflags` must be a list of str"),
        (lambda f: cpp_extension.include_paths("cuda"), NotImplementedError, "device_type='cuda'"),
        (lambda f: cpp_extension.frobnicate, AttributeError, "frobnicate"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused(tmp_path, call, error, text):
    with pytest.raises(error, match=text):
        call(tmp_path)


# ---- setuptools, which fails to import where pip was imported before: each test runs it in a process of its own

needs_setuptools = pytest.mark.skipif(not find_spec("setuptools"), reason="needs setuptools")

SETUP = """
from setuptools import setup
from rabbet.utils.cpp_extension import BuildExtension, CppExtension

options = {"no_python_abi_suffix": True}
setup(
    name="boxed", version="1", packages=["boxed"], package_dir={"boxed": "."},
    ext_modules=[CppExtension("boxed._C", ["boxed.cpp"], extra_compile_args={"cxx": ["-DNUMBER=6"], "nvcc": ["-O3"]})],
    cmdclass={"build_ext": BuildExtension.with_options(**options)},
)
"""


def build_with_setuptools(folder, source):
    write(folder, "setup.py", SETUP)
    write(folder, "__init__.py", "")
    write(folder, "boxed.cpp", source)
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@needs_setuptools
def test_setuptools_builds_an_extension(tmp_path):
    source = (
        '#include "rabbet/extension.hpp"\nint64_t get() { return NUMBER; }\n'
        'RABBET_MODULE(m) { m.def<get>("get"); }'
    )
    done = build_with_setuptools(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/boxed/_C.so").is_file()
    program = "import boxed._C; print(boxed._C.get(), boxed._C.__name__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "out", capture_output=True, text=True)  # fmt: skip
    assert done.stdout.split() == ["6", "_C"] or done.stdout.split() == ["6", "boxed._C"]


@needs_setuptools
def test_setuptools_is_told_of_headers_of_pytorch(tmp_path):
    done = build_with_setuptools(tmp_path, "#include <torch/extension.h>\n")
    assert done.returncode and "BuildExtension: " in done.stderr
    assert "includes <torch/extension.h> in line 1" in done.stderr


@needs_setuptools
@pytest.mark.parametrize(
    "call, text",
    [
        ("CUDAExtension('x', [])", "cpp_extension.CUDAExtension: 'x' cannot"),
        (
            "SyclExtension('x', [])",
            "cpp_extension.SyclExtension: 'x' cannot be compiled, as rabbet has no SYCL",
        ),
        ("CppExtension('x', ['a.cu'])", "cpp_extension.CppExtension: a source of 'x' cannot"),
    ],
)
def test_extensions_for_other_compilers_are_refused(call, text):
    code = f"from rabbet.utils import cpp_extension; cpp_extension.{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"rabbet.NotImplementedForError: {text}" in done.stderr
