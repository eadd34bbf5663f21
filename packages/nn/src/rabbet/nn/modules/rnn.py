"""Recurrent networks: Elman's, LSTM (Hochreiter and Schmidhuber 1997) and GRU (Cho et al. 2014)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import rabbet
from rabbet import Tensor

from .. import init
from ..functional.recurrent import run_layer, run_layers
from ..parameter import Parameter
from ..utils.rnn import PackedSequence, permuted
from .module import Module

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
_NONLINEARITIES = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}


def _mode_of(nonlinearity: str) -> str:
    if nonlinearity not in _NONLINEARITIES:
        raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
    return _NONLINEARITIES[nonlinearity]


class RNNBase(Module):
    """What `RNN`, `LSTM` and `GRU` share: parameters, layers and directions.

    Args:
        mode: 'RNN_TANH', 'RNN_RELU', 'LSTM' or 'GRU'.
        input_size: size of an element of the input.
        hidden_size: size of the state.
        num_layers: number of layers, each reading the one before.
        bias: whether there are biases.
        batch_first: whether the batch comes before the sequence in input and output.
        dropout: probability of dropping an element between layers in training.
        bidirectional: whether every layer also runs from the end to the beginning.
        proj_size: size to which the state of an LSTM is projected, 0 for none.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                f"element being zeroed, got {dropout}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=3,
            )
        for name, flag in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
        if not isinstance(input_size, int):
            raise TypeError(f"input_size should be of type int, got: {type(input_size).__name__}")
        if input_size <= 0:
            raise ValueError("input_size must be greater than zero")
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError(
                "proj_size should be a positive integer or zero to disable projections"
            )
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size

        gates, state = _GATES[mode] * hidden_size, proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            size = state * (2 if bidirectional else 1) if layer else input_size
            for suffix in ("", "_reverse") if bidirectional else ("",):
                shapes = {"weight_ih": [gates, size], "weight_hh": [gates, state]}
                if bias:
                    shapes |= {"bias_ih": [gates], "bias_hh": [gates]}
                if proj_size:
                    shapes["weight_hr"] = [proj_size, hidden_size]
                names = {f"{name}_l{layer}{suffix}": shape for name, shape in shapes.items()}
                for name, shape in names.items():
                    value = rabbet.empty(shape, device=device, dtype=dtype)
                    self.register_parameter(name, Parameter(value))
                self._all_weights.append(list(names))
        self.reset_parameters()

    def __getstate__(self) -> dict[str, Any]:
        names = [name for group in self._all_weights for name in group]
        weights = [getattr(self, name) for name in names]
        return {**super().__getstate__(), "_flat_weights_names": names, "_flat_weights": weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # PyTorch keeps its weights once more, in the order in which its kernels take them.
        super().__setstate__({k: v for k, v in state.items() if not k.startswith("_flat_weight")})

    def reset_parameters(self) -> None:
        """Fill all parameters with values uniform on +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: weights need not lie in one block here. Exists for PyTorch's sake."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0.0),
            ("bidirectional", False),
        )
        for name, default in defaults:
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the output of the last layer and the last state of every layer and direction.

        Args:
            input: (T, B, I), (B, T, I) with `batch_first`, (T, I) without a batch, or a
                `PackedSequence`.
            hx: the first state (layers * directions, B, H), for an LSTM a pair of them, zeros if
                None; without the dimension B where the input has none.
        """
        pair = self.mode == "LSTM"
        packed = isinstance(input, PackedSequence)
        if packed:
            data, order = input.data, input.sorted_indices
            sizes = [int(n) for n in input.batch_sizes.tolist()]
            batch, single, steps = sizes[0], False, len(sizes)
        else:
            if input.ndim not in (2, 3):
                raise ValueError(
                    f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead"
                )
            single, order, sizes = input.ndim == 2, None, []
            x = input.unsqueeze(1) if single else input
            if self.batch_first and not single:
                x = x.transpose(0, 1)
            steps, batch = x.shape[0], x.shape[1]
            data = x.reshape([steps * batch, x.shape[2]])
        weight = getattr(self, self._all_weights[0][0])
        if data.dtype is not weight.dtype and not rabbet.is_autocast_enabled(data.device.type):
            raise ValueError(
                f"RNN input dtype ({data.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({data.dtype})"
            )
        if data.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, "
                f"got {data.shape[-1]}"
            )
        if not packed and steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        h, c = self._states(hx, data, batch, single, order)
        data, h, c = self._layers(data, h, c, sizes)

        if packed:
            output: Any = PackedSequence(
                data, input.batch_sizes, input.sorted_indices, input.unsorted_indices
            )
            back = input.unsorted_indices
            h, c = permuted(h, back), None if c is None else permuted(c, back)
        else:
            output = data.reshape([steps, batch, data.shape[1]])
            if single:
                output, h, c = output.squeeze(1), h.squeeze(1), None if c is None else c.squeeze(1)
            elif self.batch_first:
                output = output.transpose(0, 1)
        return output, ((h, c) if pair else h)

    def _layers(
        self, data: Tensor, h: Tensor, c: Tensor | None, sizes: list[int]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Every layer over packed rows; the states have one entry per layer and direction."""
        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        weights = []
        for names in self._all_weights:
            found = {name.split("_l")[0]: getattr(self, name) for name in names}
            weights.append([found.get(kind) for kind in kinds])
        directions = 2 if self.bidirectional else 1
        dropout = self.dropout if self.training else 0.0
        return run_layers(self.mode, data, h, c, weights, sizes, directions, dropout)

    def _states(
        self, hx: Any, data: Tensor, batch: int, single: bool, order: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The first states as (layers * directions, B, size), checked; zeros for None."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)
        pair = self.mode == "LSTM"
        if hx is None:
            made = [
                rabbet.zeros([count, batch, size], dtype=data.dtype, device=data.device)
                for size in sizes[: 2 if pair else 1]
            ]
            return made[0], made[1] if pair else None
        if pair and not (isinstance(hx, tuple | list) and len(hx) == 2):
            raise RuntimeError("LSTM: expected hx to be a pair (h_0, c_0)")
        states = []
        for name, state, size in zip(
            ("hidden", "cell"), hx if pair else (hx,), sizes, strict=False
        ):
            if state.ndim != (2 if single else 3):
                kind = "unbatched 2-D" if single else "batched 3-D"
                raise RuntimeError(
                    f"For {kind} input, hx should also be {2 if single else 3}-D but got "
                    f"{name} state of {state.ndim}-D"
                )
            state = state.unsqueeze(1) if single else state
            expected = (count, batch, size)
            if tuple(state.shape) != expected:
                raise RuntimeError(f"Expected {name} size {expected}, got {tuple(state.shape)}")
            states.append(permuted(state, order))
        return states[0], states[1] if pair else None


class RNN(RNNBase):
    """Layers of `h = tanh(x @ W_ih.T + b_ih + h @ W_hh.T + b_hh)`, or relu (Elman 1990).

    Args:
        input_size, hidden_size, num_layers: as in `RNNBase`.
        nonlinearity: 'tanh' or 'relu'.
        bias, batch_first, dropout, bidirectional: as in `RNNBase`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        _refuse(kwargs)
        super().__init__(
            _mode_of(nonlinearity),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Layers of long short-term memory; output h, states (h, c); gates in the order i, f, g, o.

    Arguments are those of `RNNBase` from `input_size` on. With `proj_size` the states h have that
    size, and steps run one by one.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Layers of gated recurrent units; gates in the order r, z, n, the reset gate applied after W_hh.

    Arguments are those of `RNNBase` from `input_size` to `bidirectional`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse({k: v for k, v in kwargs.items() if k == "proj_size"})
        super().__init__("GRU", *args, **kwargs)


def _refuse(kwargs: dict[str, Any]) -> None:
    if "proj_size" in kwargs:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if kwargs:
        raise TypeError(f"RNN: got an unexpected keyword argument '{next(iter(kwargs))}'")


class RNNCellBase(Module):
    """What the cells share: one step with weight_ih, weight_hh, bias_ih and bias_hh."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        shapes = {"weight_ih": [rows, input_size], "weight_hh": [rows, hidden_size]}
        for name, shape in shapes.items():
            value = rabbet.empty(shape, device=device, dtype=dtype)
            self.register_parameter(name, Parameter(value))
        for name in ("bias_ih", "bias_hh"):
            made = Parameter(rabbet.empty([rows], device=device, dtype=dtype)) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill all parameters with values uniform on +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, mode: str, input: Tensor, states: tuple[Tensor, ...] | None) -> list[Tensor]:
        """One step; `states` and the results are (B, H), or (H) if the input is (I)."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{name}: input has inconsistent input_size: got {input.shape[-1]} expected "
                f"{self.input_size}"
            )
        single = input.ndim == 1
        x = input.unsqueeze(0) if single else input
        pair = mode == "LSTM"
        if states is None:
            zeros = rabbet.zeros([x.shape[0], self.hidden_size], dtype=x.dtype, device=x.device)
            states = (zeros, zeros)[: 2 if pair else 1]
        checked = []
        for i, state in enumerate(states):
            if state.ndim not in (1, 2):
                what = f"hx[{i}]" if pair else "hidden"
                raise ValueError(
                    f"{name}: Expected {what} to be 1D or 2D, got {state.ndim}D instead"
                )
            state = state.unsqueeze(0) if state.ndim == 1 else state
            if state.shape[0] != x.shape[0]:
                raise RuntimeError(
                    f"{name}: Input batch size {x.shape[0]} doesn't match hidden{i} batch size {state.shape[0]}"
                )
            if state.shape[1] != self.hidden_size:
                raise RuntimeError(
                    f"{name}: hidden{i} has inconsistent hidden_size: got {state.shape[1]}, expected "
                    f"{self.hidden_size}"
                )
            checked.append(state)
        weights: list[Tensor | None] = [
            self.weight_ih,
            self.weight_hh,
            self.bias_ih,
            self.bias_hh,
            None,
        ]
        cell = checked[1] if pair else None
        _, h, c = run_layer(mode, x, checked[0], cell, weights, [], False)
        results = [h, c] if pair else [h]
        return [r.squeeze(0) for r in results] if single else results


class RNNCell(RNNCellBase):
    """One step of `RNN`: (B, I) or (I), and the state (B, H) or (H), to the next state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _mode_of(nonlinearity)
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        mode = _mode_of(self.nonlinearity)
        return self._step(mode, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: (B, I) or (I), and the states (h, c), to the next states."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = self._step("LSTM", input, hx)
        return h, c


class GRUCell(RNNCellBase):
    """One step of `GRU`: (B, I) or (I), and the state (B, H) or (H), to the next state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
