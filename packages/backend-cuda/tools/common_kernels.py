"""Run what programs use on the device `cuda`, in the usual dtypes: what a seed pack is made of.

Results are not looked at: tools/kernel_texts.py runs this on a driver that does nothing.
"""

import contextlib
import warnings
from collections.abc import Callable

import rabbet
from rabbet import nn, optim
from rabbet.nn import functional

FLOATS = (rabbet.float32, rabbet.float16, rabbet.bfloat16)


def unary_and_binary(x: rabbet.Tensor, y: rabbet.Tensor) -> None:
    """Elementwise operators in the three loops: flat, rows, places."""
    row = y[0]
    for a, b in ((x, y), (x, row), (x.t(), y.t()), (x.t(), y.t().contiguous())):
        for f in (rabbet.add, rabbet.sub, rabbet.mul, rabbet.div, rabbet.maximum, rabbet.minimum):
            f(a, b)
        for f in (rabbet.eq, rabbet.ne, rabbet.lt, rabbet.le, rabbet.gt, rabbet.ge):
            f(a, b)
        rabbet.where(a > b, a, b)
    for f in [
        "neg",
        "abs",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "relu",
        "sin",
        "cos",
        "erf",
        "square",
        "reciprocal",
    ]:
        step(getattr(rabbet, f), x)
    for f in (functional.gelu, functional.silu, functional.leaky_relu, functional.softplus):
        step(f, x)
    for number in (2, 0.5):
        x + number, x - number, x * number, x / number, number - x, number / x, x**number
        for f in (rabbet.eq, rabbet.gt, rabbet.lt):
            f(x, number)
    x.clamp(-1, 1), x.masked_fill(x > 0, 0.0), x.lerp(y, 0.5), x.addcmul(x, y), x.pow(3)


def movement(x: rabbet.Tensor) -> None:
    """Copies and casts between all common dtypes."""
    for dtype in (*FLOATS, rabbet.int64, rabbet.int32, rabbet.bool, rabbet.uint8):
        x.to(dtype).to(x.dtype)
    x.t().contiguous(), rabbet.cat([x, x]), rabbet.stack([x, x]), x.flip(0)
    rabbet.zeros_like(x), rabbet.full_like(x, 2.0), rabbet.arange(5, device="cuda")
    functional.pad(x, [1, 1])


def reductions(x: rabbet.Tensor) -> None:
    """Along either dimension, and of everything."""
    for dims in ({}, {"dim": 0}, {"dim": 1}):
        for f in (rabbet.sum, rabbet.mean, rabbet.amax, rabbet.amin, rabbet.argmax, rabbet.prod):
            step(lambda f=f, dims=dims: f(x, **dims))
        step(rabbet.logsumexp, x, dims.get("dim", 0))
        for f in (functional.softmax, functional.log_softmax):
            step(f, x, dims.get("dim", -1))
    rabbet.any(x > 0), rabbet.all(x > 0), x.cumsum(-1)
    step(x.var, -1)


def losses(x: rabbet.Tensor, y: rabbet.Tensor) -> None:
    """Forward and backward."""
    classes = rabbet.arange(x.shape[0], device="cuda") % x.shape[1]
    for loss in (
        lambda a: functional.mse_loss(a, y),
        lambda a: functional.l1_loss(a, y),
        lambda a: functional.smooth_l1_loss(a, y),
        lambda a: functional.cross_entropy(a, classes),
        lambda a: functional.cross_entropy(a, classes, label_smoothing=0.1),
        lambda a: functional.nll_loss(a, classes),
        lambda a: functional.binary_cross_entropy_with_logits(a, y),
        lambda a: functional.kl_div(a, y, reduction="batchmean"),
    ):
        step(lambda loss=loss: loss(x.detach().requires_grad_()).backward())


def indexing(x: rabbet.Tensor) -> None:
    """By int64, as data loaders and embeddings do."""
    rows = rabbet.arange(4, device="cuda")
    step(lambda: functional.embedding(rows, x.detach().requires_grad_()).sum().backward())
    for f in (
        lambda: (x[rows], x[:, rows], x[x > 0], x.nonzero(), x[..., :4].contiguous()),
        lambda: (x.index_select(0, rows), x.gather(1, rows.reshape(4, 1)), x.tril(), x.triu()),
        lambda: x.clone().index_put_([rows], x[:4]),
        lambda: x.clone().index_add_(0, rows, x[:4]),
        lambda: x.clone().scatter_(1, rows.reshape(4, 1), x[:4, :1]),
        lambda: x.clone().scatter_add_(1, rows.reshape(4, 1), x[:4, :1]),
        lambda: (x.sort(-1), x.topk(4), x.argsort(-1), x.max(-1), x.min(-1)),
        lambda: functional.one_hot(rows, 8),
        lambda: (x.flip(0), x.roll(1, 0), x.repeat(2, 2), x.expand(2, *x.shape).contiguous()),
    ):
        step(f)


def chance(dtype: rabbet.dtype) -> None:
    """Weights, noise, dropout and shuffles."""
    x = rabbet.empty(64, 64, device="cuda", dtype=dtype)
    for f in (
        lambda: (rabbet.randn(8, device="cuda", dtype=dtype), rabbet.rand_like(x)),
        lambda: (x.uniform_(-1, 1), x.normal_(), nn.init.kaiming_uniform_(x)),
        lambda: functional.dropout(x.requires_grad_(), 0.5).sum().backward(),
        lambda: (rabbet.randint(0, 9, (8,), device="cuda"), rabbet.randperm(64, device="cuda")),
        lambda: rabbet.multinomial(rabbet.ones_like(x), 1),
    ):
        step(f)


def models() -> list[tuple[nn.Module, rabbet.Tensor]]:
    """Each with an input: a perceptron, a convolutional network, transformers and a recurrent network."""
    encoder = nn.TransformerEncoderLayer(64, 2, 128, dropout=0.1, batch_first=True)
    before = nn.TransformerEncoderLayer(
        64, 2, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    image = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, groups=16), nn.GroupNorm(4, 16), nn.SiLU(), nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    layers = (nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Linear(128, 64), nn.GELU())
    tokens = rabbet.randn(4, 64, 64)
    return [
        (nn.Sequential(*layers), rabbet.randn(64, 64)),
        (image, rabbet.randn(4, 3, 32, 32)),
        (encoder, tokens),
        (before, tokens),
        (nn.LSTM(64, 32, batch_first=True), tokens),
        (nn.RMSNorm(64), tokens),
    ]


def convolutions(dtype: rabbet.dtype) -> None:
    """Of many channels, forward and backward; 16-bit floats also with channels last."""
    formats = [rabbet.contiguous_format, rabbet.channels_last]
    for form in formats if dtype.itemsize == 2 else formats[:1]:
        layer = nn.Conv2d(64, 128, 3, padding=1).to("cuda", dtype)
        x = rabbet.empty(16, 64, 32, 32, device="cuda", dtype=dtype).to(memory_format=form)
        layer.weight.data = layer.weight.to(memory_format=form)
        out = layer(x.requires_grad_())
        out.backward(rabbet.empty_like(out))


def optimizers(parameters: list[rabbet.Tensor]) -> list[optim.Optimizer]:
    """Those of common programs, with what is usual."""
    return [
        optim.SGD(parameters, lr=0.01),
        optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, nesterov=True),
        optim.Adam(parameters),
        optim.AdamW(parameters),
        optim.RMSprop(parameters),
        optim.Adagrad(parameters),
    ]


def trained(model: nn.Module, x: rabbet.Tensor, autocast: rabbet.dtype | None) -> None:
    """Two steps with every optimizer, gradients clipped; in mixed precision where `autocast` is a dtype."""
    for optimizer in optimizers(list(model.parameters())):
        for _ in range(2):
            with rabbet.autocast("cuda", dtype=autocast, enabled=autocast is not None):
                out = model(x)
            out = out[0] if isinstance(out, tuple) else out
            out.float().square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    with rabbet.no_grad():
        model.eval()(x)


def training(dtype: rabbet.dtype) -> None:
    """Models whose weights have this dtype, and those in float32 whose products have it."""
    for model, x in models():
        model = model.to("cuda").train()
        if dtype is not rabbet.float32:
            step(trained, model, x.to("cuda"), dtype)
        step(trained, model.to(dtype).train(), x.to("cuda").to(dtype), None)


def step(f: Callable[..., object], *arguments: object) -> None:
    """Skip what a dtype or this version does not have."""
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, AttributeError):
        f(*arguments)


def main() -> None:
    warnings.simplefilter("ignore")
    for dtype in FLOATS:
        x = rabbet.rand(64, 64).to("cuda").to(dtype)
        y = (rabbet.rand(64, 64) + 0.5).to("cuda").to(dtype)
        for f in (unary_and_binary, losses):
            step(f, x, y)
        for f in (movement, reductions, indexing):
            step(f, x)
        step(chance, dtype)
        step(convolutions, dtype)
        step(training, dtype)
    whole = rabbet.arange(4096).reshape(64, 64).to("cuda")
    step(unary_and_binary, whole, whole + 1)
    for f in (movement, reductions, indexing):
        step(f, whole)


if __name__ == "__main__":
    main()
