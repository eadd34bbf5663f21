"""Programs written for PyTorch run unmodified, with the losses that PyTorch has from the same weights."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from write_program_losses import PROGRAMS, losses, names

STORED = json.loads((Path(__file__).parent / "program_losses.json").read_text())["losses"]
RABBET = [sys.executable, "-m", "rabbet", "run"]
TOLERANCE = 1e-4  # float32 over 20 steps


def test_every_program_has_stored_losses():
    assert sorted(STORED) == names() and len(names()) >= 12
    assert all(len(values) == 20 and np.isfinite(values).all() for values in STORED.values())


def test_no_program_knows_of_rabbet():
    for path in PROGRAMS.glob("*.py"):
        assert "rabbet" not in path.read_text(), path.name


@pytest.mark.parametrize("name", names())
def test_a_program_has_the_losses_that_torch_had(name):
    np.testing.assert_allclose(losses(RABBET, name), STORED[name], rtol=TOLERANCE, atol=1e-6)


@pytest.mark.parametrize("name", names())
def test_a_program_has_the_losses_of_torch(name):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    ours = losses(RABBET, name)
    np.testing.assert_allclose(ours, losses([sys.executable], name), rtol=TOLERANCE, atol=1e-6)


def test_weights_go_through_a_file(tmp_path):
    file = tmp_path / "weights.npz"
    options = ("--weights", str(file), "--steps", "1")
    written = losses(RABBET, "vae", *options)
    with np.load(file) as weights:
        changed = {name: 1.5 * value for name, value in weights.items()}
    np.savez(file, **changed)
    assert losses(RABBET, "vae", *options)[0] > 1.01 * written[0]
