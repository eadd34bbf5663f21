"""Modules of PyTorch's that rabbet refuses by name, all from one table.

A program may import them and ask whether they are available. What would do the work raises NotImplementedError with
the reason. A name that stands in no table is missing, as in every module.
"""

import contextlib
import enum
import importlib
import importlib.machinery
import multiprocessing
import os
import re
import urllib.parse
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from . import _C


class Absent(NamedTuple):
    """A module that is not there: why, what refuses, and what it truly answers."""

    reason: str
    functions: str = ""  # raise when they are called
    classes: str = ""  # raise when an object is made
    answers: dict[str, Any] = {}  # functions that return a value
    others: dict[str, Any] = {}  # what works as it is


_NETWORK = "rabbet loads nothing from the network; read a file with load()"
_NO_DISTRIBUTED = "rabbet has no distributed package yet: it runs in one process"
_NO_EXPORT = "rabbet has no exporter yet"
_NO_GRAPHS = "rabbet captures no graphs yet: programs run eagerly"
_NO_QUANTIZATION = "rabbet has no quantization package yet"
_NO_SPARSE = "rabbet has no sparse tensors yet"
_NO_PIPES = "rabbet has no data pipes; utils.data has datasets and loaders"


def _unchanged(function: Any) -> Any:
    return function


def _marks_nothing(*args: Any) -> Callable[[Any], Any]:
    """A decorator with arguments that leaves functions as they are: what it marks them for refuses."""
    return _unchanged


# Constants that programs name where they define functions.
ReduceOp = enum.Enum("ReduceOp", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM")
ProfilerActivity = enum.Enum("ProfilerActivity", "CPU CUDA XPU MTIA")
TrainingMode = enum.Enum("TrainingMode", "EVAL PRESERVE TRAINING", start=0)
OperatorExportTypes = enum.Enum(
    "OperatorExportTypes", "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH", start=0
)


class _Group:
    """The group of all processes, which there is none of."""

    WORLD = None


class LinAlgError(RuntimeError):
    """What linear algebra raises for matrices that it cannot take."""


def download_folder() -> str:
    """The folder in which PyTorch keeps what it loads: $TORCH_HOME, else torch/ in the user's folder for caches."""
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


class _HubFolder:
    """The folder of models: hub/ in `download_folder()`, or what `set_dir` was given."""

    chosen: str | None = None


def hub_folder() -> str:
    """The folder of models that are there already; rabbet puts nothing there."""
    return _HubFolder.chosen or os.path.join(download_folder(), "hub")


def set_hub_folder(d: str | os.PathLike[str]) -> None:
    """Set the folder that get_dir() names."""
    _HubFolder.chosen = os.path.expanduser(d)


def _progress(*args: Any, **kwargs: Any) -> Any:
    """The progress bar of the package tqdm, which PyTorch shows where it loads files."""
    return importlib.import_module("tqdm").tqdm(*args, **kwargs)


class _RecordFunction(contextlib.ContextDecorator):
    """Names a stretch of code for a profiler; without one it does nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> "_RecordFunction":
        return self

    def __exit__(self, *error: object) -> None: ...


def _no_device(name: str) -> Absent:
    return Absent(
        f"there is no backend for {name}",
        functions="current_device device empty_cache get_device_name get_device_properties memory_allocated "
        "set_device synchronize get_rng_state set_rng_state",
        answers={
            "is_available": False, "is_initialized": False, "device_count": 0, "manual_seed": None,
            "manual_seed_all": None, "seed": None, "seed_all": None,
        },
    )  # fmt: skip


ABSENT: dict[str, Absent] = {
    "distributed": Absent(
        _NO_DISTRIBUTED,
        functions="init_process_group destroy_process_group new_group all_reduce all_gather all_gather_into_tensor "
        "all_gather_object all_to_all all_to_all_single broadcast broadcast_object_list barrier gather "
        "gather_object get_backend get_rank get_world_size get_process_group_ranks irecv isend monitored_barrier "
        "recv reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list send",
        classes="ProcessGroup Store TCPStore FileStore HashStore Work",
        answers={
            "is_available": False, "is_initialized": False, "is_nccl_available": False,
            "is_gloo_available": False, "is_mpi_available": False, "is_ucc_available": False,
            "is_torchelastic_launched": False,
        },
        others={"ReduceOp": ReduceOp, "group": _Group},
    ),
    "distributed.rpc": Absent(
        _NO_DISTRIBUTED,
        functions="get_worker_info init_rpc remote rpc_async rpc_sync shutdown",
        classes="RRef TensorPipeRpcBackendOptions",
    ),
    "fx": Absent(
        _NO_GRAPHS,
        functions="symbolic_trace replace_pattern map_arg",
        classes="Graph GraphModule Interpreter Node Proxy Tracer Transformer",
        others={"wrap": _unchanged},  # marks functions for a tracer; eager code calls them
    ),
    "fx.graph_module": Absent(
        _NO_GRAPHS,
        functions="_assign_attr _copy_attr",
        classes="GraphModule _CodeOnlyModule",
        others={"_USER_PRESERVED_ATTRIBUTES_KEY": "_user_preserved_attributes"},
    ),
    "fx.node": Absent(_NO_GRAPHS, functions="map_arg", classes="Node", others={"Argument": Any, "Target": Any}),
    "fx.proxy": Absent(_NO_GRAPHS, classes="GraphAppendingTracer Proxy TracerBase"),
    "fx.experimental": Absent(_NO_GRAPHS),
    "fx.experimental.proxy_tensor": Absent(
        _NO_GRAPHS, functions="make_fx", answers={"get_proxy_mode": None}
    ),
    "hub": Absent(
        _NETWORK,
        functions="download_url_to_file help list load load_state_dict_from_url",
        others={
            "HASH_REGEX": re.compile(r"-([a-f0-9]*)\."), "urlparse": urllib.parse.urlparse, "get_dir": hub_folder,
            "set_dir": set_hub_folder, "_get_torch_home": download_folder,
        },
    ),
    "linalg": Absent(
        "rabbet has no linear algebra package yet",
        functions="cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv "
        "inv_ex ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp "
        "matrix_norm matrix_power matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd "
        "svdvals tensorinv tensorsolve vander vecdot vector_norm",
        others={"LinAlgError": LinAlgError},
    ),
    "fft": Absent(
        "rabbet has no Fourier transforms yet",
        functions="fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn "
        "irfft irfft2 irfftn rfft rfft2 rfftfreq rfftn",
    ),
    "sparse": Absent(
        _NO_SPARSE,
        functions="addmm as_sparse_gradcheck log_softmax mm sampled_addmm softmax spdiags sum "
        "to_sparse_semi_structured",
        classes="SparseSemiStructuredTensor",
    ),
    "nested": Absent(
        "rabbet has no nested tensors yet",
        functions="as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged to_padded_tensor",
    ),
    "utils.model_zoo": Absent(_NETWORK, functions="load_url", others={"tqdm": _progress}),
    "utils.cpp_extension": Absent(
        "extensions of PyTorch's C++ library cannot be built; rabbet's are plugins: rabbet new-plugin",
        functions="load load_inline include_paths library_paths CppExtension CUDAExtension SyclExtension",
        classes="BuildExtension",
        answers={"is_ninja_available": False},
        others={"CUDA_HOME": None, "ROCM_HOME": None},
    ),
    "onnx.operators": Absent(_NO_EXPORT, functions="reshape_from_tensor_shape shape_as_tensor"),
    "onnx.symbolic_helper": Absent(_NO_EXPORT, others={"parse_args": _marks_nothing}),
    "onnx.symbolic_opset11": Absent(_NO_EXPORT),
    "onnx": Absent(
        _NO_EXPORT,
        functions="export is_onnxrt_backend_supported",
        classes="ExportOptions ONNXProgram",
        others={"OperatorExportTypes": OperatorExportTypes, "TrainingMode": TrainingMode},
        answers={
            "is_in_onnx_export": False,
            "register_custom_op_symbolic": None, "unregister_custom_op_symbolic": None,  # for export(), which refuses
        },
    ),
    "export": Absent(
        _NO_EXPORT, functions="export load save register_dataclass", classes="Dim ExportedProgram"
    ),
    "futures": Absent(
        "rabbet runs nothing in the background yet", functions="collect_all wait_all", classes="Future"
    ),
    "mps": _no_device("mps"),
    "mtia": _no_device("mtia"),
    "xpu": _no_device("xpu"),
    "ao": Absent(_NO_QUANTIZATION),
    "ao.quantization": Absent(
        _NO_QUANTIZATION,
        functions="convert get_default_qat_qconfig get_default_qconfig prepare prepare_qat quantize "
        "quantize_dynamic quantize_qat",
        classes="DeQuantStub FakeQuantize MinMaxObserver ObserverBase QConfig QuantStub",
    ),
    "profiler": Absent(
        "rabbet has no profiler package yet",
        functions="schedule tensorboard_trace_handler",
        classes="EventList profile",
        others={"record_function": _RecordFunction, "ProfilerActivity": ProfilerActivity},
    ),
    "multiprocessing": Absent(
        "rabbet shares no tensors among processes yet",
        functions="spawn start_processes Manager Process Pool Queue SimpleQueue get_context",
        answers={"set_sharing_strategy": None, "get_all_sharing_strategies": set()},
        others={
            "set_start_method": multiprocessing.set_start_method, "cpu_count": multiprocessing.cpu_count,
            "current_process": multiprocessing.current_process,
        },
    ),
}  # fmt: skip
ABSENT["autograd.profiler"] = ABSENT["profiler"]
ABSENT["autograd.profiler_legacy"] = ABSENT["profiler"]
ABSENT["quantization"] = ABSENT["ao.quantization"]


def _refusing_function(module: str, name: str, reason: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise _C.NotImplementedForError(f"{module}.{name}: {reason}")

    refused.__name__ = refused.__qualname__ = name
    refused.__module__ = module
    refused.__doc__ = f"Not there: {reason}."
    refused.__refused__ = reason  # type: ignore[attr-defined]
    return refused


def _refusing_class(module: str, name: str, reason: str) -> type:
    def refused(self: Any, *args: Any, **kwargs: Any) -> None:
        raise _C.NotImplementedForError(f"{module}.{name}: {reason}")

    contents = {
        "__init__": refused, "__module__": module, "__doc__": f"Not there: {reason}.", "__refused__": reason,
    }  # fmt: skip
    return type(name, (), contents)


def _answering_function(name: str, answer: Any) -> Callable[..., Any]:
    def answering(*args: Any, **kwargs: Any) -> Any:
        return answer

    answering.__name__ = answering.__qualname__ = name
    answering.__doc__ = f"Always {answer}."
    return answering


def _fill(module: ModuleType, what: Absent) -> None:
    name = module.__name__
    scope = vars(module)
    scope.update({n: _refusing_function(name, n, what.reason) for n in what.functions.split()})
    scope.update({n: _refusing_class(name, n, what.reason) for n in what.classes.split()})
    scope.update({n: _answering_function(n, answer) for n, answer in what.answers.items()})
    scope.update(what.others)
    scope["__all__"] = sorted(n for n in scope if not n.startswith("_"))
    scope["__refused__"] = what.reason


class _Loader:
    """Makes a module from its row of the table."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, f"Not in rabbet: {ABSENT[spec.name[7:]].reason}.")

    def exec_module(self, module: ModuleType) -> None:
        _fill(module, ABSENT[module.__name__[7:]])


def spec_of(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of `rabbet.NAME` if the table has it."""
    name = fullname.removeprefix("rabbet.")
    if name not in ABSENT:
        return None
    is_package = any(other.startswith(f"{name}.") for other in ABSENT)
    loader: Any = _Loader()
    return importlib.machinery.ModuleSpec(
        fullname, loader, origin="rabbet._absent", is_package=is_package
    )
