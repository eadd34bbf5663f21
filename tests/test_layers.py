"""Layers of strangers take their place, and the doctor says why each is where it is."""

import itertools
import re
from pathlib import Path

import pytest
import rabbet
from plugin_wheels import MANIFEST, build, install, run
from rabbet import _layers

DOCTOR = "from rabbet._doctor import main\nraise SystemExit(main(['--layers']))"


def names(given: tuple[str, ...]) -> str:
    return "".join(f'"{name}", ' for name in given)


def layer_library(
    folder: Path, name: str, phase: int, before: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> Path:
    """A plugin of the wheel NAME-wheel 1.0 whose layer lets every call through."""
    extra = (
        f"static const char* const before[] = {{{names(before)}0}};\n"
        f"static const char* const after[] = {{{names(after)}0}};\n"
    )
    init = (
        "int32_t id; RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; "
        f'l.name = "{name}"; l.phase = {phase}; l.before = before; l.after = after; '
        "return host->add_layer(txn, &l, &id);"
    )
    return build(folder, name, extra=extra, init=init, wheel=f"{name}-wheel")


def load(*libraries: Path) -> str:
    """Load the plugins in one process; their errors, then the names of all layers in order."""
    return f"""
import rabbet
rabbet.ones(1).requires_grad_()  # loads the tape
for path in {[str(path) for path in libraries]!r}:
    try:
        rabbet._C.load_plugin(path)
    except rabbet.PluginError as error:
        print(error)
print([l["name"] for l in rabbet._C.layers() if not l["transform"]])
x = rabbet.ones(2, requires_grad=True); (x * x).sum().backward(); assert x.grad.tolist() == [2, 2]
"""


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_the_doctor_shows_the_order_and_what_decided_it(tmp_path):
    for name, *place in [
        ("trace", 100, ("ghost", "autograd")),
        ("watch", 600),
        ("count", 600),
        ("zap", 600, (), ("watch", "vmap")),
    ]:
        library = layer_library(tmp_path, name, *place)
        install(tmp_path, name, MANIFEST.format(name, "transform"), library)
    text = flat(run(tmp_path, DOCTOR))

    assert re.findall(r" (\w+) \[[\w .-]+\]", text) == [
        "trace", "autocast", "autograd", "transforms", "functionalize", "jvp", "vmap", "call_mode", "count", "watch", "zap", "compile", "meta", "cpu", "cuda",
    ]  # fmt: skip
    for part in (
        "trace [trace-wheel 1.0] phase 100; before ghost (not installed), autograd",
        "| phase 100 runs before phase 300 autocast",
        "phase 300 runs before phase 400, and autocast declares to run before autograd",
        "| phase 400 runs before phase 450 transforms [rabbet-core]",
        "| phase 450 runs before phase 500 call_mode [rabbet-autograd",
        "| phase 500 runs before phase 600 count",
        "| both have phase 600, and the names decide watch",
        "| zap declares to run after watch zap [zap-wheel 1.0] phase 600; after watch, vmap",
        "| every layer runs before the devices",
        "600-699 layout: ",
    ):
        assert part in text


def test_a_layer_that_is_installed_but_failed_is_told_apart(tmp_path):
    broken = build(tmp_path, "odd", init='(void)txn; return host->err_set(1, "no licence");')
    install(tmp_path, "odd", MANIFEST.format("odd", "transform"), broken)
    library = layer_library(tmp_path, "watch", 600, ("odd",))
    install(tmp_path, "watch", MANIFEST.format("watch", "transform"), library)
    text = flat(
        run(tmp_path, DOCTOR.replace("raise SystemExit(main(['--layers']))", "main(['--layers'])"))
    )
    assert "before odd (not loaded)" in text
    assert "Plugins that failed: odd" in text and "no licence" in text


def test_names_decide_in_whatever_order_wheels_are_loaded(tmp_path):
    libraries = [layer_library(tmp_path, name, 600) for name in ("a", "b", "c")]
    orders = {run(tmp_path, load(*path)) for path in (libraries, libraries[::-1])}
    assert orders == {"['autograd', 'transforms', 'call_mode', 'a', 'b', 'c']\n"}


def install_declared(
    folder: Path, name: str, phase: int, before: tuple[str, ...] = (), declared: int | None = None
) -> None:
    """Install a layer whose manifest says its place (or another phase)."""
    manifest = MANIFEST.format(name, "transform") + (
        f"[layers.{name}]\nphase = {phase if declared is None else declared}\nbefore = {list(before)}\n"
    )
    install(folder, name, manifest, layer_library(folder, name, phase, before))


@pytest.mark.parametrize("used_first", list(itertools.permutations("abc")) + [tuple("edcba")])
def test_the_order_follows_the_manifests_whatever_is_used_first(used_first, tmp_path):
    for name, *place in [
        ("a", 600),
        ("b", 600),
        ("c", 600, ("a",)),
        ("d", 600, ("b",)),
        ("e", 720),
    ]:
        install_declared(tmp_path, name, *place)
    code = f"""
import rabbet
rabbet.ones(1).requires_grad_()
for name in {used_first!r} + tuple("abcde"):
    rabbet._plugins.require_layer(name)
print("".join(l["name"] for l in rabbet._C.layers() if l["provider"].endswith("-wheel 1.0")))
"""
    assert run(tmp_path, code) == "cadbe\n"


def test_a_library_and_its_manifest_that_disagree(tmp_path):
    install_declared(tmp_path, "odd", 700, declared=100)
    install_declared(tmp_path, "watch", 100)
    text = run(
        tmp_path, DOCTOR.replace("raise SystemExit(main(['--layers']))", "main(['--layers'])")
    )
    message = (
        "layer 'odd' of odd-wheel 1.0 has phase 700, but the manifest of its wheel declares 100"
    )
    assert message in flat(text) and "watch" in text.partition("Plugins that failed")[0]


@pytest.mark.parametrize("loaded_first", ["a", "b"])
def test_two_layers_that_both_want_to_be_first(loaded_first, tmp_path):
    libraries = {
        "a": layer_library(tmp_path, "a", 700, before=("b",)),
        "b": layer_library(tmp_path, "b", 700, before=("a",)),
    }
    first = libraries.pop(loaded_first)
    error, order = run(tmp_path, load(first, *libraries.values())).splitlines()
    assert order == f"['autograd', 'transforms', 'call_mode', '{loaded_first}']"
    for part in (
        "layer 'a' of a-wheel 1.0", "layer 'b' of b-wheel 1.0", "uninstall one of the two wheels",
        "'a' (a-wheel 1.0) declares to run before 'b'", "'b' (b-wheel 1.0) declares to run before 'a'",
        f"What was loaded first keeps working without '{next(iter(libraries))}'",
    ):  # fmt: skip
        assert part in error


def test_the_doctor_says_what_to_do_about_a_contradiction(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        library = layer_library(tmp_path, name, 700, before=(other,))
        install(tmp_path, name, MANIFEST.format(name, "transform"), library)
    text = run(tmp_path, "from rabbet._doctor import main\nassert main(['--layers']) == 1")
    (failed,) = re.findall(r"\n  (\w) +\w-plugin 1.0  transform  FAILED\(load\)\n", text)
    works = {"a": "b", "b": "a"}[failed]
    assert f"  {works:<12} [{works}-wheel 1.0]  phase 700; before {failed} (not loaded)" in text
    assert "fix: uninstall one of the wheels that it names" in text


def test_a_cycle_of_three(tmp_path):
    a = layer_library(tmp_path, "a", 700, before=("b",))
    b = layer_library(tmp_path, "b", 700, before=("c",))
    c = layer_library(tmp_path, "c", 700, before=("a",))
    error, order = run(tmp_path, load(a, b, c)).splitlines()
    assert order == "['autograd', 'transforms', 'call_mode', 'a', 'b']"
    for part in (
        "layer 'c' of c-wheel 1.0 cannot be ordered", "'b' (b-wheel 1.0) declares to run before 'c'",
        "'c' (c-wheel 1.0) declares to run before 'a'",
        "but 'a' (a-wheel 1.0) runs before 'b' (b-wheel 1.0) already", "uninstall one of the three",
    ):  # fmt: skip
        assert part in error


@pytest.mark.parametrize(
    "place,message",
    [
        ((100, (), ("autograd",)), "'odd' has phase 100, 'autograd' has phase 400, but 'odd' .* after 'autograd'"),
        ((700, ("autograd",)), "declares to run before 'autograd', but 'autograd' has phase 400"),
        ((500, ("transforms",)), "declares to run before 'transforms', but 'transforms' has phase 450"),
        ((700, ("odd",)), "layer 'odd' of odd-wheel 1.0 declares to run before or after itself"),
    ],
)  # fmt: skip
def test_a_declaration_against_the_phases(place, message, tmp_path):
    rabbet.ones(1).requires_grad_()  # loads the tape
    with pytest.raises(rabbet.PluginError, match=message):
        rabbet._C.load_plugin(str(layer_library(tmp_path, "odd", *place)))


def test_a_full_phase_says_so_and_what_names_could_not_decide_is_shown(tmp_path):
    libraries = [layer_library(tmp_path, name, 700) for name in "abcdef"]
    code = (
        load(*libraries)
        + "from rabbet import _doctor, _doctor_text\nprint(_doctor_text.layers_text(_doctor.report()))"
    )
    error, order, *text = run(tmp_path, code).splitlines()
    assert "layer 'f' of f-wheel 1.0: there is no place left between its neighbours" in error
    assert "phases 700 to 799, which hold at most 5 layers" in error
    assert sorted(re.findall(r"'([a-e])'", order)) == list("abcde")
    assert "by name it would be the other way round" in flat("\n".join(text))


def test_every_phase_has_one_meaning():
    phases = rabbet._C.layer_phases()
    assert phases[0]["first"] == 0
    for one, two in itertools.pairwise(phases):
        assert one["first"] <= one["last"] == two["first"] - 1
    assert all(p["name"] and p["meaning"] for p in phases)


def test_a_declaration_and_a_name_that_agree_are_told_as_the_declaration():
    first = {"name": "a", "phase": 700, "before": ["b"], "after": []}
    second = {"name": "b", "phase": 700, "before": [], "after": ["a"]}
    expected = "a declares to run before b, and b declares to run after a"
    assert _layers.reason(first, second) == expected
