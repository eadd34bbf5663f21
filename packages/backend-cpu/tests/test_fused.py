"""Kernels of whole formulas give the bits that the formula gives, evaluated one operator at a time."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rabbet
from rabbet import _C

HALF = [rabbet.bfloat16, rabbet.float16]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 1e-40, -1e-40, 3e38, 88.5, -104.5]
# Values for arguments whose type does not say what fits.
WORDS: dict[tuple[str, str], list[Any]] = {
    ("gelu", "approximate"): ["none", "tanh"],
    ("gelu_vjp", "approximate"): ["none", "tanh"],
    ("div", "rounding_mode"): [None],
    ("hardtanh", "min_val"): [-1, -2, 0.5],
    ("hardtanh", "max_val"): [1, 0.7],
    ("softshrink", "lambd"): [0.5, 0, 1.5],
    ("gamma_exponent", "low"): [False, True],
    ("gamma_central", "low"): [False, True],
    ("chebyshev_wave", "odd"): [False, True],
    ("chebyshev_growth", "odd"): [False, True],
    ("chebyshev", "kind"): [1, 2, 3, 4],
    ("chebyshev", "shifted"): [False, True],
}
NUMBERS = [1, 0.7, -2]
STAND_INS = {"pow": [0, 1, 2, 3, -1, 0.5, 2.5, -2]}


def fused() -> list[tuple[str, str | None]]:
    """Each kernel: the operator and, for a derivative, the argument."""
    rabbet.zeros(1)  # loads the backend
    found: list[tuple[str, str | None]] = []
    for name in _C.record_names():
        info = _C.op_info(name)
        for formula, backends in info["formula_kernels"].items():
            if "cpu" in backends:
                found.append((name, formula[4:] if formula.startswith("vjp ") else None))
    return found


KERNELS = fused()
FORWARD = [name for name, arg in KERNELS if arg is None]
# The arguments of `addr` do not broadcast.
BACKWARD = sorted({name for name, arg in KERNELS if arg is not None and name != "addr"})


def step_by_step(run: Callable[..., Any], *args: Any) -> Any:
    before = _C.use_formula_kernels(False)
    try:
        return run(*args)
    finally:
        _C.use_formula_kernels(before)


def draw(rng: np.random.Generator, dtype: Any, *shape: int, special: bool = True) -> Any:
    x = rng.standard_normal(shape) * 2
    if special and x.size:
        flat = x.reshape(-1)
        flat[rng.integers(0, x.size, x.size // 2)] = rng.choice(SPECIAL, x.size // 2)
    return rabbet.tensor(x, dtype=dtype)


def layouts(rng: np.random.Generator, dtype: Any, count: int) -> Iterator[list[Any]]:
    """`count` tensors: of one shape, broadcast against each other, with strides, empty, 0-d."""
    yield [draw(rng, dtype, 1100) for _ in range(count)]
    shapes = [(5, 1, 13), (3, 13), (1,)]
    yield [draw(rng, dtype, *shapes[i % 3]) for i in range(count)]
    yield [draw(rng, dtype, *shapes[(i + 1) % 3]) for i in range(count)]
    yield [
        draw(rng, dtype, 9, 14)[:, ::2] if i % 2 else draw(rng, dtype, 7, 9).t()
        for i in range(count)
    ]
    yield [draw(rng, dtype, 0, 3) for _ in range(count)]
    yield [draw(rng, dtype) for _ in range(count)]


def calls(name: str) -> Iterator[tuple[list[str], Callable[..., Any]]]:
    """Ways to call the operator: the arguments that are tensors, and the call."""
    op = rabbet.ops(name)
    info = _C.op_info(name)
    params = info["params"]
    tensors = [p["name"] for p in params if p["type"] == "Tensor"]
    plain: list[dict[str, Any]] = [{}]
    for p in params:
        if p["type"] == "Tensor":
            continue
        choices = WORDS.get((name, p["name"]))
        if choices is None and p["type"] == "float" and not p["has_default"]:
            choices = NUMBERS
        if choices is None and p["type"] == "Scalar":
            choices = NUMBERS if not p["has_default"] else [p["default"], *NUMBERS]
        if choices:
            plain = [{**given, p["name"]: c} for given in plain for c in choices]
    for given in plain:
        yield tensors, lambda *x, given=given: op(**dict(zip(tensors, x)), **given)
    for p in params:
        if p["name"] not in info["numbers"] or len(tensors) < 2:
            continue
        for value in STAND_INS.get(name, [0.5]):
            others = [t for t in tensors if t != p["name"]]
            yield (
                others,
                lambda *x, fixed={**plain[0], p["name"]: value}, others=others: op(
                    **dict(zip(others, x)), **fixed
                ),
            )
    for p in params:
        if p["type"] == "Tensor" and p["optional"]:
            others = [t for t in tensors if t != p["name"]]
            yield others, lambda *x, others=others: op(**dict(zip(others, x)))


def same_bits(a: Any, b: Any) -> None:
    assert (a is None) == (b is None)
    if a is None:
        return
    assert a.dtype == b.dtype and a.shape == b.shape
    wide = rabbet.float64 if a.dtype == rabbet.float64 else rabbet.float32  # exact
    x, y = (np.ascontiguousarray(t.detach().to(wide).numpy()) for t in (a, b))
    both = np.isnan(x) & np.isnan(y)
    bits = np.uint64 if x.itemsize == 8 else np.uint32
    np.testing.assert_array_equal(np.where(both, 0, x.view(bits)), np.where(both, 0, y.view(bits)))


def test_the_operators_that_matter_have_kernels() -> None:
    forward = "sigmoid silu rsqrt reciprocal gelu_vjp lerp addcmul addcdiv logaddexp exp2 square frac leaky_relu elu softplus hardtanh logsigmoid"
    assert set(forward.split()) <= set(FORWARD)
    backward = """mul.input mul.other div.input div.other pow.input atan2.input maximum.other clamp.input exp.input
        log.input sqrt.input tanh.input sigmoid.input erf.input relu.input silu.input gelu.input gelu_vjp.x lerp.weight
        addcmul.tensor1 addcdiv.tensor2 logaddexp.input leaky_relu.input elu.input softplus.input hardtanh.input"""
    assert {tuple(w.split(".")) for w in backward.split()} <= set(KERNELS)


def test_core_uses_every_kernel_that_it_has_written() -> None:
    """Each kernel's formula is that of core's record, else core would not use it."""
    text = _C.emit("cpu")["fused_kernels.inc"]
    written = set(re.findall(r"^int choose_.*// (\S+)$", text, re.M))
    written.remove("gelu")  # products need a kernel of its own, which goes first
    assert written == {name if arg is None else f"{name}.vjp.{arg}" for name, arg in KERNELS}


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64], ids=str)
@pytest.mark.parametrize("name", FORWARD)
def test_forward_gives_the_bits_of_the_decomposition(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    for tensors, call in calls(name):
        for x in layouts(rng, dtype, len(tensors)):
            same_bits(call(*x), step_by_step(call, *x))


def has_derivative(name: str, argument: str) -> bool:
    """Whether the record has one for the argument: igamma has none for its first."""
    info = _C.op_info(name)
    (param,) = (p for p in info["params"] if p["name"] == argument)
    return param["vjp"] or param["linear"] or param["bilinear"] or not info["has_vjp"]


def gradients(call: Callable[..., Any], x: list[Any], wanted: list[bool], seed: int) -> list[Any]:
    leaves = [t.detach().requires_grad_(w) for t, w in zip(x, wanted, strict=True)]
    out = call(*leaves)
    out.backward(draw(np.random.default_rng(seed), out.dtype, *out.shape))
    return [t.grad for t in leaves]


@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64], ids=str)
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_gives_the_bits_of_the_formula(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    for tensors, call in calls(name):
        wanted = [has_derivative(name, argument) for argument in tensors]
        if not any(wanted):
            continue
        for x in layouts(rng, dtype, len(tensors)):
            stepped = step_by_step(gradients, call, x, wanted, 3)
            for a, b in zip(gradients(call, x, wanted, 3), stepped, strict=True):
                same_bits(a, b)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", FORWARD)
def test_half_precision_computes_in_float32_and_rounds_once(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    for tensors, call in calls(name):
        for x in layouts(rng, dtype, len(tensors)):
            wide = [t.to(rabbet.float32) for t in x]
            same_bits(call(*x), step_by_step(call, *wide).to(dtype))


def evaluate(name: str, argument: str, values: dict[str, Any]) -> Any:
    """The derivative's formula by Python: the language is a subset of it."""
    from rabbet import ops

    class Names(dict[str, Any]):
        def __missing__(self, key: str) -> Any:
            if key == "is_complex":
                return lambda x: False
            if key == "inf":
                return float("inf")
            return (lambda x: x) if key in ("conj", "real") else ops(key)

    names = Names(values)
    path = Path(__file__).parents[2] / "core" / "ops" / "elementwise.rec"
    block = path.read_text().split(f"\n{name}(")[1].split("\n  doc")[0]
    for line in block.splitlines():
        if line.strip().startswith("let "):
            let, _, formula = line.strip()[4:].partition(" = ")
            names[let.strip()] = eval(formula, {}, names)
    return eval(_C.op_info(name)["formulas"][f"vjp {argument}"], {}, names)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(
    "name",
    ["tanh", "sigmoid", "exp", "sqrt", "silu", "mul", "div", "atan2", "logaddexp", "elu", "erf"],
)
def test_half_precision_derivatives_round_once(name: str, dtype: Any) -> None:
    info = _C.op_info(name)
    params = [p["name"] for p in info["params"] if p["type"] == "Tensor"]
    x = [draw(np.random.default_rng(5), dtype, 700).requires_grad_() for _ in params]
    out = rabbet.ops(name)(*x)
    g = draw(np.random.default_rng(6), dtype, 700)
    out.backward(g)
    values = {n: t.detach().to(rabbet.float32) for n, t in zip(params, x)}
    values |= {"out": out.detach().to(rabbet.float32), "grad": g.to(rabbet.float32)}
    values |= {p["name"]: p["default"] for p in info["params"] if p["has_default"]}
    for n, t in zip(params, x):
        same_bits(t.grad, step_by_step(evaluate, name, n, values).to(dtype))


@pytest.mark.parametrize("threads", [1, 2])
def test_large_tensors_give_the_same_bits_on_all_threads(threads: int) -> None:
    rng = np.random.default_rng(7)
    x, y = draw(rng, rabbet.float32, 300, 1000), draw(rng, rabbet.float32, 1000)
    before = rabbet.get_num_threads()
    try:
        rabbet.set_num_threads(threads)
        whole = rabbet.logaddexp(x, y)
    finally:
        rabbet.set_num_threads(before)
    for i in (0, 151, 299):
        same_bits(whole[i], step_by_step(rabbet.logaddexp, x[i], y))


def test_results_in_place_and_into_views() -> None:
    rng = np.random.default_rng(8)
    for name in ("lerp", "addcmul", "addcdiv"):
        x, y, z = (draw(rng, rabbet.float32, 6, 7) for _ in range(3))
        want = step_by_step(rabbet.ops(name), x, y, z)
        out = rabbet.zeros(7, 6).t()
        assert rabbet.ops(name)(x, y, z, out=out) is out
        same_bits(out, want)
        base = rabbet.zeros(8, 8)
        rabbet.ops(name)(x, y, z, out=base[1:7, :7])
        same_bits(base[1:7, :7].clone(), want)
        assert base[0].eq(0).all().item() and base[:, 7].eq(0).all().item()
        # An argument that shares some of its elements with the destination.
        buffer = draw(rng, rabbet.float32, 20)
        before = buffer.tolist()
        with pytest.raises(RuntimeError, match="share some elements"):
            rabbet.ops(name)(buffer[:19], buffer[1:], 0.5, out=buffer[:19])
        np.testing.assert_array_equal(buffer.tolist(), before)
    x = draw(rng, rabbet.float32, 6, 7)
    want, version = x + x * 2.0 * x, x._version
    assert x.addcmul_(x, x, value=2.0) is x and x._version > version
    same_bits(x, want)


def test_the_layout_of_the_gradient_is_kept() -> None:
    x = rabbet.randn(3, 4, 5).permute(2, 0, 1).requires_grad_()
    (g,) = rabbet.autograd.grad(x.tanh(), x, rabbet.randn(3, 4, 5).permute(2, 0, 1))
    assert g.stride() == x.stride()


def test_operands_that_are_not_plain_run_the_formula() -> None:
    integers = rabbet.tensor([1, 2, 3])
    assert rabbet.addcmul(integers, integers, integers + 2, value=2).tolist() == [7, 18, 33]
    assert rabbet.square(integers).dtype == rabbet.int64
    mixed = rabbet.addcmul(rabbet.ones(2), rabbet.ones(2, dtype=rabbet.float64) * 3, integers[:2])
    assert mixed.dtype == rabbet.float64 and mixed.tolist() == [4.0, 7.0]
    z = rabbet.tensor([1 + 2j])
    assert rabbet.square(z).tolist() == [-3 + 4j]
    assert rabbet.addcmul(z, rabbet.ones(1), rabbet.ones(1), value=2j).tolist() == [1 + 4j]
    w = z.clone().requires_grad_()
    (w * w).backward(rabbet.tensor([1 + 0j]))
    assert w.grad.tolist() == [2 - 4j]
    assert rabbet.lerp(rabbet.ones(2, device="meta"), rabbet.ones(2, device="meta"), 0.5).shape == (
        2,
    )


def test_errors_name_the_operator() -> None:
    with pytest.raises(ValueError, match=r"lerp: shapes \(2,\) and \(3,\) do not broadcast"):
        rabbet.lerp(rabbet.ones(2), rabbet.ones(3), 0.5)
    with pytest.raises(ValueError, match="destination has shape"):
        rabbet.ones(1).lerp_(rabbet.ones(2), 0.5)
    with pytest.raises(ValueError, match="'approximate' must be 'none' or 'tanh', got 'cubic'"):
        x = rabbet.ones(2, requires_grad=True)
        rabbet.gelu(x, approximate="cubic")


def test_second_derivatives_are_recorded() -> None:
    x = rabbet.tensor([0.3, -0.4], dtype=rabbet.float64, requires_grad=True)
    (g,) = rabbet.autograd.grad(x.tanh().sum(), x, create_graph=True)
    assert g.requires_grad
    (h,) = rabbet.autograd.grad(g.sum(), x)
    t = np.tanh(x.detach().numpy())
    np.testing.assert_allclose(h.numpy(), -2 * t * (1 - t * t), rtol=1e-12)


@pytest.mark.parametrize("dtype", [rabbet.bool, rabbet.uint8, rabbet.int32], ids=str)
def test_decomposed_operators_take_integers_as_their_kernels_did(dtype: Any) -> None:
    x = rabbet.tensor([1, 0, 3]).to(dtype)  # -x would wrap
    wide = x.to(rabbet.float32)
    for run in (lambda f: f, lambda f: lambda x: step_by_step(f, x)):
        assert run(rabbet.sigmoid)(x).tolist() == rabbet.sigmoid(wide).tolist()
        assert run(rabbet.rsqrt)(x).dtype == rabbet.float32
        assert run(rabbet.reciprocal)(x).tolist() == (1 / wide).tolist()


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("erfinv", 0.5, 0.9999),
        ("i0", 1.0, 20.0),
        ("lgamma", 2.0, 20.0),
        ("digamma", 0.1, 20.0),
        ("igamma", 0.1, 60.0),
    ],
)
@pytest.mark.parametrize("dtype", [rabbet.float32, rabbet.float64], ids=str)
def test_sides_that_no_lane_takes(name: str, low: float, high: float, dtype: Any) -> None:
    """A vector whose elements are all of one kind skips parts of the formula, with the same results."""
    f = getattr(rabbet, name)
    given = [rabbet.tensor(np.linspace(low, high, 300), dtype=dtype) for _ in range(2)]
    given = given if name == "igamma" else given[:1]
    mixed = [x.reshape(3, 100).t().contiguous().reshape(-1) for x in given]
    alone = rabbet.stack([f(*(x[i] for x in given)) for i in range(300)])
    same_bits(f(*given), alone)
    same_bits(f(*mixed), alone.reshape(3, 100).t().reshape(-1))


def test_bodies_of_one_precision() -> None:
    for name in ("erfinv", "ndtr"):
        f = rabbet.ops(name)
        x = rabbet.linspace(-0.9, 0.9, 77, dtype=rabbet.float64)
        single = x.float()
        for given in (x, single, x.half(), x.bfloat16(), single[::3]):
            same_bits(f(given), step_by_step(f, given))
        exact = f(single.double())
        assert (f(single) - exact).abs().max().item() < 2e-7
        assert not f(x).float().double().equal(f(x))
