"""`torch._VF`: the functions of the namespace, as they are bound natively."""

from typing import Any

import rabbet


def __getattr__(name: str) -> Any:
    found = getattr(rabbet, name, None)
    if found is None or name.startswith("_"):
        raise AttributeError(f"torch._VF.{name} is not in rabbet yet", name=name)
    return found
