"""L0: the library at the boundary. Each check runs in a process of its own, where a crash is a finding."""

import os

import pytest
import rabbet

from rabbet_testing.conformance.subject import Subject
from rabbet_testing.judges import library as symbols
from rabbet_testing.judges import packs
from rabbet_testing.judges.processes import MODULES, run_module
from rabbet_testing.judges.reasons import Reason, skip, tagged


@pytest.fixture(scope="session")
def library(plugin: Subject) -> str:
    """The path of the plugin's library."""
    if not plugin.library:
        skip(Reason.NOT_OFFERED, "the plugin has no library, only Python")
    return plugin.library


def judge(findings: list[str]) -> None:
    """Fail with all that was found."""
    if findings:
        pytest.fail("\n".join(findings), pytrace=False)


def probe(name: str, plugin: Subject, path: str = "", **environment: str) -> list[str]:
    """The findings of one of rabbet_testing.probes."""
    environment[MODULES] = ",".join(plugin.registering)
    return run_module("probes", name, plugin.kind, plugin.name, path, plugin.module, **environment)[
        0
    ]


# ---- the library


def test_its_symbols(library):
    """One entry for all; nothing of core or of Python is needed."""
    if not symbols.can_read_symbols():
        skip(Reason.NO_TOOL, "the tool nm is not installed")
    judge(symbols.judge(library))


def test_its_rbplugin(library, plugin):
    """Sizes, names, versions; they agree with the wheel and its manifest."""
    findings, said = run_module("fake_host", library, "plugin")
    told = said.get("plugin") or {"abi": list(rabbet._C.abi), "abi_min": 0, "name": plugin.wheel}
    if told["abi"][0] != rabbet._C.abi[0]:
        findings.append(f"RbPlugin.abi_major is {told['abi'][0]}, expected {rabbet._C.abi[0]}")
    if plugin.module and told["name"] != plugin.wheel:
        findings.append(f"RbPlugin.name is {told['name']!r}, the wheel is {plugin.wheel!r}")
    stated, needed = plugin.manifest.get("abi"), [told["abi"][0], told["abi_min"]]
    if stated is not None and stated != needed:
        findings.append(f"the manifest says abi = {stated}, the library needs {needed}")
    judge(findings)


def test_opening_it_registers_nothing(library, plugin):
    """Only `init` registers: there is no static constructor that does."""
    judge(probe("opening", plugin, library))


# ---- init


def test_init_on_every_supported_core(library):
    """What is registered fits; nothing is read beyond the end of the host table, however short it is."""
    judge(run_module("fake_host", library, "init")[0])


def test_init_returns_the_code_of_a_registration_that_fails(library):
    """Each registration fails once, and the init after that works."""
    judge(run_module("fake_host", library, "failures")[0])


def test_devices_can_be_counted(library, plugin):
    """At once, before anything else."""
    if plugin.kind == "ops":
        skip(Reason.OTHER_SUBJECT, "operators have no devices")
    judge(run_module("fake_host", library, "devices")[0])


@pytest.mark.parametrize("minor", sorted(rabbet._C.abi_host_sizes))
def test_it_works_on_older_cores_or_is_refused_in_words(minor, library, plugin):
    """RABBET_ABI_MINOR makes core offer what an older one did."""
    needed = run_module("fake_host", library, "plugin")[1].get("plugin", {}).get("abi_min", 0)
    findings = probe("starting", plugin, library, RABBET_ABI_MINOR=str(minor))
    if minor < needed:
        refused = any("upgrade rabbet-core" in f or "no " + plugin.kind in f for f in findings)
        findings = (
            []
            if refused
            else [f"it needs version {needed}, and is not refused on {minor}: {findings}"]
        )
    judge(findings)


# ---- a program that uses it


def test_loading_it_twice(library, plugin):
    """The same path is the same plugin; a copy is refused, and leaves no trace."""
    judge(probe("loading-twice", plugin, library))


def test_importing_its_module_first(plugin):
    """The order of imports does not matter."""
    if not plugin.module:
        skip(Reason.NOT_OFFERED, "the plugin has no module of its own")
    judge(probe("importing", plugin))


def test_several_threads(plugin):
    """Own and shared tensors on four threads at once."""
    judge(probe("threading", plugin))


@pytest.mark.skipif(
    not hasattr(os, "fork"), reason=tagged(Reason.NO_TOOL, "the platform has no fork")
)
def test_fork(plugin):
    """The child works, or says why not; the parent is as before."""
    judge(probe("forking", plugin))


@pytest.mark.parametrize("how", ["exiting", "failing-exit"])
def test_the_end_of_the_process(how, plugin):
    """With tensors alive and a thread that computes, or with a function of atexit that fails."""
    judge(probe(how, plugin))


def test_bad_calls(plugin):
    """Kernels answer what does not fit with a status code, and the device works afterwards."""
    if plugin.kind == "layer":
        skip(Reason.OTHER_SUBJECT, "a layer has no kernels")
    if plugin.kind == "ops" and not packs.drawn(plugin.name, plugin.params("ops")):
        skip(Reason.NO_EXAMPLE, "there is no call to spoil")
    judge(probe("bad-calls", plugin))
