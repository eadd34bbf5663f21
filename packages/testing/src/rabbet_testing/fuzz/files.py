"""Files of `rabbet.save`, damaged at random: loading gives what was saved, or says that the file is damaged."""

from __future__ import annotations

import io
import random
from typing import Any

import rabbet
import rabbet.nn
from rabbet._pytree import tree_flatten
from rabbet.serialization import SerializationError

WORDS = (b"F32", b"I64", b"shape", b"dtype", b"data_offsets", b"__metadata__", b"null", b"-1", b"1e9", b"[]",
         b"{}", b'"', b"\\", b"rabbet.skeleton", b"9" * 25, b"\xff\xfe", b"BF16", b"true", b"PK\x01\x02", b"archive/data/0", b"cos\nsystem\n", b"R", b"little", bytes(4))  # fmt: skip


def call(seed: int, index: int) -> dict[str, Any]:
    """The description of a damaged file."""
    return {"op": "load", "form": "file", "context": "plain", "draw": f"{seed} {index}"}


def run(call: dict[str, Any]) -> dict[str, Any]:
    """Save, damage, load."""
    draw = random.Random(call["draw"])
    saved = _saved(draw)
    file = io.BytesIO()
    rabbet.save(saved, file, format=draw.choice(("pt", "safetensors")))
    damaged = _damaged(bytearray(file.getvalue()), draw)
    try:
        loaded = rabbet.load(io.BytesIO(bytes(damaged)))
    except SerializationError:
        return {"result": None}
    except Exception as error:
        return {"fault": f"{type(error).__name__}: {error}"}
    if damaged == file.getvalue() or _same(saved, loaded):
        return {"result": None}
    return {"fault": "loads something else than was saved"}


def _saved(draw: random.Random) -> Any:
    base = rabbet.arange(12.0)
    parts: list[Any] = [base, base[2:5], rabbet.nn.Parameter(rabbet.ones(2, 3)), rabbet.tensor(draw.random()), 3,
             "text", None, [1, 2.5], (rabbet.zeros(0, 2), True), {"a": rabbet.ones(3, dtype=rabbet.int64)},
             rabbet.float16]  # fmt: skip
    return {f"k{i}": draw.choice(parts) for i in range(draw.randrange(1, 6))}


def _damaged(content: bytearray, draw: random.Random) -> bytearray:
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at = draw.randrange(len(content) + 1)
        how = draw.randrange(6)
        if how == 0 and content:
            content[min(at, len(content) - 1)] ^= 1 << draw.randrange(8)
        elif how == 1:
            del content[at:]
        elif how == 2:
            del content[at : at + draw.randrange(1, 9)]
        elif how == 3:
            content[at:at] = draw.choice(WORDS)
        elif how == 4:
            word = draw.choice(WORDS)
            content[at : at + len(word)] = word
        else:
            content[:8] = draw.choice((0, 1, len(content), 1 << 40, 1 << 63)).to_bytes(8, "little")
    return content


def _same(a: Any, b: Any) -> bool:
    ours, one = tree_flatten(a)
    theirs, other = tree_flatten(b)
    return str(one) == str(other) and all(
        type(x) is type(y) and (rabbet.equal(x, y) and x.dtype is y.dtype if isinstance(x, rabbet.Tensor) else x == y)
        for x, y in zip(ours, theirs, strict=True)
    )  # fmt: skip
