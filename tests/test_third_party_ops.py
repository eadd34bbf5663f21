"""Operators of an op pack, through every transform: with a forward kernel alone, and with their rules."""

import subprocess
import sys
import warnings

import pytest
import rabbet
from plugin_wheels import build
from rabbet import func, vmap
from rabbet._pytree import tree_leaves
from rabbet.autograd import no_grad
from rabbet_testing import assert_close

# wave(x, y) = x * sin(y), what broadcasts; mix(x, w)[..., i] = x[..., i] ** 2 * w[i];
# polar(r, t) = r * cos(t), r * sin(t), all of one shape.
KERNELS = r"""
#include <math.h>
static double get(const RbTensor* t, int64_t i)
{ return t->dtype_id == RB_F64 ? ((double*)t->data)[i] : ((float*)t->data)[i]; }
static void put(RbTensor* t, int64_t i, double v)
{ if (t->dtype_id == RB_F64) ((double*)t->data)[i] = v; else ((float*)t->data)[i] = (float)v; }
/* Where element `n` of `like`, counted row by row, lies in `t`, which broadcasts to it. */
static int64_t place(const RbTensor* t, const RbTensor* like, int64_t n)
{ int64_t at = 0;
  for (int d = like->ndim - 1; d >= 0; --d) {
    const int64_t i = n % like->shape[d], k = d - (like->ndim - t->ndim);
    n /= like->shape[d];
    if (k >= 0 && t->shape[k] > 1) at += i * t->strides[k];
  }
  return at; }
static int32_t wave(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)n; (void)m;
  RbTensor* y = r[0].v.t;
  for (int64_t i = 0; i < y->numel; ++i)
    put(y, place(y, y, i), get(a[0].v.t, place(a[0].v.t, y, i)) * sin(get(a[1].v.t, place(a[1].v.t, y, i))));
  return RB_OK; }
static int32_t mix(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)n; (void)m;
  const RbTensor *x = a[0].v.t, *w = a[1].v.t;
  if (w->ndim < 1 || x->ndim < 1 || x->shape[x->ndim - 1] != w->shape[w->ndim - 1])
    return c->host->err_set(RB_E_ARG, "mix: expected w with one weight for each element of a row of x");
  RbTensor* y = r[0].v.t;
  for (int64_t i = 0; i < y->numel; ++i) {
    const double v = get(x, place(x, y, i));
    put(y, place(y, y, i), v * v * get(w, place(w, y, i)));
  }
  return RB_OK; }
static int32_t polar(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)n; (void)m;
  RbTensor *x = r[0].v.t, *y = r[1].v.t;
  for (int64_t i = 0; i < x->numel; ++i) {
    const double radius = get(a[0].v.t, place(a[0].v.t, x, i)), t = get(a[1].v.t, place(a[1].v.t, x, i));
    put(x, place(x, x, i), radius * cos(t));
    put(y, place(y, y, i), radius * sin(t));
  }
  return RB_OK; }
static int32_t add(const RbHost* host, RbTxn* txn, const char* op, RbFn fn)
{ RbKernel k; memset(&k, 0, sizeof k); k.struct_size = RB_SIZE(RbKernel, reserved); k.op = op; k.backend = "cpu";
  k.fn = fn; k.dtype_mask = 1ull << RB_F32 | 1ull << RB_F64; return host->add_kernel(txn, &k); }
"""
WAVE, MIX = "wave(Tensor x, Tensor y) -> Tensor", "mix(Tensor x, Tensor w) -> Tensor"
POLAR = "polar(Tensor r, Tensor t) -> (Tensor x, Tensor y)"
BARE = f"""\
bare::{WAVE}
  kind  opaque
  dtype x
  shape x.shape
bare::{MIX}
  kind  opaque
  dtype x
  shape x.shape
bare::{POLAR}
  kind  opaque
  dtype r, r
  shape r.shape
"""
DWAVE = "  vjp x  grad * sin(y)\n  vjp y  grad * x * cos(y)\n"
DMIX = "  vjp x  grad * 2 * x * w\n  vjp w  sum_to(grad * x * x, w.shape)\n"
DPOLAR = """\
  vjp r  grad_x * cos(t) + grad_y * sin(t)
  vjp t  grad_y * x - grad_x * y
"""
RULED = f"""\
reverse::{WAVE}
  kind  elementwise
  autocast fp32
{DWAVE}\
both::{WAVE}
  kind  elementwise
  autocast fp32
{DWAVE}\
  jvp   dot_x * sin(y) + dot_y * x * cos(y)
reverse::{MIX}
  kind  opaque
  autocast fp32
  dtype promote(x, w)
  compute out
  shape broadcast_shape(x.shape, w.shape)
  core  (...,n),(...,n)->(...,n)
{DMIX}\
both::{MIX}
  kind  opaque
  autocast fp32
  dtype promote(x, w)
  compute out
  shape x.shape
  batch leading x
{DMIX}\
  jvp   2 * x * dot_x * w + x * x * dot_w
reverse::{POLAR}
  kind  opaque
  autocast fp32
  dtype promote(r, t), promote(r, t)
  compute out
  shape broadcast_shape(r.shape, t.shape)
  core  (...),(...)->(...),(...)
{DPOLAR}\
parts::{WAVE}
  kind  composite
  decomp x * sin(y)
partial::{WAVE}
  kind  elementwise
  vjp x  grad * sin(y)
forward::{WAVE}
  kind  elementwise
  jvp   dot_x * sin(y) + dot_y * x * cos(y)
"""


@pytest.fixture(scope="module", autouse=True)
def pack(tmp_path_factory):
    """The op pack, loaded into this process."""
    records = (BARE + RULED).replace("\n", "\\n")
    names = [line.split("(")[0] for line in (BARE + RULED).splitlines() if "::" in line]
    kernels = " || ".join(
        f'add(host, txn, "{name}", {name.split("::")[1]})'
        for name in names
        if not name.startswith("parts")
    )
    init = f'return host->add_ops(txn, "{records}") || {kernels};'
    library = build(
        tmp_path_factory.mktemp("pack"), "pack", extra="#include <string.h>\n" + KERNELS, init=init
    )
    rabbet._C.load_plugin(str(library))
    return library


def at(*shape):
    generator = rabbet.Generator().manual_seed(sum(shape))
    return rabbet.rand(shape, dtype=rabbet.float64, generator=generator) + 0.5


REFERENCES = {
    "wave": lambda x, y: x * y.sin(),
    "mix": lambda x, w: x * x * w,
    "polar": lambda r, t: (r * t.cos(), r * t.sin()),
}


def op(name):
    return rabbet.ops(name)


def assert_agree(actual, expected, **tolerances):
    """Trees of tensors; of several results an operator gives a named tuple."""
    for x, y in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        assert_close(x, y, **tolerances)


def total(f):
    """A scalar of all results, in which both count and their derivatives are not constant."""

    def loss(*args):
        out = f(*args)
        parts = out if isinstance(out, tuple) else (out,)
        return sum((k + 1) * (part * part).sum() for k, part in enumerate(parts))

    return loss


# ---- a forward kernel alone


@pytest.mark.parametrize("name", REFERENCES)
def test_bare_computes(name):
    x, y = at(3, 4), at(4) if name == "mix" else at(3, 4)
    assert_agree(op(f"bare::{name}")(x, y), REFERENCES[name](x, y))


def test_bare_passes_autocast_as_it_is():
    x = at(3, 3).float()
    with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
        y = op("bare::wave")(x, x)
        assert (x @ x).dtype == rabbet.bfloat16
        with pytest.raises(
            NotImplementedError, match="bare::wave on 'cpu' supports float32, float64; got bfloat16"
        ):
            op("bare::wave")(x @ x, x @ x)
    assert y.dtype == rabbet.float32
    assert_close(y, x * x.sin())


CASES = [("wave", (5, 3), (5, 3)), ("mix", (5, 2, 3), (5, 3)), ("polar", (5, 3), (5, 3))]


@pytest.mark.parametrize("name,first,second", CASES)
def test_bare_is_looped_over_with_one_warning(name, first, second, pack):
    code = f"""
import warnings, rabbet
rabbet._C.load_plugin({str(pack)!r})
x, y = rabbet.rand{first}, rabbet.rand{second}
f = rabbet.ops("bare::{name}")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        got = rabbet.vmap(f)(x, y)
        rabbet.vmap(f, (0, None))(x, y[0])
assert len(caught) == 1 and caught[0].category is UserWarning, caught
print(caught[0].message)
want = [f(a, b) for a, b in zip(x, y)]
if isinstance(got, tuple):
    assert all((g == rabbet.stack(w)).all() for g, w in zip(got, zip(*want)))
else:
    assert (got == rabbet.stack(want)).all()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"'bare::{name}' has no batching rule" in done.stdout and "strict=True" in done.stdout


@pytest.mark.parametrize("name,first,second", CASES)
def test_bare_is_refused_by_a_strict_vmap(name, first, second):
    message = f"bare::{name}: vmap: there is no batching rule.*`decomp` or `batch` line"
    with pytest.raises(NotImplementedError, match=message):
        vmap(op(f"bare::{name}"), strict=True)(at(*first), at(*second))


def test_bare_nests_in_vmap():
    x, y = at(2, 5, 3), at(5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = vmap(vmap(op("bare::wave")), (0, None))(x, y)
    assert_close(got, x * y.sin())


@pytest.mark.parametrize("name", REFERENCES)
def test_bare_has_no_derivative_and_says_what_to_write(name):
    f, x, y = total(op(f"bare::{name}")), at(3, 3), at(3) if name == "mix" else at(3, 3)
    reverse = rf"bare::{name} has no derivative: add `vjp ARGUMENT FORMULA` to its record"
    forward = rf"bare::{name} has no derivative.*add `jvp FORMULA` or `vjp ARGUMENT FORMULA`"

    loss = f(x.clone().requires_grad_(), y)  # computing it is no error
    with pytest.raises(NotImplementedError, match=reverse):
        loss.backward()
    with pytest.raises(NotImplementedError, match=reverse):
        func.grad(f)(x, y)
    with pytest.raises(NotImplementedError, match=forward):
        func.jvp(f, (x, y), (x, y))
    with pytest.raises(NotImplementedError, match=reverse), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vmap(func.grad(f), (0, None))(at(2, 3, 3), y)
    with pytest.raises(NotImplementedError, match=reverse), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        func.grad(lambda x: vmap(f, (0, None))(x, y).sum())(at(2, 3, 3))
    with no_grad():
        assert not f(x.clone().requires_grad_(), y).requires_grad
    assert not f(x.clone().requires_grad_().detach(), y).requires_grad


def test_a_gradient_that_does_not_pass_the_operator_is_given():
    x = at(3).requires_grad_()
    op("bare::wave")(x, x).detach().sum()
    (x * x).sum().backward()
    assert_close(x.grad, 2 * x.detach())


def test_the_argument_without_a_derivative_is_named():
    x, y = at(3).requires_grad_(), at(3)
    f = op("partial::wave")
    f(x, y).sum().backward()
    assert_close(x.grad, y.sin())
    y.requires_grad_()
    message = "partial::wave: no derivative is recorded for the argument 'y'.*`vjp y FORMULA`"
    with pytest.raises(NotImplementedError, match=message):
        f(x, y).sum().backward()
    with pytest.raises(NotImplementedError, match=message):
        func.jvp(f, (x.detach(), y.detach()), (x.detach(), y.detach()))


def test_forward_mode_alone():
    x, y = at(3), at(3)
    want = func.jvp(REFERENCES["wave"], (x, y), (y, x))
    assert_agree(func.jvp(op("forward::wave"), (x, y), (y, x)), want)
    assert_agree(func.jacfwd(op("forward::wave"))(x, y), func.jacfwd(REFERENCES["wave"])(x, y))
    with pytest.raises(NotImplementedError, match="forward::wave has no derivative: add `vjp"):
        func.grad(total(op("forward::wave")))(x, y)


# ---- with rules

RULES = [
    ("reverse::wave", (3,), (3,)),
    ("both::wave", (3,), (3,)),
    ("both::wave", (2, 3), (3,)),
    ("reverse::wave", (), (3,)),
    ("parts::wave", (2, 1), (3,)),
    ("reverse::mix", (3,), (3,)),
    ("both::mix", (2, 3), (3,)),
    ("reverse::polar", (3,), (3,)),
]
NESTS = {
    "grad": lambda f, x, y: func.grad(total(f), (0, 1))(x, y),
    "vjp": lambda f, x, y: func.vjp(total(f), x, y)[1](rabbet.ones((), dtype=x.dtype)),
    "jvp": lambda f, x, y: func.jvp(f, (x, y), (x * 2, y * 3)),
    "linearize": lambda f, x, y: func.linearize(f, x, y)[1](x * 2, y * 3),
    "grad(grad)": lambda f, x, y: func.grad(
        lambda x, y: sum((g * g).sum() for g in func.grad(total(f), (0, 1))(x, y)), (0, 1)
    )(x, y),
    "jvp(grad)": lambda f, x, y: func.jvp(func.grad(total(f), (0, 1)), (x, y), (x * 2, y * 3)),
    "grad(jvp)": lambda f, x, y: func.grad(
        lambda x, y: func.jvp(total(f), (x, y), (x * 2, y * 3))[1], (0, 1)
    )(x, y),
    "jvp(jvp)": lambda f, x, y: func.jvp(
        lambda x, y: func.jvp(f, (x, y), (x * 2, y * 3)), (x, y), (x, y)
    ),
    "jacrev": lambda f, x, y: func.jacrev(f, (0, 1))(x, y),
    "jacfwd": lambda f, x, y: func.jacfwd(f, (0, 1))(x, y),
    "jacfwd(jacrev)": lambda f, x, y: func.jacfwd(func.jacrev(f, (0, 1)), (0, 1))(x, y),
    "jacrev(jacfwd)": lambda f, x, y: func.jacrev(func.jacfwd(f, (0, 1)), (0, 1))(x, y),
    "hessian": lambda f, x, y: func.hessian(total(f), (0, 1))(x, y),
}
# The same with examples of one argument or both; rows(t, n) has n examples of t in front.
BATCHED = {
    "vmap": lambda f: f,
    "vmap(grad)": lambda f: func.grad(total(f), (0, 1)),
    "vmap(jvp)": lambda f: lambda x, y: func.jvp(f, (x, y), (x * 2, y * 3)),
    "vmap(jvp(grad))": lambda f: lambda x, y: func.jvp(func.grad(total(f)), (x, y), (x * 2, y * 3)),
    "vmap(grad(grad))": lambda f: func.grad(
        lambda x, y: (func.grad(total(f))(x, y) ** 2).sum(), (0, 1)
    ),
    "vmap(jacfwd(jacrev))": lambda f: func.jacfwd(func.jacrev(f), 1),
}
DIMS = [(0, None), (None, 0), (0, 0)]


def rows(t, n):
    scale = rabbet.linspace(0.5, 1.5, n, dtype=t.dtype)
    return scale.reshape(-1, *[1] * t.ndim) * t


def case(rule):
    name, first, second = rule
    return op(name), REFERENCES[name.split("::")[1]], at(*first), at(*second)


def rule_id(rule):
    return f"{rule[0]}-{rule[1]}".replace(" ", "")


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_derivatives_nest(rule, nest):
    f, reference, x, y = case(rule)
    assert_agree(NESTS[nest](f, x, y), NESTS[nest](reference, x, y))


@pytest.mark.parametrize("nest", BATCHED)
@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_examples_are_mapped_over_without_a_loop(rule, nest):
    f, reference, x, y = case(rule)
    for dims in DIMS:
        args = [t if d is None else rows(t, 4) for t, d in zip((x, y), dims)]
        strict = rule[0] != "both::mix" or dims == (0, None)  # its record says `batch leading x`
        with warnings.catch_warnings():
            warnings.simplefilter("error" if strict else "ignore")
            got = vmap(BATCHED[nest](f), dims, strict=strict)(*args)
        assert_agree(got, vmap(BATCHED[nest](reference), dims)(*args))


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_derivatives_of_mapped_functions(rule):
    f, reference, x, y = case(rule)
    xs, ys = rows(x, 4), rows(y, 4)
    outcomes = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if rule[0] == "both::mix" else "error")
        for g in (f, reference):
            mapped = vmap(g, (0, 0))
            twice = vmap(vmap(g, (0, None)), (None, 0))
            inner = vmap(func.grad(total(g)), (0, None))
            outcomes.append((
                func.grad(total(mapped), (0, 1))(xs, ys),
                func.jvp(mapped, (xs, ys), (xs * 2, ys)),
                func.hessian(total(mapped))(xs, ys),
                twice(xs, ys),
                func.grad(total(twice), (0, 1))(xs, ys),
                func.grad(total(inner), (0, 1))(xs, y),
                vmap(vmap(func.grad(total(g), (0, 1)), (0, None)), (None, 0))(xs, ys),
                vmap(func.grad(lambda x, y, g=g: vmap(total(g), (0, None))(x, y).sum(), (0, 1)), (None, 0))(xs, ys),
            ))  # fmt: skip
    assert_agree(outcomes[0], outcomes[1])


@pytest.mark.parametrize("rule", RULES, ids=rule_id)
def test_backward_and_the_record_of_autocast(rule):
    f, reference, x, y = case(rule)
    gradients = []
    for g in (f, reference):
        a, b = x.float().requires_grad_(), y.float().requires_grad_()
        with rabbet.autocast("cpu", dtype=rabbet.bfloat16):
            low = g(a.bfloat16() if g is f else a.bfloat16().float(), b)
            loss = total(g)(a, b) + total(lambda *_, low=low: low)()
        loss.backward()
        gradients.append((low, a.grad, b.grad))
        results = low if isinstance(low, tuple) else (low,)
        assert all(r.dtype == rabbet.float32 for r in results)
    assert_agree(*gradients, rtol=1e-2, atol=1e-2)


def test_results_that_are_given():
    x, y = at(2, 3), at(3)
    out = rabbet.empty(2, 3, dtype=rabbet.float64)
    assert op("reverse::wave")(x, y, out=out) is out
    assert_close(out, x * y.sin())
    with pytest.raises(RuntimeError, match="out= does not support gradients"):
        op("reverse::wave")(x.requires_grad_(), y, out=out)


@pytest.mark.parametrize(
    "name,shape", [("list", "[x.shape]"), ("float", "[2.5]"), ("half", "[x.shape[0] / 2]")]
)
def test_a_shape_formula_that_gives_no_sizes(name, shape):
    record = f"bad::{name}(Tensor x) -> Tensor\n  kind opaque\n  shape {shape}\n"
    rabbet.library.register_records(record)
    message = f"bad::{name}: the shape formula must give a list of ints, but entry 0 is none"
    with pytest.raises(RuntimeError, match=message):
        op(f"bad::{name}")(at(3).to("meta"))


def test_errors_of_kernels_pass_the_transforms():
    for f in (vmap(op("both::mix"), (0, None)), func.grad(total(op("both::mix")))):
        with pytest.raises(ValueError, match="mix: expected w with one weight"):
            f(at(2, 3), at(2))
