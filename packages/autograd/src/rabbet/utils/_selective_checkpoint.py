"""Policies that say what a checkpoint keeps: results of some operators, not of others."""

import enum
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from rabbet import _C, Tensor
from rabbet.autograd.graph import call_mode


class CheckpointPolicy(enum.Enum):
    """What becomes of an operator's results: kept, computed again, or kept in host memory.

    MUST and PREFER mean the same here.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVES = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOADS = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy is told besides the call.

    Attributes:
        is_recompute: whether backward asks.
        op_output: the results in the forward pass, None in a recomputation.
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


_IGNORED = frozenset({"detach"})  # the checkpoint itself detaches; nothing is computed

Policy = Callable[..., CheckpointPolicy | bool]


class _Kept:
    """The results of a call, for the recomputation."""

    def __init__(self, results: tuple[Tensor, ...], offload: bool, may_change: bool) -> None:
        self._values = [r.detach() for r in results]
        self._devices = [r.device for r in results] if offload else None
        if offload:
            self._values = [v.cpu() for v in self._values]
        self._versions = [None if may_change else v._version for v in self._values]

    def load(self) -> tuple[Tensor, ...]:
        for value, version in zip(self._values, self._versions, strict=True):
            if version is not None and value._version != version:
                raise RuntimeError(
                    "Tensor cached during selective activation checkpoint has been mutated"
                )
        if self._devices is None:
            return tuple(v.detach() for v in self._values)
        return tuple(v.to(d).detach() for v, d in zip(self._values, self._devices, strict=True))


class _Store:
    """What one forward pass kept, in order, by operator."""

    def __init__(self, policy: Policy, may_change: bool) -> None:
        self.policy = policy
        self.may_change = may_change
        self.kept: defaultdict[str, deque[_Kept]] = defaultdict(deque)
        self.is_used = False

    def ask(
        self, op: str, args: tuple[Any, ...], is_recompute: bool, output: Any
    ) -> CheckpointPolicy:
        context = SelectiveCheckpointContext(is_recompute=is_recompute, op_output=output)
        answer = self.policy(context, _C.op(op), *args)
        if isinstance(answer, bool):
            return CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
        if not isinstance(answer, CheckpointPolicy):
            raise TypeError(
                "create_selective_checkpoint_contexts: the policy must return a CheckpointPolicy or a bool, "
                f"got {type(answer).__name__} for {op}"
            )
        return answer


def _can_keep(results: tuple[Any, ...], targets: tuple[Tensor, ...] | None) -> bool:
    # A write must happen again, and a list of results has no place to go back to.
    return targets is None and bool(results) and all(isinstance(r, Tensor) for r in results)


class _Keeping(call_mode):
    """Around the forward pass."""

    def __init__(self, store: _Store) -> None:
        super().__init__(self._call)
        self._store = store

    def _call(self, op: str, args: tuple[Any, ...], targets: Any, run: Callable[[], Any]) -> None:
        if op in _IGNORED:
            return
        results = run()
        output = results[0] if len(results) == 1 else results
        policy = self._store.ask(op, args, False, output)
        if policy in _SAVES + _OFFLOADS and _can_keep(results, targets):
            kept = _Kept(results, policy in _OFFLOADS, self._store.may_change)
            self._store.kept[op].append(kept)


class _Replaying(call_mode):
    """Around the recomputation."""

    def __init__(self, store: _Store) -> None:
        super().__init__(self._call)
        self._store = store

    def __enter__(self) -> Any:
        if self._store.is_used:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed "
                "under selective activation checkpoint."
            )
        self._store.is_used = True
        return super().__enter__()

    def _call(
        self, op: str, args: tuple[Any, ...], targets: Any, run: Callable[[], Any]
    ) -> tuple[Tensor, ...] | None:
        if op in _IGNORED:
            return None
        policy = self._store.ask(op, args, True, None)
        if policy not in _SAVES + _OFFLOADS or targets is not None:
            return None
        kept = self._store.kept[op]
        if kept:
            if _C.op_info(op)["kind"] == "random":
                run()  # what is computed again later draws the numbers that follow
            return kept.popleft().load()
        if not _can_keep(run(), targets):
            return None
        raise RuntimeError(f"{op} encountered during backward, but not found in storage")


def _listed(ops: list[Any]) -> Policy:
    for op in ops:
        if not isinstance(op, type(_C.op("add"))):
            raise ValueError(
                f"Expected op in `op_list` to be an operator such as rabbet.mm, but got: {op} of type {type(op)}."
            )
    chosen = {op.__name__ for op in ops}

    def policy(context: SelectiveCheckpointContext, op: Any, *args: Any) -> CheckpointPolicy:
        if op.__name__ in chosen:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts of a checkpoint that keeps the results of some operators; use it for `context_fn`.

    Args:
        policy_fn_or_list: `policy(context, op, *args)` gives a CheckpointPolicy for each operator that runs
            below autograd; or a list of operators whose results are kept. Writes in place always run again.
        allow_cache_entry_mutation: do not refuse kept results that were written in place.
    """
    if isinstance(policy_fn_or_list, list):
        policy = _listed(policy_fn_or_list)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    store = _Store(policy, allow_cache_entry_mutation)
    return _Keeping(store), _Replaying(store)
