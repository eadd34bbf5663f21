"""The same calls in PyTorch, where it is installed."""

import pytest
import rabbet
import rabbet.nn.functional as F
from rabbet_testing.compare import assert_close

torch = pytest.importorskip("torch")

N = torch.nn.functional


def pair(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, rabbet.from_numpy(x.numpy().copy())


CALLS = {
    "linear": (lambda f: lambda x, w, b: f.linear(x, w, b), [(3, 4, 5), (3, 2, 5), (3, 2)]),
    "conv2d": (lambda f: lambda x, w, b: f.conv2d(x, w, b, padding=1), [(3, 2, 4, 6, 5), (3, 6, 4, 3, 3), (3, 6)]),
    "conv2d groups": (lambda f: lambda x, w, b: f.conv2d(x, w, b, groups=2), [(3, 2, 4, 6, 5), (3, 6, 2, 3, 3), (3, 6)]),
    "conv1d": (lambda f: lambda x, w: f.conv1d(x, w, stride=2), [(3, 2, 4, 9), (3, 6, 4, 3)]),
    "layer_norm": (lambda f: lambda x, w, b: f.layer_norm(x, (5,), w, b), [(3, 4, 5), (3, 5), (3, 5)]),
    "group_norm": (lambda f: lambda x, w, b: f.group_norm(x, 2, w, b), [(3, 2, 4, 5), (3, 4), (3, 4)]),
    "batch_norm": (lambda f: lambda x, w, b: f.batch_norm(x, None, None, w, b, True), [(3, 6, 4, 5), (3, 4), (3, 4)]),
    "sdpa": (lambda f: f.scaled_dot_product_attention, [(3, 2, 4, 5), (3, 2, 6, 5), (3, 2, 6, 7)]),
    "softmax": (lambda f: lambda x: f.softmax(x, -1), [(3, 4, 5)]),
    "max_pool": (lambda f: lambda x: f.max_pool2d(x, 2), [(3, 2, 3, 6, 4)]),
    "avg_pool": (lambda f: lambda x: f.avg_pool2d(x, 2), [(3, 3, 6, 4)]),
    "mse": (lambda f: f.mse_loss, [(3, 4), (3, 4)]),
    "gelu": (lambda f: f.gelu, [(3, 4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_layers(name):
    make, shapes = CALLS[name]
    pairs = [pair(*shape, seed=i) for i, shape in enumerate(shapes)]
    choices = [(0,) * len(shapes)] + [
        tuple(0 if i == k else None for i in range(len(shapes))) for k in range(len(shapes))
    ]
    for dims in choices:
        theirs = [t if d == 0 else t[0] for (t, _), d in zip(pairs, dims, strict=True)]
        ours = [r if d == 0 else r[0] for (_, r), d in zip(pairs, dims, strict=True)]
        want = torch.func.vmap(make(N), dims)(*theirs)
        got = rabbet.vmap(make(F), dims, strict=True)(*ours)
        assert_close(got, want.numpy(), 1e-8, 1e-9, f"{name} {dims}")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_classes(reduction):
    (x, y), labels = pair(3, 6, 4), torch.tensor([[0, 1, 2, 3, 1, 0]] * 3)
    labels[1] = labels[1].flip(0)
    ours = rabbet.from_numpy(labels.numpy().copy())
    for dims in [(0, 0), (0, None), (None, 0)]:
        a = [t if d == 0 else t[0] for t, d in zip((x, labels), dims, strict=True)]
        b = [t if d == 0 else t[0] for t, d in zip((y, ours), dims, strict=True)]
        for name in ("cross_entropy", "nll_loss"):
            want = torch.func.vmap(
                lambda p, q, name=name: getattr(N, name)(p, q, reduction=reduction), dims
            )(*a)
            got = rabbet.vmap(
                lambda p, q, name=name: getattr(F, name)(p, q, reduction=reduction),
                dims,
                strict=True,
            )(*b)
            assert_close(got, want.numpy(), 1e-8, 1e-9)


def test_embedding():
    (w, v), i = pair(3, 5, 2), torch.tensor([[0, 4], [1, 1], [2, 3]])
    j = rabbet.from_numpy(i.numpy().copy())
    for dims in [(0, 0), (0, None), (None, 0)]:
        a = [t if d == 0 else t[0] for t, d in zip((i, w), dims, strict=True)]
        b = [t if d == 0 else t[0] for t, d in zip((j, v), dims, strict=True)]
        want = torch.func.vmap(N.embedding, dims)(*a)
        for padding in (None, 1):
            got = rabbet.vmap(
                lambda p, q, k=padding: F.embedding(p, q, padding_idx=k), dims, strict=True
            )(*b)
            assert_close(got, want.numpy())


@pytest.mark.parametrize(
    "in_dims,out_dims", [(0, 0), (1, 0), (-1, 1), ((1, None), -1), ((None, 0), 0)]
)
def test_dims(in_dims, out_dims):
    (x, r), (y, s) = pair(4, 4, 4), pair(4, 4, 4, seed=1)
    want = torch.func.vmap(lambda a, b: a @ b.sum(0), in_dims, out_dims)(x, y)
    assert_close(
        rabbet.vmap(lambda a, b: a @ b.sum(0), in_dims, out_dims)(r, s), want.numpy(), 1e-9, 1e-10
    )


def test_errors_are_of_the_same_kind():
    x, r = pair(3, 2)
    for args in [
        {"in_dims": 2},
        {"in_dims": (0, 0)},
        {"in_dims": (None,)},
        {"out_dims": 5},
        {"out_dims": (0, 0)},
    ]:
        kinds = []
        for library, t in ((torch.func, x), (rabbet, r)):
            with pytest.raises((ValueError, IndexError)) as caught:
                library.vmap(lambda a: a, **args)(t)
            kinds.append(caught.type)
        assert kinds[1] is ValueError or kinds[0] is kinds[1]
