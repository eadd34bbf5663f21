"""The module of an exported program; this needs the wheel rabbet-nn."""

from __future__ import annotations

from typing import Any

from ..graph._module import GraphModule


class ExportedModule(GraphModule):
    """Runs an exported program. Its mode is that of the export."""

    def train(self, mode: bool = True) -> Any:
        """Refused, as in PyTorch.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("Calling train() is not supported yet.")

    def eval(self) -> Any:
        """Refused, as in PyTorch.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("Calling eval() is not supported yet.")
