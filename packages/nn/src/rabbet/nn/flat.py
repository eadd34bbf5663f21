"""Functions of layers that PyTorch also has outside `nn`: with lists of weights, numbers for reductions and modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor, _overriding
from rabbet._destinations import write_all

from . import functional as F
from .functional.dropout import feature_dropout as features
from .functional.linear import limit_norms
from .functional.norm import trained_batch_norm
from .functional.recurrent import run_layer, run_layers

_REDUCTIONS = ("none", "mean", "sum")
_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _named(name: str, what: str, names: Sequence[str], number: int) -> str:
    if not (isinstance(number, int) and 0 <= number < len(names)):
        raise ValueError(f"{name}: expected {what} of 0 to {len(names) - 1}, got {number!r}")
    return names[number]


def _reduction(name: str, number: int) -> str:
    return _named(name, "a reduction", _REDUCTIONS, number)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """`nn.functional.binary_cross_entropy_with_logits`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("binary_cross_entropy_with_logits", reduction)
    return F.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight=pos_weight, reduction=kind
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("cosine_embedding_loss", reduction)
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=kind)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`nn.functional.ctc_loss`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("ctc_loss", reduction)
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("hinge_embedding_loss", reduction)
    return F.hinge_embedding_loss(input, target, margin, reduction=kind)


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False
) -> Tensor:
    """`nn.functional.kl_div`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("kl_div", reduction)
    if kind == "mean":  # the function of `nn` warns that it is no mean over the batch
        return F.kl_div(input, target, reduction="none", log_target=log_target).mean()
    return F.kl_div(input, target, reduction=kind, log_target=log_target)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 1
) -> Tensor:
    """`nn.functional.margin_ranking_loss`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("margin_ranking_loss", reduction)
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=kind)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """`nn.functional.poisson_nll_loss`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("poisson_nll_loss", reduction)
    return F.poisson_nll_loss(
        input, target, log_input=log_input, full=full, eps=eps, reduction=kind
    )


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> Tensor:
    """`nn.functional.triplet_margin_loss`; reduction 0: none, 1: mean, 2: sum."""
    kind = _reduction("triplet_margin_loss", reduction)
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=kind)


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.batch_norm` with the arguments in another order."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """`batch_norm`, and in training the mean and the reciprocal standard deviation of each channel.

    In evaluation the last two results are empty. They have the dtype of the parameters, or of the input where there
    are none.

    Args:
        out: tensors for the three results.
    """
    given = [t for t in (weight, bias, running_mean, running_var) if t is not None]
    dtype = given[0].dtype if given else input.dtype
    if training:
        y, mean, var = trained_batch_norm(
            input, running_mean, running_var, weight, bias, momentum, eps
        )
        found = y, mean.detach().to(dtype), (var.detach() + eps).rsqrt().to(dtype)
    else:
        y = F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
        found = y, input.new_empty(0, dtype=dtype), input.new_empty(0, dtype=dtype)
    return write_all("native_batch_norm", found, out)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout`, and the bool mask of the elements that are kept.

    Args:
        train: False: nothing is dropped.
    """
    if train is False:
        return input.clone(), rabbet.ones_like(input, dtype=rabbet.bool)
    mask = F.dropout(rabbet.ones_like(input.detach()), p) != 0
    return input * mask * (1 / (1 - p) if p < 1 else 0.0), mask


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of a table that are looked up down to a norm, in place.

    Args:
        input: the table, of shape (rows, size).
        indices: the rows, of any shape.
        max_norm: the largest norm that stays as it is.
        norm_type: the p of the norm.
    """
    limit_norms(input, indices, max_norm, norm_type)
    return input


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.instance_norm` with the arguments in another order."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The `pow`-norm over all dimensions but `dim`, which stay as size 1; -1: over all."""
    if dim == -1:
        return v.norm(pow)
    return v.norm(pow, [d for d in range(v.ndim) if d != dim % v.ndim], keepdim=True)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """The largest elements of adaptive windows and their indices."""
    return F.adaptive_max_pool1d_with_indices(input, output_size)


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """`nn.functional.affine_grid`."""
    return F.affine_grid(theta, list(size), align_corners)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`nn.functional.grid_sample`; modes 0: bilinear, 1: nearest, 2: bicubic; paddings 0: zeros, 1: border, 2: reflection."""
    mode = _named("grid_sampler", "an interpolation mode", _INTERPOLATIONS, interpolation_mode)
    padding = _named("grid_sampler", "a padding mode", _PADDINGS, padding_mode)
    return F.grid_sample(input, grid, mode, padding, align_corners)


def _sampler(ndim: int) -> Callable[..., Tensor]:
    name = f"grid_sampler_{ndim}d"

    def sample(
        input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Tensor:
        if input.ndim != ndim + 2:
            raise RuntimeError(
                f"{name}: expected {ndim + 2}D input, got shape {tuple(input.shape)}"
            )
        return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)

    sample.__name__ = sample.__qualname__ = name
    sample.__doc__ = f"`grid_sampler` in {ndim} dimensions."
    return sample


grid_sampler_2d = _sampler(2)
grid_sampler_3d = _sampler(3)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`nn.functional.pad` with a constant."""
    return F.pad(input, list(pad), "constant", value)


_CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolution, transposed or not, in as many dimensions as the weight has beside the channels.

    Raises:
        RuntimeError: for weights of other than 3 to 5 dimensions.
    """
    if not 3 <= weight.ndim <= 5:
        raise RuntimeError(
            f"convolution: expected a weight of 3 to 5 dimensions, got shape {tuple(weight.shape)}"
        )
    at = weight.ndim - 3
    if transposed:
        return _TRANSPOSED[at](
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _CONVOLUTIONS[at](input, weight, bias, stride, padding, dilation, groups)


def _flat_dropout(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A dropout of `nn.functional` all of whose arguments are required."""

    def drop(input: Tensor, p: float, train: bool) -> Tensor:
        if not 0 <= p <= 1:
            raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
        return function(input, p, train, name.endswith("_"))

    drop.__name__ = drop.__qualname__ = name
    drop.__doc__ = f"`{function.__module__.partition('.')[2]}.{function.__name__}`{' in place' * name.endswith('_')}."
    return drop


dropout_ = _flat_dropout("dropout_", F.dropout)
alpha_dropout = _flat_dropout("alpha_dropout", F.alpha_dropout)
alpha_dropout_ = _flat_dropout("alpha_dropout_", F.alpha_dropout)
feature_alpha_dropout = _flat_dropout("feature_alpha_dropout", F.feature_alpha_dropout)
feature_alpha_dropout_ = _flat_dropout("feature_alpha_dropout_", F.feature_alpha_dropout)
feature_dropout = _flat_dropout("feature_dropout", features)
feature_dropout_ = _flat_dropout("feature_dropout_", features)


def _recurrent(name: str, mode: str) -> Callable[..., tuple[Tensor, ...]]:
    pair = mode == "LSTM"

    def run(
        input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        x = input.transpose(0, 1) if batch_first else input
        rows = x.reshape([x.shape[0] * x.shape[1], x.shape[2]])
        data, *states = _all_layers(
            rows, hx, params, has_biases, num_layers, dropout, train, bidirectional, []
        )
        output = data.reshape([x.shape[0], x.shape[1], data.shape[1]])
        return (output.transpose(0, 1) if batch_first else output, *states)

    def run_packed(
        data: Tensor, batch_sizes: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        sizes = [int(n) for n in batch_sizes.tolist()]
        return _all_layers(
            data, hx, params, has_biases, num_layers, dropout, train, bidirectional, sizes
        )

    def _all_layers(
        rows: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int,
        dropout: float, train: bool, bidirectional: bool, sizes: list[int],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        directions = 2 if bidirectional else 1
        count = num_layers * directions
        each, rest = divmod(len(params), count) if count else (0, 1)
        least = 4 if has_biases else 2
        if rest or each not in ((least, least + 1) if pair else (least,)):
            raise RuntimeError(
                f"{name}: expected {least} weights for each of {count} layers and directions, "
                f"got {len(params)}"
            )
        if pair and len(hx) != 2:
            raise RuntimeError(f"lstm expects two hidden states, got {len(hx)}")
        weights = []
        for first in range(0, len(params), each):
            own: list[Tensor | None] = list(params[first : first + each])
            projection = own.pop() if each > least else None
            weights.append([*own[:2], *(own[2:] or (None, None)), projection])
        h, c = hx if pair else (hx, None)
        data, last_h, last_c = run_layers(
            mode, rows, h, c, weights, sizes, directions, dropout if train else 0.0
        )
        return (data, last_h, last_c) if last_c is not None else (data, last_h)

    def call(*args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        packed = "batch_sizes" in kwargs or (len(args) > 3 and not isinstance(args[3], bool))
        return (run_packed if packed else run)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f"`nn.{mode.partition('_')[0]}` of a list of weights, of (T, B, I) or of packed rows with batch_sizes; "
        "returns the output and the last states."
    )
    return call


lstm = _recurrent("lstm", "LSTM")
gru = _recurrent("gru", "GRU")
rnn_tanh = _recurrent("rnn_tanh", "RNN_TANH")
rnn_relu = _recurrent("rnn_relu", "RNN_RELU")


def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM: the new h and c (B, H)."""
    if len(hx) != 2:
        raise RuntimeError(f"lstm_cell expects two hidden states, got {len(hx)}")
    weights = [w_ih, w_hh, b_ih, b_hh, None]
    _, h, c = run_layer("LSTM", input, hx[0], hx[1], weights, [], False)
    return h, c


def _cell(name: str, mode: str) -> Callable[..., Tensor]:
    def step(
        input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor,
        b_ih: Tensor | None = None, b_hh: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        weights = [w_ih, w_hh, b_ih, b_hh, None]
        return run_layer(mode, input, hx, None, weights, [], False)[1]

    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"One step of `{name[:-5]}`: the new h (B, H)."
    return step


gru_cell = _cell("gru_cell", "GRU")
rnn_tanh_cell = _cell("rnn_tanh_cell", "RNN_TANH")
rnn_relu_cell = _cell("rnn_relu_cell", "RNN_RELU")

_overriding.functions(globals(), [name for name in globals() if name[0].islower()])
