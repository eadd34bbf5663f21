"""The states of several models as one, for `vmap` over an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rabbet
from rabbet import Tensor


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers of models of one architecture, stacked along dimension 0.

    The stacked parameters are leaves that require gradients where those of the models do.

    Args:
        models: modules of one class, all in training or all in evaluation mode.

    Raises:
        RuntimeError: if there is none, or if classes, modes or `requires_grad` differ.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: expected at least one model, got none")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: expected all models in one mode, training or eval")
    if len({type(model) for model in models}) > 1:
        classes = sorted({type(model).__name__ for model in models})
        raise RuntimeError(f"stack_module_state: expected models of one class, got {classes}")
    params = _stacked([dict(model.named_parameters()) for model in models], leaves=True)
    buffers = _stacked([dict(model.named_buffers()) for model in models], leaves=False)
    return params, buffers


def _stacked(states: list[dict[str, Tensor]], leaves: bool) -> dict[str, Tensor]:
    return {name: _stack(name, [state.get(name) for state in states], leaves) for name in states[0]}


def _stack(name: str, parts: list[Any], leaf: bool) -> Tensor:
    shapes = [None if part is None else tuple(part.shape) for part in parts]
    if len(set(shapes)) > 1:
        raise RuntimeError(
            f"stack_module_state: expected '{name}' to have one shape in all models, got {shapes}"
        )
    needs = {part.requires_grad for part in parts} if leaf else {False}
    if len(needs) > 1:
        raise RuntimeError(f"stack_module_state: '{name}' requires gradients in some models only")
    stacked = rabbet.stack([part.detach() for part in parts])
    return stacked.requires_grad_() if needs == {True} else stacked


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let all batch normalisation in a module use the statistics of the batch only; returns `root`.

    Running statistics are written in place, which vmap over models without batched buffers cannot do.
    """
    from rabbet.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
