"""Optimizer steps against their published formulas in NumPy."""

from typing import Any

import numpy as np
import pytest
from native_host import Host, KernelError, TensorList, assert_close

SHAPES: list[tuple[int, ...]] = [(3, 4), (40000,), ()]


def arrays(rng: np.random.Generator, dtype: str) -> TensorList:
    return TensorList(np.asarray(rng.normal(size=s)).astype(dtype) for s in SHAPES)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize(
    "decay,decoupled,maximize", [(0.0, False, False), (0.1, False, True), (0.1, True, False)]
)
def test_adam(
    host: Host, dtype: str, amsgrad: bool, decay: float, decoupled: bool, maximize: bool
) -> None:
    rng = np.random.default_rng(1)
    lr, b1, b2, eps = 0.01, 0.8, 0.95, 1e-6
    params = arrays(rng, dtype)
    params[0] = np.asfortranarray(params[0])
    want = [p.astype(np.float64) for p in params]
    m, v, top = ([np.zeros_like(p) for p in want] for _ in range(3))
    ours = [TensorList(np.zeros_like(p) for p in params) for _ in range(3)]
    for t in range(1, 4):
        grads = arrays(rng, dtype)
        corrections = 1 - b1**t, 1 - b2**t
        lists = [params, grads, ours[0], ours[1], ours[2] if amsgrad else TensorList()]
        host.run(
            "fused_adam", [*lists, lr, b1, b2, eps, decay, decoupled, maximize, *corrections], []
        )
        for i, grad in enumerate(grads):
            g = grad.astype(np.float64) * (-1 if maximize else 1)
            if decoupled:
                want[i] = want[i] * (1 - lr * decay)
            else:
                g = g + decay * want[i]
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            top[i] = np.maximum(top[i], v[i])
            scale = np.sqrt((top[i] if amsgrad else v[i]) / corrections[1]) + eps
            want[i] = want[i] - lr * (m[i] / corrections[0]) / scale
    for got, expected in zip(params, want, strict=True):
        assert_close(got, expected, 10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "momentum,dampening,nesterov,decay,maximize",
    [
        (0.0, 0.0, False, 0.0, False),
        (0.9, 0.0, False, 0.1, False),
        (0.9, 0.0, True, 0.01, False),
        (0.9, 0.3, False, 0.0, True),
    ],
)
def test_sgd(
    host: Host,
    dtype: str,
    momentum: float,
    dampening: float,
    nesterov: bool,
    decay: float,
    maximize: bool,
) -> None:
    rng = np.random.default_rng(2)
    lr = 0.1
    params = arrays(rng, dtype)
    want = [p.astype(np.float64) for p in params]
    buffers = TensorList(
        np.full_like(p, np.nan) for p in params
    )  # the first step must not read them
    kept: list[Any] = [None] * len(want)
    for t in range(3):
        grads = arrays(rng, dtype)
        lists = [params, grads, buffers if momentum else TensorList()]
        host.run(
            "fused_sgd", [*lists, lr, momentum, dampening, decay, nesterov, maximize, t == 0], []
        )
        for i, grad in enumerate(grads):
            g = grad.astype(np.float64) * (-1 if maximize else 1) + decay * want[i]
            if momentum:
                kept[i] = g if t == 0 else momentum * kept[i] + (1 - dampening) * g
                g = g + momentum * kept[i] if nesterov else kept[i]
            want[i] = want[i] - lr * g
    for got, expected in zip(params, want, strict=True):
        assert_close(got, expected, 10)


def test_mismatched_lists_are_errors(host: Host) -> None:
    three, four = TensorList([np.zeros(3)]), TensorList([np.zeros(4)])
    tail = [0.1, 0.0, 0.0, 0.0, False, False, True]
    with pytest.raises(
        KernelError, match=r"`grads`\[0\] differs from the parameter in shape or dtype"
    ):
        host.run("fused_sgd", [three, four, TensorList(), *tail], [])
    with pytest.raises(KernelError, match="`params` has 1 tensors, `grads` has 0"):
        host.run("fused_sgd", [three, TensorList(), TensorList(), *tail], [])
