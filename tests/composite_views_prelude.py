"""Run first in the processes of test_composite_views.py: makes composites of composite_views_plugin.cpp."""

import ctypes

import rabbet
import rabbet.autograd
import rabbet.composite as composite
from plugin_prelude import address, error, lib, made  # noqa: F401

lib.make_shown.argtypes = [
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_void_p,
]
lib.replace.argtypes = [ctypes.c_void_p] * 3
lib.make.argtypes = [ctypes.c_int32, *[ctypes.c_void_p] * 4]
LAYERS = {"boxed": lib.layer_id(0), "boxed_few": lib.layer_id(1)}


def box(value, second=None, base=None, layer="boxed"):
    """A composite with the values of `value`, its first part."""
    out = ctypes.c_void_p()
    given = [address(t) if t is not None else None for t in (value, second, base)]
    return made(lib.make(LAYERS[layer], *given, ctypes.byref(out)), out)


def shown(shape, layout=0):
    """A composite of `shape` and `layout` with one part of no meaning."""
    out, part = ctypes.c_void_p(), rabbet.ones(2)
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    code = lib.make_shown(address(part), len(shape), sizes, layout, ctypes.byref(out))
    return made(code, out)


def replace(t, part, second=None):
    """Give a composite other parts."""
    code = lib.replace(address(t), address(part), address(second) if second is not None else None)
    return made(code, address(t)) if code else None


def plain(t):
    """The values of a composite, or `t` itself."""
    return composite.values(t.detach()) if composite.is_composite(t) else t.detach()


VIEWS = {
    "select": lambda y: y[:, 2],
    "row": lambda y: y[1],
    "slice": lambda y: y[1:, ::2],
    "transpose": lambda y: y.transpose(0, 1),
    "t": lambda y: y.t(),
    "permute": lambda y: y.permute(1, 0),
    "view": lambda y: y.view(2, 6),
    "unsqueeze": lambda y: y.unsqueeze(1),
    "squeeze": lambda y: y.view(1, 3, 4).squeeze(0),
    "diagonal": lambda y: y.diagonal(),
    "narrow": lambda y: y.narrow(1, 1, 2),
    "unflatten": lambda y: y.unflatten(1, (2, 2)),
    "movedim": lambda y: y.movedim(0, 1),
    "split": lambda y: y.split(2, dim=1)[1],
    "chunk": lambda y: y.chunk(2)[0],
    "unbind": lambda y: y.unbind(1)[3],
    "tensor_split": lambda y: y.tensor_split(2, dim=1)[0],
    "expand_as": lambda y: y.view(3, 4, 1)[..., 0].expand_as(rabbet.ones(3, 4)),
    "reshape": lambda y: y.reshape(4, 3),
    "flatten": lambda y: y.flatten(),
    "itself": lambda y: y.view(3, 4),
    "chain": lambda y: y[:, 1:].t()[1],
    "long chain": lambda y: __import__("functools").reduce(lambda v, _: v.t(), range(40), y)[:2],
}
FEW = [name for name in VIEWS if name not in ("unflatten", "itself")]


def values_and_gradients(program, boxed, layer="boxed"):
    """What `program` gives of a leaf, plain or a composite, and the leaf's gradient."""
    x = rabbet.arange(12.0).reshape(3, 4).div(5.0).sub(1.0)
    leaf = (box(x, layer=layer) if boxed else x).requires_grad_()
    result = program(leaf)
    result.backward()
    return plain(result), plain(leaf.grad)


def agree(program, layer="boxed"):
    """Check that a composite leaf gives what a plain one gives."""
    for got, want in zip(
        values_and_gradients(program, True, layer),
        values_and_gradients(program, False),
        strict=True,
    ):
        assert got.allclose(want), (got, want)
