"""Adam for sparse gradients: only the rows that have a gradient change (lazy Adam)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rabbet import Tensor

from ._checks import as_number, check_betas
from ._each import EachParameter, check_option

__all__ = ["SparseAdam"]


class SparseAdam(EachParameter):
    """Adam's running means where the gradient has entries. Dense gradients are refused.

    Args:
        params: tensors, (name, tensor) pairs or group dicts.
        lr: learning rate.
        betas: parts of the running means of gradient and square that are kept.
        eps: added to the root.
        maximize: go up instead of down.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_option(as_number(lr) > 0, "Invalid learning rate", lr)
        check_option(eps > 0, "Invalid epsilon value", eps)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        found = [
            [g, i]
            for g, group in enumerate(self.param_groups)
            for i, param in enumerate(group["params"])
            if param.is_complex()
        ]
        if found:
            raise ValueError(
                f"Complex params at indices {found}: SparseAdam does not support complex parameters"
            )

    def _step_one(
        self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]
    ) -> None:
        raise RuntimeError(
            "SparseAdam does not support dense gradients, please consider Adam instead"
        )
