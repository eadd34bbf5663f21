"""Recurrent layers: what does one operator for all steps gain over PyTorch, in a training pass?"""

import rabbet
from common import finish, limits, side_by_side, torch_or_none
from rabbet import nn

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def forward_of(t, nn, name, batch, steps, size):
    """The forward pass as a function."""
    layer, x = getattr(nn, name)(size, size), t.randn(steps, batch, size)

    def call():
        with t.no_grad():
            layer(x)

    return call


def training_of(t, nn, name, batch, steps, size):
    """Forward and backward, the input's gradient included, as a function."""
    layer = getattr(nn, name)(size, size)
    x = t.randn(steps, batch, size).requires_grad_()

    def call():
        layer.zero_grad()
        x.grad = None
        layer(x)[0].sum().backward()

    return call


# What, the function, products of weights and rows, the least ratio that is wanted.
PASSES = [("forward", forward_of, 2, 1.0), ("training", training_of, 6, 1.5)]


def rows(torch) -> list[dict]:
    """All measurements, float32."""
    flops, found = limits()["flops"], []
    for name in ("LSTM", "GRU", "RNN"):
        for batch, steps, size in ((32, 64, 256), (8, 32, 128)):
            for what, make, products, times in PASSES:
                calls = {"rabbet": make(rabbet, nn, name, batch, steps, size)}
                if torch:
                    calls["torch"] = make(torch, torch.nn, name, batch, steps, size)
                bound = products * 2.0 * steps * batch * GATES[name] * size * size / flops
                row = {"what": f"{name} {size}, batch {batch} x {steps}, {what}", "bound": bound}
                found.append({**row, **side_by_side(calls), "times": times})
    return found


if __name__ == "__main__":
    finish("recurrent", "Recurrent layers (float32)", rows(torch_or_none()))
