"""What the doctor says beyond failures (test_broken_plugins): what is alive, what is hidden, what was left behind."""

import json
import re
import shutil
from pathlib import Path

import pytest
import rabbet
from plugin_wheels import KERNEL, MANIFEST, build, build_backend, install, run
from rabbet import _doctor, _doctor_text, _plugins

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/doctor.md"
DOCTOR = "from rabbet._doctor import main\nraise SystemExit(main({}))"


def report(folder, code="", **env):
    text = f"import rabbet\n{code}\n{DOCTOR.format(['--json'])}"
    return json.loads(run(folder, text, **env))


def plugin(data, name):
    (found,) = (p for p in data["plugins"] if p["name"] == name)
    return found


@pytest.fixture
def wheel(tmp_path):
    def make(name, code="", manifest="", kind="backend", library=None):
        library = library or build_backend(tmp_path, name)
        install(tmp_path, name, MANIFEST.format(name, kind) + manifest, library, code)
        return tmp_path

    return make


def test_the_page_names_every_key():
    keys = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    data = _doctor.report()
    for part in (data, *data["plugins"], *data["coverage"].values()):
        assert set(part) <= keys
    assert set(data["plugins"][0]["live"]) <= keys


def test_lines_are_short_and_nothing_is_missing():
    data = _doctor.report()
    for show in (_doctor_text.text, _doctor_text.layers_text, _doctor_text.coverage_text):
        assert max(map(len, show(data).splitlines())) <= 100
    text = _doctor_text.text(data)
    for p in data["plugins"]:
        assert p["name"] in text and p["wheel"] in text and p["version"] in text


def test_what_is_alive_is_told_for_each_plugin(wheel):
    folder = wheel("far")
    wheel("further")
    data = report(
        folder,
        "x = rabbet.ones(100).to('far'); y = x.to('further'); z = y[1:]\n"
        "w = rabbet.ones(3, requires_grad=True); v = w * 2",
    )
    assert plugin(data, "far")["live"]["devices"] == {
        "far": {"tensors": 1, "storages": 1, "bytes": 400}
    }
    assert plugin(data, "further")["live"]["devices"] == {
        "further": {"tensors": 2, "storages": 1, "bytes": 400}
    }
    assert plugin(data, "autograd")["live"]["slots"] == {"autograd": 2}
    assert plugin(data, "autograd")["live"]["layers"] == ["autograd", "call_mode", "jvp"]
    assert plugin(data, "cpu")["live"]["kernels"] == data["coverage"]["cpu"]["kernels"] > 100
    (far,) = (b for b in data["backends"] if b["name"] == "far")
    assert (far["bytes_in_use"], far["bytes_cached"]) == (512, 0)


def test_an_op_packs_operators_kernels_and_handles_are_counted(tmp_path):
    init = (
        'RbKernel k = kernel("odd::f", 0); k.backend = "cpu"; '
        'if (host->add_ops(txn, "odd::f(Tensor x) -> Tensor\\n  kind elementwise\\n"'
        '  "odd::g(Tensor x) -> Tensor\\n  kind composite\\n  decomp x + x\\n")) return 1;'
        "return host->add_kernel(txn, &k);"
    )
    code = """
def rabbet_register_ops(lib):
    lib.impl("odd::g", "cpu", lambda x: x + x)
    lib.op("odd::h(Tensor x) -> Tensor", decomp="x * 2")(lambda x: x * 2)
"""
    library = build(tmp_path, "odd", extra=KERNEL, init=init)
    install(tmp_path, "odd", MANIFEST.format("odd", "ops") + "hooks = true\n", library, code)
    live = plugin(report(tmp_path), "odd")["live"]
    assert (live["operators"], live["kernels"], live["registrations"]) == (3, 1, 2)


def test_coverage_names_what_a_device_lacks(wheel, tmp_path):
    init = (
        'RbKernel k = kernel("exp", 0); k.backend = "cpu"; k.backend = "odd"; '
        "k.dtype_mask = 1u << RB_F32 | 1u << RB_F64; return host->add_kernel(txn, &k);"
    )
    kernels = build(tmp_path, "kernels", extra=KERNEL, init=init, wheel="kernels")
    folder = wheel("odd")
    install(folder, "kernels", MANIFEST.format("kernels", "ops"), kernels)
    cover = report(folder)["coverage"]["odd"]
    assert cover["kernels"] == cover["primitives_with_kernel"] == 1
    assert cover["dtypes"] == {"float32": 1, "float64": 1}
    assert "add" in cover["missing"] and "exp" not in cover["missing"]
    assert len(cover["missing"]) == cover["primitives"] - 1
    assert "to_device" not in cover["missing"]  # core's own
    text = run(folder, DOCTOR.format(["--coverage"]))
    assert "odd: 1 of" in text and "operators by dtype: float32 1, float64 1" in text
    assert "primitives without a kernel: " in text and " add," in text and "meta" not in text


def test_an_entry_point_that_another_hides_is_told(wheel, tmp_path):
    folder = wheel("far")
    info = folder / "another_wheel-2.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[rabbet.plugins]\nfar = far_plugin\n")
    (warning,) = report(folder)["warnings"]
    assert warning.startswith(f"entry point 'far' of wheel far-plugin 1.0 in {folder} is not used")
    assert "another-wheel 2.0" in warning

    info.rename(folder / "far_plugin-0.9.dist-info")  # what an upgrade may leave
    (warning,) = report(folder)["warnings"]
    assert warning.startswith("entry point 'far' of another copy")
    text = run(folder, DOCTOR.format([]))
    assert "warning: entry point 'far' of another copy" in text


def test_two_plugins_that_provide_one_name_are_told(wheel, tmp_path):
    folder = wheel("far")
    manifest = MANIFEST.format("odd", "backend").replace('["odd"]', '["far"]')
    (folder / "other").mkdir()
    library = build_backend(folder / "other", "far").rename(folder / "libodd.so")
    install(folder, "odd", manifest, library)
    (warning,) = report_of_failed(folder)["warnings"]
    assert warning == (
        "plugins 'far' (wheel far-plugin) and 'odd' (wheel odd-plugin) both provide 'far': the first is used, "
        "uninstall one of them"
    )


def report_of_failed(folder, **env):
    text = "import sys\nfrom rabbet._doctor import main\nassert main(['--json']) == 1"
    return json.loads(run(folder, text, **env))


def test_rabbets_own_wheels_come_before_others_of_a_name(tmp_path):
    """Whatever comes first on the path."""
    library = build_backend(tmp_path, "cpu")
    install(tmp_path, "acpu", MANIFEST.format("cpu", "backend"), library)
    code = "import rabbet\nprint(rabbet.ones(2).add(1).tolist())"
    assert run(tmp_path, code) == "[2.0, 2.0]\n"
    failed = plugin(report_of_failed(tmp_path), "acpu")
    assert "belongs to rabbet-backend-cpu" in failed["cause"]


def test_the_environments_choice_is_told(tmp_path):
    data = report(tmp_path, RABBET_PLUGINS="cpu,ghost")
    assert data["environment"]["RABBET_PLUGINS"] == "cpu,ghost"
    assert [p["name"] for p in data["plugins"]] == ["cpu"]
    assert data["warnings"] == [
        "RABBET_PLUGINS names 'ghost', but no installed wheel has an entry point of that name"
    ]
    none = "from rabbet._doctor import main\nassert main([]) == 1"  # no backend
    text = run(tmp_path, none, RABBET_PLUGINS="0")
    assert "RABBET_PLUGINS=0\n" in text and "Plugins:\n  none installed\n" in text


def test_a_library_by_path_needs_no_wheel(tmp_path):
    library = build_backend(tmp_path, "far")
    data = report(tmp_path, RABBET_PLUGINS=f"cpu,{library}")
    found = plugin(data, "libfar.so")
    assert found["stage"] == "ACTIVE" and list(found["live"]["devices"]) == ["far"]


def test_what_installations_left_is_told(wheel):
    folder = wheel("far")
    shutil.copytree(folder / "far_plugin-1.0.dist-info", folder / "~ar_plugin-1.0.dist-info")
    (folder / "__editable__.rabbet_gone-0.1.0.pth").write_text("/nowhere\n")
    warnings = report(folder)["warnings"]
    assert len(warnings) == 2
    assert re.match(r".*/~ar_plugin-1.0.dist-info: what pip left .*; remove it", warnings[0])
    assert re.match(r".*/__editable__.rabbet_gone-0.1.0.pth: the finder of an ed.*", warnings[1])


def test_an_editable_install_whose_project_is_gone(tmp_path):
    install(tmp_path, "odd", MANIFEST.format("odd", "backend"))
    shutil.rmtree(tmp_path / "odd_plugin")
    direct = {"dir_info": {"editable": True}, "url": f"file://{tmp_path}/project"}
    (tmp_path / "odd_plugin-1.0.dist-info/direct_url.json").write_text(json.dumps(direct))
    data = report_of_failed(tmp_path)
    assert plugin(data, "odd")["cause"] == "the package 'odd_plugin' is not there"
    assert (
        plugin(data, "odd")["fix"]
        == f"its project {tmp_path}/project is gone: pip uninstall odd-plugin"
    )
    (warning,) = data["warnings"]
    assert f"an editable install of {tmp_path}/project, which is not there any more" in warning


BAD_REPORTS = {
    "raises": ("raise OSError('no board')", "hook 'rabbet_doctor' of plugin 'odd' raised OSError: no board"),
    "returns": ("return [1]", "hook 'rabbet_doctor' of plugin 'odd' must return None, it returned list [1]"),
    "adds no text": ("report.add(3)", "raised TypeError: report.add: expected a str, got int 3"),
    "puts no JSON": ("report.put('x', {1, 2})", "raised TypeError: Object of type set is not JSON serializable"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_REPORTS)
def test_a_doctor_hook_that_fails_is_a_line_of_its_report(kind, wheel):
    body, expected = BAD_REPORTS[kind]
    folder = wheel("odd", f"def rabbet_doctor(report):\n    {body}\n", "hooks = true\n")
    wheel("far", "def rabbet_doctor(report):\n    report.add('fine')\n", "hooks = true\n")
    data = report(folder)
    (note,) = plugin(data, "odd")["notes"]
    assert expected in note and plugin(data, "odd")["stage"] == "ACTIVE"
    assert plugin(data, "far")["notes"] == ["fine"]


@pytest.mark.parametrize("body", ["raise OSError('no board')", "return 3", "return {1: 2}"])
def test_conformance_parameters_that_are_none(body, wheel):
    folder = wheel("odd", f"def rabbet_conformance_params(level):\n    {body}\n", "hooks = true\n")
    code = """
import rabbet
from rabbet import _plugins
try:
    _plugins.conformance_params("odd", "L2")
except rabbet.PluginError as error:
    print(error)
print(rabbet.ones(2).to("odd").cpu().tolist())
"""
    said, works = run(folder, code).splitlines()
    assert said.startswith("hook 'rabbet_conformance_params' of plugin 'odd' ")
    assert "no board" in said or "must return a dict with str keys, it returned" in said
    assert works == "[1.0, 1.0]"


def test_conformance_parameters_of_plugins_without_them():
    assert _plugins.conformance_params("cpu", "L1") == {}
    assert _plugins.conformance_params("autograd", "L3") == {}
    with pytest.raises(rabbet.PluginError, match="no plugin for 'ghost' is installed"):
        _plugins.conformance_params("ghost", "L2")


def test_two_strangers_that_want_one_attribute(wheel):
    code = "def rabbet_tensor_attributes():\n    return {'oddness': property(lambda t: 'NAME')}\n"
    folder = wheel("far", code.replace("NAME", "far"), 'attributes = ["oddness"]\n')
    wheel("further", code.replace("NAME", "further"), 'attributes = ["oddness"]\n')
    failed = plugin(report_of_failed(folder), "further")
    assert failed["cause"] == (
        "plugin 'further' (wheel further-plugin) wants to put 'oddness' on Tensor, but Tensor.oddness is an "
        "attribute of plugin 'far' (wheel far-plugin) already"
    )
    text = "import rabbet\nx = rabbet.ones(1).to('far')\nprint(x.oddness)"
    assert run(folder, text) == "far\n"


def test_threads_that_ask_for_one_device_load_it_once(wheel):
    folder = wheel("far")
    code = """
import threading
import rabbet
start, failed = threading.Barrier(8), []
def work():
    start.wait()
    try:
        rabbet.empty(3, device="far")
    except Exception as error:
        failed.append(error)
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(failed, [b["name"] for b in rabbet._C.backends()].count("far"))
"""
    assert run(folder, code) == "[] 1\n"


def test_options(capsys):
    assert _doctor.main(["--colour"]) == 2
    said = capsys.readouterr().err
    assert "unknown option --colour; options: --json, --layers, --coverage, --import=MODULE" in said
