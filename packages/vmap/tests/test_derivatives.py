"""Derivatives of functions: trees of every registered kind, options, and what is refused."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass

import pytest
import rabbet
from rabbet.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from rabbet.testing import assert_close
from rabbet.utils._pytree import register_dataclass, register_pytree_node
from rabbet.vmap import vmap

F64 = rabbet.float64
Pair = namedtuple("Pair", "a b")


class Box:
    """A container of the user's."""

    def __init__(self, a, b):
        self.a, self.b = a, b


register_pytree_node(Box, lambda box: ([box.a, box.b], "box"), lambda xs, _: Box(*xs))


@dataclass
class Data:
    a: object
    b: object


register_dataclass(Data)

KINDS = {
    "tuple": (lambda a, b: (a, b), lambda t: t),
    "list": (lambda a, b: [a, b], lambda t: t),
    "dict": (lambda a, b: {"a": a, "b": b}, lambda t: (t["a"], t["b"])),
    "OrderedDict": (lambda a, b: OrderedDict(a=a, b=b), lambda t: (t["a"], t["b"])),
    "defaultdict": (lambda a, b: defaultdict(int, a=a, b=b), lambda t: (t["a"], t["b"])),
    "deque": (lambda a, b: deque([a, b], 4), lambda t: t),
    "namedtuple": (Pair, lambda t: (t.a, t.b)),
    "registered": (Box, lambda t: (t.a, t.b)),
    "dataclass": (Data, lambda t: (t.a, t.b)),
    "nested": (lambda a, b: [{"x": (a,)}, Pair(b, ())], lambda t: (t[0]["x"][0], t[1].a)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_and_results_are_trees_of_any_registered_kind(kind):
    make, parts = KINDS[kind]
    a, b = rabbet.tensor([1.0, 2.0], dtype=F64), rabbet.tensor(3.0, dtype=F64)
    tree = make(a, b)

    def loss(t):
        x, y = parts(t)
        return (x * x).sum() * y

    def both(t):
        x, y = parts(t)
        return make(x * y, (x * x).sum())

    def same(got, want_a, want_b):
        assert type(got) is type(tree)
        for g, w in zip(parts(got), (want_a, want_b), strict=True):
            assert_close(g, rabbet.as_tensor(w, dtype=F64))

    same(grad(loss)(tree), [6, 12], 5)
    gradient, value = grad_and_value(loss)(tree)
    same(gradient, [6, 12], 5)
    assert value.item() == 15
    _, product = vjp(both, tree)
    same(product(make(rabbet.ones_like(a), rabbet.ones_like(b)))[0], [5, 7], 3)
    out, tangent = jvp(both, (tree,), (tree,))
    same(out, [3, 6], 5)
    same(tangent, [6, 12], 10)
    same(linearize(both, tree)[1](tree), [6, 12], 10)
    for transform in (jacrev, jacfwd):
        rows = transform(both)(tree)
        first, second = parts(rows)
        same(first, [[3, 0], [0, 3]], [1, 2])
        same(second, [2, 4], 0)
    same(parts(hessian(loss)(tree))[1], [2, 4], 0)
    stacked = make(a.reshape(2, 1), rabbet.stack([b, b]))
    mapped = vmap(both, in_dims=(make(0, 0),), out_dims=make(1, 0))(stacked)
    same(mapped, [[3, 6]], [1, 4])


def test_random_numbers_and_chunks_of_jacobians():
    x = rabbet.arange(1.0, 5)
    want = rabbet.diag(2 * x)
    for size in (1, 2, 3, 4, 9):
        assert_close(jacrev(lambda x: x * x, chunk_size=size)(x), want)
        assert_close(jacfwd(lambda x: x * x, chunk_size=size)(x), want)
    with pytest.raises(RuntimeError, match="random operation while in randomness error mode"):
        jacfwd(lambda x: x * rabbet.rand(4))(x)
    same = jacfwd(lambda x: x * rabbet.rand(4), randomness="same")(x)
    assert (same != 0).sum() == 4
    with pytest.raises(RuntimeError, match="Only allowed values for randomness are"):
        jacfwd(lambda x: x, randomness="any")(x)


def test_keyword_arguments_are_the_same_for_all():
    x = rabbet.arange(3.0)
    assert vmap(lambda x, *, y: x * y)(x, y=x).tolist() == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
    assert vmap(lambda x, *, n: x * n, chunk_size=2)(x, n=2).tolist() == [0, 2, 4]
    assert jacrev(lambda x, *, n: x * n)(x, n=3).tolist() == (rabbet.eye(3) * 3).tolist()


def test_auxiliary_values_leave_without_history():
    x = rabbet.ones(2)
    for transform in (grad, lambda f, has_aux: grad_and_value(f, has_aux=has_aux)):
        result = transform(lambda x: (x.sum(), {"twice": x * 2, "name": "aux"}), has_aux=True)(x)
        aux = result[1][1] if isinstance(result[1], tuple) else result[1]
        assert aux["twice"].tolist() == [2, 2] and aux["name"] == "aux"
        assert not aux["twice"].requires_grad


def plain(x):
    return x * 2


X, INTS = rabbet.ones(3), rabbet.arange(3)
REFUSED = [
    (
        lambda: grad(plain)(X),
        RuntimeError,
        r"scalar Tensor, got tensor with 1 dims. Maybe you wanted",
    ),
    (lambda: grad(lambda x: 3)(X), RuntimeError, r"to return a Tensor, got <class 'int'>"),
    (
        lambda: grad(lambda x: x.sum() * 1j)(X),
        RuntimeError,
        "real floating Tensor, got .*complex64",
    ),
    (lambda: grad(plain, has_aux=True)(X), RuntimeError, r"should be a tuple: \(output, aux\)"),
    (lambda: grad(plain, argnums=3)(X), RuntimeError, "Got argnum=3, but only 1 positional inputs"),
    (lambda: grad(plain, argnums=(0, 0))(X), RuntimeError, r"must be unique, got \(0, 0\)"),
    (lambda: grad(plain, argnums=(0, -1))(X), RuntimeError, "must be unique"),
    (lambda: grad(plain, argnums=())(X), RuntimeError, "argnums must be non-empty"),
    (
        lambda: grad(plain, argnums=0.0)(X),
        RuntimeError,
        "must be int or Tuple.*got: <class 'float'>",
    ),
    (lambda: grad(plain)(3.0), ValueError, "must be Tensor, got <class 'float'>"),
    (lambda: grad(plain)(INTS), RuntimeError, "can require gradients, got rabbet.int64"),
    (
        lambda: vjp(lambda x: (x, 3), X),
        RuntimeError,
        "return only tensors, got unsupported type <class",
    ),
    (lambda: vjp(lambda x: (), X), RuntimeError, r"non-empty output \(got output = \(\)\)"),
    (lambda: vjp(lambda x: x.long(), X), RuntimeError, "must be floating-point or complex Tensors"),
    (lambda: vjp(lambda: X), RuntimeError, "at least one Tensor"),
    (
        lambda: vjp(plain, X)[1]((X, X)),
        RuntimeError,
        r"cotangents: TreeSpec\(tuple, None, \[\*,\n  \*\]\), primal output: \*",
    ),
    (
        lambda: vjp(plain, X)[1](rabbet.ones(2)),
        RuntimeError,
        r"grad_output\[0\] has a shape of \(2,\)",
    ),
    (lambda: jvp(plain, X, X), RuntimeError, "Expected primals to be a tuple"),
    (lambda: jvp(plain, (X,), [X]), RuntimeError, "Expected tangents to be a tuple"),
    (lambda: jvp(plain, (X,), (X, X)), RuntimeError, "to have the same python structure"),
    (lambda: jvp(plain, (X,), (rabbet.ones(2),)), RuntimeError, r"size \(3,\) while .* \(2,\)"),
    (lambda: jvp(plain, (), ()), RuntimeError, "Expected primals to contain at least one Tensor"),
    (lambda: jvp(plain, (3,), (X,)), RuntimeError, "Expected primals to only contain Tensors"),
    (
        lambda: jvp(plain, (INTS,), (INTS,)),
        ValueError,
        "Expected primal to be floating point or complex",
    ),
    (
        lambda: jvp(plain, (X,), (INTS,)),
        ValueError,
        "Expected tangent to be floating point or complex",
    ),
    (lambda: jvp(lambda x: 3, (X,), (X,)), RuntimeError, "to return only tensors"),
    (
        lambda: jvp(lambda x: X, (X,), (X,), strict=True),
        RuntimeError,
        "is independent of the inputs",
    ),
    (lambda: linearize(plain, X)[1](X, X), RuntimeError, "to have the same argspec as the primals"),
    (lambda: linearize(plain, X)[1](rabbet.ones(2)), RuntimeError, r"tangent:0 with shape \(2,\)"),
    (
        lambda: linearize(plain, X)[1](X.double()),
        RuntimeError,
        "tangent:0 with dtype rabbet.float64",
    ),
    (
        lambda: jacrev(plain, chunk_size=0),
        ValueError,
        "`chunk_size` should be greater than 0, got 0",
    ),
    (lambda: jacfwd(lambda x: ())(X), RuntimeError, "non-empty output"),
    (lambda: jacrev(lambda x: x.long())(X), RuntimeError, "must be floating-point or complex"),
    (lambda: vmap(plain, out_dims=3)(X), IndexError, "out_dims has 3 for a result of 1 dimensions"),
]


@pytest.mark.parametrize("call,error,message", REFUSED, ids=range(len(REFUSED)))
def test_misuse_is_explained(call, error, message):
    with pytest.raises(error, match=message):
        call()
