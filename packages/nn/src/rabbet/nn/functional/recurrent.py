"""Layers of recurrent networks over the rows of all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor, ops

from .dropout import dropout as _dropout
from .linear import linear

_MODES = {"RNN_TANH": "tanh", "RNN_RELU": "relu", "GRU": "gru", "LSTM": "lstm"}
Weights = Sequence[Tensor | None]


def run_layer(
    mode: str,
    x: Tensor,
    h: Tensor,
    c: Tensor | None,
    weights: Weights,
    sizes: list[int],
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps of one direction of one layer: output (N, H), last h and c (B, H).

    x (N, I) holds the rows of all steps, `sizes[t]` of them for step t (as many as h if empty);
    weights are weight_ih, weight_hh, bias_ih, bias_hh and weight_hr, the last three perhaps None.
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    if mode == "GRU":  # its reset gate stands between b_hh and b_ih
        gates, bias = linear(x, w_ih, b_ih), b_hh
    else:
        joint = None if b_ih is None or b_hh is None else b_ih + b_hh
        gates, bias = linear(x, w_ih, joint), None
    if w_hr is not None:
        return _run_projected(gates, h, c, w_hh, w_hr, sizes, reverse)
    result = ops.recurrent_layer(_MODES[mode], gates, h, c, w_hh, bias, sizes, reverse)
    return result[0], result[1], result[2]


def _run_projected(
    gates: Tensor, h: Tensor, c: Any, w_hh: Any, w_hr: Tensor, sizes: list[int], reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM whose state is projected by w_hr, step by step."""
    batch = h.shape[0]
    sizes = sizes or [batch] * (gates.shape[0] // max(batch, 1))
    rows = list(gates.split(sizes)) if sizes else []
    outputs: list[Any] = [None] * len(sizes)
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        n = sizes[t]
        state, cell, _ = ops.recurrent_step("lstm", rows[t], h[:n], c[:n], w_hh, None)
        outputs[t] = linear(state, w_hr)
        h = outputs[t] if n == batch else rabbet.cat([outputs[t], h[n:]])
        c = cell if n == batch else rabbet.cat([cell, c[n:]])
    return (rabbet.cat(outputs) if outputs else h[:0]), h, c


def run_layers(
    mode: str,
    data: Tensor,
    h: Tensor,
    c: Tensor | None,
    weights: Sequence[Weights],
    sizes: list[int],
    directions: int,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """All layers, each reading the one before: output (N, directions * H), last h and c of each layer and direction.

    `h`, `c` and `weights` have one entry for each layer and direction, directions inside; see `run_layer`. `dropout`
    acts between the layers.
    """
    last_h: list[Tensor] = []
    last_c: list[Tensor] = []
    for first in range(0, len(weights), directions):
        outputs = []
        for at in range(first, first + directions):
            cell = None if c is None else c[at]
            result = run_layer(mode, data, h[at], cell, weights[at], sizes, at > first)
            outputs.append(result[0])
            last_h.append(result[1])
            last_c.append(result[2])
        data = outputs[0] if directions == 1 else rabbet.cat(outputs, -1)
        if dropout and first + directions < len(weights):
            data = _dropout(data, dropout)
    return data, rabbet.stack(last_h), None if c is None else rabbet.stack(last_c)
