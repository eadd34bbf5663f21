"""`rabbet bottleneck`: a program's report."""

import re
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.ones(6, 4), batch_size=2):
    loss = model(batch).exp().sum()
    loss.backward()
    optimizer.step()
print("done", *sys.argv[1:])
"""


def bottleneck(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "rabbet", "bottleneck", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_a_report_names_parts_operators_and_lines(tmp_path):
    program, page = tmp_path / "program.py", tmp_path / "page.html"
    program.write_text(PROGRAM + "sys.exit(3)")
    done = bottleneck("--html", page, program, "--option")
    assert done.returncode == 3 and done.stdout.startswith("done --option"), done.stderr
    for part in (
        "waiting for DataLoader",
        "optimizers",
        "backward",
        "other calls",
        "Python and all else",
    ):
        assert re.search(rf"^ +\d+\.\d+ s +\d+\.\d%  {part}", done.stdout, flags=re.M), part
    assert re.search(r"aten::linear.* 3  ", done.stdout) and "Backward0" in done.stdout
    assert re.search(r"\d%  program\.py\(9\): <module>$", done.stdout, flags=re.M)
    assert "program.py(9): <module> (backward)" in done.stdout
    assert "<script" in page.read_text()


def test_a_program_that_raises_has_its_traceback_and_a_report(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import torch\ntorch.ones(2)\nraise ValueError('no')")
    done = bottleneck(program)
    assert done.returncode == 1 and "ValueError: no" in done.stderr and "aten::ones" in done.stdout


@pytest.mark.parametrize(
    "arguments,code,said",
    [
        (["missing.py"], 2, "rabbet bottleneck: there is no file 'missing.py'"),
        ([], 2, "usage: rabbet bottleneck"),
        (["--odd"], 2, "usage: rabbet bottleneck"),
        (["--help"], 0, "usage: rabbet bottleneck"),
    ],
)
def test_wrong_arguments_are_refused(arguments, code, said):
    done = bottleneck(*arguments)
    assert done.returncode == code and said in done.stdout + done.stderr
