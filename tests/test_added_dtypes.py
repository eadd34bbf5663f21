"""A stranger's dtypes: a plugin adds a number of four bits and an opaque one; nothing else knows them."""

import numpy as np
import pytest
import rabbet
from plugin_wheels import build, run

ADDS = r"""
static const RbHost* core;
static void decode(const void* from, void* to, int64_t n)
{ for (int64_t i = 0; i < n; ++i) ((int32_t*)to)[i] = ((const int8_t*)from)[i]; }
static void encode(const void* from, void* to, int64_t n)
{ for (int64_t i = 0; i < n; ++i) { int32_t v = ((const int32_t*)from)[i];
    ((int8_t*)to)[i] = (int8_t)(v < -8 ? -8 : v > 7 ? 7 : v); } }
static int32_t odd4, token, seen = -1;
static int32_t look(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; (void)c; (void)n; (void)m; seen = a[0].v.t->dtype_id;
  for (int64_t i = 0; i < r[0].v.t->numel; ++i) ((uint8_t*)r[0].v.t->data)[i] = ((uint8_t*)a[0].v.t->data)[i] ^ 1;
  return RB_OK; }
RB_EXPORT int32_t seen_dtype(void) { return seen; }
static int32_t add(const RbHost* host, RbTxn* txn)
{ RbDTypeInfo d, back; RbKernel k; int32_t again, rc; core = host;
  memset(&d, 0, sizeof d); d.struct_size = sizeof d; d.name = "odd4"; d.kind = RB_CLASS_INT; d.bits = 4; d.itemsize = 1;
  d.compute = RB_I32; d.decode = decode; d.encode = encode;
  if ((rc = host->add_dtype(txn, &d, &odd4)) || (rc = host->add_dtype(txn, &d, &again))) return rc;
  if (odd4 != again || odd4 < RB_DTYPE_COUNT || host->dtype_kinds[odd4] != RB_CLASS_INT) return RB_E_INTERNAL;
  memset(&back, 0, sizeof back); back.struct_size = sizeof back;
  if ((rc = host->dtype_info(odd4, &back))) return rc;
  if (strcmp(back.name, "odd4") || back.bits != 4 || back.decode != decode) return RB_E_INTERNAL;
  memset(&d, 0, sizeof d); d.struct_size = sizeof d; d.name = "token16"; d.kind = RB_CLASS_OPAQUE; d.bits = 16; d.itemsize = 2;
  if ((rc = host->add_dtype(txn, &d, &token))) return rc;
  if ((rc = host->add_ops(txn, "odd4::flip(Tensor x) -> Tensor\n  kind elementwise\n  dtype x\n  compute none\n"))) return rc;
  memset(&k, 0, sizeof k); k.struct_size = sizeof k; k.op = "odd4::flip"; k.backend = "cpu"; k.fn = look;
  k.dtype_mask = 1ull << odd4; return host->add_kernel(txn, &k); }
"""


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """The plugin, loaded."""
    path = build(
        tmp_path_factory.mktemp("dtypes"), "dtypes", extra=ADDS, init="return add(host, txn);"
    )
    rabbet._C.load_plugin(str(path))
    yield path
    for module in (rabbet, rabbet._C):  # tests of the stubs look at all names
        del module.odd4, module.token16


def test_they_are_attributes_that_say_what_they_are(added):
    assert (
        repr(rabbet.odd4) == "rabbet.odd4" and rabbet.odd4.itemsize == 1 and rabbet.odd4.is_signed
    )
    assert not rabbet.odd4.is_floating_point and not rabbet.token16.is_complex
    assert {"odd4", "token16"} <= set(rabbet._C.dtype_names())


def test_numbers_are_converted_and_computed_with(added):
    x = rabbet.tensor([-9, -8, 3, 7, 100]).to(rabbet.odd4)
    assert x.dtype is rabbet.odd4 and x.tolist() == [-8, -8, 3, 7, 7]
    assert (x + x).tolist() == [-8, -8, 6, 7, 7] and (x * 2).dtype is rabbet.odd4
    assert x.float().tolist() == [-8.0, -8.0, 3.0, 7.0, 7.0] and x.sum().dtype is rabbet.int64
    assert (x > 2).tolist() == [False, False, True, True, True]
    assert rabbet.tensor([1, 2], dtype=rabbet.odd4).to(rabbet.float8_e4m3fn).tolist() == [1.0, 2.0]
    x[:2] = 5
    assert x.tolist() == [5, 5, 3, 7, 7]
    assert rabbet.zeros(2, dtype=rabbet.odd4).tolist() == [0, 0]


def test_they_move_as_they_are(added):
    words = (
        rabbet.arange(12, dtype=rabbet.int32).to(rabbet.int16).view(rabbet.token16).reshape(3, 4)
    )
    same = np.arange(12).reshape(3, 4).tolist()

    def read(t):
        assert t.dtype is rabbet.token16
        return t.view(rabbet.int16).tolist()

    assert read(words) == same and read(words.t().contiguous()) == np.array(same).T.tolist()
    assert read(rabbet.cat([words, words])) == same + same
    assert read(words[rabbet.tensor([2, 0])]) == [same[2], same[0]]
    assert read(words.flip(0)) == same[::-1] and read(words.clone()) == same
    assert read(rabbet.func.vmap(lambda t: t.flip(0))(words)) == [row[::-1] for row in same]


def test_opaque_ones_are_neither_read_nor_computed_with(added):
    x = rabbet.zeros(2, dtype=rabbet.int16).view(rabbet.token16)
    for call in (
        lambda: x.float(),
        lambda: rabbet.ones(2).to(rabbet.token16),
        lambda: x + x,
        x.tolist,
    ):
        with pytest.raises(TypeError, match=r"token16.*opaque|opaque.*token16"):
            call()
    with pytest.raises(TypeError, match="NumPy has no token16"):
        x.numpy()


def test_only_floating_ones_require_gradients(added):
    for dtype in (rabbet.odd4, rabbet.token16):
        with pytest.raises(RuntimeError, match="floating point and complex"):
            rabbet.empty(2, dtype=dtype).requires_grad_()


def test_a_kernel_that_knows_one_is_given_it(added):
    import ctypes

    x = rabbet.tensor([1, 2, 3]).to(rabbet.odd4)
    assert rabbet.ops("odd4::flip")(x).tolist() == [0, 3, 2]
    seen = ctypes.CDLL(str(added)).seen_dtype()
    assert rabbet._C.dtype_names()[seen] == "odd4"
    with pytest.raises(NotImplementedError, match="supports odd4; got float32"):
        rabbet.ops("odd4::flip")(rabbet.ones(2))


def test_they_are_saved_and_loaded(added, tmp_path):
    x = rabbet.tensor([1, -2, 7]).to(rabbet.odd4)
    rabbet.save({"x": x}, tmp_path / "x.safetensors")
    back = rabbet.load(tmp_path / "x.safetensors")["x"]
    assert back.dtype is rabbet.odd4 and back.tolist() == [1, -2, 7]
    code = f"import rabbet\ntry: rabbet.load({str(tmp_path / 'x.safetensors')!r})\nexcept RuntimeError as e: print(e)"
    assert "the unknown dtype 'odd4'" in run(tmp_path, code)


def test_an_init_that_fails_leaves_no_dtype(tmp_path):
    library = build(
        tmp_path,
        "failing",
        extra=ADDS,
        init='return add(host, txn) || host->err_set(RB_E_STATE, "no more");',
    )
    code = f"""
import rabbet
before = rabbet._C.dtype_names()
for _ in range(2):
    try: rabbet._C.load_plugin({str(library)!r})
    except RuntimeError as error: print(error)
assert rabbet._C.dtype_names() == before and not hasattr(rabbet, "odd4")
"""
    assert run(tmp_path, code).splitlines() == ["no more"] * 2
