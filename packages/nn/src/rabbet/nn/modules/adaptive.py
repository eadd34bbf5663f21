"""Softmax over very many classes, of which few are frequent."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import rabbet
from rabbet import Tensor

from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Adaptive softmax (Grave et al. 2017) of (N, in_features) or (in_features).

    Classes are ordered by frequency and cut into a shortlist and clusters. The head has one output for each
    class of the shortlist and one for each cluster; within a cluster a class has a softmax of its own, from
    features that are fewer for rarer clusters: log p(class) = log p(cluster) + log p(class | cluster).

    Args:
        in_features: last size of the input.
        n_classes: number of classes.
        cutoffs: the first class of each cluster, in increasing order.
        div_value: by which the features of each further cluster are divided.
        head_bias: whether the head has a bias.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        if not cuts:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        increasing = all(a < b for a, b in pairwise(cuts))
        if (
            not increasing
            or cuts[0] <= 0
            or cuts[-1] >= n_classes
            or any(c != int(c) for c in cuts)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                f"where each value is between 1 and n_classes-1 ({n_classes - 1}), got {cuts}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cuts, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = cuts[0]
        self.n_clusters = len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i, (start, end) in enumerate(pairwise(self.cutoffs), 1):
            width = int(in_features // div_value**i)
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False, **made),
                    Linear(width, end - start, bias=False, **made),
                )
            )

    def reset_parameters(self) -> None:
        """Start the linear maps anew."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """The log probability of each target (`output`) and minus its mean (`loss`)."""
        if target_.ndim > 1:
            raise RuntimeError(
                "0D or 1D target tensor expected, multi-target not supported, "
                f"got a target of size {target_.shape}"
            )
        if input_.ndim != target_.ndim + 1:
            raise RuntimeError(
                f"{target_.ndim}D target tensor expects {target_.ndim + 1}D input tensors, "
                f"but found inputs with size {input_.shape}"
            )
        batched = target_.ndim == 1
        if batched and input_.shape[0] != target_.shape[0]:
            raise RuntimeError(
                "Input and target should have the same size in the batch dimension, "
                f"got {input_.shape[0]} and {target_.shape[0]}"
            )
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        if ((target < 0) | (target >= self.n_classes)).any():
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        column = target  # of the head's output
        within = []
        for i, (start, end) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= start) & (target < end)
            column = rabbet.where(inside, self.shortlist_size + i, column)
            rows = inside.nonzero().flatten()
            if rows.numel():
                local = (target[rows] - start).unsqueeze(1)
                scores = F.log_softmax(self.tail[i](input[rows]), dim=1)
                within.append((rows, scores.gather(1, local).squeeze(1)))
        output = F.log_softmax(self.head(input), dim=1).gather(1, column.unsqueeze(1)).squeeze(1)
        for rows, scores in within:
            output = output.index_add(0, rows, scores)
        loss = -output.mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _all_classes(self, input: Tensor, head: Tensor) -> Tensor:
        """Log probabilities of all classes, from the head's output."""
        scores = F.log_softmax(head, dim=1)
        parts = [scores[:, : self.shortlist_size]]
        for i, projection in enumerate(self.tail):
            cluster = scores[:, self.shortlist_size + i].unsqueeze(1)
            parts.append(cluster + F.log_softmax(projection(input), dim=1))
        return rabbet.cat(parts, dim=1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes: (N, n_classes)."""
        return self._all_classes(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each item: (N); clusters are looked into only where the head says so."""
        head = self.head(input)
        best = head.argmax(dim=1)
        rows = (best >= self.shortlist_size).nonzero().flatten()
        if rows.numel():
            best[rows] = self._all_classes(input[rows], head[rows]).argmax(dim=1)
        return best
