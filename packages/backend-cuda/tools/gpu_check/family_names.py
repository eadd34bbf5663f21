"""Names of families.py, for what runs before the packages are installed."""

FAMILIES = (
    "elementwise", "reductions", "softmax", "norms", "losses", "products", "attention", "convolution", "pooling", "indexing",
    "order", "random", "optimizers", "recurrent", "fourier", "linalg",
)  # fmt: skip
USE_LIBRARIES = ("products", "attention", "convolution", "recurrent")
WITHOUT_LIBRARIES = {"RABBET_CUDA_CUBLASLT": "", "RABBET_CUDA_CUDNN": ""}
