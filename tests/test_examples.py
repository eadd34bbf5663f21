"""The examples do what they promise, run as a user runs them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import rabbet

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(name: str, *options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True)


def last_line(done: subprocess.CompletedProcess[str]) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    return folder, run("digits.py", "--json", "--out", folder)


def test_digits_reach_the_promised_accuracy(digits):
    scores = last_line(digits[1])
    assert set(scores) == {"mlp", "cnn", "train_seconds"}
    assert scores["mlp"] >= 0.97 and scores["cnn"] >= 0.985
    assert scores["train_seconds"] > 0


def test_digits_show_progress_on_stderr_alone(digits):
    _, done = digits
    assert len(done.stdout.splitlines()) == 1
    assert "images/s" in done.stderr and "loss" in done.stderr


def test_digits_leave_a_picture_and_checkpoints(digits):
    folder, _ = digits
    assert (folder / "digits.png").read_bytes().startswith(b"\x89PNG")
    for name in ("mlp", "cnn"):
        state = rabbet.load(folder / f"digits_{name}.safetensors")
        assert all(isinstance(value, rabbet.Tensor) for value in state.values())


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_train_one_shared_model(start):
    scores = last_line(run("hogwild.py", "--json", "--start", start))
    assert scores["before"] < 0.3 and scores["after"] >= 0.93


@pytest.mark.parametrize("options", [("--workers", 2), ("--workers", 0), ("--kind", "threads")])
def test_a_cnn_learns_from_a_folder_of_images(options):
    figures = last_line(run("images.py", "--json", "--epochs", 10, *options))
    assert figures["accuracy"] > 0.8 and figures["loss"] < 0.6
    assert figures["loading"] > 0 and figures["compute"] > 0 and 0 <= figures["waited"] <= 1


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "note.txt").write_text("no image")
    done = run("images.py", "--folder", tmp_path)
    assert (
        done.returncode == 1 and "expected folders with images, one for each class" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_digits_are_the_same_for_the_same_seed(tmp_path):
    outcomes = []
    for _ in range(2):
        last_line(run("digits.py", "--json", "--epochs", 2, "--seed", 3, "--out", tmp_path))
        outcomes.append((tmp_path / "digits_cnn.safetensors").read_bytes())
    assert outcomes[0] == outcomes[1]


def test_digits_report_a_loss_that_is_not_finite(tmp_path):
    done = run("digits.py", "--epochs", 2, "--lr", "1e30", "--out", tmp_path)
    assert done.returncode == 1
    assert "training diverged" in done.stderr and "learning rate" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "digits.png").exists()


def test_digits_notice_a_checkpoint_that_predicts_otherwise(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import digits as example

    model = example.Mlp()
    state = model.state_dict()
    other = {n: -v if n.startswith("layers.7.") else v for n, v in state.items()}
    assert (
        len(other["layers.7.bias"]) == 10
    )  # the last layer: the least likely class is the likeliest
    monkeypatch.setattr(rabbet, "load", lambda path: other)
    with pytest.raises(RuntimeError, match="predicts otherwise"):
        example.check_checkpoint(
            model, example.Mlp, rabbet.rand(64, 1, 8, 8), tmp_path / "m.safetensors"
        )


def test_the_transformer_learns_letters_and_writes_some():
    figures = last_line(run("char_gpt.py", "--steps", 60, "--json"))
    assert figures["loss"] < 0.8 * figures["first_loss"] and math.isfinite(figures["loss"])
    assert len(figures["sample"]) > 300


def test_function_transforms_agree_with_their_loops():
    done = run("function_transforms.py")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 5
