"""Ask for every kernel of the device `cuda` at least once: cases of the conformance kit in all dtypes, then shapes
that are too large for them. Results are not looked at: tools/kernel_texts.py runs this on a driver that does nothing.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator

import rabbet
from rabbet import _C, optim
from rabbet.nn import functional
from rabbet_testing.cases import Case, cases, creation_names, op_names
from rabbet_testing.judges.calls import changed, moved, results
from rabbet_testing.judges.reference import declared_dtypes, meaningful, with_strides

FLOATS = (rabbet.float32, rabbet.float16, rabbet.bfloat16, rabbet.float64)
WHOLE = (rabbet.int64, rabbet.int32, rabbet.uint8)
COMPLEX = (rabbet.complex64, rabbet.complex128)


def attempt(call: Callable[[], object]) -> None:
    """Go on where a dtype or a form is refused."""
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        call()


def forms(case: Case) -> Iterator[Case]:
    """As it is; with gaps between the elements of all tensors, or with dimensions turned."""
    yield moved(case, "cuda")
    for turned in (False, True):
        yield changed(case, lambda t, turned=turned: with_strides(t, "cuda", turned))


def of_the_kit() -> None:
    """Every example of every operator that has a kernel, in every dtype, in three forms."""
    names = [n for n in (*op_names(), *creation_names()) if "cuda" in _C.op_info(n)["kernels"]]
    for name in names:
        params = {p["name"] for p in _C.op_info(name)["params"]}
        makes = "dtype" in params and _C.op_info(name)["kind"] in ("creation", "random")
        for dtype in filter(lambda d: meaningful(name, d), declared_dtypes("cuda")):
            for case in cases(name, getattr(rabbet, dtype), further=True):
                if makes:
                    case.kwargs.setdefault("dtype", getattr(rabbet, dtype))
                attempt(lambda case=case: [results(form) for form in forms(case)])


def empty(*shape: int, dtype: rabbet.dtype = rabbet.float32) -> rabbet.Tensor:
    return rabbet.empty(shape, dtype=dtype, device="cuda")


def indices(*shape: int) -> rabbet.Tensor:
    return rabbet.zeros(shape, dtype=rabbet.int64, device="cuda")


def dw(*arguments: object) -> rabbet.Tensor:
    return rabbet.ops("convolution_dw")(*arguments)


def long_lines(dtype: rabbet.dtype) -> None:
    """What is split among blocks, sorted by digits, or selected."""
    line, rows = empty(1 << 20, dtype=dtype), empty(1 << 16, 8, dtype=dtype)
    for f in (rabbet.sum, rabbet.prod, rabbet.amax, rabbet.amin, rabbet.argmax, rabbet.argmin,
              rabbet.mean, rabbet.any, rabbet.all, rabbet.count_nonzero, rabbet.var):  # fmt: skip
        attempt(lambda f=f: f(line))
        attempt(lambda f=f: f(rows, 0))
    for f in (rabbet.sort, rabbet.cumsum, rabbet.cumprod, rabbet.logsumexp):
        attempt(lambda f=f: f(line, 0))
    attempt(lambda: rabbet.var_mean(line))
    attempt(lambda: rabbet.max(line, 0)), attempt(lambda: rabbet.min(line, 0))
    (
        attempt(lambda: rabbet.topk(line, 5)),
        attempt(lambda: rabbet.topk(empty(256, 4096, dtype=dtype), 5)),
    )
    attempt(lambda: rabbet.linalg.vector_norm(line, 3))


def lines(dtype: rabbet.dtype) -> None:
    """Lines of every length and form: held by threads or not, in packs or not, in several dimensions, in columns."""
    for size in (8, 1024, 1025, 6000, 1 << 14, 1 << 16):
        x, w = empty(64, size, dtype=dtype), empty(size, dtype=dtype)
        line_ops(x, w, [size])
        line_ops(x[:, ::2], w[::2], [size // 2 + size % 2])
        line_ops(empty(size, 64, dtype=dtype).t(), w, [size])
    x, w = empty(8, 16, 32, dtype=dtype), empty(16, 32, dtype=dtype)
    for t in (x, x[..., ::2], empty(8, 16, 40, dtype=dtype)[..., :32]):
        line_ops(t, w[..., : t.shape[-1]].contiguous(), [16, t.shape[-1]])
    for size in (8, 9, 64, 513):
        x, w = empty(8, 8, size, size, dtype=dtype), empty(8, dtype=dtype)
        for t in (x, x.to(memory_format=rabbet.channels_last)):
            for train in (True, False):
                attempt(
                    lambda t=t, w=w, s=train: rabbet.ops.batch_norm_backward(
                        t, t, w, w, w, w, 1e-5, s
                    )
                )
            attempt(lambda t=t, w=w: rabbet.ops.batch_norm_train(t, w, w, 1e-5))
            attempt(lambda t=t, w=w: rabbet.ops.group_norm(t, 2, w, w, 1e-5))
            attempt(lambda t=t, w=w: rabbet.ops.group_norm_backward(t, t, 2, w, 1e-5))
            for f in (rabbet.sum, rabbet.var):
                attempt(lambda f=f, t=t: f(t, [0, 2, 3]))


def line_ops(x: rabbet.Tensor, w: rabbet.Tensor, shape: list[int]) -> None:
    ops = rabbet.ops
    attempt(lambda: ops.layer_norm(x, shape, w, w, 1e-5))
    attempt(lambda: ops.rms_norm(x, shape, w))
    attempt(lambda: ops.layer_norm_backward(x, x, shape, w, 1e-5))
    attempt(lambda: ops.rms_norm_backward(x, x, shape, w, 1e-5))
    for f in (ops.softmax, ops.log_softmax):
        attempt(lambda f=f: f(x, -1))
    for f in (ops.softmax_vjp, ops.log_softmax_vjp):
        attempt(lambda f=f: f(x, x, -1))
    for f in (rabbet.sum, rabbet.var, rabbet.argmax):
        attempt(lambda f=f: f(x, -1))


def large_networks(dtype: rabbet.dtype) -> None:
    """Norms, losses and products of many rows, forward and backward."""
    x, weight = empty(4096, 64, dtype=dtype), empty(64, dtype=dtype)
    image, plane = empty(64, 16, 32, 32, dtype=dtype), empty(16, dtype=dtype)
    for t in (x, weight, image, plane):
        t.requires_grad_()

    def trained(f: Callable[[], rabbet.Tensor]) -> None:
        attempt(lambda: f().sum().backward())

    trained(lambda: functional.layer_norm(x, [64], weight, weight))
    trained(lambda: functional.rms_norm(x, [64], weight))
    trained(lambda: functional.group_norm(image, 4, plane, plane))
    trained(lambda: functional.batch_norm(image, None, None, plane, plane, training=True))
    trained(lambda: functional.cross_entropy(x, indices(4096)))
    trained(lambda: functional.nll_loss(x, indices(4096)))
    kernel = empty(16, 16, 3, 3, dtype=dtype).requires_grad_()
    trained(lambda: functional.conv2d(image, kernel, plane, padding=1))
    trained(lambda: functional.conv2d(image, kernel[:, :1], plane, padding=1, groups=16))
    convolutions(dtype)
    products(dtype)


def convolutions(dtype: rabbet.dtype) -> None:
    """Tiles of two sizes; channels that lie together in all tensors, in one, in none; with and without TF32."""
    for size, channels in ((64, 128), (8, 128), (16, 32), (3, 4)):
        image = empty(8, channels, size, size, dtype=dtype)
        weight = empty(channels, channels, 3, 3, dtype=dtype)
        for last in (False, True):
            x = image.to(memory_format=rabbet.channels_last) if last else image
            for g in (image, image.to(memory_format=rabbet.channels_last)):
                attempt(lambda x=x, g=g, w=weight: dw(x, g, list(w.shape), [1], [1], [1], 1))
            attempt(lambda x=x, w=weight: functional.conv2d(x, w, padding=1))


def products(dtype: rabbet.dtype) -> None:
    """Every way of a product: tiles of two sizes, tensor cores, rows and columns, with what follows."""
    linear_activation = rabbet.ops("linear_activation")
    for m, n, k in ((2048, 2048, 64), (128, 64, 32), (512, 1, 256), (64, 64, 4096), (17, 9, 5)):
        a, b = empty(m, k, dtype=dtype), empty(k, n, dtype=dtype)
        at, bt = empty(k, m, dtype=dtype).t(), empty(n, k, dtype=dtype).t()
        for left in (a, at):
            for right in (b, bt):
                attempt(lambda left=left, right=right: left @ right)
        for activation in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"):
            attempt(lambda f=activation, a=a, bt=bt: linear_activation(a, bt.t(), activation=f))


def sorted_sums(dtype: rabbet.dtype) -> None:
    """Sums that must be equal in every run: their indices are sorted."""
    to, at, source = empty(64, dtype=dtype), indices(4096), empty(4096, dtype=dtype)
    rabbet.use_deterministic_algorithms(True)
    try:
        attempt(lambda: to.index_add_(0, at, source))
        attempt(lambda: to.index_add_(0, at, source, alpha=2))
        attempt(lambda: to.scatter_add_(0, at, source))
        attempt(lambda: to.index_put_([at], source, accumulate=True))
    finally:
        rabbet.use_deterministic_algorithms(False)


def floats_of_8_bits(dtype: rabbet.dtype) -> None:
    """From and to another dtype."""
    x = empty(64, 66, dtype=dtype)
    for small in (rabbet.float8_e4m3fn, rabbet.float8_e5m2):
        for t in (x, x[:, ::2], x.t()):
            attempt(lambda t=t, small=small: t.to(small).to(dtype))
            attempt(lambda t=t, small=small: empty(64, 66).to(small).copy_(t))


def heads(dtype: rabbet.dtype) -> None:
    """Attention of heads of every number of tiles."""
    for size in (32, 64, 128, 256):
        x = empty(1, 1, 64, size, dtype=dtype).requires_grad_()
        mask = empty(64, dtype=dtype)
        for given in ((), (mask,), (None, 0.1), (mask, 0.1)):
            attempt(
                lambda x=x, given=given: functional.scaled_dot_product_attention(x, x, x, *given)
                .sum()
                .backward()
            )
    few, many = empty(1, 1, 16, 64, dtype=dtype), empty(1, 1, 1 << 14, 64, dtype=dtype)
    attempt(lambda: functional.scaled_dot_product_attention(few, many, many))  # in parts


def recurrent(dtype: rabbet.dtype) -> None:
    """Layers that are too wide for the launch of all steps, which the kit's examples take."""
    n, layer = 129, rabbet.ops.recurrent_layer
    for mode, gates in (("lstm", 4), ("gru", 3), ("tanh", 1), ("relu", 1)):
        x, h, weight = (empty(s, n, dtype=dtype) for s in (2 * gates, 2, gates * n))
        x, c = x.reshape(2, gates * n).requires_grad_(), h if mode == "lstm" else None
        attempt(lambda given=(mode, x, h, c, weight, None): layer(*given)[0].sum().backward())


def steps(dtype: rabbet.dtype) -> None:
    """Optimizers with what their examples leave out."""
    parameters = [empty(64, dtype=dtype).requires_grad_()]
    parameters[0].grad = empty(64, dtype=dtype)
    for options in ({"centered": True}, {"momentum": 0.9}, {"centered": True, "momentum": 0.9}):
        attempt(optim.RMSprop(parameters, foreach=False, **options).step)
    captured = [optim.Adam, optim.AdamW, optim.RMSprop, optim.Adamax, optim.NAdam, optim.RAdam]
    for make in (*captured, optim.ASGD, optim.Adadelta, optim.Rprop):
        attempt(make(parameters, capturable=True).step)
    attempt(optim.Adam(parameters, capturable=True, amsgrad=True).step)
    rate = empty(1, dtype=rabbet.float32)[0]
    for make in (optim.SGD, optim.Adagrad):
        attempt(make(parameters, lr=rate, fused=True).step)
    for options in ({"centered": True}, {"momentum": 0.9}, {"centered": True, "momentum": 0.9}):
        attempt(optim.RMSprop(parameters, capturable=True, **options).step)


def further() -> None:
    """Truth values in running sums, and random numbers of a wide range."""
    truth = empty(1 << 20, dtype=rabbet.bool)
    for f in (rabbet.cumsum, rabbet.cumprod):
        for x in (truth, truth[:8]):
            attempt(lambda f=f, x=x: f(x, 0, dtype=rabbet.bool))
    indices(8).random_(0, 1 << 40)


def beyond_32_bits() -> None:
    """Places that 32 bits do not hold."""
    for dtype in (rabbet.uint8, rabbet.float32):
        huge = empty(1 << 16, 1 << 17, dtype=dtype)[:, ::2]
        attempt(lambda x=huge: x + 1)
        attempt(lambda x=huge: rabbet.where(x > 0, x, 1))
        at = rabbet.zeros((), dtype=rabbet.int64, device="cuda").expand(huge.shape)
        attempt(lambda x=huge, at=at: x.gather(0, at))
        attempt(lambda x=huge, at=at: x.scatter_(0, at, 1))
        attempt(lambda x=huge, at=at: x.scatter_(0, at, x))
        attempt(lambda x=huge, at=at: x.scatter_add_(0, at, x))
        attempt(lambda x=huge, at=at: x.index_add_(0, at[:, 0], x, alpha=2))
    image = empty(1, 1 << 12, 1 << 10, 1 << 10, dtype=rabbet.float16).requires_grad_()
    attempt(lambda: functional.max_pool2d(image, 2).sum().backward())
    attempt(lambda: functional.avg_pool2d(image, 2).sum().backward())


def main() -> None:
    warnings.simplefilter("ignore")
    empty(1)  # the backend is loaded now
    of_the_kit()
    for dtype in (*FLOATS, *WHOLE, *COMPLEX):
        long_lines(dtype), sorted_sums(dtype), products(dtype)
    for dtype in FLOATS:
        large_networks(dtype), lines(dtype)
        heads(dtype), recurrent(dtype), steps(dtype), floats_of_8_bits(dtype)
    further(), beyond_32_bits()
    rabbet.backends.cuda.matmul.allow_tf32 = True
    rabbet.backends.cudnn.allow_tf32 = False
    products(rabbet.float32), convolutions(rabbet.float32)


if __name__ == "__main__":
    main()
