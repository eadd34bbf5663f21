"""Losses of classes and normalisations with all their options, against PyTorch."""

import itertools

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F

torch = pytest.importorskip("torch")
TF = torch.nn.functional
rng = np.random.default_rng(0)


def pair(values: np.ndarray, grad: bool = False):
    """The same values in both frameworks."""
    ours, theirs = rabbet.tensor(values), torch.tensor(values)
    if grad:
        ours.requires_grad = True
        theirs.requires_grad_(True)
    return ours, theirs


def close(ours, theirs, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance
    )


SHAPES = [((6, 5), (6,)), ((5,), ()), ((3, 5, 2), (3, 2)), ((70, 5), (70,)), ((4, 100), (4,))]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape,places", SHAPES, ids=str)
def test_class_losses_and_gradients_equal_pytorch(shape, places, reduction, weighted, smoothing):
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = rng.integers(0, classes, places)
    ignored = int(target.flat[0]) if target.size > 1 else -100
    x, tx = pair(rng.normal(size=shape), grad=True)
    y, ty = pair(target)
    w, tw = pair(rng.uniform(0.5, 2, classes)) if weighted else (None, None)
    options = {"ignore_index": ignored, "reduction": reduction}
    pairs = [
        (F.cross_entropy, TF.cross_entropy, {**options, "label_smoothing": smoothing}),
        (F.nll_loss, TF.nll_loss, options),
    ]
    for ours, theirs, given in pairs:
        got, want = ours(x, y, w, **given), theirs(tx, ty, tw, **given)
        close(got, want)
        g = rng.normal(size=tuple(want.shape))
        (dx,) = rabbet.autograd.grad([got], [x], [rabbet.tensor(g)])
        (tdx,) = torch.autograd.grad(want, tx, torch.tensor(g))
        close(dx, tdx)


def test_gradient_of_class_weights_equals_pytorch():
    # PyTorch has none for the weight; the definition of the mean gives it.
    x, y = rabbet.tensor(rng.normal(size=(4, 3))), rabbet.tensor([0, 2, 1, 2])
    w = rabbet.tensor([0.5, 2.0, 1.0], dtype=rabbet.float64, requires_grad=True)
    assert rabbet.autograd.gradcheck(lambda w: F.cross_entropy(x, y, w, label_smoothing=0.1), [w])
    assert rabbet.autograd.gradcheck(lambda w: F.nll_loss(x, y, w), [w])


def test_every_target_ignored():
    x, tx = pair(rng.normal(size=(2, 3)), grad=True)
    y, ty = pair(np.array([-100, -100]))
    got, want = F.cross_entropy(x, y), TF.cross_entropy(tx, ty)
    assert np.isnan(got.item()) and np.isnan(want.item())
    got.backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(8, 6), (3, 6, 5), (2, 6, 4, 5), (2, 6, 8, 8)], ids=str)
def test_batch_norm_and_running_statistics_equal_pytorch(shape, dtype):
    x = rng.normal(size=shape) * 2 + 1
    given = [rng.normal(size=6), rng.uniform(0.5, 2, 6), rng.normal(size=6), rng.normal(size=6)]
    kinds = [dtype] + ["float32" if dtype == "bfloat16" else dtype] * 4
    ours, theirs = [], []
    for values, kind in zip([x, *given], kinds):
        ours.append(rabbet.tensor(values).to(dtype=getattr(rabbet, kind)))
        theirs.append(torch.tensor(values).to(dtype=getattr(torch, kind)))
    for t in (ours, theirs):
        for i in (0, 3, 4):
            t[i].requires_grad = True
    tolerance = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 4e-2}[dtype]
    for training in (True, False):
        got = F.batch_norm(*ours, training=training, momentum=0.3)
        want = TF.batch_norm(*theirs, training=training, momentum=0.3)
        assert got.dtype == getattr(rabbet, dtype)
        g = rng.normal(size=shape)
        found = rabbet.autograd.grad(
            [got], [ours[i] for i in (0, 3, 4)], [rabbet.tensor(g).to(dtype=got.dtype)]
        )
        expected = torch.autograd.grad(
            want, [theirs[i] for i in (0, 3, 4)], torch.tensor(g).to(want.dtype)
        )
        pairs = [(got, want), (ours[1], theirs[1]), (ours[2], theirs[2])]
        for a, b in itertools.chain(pairs, zip(found, expected)):
            close(a.to(dtype=rabbet.float64), b.to(torch.float64), tolerance * 10)


@pytest.mark.parametrize("tracked", [False, True])
def test_instance_norm_equals_pytorch(tracked):
    x, tx = pair(rng.normal(size=(3, 4, 5)), grad=True)
    w, tw = pair(rng.normal(size=4), grad=True)
    stats = [pair(np.zeros(4)), pair(np.ones(4))] if tracked else [(None, None)] * 2
    got = F.instance_norm(x, stats[0][0], stats[1][0], w)
    want = TF.instance_norm(tx, stats[0][1], stats[1][1], tw)
    close(got, want)
    for a, b in stats if tracked else []:
        close(a, b)
    g = rng.normal(size=(3, 4, 5))
    found = rabbet.autograd.grad([got], [x, w], [rabbet.tensor(g)])
    for a, b in zip(found, torch.autograd.grad(want, [tx, tw], torch.tensor(g))):
        close(a, b)


@pytest.mark.parametrize(
    "name,args", [("layer_norm", ([6],)), ("rms_norm", ([6],)), ("group_norm", (3,))]
)
def test_half_inputs_take_wide_weights(name, args):
    x = rng.normal(size=(5, 6))
    w = rng.normal(size=6)
    ours = getattr(F, name)(
        rabbet.tensor(x).to(dtype=rabbet.bfloat16), *args, rabbet.tensor(w, dtype=rabbet.float32)
    )
    want = getattr(TF, name)(torch.tensor(x).bfloat16().double(), *args, torch.tensor(w))
    assert ours.dtype == rabbet.bfloat16
    close(ours.to(dtype=rabbet.float64), want, 2e-2)


BAD = [
    (lambda: F.layer_norm(rabbet.zeros(2, 3), [3], rabbet.zeros(4)), "layer_norm: expected weight"),
    (lambda: F.layer_norm(rabbet.zeros(2, 3), []), "normalized_shape"),
    (lambda: F.group_norm(rabbet.zeros(3), 1), "group_norm: expected"),
    (lambda: F.group_norm(rabbet.zeros(2, 4), 2, rabbet.zeros(3)), "weight should contain 4"),
    (lambda: F.layer_norm(rabbet.zeros(2, 3, dtype=rabbet.int64), [3]), "expected float dtypes"),
    (
        lambda: F.cross_entropy(rabbet.zeros(2, 3), rabbet.tensor([0, 1]), reduction="avg"),
        "'reduction' must be 'none', 'mean' or 'sum', got 'avg'",
    ),
    (
        lambda: F.cross_entropy(rabbet.zeros(2, 3), rabbet.tensor([0, 7])),
        r"Target 7 is out of bounds for 3 classes \(0 to 2\)",
    ),
    (lambda: rabbet.topk(rabbet.zeros(2, 3), 4), "k = 4 is out of range"),
    (lambda: rabbet.ops.embedding(rabbet.zeros(3), rabbet.tensor([0])), "2 dimensions"),
    (
        lambda: rabbet.ops.embedding_backward(
            rabbet.zeros(2, 3), rabbet.tensor([0, 1]), [5, 4], -1
        ),
        r"'g' must have a row for each of 'indices', shape \(2, 4\), got \(2, 3\)",
    ),
    (
        lambda: rabbet.ops.embedding_backward(rabbet.zeros(4), rabbet.tensor([0, 1]), [5, 4], -1),
        r"'g' must have a row for each of 'indices', shape \(2, 4\), got \(4,\)",
    ),
    (
        lambda: rabbet.ops.embedding_backward(rabbet.zeros(2, 3), rabbet.tensor([0, 1]), [3], -1),
        "'shape' must hold 2 sizes, got",
    ),
]


@pytest.mark.parametrize("i", range(len(BAD)))
def test_bad_input_is_named(i):
    call, message = BAD[i]
    with pytest.raises((ValueError, RuntimeError, TypeError, IndexError), match=message):
        call()
