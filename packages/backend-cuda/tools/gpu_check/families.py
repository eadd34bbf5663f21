"""A call of each family of kernels, by name: what the mini-suite and the times of first calls run."""

import rabbet
import rabbet.nn.functional as F


def calls(rows: int, columns: int) -> dict:
    """Functions without arguments; their operands are on the device."""
    rabbet.manual_seed(0)
    x = rabbet.randn(rows, columns).cuda()
    half = x.to(rabbet.bfloat16)
    index = rabbet.randint(0, rows, (columns,)).cuda()
    target = rabbet.randint(0, columns, (rows,)).cuda()
    weight = rabbet.randn(columns, columns).cuda()
    image = rabbet.randn(2, 3, rows, rows).cuda()
    q = rabbet.randn(2, 2, rows, 16).cuda()
    lstm = [rabbet.randn(s).cuda() for s in ((2 * rows, 32), (rows, 8), (rows, 8), (32, 8))]
    wide = [rabbet.randn(s).cuda() * 0.1 for s in ((4, 520), (2, 130), (2, 130), (520, 130))]
    return {
        "add": lambda: x + x,
        "mul bf16": lambda: half * half,
        "transposed copy": lambda: x.t().contiguous(),
        "cast": lambda: x.to(rabbet.float64),
        "gelu": lambda: F.gelu(x),
        "where": lambda: rabbet.where(x > 0, x, 0.0),
        "sum": lambda: x.sum(),
        "sum rows": lambda: x.sum(1),
        "sum columns": lambda: x.sum(0),
        "argmax": lambda: x.argmax(1),
        "softmax": lambda: x.softmax(-1),
        "layer_norm": lambda: F.layer_norm(x, (columns,)),
        "cross_entropy": lambda: F.cross_entropy(x, target),
        "matmul": lambda: x @ weight,
        "matmul bf16": lambda: half @ weight.to(rabbet.bfloat16),
        "conv2d": lambda: F.conv2d(image, image[:, :, :3, :3]),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "index_select": lambda: x.index_select(0, index),
        "index_add": lambda: x.clone().index_add_(0, index, x[index]),
        "sort": lambda: x.sort(1)[0],
        "topk": lambda: x.topk(2, 1)[0],
        "cumsum": lambda: x.cumsum(0),
        "rand": lambda: rabbet.rand(rows, columns, device="cuda"),
        "attention": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "lstm": lambda: rabbet.ops.recurrent_layer("lstm", *lstm, None)[0],
        "lstm step by step": lambda: rabbet.ops.recurrent_layer("lstm", *wide, None)[0],
    }
