"""What `import rabbet` offers: operators from their records, functions beside them, types and constants."""

from typing import Any as _Any

from . import accelerator as accelerator
from . import composite as composite
from . import library as library
from . import serialization as serialization
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
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    layout as layout,
    memory_format as memory_format,
    preserve_format as preserve_format,
    strided as strided,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
)
from ._functions import *
from ._ops import *
from ._random import *
from ._streams import Event as Event
from ._streams import Stream as Stream
from .amp import (
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

__version__: str

class _Ops:
    def __getattr__(self, name: str) -> _Any: ...
    def __call__(self, name: str) -> Op: ...

ops: _Ops
default_generator: Generator

short: dtype
int: dtype
long: dtype
half: dtype
float: dtype
double: dtype
cfloat: dtype
cdouble: dtype

from builtins import float as _float

inf: _float
nan: _float
pi: _float
e: _float
newaxis: None

def get_include() -> str: ...
