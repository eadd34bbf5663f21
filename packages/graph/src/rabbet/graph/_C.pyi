from collections.abc import Sequence
from typing import Any

from .._C import Tensor

def signature(tensors: list[Tensor]) -> bytes | None: ...

class Program:
    def __init__(self, ninputs: int, nslots: int) -> None: ...
    def add(
        self,
        op: str,
        args: tuple[Any, ...],
        places: Sequence[tuple[int, int, int]],
        outs: Sequence[int],
        results: Sequence[int],
        returns_list: bool,
        last: Sequence[int],
        exclude: int,
        numbers: Sequence[tuple[int, int]] = ...,
    ) -> None: ...
    def finish(self, slots: Sequence[int]) -> None: ...
    def run(self, inputs: Sequence[Tensor], numbers: Sequence[float] = ...) -> list[Tensor]: ...
    @property
    def failed(self) -> int: ...
    @property
    def handle(self) -> object: ...
