"""`torch._C._nn`: functions that PyTorch binds natively and shows under `torch.nn.functional`."""

from typing import Any


def __getattr__(name: str) -> Any:
    import rabbet.nn.functional as functional

    try:
        return getattr(functional, name)
    except AttributeError:
        raise AttributeError(f"torch._C._nn.{name} is not in rabbet yet", name=name) from None
