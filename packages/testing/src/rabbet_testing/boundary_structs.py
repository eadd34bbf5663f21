"""The structs of `rabbet/abi.h` and of core's optional tables in Python, read from the installed headers."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import rabbet

_TYPES: dict[str, Any] = {
    "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
    "uint16_t": ctypes.c_uint16, "uint8_t": ctypes.c_uint8, "RbFn": ctypes.c_void_p,
    "double": ctypes.c_double, "RbDType": ctypes.c_uint32,
}  # fmt: skip
# Up to which member a struct that is handed in has to reach.
LEAST = {"RbPlugin": "init", "RbKernel": "self", "RbRule": "self", "RbFormulaKernel": "self", "RbDTypeInfo": "encode",
         "RbLayer": "self", "RbBackend": "allocator", "RbDevices": "sync",
         "RbAllocator": "free", "RbStreams": "event_query", "RbCompositeLayer": "self", "RbDeviceTable": "self",
         "RbCapture": "graph_destroy"}  # fmt: skip


_HEADERS = ("abi.h", "capture.h", "composite.h", "device.h", "trace.h")


def _header() -> str:
    folder = Path(rabbet.get_include()) / "rabbet"
    text = "".join((folder / name).read_text("utf-8") for name in _HEADERS)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def _members(body: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for statement in (" ".join(s.split()) for s in body.split(";")):
        function = re.match(r".*?\(\*(\w+)\)\s*\(", statement)
        if function:
            found.append((function[1], ctypes.c_void_p))
            continue
        for part in re.sub(r"^(const )?(?=\w)", "", statement).split(",") if statement else []:
            name = re.findall(r"\w+", part)[-1]
            kind = re.findall(r"\w+", statement.removeprefix("const "))[0]
            found.append((name, ctypes.c_void_p if "*" in statement else _TYPES[kind]))
    return found


@cache
def struct(name: str) -> type[ctypes.Structure]:
    """A struct as a class of ctypes; pointers are numbers."""
    match = re.search(rf"struct {name} \{{(.*?)\n\}}", _header(), flags=re.S)
    if match is None:
        raise LookupError(f"the headers have no struct {name}")
    return type(name, (ctypes.Structure,), {"_fields_": _members(match[1])})


def size_up_to(name: str, member: str) -> int:
    """Bytes of a struct up to and with a member (RB_SIZE)."""
    field = getattr(struct(name), member)
    return int(field.offset + field.size)


def host_members() -> list[str]:
    """The functions of RbHost, in order."""
    return [name for name, kind in struct("RbHost")._fields_ if kind is ctypes.c_void_p][1:]  # type: ignore[misc]
