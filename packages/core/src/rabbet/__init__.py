"""Rabbet: tensors and deep learning with PyTorch's programming model, in parts that fit together.

This package is `rabbet-core`. Every operator with a record is a function here (`rabbet.add`); `rabbet.ops` has all
of them, hidden ones included. `rabbet.nn`, `rabbet.optim`, `rabbet.distributions`, `rabbet.profiler`,
`rabbet.graph`, `rabbet.autograd`, `rabbet.amp` and the backends are other wheels.
"""

import os as _os
import sys as _sys
from types import ModuleType as _ModuleType

from . import _C
from ._C import (
    ArgumentError,
    DeviceError,
    DTypeError,
    Generator,
    InternalError,
    NotImplementedForError,
    Op,
    OutOfMemoryError,
    OutOfRangeError,
    PluginError,
    RabbetError,
    Size,
    StateError,
    Tensor,
    UnsupportedDTypeError,
    device,
    dtype,
    layout,
    memory_format,
)

__version__: str = _C.__version__

_DTYPE_ALIASES = {
    "short": "int16", "int": "int32", "long": "int64", "half": "float16", "float": "float32", "double": "float64",
    "chalf": "complex32", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
_OTHER_WHEELS = {
    "autograd": "rabbet-autograd",
    "nn": "rabbet-nn",
    "optim": "rabbet-optim",
    "distributions": "rabbet-distributions",
    "profiler": "rabbet-profiler",
    "graph": "rabbet-graph",
    "export": "rabbet-graph",
    "func": "rabbet-vmap",
    "vmap": "rabbet-vmap",
    "amp": "rabbet-autocast",
}
_OTHER_WHEELS_BELOW = {  # modules in a package of yet another wheel
    "autograd.profiler": "rabbet-profiler",
    "autograd.profiler_legacy": "rabbet-profiler",
    "autograd.profiler_util": "rabbet-profiler",
}
_OWN_MODULES = {
    "__config__", "accelerator", "array_api", "backends", "compiler", "composite", "cpu", "cuda", "fft",
    "functional", "futures", "hub", "jit", "library", "linalg", "masked", "memory", "monitor", "multiprocessing",
    "overrides", "package", "quasirandom", "random", "return_types", "serialization", "signal", "storage", "testing",
    "torch_version", "types", "utils", "version",
}  # fmt: skip
_ABSENT_MODULES = {  # the tops of those in _absent, which refuse by name
    "ao", "classes", "distributed", "fx", "mps", "mtia", "nested", "numa",
    "onnx", "quantization", "sparse", "xpu",
}  # fmt: skip
# Names that load with the module that defines them.
_LAZY = {
    "_as_torch": {"as_torch"},
    "_counts": {"binomial", "poisson"},
    "_deprecated": {"frobenius_norm", "nuclear_norm", "range"},
    "_legacy": {
        "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
        "IntTensor", "LongTensor", "ShortTensor", "set_default_tensor_type",
    },
    "_lobpcg": {"lobpcg"},
    "_low_rank": {"pca_lowrank", "svd_lowrank"},
    "_histograms": {"histogram", "histogramdd"},
    "_numeric": {"chain_matmul", "gradient", "lu", "matrix_power", "sym_sum"},
    "_settings": {
        "SymBool", "SymFloat", "SymInt", "are_deterministic_algorithms_enabled", "compiled_with_cxx11_abi",
        "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "get_default_device",
        "get_deterministic_debug_mode", "get_device_module", "get_float32_matmul_precision",
        "get_num_interop_threads", "has_cuda", "has_lapack", "has_mkl", "has_openmp", "has_spectral",
        "is_autocast_cpu_enabled", "is_conj", "is_deterministic_algorithms_warn_only_enabled",
        "is_distributed", "is_inference", "is_neg", "is_nonzero", "is_same_size", "is_signed",
        "is_vulkan_available", "is_warn_always_enabled", "set_autocast_cpu_dtype", "set_autocast_cpu_enabled",
        "set_autocast_gpu_dtype", "set_default_device", "set_deterministic_debug_mode",
        "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads", "set_warn_always",
        "sym_constrain_range", "sym_constrain_range_for_size", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min",
        "sym_not", "sym_sqrt", "typename",
        "use_deterministic_algorithms",
    },
    "_streams": {"Event", "Stream"},
    "_windows": {"bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"},
    "amp": {
        "GradScaler", "autocast", "autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache",
        "get_autocast_dtype", "is_autocast_cache_enabled", "is_autocast_enabled", "set_autocast_cache_enabled",
        "set_autocast_dtype", "set_autocast_enabled",
    },
    "autograd": {
        "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad",
        "set_grad_enabled",
    },
    "autograd.anomaly_mode": {
        "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled",
    },
    "compiler": {"compile"},
    "futures": {"Future"},
    "graph": {"cond", "while_loop"},
    "jit": {"ScriptModule"},
    "nn.flat": {
        "adaptive_max_pool1d", "affine_grid_generator", "alpha_dropout", "alpha_dropout_", "batch_norm", "binary_cross_entropy_with_logits",
        "constant_pad_nd", "convolution", "cosine_embedding_loss", "ctc_loss", "dropout_", "feature_alpha_dropout",
        "feature_alpha_dropout_",
        "embedding_renorm_", "feature_dropout", "feature_dropout_", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "gru", "gru_cell",
        "hinge_embedding_loss", "instance_norm", "kl_div", "lstm", "lstm_cell", "margin_ranking_loss", "native_batch_norm",
        "native_dropout", "norm_except_dim",
        "poisson_nll_loss", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell", "triplet_margin_loss",
    },
    "nn.functional": {
        "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "celu_", "channel_shuffle", "conv1d", "conv2d",
        "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity",
        "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool3d",
        "native_channel_shuffle", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "rms_norm",
        "rrelu", "rrelu_", "selu_", "threshold_",
    },
    "serialization": {"load", "save"},
    "storage": {
        "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage", "ComplexDoubleStorage", "ComplexFloatStorage",
        "DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage", "LongStorage", "ShortStorage", "StorageBase",
        "TypedStorage", "UntypedStorage", "from_file", "is_storage",
    },
}  # fmt: skip
# Dtypes that core adds when they are named.
_NAMED_DTYPES = {
    "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8", "float4_e2m1fn_x2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "int1", "int2", "int3", "int4", "int5", "int6", "int7", "qint32", "qint8", "quint2x4",
    "quint4x2", "quint8", "uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7",
}  # fmt: skip
# Methods that write their tensor, and that are functions too.
_WRITING = [
    "abs_",
    "acos_",
    "acosh_",
    "addmv_",
    "arccos_",
    "arccosh_",
    "arcsin_",
    "arcsinh_",
    "arctan_",
    "arctanh_",
    "as_strided_",
    "asin_",
    "asinh_",
    "atan_",
    "atanh_",
    "ceil_",
    "clamp_",
    "clamp_max_",
    "clamp_min_",
    "clip_",
    "conj_physical_",
    "cos_",
    "cosh_",
    "deg2rad_",
    "erf_",
    "erfc_",
    "exp2_",
    "exp_",
    "expm1_",
    "fill_",
    "fix_",
    "floor_",
    "frac_",
    "gcd_",
    "i0_",
    "index_put_",
    "lcm_",
    "ldexp_",
    "log10_",
    "log1p_",
    "log2_",
    "log_",
    "logit_",
    "nan_to_num_",
    "neg_",
    "negative_",
    "rad2deg_",
    "reciprocal_",
    "relu_",
    "resize_as_",
    "round_",
    "rsqrt_",
    "sigmoid_",
    "sin_",
    "sinc_",
    "sinh_",
    "sqrt_",
    "square_",
    "tan_",
    "tanh_",
    "trunc_",
    "xlogy_",
    "zero_",
]
_LAZY_NAMES = {name: module for module, names in _LAZY.items() for name in names}


def get_include() -> str:
    """Return the folder of the public headers: compile plugins with `-I` this."""
    here = _os.path.join(_os.path.dirname(_C.__file__), "include")
    if _os.path.isdir(here):
        return here
    return _os.path.normpath(_os.path.join(_os.path.dirname(__file__), "..", "..", "include"))


def _extend_path() -> None:
    """Find the parts of this package that other wheels, perhaps editable ones, keep elsewhere."""
    for entry in _sys.path:
        folder = _os.path.join(entry or ".", "rabbet")
        if folder not in __path__ and _os.path.isdir(folder):
            __path__.append(folder)


class _Namespace:
    """The operators of a namespace: `ops.mine.scale` is "mine::scale". They may come and go."""

    def __init__(self, space: str) -> None:
        self._space = space

    def __getattr__(self, name: str) -> Op:
        try:
            return _C.op(f"{self._space}::{name}")
        except KeyError:
            raise AttributeError(f"there is no operator '{self._space}::{name}'") from None

    def __dir__(self) -> list[str]:
        prefix = f"{self._space}::"
        return sorted(n.removeprefix(prefix) for n in _C.record_names() if n.startswith(prefix))

    def __repr__(self) -> str:
        return f"<operators rabbet.ops.{self._space}: {', '.join(dir(self)) or 'none'}>"


class _Ops:
    """Every operator by name, hidden ones and overloads included: `ops.linear`, `ops("max.dim")`, `ops.mine.scale`."""

    def __getattr__(self, name: str) -> object:
        if name in ("aten", "rabbet"):
            setattr(self, name, _submodule("_aten").space(name))
            return getattr(self, name)
        try:
            found = _C.op(name)
        except KeyError:
            if _has_namespace(name):
                return _Namespace(name)
            text = f"there is no operator and no namespace '{name}'{_plugins.unread()}"
            raise AttributeError(text) from None
        setattr(self, name, found)
        return found

    def __call__(self, name: str) -> Op:
        space, colons, _ = name.partition("::") if isinstance(name, str) else ("", "", "")
        if colons and not _has_namespace(space):
            raise KeyError(f"no operator '{name}'{_plugins.unread()}")
        return _C.op(name)

    def load_library(self, path: object) -> None:
        """Load a plugin: a library that exports `rabbet_plugin_v0` and registers operators, kernels or layers.

        Raises:
            OSError: if the library cannot be read or is not a plugin. Libraries of operators for PyTorch are not.
            PluginError: if the plugin does not load.
        """
        library = _os.path.abspath(path)  # type: ignore[call-overload]
        reason = "there is no such file"
        if _os.path.isfile(library):
            if _plugins.is_plugin(library):
                return _C.load_plugin(library)
            reason = (
                "it exports no rabbet_plugin_v0; rabbet runs no operators built for PyTorch's C++ library "
                "(docs/reference/porting-extensions.md)"
            )
        raise OSError(f"ops.load_library: {path!r} cannot be loaded: {reason}")

    def __dir__(self) -> list[str]:
        return sorted(set(_C.record_names()) | set(_C.op_names()))


ops = _Ops()


def _has_namespace(space: str) -> bool:
    """Whether operators `space::...` exist; loads the op pack that provides them.

    Raises:
        PluginError: if the pack is installed and fails.
    """
    if not _names_below(space):
        _plugins.load_ops(space)
    return len(_names_below(space)) > 0


def _names_below(space: str) -> list[str]:
    return [n for n in _C.record_names() if n.startswith(f"{space}::")]


def _fill_namespace() -> None:
    scope = globals()
    for name in _C.op_names():
        if name not in _OWN_MODULES:
            scope.setdefault(name, _C.op(name))
    for name in _C.dtype_names():
        scope[name] = getattr(_C, name)
    for alias, name in _DTYPE_ALIASES.items():
        scope[alias] = getattr(_C, name)
    for name in (
        "strided",
        "sparse_coo",
        "sparse_csr",
        "sparse_csc",
        "sparse_bsr",
        "sparse_bsc",
        "jagged",
        "contiguous_format",
        "preserve_format",
        "channels_last",
        "channels_last_3d",
    ):
        scope[name] = getattr(_C, name)
    scope.update(
        legacy_contiguous_format=scope["contiguous_format"],
        inf=1e999,
        nan=1e999 - 1e999,
        pi=3.141592653589793,
        e=2.718281828459045,
        newaxis=None,
    )


_fill_namespace()
_extend_path()

from . import _decompositions, _plugins  # noqa: E402
from ._foreach import *  # noqa: E402, F403
from ._functions import *  # noqa: E402, F403
from ._out_of_memory import install as _install_reports  # noqa: E402
from ._random import *  # noqa: E402, F403
from ._tensor import install as _install  # noqa: E402


class _LastFinder:
    """Answers for modules below rabbet that no other finder has, in every form of import."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> object:
        """The spec of a module in a wheel that came later, or of one that rabbet refuses by name.

        Raises:
            ModuleNotFoundError: naming the wheel to install.
        """
        package, _, name = fullname.partition(".")
        if package != "rabbet" or fullname.startswith("rabbet._absent"):
            return None
        wheel = _OTHER_WHEELS.get(name) or _OTHER_WHEELS_BELOW.get(name)
        if wheel is None:
            spec: object = _submodule("_absent").spec_of(fullname)
            return spec or _submodule("_op_modules").spec_of(fullname)
        from importlib.machinery import PathFinder

        _extend_path()
        above = name.split(".")[:-1]
        spec = PathFinder.find_spec(fullname, [_os.path.join(p, *above) for p in __path__])
        if spec is None:
            raise ModuleNotFoundError(
                f"{fullname} needs the wheel '{wheel}': pip install {wheel}", name=fullname
            )
        return spec


def _library() -> _ModuleType:
    return _submodule("library")


_sys.meta_path.append(_LastFinder)  # type: ignore[arg-type]
_install()
_install_reports()
globals().update((name, getattr(Tensor, name)) for name in _WRITING)
_decompositions.install()
_plugins.install(_library)


def __getattr__(name: str) -> object:
    if name in _LAZY_NAMES:
        value = getattr(_installed(_LAZY_NAMES[name], name), name)
        globals()[name] = value
        return value
    if name == "default_generator":
        return _C.default_generator("cpu")
    if name in _OTHER_WHEELS or name in _OWN_MODULES or name in _ABSENT_MODULES:
        return _submodule(name)
    if name in _modules_of_records():
        return _submodule(name)
    if name in _NAMED_DTYPES:
        return _C.named_dtype(name)  # an attribute from now on
    if not name.startswith("_"):
        flat = _submodule("_absent.flat")
        if name in flat.REFUSED:
            return flat.refusal(name)
    text = f"module 'rabbet' has no attribute '{name}'"
    if not name.startswith("_") and (near := _submodule("_misspelled").nearest(name, __dir__())):
        text += f"; did you mean '{near}'?"
    raise AttributeError(text, name=name)


def _installed(module: str, attribute: str) -> _ModuleType:
    """The module of a name that another wheel may bring; without the wheel `rabbet` has no such attribute."""
    try:
        return _submodule(module)
    except ModuleNotFoundError as error:
        wheel = (error.name or "").removeprefix("rabbet.")
        if wheel not in _OTHER_WHEELS:  # of a module that is there, and imports what is not
            raise
        text = f"module 'rabbet' has no attribute '{attribute}': {error}"
        raise AttributeError(text, name=attribute) from error


def _is_installed(name: str) -> bool:
    """Whether a module of `rabbet` is there, perhaps in another wheel."""
    for folder in __path__:
        place = _os.path.join(folder, *name.split("."))
        if _os.path.isfile(f"{place}.py") or _os.path.isfile(_os.path.join(place, "__init__.py")):
            return True
    return False


def _modules_of_records() -> set[str]:
    """The modules that exist because records expose operators in them; what is below them left out."""
    known = {*_OTHER_WHEELS, *_OWN_MODULES, *_ABSENT_MODULES}
    return {name.partition(".")[0] for name in _C.op_modules()} - known


def __dir__() -> list[str]:
    """All names, those included that load when they are first used; of other wheels only what is installed."""
    modules = {name for name in _OTHER_WHEELS if _is_installed(name)}
    lazy = {n for module, names in _LAZY.items() if _is_installed(module) for n in names}
    return sorted(
        {
            *globals(),
            "default_generator",
            *modules,
            *lazy,
            *_OWN_MODULES,
            *_ABSENT_MODULES,
            *_modules_of_records(),
            *_NAMED_DTYPES,
        }
    )


def _submodule(name: str) -> _ModuleType:
    import importlib

    return importlib.import_module(f"rabbet.{name}")
