"""Tensors of other layouts than strided ones."""

from . import Absent

_NO_NESTED = "rabbet has no nested tensors yet"
_NO_SPARSE = "rabbet has no sparse tensors yet"

TABLE: dict[str, Absent] = {
    "cuda.sparse": Absent(
        _NO_SPARSE,
        classes="BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor "
        "ShortTensor",
    ),
    "nested": Absent(
        _NO_NESTED,
        functions="as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged "
        "to_padded_tensor",
    ),
    "nested._internal": Absent(_NO_NESTED),
    "nested._internal.nested_tensor": Absent(
        _NO_NESTED, functions="jagged_from_list", classes="NestedTensor"
    ),
    "sparse": Absent(
        _NO_SPARSE,
        functions="addmm as_sparse_gradcheck check_sparse_tensor_invariants.disable "
        "check_sparse_tensor_invariants.enable check_sparse_tensor_invariants.is_enabled "
        "log_softmax mm sampled_addmm softmax spdiags sum",
        classes="BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor "
        "ShortTensor check_sparse_tensor_invariants",
        imports={
            "sparse.semi_structured": "SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT "
            "SparseSemiStructuredTensorCUTLASS to_sparse_semi_structured",
        },
    ),
    "sparse.semi_structured": Absent(
        _NO_SPARSE,
        functions="SparseSemiStructuredTensor.from_dense "
        "SparseSemiStructuredTensorCUSPARSELT.from_dense "
        "SparseSemiStructuredTensorCUSPARSELT.prune_dense_static_sort "
        "SparseSemiStructuredTensorCUTLASS.from_dense "
        "SparseSemiStructuredTensorCUTLASS.prune_dense_static_sort to_sparse_semi_structured",
        classes="SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT "
        "SparseSemiStructuredTensorCUTLASS",
    ),
}
