"""What a backend publishes of its devices (rabbet/device.h, rabbet/capture.h), wrong in every member: each mistake is an
error in words, and the process lives on. The tables are changed while the backend is loaded."""

import ctypes
import gc
from types import SimpleNamespace

import pytest
import rabbet
from plugin_wheels import BACKEND, compile_library
from rabbet import _C, accelerator, profiler
from rabbet_testing.boundary_structs import struct
from rabbet_testing.fake_host import real_host

NAME, DEVICES = "tabled", 6
SOURCE = (
    '#include "rabbet/capture.h"\n#include "rabbet/device.h"\n'
    + BACKEND.replace("*n = 1;", f"*n = {DEVICES};").replace(
        "static const RbPlugin plugin",
        r"""
static uint64_t kept;
static int in_callback, calls_in_callback;
static int32_t memory_info(void* s, int32_t d, uint64_t* free, uint64_t* total)
{ (void)s; (void)d; *free = 1 << 20; *total = 1 << 22; return RB_OK; }
static int32_t properties(void* s, int32_t d, void* ctx, int32_t (*add)(void*, const char*, const RbValue*))
{ (void)s; (void)d; RbValue v = {.tag = RB_STR, .len = 5}; v.v.s = "Table"; return add(ctx, "name", &v); }
static int32_t can_access_peer(void* s, int32_t d, int32_t p, int32_t* can)
{ (void)s; *can = d < p; return RB_OK; }
static int32_t ipc_export(void* s, const RbBuffer* segment, RbIpcHandle* out)
{ (void)s; out->nbytes = sizeof *segment; memcpy(out->bytes, segment, sizeof *segment); return RB_OK; }
static int32_t ipc_open(void* s, int32_t d, const RbIpcHandle* handle, RbBuffer* out)
{ (void)s; (void)d; memcpy(out, handle->bytes, sizeof *out); ++kept; return RB_OK; }
static void ipc_close(void* s, RbBuffer* segment) { (void)s; (void)segment; --kept; calls_in_callback += in_callback; }
static int32_t host_call(void* s, int32_t d, void* stream, void (*fn)(void*), void* ctx)
{ (void)s; (void)d; (void)stream; in_callback = 1; fn(ctx); in_callback = 0; return RB_OK; }
static int32_t poll_error(void* s, int32_t d) { (void)s; (void)d; return RB_OK; }
static int32_t capture_begin(void* s, int32_t d, void* stream) { (void)s; (void)d; (void)stream; return RB_OK; }
static int32_t capture_end(void* s, int32_t d, void* stream, void** graph)
{ (void)s; (void)d; (void)stream; ++kept; *graph = malloc(1); return RB_OK; }
static int32_t graph_instantiate(void* s, int32_t d, void* graph, void** executable)
{ (void)s; (void)d; (void)graph; ++kept; *executable = malloc(1); return RB_OK; }
static int32_t graph_launch(void* s, int32_t d, void* executable, void* stream)
{ (void)s; (void)d; (void)executable; (void)stream; return RB_OK; }
static void graph_destroy(void* s, int32_t d, void* graph, void* executable)
{ (void)s; (void)d; if (graph) --kept; if (executable) --kept; free(graph); free(executable); }
static int32_t alloc_host(void* s, int32_t d, uint64_t n, void* stream, RbBuffer* out)
{ (void)s; (void)d; (void)stream; out->data = aligned_alloc(4096, (n + 4095) / 4096 * 4096); return RB_OK; }
static void free_host(void* s, RbBuffer* b, void* stream) { (void)s; (void)stream; free(b->data); }

RB_EXPORT RbAllocator pinned, managed;
RB_EXPORT RbDeviceTable devices_table;
RB_EXPORT RbCapture capture_table;
RB_EXPORT uint64_t count_kept(void) { return kept; }
RB_EXPORT int count_calls_in_callback(void) { return calls_in_callback; }
RB_EXPORT void make_good(void)
{ pinned = managed = (RbAllocator){sizeof pinned, 0, 0, alloc_host, free_host};
  devices_table = (RbDeviceTable){sizeof devices_table, 0, 0, &pinned, &managed, memory_info, properties, can_access_peer,
                                  ipc_export, ipc_open, ipc_close, host_call, poll_error};
  capture_table = (RbCapture){sizeof capture_table, 0, 0, capture_begin, capture_end, graph_instantiate, graph_launch,
                              graph_destroy}; }

/* What stands in a member's place. */
RB_EXPORT int32_t does_nothing(void) { return RB_OK; }
RB_EXPORT int32_t fails(void) { return core->err_set(RB_E_STATE, "tabled: not today"); }
RB_EXPORT int32_t breaks(void) { return core->err_set(RB_E_DEVICE, "tabled: it broke"); }
RB_EXPORT int32_t breaks_silently(void) { return RB_E_DEVICE; }
RB_EXPORT int32_t more_free_than_there_is(void* s, int32_t d, uint64_t* free, uint64_t* total)
{ (void)s; (void)d; *free = 9; *total = 8; return RB_OK; }
static const RbValue no_text = {.tag = RB_STR, .len = 3}, a_tensor = {.tag = RB_TENSOR}, a_number = {.tag = RB_INT};
#define PROPERTY(FN, NAME, VALUE) RB_EXPORT int32_t FN(void* s, int32_t d, void* ctx, \
  int32_t (*add)(void*, const char*, const RbValue*)) { (void)s; (void)d; return add(ctx, NAME, VALUE); }
PROPERTY(property_without_name, 0, &a_number)
PROPERTY(property_without_value, "memory", 0)
PROPERTY(property_without_text, "name", &no_text)
PROPERTY(property_of_a_tensor, "speed", &a_tensor)
RB_EXPORT int32_t property_whose_error_is_dropped(void* s, int32_t d, void* ctx, int32_t (*add)(void*, const char*, const RbValue*))
{ (void)s; (void)d; add(ctx, 0, 0); return RB_OK; }
RB_EXPORT int32_t handle_of_300(void* s, const RbBuffer* b, RbIpcHandle* out) { (void)s; (void)b; out->nbytes = 300; return RB_OK; }
RB_EXPORT int32_t opens_without_size(void* s, int32_t d, const RbIpcHandle* h, RbBuffer* out)
{ (void)s; (void)d; (void)h; out->data = &kept; return RB_OK; }
static const RbPlugin plugin""",
    )
).replace(
    "core = host;",
    "core = host; make_good(); if (host->publish(NAME \".device\", 1, &devices_table) || "
    'host->publish(NAME ".capture", 1, &capture_table)) return RB_E_PLUGIN;',
).replace("static int32_t init(", "RB_EXPORT void make_good(void);\n"
          "extern RbDeviceTable devices_table; extern RbCapture capture_table;\nstatic int32_t init(")  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = compile_library(
        tmp_path_factory.mktemp(NAME), NAME, SOURCE, "-DKEY=0x51", f'-DNAME="{NAME}"'
    )
    _C.load_plugin(str(path))
    return ctypes.CDLL(str(path))


@pytest.fixture
def tables(library):
    """The tables of the loaded backend; what a test changes in them is mended behind it."""

    def table(name, kind):
        return struct(kind).in_dll(library, name)

    yield SimpleNamespace(
        device=table("devices_table", "RbDeviceTable"), capture=table("capture_table", "RbCapture"),
        pinned=table("pinned", "RbAllocator"), managed=table("managed", "RbAllocator"),
        function=lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value,
    )  # fmt: skip
    library.make_good()
    gc.collect()
    _C.empty_cache()
    assert library.count_kept() == 0
    assert rabbet.ones(3).to(NAME).cpu().tolist() == [1, 1, 1]


def handle():
    return _C.ipc_export(rabbet.ones(3).to(NAME))


def opened():
    bytes_, offset = handle()
    return _C.ipc_open(bytes_, offset, NAME, rabbet.float32, [3], [1])


def captured(**options):
    graph = accelerator.Graph(device=NAME, **options)
    with graph:
        pass
    return graph


def pinned():
    return rabbet.ones(2).pin_memory(f"{NAME}:1")


def managed():
    return _C.managed_like(rabbet.ones(2), f"{NAME}:1")


def profiled():
    with profiler.profile() as prof:
        rabbet.ones(3).to(NAME)
    return prof.profiler.trace


# For each member: what a user calls for its sake, and the error where the backend lacks it, or what comes instead.
MISSING = {
    "pinned": (pinned, f"the backend '{NAME}' offers no pinned memory"),
    "managed": (managed, f"the backend '{NAME}' offers no managed memory"),
    "memory_info": (lambda: accelerator.get_memory_info(NAME), f"the backend '{NAME}' does not tell how much memory"),
    "properties": (lambda: accelerator.get_device_properties(NAME), f"the backend '{NAME}' tells no properties"),
    "can_access_peer": (lambda: accelerator.can_device_access_peer(f"{NAME}:0", f"{NAME}:1"), False),
    "ipc_export": (handle, f"the backend '{NAME}' cannot share its memory"),
    "ipc_open": (opened, f"the backend '{NAME}' cannot share its memory"),
    "ipc_close": (opened, f"the backend '{NAME}' cannot share its memory"),
    "host_call": (lambda: opened().cpu().tolist(), [1, 1, 1]),
    "poll_error": (lambda: accelerator.synchronize(f"{NAME}:0"), None),
    "segment_grow": (lambda: rabbet.ones(3).to(NAME).cpu().tolist(), [1, 1, 1]),
    "segment_shrink": (lambda: rabbet.ones(3).to(NAME).cpu().tolist(), [1, 1, 1]),
    "shared": (lambda: list(_C.shared_like(rabbet.ones(3), NAME).shape), [3]),
    "event_export": (lambda: rabbet.Event(NAME, interprocess=True), f"the backend '{NAME}' has no streams"),
    "event_open": (lambda: _C.Event.open(rabbet.device(NAME), b"x"), f"the backend '{NAME}' has no streams"),
    "work_times": (lambda: profiled().launches, []),
}  # fmt: skip
CAPTURE = ("capture_begin", "capture_end", "graph_instantiate", "graph_launch", "graph_destroy")


@pytest.mark.parametrize("how", ["null", "of an older header"])
@pytest.mark.parametrize("member", MISSING)
def test_members_that_a_backend_lacks(member, how, tables):
    call, expected = MISSING[member]
    kind = type(tables.device)
    assert [n for n, _ in kind._fields_][3:] == list(MISSING)
    if how == "null":
        setattr(tables.device, member, None)
    else:
        tables.device.struct_size = getattr(kind, member).offset
    if isinstance(expected, str):
        with pytest.raises(NotImplementedError, match=expected):
            call()
    else:
        assert call() == expected


@pytest.mark.parametrize("how", ["null", "of an older header"])
@pytest.mark.parametrize("member", CAPTURE)
def test_captures_that_lack_a_member(member, how, tables):
    kind = type(tables.capture)
    assert [n for n, _ in kind._fields_][3:] == [*CAPTURE, "graph_dump"]  # which may be null
    if how == "null":
        setattr(tables.capture, member, None)
    else:
        tables.capture.struct_size = getattr(kind, member).offset
    with pytest.raises(rabbet.PluginError, match="is too short, or a member of it is null"):
        captured()


@pytest.mark.parametrize("size", [0, 4, 15])
def test_a_table_without_its_head(size, tables):
    tables.device.struct_size = tables.capture.struct_size = size
    for call in (lambda: accelerator.get_memory_info(NAME), pinned, handle):
        with pytest.raises(
            rabbet.PluginError,
            match=f"'{NAME}.device' of {NAME} 1 is too short: it has {size} bytes",
        ):
            call()
    with pytest.raises(rabbet.PluginError, match=f"'{NAME}.capture' of {NAME} 1 is too short"):
        captured()


def test_a_table_of_a_later_header_is_read_as_far_as_it_is_known(tables):
    tables.device.struct_size = tables.capture.struct_size = 4096
    assert accelerator.get_memory_info(NAME) == (1 << 20, 1 << 22)
    captured().replay()


STATE, BROKEN, WRONG = rabbet.StateError, rabbet.DeviceError, rabbet.PluginError
# The member, what stands in its place, what is called, and the error or what comes instead.
VALUES = [
    ("memory_info", "fails", MISSING["memory_info"][0], STATE, "tabled: not today"),
    ("memory_info", "breaks", MISSING["memory_info"][0], BROKEN, "tabled: it broke"),
    ("memory_info", "does_nothing", MISSING["memory_info"][0], WRONG, "memory_info of the backend 'tabled': 0 of 0 bytes cannot be free"),
    ("memory_info", "more_free_than_there_is", MISSING["memory_info"][0], WRONG, "9 of 8 bytes cannot be free"),
    ("memory_info", "fails", lambda: accelerator.set_per_process_memory_fraction(0.5, NAME), STATE, "tabled: not today"),
    ("memory_info", "fails", lambda: rabbet.empty(1 << 19, device=NAME), MemoryError, "could not allocate 2097152 bytes .*the backend says: tabled: small"),
    ("properties", "fails", MISSING["properties"][0], STATE, "tabled: not today"),
    ("properties", "does_nothing", lambda: vars(MISSING["properties"][0]()), None, {}),
    ("properties", "property_without_name", MISSING["properties"][0], WRONG, "a name or a value is null"),
    ("properties", "property_without_value", MISSING["properties"][0], WRONG, "a name or a value is null"),
    ("properties", "property_without_text", MISSING["properties"][0], WRONG, "a name or a value is null"),
    ("properties", "property_of_a_tensor", MISSING["properties"][0], WRONG, "'speed' is no bool, int, float or text"),
    ("properties", "property_whose_error_is_dropped", lambda: vars(MISSING["properties"][0]()), None, {}),
    ("can_access_peer", "fails", MISSING["can_access_peer"][0], STATE, "tabled: not today"),
    ("can_access_peer", "does_nothing", MISSING["can_access_peer"][0], None, False),
    ("ipc_export", "fails", handle, STATE, "tabled: not today"),
    ("ipc_export", "does_nothing", handle, WRONG, "ipc_export of the backend 'tabled': a handle has 1 to 256 bytes, got 0"),
    ("ipc_export", "handle_of_300", handle, WRONG, "a handle has 1 to 256 bytes, got 300"),
    ("ipc_open", "fails", opened, STATE, "tabled: not today"),
    ("ipc_open", "does_nothing", opened, WRONG, "ipc_open of the backend 'tabled' returned RB_OK without memory"),
    ("ipc_open", "opens_without_size", opened, WRONG, "returned RB_OK without memory"),
    ("host_call", "fails", lambda: opened().cpu().tolist(), None, [1, 1, 1]),  # the deleter runs at once
    ("host_call", "breaks_silently", lambda: opened().cpu().tolist(), None, [1, 1, 1]),
]  # fmt: skip


@pytest.mark.parametrize(
    "member, put, call, error, expected", VALUES, ids=[f"{v[0]} {v[1]}" for v in VALUES]
)
def test_what_members_do_wrong(member, put, call, error, expected, tables):
    setattr(tables.device, member, tables.function(put))
    if error is None:
        assert call() == expected
        return
    for _ in range(2):
        with pytest.raises(error, match=expected):
            call()


@pytest.mark.parametrize("kind, call", [("pinned", pinned), ("managed", managed)])
def test_other_memory_that_is_wrong(kind, call, tables):
    place = call().data_ptr()  # the allocator has a heap and a block now
    _C.empty_cache()
    allocator = getattr(tables, kind)
    for put, error, text in (
        ("fails", STATE, "tabled: not today"),
        ("breaks", BROKEN, "tabled: it broke"),
        (
            "does_nothing",
            WRONG,
            "`alloc` of the backend 'tabled' .* allocated no usable memory: `data` is null",
        ),
    ):
        allocator.alloc = tables.function(put)
        with pytest.raises(error, match=text):
            call()
    assert place
    assert f"'kind': '{kind}'" not in str(accelerator.memory_snapshot())


@pytest.mark.parametrize("size", [0, 8, 24])
def test_other_memory_described_too_briefly(size, tables):
    library_pinned = tables.pinned
    library_pinned.struct_size = size
    with pytest.raises(NotImplementedError, match="offers no pinned memory"):
        rabbet.ones(2).pin_memory(f"{NAME}:2")  # a device whose heap there is not yet


@pytest.mark.parametrize(
    "device, put, why",
    [(3, "breaks", "tabled: it broke"), (4, "fails", "tabled: not today"),
     (5, "breaks_silently", "the backend gives no reason")],
)  # fmt: skip
def test_errors_that_last(device, put, why, tables):
    """They concern one device, and no other."""
    name = f"{NAME}:{device}"
    x = rabbet.ones(3).to(name)
    with pytest.raises(ValueError):
        rabbet.ones(3).reshape(2)  # an earlier error, which is not the device's
    tables.device.poll_error = tables.function(put)
    for call in (lambda: accelerator.synchronize(name), x.cpu, lambda: rabbet.ones(3).to(name)):
        with pytest.raises(
            BROKEN,
            match=f"the device {name} has failed and cannot be used any more in this process: {why}",
        ):
            call()
    tables.device.poll_error = tables.function("does_nothing")
    with pytest.raises(BROKEN, match="has failed"):
        x.cpu()
    assert rabbet.ones(3).to(f"{NAME}:1").cpu().tolist() == [1, 1, 1]


GRAPHS = [
    ("capture_begin", "fails", captured, STATE, "tabled: not today"),
    ("capture_end", "fails", captured, STATE, "tabled: not today"),
    ("capture_end", "does_nothing", captured, WRONG, "capture_end of the backend 'tabled' returned RB_OK without its graph"),
    ("graph_instantiate", "fails", captured, STATE, "tabled: not today"),
    ("graph_instantiate", "does_nothing", captured, WRONG, "graph_instantiate of the backend 'tabled' returned RB_OK without its executable"),
    ("graph_instantiate", "fails", lambda: captured(keep_graph=True).replay(), STATE, "tabled: not today"),
    ("graph_launch", "fails", lambda: captured().replay(), STATE, "tabled: not today"),
    ("graph_launch", "breaks", lambda: captured(keep_graph=True).replay(), BROKEN, "tabled: it broke"),
]  # fmt: skip


@pytest.mark.parametrize(
    "member, put, call, error, expected",
    GRAPHS,
    ids=[f"{g[0]} {g[1]} {i}" for i, g in enumerate(GRAPHS)],
)
def test_captures_that_go_wrong(member, put, call, error, expected, tables):
    good = getattr(tables.capture, member)
    for _ in range(2):
        setattr(tables.capture, member, tables.function(put))
        with pytest.raises(error, match=expected):
            call()
        # The thread captures no more, and its memory comes from where it did.
        setattr(tables.capture, member, good)
        x = rabbet.ones(3).to(NAME)
        own = [s for s in accelerator.memory_snapshot() if s["backend"] == NAME]
        assert {s["segment_pool_id"] for s in own} == {(0, 0)} and x.cpu().sum() == 3
        captured().replay()


def test_the_backends_callback_does_not_call_the_device(tables, library):
    """What host_call runs may not: the deleter, which closes the segment, runs behind it."""
    y = opened()
    assert library.count_kept() == 1
    del y
    assert library.count_kept() == 0 and library.count_calls_in_callback() == 0


# ---- core's tables

I32, U32, PTR = ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p


def core_table(name, kind, version=1):
    host = real_host()
    get = ctypes.CFUNCTYPE(PTR, ctypes.c_char_p, U32)(host.get_ext)
    address = get(name, version)
    return None if not address else struct(kind).from_address(address)


def test_who_asks_for_a_later_version_gets_nothing():
    for name, kind in ((b"rabbet.memory", "RbMemoryTable"), (b"rabbet.capture", "RbCaptureRng")):
        for version in (0, 1):
            assert core_table(name, kind, version).struct_size == ctypes.sizeof(struct(kind))
        assert core_table(name, kind, 2) is None


def test_captured_counters_of_older_and_later_structs():
    """A slice that ends before `base` is refused; what lies behind the known members is left alone."""
    size = ctypes.sizeof(struct("RbCaptureSlice"))
    reserve = ctypes.CFUNCTYPE(I32, PTR, I32, I32, ctypes.c_uint64, PTR)(
        core_table(b"rabbet.capture", "RbCaptureRng").reserve
    )
    for given in (0, 8, struct("RbCaptureSlice").base.offset, size - 1):
        room = (ctypes.c_uint8 * 128)(*[0xAB] * 128)
        U32.from_buffer(room).value = given
        assert reserve(None, 1, 0, 4, ctypes.addressof(room)) != 0
        assert bytes(room)[4:] == b"\xab" * 124
    room = (ctypes.c_uint8 * 128)(*[0xAB] * 128)
    U32.from_buffer(room).value = 128
    assert reserve(None, 1, 0, 4, ctypes.addressof(room)) == 0
    slice_ = struct("RbCaptureSlice").from_buffer(room)
    assert slice_.base is None and bytes(room)[size:] == b"\xab" * (128 - size)


def test_nobody_captures_where_there_is_no_device():
    is_capturing = ctypes.CFUNCTYPE(I32, I32, I32)(
        core_table(b"rabbet.capture", "RbCaptureRng").is_capturing
    )
    for backend, device in ((0, 0), (1, 0), (-1, 0), (99, 0), (1, -1), (1, 1 << 30)):
        assert is_capturing(backend, device) == 0
