"""Regions: what is cast, nesting, threads, decorators, bad input."""

import subprocess
import threading

import pytest
import rabbet
from rabbet import amp

LOW = rabbet.bfloat16


def on(device="cpu"):
    return rabbet.is_autocast_enabled(device)


def product(a=None, b=None):
    x = rabbet.ones(2, 2)
    return ((x if a is None else a) @ (x if b is None else b)).dtype


def test_a_region_casts_and_restores():
    assert product() == rabbet.float32 and not on()
    with rabbet.autocast("cpu") as region:
        assert on() and product() == rabbet.bfloat16
        assert isinstance(region, amp.autocast) and amp.autocast is rabbet.autocast
    assert product() == rabbet.float32 and not on()


def test_float16_is_supported():
    with rabbet.autocast("cpu", rabbet.float16):
        assert product() == rabbet.float16
        assert rabbet.get_autocast_dtype("cpu") == rabbet.float16
    assert rabbet.get_autocast_dtype("cpu") == rabbet.bfloat16


def test_regions_nest():
    with rabbet.autocast("cpu"):
        with rabbet.autocast("cpu", enabled=False):
            assert not on() and product() == rabbet.float32
            with rabbet.autocast("cpu", dtype=rabbet.float16):
                assert product() == rabbet.float16
            assert product() == rabbet.float32
        assert product() == LOW


def test_an_exception_restores():
    with pytest.raises(KeyError), rabbet.autocast("cpu", cache_enabled=False):
        raise KeyError
    assert not on() and rabbet.is_autocast_cache_enabled()


def test_a_region_can_be_entered_again_within_itself():
    region = rabbet.autocast("cpu", rabbet.float16)
    with rabbet.autocast("cpu"), region, region:
        assert product() == rabbet.float16
    assert not on()


def test_a_decorated_function_runs_in_a_region():
    @rabbet.autocast("cpu")
    def fact(n):
        assert product() == LOW
        return 1 if n == 0 else n * fact(n - 1)

    assert fact(4) == 24 and not on() and fact.__name__ == "fact"


def test_state_belongs_to_the_thread():
    seen = []

    def work():
        seen.append((on(), product()))
        with rabbet.autocast("cpu", rabbet.float16):
            seen.append((on(), product()))

    with rabbet.autocast("cpu"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert product() == LOW
    assert seen == [(False, rabbet.float32), (True, rabbet.float16)]


def test_a_decorated_function_serves_threads_at_once():
    inside, failures = threading.Barrier(4), []

    @rabbet.autocast("cpu")
    def work():
        inside.wait()
        for _ in range(50):
            if product() != LOW:
                failures.append("not cast")
        inside.wait()

    def check():
        work()
        if on() or product() != rabbet.float32:
            failures.append("not restored")

    threads = [threading.Thread(target=check) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


@pytest.mark.parametrize("dtype", [rabbet.float64, rabbet.int32, rabbet.complex64])
def test_other_dtypes_are_left_alone(dtype):
    x = rabbet.ones(2, 2, dtype=dtype)
    with rabbet.autocast("cpu"):
        assert product(x, x) == dtype
        assert rabbet.mm(x, x).dtype == dtype


def test_other_devices_are_left_alone():
    with rabbet.autocast("cpu"):
        x = rabbet.ones(2, 2, device="meta")
        assert (x @ x).dtype == rabbet.float32


def test_all_eligible_dtypes_meet_in_the_low_one():
    half, single = rabbet.ones(2, 2, dtype=rabbet.float16), rabbet.ones(2, 2)
    with rabbet.autocast("cpu"):
        assert product(half, single) == LOW and product(half, half) == LOW


def test_writes_are_left_alone():
    x, out = rabbet.full((2, 2), 2.0), rabbet.zeros(2, 2)
    with rabbet.autocast("cpu"):
        assert rabbet.mm(x, x, out=out) is out
        y = rabbet.full((2,), 1.0, dtype=LOW)
        assert y.exp_().dtype == LOW
        x.addcmul_(out, out)
    assert out.tolist() == [[8, 8], [8, 8]] and x.dtype == rabbet.float32


def test_composites_have_the_policies_of_their_parts():
    import rabbet.nn.functional as F

    x, w = rabbet.randn(3, 4), rabbet.randn(4, 4, requires_grad=True)
    q = rabbet.randn(1, 2, 3, 4)
    with rabbet.autocast("cpu"):
        for grad in (True, False):
            with rabbet.set_grad_enabled(grad):
                assert rabbet.addmm(x[:, :4], x, w).dtype == LOW
                assert rabbet.einsum("ij,jk->ik", x, w).dtype == LOW
                assert F.scaled_dot_product_attention(q, q, q, dropout_p=0.3).dtype == LOW
                assert F.cross_entropy(x @ w, rabbet.tensor([0, 1, 2])).dtype == rabbet.float32
                assert (x @ w).std().dtype == LOW
                assert F.dropout(x @ w).dtype == LOW


def test_a_dtype_that_the_caller_gives_counts():
    x = rabbet.ones(3, dtype=LOW)
    with rabbet.autocast("cpu"):
        assert x.sum().dtype == rabbet.float32
        assert x.sum(dtype=rabbet.bfloat16).dtype == LOW
        assert rabbet.softmax(x, 0, dtype=rabbet.float64).dtype == rabbet.float64
        assert rabbet.ones(3, dtype=rabbet.int32).sum().dtype == rabbet.int64


def test_saved_values_are_the_cast_ones():
    seen = []
    x, w = rabbet.randn(3, 4, requires_grad=True), rabbet.randn(4, 5, requires_grad=True)
    hooks = rabbet.autograd.graph.saved_tensors_hooks(
        lambda t: (seen.append((tuple(t.shape), t.dtype)), t)[1], lambda t: t
    )
    with rabbet.autocast("cpu"), hooks:
        y = x @ w
    assert set(seen) == {((3, 4), LOW), ((4, 5), LOW)}
    y.backward(rabbet.ones_like(y))
    assert x.grad.dtype == w.grad.dtype == rabbet.float32


def test_backward_runs_without_autocast():
    seen = []

    class Product(rabbet.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((on(), (a @ b).dtype))
            return g.float() @ b.t(), a.t() @ g.float()

    a, b = (rabbet.randn(2, 2, requires_grad=True) for _ in range(2))
    with rabbet.autocast("cpu"):
        Product.apply(a, b).sum().backward()
        assert on() and product() == LOW
    assert seen == [(False, rabbet.float32)]


@pytest.mark.parametrize("inner", [True, False])
def test_what_a_hook_switches_ends_with_it(inner):
    """Also without a region: the state from before the backward pass comes back."""
    seen = []

    def hook(grad):
        before = on()
        rabbet.set_autocast_enabled("cpu", inner)
        seen.append((before, on(), product()))
        with rabbet.autocast("cpu"), rabbet.enable_grad():
            x = rabbet.ones(2, 2, requires_grad=True)
            (x @ x).sum().backward()
            seen.append(product())
        rabbet.set_autocast_enabled("cpu", before)
        seen.append(on())

    x = rabbet.ones(2, requires_grad=True)
    x.register_hook(hook)
    with rabbet.autocast("cpu"):
        x.sum().backward()
        assert on() and product() == LOW
        with rabbet.autocast("cpu", enabled=False):
            x.sum().backward()
            assert not on()
        assert on() and product() == LOW
    assert not on() and product() == rabbet.float32
    assert seen == [(False, inner, LOW if inner else rabbet.float32), LOW, False] * 2


def test_the_plain_functions():
    try:
        rabbet.set_autocast_enabled("cpu", True)
        rabbet.set_autocast_dtype("cpu", rabbet.float16)
        assert on() and product() == rabbet.float16
    finally:
        rabbet.set_autocast_enabled("cpu", False)
        rabbet.set_autocast_dtype("cpu", rabbet.bfloat16)
    assert rabbet.autocast_increment_nesting() == 1
    assert rabbet.autocast_decrement_nesting() == 0
    assert amp.is_autocast_available("cpu") and amp.is_autocast_available("cuda")
    assert not amp.is_autocast_available("toaster") and not amp.is_autocast_available("meta")
    assert not rabbet.is_autocast_enabled() and not rabbet.is_autocast_enabled("cuda")
    assert rabbet.get_autocast_dtype("cuda") == rabbet.float16


@pytest.mark.parametrize(
    "dtype", [rabbet.float32, rabbet.float64, rabbet.int32], ids=lambda d: str(d)
)
def test_an_unsupported_dtype_warns_and_disables(dtype):
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported"):
        region = rabbet.autocast("cpu", dtype)
    with region:
        assert not on() and product() == rabbet.float32
    with rabbet.autocast("cpu", dtype, enabled=False):
        assert not on()
    assert rabbet.get_autocast_dtype("cpu") == rabbet.bfloat16


def test_cuda_without_its_backend_warns_and_disables():
    if amp._state.backend_of("cuda") is not None:
        pytest.skip("there is a CUDA backend")
    with pytest.warns(UserWarning, match="CUDA is not available. Disabling autocast"):
        region = rabbet.autocast("cuda")
    with region:
        assert not on("cuda") and product() == rabbet.float32
    with pytest.raises(RuntimeError, match="no backend for device type 'cuda'"):
        rabbet.set_autocast_enabled(True)
    with pytest.raises(RuntimeError, match="no backend for device type 'cuda'"):
        rabbet.set_autocast_dtype("cuda", rabbet.float16)


def test_known_device_types_answer_without_a_backend():
    assert amp.is_autocast_available("mps") and not rabbet.is_autocast_enabled("mps")
    assert rabbet.get_autocast_dtype("xla") == rabbet.bfloat16
    with pytest.raises(RuntimeError, match="no backend for device type 'mps'"):
        rabbet.set_autocast_enabled("mps", True)


@pytest.mark.parametrize(
    "call,error,message",
    [
        (lambda: rabbet.autocast(rabbet.device("cpu")), ValueError, "`device_type` of type `str`"),
        (lambda: rabbet.autocast(3), ValueError, "`device_type` of type `str`"),
        (lambda: rabbet.autocast("toaster"), RuntimeError, "device_type 'toaster'"),
        (lambda: rabbet.autocast("cpu:0"), RuntimeError, "device_type 'cpu:0'"),
        (lambda: rabbet.autocast(""), RuntimeError, "device_type ''"),
        (lambda: rabbet.autocast("meta"), RuntimeError, "device_type 'meta'"),
        (lambda: rabbet.autocast("cpu", "bfloat16"), TypeError, "expected a dtype"),
        (lambda: rabbet.autocast("cpu", "bfloat16", False), TypeError, "expected a dtype"),
        (lambda: rabbet.autocast("cpu")(3), TypeError, "requires a callable, but got int"),
        (lambda: rabbet.is_autocast_enabled("toaster"), RuntimeError, "'toaster'"),
        (lambda: rabbet.is_autocast_enabled(3), ValueError, "of type `str`"),
        (lambda: rabbet.get_autocast_dtype("toaster"), RuntimeError, "'toaster'"),
        (lambda: rabbet.set_autocast_dtype("toaster", LOW), RuntimeError, "'toaster'"),
        (lambda: rabbet.set_autocast_dtype("cpu", rabbet.int32), TypeError, "floating dtype"),
        (lambda: rabbet.set_autocast_dtype("cpu", "half"), TypeError, "floating dtype"),
        (lambda: rabbet.set_autocast_enabled("toaster", True), RuntimeError, "'toaster'"),
        (lambda: rabbet.set_autocast_enabled(None, True), ValueError, "of type `str`"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert not on()


def test_errors_of_operators_pass_through():
    x = rabbet.ones(2, 3)
    with rabbet.autocast("cpu"):
        with pytest.raises(ValueError, match="matmul"):
            x @ x
        with pytest.raises(TypeError):
            rabbet.exp("no tensor")
        assert on() and product() == LOW


def test_explain_says_what_the_layer_does():
    x = rabbet.ones(2, 2)
    assert "layer autocast [rabbet-autocast" in rabbet.library.explain("matmul", x, x)
    assert "skipped, autocast is off for cpu" in rabbet.library.explain("matmul", x, x)
    with rabbet.autocast("cpu"):
        assert "runs, the record says low" in rabbet.library.explain("matmul", x, x)
        meta = x.to("meta")
        assert "autocast is off for meta" in rabbet.library.explain("matmul", meta, meta)


ONLY_FLOAT32 = r"""
#include "rabbet/abi.h"
static int calls;
static int32_t fill(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m) {
  (void)s; (void)c; (void)n; (void)m;
  ++calls;
  for (int64_t i = 0; i < r[0].v.t->numel; ++i)
    ((float*)r[0].v.t->data)[i] = ((float*)a[0].v.t->data)[i] + 1;
  return RB_OK;
}
static int32_t init(const RbHost* host, RbTxn* txn) {
  const char* record = "autocast_test::only32(Tensor x) -> Tensor\n  kind opaque\n"
                       "  autocast low\n  dtype x\n  shape x.shape\n";
  int32_t rc = host->add_ops(txn, record);
  static RbKernel k = {.struct_size = sizeof(RbKernel), .flags = RB_K_CONTIGUOUS,
                       .op = "autocast_test::only32", .backend = "cpu", .fn = fill,
                       .dtype_mask = 1ull << RB_F32};
  return rc ? rc : host->add_kernel(txn, &k);
}
static const RbPlugin plugin = {RB_SIZE(RbPlugin, retire), RB_ABI_MAJOR, RB_ABI_MINOR, RB_ABI_NEEDED,
                                0, 0, "autocast-test", "0", init, 0};
RB_EXPORT const RbPlugin* rabbet_plugin_v0(void) { return &plugin; }
"""


def test_an_operator_without_a_low_kernel_keeps_its_dtype(tmp_path):
    source, library = tmp_path / "only32.c", tmp_path / "only32.so"
    source.write_text(ONLY_FLOAT32)
    command = ["gcc", "-std=c11", "-shared", "-fPIC", "-I", rabbet.get_include(), str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    rabbet._C.load_plugin(str(library))
    op = rabbet.ops("autocast_test::only32")
    with rabbet.autocast("cpu"):
        for _ in range(3):
            y = op(rabbet.ones(2))
            assert y.dtype == rabbet.float32 and y.tolist() == [2, 2]
        with pytest.raises(NotImplementedError, match="supports float32; got float16"):
            op(rabbet.ones(2, dtype=rabbet.float16))
        assert op(rabbet.ones(2)).tolist() == [2, 2]
