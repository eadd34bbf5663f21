"""Calls of each family of kernels: what the comparisons, the sanitizers and the times of first calls run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import family_names
import rabbet
import rabbet.nn.functional as F
from rabbet.nn.utils import clip_grad_norm_

HALVES = ("bfloat16", "float16")
SIZES = ((8, 12), (33, 65))  # rows and columns


@dataclass(frozen=True)
class Case:
    """`inputs` are float64 or whole numbers on the CPU; the floating ones are rounded to each dtype of `dtypes`."""

    call: Callable[..., Any]
    inputs: Callable[[int, int], list]
    dtypes: tuple[str, ...] = ("float32",)
    gradients: bool = True


def normal(*shape: int) -> Any:
    return rabbet.randn(*shape, dtype=rabbet.float64)


def one(rows: int, columns: int) -> list:
    return [normal(rows, columns)]


def two(rows: int, columns: int) -> list:
    return [normal(rows, columns), normal(rows, columns)]


def both(call: Callable[..., Any], inputs: Callable[[int, int], list] = one, **how: Any) -> Case:
    """In float32 and bfloat16."""
    return Case(call, inputs, ("float32", "bfloat16"), **how)


def whole(limit: int, *shape: int) -> Any:
    return rabbet.randint(0, limit, shape)


def heads(rows: int, columns: int) -> list:
    return [normal(2, 4, rows, 16) for _ in range(3)]


def wide_heads(rows: int, columns: int) -> list:
    return [normal(1, 2, columns, 128) for _ in range(3)]


def grouped(rows: int, columns: int) -> list:
    return [normal(2, 4, rows, 64), normal(2, 2, columns, 64), normal(2, 2, columns, 64)]


def masked(rows: int, columns: int) -> list:
    return [
        normal(2, 2, rows, 16),
        *(normal(2, 2, columns, 16) for _ in range(2)),
        whole(4, rows, columns),
    ]


def attend(**how: Any) -> Callable[..., Any]:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **how)


def image(
    channels: int, outputs: int, kernel: int, dimensions: int = 2, groups: int = 1
) -> Callable:
    def inputs(rows: int, columns: int) -> list:
        side = [min(rows, {1: 32, 2: 14, 3: 6}[dimensions])] * dimensions
        return [
            normal(2, channels, *side),
            normal(outputs, channels // groups, *[kernel] * dimensions)
            / (channels * kernel) ** 0.5,
        ]

    return inputs


def channels_last(x: Any, w: Any) -> Any:
    x, w = (t.to(memory_format=rabbet.channels_last) for t in (x, w))
    return F.conv2d(x, w, padding=1)


def positive(x: Any) -> Any:
    """A positive-definite, well-conditioned matrix with as many rows as `x`."""
    return x @ x.t() / x.shape[1] + rabbet.eye(x.shape[0], dtype=x.dtype, device=x.device)


def norm_inputs(rows: int, columns: int) -> list:
    return [normal(rows, columns) + 0.5, normal(columns), normal(columns)]


def channel_norm_inputs(rows: int, columns: int) -> list:
    return [normal(3, 8, rows, 5) + 0.5, normal(8), normal(8)]


def picture(rows: int, columns: int) -> list:
    return [normal(2, 3, rows, columns)]


def table_and_index(rows: int, columns: int) -> list:
    return [normal(rows, columns), whole(rows, columns)]


def added_at(x: Any, index: Any) -> Any:
    return x.clone().index_add(0, index, x.index_select(0, index))


def put_at(x: Any, index: Any) -> Any:
    return x.clone().index_put((index,), x.index_select(0, index) * 2, accumulate=True)


def gathered(x: Any, index: Any) -> Any:
    return x.gather(0, index.expand(x.shape[0], -1))


def scattered(x: Any, index: Any) -> Any:
    return x.scatter_add(0, index.expand(x.shape[0], -1), x)


def drawn(draw: Callable[..., Any]) -> Callable[..., Any]:
    """A seed gives the same numbers on every device, but others in float64."""

    def call(x: Any) -> Any:
        rabbet.manual_seed(7)
        return draw(x.to(rabbet.float32))

    return call


def stepped(make: Callable[[list], Any], steps: int = 3) -> Callable[..., Any]:
    """What an optimizer makes of parameters `p`, `q` and constant gradients `g`, `h`."""

    def call(p: Any, q: Any, g: Any, h: Any) -> Any:
        parameters = [t.detach().clone().requires_grad_() for t in (p, q)]
        optimizer = make(parameters)
        for _ in range(steps):
            for parameter, gradient in zip(parameters, (g, h), strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
        return tuple(t.detach() for t in parameters)

    return call


def clipped(p: Any, q: Any, g: Any, h: Any) -> Any:
    parameters = [t.detach().clone().requires_grad_() for t in (p, q)]
    for parameter, gradient in zip(parameters, (g, h), strict=True):
        parameter.grad = gradient.clone()
    norm = clip_grad_norm_(parameters, 0.5)
    return (norm, *(t.grad for t in parameters))


def parameters(rows: int, columns: int) -> list:
    return [normal(rows, columns), normal(columns), normal(rows, columns), normal(columns)]


def step_of(name: str, **how: Any) -> Case:
    optim = rabbet.optim
    return Case(
        stepped(lambda given: getattr(optim, name)(given, lr=0.05, **how)),
        parameters,
        gradients=False,
    )


def lstm(size: int, length: int) -> Case:
    def inputs(rows: int, columns: int) -> list:
        # The input's part of all gates, both first states, and the recurrent weights.
        gates = normal(length * 4, 4 * size) * 0.3
        return [gates, normal(4, size), normal(4, size), normal(4 * size, size) * 0.2]

    return Case(lambda *given: rabbet.ops.recurrent_layer("lstm", *given, None)[0], inputs)


def recurrent(size: int, length: int) -> Case:
    def call(gates: Any, h: Any, w: Any) -> Any:
        return rabbet.ops.recurrent_layer("tanh", gates, h, None, w, None)[0]

    return Case(
        call, lambda r, c: [normal(length * 4, size), normal(4, size), normal(size, size) * 0.2]
    )


FAMILIES: dict[str, dict[str, Case]] = {
    "elementwise": {
        "add": both(lambda x, y: x + y, two),
        "mul": both(lambda x, y: x * y, two),
        "div": both(lambda x, y: x / (y.abs() + 1), two),
        "broadcast": both(lambda x, y: x + y[:, :1] * y[0], two),
        "transposed copy": both(lambda x: x.t().contiguous()),
        "cast": both(lambda x: x.to(rabbet.float64)),
        "gelu": both(F.gelu),
        "silu": both(F.silu),
        "where": both(lambda x: rabbet.where(x > 0, x, 0.0)),
        "cat": both(lambda x, y: rabbet.cat([x, y], 1), two),
        "pad": both(lambda x: F.pad(x, (1, 2))),
    },
    "reductions": {
        "sum": both(lambda x: x.sum()),
        "sum of rows": both(lambda x: x.sum(1)),
        "sum of columns": both(lambda x: x.sum(0)),
        "mean": both(lambda x: x.mean(1)),
        "variance": Case(lambda x: x.var(1), one),
        "norm": Case(lambda x: rabbet.linalg.vector_norm(x, dim=1), one),
        "maximum": Case(lambda x: x.max(1)[0], one),
        "argmax": Case(lambda x: x.argmax(1), one, gradients=False),
        "logsumexp": Case(lambda x: x.logsumexp(1), one),
    },
    "softmax": {
        "softmax": both(lambda x: x.softmax(-1)),
        "log_softmax": both(lambda x: x.log_softmax(-1)),
        "softmax of columns": both(lambda x: x.softmax(0)),
    },
    "norms": {
        "layer_norm": both(lambda x, w, b: F.layer_norm(x, w.shape, w, b), norm_inputs),
        "rms_norm": both(lambda x, w, b: F.rms_norm(x, w.shape, w) + b, norm_inputs),
        "group_norm": both(lambda x, w, b: F.group_norm(x, 4, w, b), channel_norm_inputs),
        "batch_norm": Case(
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), channel_norm_inputs
        ),
    },
    "losses": {
        "cross_entropy": both(
            lambda x, y: F.cross_entropy(x, y % x.shape[1]),
            lambda r, c: [normal(r, c), whole(c, r)],
        ),
        "mse_loss": both(F.mse_loss, two),
        "binary_cross_entropy_with_logits": Case(
            lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), two
        ),
    },
    "products": {
        "matmul": Case(lambda x, y: x @ y.t(), two, ("float32", *HALVES, "float64")),
        "matrix and vector": both(lambda x, y: x @ y[0], two),
        "batches": both(
            rabbet.bmm, lambda r, c: [normal(3, r, c), normal(3, c, 24)]
        ),
        "linear": both(F.linear, lambda r, c: [normal(r, c), normal(40, c), normal(40)]),
        "linear and gelu": both(
            lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
            lambda r, c: [normal(r, 64), normal(128, 64), normal(128)],
        ),
    },
    "attention": {
        "causal": Case(attend(is_causal=True), heads, ("float32", *HALVES)),
        "whole": Case(attend(), heads, ("float32", *HALVES)),
        "heads of 128": Case(attend(is_causal=True), wide_heads, HALVES),
        "grouped": Case(attend(enable_gqa=True), grouped, HALVES),
        "mask": both(
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0), masked
        ),
    },
    "convolution": {
        "3 x 3": both(lambda x, w: F.conv2d(x, w, padding=1), image(16, 16, 3)),
        "1 x 1": both(F.conv2d, image(16, 32, 1)),
        "channels last": both(channels_last, image(16, 16, 3)),
        "strided": both(lambda x, w: F.conv2d(x, w, stride=2, padding=1), image(16, 24, 3)),
        "dilated": both(lambda x, w: F.conv2d(x, w, dilation=2, padding=2), image(8, 8, 3)),
        "by channel": both(
            lambda x, w: F.conv2d(x, w, padding=1, groups=16), image(16, 16, 3, groups=16)
        ),
        "1 dimension": both(lambda x, w: F.conv1d(x, w, padding=1), image(8, 8, 3, 1)),
        "3 dimensions": both(lambda x, w: F.conv3d(x, w, padding=1), image(8, 8, 3, 3)),
        "transposed": both(lambda x, w: F.conv_transpose2d(x, w, stride=2), image(8, 8, 3)),
    },
    "pooling": {
        "max_pool2d": both(lambda x: F.max_pool2d(x, 2), picture),
        "avg_pool2d": both(lambda x: F.avg_pool2d(x, 3, stride=2), picture),
        "adaptive_avg_pool2d": both(lambda x: F.adaptive_avg_pool2d(x, (3, 5)), picture),
    },
    "indexing": {
        "index_select": both(lambda x, i: x.index_select(0, i), table_and_index),
        "gather": both(gathered, table_and_index),
        "scatter_add": both(scattered, table_and_index),
        "index_add": both(added_at, table_and_index),
        "index_put": both(put_at, table_and_index),
        "embedding": both(lambda x, i: F.embedding(i, x), table_and_index),
        "nonzero": Case(lambda x: (x > 0).nonzero(), one, gradients=False),
    },
    "order": {
        "sort": both(lambda x: x.sort(1)[0]),
        "topk": both(lambda x: x.topk(2, 1)[0]),
        "cumsum": Case(lambda x: x.cumsum(0), one),
        "cumprod": Case(lambda x: (x / 2).cumprod(1), one),
    },
    "random": {
        "rand": Case(drawn(rabbet.rand_like), one, gradients=False),
        "randn": Case(drawn(rabbet.randn_like), one, gradients=False),
        "dropout": Case(drawn(lambda x: F.dropout(x, 0.3)), one),
    },
    "optimizers": {
        "SGD": step_of("SGD", momentum=0.9, nesterov=True),
        "Adam": step_of("Adam"),
        "AdamW, one kernel": step_of("AdamW", fused=True),
        "AdamW, lists": step_of("AdamW", foreach=True),
        "RMSprop": step_of("RMSprop", momentum=0.5),
        "Adagrad": step_of("Adagrad"),
        "clip_grad_norm_": Case(clipped, parameters, gradients=False),
    },
    "recurrent": {
        "lstm": lstm(8, 3),
        "lstm step by step": lstm(130, 2),
        "tanh": recurrent(8, 3),
    },
    "fourier": {
        "complex": Case(lambda x: rabbet.view_as_real(rabbet.fft.fft2(x * (1 + 0.5j))), one),
        "real": Case(lambda x: rabbet.view_as_real(rabbet.fft.rfft2(x, norm="ortho")), one),
        "to real": Case(
            lambda x, y: rabbet.fft.irfftn(rabbet.complex(x, y), (x.shape[0], 2 * x.shape[1] - 2)), two
        ),
    },
    "linalg": {
        "cholesky": Case(lambda x: rabbet.linalg.cholesky(positive(x)), one),
        "solve": Case(lambda x, y: rabbet.linalg.solve(positive(x), y), two),
        "inverses": Case(lambda x: rabbet.linalg.inv(positive(x).expand(2, -1, -1)), one),
        "determinant": Case(lambda x: rabbet.linalg.slogdet(positive(x))[1], one),
        "triangular": Case(
            lambda x, y: rabbet.linalg.solve_triangular(positive(x), y, upper=True), two
        ),
        "qr": Case(lambda x: rabbet.linalg.qr(x.t())[1].abs(), one),
        "eigenvalues": Case(lambda x: rabbet.linalg.eigvalsh(positive(x)), one),
        "singular values": Case(rabbet.linalg.svdvals, one),
    },
}  # fmt: skip
assert tuple(FAMILIES) == family_names.FAMILIES


def floating(tensors: list) -> list:
    return [t for t in tensors if t.dtype.is_floating_point]


def inputs_of(case: Case, size: tuple[int, int], dtype: str, seed: int) -> list:
    rabbet.manual_seed(seed)
    given = case.inputs(*size)
    return [t.to(getattr(rabbet, dtype)) if t.dtype.is_floating_point else t for t in given]


def results(case: Case, given: list, backward: bool = True) -> list:
    """What the call returns, and the gradients of its floating inputs."""
    backward = backward and case.gradients
    given = [t.detach().requires_grad_(backward and t.dtype.is_floating_point) for t in given]
    made = case.call(*given)
    made = list(made) if isinstance(made, tuple) else [made]
    if not backward:
        return made
    # Cotangents that differ from element to element, and are the same on every device.
    cotangents = [
        (rabbet.arange(t.numel(), dtype=rabbet.float64) % 7 - 2).reshape(t.shape).to(t.dtype).to(t.device)
        for t in made
    ]  # fmt: skip
    gradients = rabbet.autograd.grad(made, floating(given), cotangents)
    return [t.detach() for t in made] + list(gradients)
