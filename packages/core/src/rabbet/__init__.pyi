"""What `import rabbet` offers: operators from their records, functions beside them, types and constants."""

from collections.abc import Callable as _Callable
from typing import Any as _Any

from ._C import Op as Op

class _Ops:
    aten: _Any
    def __getattr__(self, name: str) -> _Any: ...
    def __call__(self, name: str) -> Op: ...
    def load_library(self, path: _Any) -> None: ...

ops: _Ops

from . import accelerator as accelerator
from . import amp as amp
from . import array_api as array_api
from . import autograd as autograd
from . import distributions as distributions
from . import export as export
from . import func as func
from . import graph as graph
from . import nn as nn
from . import optim as optim
from . import profiler as profiler
from . import __config__ as __config__
from . import backends as backends
from . import compiler as compiler
from . import cpu as cpu
from . import cuda as cuda
from . import fft as fft
from . import functional as functional
from . import futures as futures
from . import hub as hub
from . import jit as jit
from . import linalg as linalg
from . import masked as masked
from . import memory as memory
from . import monitor as monitor
from . import multiprocessing as multiprocessing
from . import quasirandom as quasirandom
from . import signal as signal
from . import overrides as overrides
from . import package as package
from . import random as random
from . import return_types as return_types
from . import storage as storage
from . import testing as testing
from . import torch_version as torch_version
from . import types as types
from . import utils as utils
from . import version as version
from . import composite as composite
from . import library as library
from . import serialization as serialization
from . import special as special
from ._C import (
    ArgumentError as ArgumentError,
    DeviceError as DeviceError,
    DTypeError as DTypeError,
    Generator as Generator,
    InternalError as InternalError,
    NotImplementedForError as NotImplementedForError,
    Op as Op,
    OutOfMemoryError as OutOfMemoryError,
    OutOfRangeError as OutOfRangeError,
    PluginError as PluginError,
    RabbetError as RabbetError,
    Size as Size,
    StateError as StateError,
    Tensor as Tensor,
    UnsupportedDTypeError as UnsupportedDTypeError,
    bfloat16 as bfloat16,
    bool as bool,
    channels_last as channels_last,
    channels_last_3d as channels_last_3d,
    complex64 as complex64,
    complex128 as complex128,
    contiguous_format as contiguous_format,
    device as device,
    dtype as dtype,
    float16 as float16,
    float32 as float32,
    float8_e4m3fn as float8_e4m3fn,
    float8_e5m2 as float8_e5m2,
    complex32 as complex32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    layout as layout,
    memory_format as memory_format,
    preserve_format as preserve_format,
    jagged as jagged,
    sparse_bsc as sparse_bsc,
    sparse_bsr as sparse_bsr,
    sparse_coo as sparse_coo,
    sparse_csc as sparse_csc,
    sparse_csr as sparse_csr,
    strided as strided,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from ._functions import *
from ._ops import *
from ._as_torch import (
    as_torch as as_torch,
)
from ._legacy import (
    BFloat16Tensor as BFloat16Tensor,
    BoolTensor as BoolTensor,
    ByteTensor as ByteTensor,
    CharTensor as CharTensor,
    DoubleTensor as DoubleTensor,
    FloatTensor as FloatTensor,
    HalfTensor as HalfTensor,
    IntTensor as IntTensor,
    LongTensor as LongTensor,
    ShortTensor as ShortTensor,
    set_default_tensor_type as set_default_tensor_type,
)
from ._settings import (
    SymBool as SymBool,
    SymFloat as SymFloat,
    SymInt as SymInt,
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    compiled_with_cxx11_abi as compiled_with_cxx11_abi,
    get_autocast_cpu_dtype as get_autocast_cpu_dtype,
    get_autocast_gpu_dtype as get_autocast_gpu_dtype,
    get_default_device as get_default_device,
    get_deterministic_debug_mode as get_deterministic_debug_mode,
    get_device_module as get_device_module,
    get_float32_matmul_precision as get_float32_matmul_precision,
    get_num_interop_threads as get_num_interop_threads,
    has_cuda as has_cuda,
    has_lapack as has_lapack,
    has_mkl as has_mkl,
    has_openmp as has_openmp,
    has_spectral as has_spectral,
    is_autocast_cpu_enabled as is_autocast_cpu_enabled,
    is_conj as is_conj,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
    is_distributed as is_distributed,
    is_inference as is_inference,
    is_neg as is_neg,
    is_nonzero as is_nonzero,
    is_same_size as is_same_size,
    is_signed as is_signed,
    is_vulkan_available as is_vulkan_available,
    is_warn_always_enabled as is_warn_always_enabled,
    set_autocast_cpu_dtype as set_autocast_cpu_dtype,
    set_autocast_cpu_enabled as set_autocast_cpu_enabled,
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
    set_default_device as set_default_device,
    set_deterministic_debug_mode as set_deterministic_debug_mode,
    set_float32_matmul_precision as set_float32_matmul_precision,
    set_flush_denormal as set_flush_denormal,
    set_num_interop_threads as set_num_interop_threads,
    set_warn_always as set_warn_always,
    sym_float as sym_float,
    sym_int as sym_int,
    sym_ite as sym_ite,
    sym_max as sym_max,
    sym_min as sym_min,
    sym_not as sym_not,
    typename as typename,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from .compiler import (
    compile as compile,
)
from ._lobpcg import (
    lobpcg as lobpcg,
)
from ._low_rank import (
    pca_lowrank as pca_lowrank,
    svd_lowrank as svd_lowrank,
)
from ._histograms import (
    histogram as histogram,
    histogramdd as histogramdd,
)
from ._numeric import (
    chain_matmul as chain_matmul,
    gradient as gradient,
    lu as lu,
    matrix_power as matrix_power,
    sym_sum as sym_sum,
)
from ._windows import (
    bartlett_window as bartlett_window,
    blackman_window as blackman_window,
    hamming_window as hamming_window,
    hann_window as hann_window,
    kaiser_window as kaiser_window,
)
from .futures import Future as Future
from .graph import cond as cond, while_loop as while_loop
from .jit import ScriptModule as ScriptModule
from .storage import (
    StorageBase as StorageBase,
    TypedStorage as TypedStorage,
    UntypedStorage as UntypedStorage,
    from_file as from_file,
    is_storage as is_storage,
)
from ._counts import binomial as binomial
from ._deprecated import frobenius_norm as frobenius_norm
from ._deprecated import nuclear_norm as nuclear_norm
from ._deprecated import range as range
from ._settings import sym_constrain_range as sym_constrain_range
from ._settings import sym_constrain_range_for_size as sym_constrain_range_for_size
from ._settings import sym_sqrt as sym_sqrt
from ._counts import poisson as poisson
from ._random import *
from ._streams import Event as Event
from ._streams import Stream as Stream
from .amp import (
    GradScaler as GradScaler,
    autocast as autocast,
    autocast_decrement_nesting as autocast_decrement_nesting,
    autocast_increment_nesting as autocast_increment_nesting,
    clear_autocast_cache as clear_autocast_cache,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_cache_enabled as is_autocast_cache_enabled,
    is_autocast_enabled as is_autocast_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_dtype as set_autocast_dtype,
    set_autocast_enabled as set_autocast_enabled,
)
from .autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from .serialization import load as load
from .serialization import save as save

from .vmap import vmap as vmap

__version__: str

class _NotThere:
    """A module that rabbet lacks: what would do the work raises NotImplementedError, see _absent."""

    def __getattr__(self, name: str) -> _Any: ...

ao: _NotThere
classes: _NotThere
distributed: _NotThere
fx: _NotThere
mps: _NotThere
mtia: _NotThere
nested: _NotThere
numa: _NotThere
onnx: _NotThere
quantization: _NotThere
sparse: _NotThere
xpu: _NotThere

default_generator: Generator

short: dtype
int: dtype
long: dtype
half: dtype
float: dtype
double: dtype
chalf: dtype
cfloat: dtype
cdouble: dtype

from builtins import float as _float

inf: _float
nan: _float
pi: _float
e: _float
newaxis: None

def get_include() -> str: ...
def as_strided_(input: Tensor, *args: _Any, **kwargs: _Any) -> Tensor: ...
def resize_as_(input: Tensor, *args: _Any, **kwargs: _Any) -> Tensor: ...

# Of rabbet.nn.functional, which has the signatures.
adaptive_avg_pool1d: _Callable[..., _Any]
alpha_dropout: _Callable[..., _Any]
avg_pool1d: _Callable[..., _Any]
bilinear: _Callable[..., _Any]
celu_: _Callable[..., _Any]
channel_shuffle: _Callable[..., _Any]
conv1d: _Callable[..., _Any]
conv2d: _Callable[..., _Any]
conv3d: _Callable[..., _Any]
conv_tbc: _Callable[..., _Any]
conv_transpose1d: _Callable[..., _Any]
conv_transpose2d: _Callable[..., _Any]
conv_transpose3d: _Callable[..., _Any]
cosine_similarity: _Callable[..., _Any]
feature_alpha_dropout: _Callable[..., _Any]
max_pool1d: _Callable[..., _Any]
max_pool1d_with_indices: _Callable[..., _Any]
max_pool2d: _Callable[..., _Any]
max_pool3d: _Callable[..., _Any]
native_channel_shuffle: _Callable[..., _Any]
pairwise_distance: _Callable[..., _Any]
pdist: _Callable[..., _Any]
pixel_shuffle: _Callable[..., _Any]
pixel_unshuffle: _Callable[..., _Any]
prelu: _Callable[..., _Any]
rms_norm: _Callable[..., _Any]
rrelu: _Callable[..., _Any]
rrelu_: _Callable[..., _Any]
selu_: _Callable[..., _Any]
threshold_: _Callable[..., _Any]

# Of rabbet.nn.flat, which has the signatures.
adaptive_max_pool1d: _Callable[..., _Any]
affine_grid_generator: _Callable[..., _Any]
alpha_dropout_: _Callable[..., _Any]
batch_norm: _Callable[..., _Any]
binary_cross_entropy_with_logits: _Callable[..., _Any]
constant_pad_nd: _Callable[..., _Any]
convolution: _Callable[..., _Any]
cosine_embedding_loss: _Callable[..., _Any]
ctc_loss: _Callable[..., _Any]
dropout_: _Callable[..., _Any]
feature_alpha_dropout_: _Callable[..., _Any]
feature_dropout: _Callable[..., _Any]
feature_dropout_: _Callable[..., _Any]
grid_sampler: _Callable[..., _Any]
grid_sampler_2d: _Callable[..., _Any]
grid_sampler_3d: _Callable[..., _Any]
gru: _Callable[..., _Any]
gru_cell: _Callable[..., _Any]
hinge_embedding_loss: _Callable[..., _Any]
instance_norm: _Callable[..., _Any]
kl_div: _Callable[..., _Any]
lstm: _Callable[..., _Any]
lstm_cell: _Callable[..., _Any]
margin_ranking_loss: _Callable[..., _Any]
native_batch_norm: _Callable[..., _Any]
native_dropout: _Callable[..., _Any]
embedding_renorm_: _Callable[..., _Any]
is_anomaly_check_nan_enabled: _Callable[..., _Any]
is_anomaly_enabled: _Callable[..., _Any]
set_anomaly_enabled: _Callable[..., None]
norm_except_dim: _Callable[..., _Any]
poisson_nll_loss: _Callable[..., _Any]
rnn_relu: _Callable[..., _Any]
rnn_relu_cell: _Callable[..., _Any]
rnn_tanh: _Callable[..., _Any]
rnn_tanh_cell: _Callable[..., _Any]
triplet_margin_loss: _Callable[..., _Any]

BFloat16Storage: type
BoolStorage: type
ByteStorage: type
CharStorage: type
ComplexDoubleStorage: type
ComplexFloatStorage: type
DoubleStorage: type
FloatStorage: type
HalfStorage: type
IntStorage: type
LongStorage: type
ShortStorage: type
legacy_contiguous_format: memory_format
bits16: dtype
bits1x8: dtype
bits2x4: dtype
bits4x2: dtype
bits8: dtype
float4_e2m1fn_x2: dtype
float8_e4m3fnuz: dtype
float8_e5m2fnuz: dtype
float8_e8m0fnu: dtype
int1: dtype
int2: dtype
int3: dtype
int4: dtype
int5: dtype
int6: dtype
int7: dtype
qint32: dtype
qint8: dtype
quint2x4: dtype
quint4x2: dtype
quint8: dtype
uint1: dtype
uint2: dtype
uint3: dtype
uint4: dtype
uint5: dtype
uint6: dtype
uint7: dtype
