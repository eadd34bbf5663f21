"""Names of operators in profiles."""

from __future__ import annotations

import functools

from rabbet._aten import place_of


@functools.cache
def key_of_record(record: str) -> str:
    """The name under which `ops` has the operator of a record: `aten::add`, `rabbet::fused_adam`, `mine::scale`."""
    return "::".join(place_of(record))
