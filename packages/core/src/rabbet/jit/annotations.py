"""Names for the annotations of scripted code, which eager code carries along unread."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Any", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip


class _BroadcastingList:
    """`BroadcastingList2[int]`: a list of two, or one number that stands for both."""

    def __getitem__(self, item: Any) -> None: ...


BroadcastingList1 = _BroadcastingList()
BroadcastingList2 = _BroadcastingList()
BroadcastingList3 = _BroadcastingList()
