"""The fuzzer finds planted faults, makes calls simpler, and repeats them by two numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import rabbet
from rabbet_testing.fuzz import calls, contexts
from rabbet_testing.fuzz.children import Child
from rabbet_testing.fuzz.judge import fault, on_purpose
from rabbet_testing.fuzz.minimise import minimised

CORPUS = Path(__file__).with_name("fuzz_corpus.jsonl")

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
    "shape": ("neg", "return right(*args, **kwargs).unsqueeze(0)", "shape: "),
    "dtype": ("square", "return right(*args, **kwargs).to(rabbet.bfloat16)", "dtype: bfloat16"),
    "values": ("abs", "return right(*args, **kwargs) + 1", "at 0"),
    "sign": ("floor", "return -right(*args, **kwargs)", "at "),
    "nan": (
        "relu",
        "return right(*args, **kwargs).nan_to_num(0.0, float('inf'), -float('inf'))",
        "nan",
    ),
    "off_by_one": ("cumsum", "return right(*args, **kwargs) - args[0]", "at "),
    "option": ("add", "kwargs.pop('alpha', None); return right(*args, **kwargs)", "at "),
    "results": ("sort", "return right(*args, **kwargs)[0], right(*args, **kwargs)[0]", "dtype: "),
}


def plain_call(op, *args, context="plain"):
    return {"op": op, "form": "function", "method": "", "context": context, "args": list(args),
            "kwargs": {}, "out": None}  # fmt: skip


def tensor(*shape, dtype="float64", seed=3):
    return {"shape": list(shape), "dtype": dtype, "below": 0, "layout": "plain", "seed": seed, "special": False}  # fmt: skip


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Children that run rabbet with `body` in place of an operator."""
    children = []

    def make(op, body):
        (tmp_path / "planted.py").write_text(PLANT.format(op=op, body=body))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(calls, "names", lambda: [op])
        children.extend([Child(sys.executable, "planted", 3.0), Child(sys.executable, "rabbet")])
        return children

    yield make
    for child in children:
        child.close()


def found_fault(wrong, right):
    """The first fault among calls of functions, and its call."""
    for index in range(3000):
        call = calls.call(5, index)
        if call is None or call["form"] != "function" or call["context"] != "plain":
            continue
        want = right.run(call)
        said = fault(call, wrong.run(call), want, []) if "result" in want else None
        if said:
            return said, call
    return None, None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name, planted):
    op, body, said = FAULTS[name]
    found, _ = found_fault(*planted(op, body))
    assert found and said in found


def test_the_calls_after_a_crash_are_answered(planted):
    wrong, right = planted("exp", "os._exit(3) if args[0].ndim == 0 else None; return right(*args)")
    given = [plain_call("exp", tensor(*shape)) for shape in ((2,), (), (3,), (4,), (), (5,))]
    answers = list(wrong.run_all(given))
    assert ["crash" in a for a in answers] == [False, True, False, False, True, False]
    assert [a for a in answers if "result" in a] == [
        a for a in right.run_all(given) if a["result"]["shape"]
    ]


def test_a_fault_is_made_simple(planted):
    wrong, right = planted(
        "abs", "return right(*args, **kwargs) + (args[0].dtype == rabbet.float16)"
    )
    found, call = found_fault(wrong, right)
    simple = minimised(call, found, wrong, right, [])
    assert simple["args"][0] | {"seed": 0} == tensor(dtype="float16", seed=0)


class Changing:
    """rabbet, whose exp gives other numbers after so many calls."""

    def __init__(self, calls):
        self.left = calls

    def __getattr__(self, name):
        return getattr(rabbet, name)

    def exp(self, x):
        self.left -= 1
        return x.exp() * (1 if self.left >= 0 else 2)


@pytest.mark.parametrize(
    "context, calls",
    [("vmap", 3), ("jvp", 2), ("grad", 2), ("functionalize", 1), ("vmap vmap", 6), ("vmap grad", 4),
     ("grad vmap", 4)],
)  # fmt: skip
def test_a_context_finds_what_does_not_agree(context, calls):
    call = plain_call("exp", tensor(3, 4), context=context)
    assert contexts.judge(rabbet, call) is None
    assert "tolerance" in contexts.judge(Changing(calls), call)


def test_other_shapes_on_meta_are_found():
    wrong = SimpleNamespace(tensor=rabbet.tensor, float64=rabbet.float64,
                            exp=lambda x: x.sum() if x.is_meta else x.exp())  # fmt: skip
    call = plain_call("exp", tensor(3, 4), context="meta")
    assert "on meta" in contexts.judge(wrong, call) and contexts.judge(rabbet, call) is None


def test_what_is_right_is_not_found():
    one, other = Child(sys.executable, "rabbet"), Child(sys.executable, "rabbet")
    drawn = [c for c in (calls.call(7, i) for i in range(400)) if c is not None]
    answers = list(zip(drawn, one.run_all(drawn), other.run_all(drawn), strict=True))
    one.close(), other.close()
    assert sum("result" in a for _, a, _ in answers) > 150
    assert [f for f in (fault(c, a, b, []) for c, a, b in answers) if f] == []


def test_two_numbers_repeat_a_call():
    assert [calls.call(3, i) for i in range(50)] == [calls.call(3, i) for i in range(50)]
    command = [
        sys.executable,
        "-m",
        "rabbet_testing.fuzz",
        "--seed",
        "3",
        "--index",
        "2",
        "--calls",
        "1",
    ]
    runs = [
        subprocess.run(command, capture_output=True, text=True, env=os.environ) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout and runs[0].returncode == 0, runs[0].stderr


def test_what_differs_on_purpose_is_read(tmp_path):
    (tmp_path / "table.md").write_text(
        "| operator | kind | says | reason |\n|---|---|---|---|\n"
        "| `topk` | values | | ties |\n| `*` | dtype | `bool, torch uint8` | the array API |\n"
    )
    allowed = on_purpose(tmp_path / "table.md")
    assert allowed == [("topk", "values", ""), ("*", "dtype", "bool, torch uint8")]
    assert on_purpose(tmp_path / "none.md") == []

    def result(dtype, value):
        return {
            "result": {
                "shape": [1],
                "dtype": dtype,
                "values": [value],
                "strides": None,
                "shared": [],
            }
        }

    topk, sort = plain_call("topk"), plain_call("sort")
    assert (
        fault(sort, result("int64", "1"), result("int64", "2"), allowed)
        == "values: at 0: 1, torch 2"
    )
    assert fault(topk, result("int64", "1"), result("int64", "2"), allowed) is None
    assert fault(topk, result("bool", "True"), result("uint8", "1"), allowed) is None
    assert "dtype" in fault(topk, result("int64", "1"), result("int32", "1"), allowed)


@pytest.mark.parametrize(
    "ours, theirs, said",
    [
        ({"error": ["DTypeError", "TypeError"], "message": "no"}, {"result": "None"}, "refuses"),
        ({"result": "None"}, {"error": ["ValueError"], "message": "no"}, "accepts"),
        (
            {"result": "None"},
            {"error": ["RuntimeError"], "message": "not implemented for 'Half'"},
            None,
        ),
        (
            {"error": ["TypeError"], "message": "a"},
            {"error": ["IndexError"], "message": "b"},
            "error",
        ),
        ({"error": ["InternalError"], "message": "a"}, None, "internal"),
    ],
)
def test_refusals_are_judged(ours, theirs, said):
    found = fault(plain_call("exp"), ours, theirs, [])
    assert found.startswith(said) if said else found is None


def test_no_call_of_the_corpus_crashes():
    """Every call that once ended, hung or broke the library."""
    corpus = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    child = Child(sys.executable, "rabbet", 60.0)
    answers = list(child.run_all([entry["call"] for entry in corpus]))
    child.close()
    wrong = [
        f"{entry['was']}: {found}" for entry, answer in zip(corpus, answers, strict=True)
        if (found := fault(entry["call"], answer, None, []))
    ]  # fmt: skip
    assert len(corpus) >= 10 and not wrong, "\n".join(wrong)


def test_calls_of_three_seeds():
    """12,000 calls of three seeds: nothing crashes, hangs, or disagrees in its context."""
    root = Path(__file__).parents[3]
    for seed in (101, 102, 103):
        command = [sys.executable, "-m", "rabbet_testing.fuzz", "--seed", str(seed), "--calls", "4000",
                   "--differences", str(root / "docs/reference/differences.md"), "--torch", ""]  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]


@pytest.mark.parametrize("kind, count", [("--files", 1500), ("--plugins", 600)])
def test_damaged_files_and_wrong_plugins(kind, count):
    command = [
        sys.executable,
        "-m",
        "rabbet_testing.fuzz",
        kind,
        "--seed",
        "9",
        "--calls",
        str(count),
    ]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert f"{count} calls" in run.stdout
