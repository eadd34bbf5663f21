"""rearrange: patterns of named dimensions, beside NumPy's reshape and transpose."""

import numpy as np
import pytest
import rabbet
from rabbet.func import grad, rearrange, vmap

A = np.arange(24.0).reshape(2, 3, 4)
X = rabbet.tensor(A)

PATTERNS = [
    ("a b c -> c a b", {}, A.transpose(2, 0, 1)),
    ("a b c -> (a b) c", {}, A.reshape(6, 4)),
    ("a b c -> (b a) c", {}, A.transpose(1, 0, 2).reshape(6, 4)),
    ("a b (c d) -> d a b c", {"c": 2}, A.reshape(2, 3, 2, 2).transpose(3, 0, 1, 2)),
    (
        "a b (c d) -> (a c) (b d)",
        {"d": 2},
        A.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3).reshape(4, 6),
    ),
    ("... c -> c ...", {}, A.transpose(2, 0, 1)),
    ("a ... -> (a ...)", {}, A.reshape(24)),
    ("a ... c -> c ... a", {}, A.transpose(2, 1, 0)),
    ("... -> ... 1", {}, A[..., None]),
    ("a b c -> a 1 () b c", {}, A[:, None, None]),
    ("a b c ... -> a b c ...", {}, A),
]


@pytest.mark.parametrize("pattern,lengths,want", PATTERNS, ids=[p for p, _, _ in PATTERNS])
def test_patterns(pattern, lengths, want):
    got = rearrange(X, pattern, **lengths)
    assert got.numpy().shape == want.shape and (got.numpy() == want).all()


def test_several_tensors_are_stacked_and_transforms_pass_through():
    assert rearrange([X, X], "n a b c -> a n b c").shape == (2, 2, 3, 4)
    assert rearrange(X[:, :1], "a 1 c -> a c").tolist() == X[:, 0].tolist()
    assert vmap(lambda x: rearrange(x, "b c -> c b"))(X).tolist() == X.mT.tolist()
    weights = rearrange(X, "a b c -> (c b a)")
    got = grad(lambda x: (rearrange(x, "a b c -> (c b a)") * weights).sum())(X)
    assert got.tolist() == X.tolist()


REFUSED = [
    ("a b c", {}, "single '->' separator"),
    ("a b -> b a", {}, r"dimensions in pattern \(2\) must be equal .* \(3\)"),
    ("a b c d ... -> a b c d ...", {}, r"dimensions in pattern \(4\)"),
    ("a b c -> a b", {}, r"only on one side of expression .*: \['c'\]"),
    ("a b c -> ...", {}, "only on one side"),
    ("a a c -> a c", {}, "duplicate dimension 'a'"),
    ("... ... -> ...", {}, "duplicate dimension '...'"),
    ("a (b d) c -> a b d c", {}, r"cannot infer the sizes of \['b', 'd'\]"),
    ("a (b d) c -> a b d c", {"b": 2}, r"lengths of \(b d\) do not make up a dimension of 3 el"),
    ("a b c -> a b c", {"a": 3}, r"lengths of \(a\) do not make up a dimension of 2"),
    ("a 1 c -> a c", {}, r"lengths of \(\) do not make up a dimension of 3"),
    ("a b c -> a b c", {"z": 3}, r"not found in expression: \['z'\]"),
    ("a (b c -> a b c", {}, "parentheses"),
    ("a b c -> ((a b) c)", {}, "parentheses"),
    ("a 3 c -> a c", {}, "unnamed axes of size 1, got 3"),
    ("2a b c -> b", {}, "Invalid axis identifier: 2a"),
    ("(a ...) c -> a c ...", {"a": 2}, "Ellipsis inside parenthesis"),
]


@pytest.mark.parametrize("pattern,lengths,message", REFUSED, ids=range(len(REFUSED)))
def test_patterns_that_do_not_fit_are_explained(pattern, lengths, message):
    with pytest.raises(ValueError, match=message):
        rearrange(X, pattern, **lengths)
