"""The placeholder for objects of mocked modules. Code can import it and pass it on, but not use it.

A package with mocked modules contains this file as `_mock.py`.
"""

_USES = (
    "abs add aenter aexit aiter and anext await bool bytes call ceil complex contains delattr delete delitem divmod enter eq "
    "exit float floor floordiv ge get getitem gt hash iadd iand ifloordiv ilshift imatmul imod imul index instancecheck int "
    "invert ior ipow irshift isub iter itruediv ixor le len length_hint lshift lt matmul mod mul ne neg next or pos pow radd "
    "rand rdivmod reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow rrshift rshift rsub rtruediv rxor set setattr "
    "setitem sub subclasscheck truediv trunc xor"
)


class MockedObject:
    """A placeholder that knows the name of the object it replaces; using it raises NotImplementedError."""

    _name = "MockedObject"

    def __init__(self, name: str, _suppress_err: bool = False) -> None:
        object.__setattr__(self, "_name", name)
        if not _suppress_err:
            _refuse(self, "__init__")

    def __repr__(self) -> str:
        return f"MockedObject({self._name})"

    def __getattr__(self, name: str) -> None:
        _refuse(self, "__getattr__")


def _refuse(mocked: MockedObject, use: str) -> None:
    raise NotImplementedError(
        f"Object '{mocked._name}' was mocked out during packaging but it is being used in {use}"
    )


def _refusing(use: str) -> object:
    return lambda self, *args, **kwargs: _refuse(self, use)


for _short in _USES.split():
    setattr(MockedObject, f"__{_short}__", _refusing(f"__{_short}__"))
