"""`rabbet.compile`, `explain` and settings."""

import copy
import io
import os
import subprocess
import sys

import numpy as np
import pytest
import rabbet
import rabbet_compile
from rabbet import nn


def chain(x):
    return (x * 1.5 + 0.25).sigmoid() * x


def run(text, **environment):
    made = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | environment, capture_output=True, text=True
    )
    return made.stdout.strip(), made.stderr.strip()


def test_a_compiled_function_gives_eager_results_fused():
    x = rabbet.randn(100_003)
    compiled = rabbet.compile(chain)
    expected = chain(x)
    for _ in range(2):
        assert np.array_equal(compiled(x).numpy(), expected.numpy())
        x = x.clone()  # .numpy() of a tensor shares its memory: it is private again
    done = rabbet_compile.totals()
    assert (
        done["recorded"] == 8
        and done["tiled"] == 2
        and done["unstored"] == 6
        and done["plans"] == 1
    )
    assert compiled.__name__ == "chain"


def test_compile_is_a_decorator_with_and_without_arguments():
    @rabbet.compile
    def one(x):
        return x + 1, rabbet_compile.is_in_region()

    @rabbet.compile(fullgraph=True, dynamic=True, mode="max-autotune")
    def two(x):
        return x + 2, rabbet_compile.is_in_region()

    assert one(1) == (2, True) and two(1) == (3, True)
    assert not rabbet_compile.is_in_region()


def test_compile_checks_what_it_gets():
    with pytest.raises(TypeError, match="compile: expected a module or a function, got int"):
        rabbet.compile(3)
    with pytest.raises(TypeError, match="compile: expected a module or a function, got int"):
        rabbet_compile.compile(3)
    with pytest.raises(RuntimeError, match="Either mode or options"):
        rabbet.compile(chain, mode="default", options={})


def test_functions_stay_as_they_are_where_that_is_asked_for(monkeypatch):
    assert rabbet.compile(chain, disable=True) is chain
    assert rabbet.compile(chain, backend="eager") is chain
    monkeypatch.setenv("RABBET_COMPILE", "off")
    assert rabbet.compile(chain) is chain and rabbet_compile.compile(chain) is chain
    monkeypatch.setenv("RABBET_COMPILE", "perhaps")
    with pytest.raises(
        ValueError, match="RABBET_COMPILE: expected one of on, regions, off, check, got 'perhaps'"
    ):
        rabbet_compile.compile(chain)


def test_other_backends_run_in_regions_which_is_said():
    def mine(graph, inputs):
        raise AssertionError("never called")

    with pytest.warns(
        UserWarning, match="compile: there is no backend 'mine': the program runs in regions"
    ):
        compiled = rabbet.compile(lambda: rabbet_compile.is_in_region(), backend=mine)
    assert compiled()


def test_stances_switch_regions_off():
    compiled = rabbet.compile(lambda: rabbet_compile.is_in_region())
    with rabbet.compiler.set_stance("force_eager"):
        assert not compiled()
    assert compiled()

    @rabbet.compiler.set_stance("force_eager")
    def eagerly():
        return compiled()

    assert compiled() and not eagerly() and compiled()


def test_nothing_is_loaded_before_compile_is_called():
    text = "import rabbet, sys; rabbet.ones(2) + 1; print('rabbet_compile' in sys.modules)"
    assert run(text)[0] == "False"
    text = "import rabbet, sys; f = rabbet.compile(lambda x: x + 1); print('rabbet_compile' in sys.modules, f(1))"
    assert run(text)[0] == "True 2"


def test_without_the_wheel_functions_run_eagerly_which_is_said(monkeypatch):
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name: None if name == "rabbet_compile" else find(name)
    )
    monkeypatch.setattr(rabbet._settings, "_said", set())
    with pytest.warns(UserWarning, match="pip install rabbet-compile"):
        assert rabbet.compile(chain) is chain


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.scale = 2.0

    def forward(self, x):
        return self.linear(x).sigmoid() * self.scale, rabbet_compile.is_in_region()


def test_a_compiled_module_is_the_module_in_a_region():
    module = Small()
    compiled = rabbet.compile(module)
    x = rabbet.randn(300, 64)
    expected, outside = module(x)
    found, inside = compiled(x)
    assert (
        not outside and inside and np.array_equal(found.detach().numpy(), expected.detach().numpy())
    )
    assert compiled._orig_mod is module and compiled.linear is module.linear
    compiled.scale = 3.0
    assert module.scale == 3.0 and compiled.scale == 3.0
    assert list(compiled.state_dict()) == ["_orig_mod.linear.weight", "_orig_mod.linear.bias"]
    assert next(compiled.parameters()) is module.linear.weight
    compiled.eval()
    assert (
        not module.training
        and not compiled.training
        and compiled.train() is compiled
        and module.training
    )
    with pytest.raises(AttributeError, match="missing"):
        compiled.missing  # noqa: B018
    assert isinstance(copy.deepcopy(compiled)._orig_mod, Small)
    saved = io.BytesIO()
    rabbet.save(compiled.state_dict(), saved)
    saved.seek(0)
    compiled.load_state_dict(rabbet.load(saved))


def test_a_compiled_sequence_has_length_and_items():
    compiled = rabbet.compile(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    assert (
        len(compiled) == 2
        and isinstance(compiled[1], nn.ReLU)
        and [type(m) for m in compiled] == [nn.Linear, nn.ReLU]
    )


def test_modules_compile_themselves():
    module = Small()
    assert module.compile() is None
    assert module(rabbet.ones(2, 64))[1]
    assert list(module.state_dict()) == ["linear.weight", "linear.bias"]


def test_explain_tells_what_ran_when_and_why():
    def f(x):
        y = x * 2 + 1
        unused = y.exp()  # noqa: F841
        total = y.sum()
        return y.sigmoid(), total

    explained = rabbet_compile.explain(f)(rabbet.ones(50_000))
    assert float(explained.result[1]) == 150_000
    first, last = explained.flushes
    assert first.ops == ["mul", "add", "exp"] and (first.run, first.stored) == (3, 2)
    assert first.reason == "sum" and "test_compile.py" in first.source
    assert last.ops == ["sigmoid"] and last.reason == "the end of a region" and last.tiles == 0
    assert explained.totals["recorded"] == 4 and explained.totals["flushes"] == 2
    text = str(explained)
    assert "4 calls deferred, 2 flushes, 1 of them fused" in text and "because of sum at" in text
    with pytest.raises(TypeError, match="explain: expected a module or a function, got str"):
        rabbet_compile.explain("f")
    with (
        rabbet_compile.region(),
        pytest.raises(RuntimeError, match="explain: it cannot be called inside"),
    ):
        rabbet_compile.explain(f)(rabbet.ones(2))


def test_names_of_dynamo():
    from rabbet._as_torch import dynamo

    module = nn.Linear(2, 2)
    assert isinstance(rabbet.compile(module), dynamo.OptimizedModule)
    assert not isinstance(module, dynamo.OptimizedModule) and dynamo.graph_break() is None
    x = rabbet.ones(50_000)
    for explained in (dynamo.explain(chain)(x), dynamo.explain(chain, x)):
        assert explained.totals["recorded"] == 4


def test_settings_are_checked():
    text = "import rabbet_compile as c; print(c.settings())"
    assert run(text)[0] == "{'least_bytes': 4194304, 'tile': 4096, 'check': 0, 'report': 0}"
    before = rabbet_compile.settings()
    with pytest.raises(
        TypeError, match="configure: expected one of least_bytes, tile, check, report, got 'size'"
    ):
        rabbet_compile.configure(size=3)
    with pytest.raises(ValueError, match="compile: expected 'tile' to be at least 1, got 0"):
        rabbet_compile.configure(tile=0)
    with (
        rabbet_compile.region(),
        pytest.raises(RuntimeError, match="settings cannot change inside a region"),
    ):
        rabbet_compile.configure(tile=64)
    assert rabbet_compile.settings() == before


def test_small_results_are_computed_at_once():
    x = rabbet.randn(1000)
    rabbet.compile(chain)(x)
    assert rabbet_compile.totals()["recorded"] == 0


def test_checking_compares_with_eager_calls():
    rabbet_compile.configure(check=True)
    try:
        x = rabbet.randn(40_000)
        y = rabbet.compile(lambda x: chain(x).mul_(2).add_(x))(x)
    finally:
        rabbet_compile.configure(check=False)
    assert np.array_equal(y.numpy(), (chain(x) * 2 + x).numpy())
    text = "import rabbet_compile as c; print(c.settings()['check'])"
    assert run(text, RABBET_COMPILE="check")[0] == "1"


def test_layers_say_what_they_do_with_a_call():
    with rabbet_compile.region():
        told = str(rabbet.library.explain("add", rabbet.ones(3), rabbet.ones(3)))
    assert "may run later, fused with calls of the same size" in told
