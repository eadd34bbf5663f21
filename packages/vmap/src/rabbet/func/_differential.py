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
        raise RuntimeError(f"{what}: argnums must be non-empty")
    found = []
    for n in given:
        if isinstance(n, bool) or not isinstance(n, int):
            raise RuntimeError(
                f"{what}: argnums must be int or Tuple[int, ...], got: {type(argnums)}"
            )
        if not -count <= n < count:
            raise RuntimeError(f"{what}: Got argnum={n}, but only {count} positional inputs")
        found.append(n % count)
    if len(set(found)) != len(found):
        raise RuntimeError(f"{what}: argnums elements must be unique, got {argnums!r}")
    return tuple(found)


def _inputs(tree: Any, what: str) -> tuple[list[Tensor], TreeSpec]:
    """The leaves of what is differentiated with respect to."""
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"{what}: Thing passed to transform API must be Tensor, got {type(leaf)}"
            )
    return leaves, spec


def _outputs(tree: Any, what: str) -> tuple[list[Tensor], TreeSpec]:
    """The leaves of what is differentiated; `what`: the call as messages show it."""
    leaves, spec = tree_flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                f"{what}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}"
            )
    if not leaves:
        raise RuntimeError(
            f"{what}: Expected f to be a function that has non-empty output (got output = {tree!r})"
        )
    return leaves, spec


def _pair(result: Any, has_aux: bool, what: str) -> tuple[Any, Any]:
    """(output, auxiliary values); the second is None without has_aux."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{what}: output of function f should be a tuple: (output, aux) if has_aux is True, "
            f"got {type(result)}"
        )
    return result


def _left(level: GradLevel, tree: Any) -> Any:
    leaves, spec = tree_flatten(tree)
    return tree_unflatten([level.leave(x) if isinstance(x, Tensor) else x for x in leaves], spec)


def _entered(level: GradLevel, tree: Any, what: str) -> Any:
    leaves, spec = _inputs(tree, what)
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
            output, aux = _pair(func(*inside, **kwargs), has_aux, _GRAD)
            _check_scalar(output)
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


_GRAD = "grad_and_value(f)(*args)"
_VJP = "vjp(f, *primals)"
_JVP = "jvp(f, primals, tangents)"


def _check_scalar(output: Any) -> None:
    if not isinstance(output, Tensor):
        raise RuntimeError(f"{_GRAD}: Expected f(*args) to return a Tensor, got {type(output)}")
    if output.ndim != 0:
        raise RuntimeError(
            f"{_GRAD}: Expected f(*args) to return a scalar Tensor, got tensor with {output.ndim} dims. Maybe you "
            "wanted to use the vjp or jacrev APIs instead?"
        )
    if not output.is_floating_point():
        raise RuntimeError(
            f"{_GRAD}: Expected f(*args) to return a real floating Tensor, got {output.dtype}"
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
        raise RuntimeError(f"{_VJP}: Expected primals to contain at least one Tensor.")
    level = GradLevel()
    with level:
        inside = [_entered(level, p, "vjp") for p in primals]
        output, aux = _pair(func(*inside), has_aux, _VJP)
        raw, spec = _outputs(output, _VJP)
        for y in raw:
            if not (y.is_floating_point() or y.is_complex()):
                raise RuntimeError(
                    f"{_VJP}: All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                    f"{y.dtype}"
                )
        output, aux = _left(level, output), _left(level, aux)
    level.close(raw)
    specs = [tree_flatten(p)[1] for p in primals]

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        """The products of cotangents with the Jacobian: a tuple, an entry for each primal."""
        given, given_spec = _inputs(cotangents, "vjp_fn")
        if given_spec != spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given_spec}, primal output: {spec}"
            )
        for i, (y, g) in enumerate(zip(raw, given, strict=True)):
            if tuple(y.shape) != tuple(g.shape):
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {tuple(g.shape)} and output[{i}] has a "
                    f"shape of {tuple(y.shape)}."
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
            raise RuntimeError(
                f"{_JVP}: Expected {name} to be a tuple. E.g. it should be valid to call f(*{name}); got {type(value)}"
            )
    values, spec = _directions(primals, "primals")
    directions, tangent_spec = _directions(tangents, "tangents")
    if spec != tangent_spec:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure "
            f"{tangent_spec}"
        )
    with DualLevel() as level:
        duals = [level.enter(x, t) for x, t in zip(values, directions, strict=True)]
        output, aux = _pair(func(*tree_unflatten(duals, spec)), has_aux, _JVP)
        leaves, out_spec = _outputs(output, _JVP)
        if strict and not all(level.depends(y) for y in leaves):
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
                "allowed with strict=True."
            )
        pairs = [level.leave(y) for y in leaves]
        aux_leaves, aux_spec = tree_flatten(aux)
        kept = [level.leave(x)[0] if isinstance(x, Tensor) else x for x in aux_leaves]
    out = tree_unflatten([p for p, _ in pairs], out_spec)
    derivative = tree_unflatten([t for _, t in pairs], out_spec)
    if has_aux:
        return out, derivative, tree_unflatten(kept, aux_spec)
    return out, derivative


def _directions(values: Sequence[Any], name: str) -> tuple[list[Tensor], TreeSpec]:
    leaves, spec = tree_flatten(values)
    if not leaves:
        raise RuntimeError(f"{_JVP}: Expected {name} to contain at least one Tensor.")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{_JVP}: Expected {name} to only contain Tensors, got {type(leaf)}")
        if not (leaf.is_floating_point() or leaf.is_complex()):
            raise ValueError(
                f"Expected {name[:-1]} to be floating point or complex, but got: {leaf.dtype}"
            )
    return leaves, spec


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Compute `func(*primals)` and its derivative there, a linear function of tangents.

    The function is run once; `jvp_fn(*tangents)` runs only what depends on the tangents.
    """
    output, vjp_fn = vjp(func, *primals)
    leaves, spec = tree_flatten(output)
    zeros = tree_unflatten([rabbet.zeros_like(y) for y in leaves], spec)
    _, transpose = vjp(vjp_fn, zeros)
    values, structure = tree_flatten(tuple(primals))
    expected = [(tuple(x.shape), x.dtype) for x in values]

    def jvp_fn(*tangents: Any) -> Any:
        """The derivative in the direction of the tangents, which have the structure of the primals."""
        given, spec = _inputs(tangents, "jvp_fn")
        if spec != structure:
            raise RuntimeError(
                f"Expected the tangents {spec} to have the same argspec as the primals {structure}"
            )
        for i, (t, (shape, dtype)) in enumerate(zip(given, expected, strict=True)):
            for name, got, wanted in (("shape", tuple(t.shape), shape), ("dtype", t.dtype, dtype)):
                if got != wanted:
                    raise RuntimeError(
                        f"tangent:{i} with {name} {got} in flattened pytree doesn't match the {name} {wanted} of the "
                        "corresponding primal."
                    )
        return transpose(tangents)[0]

    return output, jvp_fn


# ---- Jacobians


def _basis(leaves: list[Tensor]) -> list[Tensor]:
    """Unit vectors of all the leaves together: for each leaf (total, *shape)."""
    total = sum(x.numel() for x in leaves)
    blocks, at = [], 0
    for x in leaves:
        n = x.numel()
        block = rabbet.eye(n, dtype=x.dtype, device=x.device)
        if n != total:
            rows, block = block, rabbet.zeros(total, n, dtype=x.dtype, device=x.device)
            block[at : at + n] = rows
        blocks.append(block.reshape((total, *x.shape)))
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
        raise ValueError(f"{what}: `chunk_size` should be greater than 0, got {chunk_size}.")


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
        leaves, spec = tree_flatten(output)
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
        leaves, in_spec = _inputs(tuple(args[n] for n in positions), name)

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
