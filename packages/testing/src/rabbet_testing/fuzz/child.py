"""Runs calls that come as lines of JSON with the library named by its argument; torch's child needs nothing else."""

import importlib
import json
import os
import random
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any


def build(lib: Any, spec: dict[str, Any]) -> Any:
    """The argument that a description stands for."""
    if "list" in spec:
        return [build(lib, item) for item in spec["list"]]
    if "shape" in spec:
        return tensor(lib, spec)
    if "dtype" in spec:
        return getattr(lib, spec["dtype"])
    if "number" in spec:
        number = spec["number"]
        return float(number) if isinstance(number, str) else number
    return spec["value"]


def tensor(lib: Any, spec: dict[str, Any]) -> Any:
    """A tensor of the described numbers in the described layout."""
    draw, shape, dtype = random.Random(spec["seed"]), spec["shape"], spec["dtype"]
    count = 1
    for size in shape:
        count *= size
    numbers: list[complex]
    if spec["below"]:
        numbers = [draw.randrange(spec["below"]) for _ in range(count)]
    elif dtype.startswith(("float", "complex", "bfloat")):
        edges = [float("nan"), float("inf"), -0.0] if spec["special"] else []
        numbers = [draw.choice([*edges, draw.uniform(-2, 2)]) for _ in range(count)]
        if dtype.startswith("complex"):
            numbers = [complex(real, draw.uniform(-2, 2)) for real in numbers]
    else:
        numbers = [draw.randrange(2 if dtype == "bool" else 8) for _ in range(count)]
    made = lib.tensor(numbers, dtype=getattr(lib, dtype)).reshape(shape)
    if spec["layout"] == "transposed" and len(shape) > 1:
        return made.transpose(0, -1).contiguous().transpose(0, -1)
    if spec["layout"] == "expanded" and shape and shape[0]:
        return made[:1].expand(shape)
    if spec["layout"] == "strided" and shape:
        return lib.stack([made, made], -1)[..., 0]
    return made


def described(lib: Any, result: Any, args: list[Any]) -> Any:
    """Of each tensor in a result its shape, dtype, numbers, strides and the argument that it shares memory with."""
    if isinstance(result, lib.Tensor):
        result = result.detach()
        large = result.numel() > 1 << 20  # an expanded tensor, which reshape would copy
        values = [] if large else [repr(v) for v in result.reshape([-1])[:256].tolist()]
        told = result.numel() > 1
        strides = [t for s, t in zip(result.shape, result.stride()) if s > 1] if told else None
        place = result.untyped_storage().data_ptr() if result.numel() else 0
        shared = [
            i for i, a in enumerate(args)
            if place and isinstance(a, lib.Tensor) and a.untyped_storage().data_ptr() == place
        ]  # fmt: skip
        dtype = str(result.dtype).split(".")[-1]
        return {"shape": list(result.shape), "dtype": dtype, "values": values,
                "strides": strides, "shared": shared}  # fmt: skip
    if isinstance(result, (list, tuple)):
        return [described(lib, item, args) for item in result]
    return repr(result)


def function_of(lib: Any, call: dict[str, Any]) -> Any:
    """What takes the arguments of a call, a method its tensor first; None if the library has no such name."""
    if call["form"] == "record":
        return lib.ops(call["op"]) if lib.__name__ == "rabbet" else None
    if call["method"]:
        return getattr(lib.Tensor, call["method"], None)
    return getattr(lib, call["op"], None) or getattr(lib.nn.functional, call["op"], None)


def run(lib: Any, call: dict[str, Any]) -> dict[str, Any]:
    """What came of a call."""
    args = [build(lib, a) for a in call["args"]]
    kwargs = {k: build(lib, a) for k, a in call["kwargs"].items()}
    if call["out"] is not None:
        kwargs["out"] = build(lib, call["out"])
    function = function_of(lib, call)
    if function is None:
        return {"missing": call["op"]}
    try:
        return {"result": described(lib, function(*args, **kwargs), [*args, *kwargs.values()])}
    except Exception as error:
        classes = [c.__name__ for c in type(error).__mro__[:-2]]
        return {"error": classes, "message": str(error)[:300]}


def serve(answer: Callable[[Any, dict[str, Any]], dict[str, Any]], gigabytes: int) -> None:
    """Answer each line with a line; `answer` takes the library and a call."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lib = importlib.import_module(sys.argv[1])
    if "RABBET_SANITIZED" not in os.environ:  # sanitizers reserve address space
        resource.setrlimit(resource.RLIMIT_AS, (gigabytes << 30, gigabytes << 30))
    print(json.dumps({"ready": sys.argv[1]}), flush=True)
    for line in sys.stdin:
        try:
            said = answer(lib, json.loads(line))
        except Exception as error:
            said = {"unbuilt": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    serve(run, 16)
