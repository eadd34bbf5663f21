"""Core's services for a layer that defers calls: the read gate, and queries about memory, threads and kernels."""

import pytest
from plugin_wheels import process_with


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    return process_with(
        tmp_path_factory.mktemp("deferral"), "deferral_plugin.cpp", "deferral_prelude"
    )


def test_one_layer_can_defer_calls(process):
    said = process("""
print(error(lambda: must(plugin.defer(99, 2))))
print(error(lambda: must(plugin.defer(16, 2))))
print(error(lambda: must(plugin.defer(0, 1))))
print(error(lambda: must(plugin.defer(0, 2))), error(lambda: must(plugin.defer(0, 2))))
print(error(lambda: must(plugin.defer(1, 2))))
print(error(lambda: must(plugin.defer(0, 0))), error(lambda: must(plugin.defer(1, 2))))
rabbet.ones(2).tolist()
print(asked())
must(plugin.defer(1, 0))
rabbet.ones(2).tolist()
print(asked() + ".")
""")
    assert said.splitlines() == [
        "defer: 99 is not the id of a registered layer",
        "defer: 'composites' is core's own",
        "defer: the function `ready` is null",
        "nothing nothing",
        "defer: another layer defers calls, and only one can",
        "nothing nothing",
        "tolist();",
        ".",
    ]


READS = {
    "x.tolist()": "tolist();", "x[0].item()": "item();", "bool(x[0] > 0)": "__bool__();", "x.numpy()": "buffer;",
    "np.asarray(x)": "buffer;", "np.from_dlpack(x)": "__dlpack__;", "memoryview(x)": "buffer;", "x.data_ptr()": "data_ptr();",
    "rabbet.default_generator.set_state(state)": "Generator.set_state;", "plugin.make_ready(address(x))": "ready;",
    "x + 1": "", "x.shape, x.stride(), x[1:].storage_offset()": "", "x.detach(), x.data": "",
}  # fmt: skip


def test_core_asks_before_it_reads(process):
    said = process(f"""
x = rabbet.ones(4)
state = rabbet.default_generator.get_state()
must(plugin.defer(0, 2))
for text in {list(READS)}:
    asked()
    eval(text)
    print(asked())
plugin.fail(1)
for text in {[t for t, what in READS.items() if what]}:
    print(error(lambda: must(eval(text)) if "plugin" in text else eval(text)))
""").splitlines()
    for (text, what), found in zip(READS.items(), said, strict=False):
        assert (
            found.replace("int()", "item()").replace("float()", "item()") == what
            or what == "__bool__();"
        ), (
            text,
            found,
        )
    failed = said[len(READS) :]
    assert len(failed) == sum(1 for what in READS.values() if what)
    assert all("the kernels failed" in line for line in failed), failed


def test_core_knows_who_has_memory(process):
    said = process("""
x = rabbet.ones(100)
print(memory(x, 400))
view, alias, apart = x[10:20], x.detach(), x.data
print(memory(x, 400), memory(view, 400))
del view, alias
print(memory(x, 400), memory(apart, 400))
other = apart[3:]
print(memory(x, 400), memory(apart, 400))
del x
print(memory(other, 400))
del apart, other
for give in (lambda t: t.numpy(), lambda t: t.data_ptr(), lambda t: np.from_dlpack(t), lambda t: memoryview(t[1:])):
    t = rabbet.ones(100)
    give(t)
    print(memory(t, 400) < 0, memory(t.clone(), 400))
array = np.ones(50)
print(memory(rabbet.from_numpy(array), 400), memory(rabbet.from_dlpack(array), 400), memory(rabbet.from_numpy(array)[3:] + 1, 376))
for read in (lambda t: t.tolist(), lambda t: t.sum().item(), lambda t: str(t), lambda t: t.untyped_storage().nbytes()):
    t = rabbet.ones(100)
    read(t)
    print(memory(t, 400))
print(plugin.memory_of_nothing() != 0)
""")
    assert said.split("\n") == [
        "1", "4 4", "2 2", "2 3", "2",
        "True 1", "True 1", "True 1", "True 1",
        "-1 -1 1",
        "1", "1", "1", "1",
        "True", "",
    ]  # fmt: skip


def test_core_counts_the_threads_that_use_it(process):
    said = process("""
rabbet.set_num_threads(4)
print(plugin.threads())
rabbet.ones(1 << 22).exp()  # on the threads of core's pool, too
print(plugin.threads(), plugin.threads_begun())
must(plugin.defer(0, 2))
inside, leave = threading.Event(), threading.Event()
def work():
    rabbet.ones(2)
    inside.set()
    leave.wait()
idle = threading.Thread(target=lambda: None)
thread = threading.Thread(target=work)
idle.start(); idle.join(); thread.start(); inside.wait()
print(plugin.threads(), plugin.threads_begun())
leave.set(); thread.join()
deadline = time.monotonic() + 30
while plugin.threads() > 1 and time.monotonic() < deadline: time.sleep(0.001)
print(plugin.threads())
pid = os.fork()
if not pid: os._exit(plugin.threads())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
    assert said.split() == ["1", "1", "0", "2", "1", "1", "1"]


def test_kernels_of_elements_can_be_had(process):
    said = process("""
cpu = 1
i64, f32, f64 = 5, 11, 12  # RB_I64, RB_F32, RB_F64
ask = lambda op, backend=cpu, dtype=f32: plugin.pointwise(op, backend, dtype)
print([ask(op) for op in (b"add", b"exp", b"where", b"lt")], ask(b"exp", dtype=f64))
print([ask(op) for op in (b"matmul", b"sum", b"view", b"randn", b"cumsum", b"nothing", None)])
print(ask(b"exp", dtype=i64), ask(b"exp", backend=0), ask(b"exp", backend=14), ask(b"exp", dtype=99), ask(b"exp", dtype=-1))
print([plugin.composed(op, cpu) for op in (b"zero", b"linear", b"add", b"view", b"nothing", None)], plugin.composed(b"zero", 0))
x, out = rabbet.linspace(-2, 2, 100), rabbet.zeros(100)
given, made = x[10:20], out[30:40]
must(plugin.run_pointwise(b"exp", address(given), address(made)))
print(out[30:40].equal(x[10:20].exp()), out[:30].any().item(), out[40:].any().item())
""")
    first, none, bad, composed, ran = said.splitlines()
    assert first == "[1, 1, 1, 1] 1" and none == str([0] * 7) and bad == "0 0 0 0 0"
    assert composed == "[1, 0, 0, 0, 0, 0] 0" and ran == "True False False"
