"""Attributes of Tensor that the composites of a layer have, and other tensors have not."""

from typing import Any

from . import _C

ABSENT = object()
# Of what all tensors have, what the composites of a layer may have as their own.
_OF_LAYOUTS = (
    "ccol_indices coalesce col_indices crow_indices dense_dim dequantize indices is_coalesced row_indices sparse_dim "
    "to_dense to_mkldnn to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values"
)
OF_OTHER_LAYOUTS = frozenset(_OF_LAYOUTS.split())


class LayerAttribute:
    """Stands on Tensor for an attribute that layers have for their composites.

    others: the descriptor for all other tensors; ABSENT: they have no such attribute.
    """

    def __init__(self, name: str, others: object) -> None:
        self.name, self.others = name, others
        self.layers: dict[str, object] = {}  # the descriptor for the composites of a layer

    def _of(self, instance: Any) -> tuple[object, bool]:
        """The descriptor for a tensor, and whether it is one of a layer."""
        layer = _C.composite_layer(instance)
        if layer in self.layers:
            return self.layers[layer], True
        return self.others, False

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self if self.others is ABSENT else _get(self.others, None, owner)
        there, is_of_layer = self._of(instance)
        if not is_of_layer and self.name in vars(instance):
            return vars(instance)[self.name]
        if there is ABSENT:
            raise AttributeError(
                f"'{type(instance).__name__}' object has no attribute '{self.name}'; composites of "
                f"{', '.join(map(repr, self.layers))} have it"
            )
        return _get(there, instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        there, is_of_layer = self._of(instance)
        setter = getattr(type(there), "__set__", None)
        if setter is not None:
            setter(there, instance, value)
        elif is_of_layer:
            raise AttributeError(f"attribute '{self.name}' of a composite cannot be set")
        else:
            vars(instance)[self.name] = value

    def __delete__(self, instance: Any) -> None:
        there, is_of_layer = self._of(instance)
        deleter = getattr(type(there), "__delete__", None)
        if deleter is not None:
            deleter(there, instance)
        elif is_of_layer or self.name not in vars(instance):
            raise AttributeError(self.name)
        else:
            del vars(instance)[self.name]


def _get(descriptor: object, instance: Any, owner: type | None) -> Any:
    get = getattr(type(descriptor), "__get__", None)
    return descriptor if get is None else get(descriptor, instance, owner)
