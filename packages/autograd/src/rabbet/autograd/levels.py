"""What transforms of functions (`rabbet.func`) are made of: differentiation that nests like calls do.

    with GradLevel() as level:
        inside = [level.enter(x) for x in inputs]     # what the function gets
        y = f(*inside)
        grads = level.grad([y], [None])               # with respect to level.inputs
        grads = [level.leave(g) for g in grads]       # all that leaves the function

`DualLevel` is the same for forward mode.
"""

from collections.abc import Sequence

import rabbet
from rabbet import Tensor

from . import _C

__all__ = ["DualLevel", "GradLevel"]


class GradLevel:
    """A `grad` that is being computed: records inside, whatever the mode outside is."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def __enter__(self) -> "GradLevel":
        self._frame = _C.grad_enter()
        return self

    def __exit__(self, *exc: object) -> None:
        _C.grad_exit(self._frame)

    def enter(self, x: Tensor) -> Tensor:
        """`x` as the function sees it. Derivatives are with respect to the entries of `inputs`."""
        inside, handle = _C.grad_input(self._frame, x)
        self.inputs.append(handle)
        return inside

    def grad(
        self, outputs: Sequence[Tensor], grad_outputs: Sequence[Tensor | None], retain: bool = False
    ) -> list[Tensor]:
        """The gradients of `outputs` with respect to `inputs`; zeros where they do not depend."""
        pairs = [(y, g) for y, g in zip(outputs, grad_outputs, strict=True) if y.requires_grad]
        found: Sequence[Tensor | None] = [None] * len(self.inputs)
        if pairs and self.inputs:
            involved = [y for y, _ in pairs] + [g for _, g in pairs if g is not None]
            opens = _C.is_grad_enabled() and any(_C.grad_open(self._frame, t) for t in involved)
            flags = _C.ALLOW_UNUSED | (_C.CREATE if opens else 0)
            flags |= _C.RETAIN if retain or opens else 0
            found = _C.run([y for y, _ in pairs], [g for _, g in pairs], self.inputs, flags)
        return [
            rabbet.zeros_like(x) if g is None else g
            for x, g in zip(self.inputs, found, strict=True)
        ]

    def close(self, outputs: Sequence[Tensor]) -> None:
        """After the level was left: `grad` of `outputs` will be called again, from anywhere."""
        _C.grad_close(self._frame, outputs)

    def leave(self, t: Tensor) -> Tensor:
        """The tensor without the history that nobody outside can ask for."""
        return _C.grad_result(self._frame, t)


class DualLevel:
    """A level of forward mode."""

    def __enter__(self) -> "DualLevel":
        self._level = _C.dual_enter()
        return self

    def __exit__(self, *exc: object) -> None:
        _C.dual_exit(self._level)

    def enter(self, primal: Tensor, tangent: Tensor | None) -> Tensor:
        """A dual with that tangent; None: zero."""
        return _C.dual_make(self._level, primal, tangent, False)

    def depends(self, t: Tensor) -> bool:
        """Whether the tensor has a tangent."""
        return _C.dual_unpack(self._level, t)[1] is not None

    def leave(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """The primal and the tangent of what the function returned."""
        primal, tangent = _C.dual_unpack(self._level, t)
        return primal, rabbet.zeros_like(primal) if tangent is None else tangent
