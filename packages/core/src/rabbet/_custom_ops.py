"""Operators of one's own as `torch.library` makes them: `custom_op`, registrations by name, `Library`."""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _C, library
from ._C import Op
from ._registrations import Registration, caller
from ._schemas import infer_schema, record_schema

_Devices = str | Sequence[str] | None


class CustomOpDef:
    """An operator that `custom_op` made of a function. A call runs the operator."""

    def __init__(
        self, qualname: str, schema: str, function: Callable[..., Any], devices: _Devices
    ) -> None:
        self._qualname, self._schema, self._function = qualname, schema, function
        self._namespace, _, self._name = qualname.partition("::")
        self.__name__ = self._name
        self.__doc__ = function.__doc__
        self._kernels: dict[str, tuple[Callable[..., Any], Registration]] = {}
        place = caller(getattr(function, "__qualname__", qualname))
        body = function if devices is None else None
        self._operator: Op = library._define(
            record_schema(qualname, schema), body, place, kind="opaque"
        )
        if devices is not None:
            self.register_kernel(devices, function)

    @property
    def _opoverload(self) -> Op:
        return self._operator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._operator(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: _Devices, fn: Any = None, /) -> Any:
        """Register the function for device types ("cpu", a sequence of them; None: all); a decorator without `fn`.

        A later one takes the place of an earlier one. Returns the function.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for device in _device_list(device_types):
                self._enable(device, function)
            return function

        return register if fn is None else register(fn)

    def _enable(self, device: str, function: Callable[..., Any]) -> None:
        if device in self._kernels:
            self._kernels[device][1].revoke()
        made = library.impl(self._qualname, device, function)
        self._kernels[device] = (function, self._owned(made))

    def _owned(self, registration: Registration) -> Registration:
        """A registration that goes when the operator goes."""
        self._operator.handle.parts.append(registration)
        return registration

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Inside the block, run the kernel of a device type, or with enabled=False the function of the operator."""
        if device_type not in self._kernels:
            warnings.warn(
                f"Attempted to {'enable' if enabled else 'disable'} kernel for {device_type} but no kernel was "
                "registered for this device type.",
                stacklevel=3,
            )
            yield
            return
        function, registration = self._kernels[device_type]
        before = registration.active
        self._switch(device_type, function, enabled)
        try:
            yield
        finally:
            self._switch(device_type, function, before)

    def _switch(self, device: str, function: Callable[..., Any], on: bool) -> None:
        registration = self._kernels[device][1]
        if on and not registration.active:
            self._enable(device, function)
        elif not on:
            registration.revoke()

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Register what gives the results' shapes and dtypes, from meta tensors; returns the function."""
        self._owned(library.shape(self._qualname, fn))
        return fn

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> None:
        """Register the derivative: `backward(ctx, *grads)` returns a gradient, or None, for each positional argument.

        Args:
            setup_context: `setup_context(ctx, inputs, output)`, with `keyword_only_inputs` where the operator has
                arguments that are given by keyword only; called in backward, before `backward`.

        Raises:
            RuntimeError: for an operator that writes its arguments.
        """
        self._owned(_add_autograd(self, backward, setup_context))

    def register_vmap(self, func: Any = None, /) -> Any:
        """Register the batching rule `func(info, in_dims, *args)`, see `library.batch`; a decorator without `func`."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._owned(library.batch(self._qualname, function))
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Say in which dtype the operator runs under autocast."""
        self._owned(_add_autocast(self, device_type, cast_inputs))

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Refused: classes see the operator in their `__torch_dispatch__`.

        Raises:
            NotImplementedError: always.
        """
        register_torch_dispatch(self, torch_dispatch_class, fn)


def _device_list(devices: _Devices) -> list[str]:
    if devices is None:
        return ["default"]
    found = [devices] if isinstance(devices, str) else list(devices)
    return ["default" if d == "CompositeExplicitAutograd" else d.lower() for d in found]


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: _Devices = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make an operator of a function; a decorator without `fn`. Nothing looks into the function.

    Args:
        name: "namespace::name"; afterwards the operator is `rabbet.ops.namespace.name`.
        mutates_args: names of the arguments that the function writes, or "unknown": all tensors.
        device_types: for which the function is ("cpu", or a sequence); None: for all.
        schema: "(Tensor x) -> Tensor"; None: it follows from the annotations, see `infer_schema`.
        tags: taken for PyTorch's sake.

    Returns:
        A CustomOpDef, with `register_fake`, `register_autograd`, `register_kernel` and `register_vmap`.

    Raises:
        ValueError: if the annotations make no schema.
        PluginError: if the operator exists already.

    Example:
        >>> @rabbet.library.custom_op("docs::shift", mutates_args=())
        ... def shift(x: rabbet.Tensor, by: float) -> rabbet.Tensor:
        ...     return x + by
        >>> shift(rabbet.zeros(2), 1.5)
        tensor([1.5000, 1.5000])
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        if not callable(function):
            raise TypeError(f"custom_op: expected a function, got {type(function).__name__}")
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        return CustomOpDef(name, text, function, device_types)

    return make if fn is None else make(fn)


# ---- registrations by name


def register_kernel(
    op: str | Op | CustomOpDef, device_types: _Devices, func: Any = None, /, *, lib: Any = None
) -> Any:
    """Register a function of an operator for device types; a decorator without `func`. Returns the function."""
    if isinstance(op, CustomOpDef):
        return op.register_kernel(device_types, func)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for device in _device_list(device_types):
            library.impl(op, device, function)
        return function

    return register if func is None else register(func)


def register_autograd(
    op: str | Op | CustomOpDef,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Any = None,
) -> None:
    """Register the derivative of an operator, see `CustomOpDef.register_autograd`."""
    if isinstance(op, CustomOpDef):
        op.register_autograd(backward, setup_context=setup_context)
    else:
        _add_autograd(op, backward, setup_context)


def _add_autograd(
    op: str | Op | CustomOpDef,
    backward: Callable[..., Any],
    setup_context: Callable[..., Any] | None,
) -> Registration:
    record = library._record(op, "register_autograd")
    if not callable(backward):
        raise TypeError(f"register_autograd: expected a function, got {type(backward).__name__}")
    info = _C.op_info(record)
    if "!)" in info["schema"]:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {record} with schema {info['schema']}. "
            "Please create a functional operator and register an autograd formula for that."
        )
    positional = sum(not p["keyword_only"] for p in info["params"])
    names = [p["name"] for p in info["params"]][positional:]

    def set_up(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if setup_context is None:
            return
        options = {"keyword_only_inputs": dict(zip(names, inputs[positional:], strict=True))}
        setup_context(
            ctx=ctx, inputs=inputs[:positional], output=output, **(options if names else {})
        )

    def gradients(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        found = backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        return (*found, *[None] * len(names)) if len(found) == positional else found

    made: Registration = library.vjp(record, gradients, setup_context=set_up)
    return made


def register_vmap(op: str | Op | CustomOpDef, func: Any = None, /, *, lib: Any = None) -> Any:
    """Register the batching rule of an operator, see `library.batch`; a decorator without `func`."""
    if isinstance(op, CustomOpDef):
        return op.register_vmap(func)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        library.batch(library._record(op, "register_vmap"), function)
        return function

    return register if func is None else register(func)


def register_autocast(
    op: str | Op | CustomOpDef,
    device_type: str,
    cast_inputs: Any,
    /,
    *,
    lib: Any = None,
) -> None:
    """Say in which dtype an operator runs under autocast, on every device."""
    if isinstance(op, CustomOpDef):
        op.register_autocast(device_type, cast_inputs)
    else:
        _add_autocast(op, device_type, cast_inputs)


def _add_autocast(op: str | Op | CustomOpDef, device_type: str, cast_inputs: Any) -> Registration:
    if not isinstance(device_type, str):
        raise ValueError(f"register_autocast: expected a device type, got {device_type!r}")
    return library.autocast(library._record(op, "register_autocast"), cast_inputs)


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None
) -> Any:
    """Refused: classes see the operator in their `__torch_dispatch__`.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        "library.register_torch_dispatch: rabbet has no rules for single classes; define __torch_dispatch__ in the class"
    )


def _refused(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise _C.NotImplementedForError(
            f"library.{name}: rabbet does not run Triton kernels; register a kernel by library.impl"
        )

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = (
        "Refused: rabbet does not run Triton kernels.\n\nRaises:\n    NotImplementedError: always."
    )
    return refused


triton_op = _refused("triton_op")
wrap_triton = _refused("wrap_triton")


class FakeImplCtx:
    """What `get_ctx` returns inside of a function of `register_fake`."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """Refused: shape functions give sizes, and none that only the data tell.

        Raises:
            NotImplementedError: always.
        """
        raise _C.NotImplementedForError(
            "get_ctx().new_dynamic_size: sizes that depend on the data are not known to shape functions; leave out "
            "register_fake for this operator"
        )

    create_unbacked_symint = new_dynamic_size


def get_ctx() -> FakeImplCtx:
    """The context of the function of `register_fake` that runs."""
    return FakeImplCtx()


# ---- libraries

_libraries: set[str] = set()  # namespaces that a library of kind "DEF" defines


def fallthrough_kernel() -> None:
    """Given to `Library.impl` in place of a function: the layer of that key lets the operator pass.

    Raises:
        NotImplementedError: if it is called.
    """
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def impl_abstract(qualname: str, func: Any = None, *, lib: Any = None) -> Any:
    """`register_fake` under its former name."""
    warnings.warn(
        "library.impl_abstract was renamed to library.register_fake: use that instead",
        FutureWarning,
        stacklevel=2,
    )
    return library.register_fake(qualname, func, lib=lib)


def get_kernel(op: Any, dispatch_key: Any) -> Any:
    """PyTorch returns the kernel of an operator as an object here.

    Raises:
        NotImplementedError: always.
    """
    raise _C.NotImplementedForError(
        f"library.get_kernel: rabbet has no objects for single kernels, such as {op} for {dispatch_key}; "
        "a function of library.impl may call the operator on other tensors, or be revoked"
    )


class Library:
    """Operators of a namespace, or kernels for them.

    Args:
        ns: the namespace.
        kind: "DEF" defines the namespace, once; "FRAGMENT" adds operators; "IMPL" adds kernels.
        dispatch_key: of the kernels, such as "CPU"; "": each `impl` names its own.

    Raises:
        ValueError: for another kind, or a namespace of PyTorch's.
        RuntimeError: if a second library defines the namespace.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in ("prim", "aten") and kind in ("DEF", "FRAGMENT"):
            raise ValueError(f"{ns} is a reserved namespace.")
        if kind == "DEF" and ns in _libraries:
            raise RuntimeError(
                f"Only a single library can define the namespace {ns}; use kind 'FRAGMENT' or 'IMPL'"
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._made: list[Registration] = []
        if kind == "DEF":
            _libraries.add(ns)

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator by "name(Tensor x) -> Tensor"; returns its name.

        Raises:
            RuntimeError: if the library has the kind "IMPL".
        """
        if self.kind == "IMPL":
            raise RuntimeError("Library.define: a library of kind 'IMPL' defines no operators")
        name, _, rest = schema.partition("(")
        name = name.strip().removeprefix(f"{self.ns}::")
        qualname = f"{self.ns}::{name}"
        operator = library._define(
            record_schema(qualname, f"({rest}"), None, caller(qualname), kind="opaque"
        )
        self._made.append(operator.handle)
        return name

    def impl(
        self,
        op_name: str | Op,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register a function of an operator for a dispatch key, such as "CPU".

        Raises:
            NotImplementedError: for keys of layers ("Autograd", "Meta", ...), and for with_keyset.
            RuntimeError: if there is a kernel already, unless allow_override is set.
        """
        if fn is fallthrough_kernel:
            return
        if with_keyset:
            raise _C.NotImplementedForError("Library.impl: there are no keysets to pass")
        name = op_name if isinstance(op_name, str) else library._record(op_name, "impl")
        qualname = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if key == "Meta":
            library.shape(qualname, fn)
            return
        if key.startswith("Autograd") or key.startswith("Autocast"):
            raise _C.NotImplementedForError(
                f"Library.impl: '{key}' is no device; use library.register_autograd or library.register_autocast"
            )
        device = "default" if key.startswith("Composite") else key.lower()
        if allow_override:
            for old in self._made:
                if (old.name, old.target) == (qualname, _target(device)):
                    old.revoke()
        self._made.append(library.impl(qualname, device, fn))

    def _register_fake(self, op_name: str, fn: Callable[..., Any]) -> None:
        library.register_fake(op_name if "::" in op_name else f"{self.ns}::{op_name}", fn)

    def _keep(self, registration: Registration) -> None:
        self._made.append(registration)

    def _destroy(self) -> None:
        """Take everything back that the library registered."""
        for registration in reversed(self._made):
            registration.revoke()
        self._made.clear()
        if self.kind == "DEF":
            _libraries.discard(self.ns)


def _target(device: str) -> str:
    return "decomp" if device == "default" else device
