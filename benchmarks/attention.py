"""Attention: is a tiled kernel as fast as PyTorch's, forward and with its derivative?"""

import rabbet
from common import finish, limits, side_by_side, torch_or_none
from rabbet import nn

# (batch, heads, positions, head size)
SHAPES = [(8, 4, 128, 64), (4, 8, 512, 64), (1, 12, 1024, 64)]


def inputs(t, shape):
    """Query, key and value as a model makes them: views of one projection, heads turned forward."""
    batch, heads, positions, size = shape
    made = t.randn(batch, positions, 3, heads, size)
    return [made[:, :, i].transpose(1, 2).detach().requires_grad_() for i in range(3)]


def forward_of(t, functional, shape, causal):
    """The forward pass as a function."""
    q, k, v = inputs(t, shape)

    def call():
        with t.no_grad():
            functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def training_of(t, functional, shape, causal):
    """Forward and backward as a function."""
    q, k, v = inputs(t, shape)
    batch, heads, positions, size = shape
    grad = t.randn(batch, positions, heads, size).transpose(1, 2)

    def call():
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        t.autograd.grad(out, [q, k, v], grad)

    return call


def layer_of(t, nn, batch, positions):
    """Training pass of a TransformerEncoderLayer of 256 with 4 heads, without dropout."""
    t.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    x = t.randn(batch, positions, 256)

    def call():
        layer.zero_grad()
        layer(x).sum().backward()

    return call


def rows(torch) -> list[dict]:
    """All measurements, float32. The bound counts every product of a causal call by half."""
    flops, found = limits()["flops"], []
    for shape in SHAPES:
        batch, heads, positions, size = shape
        for causal in (False, True):
            products = 2.0 * batch * heads * positions**2 * size * (0.5 if causal else 1)
            for name, make, count in (("forward", forward_of, 2), ("training", training_of, 7)):
                calls = {"rabbet": make(rabbet, nn.functional, shape, causal)}
                if torch:
                    calls["torch"] = make(torch, torch.nn.functional, shape, causal)
                sizes = "x".join(map(str, shape))
                what = f"attention {sizes}{' causal' if causal else ''}, {name}"
                bound = count * products / flops
                found.append({"what": what, **side_by_side(calls), "bound": bound, "times": 1.0})
    calls = {"rabbet": layer_of(rabbet, nn, 8, 128)}
    if torch:
        calls["torch"] = layer_of(torch, torch.nn, 8, 128)
    weights = 4 * 256 * 256 + 2 * 256 * 1024
    bound = 8 * (3 * 2.0 * 128 * weights + 14.0 * 4 * 128**2 * 64) / flops
    what = "TransformerEncoderLayer 256, 8 x 128, training"
    found.append({"what": what, **side_by_side(calls), "bound": bound, "times": 1.0})
    return found


if __name__ == "__main__":
    finish("attention", "Attention (float32)", rows(torch_or_none()))
