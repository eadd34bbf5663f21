"""The tables of core's C functions, called from Python."""

import ctypes
import json
from pathlib import Path
from typing import Any

_STRUCTS = json.loads((Path(__file__).parent / "abi_layout.json").read_text())["structs"]
# What is not an int32_t, as most results are.
_RESULTS = {
    "backend_name": ctypes.c_char_p,
    "err_get": ctypes.c_void_p,
    "find_op": ctypes.c_void_p,
    "get_ext": ctypes.c_void_p,
    "op_info": ctypes.c_void_p,
    "generator_free": None,
    "release": None,
}


class Members:
    """A struct of core at an address: functions can be called, numbers and texts are read."""

    def __init__(self, struct: str, address: int) -> None:
        self._members = {name: (at, size) for name, at, size in _STRUCTS[struct]["members"]}
        self.address = address

    def word(self, name: str) -> int:
        """A member of 4 or 8 bytes, unsigned."""
        at, size = self._members[name]
        kind = {4: ctypes.c_uint32, 8: ctypes.c_uint64}[size]
        return int(kind.from_address(self.address + at).value)

    def text(self, name: str) -> str | None:
        """A member that is a zero-terminated text, or null."""
        at, _ = self._members[name]
        found = ctypes.c_char_p.from_address(self.address + at).value
        return None if found is None else found.decode()

    def __getattr__(self, name: str) -> Any:
        kind = ctypes.CFUNCTYPE(_RESULTS.get(name, ctypes.c_int32))
        return kind(self.word(name))


def host_of(address: int) -> Members:
    """The host table at an address."""
    return Members("RbHost", address)


def message(host: Members) -> str:
    """What the thread's error record says."""
    return str(Members("RbError", host.err_get()).text("message"))
