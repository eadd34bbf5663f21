"""Export programs: `export(module, args)` captures a module as an `ExportedProgram`, which can be saved and loaded.

The names are those of `torch.export`. The graph of an exported program is a `rabbet.graph.Graph`; see
docs/tutorial/graphs.md for what can be captured.
"""

from __future__ import annotations

import importlib
from typing import Any

from .. import _C
from ..utils._pytree import register_dataclass as _register_dataclass
from .dynamic_shapes import AdditionalInputs, Dim, ShapesCollection, dims
from .exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    default_decompositions,
)
from .graph_signature import ExportBackwardSignature, ExportGraphSignature

__all__ = [
    "AdditionalInputs",
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "ShapesCollection",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
]


def export(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Capture a module's call as a program that can be saved, loaded and run.

    The module runs on the arguments; what it does to its state, the arguments and random numbers is taken back. Reads of
    values (item(), branches on tensors) are refused with their line.

    Args:
        mod: the module.
        args, kwargs: an example call. Plain arguments become part of the program.
        dynamic_shapes: for arguments by name or position the dimensions whose sizes may change: a dict from dimension
            to `Dim`, `Dim.DYNAMIC`, `Dim.AUTO` (dynamic if all of them can be) or `Dim.STATIC`, or a sequence.
        strict: accepted; programs are captured while they run in either case.
        preserve_module_call_signature, prefer_deferred_runtime_asserts_over_guards: only their defaults work.

    Raises:
        CaptureError: if the module does what a graph cannot repeat.
        TypeError: if `mod` is no module, or the arguments are no tuple and dict.
    """
    from .exported_program import export_module

    for name, value in (
        ("preserve_module_call_signature", preserve_module_call_signature),
        (
            "prefer_deferred_runtime_asserts_over_guards",
            prefer_deferred_runtime_asserts_over_guards,
        ),
    ):
        if value:
            raise _C.NotImplementedForError(f"export: rabbet does not support {name}={value!r}")
    return export_module(mod, args, kwargs or {}, dynamic_shapes)


def save(
    ep: ExportedProgram, f: Any, *, extra_files: dict[str, Any] | None = None, **options: Any
) -> None:
    """Write an exported program to a file: its graph as text, and its tensors.

    Args:
        f: a path or a file that can be written.
        extra_files: further texts or bytes by name, which `load` returns.

    Raises:
        TypeError: if `ep` is no exported program.
        NotImplementedError: if the graph holds objects such as generators.
    """
    from .exported_program import save_program

    save_program(ep, f, extra_files, options)


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Read an exported program that `save` wrote.

    Args:
        extra_files: a dict whose entries are set to the further files of these names.
        expected_opset_version: accepted; the graph is checked against the records of this installation.

    Raises:
        RuntimeError: if the file holds no exported program, or one that this installation cannot run.
    """
    from .exported_program import load_program

    return load_program(f, extra_files)


def draft_export(*args: Any, **kwargs: Any) -> Any:
    """PyTorch's export with guesses in place of errors.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        "export.draft_export: rabbet exports only what it can repeat: use export()"
    )


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Let objects of a dataclass be arguments and results of exported programs."""
    _register_dataclass(cls, serialized_type_name=serialized_type_name)


# Names of modules that refuse them. The function `unflatten` has the name of its module, so it is set at once.
for _module, _names in (
    ("decomp_utils", ["CustomDecompTable"]),
    ("unflatten", ["FlatArgsAdapter", "UnflattenedModule", "unflatten"]),
):
    _found = importlib.import_module(f"rabbet.export.{_module}")
    globals().update({_name: getattr(_found, _name) for _name in _names})
