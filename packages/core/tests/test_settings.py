"""Settings and queries of PyTorch's that programs use: what they keep, answer and refuse."""

import collections
import importlib
import operator
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import rabbet
from rabbet import _absent


@pytest.fixture
def settings():
    """Settings as they were before."""
    yield
    rabbet.use_deterministic_algorithms(False)
    rabbet.set_float32_matmul_precision("highest")
    rabbet.set_num_interop_threads(1)
    rabbet.set_warn_always(False)
    rabbet.set_default_dtype(rabbet.float32)


# ---- settings


def test_determinism_can_be_asked_for(settings):
    assert rabbet.get_deterministic_debug_mode() == 0
    rabbet.use_deterministic_algorithms(True)
    assert rabbet.are_deterministic_algorithms_enabled()
    assert rabbet.get_deterministic_debug_mode() == 2
    rabbet.set_deterministic_debug_mode("warn")
    assert rabbet.is_deterministic_algorithms_warn_only_enabled()
    assert rabbet.get_deterministic_debug_mode() == 1
    rabbet.set_deterministic_debug_mode(0)
    assert not rabbet.are_deterministic_algorithms_enabled()


def test_numbers_are_kept(settings):
    rabbet.set_float32_matmul_precision("medium")
    rabbet.set_num_interop_threads(3)
    rabbet.set_warn_always(True)
    assert rabbet.get_float32_matmul_precision() == "medium"
    assert rabbet.get_num_interop_threads() == 3 and rabbet.is_warn_always_enabled()
    assert (rabbet.set_flush_denormal(False), rabbet.set_flush_denormal(True)) == (True, False)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: rabbet.use_deterministic_algorithms(3), TypeError, "mode must be a bool, got int"),
        (lambda: rabbet.set_deterministic_debug_mode("x"), RuntimeError, "invalid value of debug_mode"),
        (lambda: rabbet.set_deterministic_debug_mode(3), RuntimeError, "expected 0, 1, or 2, but got 3"),
        (lambda: rabbet.set_deterministic_debug_mode(1.0), TypeError, "debug_mode must be str or int"),
        (lambda: rabbet.set_float32_matmul_precision("x"), RuntimeError, "expected one of highest, high, medium"),
        (lambda: rabbet.set_num_interop_threads(0), RuntimeError, "Expected positive number of threads"),
        (lambda: rabbet.set_num_interop_threads(1.5), TypeError, "expects an int, but got float"),
        (lambda: rabbet.set_default_device("nowhere"), RuntimeError, "nowhere"),
        (lambda: rabbet.device("cpu").__exit__(None, None, None), RuntimeError, "no block was entered"),
        (lambda: rabbet.device("cpu")(int), RuntimeError, "Cannot decorate classes"),
        (lambda: rabbet.device("cpu")(), TypeError, "func"),
        (lambda: rabbet.set_default_tensor_type(3), TypeError, "invalid type object: 3"),
        (lambda: rabbet.set_default_tensor_type("torch.cuda.FloatTensor"), NotImplementedError, "on the CPU"),
        (lambda: rabbet.set_default_tensor_type("FloatTensor"), ValueError, "invalid type: 'FloatTensor'"),
        (lambda: rabbet.is_nonzero(rabbet.zeros(2)), RuntimeError, "more than one value is ambiguous"),
        (lambda: rabbet.is_nonzero(rabbet.zeros(0)), RuntimeError, "no values is ambiguous"),
        (lambda: rabbet.get_device_module("meta"), RuntimeError, "'meta' does not have a corresponding module"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(settings, call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_devices_and_types_by_default(settings):
    rabbet.set_default_device("cpu")
    assert rabbet.get_default_device() == rabbet.device("cpu")
    assert rabbet.get_device_module("cpu") is rabbet.cpu and rabbet.cpu.device_count() == 1
    rabbet.set_default_tensor_type("torch.DoubleTensor")
    assert rabbet.zeros(1).dtype == rabbet.float64
    rabbet.set_default_tensor_type(rabbet.FloatTensor)
    assert rabbet.zeros(1).dtype == rabbet.float32


def test_queries():
    x = rabbet.tensor([1.0])
    assert rabbet.is_nonzero(x) and not rabbet.tensor([0]).is_nonzero()
    assert rabbet.is_same_size(x, -x) and not x.is_same_size(rabbet.zeros(2))
    signs = {"float32": True, "int8": True, "uint8": False, "bool": False, "uint16": False}
    assert {n: rabbet.zeros(1, dtype=getattr(rabbet, n)).is_signed() for n in signs} == signs
    assert rabbet.typename(x) == "rabbet.FloatTensor"
    assert [rabbet.typename(v) for v in (3, [1], np.zeros(1), int)] == [
        "int",
        "list",
        "numpy.ndarray",
        "int",
    ]
    assert [
        rabbet.sym_int(2.7),
        rabbet.sym_float(2),
        rabbet.sym_max(1, 2.0),
        rabbet.sym_min(1, 2),
    ] == [2, 2.0, 2.0, 1]
    assert (
        type(rabbet.sym_max(3, 2.0)) is float
        and rabbet.sym_not(False)
        and rabbet.sym_ite(True, 1, 2) == 1
    )


def test_result_types_have_their_place():
    import pickle

    found = rabbet.ones(2, 3).max(0)
    assert type(found) is rabbet.return_types.max and "topk" in dir(rabbet.return_types)
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found) and again.indices.tolist() == [0, 0, 0]


def test_random_states_are_forked():
    rabbet.random.manual_seed(3)
    expected = rabbet.rand(2).tolist()
    rabbet.random.manual_seed(3)
    with rabbet.random.fork_rng():
        rabbet.rand(5)
    assert rabbet.rand(2).tolist() == expected
    with rabbet.random.fork_rng(enabled=False):
        rabbet.rand(1)
    assert rabbet.rand(2).tolist() != expected


# ---- tensor types


@pytest.mark.parametrize("name, dtype", [
    ("FloatTensor", "float32"), ("DoubleTensor", "float64"), ("HalfTensor", "float16"), ("BFloat16Tensor", "bfloat16"),
    ("ByteTensor", "uint8"), ("CharTensor", "int8"), ("ShortTensor", "int16"), ("IntTensor", "int32"),
    ("LongTensor", "int64"), ("BoolTensor", "bool"),
])  # fmt: skip
def test_tensor_types_make_and_recognise_tensors(name, dtype):
    kind, dtype = getattr(rabbet, name), getattr(rabbet, dtype)
    made = kind([1, 0])
    assert made.dtype is dtype and made.tolist() == [1, 0] and isinstance(made, kind)
    assert (
        kind(2, 3).shape == (2, 3) and kind().shape == (0,) and kind(rabbet.Size([4])).shape == (4,)
    )
    assert made.type() == f"rabbet.{name}" and rabbet.zeros(1).type(f"torch.{name}").dtype is dtype
    assert rabbet.zeros(1).type(kind).dtype is dtype and rabbet.ones(1).type(dtype).dtype is dtype
    other = rabbet.LongTensor if name != "LongTensor" else rabbet.FloatTensor
    assert not isinstance(made, other) and not isinstance(3, kind)
    assert (kind.__name__, kind.dtype, kind.is_cuda, rabbet.cuda.FloatTensor.is_cuda) == (
        name,
        dtype,
        False,
        True,
    )


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: rabbet.FloatTensor(3.5), "FloatTensor: expected sizes or data, got float"),
        (lambda: rabbet.FloatTensor("a"), "FloatTensor: expected sizes or data, got str"),
        (lambda: rabbet.FloatTensor([1], [2]), "FloatTensor: expected sizes as integers, or one sequence"),
        (lambda: rabbet.FloatTensor(rabbet.zeros(1).double()), "expected a tensor of rabbet.float32, got rabbet.float64"),
        (lambda: rabbet.zeros(1).new(1.5), "new: expected sizes or data, got float"),
        (lambda: rabbet.zeros(1).type(3), "dtype must be a type, str, or dtype object"),
    ],
)  # fmt: skip
def test_wrong_data_for_tensor_types_is_refused(call, text):
    with pytest.raises(TypeError, match=text):
        call()


def test_types_of_other_devices_need_their_backend():
    with pytest.raises(RuntimeError, match="cuda"):
        rabbet.cuda.FloatTensor(2)
    with pytest.raises(RuntimeError, match="expects device type: cpu but device type: meta"):
        rabbet.FloatTensor(2, device="meta")
    with pytest.raises(ValueError, match=r"invalid type: 'torch\.Foo'"):
        rabbet.zeros(1).type("torch.Foo")


def test_new_tensors_are_like_the_old():
    x = rabbet.arange(3, dtype=rabbet.int16)
    assert x.new(2, 2).dtype is rabbet.int16 and x.new(2, 2).shape == (2, 2)
    assert x.new([1, 2]).tolist() == [1, 2] and x.new().numel() == 0
    assert x.new(x).data_ptr() == x.data_ptr()


# ---- what tensors are


def test_tensors_are_nothing_special():
    x = rabbet.zeros(2)
    for name in [
        "sparse",
        "sparse_csr",
        "quantized",
        "nested",
        "mkldnn",
        "vulkan",
        "xla",
        "xpu",
        "mps",
        "mtia",
        "ipu",
        "maia",
    ]:
        assert getattr(x, f"is_{name}") is False
    assert not (x.is_conj() or x.is_neg() or x.is_distributed() or x.is_shared())
    assert x.get_device() == -1 and rabbet.zeros(2, 3, 4).permute(2, 0, 1).dim_order() == (1, 2, 0)


def test_python_functions_are_applied_in_place():
    x = rabbet.arange(6).reshape(2, 3).t()
    assert x.apply_(lambda v: v * v) is x and x.tolist() == [[0, 9], [1, 16], [4, 25]]
    with pytest.raises(TypeError, match="only implemented on CPU"):
        rabbet.zeros(2, device="meta").apply_(abs)


def test_storages_are_the_memory():
    x = rabbet.arange(4.0)
    part = x[1:3]
    storage = part.untyped_storage()
    assert storage.nbytes() == len(storage) == 16 and storage == x.untyped_storage()
    assert storage.data_ptr() == x.data_ptr() and hash(storage) == hash(x.untyped_storage())
    assert storage != rabbet.zeros(4).untyped_storage() and rabbet.is_storage(storage)
    assert bytes(storage.tolist()) == np.arange(4, dtype=np.float32).tobytes()
    storage[15] = 0xC0
    assert x[3].item() == -3.0 and storage[15] == 0xC0
    copy = storage.clone()
    storage.fill_(0)
    assert x.tolist() == [0.0] * 4
    storage.copy_(copy)
    assert x.tolist() == [0.0, 1.0, 2.0, -3.0] and storage.resize_(16) is storage
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        typed = part.storage()
    assert typed.tolist() == x.tolist() and (len(typed), typed.dtype, typed[3]) == (
        4,
        rabbet.float32,
        -3.0,
    )
    typed[0] = 5
    assert x[0].item() == 5 and not rabbet.is_storage(x) and rabbet.is_storage(typed)
    assert rabbet.zeros(0).untyped_storage().data_ptr() == 0
    with pytest.raises(NotImplementedError, match="keeps its 16 bytes, got 32"):
        storage.resize_(32)
    with pytest.raises(TypeError, match="UntypedStorage: expected a tensor, got int"):
        rabbet.UntypedStorage(3)


# ---- devices that are not there


def test_cuda_says_that_there_is_none():
    cuda = rabbet.cuda
    assert not cuda.is_available() and cuda.device_count() == 0 and not cuda.is_initialized()
    cuda.manual_seed(1), cuda.manual_seed_all(1), cuda.empty_cache(), cuda.seed()
    assert cuda.memory_allocated() == cuda.max_memory_allocated() == cuda.memory_reserved() == 0
    assert (
        cuda.get_rng_state_all() == []
        and cuda.memory_stats() == {}
        and not cuda.is_bf16_supported()
    )
    with cuda.device(None), cuda.device(-1), cuda.stream(None):
        pass
    for name in (
        "current_device",
        "synchronize",
        "get_device_name",
        "current_stream",
        "mem_get_info",
        "init",
    ):
        with pytest.raises(RuntimeError, match="no CUDA device is available; it needs the wheel"):
            getattr(cuda, name)()
    with pytest.raises(AttributeError, match="has no attribute 'foo'"):
        cuda.foo  # noqa: B018


def test_mixed_precision_under_its_older_names():
    amp = pytest.importorskip("rabbet.amp")
    assert issubclass(rabbet.cuda.amp.GradScaler, amp.GradScaler)
    assert not rabbet.cuda.amp.GradScaler(enabled=False).is_enabled()
    with rabbet.cuda.amp.autocast(enabled=False):
        pass


def test_switches_keep_what_they_are_told():
    backends = rabbet.backends
    assert not (
        backends.cudnn.is_available() or backends.mkl.is_available() or backends.mps.is_built()
    )
    assert backends.cudnn.version() is None and backends.cpu.get_cpu_capability() in (
        "DEFAULT",
        "AVX2",
        "AVX512",
    )
    with backends.cudnn.flags(benchmark=True, deterministic=True):
        assert backends.cudnn.benchmark and backends.cudnn.deterministic
    assert not backends.cudnn.benchmark
    backends.cuda.matmul.allow_tf32 = True
    assert backends.cuda.matmul.allow_tf32
    backends.cuda.matmul.allow_tf32 = False
    with backends.cuda.sdp_kernel(enable_flash=False):
        assert not backends.cuda.flash_sdp_enabled() and backends.cuda.math_sdp_enabled()
    assert backends.cuda.flash_sdp_enabled()
    with pytest.raises(TypeError, match=r"cudnn.flags: there is no switch 'foo'"):
        backends.cudnn.flags(foo=1).__enter__()
    import rabbet.backends.cudnn as cudnn

    assert cudnn is backends.cudnn


# ---- compilers that are not there


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    ).stderr


@pytest.mark.parametrize("call", ["rabbet.compile(f)", "rabbet.jit.script(f)"])
def test_compiling_runs_eagerly_and_says_so_once(call):
    absent = "import importlib.util as u; find = u.find_spec; u.find_spec = lambda n: None if n == 'rabbet_compile' else find(n)"
    said = run(
        f"{absent}\nimport rabbet\ndef f(x): return x\nfor _ in range(3): assert {call} is f"
    )
    assert said.count("runs eagerly") == 1


def test_compile_is_a_decorator_and_checks_what_it_gets():
    @rabbet.compile(disable=True)
    def f(x):
        return x + 1

    assert f(1) == 2
    with pytest.raises(TypeError, match="compile: expected a module or a function, got int"):
        rabbet.compile(3)
    with pytest.raises(RuntimeError, match="Either mode or options"):
        rabbet.compile(f, mode="x", options={})
    compiler = rabbet.compiler
    assert (
        not compiler.is_compiling()
        and compiler.disable(f) is f
        and compiler.disable(recursive=False)(f) is f
    )
    with compiler.set_stance("force_eager"):
        pass
    with pytest.raises(RuntimeError, match="set_stance: expected one of"):
        compiler.set_stance("x")


def test_annotations_of_scripts_change_nothing():
    jit = rabbet.jit
    assert not jit.is_scripting() and not jit.is_tracing() and jit.annotate(int, 3) == 3
    for mark in (
        jit.ignore,
        jit.unused,
        jit.export,
        jit.interface,
        jit.script_if_tracing,
        jit.ignore(drop=True),
    ):
        assert mark(len) is len
    assert not isinstance(3, jit.ScriptModule)
    with pytest.raises(RuntimeError, match=r"ignore must be a bool or a function"):
        jit.ignore(3)
    with pytest.raises(TypeError, match=r"jit.script: expected a function"):
        jit.script(3)
    for name in ("trace", "trace_module", "save", "load", "freeze", "fork", "ScriptModule"):
        with pytest.raises(NotImplementedError, match=f"jit.{name}: rabbet has no script compiler"):
            getattr(jit, name)(abs)


def test_types_of_elements_are_checked():
    fits = rabbet.jit.isinstance
    assert (
        fits([1, 2], list[int]) and not fits([1, "a"], list[int]) and fits({"a": 1}, dict[str, int])
    )
    assert fits(None, int | None) and fits(3, int | None) and not fits("a", int | None)
    assert (
        fits((1, "a"), tuple[int, str]) and not fits((1,), tuple[int, str]) and fits(3, (str, int))
    )


# ---- what refuses by name


def rows_of_what_is_not_there():
    return [(name, _absent.row(name)) for name in _absent.names()]


@pytest.mark.parametrize(("name", "what"), rows_of_what_is_not_there())
def test_what_is_not_there_refuses_by_name(name, what):
    module = importlib.import_module(f"rabbet.{name}")
    assert module.__doc__ == f"Not in rabbet: {what.reason}." and module.__refused__ == what.reason
    for part in f"{what.functions} {what.classes}".split():
        found = operator.attrgetter(part)(module)
        with pytest.raises(NotImplementedError, match=rf"^rabbet\.{name}\.{part}: ") as caught:
            found("x", option=1)
        assert what.reason in str(caught.value)
    for part, answer in what.answers.items():
        assert operator.attrgetter(part)(module)() == answer
    for other, names in what.imports.items():
        source = importlib.import_module(f"rabbet.{other}")
        for part in source.__all__ if names == "*" else names.split():
            assert getattr(module, part) is getattr(source, part)
    with pytest.raises(
        AttributeError, match=rf"^rabbet\.{name}\.something_else is not in rabbet yet"
    ):
        operator.attrgetter("something_else")(module)


def test_a_class_that_is_not_there_takes_part_in_types():
    from rabbet.distributed.fsdp import FullyShardedDataParallel as Sharded
    from rabbet.distributed.tensor import DTensor

    assert not isinstance(rabbet.ones(2), DTensor) and issubclass(
        type("Mine", (Sharded,), {}), Sharded
    )
    assert DTensor[int].__origin__ is DTensor and (DTensor | None).__args__[0] is DTensor

    class Mine(Sharded):
        def __init__(self):
            self.ready = True

    with pytest.raises(NotImplementedError, match="no distributed package"):
        Mine()
    with pytest.raises(NotImplementedError, match="no distributed package"):
        Sharded.state_dict_type(None, None)


def test_constants_and_exceptions_of_what_is_not_there_are_real():
    from rabbet.distributed import DistBackendError
    from rabbet.distributed.fsdp import ShardingStrategy
    from rabbet.fx.proxy import TraceError

    assert [s.name for s in ShardingStrategy][:2] == ["FULL_SHARD", "SHARD_GRAD_OP"]
    assert ShardingStrategy["NO_SHARD"] is ShardingStrategy.NO_SHARD
    assert issubclass(TraceError, ValueError) and issubclass(DistBackendError, RuntimeError)
    assert rabbet.export.Dim.AUTO is not rabbet.export.Dim.STATIC
    assert rabbet.distributed.ReduceOp.RedOpType.SUM is rabbet.distributed.ReduceOp.SUM


def test_the_tops_of_what_is_not_there_are_attributes():
    tops = {name.split(".")[0] for name in _absent.names() if not name.startswith("_")}
    assert tops - {"autograd", "cuda", "export", "masked", "nn", "utils"} == rabbet._ABSENT_MODULES
    assert rabbet.distributed.is_available() is False and rabbet.mps.is_available() is False
    assert rabbet.distributed.is_initialized() is False and rabbet.xpu.device_count() == 0


def test_questions_about_symbols_have_plain_answers_for_numbers():
    from rabbet.fx.experimental import symbolic_shapes as shapes

    assert shapes.guard_or_false(True) and not shapes.statically_known_true(False)
    assert shapes.is_concrete_int(3) and not shapes.is_concrete_int(3.0)
    assert shapes.free_symbols(3) == set() and not shapes.has_free_symbols(3)
    assert shapes.sym_eq((1, 2), [1, 2]) and not shapes.sym_eq((1, 2), (1,))
    assert shapes.guard_int(3) == 3 and shapes.sym_and(True, 1) and not shapes.sym_or(False, 0)


def test_eager_parts_of_what_is_not_there_work():
    assert rabbet.fx.wrap(len) is len


def test_folders_of_models_are_named_without_making_any(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert rabbet.hub.get_dir() == str(tmp_path / "hub")
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert rabbet.hub._get_torch_home() == "/cache/torch" and not os.path.exists("/cache/torch")
    monkeypatch.setattr("rabbet.hub._hub_dir", None)
    rabbet.hub.set_dir("~/models")
    assert rabbet.hub.get_dir() == os.path.expanduser("~/models")


def test_what_is_registered_for_an_exporter_is_left_as_it_is():
    from rabbet.onnx.symbolic_helper import parse_args

    assert parse_args("v", "v")(len) is len
    assert rabbet.onnx.register_custom_op_symbolic("mine::op", len, 11) is None
    assert issubclass(rabbet.linalg.LinAlgError, RuntimeError)


def test_annotations_of_scripted_code_say_nothing():
    from rabbet.jit.annotations import BroadcastingList2, List

    assert BroadcastingList2[int] is None and List[int] is not None


def test_a_handle_takes_its_hook_away_once():
    from rabbet.utils.hooks import RemovableHandle

    hooks, flags = collections.OrderedDict(), collections.OrderedDict()
    handle = RemovableHandle(hooks, extra_dict=flags)
    hooks[handle.id] = flags[handle.id] = len
    with RemovableHandle(hooks, extra_dict=[flags]) as other:
        hooks[other.id] = print
    assert list(hooks) == [handle.id] and other.id != handle.id
    handle.remove()
    handle.remove()
    assert not hooks and not flags
    with pytest.raises(TypeError):
        RemovableHandle([])


def test_devices_have_names_before_there_is_a_backend():
    first, second = rabbet.device("mtia"), rabbet.device("mtia", 1)
    assert (first.type, first.index, str(second)) == ("mtia", None, "mtia:1")
    assert first == rabbet.device("mtia") != second != rabbet.device("hpu:1")
    assert len({first, rabbet.device("mtia"), rabbet.device(first)}) == 1
    assert pickle.loads(pickle.dumps(second)) == second
    assert repr(rabbet.device(first, 1)) == "device(type='mtia', index=1)"
    for use in (
        lambda: rabbet.zeros(1, device=first),
        lambda: rabbet.ones(1).to(second),
        lambda: rabbet.Generator(first),
    ):
        with pytest.raises(RuntimeError, match="no backend for device 'mtia' is installed"):
            use()
    with pytest.raises(RuntimeError, match="no backend for device 'nowhere' is installed"):
        rabbet.device("nowhere")


def test_layouts_can_be_named_and_are_refused():
    assert rabbet.ones(1).layout is rabbet.strided != rabbet.sparse_coo
    assert repr(rabbet.sparse_csr) == "rabbet.sparse_csr"
    for layout in (rabbet.sparse_coo, rabbet.jagged):
        with pytest.raises(TypeError, match="the value given for 'layout'"):
            rabbet.zeros(1, layout=layout)


def test_other_modules_stay_missing():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'rabbet.nothing'"):
        importlib.import_module("rabbet.nothing")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        rabbet.nothing  # noqa: B018


def test_tensorboard_is_named_where_it_is_missing():
    code = "import sys; sys.modules['tensorboard'] = None\nimport rabbet.utils.tensorboard"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "needs the package 'tensorboard': pip install tensorboard" in done.stderr


def test_variables_are_tensors():
    autograd = pytest.importorskip("rabbet.autograd")
    x = rabbet.ones(2)
    v = autograd.Variable(x, requires_grad=True)
    assert (
        isinstance(v, autograd.Variable)
        and isinstance(x, autograd.Variable)
        and type(v) is rabbet.Tensor
    )
    assert v.requires_grad and not x.requires_grad and v.data_ptr() == x.data_ptr()
    with pytest.raises(TypeError, match="Variable: expected a tensor, got int"):
        autograd.Variable(3)


def test_names_of_symbols_and_autocast_by_device():
    assert not isinstance(3, rabbet.SymInt)
    with pytest.raises(NotImplementedError, match="SymInt: sizes are numbers"):
        rabbet.SymInt(3)
    pytest.importorskip("rabbet.amp")
    before = rabbet.get_autocast_cpu_dtype()
    with rabbet.autocast("cpu"):
        assert rabbet.is_autocast_cpu_enabled()
    rabbet.set_autocast_cpu_dtype(rabbet.float16)
    assert rabbet.get_autocast_cpu_dtype() is rabbet.float16
    rabbet.set_autocast_cpu_dtype(before)
    assert not rabbet.is_autocast_cpu_enabled()
    assert rabbet.distributed.ReduceOp.SUM.name == "SUM" and rabbet.distributed.group.WORLD is None


@pytest.mark.parametrize(
    "options, tensor, text",
    [
        ({}, lambda: rabbet.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
        ({}, lambda: rabbet.tensor([1 + 2j]), "tensor([1.+2.j])"),
        ({"precision": 2}, lambda: rabbet.tensor([0.125, 3.0]), "tensor([0.12, 3.00])"),
        ({"sci_mode": True}, lambda: rabbet.tensor([0.5]), "tensor([5.0000e-01])"),
        ({"sci_mode": False}, lambda: rabbet.tensor([1e-5, 1e5]), "tensor([     0.0000, 100000.0000])"),
        ({"threshold": 4, "edgeitems": 1}, lambda: rabbet.arange(9).reshape(3, 3), "tensor([[0,  ..., 2],\n        ...,\n        [6,  ..., 8]])"),
        ({"linewidth": 20}, lambda: rabbet.arange(6), "tensor([0, 1, 2, 3,\n        4, 5])"),
        ({"profile": "short"}, lambda: rabbet.tensor([0.125]), "tensor([0.12])"),
        ({}, lambda: rabbet.tensor([0.0, -0.0]), "tensor([0., -0.])"),
        ({}, lambda: rabbet.tensor([0.0, -0.0, 10.0]), "tensor([ 0., -0., 10.])"),
        ({}, lambda: rabbet.tensor([0.5, -0.0]), "tensor([0.5000, -0.0000])"),
        ({}, lambda: rabbet.tensor([-0.0], dtype=rabbet.float64), "tensor([-0.], dtype=rabbet.float64)"),
        ({}, lambda: rabbet.tensor([complex(-0.0, -0.0), 0j]), "tensor([-0.-0.j, 0.+0.j])"),
        ({"sci_mode": True}, lambda: rabbet.zeros(2), "tensor([0., 0.])"),
        ({"edgeitems": 0, "threshold": 2}, lambda: rabbet.arange(30), "tensor([...], size=(30,))"),
        ({"edgeitems": 0}, lambda: rabbet.tensor(1.5), "tensor(1.5000, size=())"),
        ({}, lambda: rabbet.finfo(rabbet.float32), "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)"),
        ({}, lambda: rabbet.iinfo(rabbet.int8), "iinfo(min=-128, max=127, dtype=int8)"),
    ],
)  # fmt: skip
def test_tensors_are_printed_as_torch_does(options, tensor, text):
    rabbet.set_printoptions(**options)
    try:
        assert repr(tensor()) == text
    finally:
        rabbet.set_printoptions(profile="default", sci_mode=None)
