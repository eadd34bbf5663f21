"""The fuzzer finds faults planted into operators, and repeats a call by two numbers."""

import os
import subprocess
import sys

import pytest
from rabbet_testing.fuzz import calls
from rabbet_testing.fuzz.__main__ import Child, fault, on_purpose

# The module stands for rabbet in the child: what it patches is wrong there.
PLANT = """
import os, signal, sys, time
import rabbet
right = rabbet.{op}
def wrong(*args, **kwargs):
    {body}
rabbet.{op} = wrong
sys.modules[__name__] = rabbet
"""
FAULTS = {  # operator, what it does instead, what is said
    "signal": ("exp", "os.kill(os.getpid(), signal.SIGSEGV)", "crash: -11"),
    "exit": ("sin", "os._exit(3)", "crash: 3"),
    "hang": ("cos", "time.sleep(60)", "hang"),
    "shape": ("neg", "return right(*args, **kwargs).unsqueeze(0)", "got shape"),
    "dtype": ("square", "return right(*args, **kwargs).to(rabbet.bfloat16)", "of bfloat16"),
    "values": ("abs", "return right(*args, **kwargs) + 1", "at 0"),
    "sign": ("floor", "return -right(*args, **kwargs)", "at "),
    "nan": (
        "relu",
        "return right(*args, **kwargs).nan_to_num(0.0, float('inf'), -float('inf'))",
        "nan",
    ),
    "off_by_one": ("cumsum", "return right(*args, **kwargs) - args[0]", "at "),
    "option": ("add", "kwargs.pop('alpha', None); return right(*args, **kwargs)", "at "),
    "results": ("sort", "return right(*args, **kwargs)[0], right(*args, **kwargs)[0]", "got "),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, tmp_path, monkeypatch):
    op, body, said = FAULTS[name]
    (tmp_path / "planted.py").write_text(PLANT.format(op=op, body=body))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(calls, "names", lambda: [op])
    planted, right = Child(sys.executable, "planted", 3.0), Child(sys.executable, "rabbet")
    found = None
    for index in range(200):
        call = calls.call(5, index)
        if call is None or call["form"] != "function":
            continue
        want = right.run(call)
        if "result" in want:
            found = fault(planted.run(call), want)
        if found:
            break
    planted.close(), right.close()
    assert found and said in found


def test_what_is_right_is_not_found():
    one, other = Child(sys.executable, "rabbet"), Child(sys.executable, "rabbet")
    drawn = [c for c in (calls.call(7, i) for i in range(60)) if c is not None]
    answers = [(one.run(c), other.run(c)) for c in drawn]
    one.close(), other.close()
    assert sum("result" in a for a, _ in answers) > 10
    assert [fault(a, b) for a, b in answers] == [None] * len(answers)


def test_two_numbers_repeat_a_call():
    assert [calls.call(3, i) for i in range(50)] == [calls.call(3, i) for i in range(50)]
    command = [sys.executable, "-m", "rabbet_testing.fuzz", "--seed", "3", "--index", "2"]
    runs = [
        subprocess.run(command, capture_output=True, text=True, env=os.environ) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout and runs[0].returncode == 0, runs[0].stderr


def test_what_differs_on_purpose_is_read(tmp_path):
    (tmp_path / "table.md").write_text("| operator | reason |\n|---|---|\n| `topk` | ties |\n")
    assert (
        on_purpose(tmp_path / "table.md") == {"topk"} and on_purpose(tmp_path / "none.md") == set()
    )
    one, other = ({"result": [[1], dtype, [v]]} for dtype, v in (("int64", "1"), ("int64", "2")))
    assert fault(one, other) == "at 0: got 1, torch 2" and fault(one, other, values=False) is None
    assert fault(one, {"result": [[1], "int32", ["1"]]}, values=False)
