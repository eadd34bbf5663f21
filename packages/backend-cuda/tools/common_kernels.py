"""Run what programs use on the device `cuda`, in the usual dtypes: what a seed pack is made of.

With --all: every operator that has a kernel, by the examples of its record, in every dtype.
"""

import argparse
import contextlib
import sys

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
        getattr(rabbet, f)(x)
    for f in (functional.gelu, functional.silu, functional.leaky_relu, functional.softplus):
        f(x)
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
            f(x, **dims)
        rabbet.logsumexp(x, dims.get("dim", 0))
        functional.softmax(x, dims.get("dim", -1)), functional.log_softmax(x, dims.get("dim", -1))
    rabbet.any(x > 0), rabbet.all(x > 0), x.var(-1), x.cumsum(-1)


def training(dtype: rabbet.dtype) -> None:
    """Steps of a small transformer block and a small convolutional network."""
    block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    image = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    for model, x in ((block, rabbet.randn(2, 4, 16)), (image, rabbet.randn(2, 3, 8, 8))):
        model = model.to("cuda").to(dtype)
        for make in (optim.SGD, optim.Adam, optim.AdamW):
            optimizer = make(model.parameters(), lr=0.01)
            model(x.to("cuda").to(dtype)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def step(f, *arguments) -> None:
    """Skip what a dtype or this version does not have."""
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
        f(*arguments)


def common() -> None:
    for dtype in FLOATS:
        x = rabbet.rand(8, 16).to("cuda").to(dtype)
        y = (rabbet.rand(8, 16) + 0.5).to("cuda").to(dtype)
        step(unary_and_binary, x, y)
        step(movement, x)
        step(reductions, x)
        step(training, dtype)
    whole = rabbet.arange(128).reshape(8, 16).to("cuda")
    step(unary_and_binary, whole, whole + 1)
    step(movement, whole)
    step(reductions, whole)


def everything(wanted: set[str]) -> None:
    """Cases of the kit for every operator with a kernel here, in the dtypes that it declares."""
    from rabbet import _C
    from rabbet_testing.cases import creation_names, op_names
    from rabbet_testing.judges.reference import Judgement, declared_dtypes, meaningful

    for name in [*op_names(), *creation_names()]:
        if "cuda" not in _C.op_info(name)["kernels"] or (wanted and name not in wanted):
            continue
        for dtype in declared_dtypes("cuda"):
            if meaningful(name, dtype):
                with contextlib.suppress(Exception):
                    list(Judgement("cuda", name, dtype, {}).run())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", nargs="*", metavar="OP")
    given = parser.parse_args(sys.argv[1:])
    if given.all is None:
        common()
    else:
        everything(set(given.all))
