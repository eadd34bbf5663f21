"""The command `rabbet`: versions, help, words that are no command, pipes that close."""

import os
import subprocess
import sys

import pytest
import rabbet
from plugin_wheels import MANIFEST, build_backend, install
from rabbet.__main__ import USAGE, main


def command(*arguments, **env):
    return subprocess.run(
        [sys.executable, "-m", "rabbet", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_every_way_to_ask_for_the_version_prints_it(word, capsys):
    assert main([word]) == 0
    assert capsys.readouterr().out == f"{rabbet.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["version", "--help"]])
def test_every_way_to_ask_for_help_prints_it(words, capsys):
    assert main(words) == 0
    assert capsys.readouterr().out == f"{USAGE}\n"


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("name", ["run", "bottleneck", "doctor", "new-plugin", "emit"])
def test_every_command_explains_itself(name, option):
    done = command(name, option)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith(f"usage: rabbet {name} ")


def test_the_usage_names_every_command(capsys):
    for name in (
        "run",
        "bottleneck",
        "doctor",
        "new-plugin",
        "emit",
        "cmakedir",
        "version",
        "help",
    ):
        assert f"\n  {name} " in USAGE
    assert main([]) == 2
    assert capsys.readouterr().err == f"{USAGE}\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("doctr", "doctor"), ("Doctor", "doctor"), ("ru", "run"), ("new-pluging", "new-plugin"), ("versoin", "version")],
)  # fmt: skip
def test_a_misspelled_command_is_answered_with_the_nearest(word, meant, capsys):
    assert main([word]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"rabbet: there is no command '{word}'; did you mean '{meant}'?\n"


@pytest.mark.parametrize("word", ["frobnicate", "--colour", ""])
def test_a_word_like_no_command_is_answered_with_all_of_them(word, capsys):
    assert main([word]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"rabbet: there is no command '{word}'; commands: run, bottleneck, doctor,"
    )


def test_arguments_of_commands_that_take_none_are_refused(capsys):
    assert main(["version", "--json"]) == 2
    assert capsys.readouterr().err == "rabbet version: takes no arguments, got --json\n"


@pytest.mark.parametrize("arguments", [("doctor",), ("help",)])
def test_a_pipe_that_closes_leaves_no_traceback(arguments):
    """The reader has gone before anything is written, as `head` may have."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rabbet", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141 and said == ""


def test_the_doctor_says_what_to_install_where_no_backend_is():
    done = command("doctor", RABBET_PLUGINS="")
    text = " ".join(done.stdout.split())
    assert done.returncode == 1 and done.stderr == ""
    assert "problem: there is no backend for 'cpu', the default device" in text
    assert "RABBET_PLUGINS= leaves it out; else pip install rabbet-backend-cpu" in text


def test_a_device_of_another_kind_does_not_replace_that_of_the_cpu(tmp_path):
    install(tmp_path, "far", MANIFEST.format("far", "backend"), build_backend(tmp_path, "far"))
    path = os.pathsep.join([str(tmp_path), *[p for p in sys.path if p]])
    done = command("doctor", RABBET_PLUGINS="far", PYTHONPATH=path)
    assert done.returncode == 1 and "no backend for 'cpu'" in done.stdout


def test_a_healthy_installation_has_no_problems(capsys):
    assert main(["doctor"]) == 0
    assert "problem:" not in capsys.readouterr().out
