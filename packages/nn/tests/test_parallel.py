"""`nn.parallel` on one device."""

from collections import namedtuple

import pytest
import rabbet
from rabbet import nn
from rabbet.nn import parallel

Pair = namedtuple("Pair", "a b")
X = rabbet.arange(8.0).reshape(4, 2)


def test_scattered_containers_are_gathered_again():
    tree = {"x": X, "pair": Pair(X + 1, [X * 2, None]), "name": "n", "none": ()}
    parts = parallel.scatter(tree, ["cpu", "cpu"])
    assert len(parts) == 2 and isinstance(parts[1]["pair"], Pair)
    assert rabbet.equal(parts[1]["x"], X[2:]) and parts[1]["name"] == "n"
    outputs = [Pair(p["x"], {"b": p["pair"].b[0], "n": None}) for p in parts]
    whole = parallel.gather(outputs, "cpu")
    assert rabbet.equal(whole.a, X) and rabbet.equal(whole.b["b"], X * 2) and whole.b["n"] is None
    columns = parallel.scatter(X, ["cpu", "cpu"], 1)
    assert rabbet.equal(parallel.gather(columns, "cpu", 1), X)
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        assert parallel.gather([rabbet.tensor(1.0), rabbet.tensor(2.0)], "cpu").tolist() == [1, 2]
    with pytest.raises(ValueError, match="same number of keys"):
        parallel.gather([{"a": X}, {}], "cpu")


def test_modules_run_one_after_the_other():
    layer = nn.Linear(2, 3)
    assert rabbet.equal(parallel.data_parallel(layer, X), layer(X))
    assert rabbet.equal(
        parallel.data_parallel(layer, (), None, module_kwargs={"input": X}), layer(X)
    )
    copies = parallel.replicate(layer, ["cpu"])
    assert rabbet.equal(parallel.parallel_apply(copies, [(X,)])[0], layer(X))
    outputs = parallel.parallel_apply([layer, layer], [X[:2], X[2:]], [{}, {}], ["cpu", "cpu"])
    assert rabbet.allclose(parallel.gather(outputs, "cpu"), layer(X))


def test_refusals():
    layer = nn.Linear(2, 3)
    with pytest.raises(NotImplementedError, match="data_parallel: several devices"):
        parallel.data_parallel(layer, X, [0, 1])
    with pytest.raises(NotImplementedError, match="replicate: several devices"):
        parallel.replicate(layer, [0, 1])
    with pytest.raises(AssertionError, match="modules 1 is not equal to the number of inputs 2"):
        parallel.parallel_apply([layer], [X, X])
