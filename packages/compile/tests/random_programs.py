"""Random programs of tensors: arithmetic, views, writes, `out=`, random numbers, reads and branches on what was read."""

import random
from typing import Any

import numpy as np
import rabbet
import rabbet.nn.functional as F

FLOATS = [rabbet.float32, rabbet.float32, rabbet.float64, rabbet.bfloat16, rabbet.float16]
UNARY = [
    rabbet.relu, rabbet.tanh, rabbet.sigmoid, rabbet.abs, rabbet.neg, rabbet.exp, rabbet.sin, rabbet.square, rabbet.floor,
    rabbet.erf, rabbet.expm1, rabbet.sign, F.gelu, F.silu, F.softplus, F.elu, F.hardswish, F.mish, F.leaky_relu,
    rabbet.isnan, rabbet.reciprocal, rabbet.clone, lambda x: F.gelu(x, approximate="tanh"), lambda x: x.clamp(-0.5, 0.5),
]  # fmt: skip
BINARY = [
    rabbet.add, rabbet.mul, rabbet.sub, rabbet.div, rabbet.maximum, rabbet.minimum, rabbet.atan2, rabbet.hypot,
    lambda a, b: rabbet.add(a, b, alpha=0.5), lambda a, b: a.lerp(b, 0.25), lambda a, b: rabbet.where(a > b, a, b),
    lambda a, b: a < b, lambda a, b: (a >= 0) & (b < 1), lambda a, b: rabbet.div(a, b, rounding_mode="floor"),
    lambda a, b: a.masked_fill(b > 0, 0.5), lambda a, b: rabbet.addcmul(a, a, b, value=0.5), lambda a, b: a == b,
]  # fmt: skip
INPLACE = [
    lambda a, b: a.add_(b), lambda a, b: a.mul_(b), lambda a, b: a.copy_(b), lambda a, b: a.sub_(b, alpha=2),
    lambda a, b: a.clamp_(-1, 1), lambda a, b: a.relu_(), lambda a, b: a.mul_(0.75), lambda a, b: a.fill_(0.25),
    lambda a, b: a.zero_(), lambda a, b: a.addcmul_(b, b, value=0.1), lambda a, b: a.lerp_(b, 0.5), lambda a, b: a.tanh_(),
    lambda a, b: a.addcdiv_(b, b * b + 1, value=-0.1), lambda a, b: a.copy_(a.flip(0)),
]  # fmt: skip
VIEWS = [
    lambda r, a: a[r.randint(0, 1) :], lambda r, a: a[..., : r.randint(1, 3)], lambda r, a: a.t() if a.ndim == 2 else a,
    lambda r, a: a.reshape(-1), lambda r, a: a.unsqueeze(0), lambda r, a: a.expand(2, *a.shape)[1], lambda r, a: a.detach(),
    lambda r, a: a[0] if a.ndim else a, lambda r, a: a[:, None] if a.ndim else a, lambda r, a: a.view(a.shape), lambda r, a: a.data,
    lambda r, a: a[::2] if a.ndim else a, lambda r, a: a.narrow(0, 0, 1) if a.ndim else a, lambda r, a: a.view(*a.shape, 1),
]  # fmt: skip
OTHERS = [
    lambda r, a: a.sum(-1, keepdim=True) if a.ndim else a, lambda r, a: a.float().mean(), lambda r, a: rabbet.rand_like(a.float()) + a,
    lambda r, a: a.to(r.choice(FLOATS)), lambda r, a: a.float().softmax(-1) if a.ndim else a, lambda r, a: rabbet.zeros_like(a),
    lambda r, a: a.cumsum(0) if a.ndim else a, lambda r, a: F.dropout(a.float(), 0.5), lambda r, a: a.contiguous(), lambda r, a: a.int(),
    lambda r, a: a.float().amax(0, keepdim=True) if a.ndim else a, lambda r, a: rabbet.cat([a, a]) if a.ndim else a,
    lambda r, a: rabbet.randn(a.shape) * a, lambda r, a: a * r.randint(-3, 3) + r.uniform(-2, 2), lambda r, a: a**2,
    lambda r, a: a / 3, lambda r, a: 1 - a if a.dtype != rabbet.bool else ~a, lambda r, a: a @ a.t() if a.ndim == 2 else a,
]  # fmt: skip


def bits(t: rabbet.Tensor) -> tuple[Any, ...]:
    """What two equal tensors have in common: dtype, shape, strides and the bits of the elements.

    All NaNs count as one: which of two NaNs an operator hands on, vector and scalar code decide differently.
    """
    t = t.detach()
    whole = t.contiguous() if t.dtype != rabbet.bool else t.contiguous().to(rabbet.uint8)
    if t.is_floating_point():
        whole = rabbet.where(whole.isnan(), float("nan"), whole).to(t.dtype)
    raw = np.asarray(whole.reshape(-1).clone().view(rabbet.uint8)).tobytes()
    return str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), raw


def run(seed: int) -> tuple[list[Any], list[rabbet.Tensor]]:
    """Run program number `seed`; returns what it read, and the tensors that are left."""
    r = random.Random(seed)
    rabbet.manual_seed(seed)
    rows, cols = r.choice([(4, 6), (3, 5), (1, 7), (8, 1), (16, 33)])
    kept = [rabbet.randn(rows, cols) for _ in range(3)]
    kept.append(r.choice([rabbet.randn(cols), rabbet.randn(rows, 1), rabbet.randn(())]))
    if r.random() < 0.4:
        kept = [t.to(r.choice(FLOATS)) for t in kept]
    if r.random() < 0.1:
        kept.append(rabbet.arange(rows * cols).reshape(rows, cols))
    if r.random() < 0.1:
        kept.append(
            rabbet.from_numpy(np.linspace(-1, 1, rows * cols, dtype=np.float32).reshape(rows, cols))
        )
    read: list[Any] = []
    for _ in range(r.randint(4, 40)):
        kind, a, b = r.random(), r.choice(kept), r.choice(kept)
        try:
            if kind < 0.25:
                made = r.choice(UNARY)(a)
            elif kind < 0.5:
                made = r.choice(BINARY)(a, b)
            elif kind < 0.65:
                made = r.choice(INPLACE)(a, b)
            elif kind < 0.78:
                made = r.choice(VIEWS)(r, a)
            elif kind < 0.9:
                made = r.choice(OTHERS)(r, a)
            elif kind < 0.93:
                made = r.choice([rabbet.add, rabbet.mul])(a, b, out=r.choice(kept))
            elif kind < 0.95:
                a[r.choice([0, slice(1, 3), a > 0])] = r.uniform(-1, 1)
                made = a
            elif kind < 0.97:
                read.append(a.float().sum().item())
                made = a + 1 if read[-1] > 0 else a - 1
            elif kind < 0.98:
                read.append(a.tolist())
                continue
            else:
                read.append((a._version, b.storage_offset()))
                kept.pop(r.randrange(len(kept)))
                made = a
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            read.append(f"{type(error).__name__}: {error}")
            continue
        if made.numel() <= 2000 and made.ndim <= 5:
            kept.append(made)
        if len(kept) > 6 and r.random() < 0.5:
            kept.pop(r.randrange(len(kept)))
    return read, kept
