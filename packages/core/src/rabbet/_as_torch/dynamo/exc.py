"""Exceptions of PyTorch's compiler, which programs catch around what they compile: nothing raises them."""

__all__ = [
    "BackendCompilerFailed", "InternalTorchDynamoError", "ResetRequired", "TorchDynamoException",
    "TorchRuntimeError", "Unsupported", "UserError",
]  # fmt: skip


class TorchDynamoException(RuntimeError):
    """Any error of the compiler."""


class InternalTorchDynamoError(TorchDynamoException):
    """A bug of the compiler."""


class ResetRequired(TorchDynamoException):
    """The compiler's state must be reset."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend of the compiler failed."""


class Unsupported(TorchDynamoException):
    """The compiler does not take a piece of code."""


class TorchRuntimeError(TorchDynamoException):
    """Code failed while it was traced."""


class UserError(Unsupported):
    """The program uses the compiler in a wrong way."""
