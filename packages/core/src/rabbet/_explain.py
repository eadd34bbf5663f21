"""What a call goes through, as text: the data come from the dispatcher and the layers themselves."""

from __future__ import annotations

from typing import Any

from . import _C
from ._C import Op

_DOES = {"passes": "skipped", "acts": "runs", "ends": "runs"}


def explain(name: str | Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """See rabbet.library.explain."""
    operator = name if isinstance(name, Op) else _found(name)
    if not args and not kwargs:
        return "\n".join(line for record in operator.overloads for line in _static(record))
    plan = _C.dispatch_plan(operator, args, kwargs)
    lines = _head(plan["record"])
    *layers, last = plan["steps"]
    lines += [_layer_line(step) for step in layers]
    if last["name"] == plan["device"]:
        handler = f" [{last['handler']}]" if last["handler"] else ""
        lines.append(f"  {last['why']}{handler}")
    else:
        lines.append(_layer_line(last))
        lines.append("  the call ends there: it makes calls of its own")
    return "\n".join(lines + _rules(plan["rules"]) + _waiting(plan["record"]))


def _found(name: Any) -> Op:
    if not isinstance(name, str):
        raise TypeError(
            f"explain: expected the name of an operator or an Op, got {type(name).__name__}"
        )
    try:
        return _C.op(name)
    except KeyError:
        raise _C.ArgumentError(f"explain: there is no operator '{name}'") from None


def _head(record: str) -> list[str]:
    info = _C.op_info(record)
    file = info["file"].rsplit(":", 1)[0]  # provenance from Python names it already
    where = "" if file in info["provider"] else f" ({info['file']})"
    return [info["schema"], f"  registered by {info['provider']}{where}", *_dtypes(info)]


def _dtypes(info: dict[str, Any]) -> list[str]:
    """The dtype of each result, and what the inputs are cast to before a kernel runs."""
    lines = []
    if info["dtype_rules"]:
        lines.append(f"  dtype `{', '.join(info['dtype_rules'])}`")
    compute = info["compute_rule"]
    if compute != "none":
        what = "the dtype of the result" if compute == "out" else f"`{compute}`"
        lines.append(f"  computes in {what}: casts {', '.join(info['cast'])}")
    elif info["dtype_rules"]:
        lines.append("  computes in the dtypes that come: casts nothing")
    return lines


def _layer_line(step: dict[str, Any]) -> str:
    handler = f": {step['handler']}" if step["handler"] else ""
    return f"  layer {step['name']} [{step['provider']}]: {_DOES[step['does']]}, {step['why']}{handler}"


def _static(record: str) -> list[str]:
    info = _C.op_info(record)
    lines = _head(record)
    lines += [f"  kernel for {device} [{by}]" for device, by in info["kernels"].items()]
    if info["has_decomp"] and "decomp" in info["formulas"]:
        lines.append(f"  decomposition `{info['formulas']['decomp']}`")
    elif info["view"]:
        lines.append("  a view: core derives its geometry")
    return lines + _rules(info["rules"]) + _waiting(record)


def _rules(rules: dict[str, str]) -> list[str]:
    return [f"  {rule} function [{by}]" for rule, by in rules.items()]


def _waiting(record: str) -> list[str]:
    kernels = _C.registered_kernels()
    return [
        f"  waiting: a kernel for '{k['target']}', which is not loaded [{k['provider']}]"
        for k in kernels
        if k["op"] == record and k["pending"]
    ]
