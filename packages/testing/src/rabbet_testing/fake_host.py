"""A host table that records what a plugin's `init` registers, checks it, and fails where it is told to.

    python -m rabbet_testing.fake_host LIBRARY CHECK

runs one check in this process, which a broken library may take down, and prints what is wrong as JSON, one line at the
end. Before each step a line says what is being done, so that a crash can be told. Registration is recorded; every other
function of the table is that of the running core. The table lies before a page that cannot be read: who reads beyond its
`struct_size` crashes.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import re
import sys
from collections.abc import Callable
from typing import Any

from rabbet import _C

from .boundary_structs import LEAST, size_up_to, struct

FAILURE = 10  # RB_E_PLUGIN
_RULES = ("decomp", "shape", "vjp", "jvp")  # RB_RULE_*
_OPAQUE = 5  # RB_CLASS_OPAQUE
_KERNEL_FLAGS = 1 | 2 | 4 | 16 | 32 | 64  # RB_K_*
_RULE_FLAGS = 2 | 256  # RB_K_NEEDS_GIL, RB_RULE_READS
_i32, _u32, _ptr = ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p
_REGISTRATIONS: dict[str, Any] = {
    "txn_begin": ctypes.CFUNCTYPE(_i32, _ptr, _ptr),
    "txn_commit": ctypes.CFUNCTYPE(_i32, _ptr),
    "txn_abort": ctypes.CFUNCTYPE(_i32, _ptr),
    "add_ops": ctypes.CFUNCTYPE(_i32, _ptr, _ptr),
    "add_kernel": ctypes.CFUNCTYPE(_i32, _ptr, _ptr),
    "add_rule": ctypes.CFUNCTYPE(_i32, _ptr, _ptr),
    "add_formula_kernel": ctypes.CFUNCTYPE(_i32, _ptr, _ptr),
    "add_dtype": ctypes.CFUNCTYPE(_i32, _ptr, _ptr, _ptr),
    "add_layer": ctypes.CFUNCTYPE(_i32, _ptr, _ptr, _ptr),
    "add_backend": ctypes.CFUNCTYPE(_i32, _ptr, _ptr, _ptr),
    "slot_new": ctypes.CFUNCTYPE(_i32, _ptr, _i32, _ptr, _ptr, _ptr),
    "publish": ctypes.CFUNCTYPE(_i32, _ptr, _u32, _ptr),
    "get_ext": ctypes.CFUNCTYPE(_ptr, _ptr, _u32),
}
# What registers in core's optional tables; their other functions are those of the running core.
_TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "rabbet.composite": ("RbComposites", {"describe": ctypes.CFUNCTYPE(_i32, _i32, _ptr)}),
    "rabbet.trace": ("RbTrace", {"data_hook": ctypes.CFUNCTYPE(_i32, _i32, _ptr, _ptr)}),
}


def step(text: str) -> None:
    """What is done next; the last line tells what a crash was in."""
    print(f"step: {text}", flush=True)


def real_host() -> Any:
    """The host table of the running core."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(_C.python_v0, b"rabbet._C.python_v0")
    return struct("RbHost").from_address(ctypes.c_void_p.from_address(table + 8).value or 0)


def before_unreadable(nbytes: int) -> int:
    """The address of `nbytes` zeros, behind which nothing can be read; kept for the process."""
    page = mmap.PAGESIZE
    pages = (nbytes + page - 1) // page
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = _ptr
    libc.mmap.argtypes = [_ptr, ctypes.c_size_t, _i32, _i32, _i32, ctypes.c_long]
    libc.mprotect.argtypes = [_ptr, ctypes.c_size_t, _i32]
    start = libc.mmap(
        None, (pages + 1) * page, 3, 0x22, -1, 0
    )  # read and write; private and anonymous
    if start in (None, ctypes.c_void_p(-1).value) or libc.mprotect(start + pages * page, page, 0):
        raise MemoryError("no memory for the host table")
    return int(start + pages * page - nbytes)


def text_at(address: int | None) -> str:
    """The string at an address."""
    return ctypes.string_at(address).decode("utf-8", "replace") if address else ""


class FakeHost:
    """The host table of minor version `minor`; the `fail_at`-th registration fails.

    Attributes:
        findings: what is wrong with what was handed in.
        registrations: what was registered, in order, in words.
        failed: the registration that was made to fail, or "".
    """

    def __init__(self, minor: int, fail_at: int = 0) -> None:
        self.findings: list[str] = []
        self.registrations: list[str] = []
        self.failed, self.fail_at = "", fail_at
        self.ops: set[str] = set(_C.record_names())
        self.targets = {b["name"] for b in _C.backends()} | {la["name"] for la in _C.layers()}
        self.dtypes = len(_C.dtype_names())
        self._kernels: list[tuple[str, str, str, str]] = []
        self._has_own = False
        self._keep: list[Any] = []
        self.devices: list[Any] = []
        self._real, self._next_id = real_host(), 40
        self._tables: dict[str, int] = {}
        self._published: dict[str, int] = {}
        self._backends: list[str] = []
        size = _C.abi_host_sizes[minor]
        whole = struct("RbHost")
        table = whole.from_buffer_copy(self._real)
        table.struct_size, table.minor = size, minor
        for name, kind in _REGISTRATIONS.items():
            callback = kind(getattr(self, name))
            self._keep.append(callback)
            setattr(table, name, ctypes.cast(callback, _ptr).value)
        self.address = before_unreadable(size)
        ctypes.memmove(self.address, ctypes.addressof(table), size)
        self.txn = before_unreadable(0)  # opaque: nobody reads through it

    # ---- the functions that are recorded

    def _register(self, what: str) -> int:
        self.registrations.append(what)
        if len(self.registrations) != self.fail_at:
            return 0
        self.failed = what
        err_set = ctypes.CFUNCTYPE(_i32, _i32, ctypes.c_char_p)(self._real.err_set)
        return int(err_set(FAILURE, f"{what} was made to fail".encode()))

    def _read(self, name: str, address: int | None, what: str) -> Any:
        """A copy of a struct with nulls behind what it says its size is."""
        if not address:
            self.findings.append(f"{what}: the {name} is null")
            return None
        step(f"read the {name} of {what} #{len(self.registrations) + 1}")
        kind = struct(name)
        size = ctypes.c_uint32.from_address(address).value
        least, most = size_up_to(name, LEAST[name]), ctypes.sizeof(kind)
        if not least <= size <= most:
            self.findings.append(
                f"{what}: the struct_size of {name} is {size}, expected {least} to {most}"
            )
            return None
        made = kind()
        ctypes.memmove(ctypes.addressof(made), address, size)
        return made

    def _text(self, address: int | None, what: str) -> str:
        if not address:
            self.findings.append(f"{what} is null")
            return ""
        step(f"read the string of {what}")
        found = text_at(address)
        if not found:
            self.findings.append(f"{what} is empty")
        return found

    def txn_begin(self, who: int | None, out: int | None) -> int:
        if out:
            _ptr.from_address(out).value = self.txn
        return 0

    def txn_commit(self, txn: int | None) -> int:
        return self._register("txn_commit")

    def txn_abort(self, txn: int | None) -> int:
        return 0

    def add_ops(self, txn: int | None, records: int | None) -> int:
        text = self._text(records, "add_ops: the text of the records")
        self._check_txn(txn, "add_ops")
        self.ops |= set(re.findall(r"^([\w:.]+)\(", text, flags=re.M))
        return self._register("add_ops")

    def _judge_kernel(self, k: Any, what: str, flags: int) -> None:
        if not k.fn:
            self.findings.append(f"{what}: `fn` is null")
        if k.flags & ~flags:
            self.findings.append(f"{what}: unknown flags {k.flags & ~flags:#x}")

    def _judge_mask(self, k: Any, what: str) -> None:
        if k.dtype_mask >> self.dtypes:
            self.findings.append(f"{what}: dtype_mask {k.dtype_mask:#x} has bits of no dtype")

    def add_kernel(self, txn: int | None, kernel: int | None) -> int:
        self._check_txn(txn, "add_kernel")
        k = self._read("RbKernel", kernel, "add_kernel")
        if k is None:
            return self._register("add_kernel")
        op = self._text(k.op, "add_kernel: `op`")
        what = f"add_kernel '{op}'"
        target = self._text(k.backend, f"{what}: `backend`")
        self._judge_kernel(k, what, _KERNEL_FLAGS)
        self._judge_mask(k, what)
        self._kernels.append((what, op, target, text_at(k.schema)))
        return self._register(what)

    def add_rule(self, txn: int | None, rule: int | None) -> int:
        self._check_txn(txn, "add_rule")
        k = self._read("RbRule", rule, "add_rule")
        if k is None:
            return self._register("add_rule")
        op = self._text(k.op, "add_rule: `op`")
        what = f"add_rule '{op}'"
        if not 0 <= k.rule < len(_RULES):
            self.findings.append(f"{what}: rule {k.rule} is no RB_RULE_*")
        else:
            what = f"add_rule '{op}' {_RULES[k.rule]}"
        self._judge_kernel(k, what, _RULE_FLAGS)
        self._kernels.append((what, op, "", text_at(k.schema)))
        return self._register(what)

    def add_formula_kernel(self, txn: int | None, kernel: int | None) -> int:
        self._check_txn(txn, "add_formula_kernel")
        k = self._read("RbFormulaKernel", kernel, "add_formula_kernel")
        if k is None:
            return self._register("add_formula_kernel")
        op = self._text(k.op, "add_formula_kernel: `op`")
        what = f"add_formula_kernel '{op}'"
        self._text(k.backend, f"{what}: `backend`")
        self._text(k.formula, f"{what}: `formula`")
        if k.argument < -1:
            self.findings.append(f"{what}: argument {k.argument} is neither -1 nor one")
        self._judge_kernel(k, what, _KERNEL_FLAGS)
        self._judge_mask(k, what)
        # Core leaves out those of records that it does not have, or has otherwise.
        return self._register(what)

    def add_dtype(self, txn: int | None, info: int | None, out: int | None) -> int:
        self._check_txn(txn, "add_dtype")
        found = self._read("RbDTypeInfo", info, "add_dtype")
        name = self._text(found.name, "add_dtype: `name`") if found is not None else ""
        what = f"add_dtype '{name}'"
        if found is not None:
            if not re.fullmatch(r"[A-Za-z]\w*", name):
                self.findings.append(f"{what}: the name is no identifier")
            if not 0 <= found.kind <= _OPAQUE:
                self.findings.append(f"{what}: kind {found.kind} is no RB_CLASS_*")
            if found.itemsize not in (1, 2, 4, 8, 16) or not 1 <= found.bits <= 8 * found.itemsize:
                self.findings.append(
                    f"{what}: {found.bits} bits in {found.itemsize} bytes are no element"
                )
            if found.kind != _OPAQUE and not (found.decode and found.encode):
                self.findings.append(f"{what}: `decode` or `encode` is null")
        rc = self._register(what)
        if rc == 0 and out:
            _i32.from_address(out).value = self.dtypes
            self.dtypes += 1
        return rc

    def add_layer(self, txn: int | None, layer: int | None, out: int | None) -> int:
        self._check_txn(txn, "add_layer")
        found = self._read("RbLayer", layer, "add_layer")
        name = self._text(found.name, "add_layer: `name`") if found is not None else ""
        if found is not None:
            if found.phase >= 800:
                self.findings.append(f"add_layer '{name}': phase {found.phase} is not below 800")
            hooks = [
                bool(getattr(found, m)) for m in ("thread_save", "thread_restore", "thread_free")
            ]
            if len(set(hooks)) == 2:
                self.findings.append(
                    f"add_layer '{name}': of thread_save, thread_restore and thread_free some are null"
                )
            for member in ("before", "after"):
                at = getattr(found, member)
                while at and _ptr.from_address(at).value:
                    self._text(_ptr.from_address(at).value, f"add_layer '{name}': `{member}`")
                    at += 8
        self.targets.add(name)
        self._has_own = True
        return self._id(f"add_layer '{name}'", out)

    def add_backend(self, txn: int | None, backend: int | None, out: int | None) -> int:
        self._check_txn(txn, "add_backend")
        found = self._read("RbBackend", backend, "add_backend")
        name = self._text(found.name, "add_backend: `name`") if found is not None else ""
        what = f"add_backend '{name}'"
        if found is not None:
            if re.search(r"[\s:]", name):
                self.findings.append(f"{what}: the name holds a space or ':'")
            self._judge_allocator(found.allocator, what)
            if found.devices:
                devices = self._read("RbDevices", found.devices, what)
                if devices is not None:
                    self.devices.append(devices)
            if found.streams:
                self._judge_streams(found, what)
        self.targets.add(name)
        self._backends.append(name)
        self._has_own = True
        return self._id(what, out)

    def _judge_streams(self, backend: Any, what: str) -> None:
        if backend.flags & 1:  # RB_B_HOST_MEMORY
            self.findings.append(f"{what}: a backend of host memory has streams")
        streams = self._read("RbStreams", backend.streams, what)
        if streams is None:
            return
        names = [name for name, _ in struct("RbStreams")._fields_]  # type: ignore[misc]
        for name in names[names.index("create") : names.index(LEAST["RbStreams"]) + 1]:
            if not getattr(streams, name):
                self.findings.append(f"{what}: `{name}` of the streams is null")

    def slot_new(
        self, name: int | None, layer: int, delete: int | None, slot: int | None, offset: int | None
    ) -> int:
        what = f"slot_new '{text_at(name)}'"
        if not delete:
            self.findings.append(f"{what}: `del` is null")
        if not slot or not offset:
            self.findings.append(f"{what}: there is nowhere to put the slot or its offset")
        return self._register(what)

    def publish(self, name: int | None, version: int, table: int | None) -> int:
        text = self._text(name, "publish: `name`")
        if not table:
            self.findings.append(f"publish '{text}': the table is null")
        else:
            self._published[text] = table
        return self._register(f"publish '{text}'")

    def _judge_published(self, backend: str) -> None:
        """The tables by which a backend offers more of its devices, rabbet/device.h and rabbet/capture.h."""
        if address := self._published.get(f"{backend}.device"):
            what = f"publish '{backend}.device'"
            table = self._read("RbDeviceTable", address, what)
            if table is not None:
                for member in ("pinned", "managed", "shared"):
                    if getattr(table, member):
                        self._judge_allocator(getattr(table, member), f"{what}: `{member}`")
                given = [bool(getattr(table, f"ipc_{m}")) for m in ("export", "open", "close")]
                if any(given) and not all(given):
                    self.findings.append(
                        f"{what}: of ipc_export, ipc_open and ipc_close some are null"
                    )
                if bool(table.event_export) != bool(table.event_open):
                    self.findings.append(f"{what}: of event_export and event_open one is null")
                if bool(table.segment_grow) != bool(table.segment_shrink):
                    self.findings.append(f"{what}: of segment_grow and segment_shrink one is null")
        if address := self._published.get(f"{backend}.capture"):
            what = f"publish '{backend}.capture'"
            table = self._read("RbCapture", address, what)
            fields = struct("RbCapture")._fields_
            names = [name for name, _ in fields if name != "graph_dump"]  # type: ignore[misc]
            for name in names[names.index("self") + 1 :] if table is not None else ():
                if not getattr(table, name):
                    self.findings.append(f"{what}: `{name}` is null")

    def _judge_allocator(self, address: int | None, what: str) -> None:
        allocator = self._read("RbAllocator", address, what)
        if allocator is not None and not (allocator.alloc and allocator.free):
            self.findings.append(f"{what}: `alloc` or `free` of the allocator is null")

    def get_ext(self, name: int | None, version: int) -> int | None:
        """The table of the running core, in which registrations are recorded here."""
        text = text_at(name)
        get = ctypes.CFUNCTYPE(_ptr, _ptr, _u32)(self._real.get_ext)
        found: int | None = get(name, version)
        if not found or text not in _TABLES:
            return found
        if text not in self._tables:
            kind, functions = _TABLES[text]
            table = struct(kind).from_buffer_copy(struct(kind).from_address(found))
            for member, signature in functions.items():
                callback = signature(getattr(self, member))
                self._keep.append(callback)
                setattr(table, member, ctypes.cast(callback, _ptr).value)
            self._tables[text] = before_unreadable(table.struct_size)
            ctypes.memmove(self._tables[text], ctypes.addressof(table), table.struct_size)
        return self._tables[text]

    def describe(self, layer: int, description: int | None) -> int:
        """RbComposites.describe"""
        self._check_own(layer, "describe")
        self._read("RbCompositeLayer", description, "describe")
        return self._register("describe")

    def data_hook(self, layer: int, fn: int | None, own: int | None) -> int:
        """RbTrace.data_hook"""
        self._check_own(layer, "data_hook")
        return self._register("data_hook")

    def _check_own(self, layer: int, what: str) -> None:
        if not 40 < layer <= self._next_id:
            self.findings.append(f"{what}: {layer} is not the id of a layer that was added")

    def _id(self, what: str, out: int | None) -> int:
        rc = self._register(what)
        if rc == 0 and out:
            self._next_id += 1
            _i32.from_address(out).value = self._next_id
        return rc

    def _check_txn(self, txn: int | None, what: str) -> None:
        if txn != self.txn:
            self.findings.append(f"{what}: the transaction is not the one that `init` was given")

    def finish(self) -> None:
        """Check what only makes sense when all is registered.

        A library without a device or layer of its own has kernels for others', which need not be there: core keeps
        them until they are.
        """
        for backend in self._backends:
            self._judge_published(backend)
        for what, op, target, schema in self._kernels:
            if target and target not in self.targets and self._has_own:
                self.findings.append(f"{what}: there is no backend or layer '{target}'")
            if op and op not in self.ops and ("::" not in op or not self._has_own):
                self.findings.append(f"{what}: there is no operator '{op}'")
            if schema and op in set(_C.record_names()) and _C.op_info(op)["schema"] != schema:
                self.findings.append(
                    f"{what}: its schema is {schema!r}, that of the record {_C.op_info(op)['schema']!r}"
                )


# ---- the library


class Library:
    """A plugin's library, opened, with its RbPlugin."""

    def __init__(self, path: str) -> None:
        step("open the library")
        entry = ctypes.CDLL(path).rabbet_plugin_v0
        entry.restype = _ptr
        step("call rabbet_plugin_v0")
        self.address = entry()
        self.stable = entry() == self.address
        self.plugin = self._plugin()

    def _plugin(self) -> Any:
        if not self.address:
            raise SystemExit(finish(["rabbet_plugin_v0() returned null"]))
        size = ctypes.c_uint32.from_address(self.address).value
        made = struct("RbPlugin")()
        if size < size_up_to("RbPlugin", "init"):
            raise SystemExit(
                finish(
                    [
                        f"the struct_size of RbPlugin is {size}, expected at least {size_up_to('RbPlugin', 'init')}"
                    ]
                )
            )
        ctypes.memmove(ctypes.addressof(made), self.address, min(size, ctypes.sizeof(made)))
        return made

    def init(self, host: FakeHost) -> int:
        """Run `init` on a host; returns its status code."""
        return int(ctypes.CFUNCTYPE(_i32, _ptr, _ptr)(self.plugin.init)(host.address, host.txn))

    @property
    def minors(self) -> list[int]:
        """The minor versions of hosts that it has to run on."""
        return [m for m in sorted(_C.abi_host_sizes) if m >= self.plugin.abi_min]


def error_text() -> str:
    """The message in the thread's error record."""
    get = ctypes.CFUNCTYPE(_ptr)(real_host().err_get)
    return text_at(_ptr.from_address((get() or 0) + 8).value)


def check_plugin(library: Library) -> list[str]:
    """The RbPlugin struct."""
    p, findings = library.plugin, []
    if not library.stable:
        findings.append(
            "rabbet_plugin_v0() returns another pointer at the second call: core would load it twice"
        )
    if p.struct_size > ctypes.sizeof(p) and p.abi_built <= max(_C.abi_host_sizes):
        findings.append(
            f"the struct_size of RbPlugin is {p.struct_size}, its header has {ctypes.sizeof(p)}"
        )
    if p.reserved:
        findings.append(f"RbPlugin.reserved is {p.reserved}, expected 0")
    if p.abi_min > p.abi_built:
        findings.append(f"abi_min {p.abi_min} is above abi_built {p.abi_built}")
    for member in ("name", "version"):
        step(f"read RbPlugin.{member}")
        if not text_at(getattr(p, member)):
            findings.append(f"RbPlugin.{member} is null or empty")
    if not p.init:
        findings.append("RbPlugin.init is null")
    return findings


def check_init(library: Library) -> list[str]:
    """`init` on the host tables of all versions that the plugin says it runs on."""
    findings: list[str] = []
    for minor in library.minors:
        step(f"init on a host of version {_C.abi[0]}.{minor}, whose table ends at its struct_size")
        host = FakeHost(minor)
        code = library.init(host)
        host.finish()
        where = f"on a host of version {_C.abi[0]}.{minor}: "
        if code != 0:
            host.findings.insert(0, f"init returned {code} ({error_text()}), though nothing failed")
        elif not host.registrations:
            host.findings.append("init registered nothing")
        findings += [where + f for f in host.findings]
    return findings


def check_failures(library: Library) -> list[str]:
    """Each registration of `init` fails once; then it works."""
    findings: list[str] = []
    minor = max(library.minors)
    host = FakeHost(minor)
    step("init on a host where nothing fails")
    if library.init(host) != 0:
        return []  # check_init tells
    count = len(host.registrations)
    spread = range(1, count + 1, max(1, count // 48))
    for k in sorted({*range(1, min(count, 8) + 1), *spread, *range(max(1, count - 7), count + 1)}):
        what = host.registrations[k - 1]
        step(f"init on a host where registration {k} of {count}, {what}, fails")
        failing = FakeHost(minor, k)
        code = library.init(failing)
        if code != FAILURE:
            findings.append(
                f"registration {k} of {count}, {what}, failed with {FAILURE}, but init returned {code}: it has to return "
                "the code of a registration that fails"
            )
    step("init once more, on a host where nothing fails")
    again = FakeHost(minor)
    code = library.init(again)
    if code != 0 or again.registrations != host.registrations:
        findings.append(
            f"after an init that failed, the next returned {code} with {len(again.registrations)} of {count} registrations"
        )
    return findings


def check_devices(library: Library) -> list[str]:
    """What core asks of devices before it uses any."""
    host = FakeHost(max(library.minors))
    step("init")
    if library.init(host) != 0:
        return []
    findings = []
    for d in host.devices:
        if not d.count:
            continue
        n = _i32(-1)
        step("count the devices")
        code = ctypes.CFUNCTYPE(_i32, _ptr, _ptr)(d.count)(d.self, ctypes.addressof(n))
        if code != 0 or n.value < 0:
            findings.append(
                f"RbDevices.count returned {code} with {n.value} devices; it must not fail"
            )
    return findings


CHECKS: dict[str, Callable[[Library], list[str]]] = {
    "plugin": check_plugin, "init": check_init, "failures": check_failures, "devices": check_devices,
}  # fmt: skip


def describe(library: Library) -> dict[str, Any]:
    """What RbPlugin says."""
    p = library.plugin
    return {"name": text_at(p.name), "version": text_at(p.version), "abi": [p.abi_major, p.abi_built], "abi_min": p.abi_min}  # fmt: skip


def finish(findings: list[str], said: dict[str, Any] | None = None) -> int:
    """Print the outcome."""
    print(json.dumps({"findings": findings, "plugin": said or {}}), flush=True)
    return 0


def main(path: str, check: str) -> int:
    """Run one check."""
    library = Library(path)
    return finish(CHECKS[check](library), describe(library))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
