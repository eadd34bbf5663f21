"""Tensors in messages among processes refuse."""

from multiprocessing.reduction import ForkingPickler
from typing import Any

from .. import _C, storage

REASON = (
    "rabbet shares no tensors by messages among processes yet; send a NumPy array (tensor.numpy()), or fork a "
    "process after tensor.share_memory_()"
)


def _refuse(value: Any) -> Any:
    raise _C.NotImplementedForError(f"multiprocessing: {type(value).__name__}: {REASON}")


def init_reductions() -> None:
    """Make the pickles of messages refuse tensors, parameters and storages."""
    kinds = [_C.Tensor, storage.UntypedStorage, storage.TypedStorage]
    try:
        from rabbet.nn import Parameter
    except ImportError:
        pass  # without the wheel there are none
    else:
        kinds.append(Parameter)
    for kind in kinds:
        ForkingPickler.register(kind, _refuse)
