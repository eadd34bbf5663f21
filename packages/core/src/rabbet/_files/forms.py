"""Which form a file has, by its first bytes."""

import re

from . import SerializationError

PEEK = 512  # bytes that tell
MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY = re.compile(rb"\x80[\x00-\x05](\x95.{8})?\x8a\x0a" + re.escape(MAGIC.to_bytes(10, "little")), re.DOTALL)  # fmt: skip


def form_of(start: bytes, name: str) -> str | None:
    """'zip' or 'legacy' by the first bytes of a file; None: it is none of PyTorch's.

    Raises:
        SerializationError: for a file that PyTorch or Python wrote in a form that is not read.
    """
    if start[8:9] == b"{":
        return None  # a safetensors file, whose first bytes are a number
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if _LEGACY.match(start):
        return "legacy"
    if re.match(rb"\x80[\x02-\x05]", start) and len(start) > 8:
        raise SerializationError(
            f"{name}: this is a pickle, but not one that torch.save wrote; in the program that made it, save its "
            "tensors with torch.save"
        )
    if start[257:262] == b"ustar":
        raise SerializationError(
            f"{name}: this is a file in the .tar format of PyTorch before 0.2: load it by such a PyTorch and save it again"
        )
    return None
