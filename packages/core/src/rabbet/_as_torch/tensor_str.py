"""The private names of `torch._tensor_str` that packages import."""

import contextlib
from collections.abc import Iterator
from typing import Any

from .._C import Tensor
from .._printing import _body as _tensor_str
from .._printing import _options as PRINT_OPTS
from .._printing import set_printoptions

__all__ = ["PRINT_OPTS", "_add_suffixes", "_str_intern", "_tensor_str", "printoptions", "set_printoptions"]  # fmt: skip


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """A block with other print options, which are those of set_printoptions()."""
    before = dict(vars(PRINT_OPTS))
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        vars(PRINT_OPTS).clear()
        vars(PRINT_OPTS).update(before)


def _str_intern(inp: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor; `tensor_contents` is what to write for its elements.

    Raises:
        NotImplementedError: for `tensor_contents`.
    """
    if tensor_contents is not None:
        raise NotImplementedError("_str_intern: tensor_contents is not in rabbet yet")
    return Tensor.__repr__(inp)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """A tensor's text with its suffixes, on a new line where they do not fit."""
    texts = [tensor_str]
    length = len(tensor_str) - tensor_str.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or length + len(suffix) + 2 > PRINT_OPTS.linewidth:
            texts.append(",\n" + " " * indent + suffix)
            length = indent + len(suffix)
            force_newline = False
        else:
            texts.append(", " + suffix)
            length += len(suffix) + 2
    texts.append(")")
    return "".join(texts)
