"""Derivatives as functions of functions: grad, vjp, jvp and the Jacobians built of them.

All of them nest in any order, with each other and with `vmap`. Arguments and results can be trees:
tuples, lists and dicts of tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import rabbet
from rabbet import Tensor
from rabbet._pytree import TreeSpec, tree_flatten, tree_structure, tree_unflatten
from rabbet.autograd.levels import DualLevel, GradLevel
from rabbet.vmap import vmap

Argnums = int | tuple[int, ...]


# ---- what the transforms share


def _positions(argnums: Argnums, count: int, what: str) -> tuple[int, ...]:
    """The positions that `argnums` names, from 0 on."""
    given = argnums if isinstance(argnums, tuple) else (argnums,)
    if not given:
        raise ValueError(f"{what}: argnums must not be empty")
    found = []
    for n in given:
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"{what}: argnums must be an int or a tuple of ints, got {argnums!r}")
        if not -count <= n < count:
            raise IndexError(
                f"{what}: argnums {n} is out of range for {count} positional arguments"
            )
        found.append(n % count)
    if len(set(found)) != len(found):
        raise ValueError(f"{what}: argnums must not name an argument twice, got {argnums!r}")
    return tuple(found)


def _tensors(tree: Any, what: str) -> tuple[list[Tensor], TreeSpec]:
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise TypeError(f"{what}: expected Tensors, got {type(leaf).__name__}")
    return leaves, spec


def _pair(result: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    """(output, auxiliary values); the second is None without has_aux."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ValueError(
            f"{what}: with has_aux=True the function must return a pair (output, aux), "
            f"got {type(result).__name__}"
        )
    return result


def _left(level: GradLevel, tree: Any) -> Any:
    leaves, spec = tree_flatten(tree)
    return tree_unflatten([level.leave(x) if isinstance(x, Tensor) else x for x in leaves], spec)


def _entered(level: GradLevel, tree: Any, what: str) -> Any:
    leaves, spec = _tensors(tree, what)
    return tree_unflatten([level.enter(x) for x in leaves], spec)


# ---- reverse mode


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the gradient of a scalar function, and its value.

    Args:
        func: returns one tensor with one element; with `has_aux`, a pair of it and anything else.
        argnums: which positional arguments to differentiate, an int or a tuple.

    The result gives `(gradient, value)`, or `(gradient, (value, aux))`. The gradient has the tree of
    the argument; with a tuple of argnums there is a tuple of them.
    """
    name = "grad_and_value"

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        positions = _positions(argnums, len(args), name)
        with GradLevel() as level:
            inside = list(args)
            for n in positions:
                inside[n] = _entered(level, args[n], name)
            output, aux = _pair(func(*inside, **kwargs), has_aux, name)
            _check_scalar(output, name)
            grads = [level.leave(g) for g in level.grad([output], [None])]
            value, aux = level.leave(output), _left(level, aux)
        shaped, at = [], 0
        for n in positions:
            spec = tree_flatten(args[n])[1]
            shaped.append(tree_unflatten(grads[at : at + spec.num_leaves], spec))
            at += spec.num_leaves
        result = tuple(shaped) if isinstance(argnums, tuple) else shaped[0]
        return (result, (value, aux)) if has_aux else (result, value)

    return transformed


def _check_scalar(output: Any, what: str) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(f"{what}: the function must return a Tensor, got {type(output).__name__}")
    if output.ndim != 0:
        raise RuntimeError(
            f"{what}: the function must return a scalar tensor, got one of shape "
            f"{tuple(output.shape)}"
        )
    if not output.is_floating_point():
        raise RuntimeError(
            f"{what}: the function must return a real floating tensor, got {output.dtype}"
        )


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that computes the gradient of a scalar function.

    See `grad_and_value`; the result gives the gradient, or `(gradient, aux)`.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        gradient, rest = both(*args, **kwargs)
        return (gradient, rest[1]) if has_aux else gradient

    return transformed


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Compute `func(*primals)` and a function for its vector-Jacobian products.

    Returns `(output, vjp_fn)`, or `(output, vjp_fn, aux)`. `vjp_fn(cotangents)`, whose argument has
    the tree of the output, gives a tuple with a gradient for each of the primals; it can be called
    any number of times.
    """
    if not primals:
        raise ValueError("vjp: expected at least one primal")
    level = GradLevel()
    with level:
        inside = [_entered(level, p, "vjp") for p in primals]
        output, aux = _pair(func(*inside), has_aux, "vjp")
        raw, spec = _tensors(output, "vjp")
        output, aux = _left(level, output), _left(level, aux)
    level.close(raw)
    specs = [tree_flatten(p)[1] for p in primals]

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        """The products of cotangents with the Jacobian: a tuple, an entry for each primal."""
        given, given_spec = _tensors(cotangents, "vjp_fn")
        if given_spec != spec:
            raise ValueError(f"vjp_fn: expected cotangents of structure {spec}, got {given_spec}")
        for y, g in zip(raw, given, strict=True):
            if tuple(y.shape) != tuple(g.shape):
                raise ValueError(
                    f"vjp_fn: expected a cotangent of shape {tuple(y.shape)}, got {tuple(g.shape)}"
                )
        records = rabbet.autograd.is_grad_enabled() and create_graph is not False
        with rabbet.autograd.set_grad_enabled(records):
            found = level.grad(raw, given, retain=retain_graph)
        result, at = [], 0
        for s in specs:
            leaves = found[at : at + s.num_leaves]
            result.append(tree_unflatten([level.leave(g) for g in leaves], s))
            at += s.num_leaves
        return tuple(result)

    return (output, vjp_fn, aux) if has_aux else (output, vjp_fn)


# ---- forward mode


def jvp(
    func: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Compute `func(*primals)` and its derivative in the direction of the tangents.

    Args:
        primals: a tuple of the arguments.
        tangents: a tuple of the same structure, each tensor of its primal's shape and dtype.
        strict: raise where an output does not depend on the inputs, instead of giving zeros.

    Returns `(output, derivative)`, or with `has_aux` `(output, derivative, aux)`.
    """
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple):
            raise TypeError(f"jvp: {name} must be a tuple, got {type(value).__name__}")
    if not primals:
        raise ValueError("jvp: expected at least one primal")
    values, spec = _tensors(primals, "jvp")
    directions, tangent_spec = _tensors(tangents, "jvp")
    if spec != tangent_spec:
        raise ValueError(f"jvp: expected tangents of structure {spec}, got {tangent_spec}")
    with DualLevel() as level:
        duals = [level.enter(x, t) for x, t in zip(values, directions, strict=True)]
        output, aux = _pair(func(*tree_unflatten(duals, spec)), has_aux, "jvp")
        leaves, out_spec = _tensors(output, "jvp")
        if strict and not all(level.depends(y) for y in leaves):
            raise RuntimeError("jvp: with strict=True every output must depend on the inputs")
        pairs = [level.leave(y) for y in leaves]
        aux_leaves, aux_spec = tree_flatten(aux)
        kept = [level.leave(x)[0] if isinstance(x, Tensor) else x for x in aux_leaves]
    out = tree_unflatten([p for p, _ in pairs], out_spec)
    derivative = tree_unflatten([t for _, t in pairs], out_spec)
    if has_aux:
        return out, derivative, tree_unflatten(kept, aux_spec)
    return out, derivative


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Compute `func(*primals)` and its derivative there, a linear function of tangents.

    The function is run once; `jvp_fn(*tangents)` runs only what depends on the tangents.
    """
    output, vjp_fn = vjp(func, *primals)
    leaves, spec = tree_flatten(output)
    zeros = tree_unflatten([rabbet.zeros_like(y) for y in leaves], spec)
    _, transpose = vjp(vjp_fn, zeros)
    structure = tree_flatten(tuple(primals))[1]

    def jvp_fn(*tangents: Any) -> Any:
        """The derivative in the direction of the tangents, which have the structure of the primals."""
        _, given = tree_flatten(tangents)
        if given != structure:
            raise ValueError(f"jvp_fn: expected tangents of structure {structure}, got {given}")
        return transpose(tangents)[0]

    return output, jvp_fn


# ---- Jacobians


def _basis(leaves: list[Tensor]) -> list[Tensor]:
    """Unit vectors of all the leaves together: for each leaf (total, *shape)."""
    total = sum(x.numel() for x in leaves)
    blocks, at = [], 0
    for x in leaves:
        n = x.numel()
        eye = rabbet.zeros(total, n, dtype=x.dtype, device=x.device)
        if n:
            eye[at : at + n] = rabbet.eye(n, dtype=x.dtype, device=x.device)
        blocks.append(eye.reshape((total, *x.shape)))
        at += n
    return blocks


def _split(rows: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    """Take apart what belongs to each leaf: (total, *rest) to (*shape, *rest)."""
    parts, at = [], 0
    for x in leaves:
        n = x.numel()
        parts.append(rows[at : at + n].reshape((*x.shape, *rows.shape[1:])))
        at += n
    return parts


def _check_chunk(chunk_size: int | None, what: str) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"{what}: chunk_size must be positive, got {chunk_size}")


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `func`, in reverse mode: a row at a time.

    Args:
        argnums: which positional arguments to differentiate, an int or a tuple.
        has_aux: `func` returns `(output, aux)`, and the result gives `(jacobian, aux)`.
        chunk_size: how many rows are computed at once; None: all.

    For each leaf of the output there is the tree of the arguments, whose leaves have the shape
    `(*output.shape, *input.shape)`.
    """
    name = "jacrev"
    _check_chunk(chunk_size, name)

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        positions = _positions(argnums, len(args), name)
        chosen = tuple(args[n] for n in positions)

        def of_chosen(*values: Any) -> Any:
            given = list(args)
            for n, value in zip(positions, values, strict=True):
                given[n] = value
            return func(*given, **kwargs)

        output, vjp_fn, *aux = vjp(of_chosen, *chosen, has_aux=has_aux)
        leaves, spec = _tensors(output, name)
        in_spec = tree_structure(chosen)

        def row(*cotangents: Tensor) -> list[Tensor]:
            return tree_flatten(vjp_fn(tree_unflatten(cotangents, spec)))[0]

        rows = vmap(row, chunk_size=chunk_size)(*_basis(leaves))
        by_output = zip(*[_split(r, leaves) for r in rows], strict=True)
        result = tree_unflatten(
            [_chosen(tree_unflatten(b, in_spec), argnums) for b in by_output], spec
        )
        return (result, aux[0]) if has_aux else result

    return transformed


def _chosen(trees: tuple[Any, ...], argnums: Argnums) -> Any:
    return trees if isinstance(argnums, tuple) else trees[0]


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `func`, in forward mode: a column at a time.

    Arguments and result are those of `jacrev`; `randomness` is vmap's.
    """
    name = "jacfwd"
    _check_chunk(chunk_size, name)

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        positions = _positions(argnums, len(args), name)
        leaves, in_spec = _tensors(tuple(args[n] for n in positions), name)

        def of_chosen(*values: Tensor) -> Any:
            given = list(args)
            trees = tree_unflatten(values, in_spec)
            for n, value in zip(positions, trees, strict=True):
                given[n] = value
            return func(*given, **kwargs)

        structure: list[TreeSpec] = []

        def column(*tangents: Tensor) -> Any:
            results = jvp(of_chosen, tuple(leaves), tangents, has_aux=has_aux)
            found, spec = tree_flatten(results[1])
            structure[:] = [spec]
            return found, results[2] if has_aux else ()

        columns, aux = vmap(
            column,
            out_dims=(-1, None) if has_aux else -1,
            randomness=randomness,
            chunk_size=chunk_size,
        )(*_basis(leaves))
        by_output = []
        for c in columns:
            parts, at = [], 0
            for x in leaves:
                n = x.numel()
                parts.append(c[..., at : at + n].reshape((*c.shape[:-1], *x.shape)))
                at += n
            by_output.append(_chosen(tree_unflatten(parts, in_spec), argnums))
        result = tree_unflatten(by_output, structure[0])
        return (result, aux) if has_aux else result

    return transformed


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the second derivatives of `func`: forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)
