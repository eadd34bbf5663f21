"""Runs calls that come as lines of JSON with the library named by its argument; it needs nothing but that library."""

import importlib
import json
import random
import resource
import sys
import warnings
from typing import Any


def build(lib: Any, spec: dict[str, Any]) -> Any:
    """The argument that a description stands for."""
    if "list" in spec:
        return [build(lib, item) for item in spec["list"]]
    if "dtype" in spec and "shape" not in spec:
        return getattr(lib, spec["dtype"])
    if "number" in spec:
        number = spec["number"]
        return float(number) if isinstance(number, str) else number
    return spec["value"] if "value" in spec else tensor(lib, spec)


def tensor(lib: Any, spec: dict[str, Any]) -> Any:
    """A tensor of the described numbers in the described layout."""
    draw, shape, dtype = random.Random(spec["seed"]), spec["shape"], spec["dtype"]
    count = 1
    for size in shape:
        count *= size
    numbers: list[float]
    if spec["below"]:
        numbers = [draw.randrange(spec["below"]) for _ in range(count)]
    elif dtype.startswith(("float", "complex")):
        edges = [float("nan"), float("inf"), -0.0] if spec["special"] else []
        numbers = [draw.choice([*edges, draw.uniform(-2, 2)]) for _ in range(count)]
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


def described(lib: Any, result: Any) -> Any:
    """Shapes, dtypes and numbers of a result."""
    if isinstance(result, lib.Tensor):
        result = result.detach()
        values = result.reshape([-1])[:256].tolist()
        return [list(result.shape), str(result.dtype).split(".")[-1], [repr(v) for v in values]]
    if isinstance(result, (list, tuple)):
        return [described(lib, item) for item in result]
    return repr(result)


def run(lib: Any, call: dict[str, Any]) -> dict[str, Any]:
    """What came of a call."""
    args = [build(lib, a) for a in call["args"]]
    kwargs = {k: build(lib, a) for k, a in call["kwargs"].items()}
    name = call["op"]
    if call["form"] == "function":
        places = [lib] if hasattr(lib, name) else [lib.nn.functional]
    else:
        name, places = name + "_" * (call["form"] == "in_place"), [args.pop(0)]
    if not hasattr(places[0], name):
        return {"missing": name}
    try:
        return {"result": described(lib, getattr(places[0], name)(*args, **kwargs))}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)[:300]}


def main() -> None:
    """Answer each line with a line."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lib = importlib.import_module(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    for line in sys.stdin:
        try:
            answer = run(lib, json.loads(line))
        except Exception as error:
            answer = {"unbuilt": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
