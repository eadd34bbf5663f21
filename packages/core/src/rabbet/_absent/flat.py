"""Functions and classes of the top-level namespace that refuse to work."""

import functools
from collections.abc import Callable
from typing import Any

from . import refusing_class, refusing_function

_REASONS = {
    "it was removed from PyTorch; torch.linalg has what took its place": "eig lstsq matrix_rank solve symeig",
    "rabbet has no sparse tensors yet": "dsmm hsmm hspmm saddmm smm sparse_bsc_tensor sparse_bsr_tensor "
    "sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor spmm sspaddmm",
    "rabbet has no quantization package yet": "dequantize fake_quantize_per_channel_affine "
    "fake_quantize_per_tensor_affine quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic "
    "quantized_batch_norm quantized_max_pool1d quantized_max_pool2d",
}
_CLASSES = {
    "rabbet has none of PyTorch's compilers; rabbet.graph captures programs": "AnyType BoolType CompilationUnit ComplexType DeviceObjType "
    "DictType EnumType FloatType FunctionSchema FutureType InterfaceType IntType ListType NoneType NumberType "
    "OptionalType StringType TensorType TupleType Type UnionType",
    "files are read and written by load() and save()": "PyTorchFileReader PyTorchFileWriter",
}
REFUSED = {
    name: why for why, names in (*_REASONS.items(), *_CLASSES.items()) for name in names.split()
}


@functools.cache
def refusal(name: str) -> Callable[..., Any]:
    """The function or class of a name in REFUSED."""
    is_class = any(name in names.split() for names in _CLASSES.values())
    return (refusing_class if is_class else refusing_function)("rabbet", name, REFUSED[name])
