"""What a plugin hands to core's functions is checked: each mistake is an error in words, and the process lives on."""

import re
import subprocess
import sys

import pytest
import rabbet
from plugin_wheels import KERNEL, build, run

# Each is a sequence of C statements that leaves its code in `rc`; the message must match.
COMMON = (
    KERNEL
    + r"""
#include <stdio.h>
#include "rabbet/capture.h"
#include "rabbet/device.h"
#include "rabbet/trace.h"
static int32_t alloc(void* s, int32_t d, uint64_t n, void* q, RbBuffer* out)
{ (void)s; (void)d; (void)n; (void)q; (void)out; return 1; }
static void release(void* s, RbBuffer* b, void* q) { (void)s; (void)b; (void)q; }
static int32_t fallback(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; return c->host->redispatch_new(c, 16, a, n, r, m); }
static void drop(void* p) { (void)p; }
static RbAllocator allocator(void) { RbAllocator a; memset(&a, 0, sizeof a); a.struct_size = sizeof a; a.alloc = alloc;
  a.free = release; return a; }
static RbBackend backend(const RbAllocator* a) { RbBackend b; memset(&b, 0, sizeof b); b.struct_size = sizeof b;
  b.name = "odd"; b.dlpack_type = 12; b.allocator = a; return b; }
static RbLayer layer(void) { RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = "odd"; l.phase = 700;
  l.fallback = fallback; return l; }
static int32_t save(void* s, void** state) { (void)s; *state = 0; return RB_OK; }
static RbRule rule(void) { RbRule r; memset(&r, 0, sizeof r); r.struct_size = sizeof r; r.op = "neg"; r.fn = fallback; return r; }
static RbFormulaKernel formula(void) { RbFormulaKernel k; memset(&k, 0, sizeof k); k.struct_size = sizeof k; k.op = "neg";
  k.backend = "cpu"; k.argument = -1; k.formula = "x"; k.fn = fallback; return k; }
static void code(const void* from, void* to, int64_t n) { (void)from; (void)to; (void)n; }
static RbDTypeInfo dtype(void) { RbDTypeInfo d; memset(&d, 0, sizeof d); d.struct_size = sizeof d; d.name = "odd8";
  d.kind = RB_CLASS_FLOAT; d.bits = 8; d.itemsize = 1; d.compute = RB_F32; d.decode = code; d.encode = code; return d; }
static RbValue value(uint32_t tag) { RbValue v; memset(&v, 0, sizeof v); v.tag = tag; return v; }
static int64_t sizes[] = {2, 3}, negative[] = {2, -3}, apart[] = {30, 1}, far[] = {1ll << 62, 1ll << 62}, huge[] = {1ll << 40, 1ll << 40};
static RbTensor* made;
static int32_t id, slot; static uint32_t offset;
"""
)
REGISTRATION = {
    "null transaction": ("rc = host->add_ops(0, \"x\");", "add_ops: the transaction is not open"),
    "null records": ("rc = host->add_ops(txn, 0);", "add_ops: the text of the records is null"),
    "null kernel": ("rc = host->add_kernel(txn, 0);", "add_kernel: the kernel is null"),
    "short kernel": ("RbKernel k = kernel(\"add\", 0); k.struct_size = RB_SIZE(RbKernel, schema); rc = host->add_kernel(txn, &k);",
                     "odd 1.0: add_kernel: the struct is too short or op, backend or fn is null"),
    "kernel without operator": ("RbKernel k = kernel(0, 0); rc = host->add_kernel(txn, &k);", "op, backend or fn is null"),
    "kernel without backend": ("RbKernel k = kernel(\"add\", 0); k.backend = \"\"; rc = host->add_kernel(txn, &k);",
                               "op, backend or fn is null"),
    "kernel without function": ("RbKernel k = kernel(\"add\", 0); k.fn = 0; rc = host->add_kernel(txn, &k);",
                                "op, backend or fn is null"),
    "null layer": ("rc = host->add_layer(txn, 0, &id);", "add_layer: the layer is null"),
    "layer without id": ("RbLayer l = layer(); rc = host->add_layer(txn, &l, 0);", "where the layer's id goes is null"),
    "layer without name": ("RbLayer l = layer(); l.name = 0; rc = host->add_layer(txn, &l, &id);", "too short or its name is null"),
    "short layer": ("RbLayer l = layer(); l.struct_size = 8; rc = host->add_layer(txn, &l, &id);", "too short or its name is null"),
    "layer twice": ("RbLayer l = layer(); rc = host->add_layer(txn, &l, &id) || host->add_layer(txn, &l, &id) ? RB_E_PLUGIN : 0;",
                    "layer 'odd' of odd 1.0 is registered already"),
    "null backend": ("rc = host->add_backend(txn, 0, &id);", "add_backend: the backend is null"),
    "backend without name": ("RbAllocator a = allocator(); RbBackend b = backend(&a); b.name = 0; rc = host->add_backend(txn, &b, &id);",
                             "or its name or allocator is null"),
    "backend with a colon": ("RbAllocator a = allocator(); RbBackend b = backend(&a); b.name = \"odd:0\"; "
                             "rc = host->add_backend(txn, &b, &id);", "the name holds a space or ':'"),
    "backend without allocator": ("RbBackend b = backend(0); rc = host->add_backend(txn, &b, &id);",
                                  "or its name or allocator is null"),
    "allocator without alloc": ("RbAllocator a = allocator(); a.alloc = 0; RbBackend b = backend(&a); "
                                "rc = host->add_backend(txn, &b, &id);", "or its alloc or free is null"),
    "short allocator": ("RbAllocator a = allocator(); a.struct_size = RB_SIZE(RbAllocator, alloc); RbBackend b = backend(&a); "
                        "rc = host->add_backend(txn, &b, &id);", "the allocator's struct is too short"),
    "short devices": ("RbAllocator a = allocator(); RbDevices d; memset(&d, 0, sizeof d); d.struct_size = 16; "
                      "RbBackend b = backend(&a); b.devices = &d; rc = host->add_backend(txn, &b, &id);",
                      "the struct of devices is too short"),
    "the name of another backend": ("RbAllocator a = allocator(); RbBackend b = backend(&a); b.name = \"cpu\"; "
                                    "rc = host->add_backend(txn, &b, &id);", "backend 'cpu' of odd 1.0 is registered already, by"),
    "commit of init's transaction": ("rc = host->txn_commit(txn);", "core commits the transaction of `init`"),
    "null transaction to begin": ("rc = host->txn_begin(\"odd\", 0);", "where the transaction goes is null"),
    "transaction used after commit": ("RbTxn* t; host->txn_begin(\"odd\", &t); host->txn_commit(t); rc = host->add_ops(t, \"x\");",
                                      "add_ops: the transaction is not open: it was committed or aborted"),
    "transaction committed twice": ("RbTxn* t; host->txn_begin(\"odd\", &t); host->txn_commit(t); rc = host->txn_commit(t);",
                                    "txn_commit: the transaction is not open"),
    "transaction aborted, then committed": ("RbTxn* t; host->txn_begin(\"odd\", &t); host->txn_abort(t); host->txn_abort(t); "
                                            "rc = host->txn_commit(t);", "txn_commit: the transaction is not open"),
    "slot without deleter": ("RbLayer l = layer(); host->add_layer(txn, &l, &id); rc = host->slot_new(\"odd\", id, 0, &slot, &offset);",
                             "slot_new: the function that ends what a slot holds is null"),
    "slot without name": ("RbLayer l = layer(); host->add_layer(txn, &l, &id); rc = host->slot_new(0, id, drop, &slot, &offset);",
                          "slot_new: the name is null"),
    "slot of no layer": ("rc = host->slot_new(\"odd\", 99, drop, &slot, &offset);", "slot_new: 99 is not the id of a registered layer"),
    "too many slots": ("RbLayer l = layer(); rc = host->add_layer(txn, &l, &id); "
                       "for (int i = 0; i < 5 && !rc; ++i) rc = host->slot_new(\"odd\", id, drop, &slot, &offset);",
                       "slot 'odd': all 4 per-tensor slots are taken"),
    "publish without name": ("rc = host->publish(0, 1, &id);", "publish: the name is null"),
    "no message": ("rc = host->err_set(RB_E_STATE, 0);", "^$"),
    "null rule": ("rc = host->add_rule(txn, 0);", "add_rule: the rule is null"),
    "short rule": ("RbRule k = rule(); k.struct_size = RB_SIZE(RbRule, fn); rc = host->add_rule(txn, &k);",
                   "odd 1.0: add_rule: the struct is too short or op or fn is null"),
    "rule without operator": ("RbRule k = rule(); k.op = 0; rc = host->add_rule(txn, &k);", "op or fn is null"),
    "rule without function": ("RbRule k = rule(); k.fn = 0; rc = host->add_rule(txn, &k);", "op or fn is null"),
    "rule that is none": ("RbRule k = rule(); k.rule = 4; rc = host->add_rule(txn, &k);", r"add_rule: rule 4 is no RB_RULE_\*"),
    "negative rule": ("RbRule k = rule(); k.rule = -1; rc = host->add_rule(txn, &k);", r"add_rule: rule -1 is no RB_RULE_\*"),
    "rule that reads beyond its end": ("RbRule k = rule(); k.flags = RB_RULE_READS; k.struct_size = RB_SIZE(RbRule, self); rc = host->add_rule(txn, &k);",
                                       "too short for reads_args and reads_rets"),
    "rule that the record has": ("RbRule k = rule(); k.op = \"mul\"; k.rule = RB_RULE_VJP; rc = host->add_rule(txn, &k);",
                                 "'mul' takes no vjp function: its record says it already"),
    "null formula kernel": ("rc = host->add_formula_kernel(txn, 0);", "add_formula_kernel: the kernel is null"),
    "short formula kernel": ("RbFormulaKernel k = formula(); k.struct_size = 24; rc = host->add_formula_kernel(txn, &k);", "the struct is too short"),
    "formula kernel without formula": ("RbFormulaKernel k = formula(); k.formula = \"\"; rc = host->add_formula_kernel(txn, &k);",
                                       "op, backend, formula or fn is null"),
    "formula kernel of no argument": ("RbFormulaKernel k = formula(); k.argument = 32; rc = host->add_formula_kernel(txn, &k);",
                                      "argument 32 is neither -1 nor one"),
    "formula kernel of a negative argument": ("RbFormulaKernel k = formula(); k.argument = -2; rc = host->add_formula_kernel(txn, &k);",
                                              "argument -2 is neither -1 nor one"),
    "null dtype": ("rc = host->add_dtype(txn, 0, &id);", "add_dtype: the description is null"),
    "dtype without id": ("RbDTypeInfo d = dtype(); rc = host->add_dtype(txn, &d, 0);", "add_dtype: where the dtype's id goes is null"),
    "short dtype": ("RbDTypeInfo d = dtype(); d.struct_size = RB_SIZE(RbDTypeInfo, bits); rc = host->add_dtype(txn, &d, &id);",
                    "add_dtype: the struct is too short or its name is null"),
    "dtype without name": ("RbDTypeInfo d = dtype(); d.name = 0; rc = host->add_dtype(txn, &d, &id);", "its name is null"),
    "dtype whose name is none": ("RbDTypeInfo d = dtype(); d.name = \"odd type\"; rc = host->add_dtype(txn, &d, &id);", "add_dtype: 'odd type': a name has letters"),
    "dtype of no class": ("RbDTypeInfo d = dtype(); d.kind = 9; rc = host->add_dtype(txn, &d, &id);", r"'odd8': `kind` is no RB_CLASS_\*"),
    "dtype of three bytes": ("RbDTypeInfo d = dtype(); d.itemsize = 3; rc = host->add_dtype(txn, &d, &id);", "`itemsize` must be 1, 2, 4, 8 or 16"),
    "dtype of too many bits": ("RbDTypeInfo d = dtype(); d.bits = 9; rc = host->add_dtype(txn, &d, &id);", "`bits` must be 1 to 8 times `itemsize`"),
    "dtype computed in an added one": ("RbDTypeInfo d = dtype(); d.compute = RB_DTYPE_COUNT; rc = host->add_dtype(txn, &d, &id);",
                                       "`compute` must be a dtype of the header"),
    "dtype without conversions": ("RbDTypeInfo d = dtype(); d.encode = 0; rc = host->add_dtype(txn, &d, &id);", "`decode` and `encode` are required"),
    "the name of another dtype": ("RbDTypeInfo d = dtype(); d.name = \"float32\"; rc = host->add_dtype(txn, &d, &id);", "there is another dtype 'float32' already"),
    "layer that saves and cannot restore": ("RbLayer l = layer(); l.thread_save = save; rc = host->add_layer(txn, &l, &id);",
                                            "of thread_save, thread_restore and thread_free some are null"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REGISTRATION)
def test_bad_registrations_are_refused(kind, tmp_path):
    body, message = REGISTRATION[kind]
    # Loaded twice: what failed has left nothing behind, so the second time it fails in the same way.
    library = build(tmp_path, "odd", extra=COMMON, init=f"int32_t rc = 0; {body} return rc;")
    code = f"""
import rabbet
x = rabbet.ones(2, requires_grad=True)
layers, backends = rabbet._C.layers(), [b["name"] for b in rabbet._C.backends()]
for _ in range(2):
    try:
        rabbet._C.load_plugin({str(library)!r})
    except RuntimeError as error:
        print(error)
assert layers == rabbet._C.layers() and backends == [b["name"] for b in rabbet._C.backends()]
(x * 2).sum().backward()
assert x.grad.tolist() == [2, 2]
"""
    lines = run(tmp_path, code).split("\n")
    assert kind == "no message" or (len(lines) >= 3 and lines[0] == lines[1])
    assert re.search(message, lines[0]), lines[0]


CALLS = {
    "null operator": ("host->call(host->find_op(0), 0, 0, &r, 1, 0)", "call: the operator is null"),
    "unknown operator": ('host->call(host->find_op("no such"), 0, 0, &r, 1, 0)', "call: the operator is null"),
    "no arguments": ('host->call(add, 0, 0, &r, 1, 0)', "add: the argument 'input' is missing"),
    "null arguments": ('host->call(add, 0, 2, &r, 1, 0)', "add: expected 3 arguments, got 2 at a null pointer"),
    "too many arguments": ('host->call(add, a, 9, &r, 1, 0)', "add: expected 3 arguments, got 9"),
    "a negative number of arguments": ('host->call(add, a, -1, &r, 1, 0)', "add: expected 3 arguments, got -1"),
    "null results": ("host->call(add, a, 2, 0, 1, 0)", "add: it has 1 results, but there is room for 0"),
    "too few results": ('host->call(host->find_op("max.dim"), a, 2, &r, 1, 0)', "max.dim: it has 2 results, but there is room for 1"),
    "a null tensor": ("a[1] = value(RB_TENSOR), host->call(add, a, 2, &r, 1, 0)", r"the argument 'other' cannot be a tensor \(null\)"),
    "an int for a list of tensors": ('a[0] = value(RB_INT), host->call(host->find_op("cat"), a, 1, &r, 1, 0)', "cat: the argument '.*' cannot be an int"),
    "null tensors": ('a[0] = value(RB_TENSORS), a[0].len = 3, host->call(host->find_op("cat"), a, 1, &r, 1, 0)', "cannot be tensors"),
    "a number for a tensor": ('a[0] = value(RB_FLOAT), host->call(host->find_op("matmul"), a, 2, &r, 1, 0)', "matmul: the argument '.*' cannot be a float"),
    "an unknown tag": ("a[1] = value(77), host->call(add, a, 2, &r, 1, 0)", "cannot be a value of unknown tag"),
    "no destination": ("host->call(add, a, 2, &r, 1, RB_CALL_OUT)", "add: a destination is no tensor"),
    "a negative size": ("host->tensor_new(1, 0, RB_F32, 2, negative, 0, &made)", "size must not be negative, got -3 for dimension 1"),
    "a size that overflows": ("host->tensor_new(1, 0, RB_F32, 2, huge, 0, &made)", "too large"),
    "no such dtype": ("host->tensor_new(1, 0, 99, 2, sizes, 0, &made)", "tensor_new: 99 is not the id of a dtype"),
    "no such backend": ("host->tensor_new(14, 0, RB_F32, 2, sizes, 0, &made)", "tensor_new: 14 is not the id of a backend"),
    "no such device": ("host->tensor_new(1, 3, RB_F32, 2, sizes, 0, &made)", "there is no device cpu:3: 'cpu' has 1 device"),
    "a negative device": ("host->tensor_new(1, -2, RB_F32, 2, sizes, 0, &made)", "there is no device cpu:-2"),
    "too many dimensions": ("host->tensor_new(1, 0, RB_F32, 9999, sizes, 0, &made)", "at most .* dimensions, got 9999"),
    "null shape": ("host->tensor_new(1, 0, RB_F32, 2, 0, 0, &made)", "tensor_new: the shape is null"),
    "strides beyond the elements": ("host->tensor_new(1, 0, RB_F32, 2, sizes, apart, &made)", "the strides reach outside of the 6 elements"),
    "nowhere to put a tensor": ("host->tensor_new(1, 0, RB_F32, 2, sizes, 0, 0)", "where the tensor goes is null"),
    "null memory": ("host->tensor_adopt(0, 1, 0, RB_F32, 2, sizes, 0, 0, 0, 0, &made)", "tensor_adopt: the memory is null"),
    "alias of nothing": ("host->tensor_alias(0, &made)", "tensor_alias: the tensor is null"),
    "redispatch below a backend": ("host->redispatch(c, 3, a, 2, &r, 1)", "redispatch: 3 is not the id of a registered layer"),
    "redispatch below no layer": ("host->redispatch_new(c, 99, a, 2, &r, 1)", "redispatch_new: 99 is not the id of a registered layer"),
    "redispatch of no call": ("host->redispatch(0, 20, a, 2, &r, 1)", "redispatch: the call is null"),
    "redispatch that goes round in circles": ("host->redispatch(c, 63, a, 1, &r, 1)", "redispatch: layer 63 is not the one that handles the call"),
    "decomposition of no call": ("host->decompose(0, a, 2, &r, 1)", "decompose: the call is null"),
    "derivative with too few arguments": ("host->vjp(add, 1, a, 1, a, 1, a, &r)", "vjp of add: expected 3 arguments and 1 results, got 1 and 1"),
    "derivative without gradients": ("host->vjp(add, 1, a, 3, a, 1, 0, &r)", "vjp: where the gradients are is null"),
    "tangent of no operator": ("host->jvp(0, a, 3, a, 1, a, &r)", "jvp: the operator is null"),
    "replay on nothing": ("host->view_replay(a[0].v.t, 0, &made)", "view_replay: the root is null"),
    "random numbers of no backend": ("host->rng_reserve(0, 77, 0, 4, &slice)", "rng_reserve: 77 is not the id of a backend"),
    "random numbers to nowhere": ("host->rng_reserve(0, 1, 0, 4, 0)", "where the slice goes is null"),
    "the stream of no backend": ("host->stream_get(77, 0, &stream)", "stream_get: 77 is not the id of a backend"),
    "the stream of no device": ("host->stream_get(1, 9, &stream)", "there is no device cpu:9"),
    "the stream to nowhere": ("host->stream_get(1, 0, 0)", "stream_get: where the stream goes is null"),
    "a stream for no backend": ("host->stream_set(-1, 0, &id)", "stream_set: -1 is not the id of a backend"),
    "a stream for a backend without": ("host->stream_set(1, 0, &id)", "the backend 'cpu' has no streams besides the default one"),
    "a wait of no backend": ("host->stream_wait(77, 0, 0, &id)", "stream_wait: 77 is not the id of a backend"),
    "a wait where there are no streams": ("host->stream_wait(1, 0, 0, &id)", "the backend 'cpu' has no streams besides the default one"),
    "no tensor on a stream": ("host->record_stream(0, &id)", "record_stream: the tensor is null"),
    "a level of no transform": ("host->transform_push(3, 0, 0, &id)", "transform_push: the key 3 is not that of a transform's layer"),
    "a level to nowhere": ("host->transform_push(3, 0, 0, 0)", "where the level goes is null"),
    "a level that is not entered": ("host->transform_pop(3)", "transform_pop: expected the last level, 0, got 3"),
    "wrapping nothing": ("host->tensor_wrap(1, 0, 0, 0, 0, 0, 0, &made)", "tensor_wrap: the tensor to wrap is null"),
    "wrapping along of nothing": ("host->tensor_wrap_along(1, 0, 0, &made)", "tensor_wrap_along: the tensor to wrap is null"),
    "below, nothing": ("host->transform_below(1, 0, 0)", "transform_below: the function is null"),
    "a dtype that there is not": ("a[1] = value(RB_DTYPE), a[1].v.i = 99, host->call(host->find_op(\"cast\"), a, 2, &r, 1, 0)",
                                  "cast: the argument 'dtype' cannot be a dtype of id 99"),
    "a negative dtype": ("a[1] = value(RB_DTYPE), a[1].v.i = -1, host->call(host->find_op(\"cast\"), a, 2, &r, 1, 0)",
                         "cast: the argument 'dtype' cannot be a dtype of id -1"),
    "a backend that there is not": ("a[1] = value(RB_DEVICE), a[1].v.dev.backend = 77, host->call(host->find_op(\"to_device\"), a, 2, &r, 1, 0)",
                                    "to_device: the argument 'device' cannot be a device of backend 77"),
    "a negative backend": ("a[1] = value(RB_DEVICE), a[1].v.dev.backend = -1, host->call(host->find_op(\"to_device\"), a, 2, &r, 1, 0)",
                           "to_device: the argument 'device' cannot be a device of backend -1"),
    "a device of a backend that there is not": ("a[1] = value(RB_DEVICE), a[1].v.dev.backend = 1, a[1].v.dev.index = -9, "
                                                "host->call(host->find_op(\"to_device\"), a, 2, &r, 1, 0)", "there is no device cpu:-9"),
    "a new tensor on a backend that there is not": ("a[0] = value(RB_INTS), a[1] = value(RB_NONE), a[2] = value(RB_DEVICE), a[2].v.dev.backend = 14, "
                                                    "host->call(host->find_op(\"empty\"), a, 3, &r, 1, 0)", "cannot be a device of backend 14"),
    "decomposition with too few arguments": ("made_of.op = host->find_op(\"sgn_vjp\"), host->decompose(&made_of, a, 1, &r, 1)",
                                             "sgn_vjp: the argument 'x' is missing"),
    "decomposition along a dimension that there is not": ("made_of.op = host->find_op(\"argsort\"), a[1] = value(RB_INT), a[1].v.i = 9, host->decompose(&made_of, a, 2, &r, 1)",
                                                          "argsort: dim 9 is out of range for a tensor of"),
    "redispatch_new without arguments": ("host->redispatch_new(c, layer_id, 0, 1, &r, 1)", "redispatch_new of neg: expected 1 arguments and 1 results, got 0 and 1"),
    "redispatch_new with too few arguments": ("host->redispatch_new(c, layer_id, a, 0, &r, 1)", "redispatch_new of neg: expected 1 arguments and 1 results, got 0 and 1"),
    "redispatch_new without results": ("host->redispatch_new(c, layer_id, a, 1, 0, 1)", "redispatch_new of neg: expected 1 arguments and 1 results, got 1 and 0"),
    "redispatch with too few arguments": ("host->redispatch(c, layer_id, a, 0, &r, 1)", "redispatch of neg: expected 1 arguments and 1 results, got 0 and 1"),
    "redispatch without results": ("host->redispatch(c, layer_id, a, 1, 0, 1)", "redispatch of neg: expected 1 arguments and 1 results, got 1 and 0"),
    "derivative of null tensors": ("a[0] = value(RB_TENSOR), host->vjp(add, 1, a, 3, a + 1, 1, a + 1, grads)", r"vjp of add: the argument 'input' cannot be a tensor \(null\)"),
    "derivative of an unknown tag": ("a[0] = value(77), host->vjp(add, 1, a, 3, a + 1, 1, a + 1, grads)", "vjp of add: the argument 'input' cannot be a value of unknown tag"),
    "derivative of null shapes": ("a[0] = value(RB_META), host->vjp(add, 1, a, 3, a + 1, 1, a + 1, grads)", "vjp of add: the argument 'input' cannot be an RbMeta"),
    "derivative with a null result": ("a[3] = value(RB_TENSOR), host->vjp(add, 1, a, 3, a + 3, 1, a + 1, grads)", r"vjp of add: result 0 cannot be a tensor \(null\)"),
    "derivative with a null gradient": ("a[3] = value(RB_TENSOR), host->vjp(add, 1, a, 3, a, 1, a + 3, grads)", r"vjp of add: the gradient of result 0 cannot be a tensor \(null\)"),
    "derivative with a gradient that is an int": ("a[3] = value(RB_INT), host->vjp(add, 1, a, 3, a, 1, a + 3, grads)", "vjp of add: the gradient of result 0 cannot be an int"),
    "tangents that are null": ("a[3] = value(RB_TENSOR), a[4] = value(RB_ZERO), host->jvp(host->find_op(\"abs\"), a, 1, a, 1, a + 3, grads)", r"jvp of abs: the tangent of 'input' cannot be a tensor \(null\)"),
    "strides that overflow": ("host->tensor_adopt(sizes, 1, 0, RB_F32, 2, sizes, far, 0, 0, 0, &made)", "tensor_adopt: the strides reach too far"),
    "strides that overflow without memory": ("host->tensor_new(0, 0, RB_F32, 2, sizes, far, &made)", "tensor_new: the strides reach too far"),
    "wrapping with a negative size": ("host->tensor_wrap(1, a[0].v.t, 0, 0, 2, negative, sizes, &made)", "size must not be negative, got -3 for dimension 1"),
    "a block that is too large": ('host->block_alloc(UINT64_MAX) || host->block_alloc(UINT64_MAX - 63) || host->block_alloc(1ull << 63) || '
                                  'host->block_alloc((1ull << 63) + 1) ? RB_OK : host->err_set(RB_E_OOM, "too large")', "^too large$"),
    "null tensors for questions": ('host->version_get(0) || host->same_storage(0, a[0].v.t) || host->same_storage(a[0].v.t, 0) || host->use_count(0) '
                                   '|| host->view_parent(0) ? RB_OK : host->err_set(RB_E_ARG, "nothing of null")', "^nothing of null$"),
    "null tensors for changes": ("(host->retain(0), host->release(0), host->tls_free(0), host->block_free(0, 64), "
                                 "host->block_free(0, 1 << 20), host->err_set(RB_E_ARG, \"nothing happened\"))", "^nothing happened$"),
    "null tensors to release": ("(r.tag = RB_TENSORS, r.len = 3, r.v.ts = 0, host->value_release(&r), r = value(77), r.len = 9, host->value_release(&r), "
                                "host->err_set(RB_E_ARG, \"released\"))", "^released$"),
    "a thread state of bits that are no layers": ("(tls.include = 0xfffe, host->thread_set(&tls))", "thread_set: the state is none that thread_get gives"),
    "a thread state without backends": ("(tls.exclude |= 0xffff, host->thread_set(&tls), host->thread_get(&tls), tls.exclude & 0xffff) ? RB_OK "
                                        ": host->err_set(RB_E_STATE, \"as before\")", "^as before$"),
    "a thread state of flags that are none": ("(tls.tensor_flags = RB_T_WRAPPER, host->thread_set(&tls))", "thread_set: the state is none that thread_get gives"),
    "a null thread state": ("host->thread_set(0)", "thread_set: the state is null"),
    "a short thread state": ("(tls.struct_size = 8, host->thread_set(&tls))", "thread_set: the struct is too short"),
    "a thread state to nowhere": ("host->thread_get(0)", "thread_get: where the state goes is null"),
    "a thread state into a short struct": ("(tls.struct_size = 16, host->thread_get(&tls))", "thread_get: the struct_size is 16, expected at least 24"),
    "a thread state into an older struct": ("(tls.struct_size = RB_SIZE(RbThread, exclude), tls.depth = 77, host->thread_get(&tls) || tls.depth != 77 || tls.struct_size != 24) "
                                            "? RB_OK : host->err_set(RB_E_STATE, \"kept\")", "^kept$"),
    "all of a thread's state to nowhere": ("host->tls_save(0)", "tls_save: where the state goes is null"),
    "a thread's state from nowhere": ("host->tls_restore(0)", "tls_restore: the state is null"),
    "a mode of no layer": ("host->layer_mode(99, 1, 1)", "layer_mode: 99 is not a layer"),
    "a mode of a backend": ("host->layer_mode(1, 1, 1)", "layer_mode: 1 is not a layer"),
    "a slot that there is not": ("host->slot_set(a[0].v.t, 77, 0, 1)", "slot_set: 77 is not a slot"),
    "a slot of no tensor": ("host->slot_set(0, 0, 0, 1)", "slot_set: the tensor is null"),
    "the version of no tensor": ("host->version_bump(0)", "version_bump: the tensor is null"),
    "a loop of nothing": ("host->parallel_for(9, 1, 0, 0)", "parallel_for: the function is null"),
    "a list to nowhere": ("host->tensors_new(3, 0)", "tensors_new: where the array goes is null"),
    "a random slice into a short struct": ("(slice.struct_size = 8, host->rng_reserve(0, 1, 0, 4, &slice))", "rng_reserve: the struct_size is 8, expected at least 24"),
    "what a dtype is, of none": ("host->dtype_info(63, &info)", "dtype_info: 63 is not the id of a dtype"),
    "what a dtype is, of a negative one": ("host->dtype_info(-1, &info)", "dtype_info: -1 is not the id of a dtype"),
    "what a dtype is, to nowhere": ("host->dtype_info(0, 0)", "dtype_info: where the description goes is null"),
    "what a dtype is, into a short struct": ("(info.struct_size = 8, host->dtype_info(0, &info))", "dtype_info: the struct_size is 8, expected at least 20"),
    "a dtype of no name": ("host->find_dtype(0, &id)", "find_dtype: the name is null"),
    "a dtype of an unknown name": ("host->find_dtype(\"float7\", &id)", "find_dtype: there is no dtype 'float7'"),
    "a dtype's id to nowhere": ("host->find_dtype(\"float32\", 0)", "find_dtype: where the dtype's id goes is null"),
    "a table that is not there": ('host->get_ext("rabbet.memory", 99) || host->get_ext("rabbet.memorx", 1) ? RB_OK : host->err_set(RB_E_ARG, "no table")', "^no table$"),
    "memory to nowhere": ("memory->tensor_new(0, 1, 0, RB_F32, 2, sizes, 0)", "memory.tensor_new: where the tensor goes is null"),
    "memory of no kind": ("memory->tensor_new(7, 1, 0, RB_F32, 2, sizes, &made)", "memory.tensor_new: 7 is no kind of memory"),
    "memory of no backend": ("memory->tensor_new(1, 14, 0, RB_F32, 2, sizes, &made)", "memory.tensor_new: 14 is not the id of a backend"),
    "memory of no dtype": ("memory->tensor_new(1, 1, 0, 99, 2, sizes, &made)", "memory.tensor_new: 99 is not the id of a dtype"),
    "memory of no shape": ("memory->tensor_new(1, 1, 0, RB_F32, 2, 0, &made)", "memory.tensor_new: .*"),
    "memory of a negative size": ("memory->tensor_new(2, 1, 0, RB_F32, 2, negative, &made)", "size must not be negative, got -3 for dimension 1"),
    "memory that the backend lacks": ("memory->tensor_new(1, 1, 0, RB_F32, 2, sizes, &made)", "the backend 'cpu' offers no pinned memory"),
    "the kind of no tensor": ("memory->is_kind(0, 0, &slot)", "memory.is_kind: the tensor is null"),
    "no kind of a tensor": ("memory->is_kind(a[0].v.t, -1, &slot)", "memory.is_kind: -1 is no kind of memory"),
    "the kind of a tensor to nowhere": ("memory->is_kind(a[0].v.t, 0, 0)", "where the answer goes is null"),
    "free bytes to nowhere": ("memory->memory_info(1, 0, 0, &bytes)", "where the free bytes go is null"),
    "free bytes of no backend": ("memory->memory_info(77, 0, &bytes, &bytes)", "77 is not the id of a backend"),
    "free bytes of no device": ("memory->memory_info(1, 5, &bytes, &bytes)", "there is no device cpu:5"),
    "free bytes that nobody tells": ("memory->memory_info(1, 0, &bytes, &bytes)", "'cpu' does not tell how much memory"),
    "captured counters to nowhere": ("rng->reserve(0, 1, 0, 4, 0)", "capture.reserve: where the slice goes is null"),
    "captured counters to a short slice": ("rng->reserve(0, 1, 0, 4, &captured)", "capture.reserve: the slice is too short: its struct_size is 8"),
    "captured counters of no backend": ("(captured.struct_size = sizeof captured, rng->reserve(0, 77, 0, 4, &captured))", "capture.reserve: 77 is not the id of a backend"),
    "captured counters of no device": ("(captured.struct_size = sizeof captured, rng->reserve(0, 1, 9, 4, &captured))", "there is no device cpu:9"),
    "no name of a backend": ("host->find_backend(0, &id)", "find_backend: the name is null"),
    "a backend to nowhere": ('host->find_backend("cpu", 0)', "find_backend: where the backend's id goes is null"),
    "a backend that nobody has": ('host->find_backend("no-such", &id)', "no backend for device 'no-such'"),
    "names of no backends": ("host->backend_name(-1) || host->backend_name(99) ? RB_OK : host->err_set(RB_E_ARG, \"no names\")", "^no names$"),
    "devices of no backend": ("host->device_count(77, &id)", "device_count: 77 is not the id of a backend"),
    "devices to nowhere": ("host->device_count(1, 0)", "device_count: where the count goes is null"),
    "a new stream to nowhere": ("host->stream_new(1, 0, 0, 0)", "stream_new: where the stream goes is null"),
    "a new stream of no backend": ("host->stream_new(77, 0, 0, &stream)", "stream_new: 77 is not the id of a backend"),
    "a new stream of no device": ("host->stream_new(1, 9, 0, &stream)", "there is no device cpu:9"),
    "a new stream where there are none": ("host->stream_new(1, 0, 0, &stream)", "the backend 'cpu' has no streams"),
    "waiting for a stream of no backend": ("host->stream_sync(-1, 0, 0)", "stream_sync: -1 is not the id of a backend"),
    "an event to nowhere": ("host->event_new(1, 0, 0, 0)", "event_new: where the event goes is null"),
    "an event of unknown flags": ("host->event_new(1, 0, 6, &stream)", "event_new: the flags 6 are not known"),
    "an event where there are no streams": ("host->event_new(1, 0, 0, &stream)", "the backend 'cpu' has no streams"),
    "recording no event": ("host->event_record(1, 0, 0, 0)", "event_record: the event is null"),
    "recording for no backend": ("host->event_record(77, 0, 0, &id)", "event_record: 77 is not the id of a backend"),
    "waiting for no event": ("host->event_wait(1, 0, 0, 0)", "event_wait: the event is null"),
    "asking for no event": ("host->event_query(1, 0, 0, &id)", "event_query: the event is null"),
    "asking for an event to nowhere": ("host->event_query(1, 0, &id, 0)", "event_query: where the answer goes is null"),
    "freeing an event of no backend": ("host->event_free(77, 0, &id)", "event_free: 77 is not the id of a backend"),
    "freeing no event": ("host->event_free(1, 0, 0) ? RB_OK : host->err_set(RB_E_ARG, \"fine\")", "^fine$"),
    "waiting with no function": ("host->wait(0, 0, 1, &id)", "wait: the function is null"),
    "waiting for an answer to nowhere": ("host->wait(never, 0, 0, 0)", "wait: where the answer goes is null"),
    "waiting in vain": ("host->wait(never, 0, 0.01, &id) || id ? RB_OK : host->err_set(RB_E_STATE, \"out of time\")", "^out of time$"),
    "waiting for what fails": ("host->wait(fails, 0, -1, &id)", "^no carrier$"),
    "waiting for what fails without a message": ("host->wait(silent, 0, -1, &id)", r"the function of a wait of odd 1.0 returned code 7 and left no message"),
    "a generator to nowhere": ("host->generator_at(1, 2, 0)", "generator_at: where the generator goes is null"),
    "freeing no generator": ("(host->generator_free(0), host->err_set(RB_E_ARG, \"fine\"))", "^fine$"),
    "the state of a generator to nowhere": ("host->generator_state(0, 1, 0, 0)", "generator_state: where the state goes is null"),
    "the state of a generator into a short struct": ("(slice.struct_size = 8, host->generator_state(0, 1, 0, &slice))", "generator_state: the struct_size is 8, expected at least 24"),
    "the state of a generator of no backend": ("host->generator_state(0, 77, 0, &slice)", "generator_state: 77 is not the id of a backend"),
    "decomposition below no layer": ("host->decompose_below(c, 3, a, 1, &r, 1)", "decompose_below: 3 is not the id of a registered layer"),
    "decomposition below of no call": ("host->decompose_below(0, layer_id, a, 1, &r, 1)", "decompose_below: the call is null"),
    "a check of no operator": ("trace->check(0, a, 2, &r, 1, 0)", "the operator is null"),
    "a check of too few arguments": ("trace->check(add, a, 1, &r, 1, 0)", "add: the argument 'other' is missing"),
    "a check of shapes that do not fit": ('(a[1] = a[0], trace->check(host->find_op("matmul"), a, 2, &r, 1, 0))', "matmul: "),
    "a check of no destination": ("trace->check(add, a, 2, &r, 1, RB_CALL_OUT)", "add: a destination is no tensor"),
    "a generator gate of no layer": ("trace->generator_gate(3, 0, 0)", "generator_gate: 3 is not the id of a registered layer"),
    "a foreign error without a tag": ("host->err_foreign(0, 0, 0)", ".*"),
    "what returns nothing": ("(host->value_release(0), host->op_info(0), "
                             "host->get_ext(0, 0), host->log(1, 0), host->log(3, 0), host->err_set(RB_E_STATE, \"still here\"))", "still here"),
}  # fmt: skip
RUNNER = """
static const RbHost* host;
static int32_t which = -1, layer_id;
static void keep(const RbHost* h) { host = h; }
static int32_t never(void* ctx) { (void)ctx; return 0; }
static int32_t fails(void* ctx) { (void)ctx; return -host->err_set(RB_E_DEVICE, "no carrier"); }
static int32_t silent(void* ctx) { (void)ctx; host->err_clear(); return -7; }
static int32_t mistake(int32_t which_one, const RbCall* c, const RbValue* given)
{ RbValue a[9], grads[9], r = value(RB_NONE); RbRngSlice slice = {sizeof slice, 0, 0, 0}; RbThread tls = {.struct_size = sizeof tls}; RbDTypeInfo info = {.struct_size = sizeof info}; uint64_t bytes; RbCaptureSlice captured = {8, 0, 0, 0, 0};
  const RbMemoryTable* memory = host->get_ext(RB_MEMORY_EXT, RB_MEMORY_VERSION); const RbCaptureRng* rng = host->get_ext(RB_CAPTURE_RNG_EXT, RB_CAPTURE_RNG_VERSION); const RbTrace* trace = host->get_ext(RB_TRACE_EXT, RB_TRACE_VERSION); void* stream = 0; RbCall made_of = *c; host->thread_get(&tls); const RbOp* add = host->find_op("add");
  (void)c; (void)slice; (void)info; (void)bytes; (void)captured; (void)grads; (void)made_of; (void)slot; (void)offset;
  for (int i = 0; i < 9; ++i) a[i] = i < 2 ? given[0] : value(RB_NONE);
  switch (which_one) { %s }
  return 0; }
static int32_t handle(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; const int32_t once = which; which = -1;  /* the calls that a mistake makes pass */
  const int32_t rc = once >= 0 ? mistake(once, c, a) : RB_OK;
  return rc ? rc : host->redispatch(c, layer_id, a, n, r, m); }
RB_EXPORT void choose(int32_t n, int32_t on) { which = n; host->layer_mode(layer_id, on, -1); }
"""


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory):
    """Messages of CALLS, each made by a layer while a call of `neg` passes it."""
    folder = tmp_path_factory.mktemp("mistakes")
    cases = "".join(f"case {i}: return {body};\n" for i, (body, _) in enumerate(CALLS.values()))
    init = "keep(host); RbLayer l = layer(); l.fallback = handle; return host->add_layer(txn, &l, &layer_id);"
    library = build(folder, "odd", extra=COMMON + RUNNER % cases, init=init)
    code = f"""
import ctypes, rabbet
x = rabbet.tensor([[1.0, 2.0]])
rabbet._C.load_plugin({str(library)!r})
choose = ctypes.CDLL({str(library)!r}).choose
for i in range({len(CALLS)}):
    choose(i, 1)
    try:
        rabbet.neg(x)
        print("nothing")
    except Exception as error:
        print(str(error).splitlines()[0] if str(error) else "")
    choose(-1, 0)
    assert rabbet.neg(x).tolist() == [[-1, -2]]
"""
    return run(folder, code).split("\n")


@pytest.mark.parametrize("kind", CALLS)
def test_bad_calls_are_refused(kind, mistakes):
    answer = mistakes[list(CALLS).index(kind)]
    assert answer != "nothing" and re.search(CALLS[kind][1], answer), answer


ADDRESS = """
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = (ctypes.c_void_p * 7).from_address(get(_C.python_v0, b"rabbet._C.python_v0"))
address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(table[4])
"""
EVERY_OPERATOR = r"""
static const RbHost* host;
static void keep(const RbHost* h) { host = h; }
/* A decomposition, and derivatives whose results or gradients are values of the tag. */
static void derive(const RbOp* op, const RbOpInfo* info, RbTensor* t, const RbValue* args, uint32_t tag)
{ RbCall call; RbValue outs[16], moved[64], rets[64]; RbMeta meta; int32_t i;
  memset(&call, 0, sizeof call); memset(outs, 0, sizeof outs); memset(moved, 0, sizeof moved); memset(rets, 0, sizeof rets);
  memset(&meta, 0, sizeof meta);
  meta.ndim = t->ndim; meta.dtype_id = t->dtype_id; meta.backend = t->backend; meta.shape = t->shape;
  call.struct_size = sizeof call; call.host = host; call.op = op; call.keys[0] = t->keys[0];
  for (int32_t few = 0; few <= info->nargs; few += info->nargs ? info->nargs : 1)
    if (host->decompose(&call, args, few, rets, info->nrets) == RB_OK)
      for (i = 0; i < info->nrets; ++i) host->value_release(&rets[i]);
  for (int32_t way = 0; way < 4; ++way) {
    for (i = 0; i < 16; ++i) { outs[i].tag = way == 1 ? tag : way == 2 ? RB_META : RB_TENSOR; outs[i].v.t = t;
      if (outs[i].tag == RB_META) outs[i].v.meta = &meta;
      if (tag != RB_TENSOR && way == 1) outs[i].v.p = 0; }
    for (i = 0; i < 64; ++i) { moved[i].tag = way == 3 ? tag : RB_TENSOR; moved[i].v.t = moved[i].tag == RB_TENSOR ? t : 0; }
    if (host->vjp(op, ~0ull, args, info->nargs, outs, info->nrets, moved, rets) == RB_OK)
      for (i = 0; i < info->nargs; ++i) host->value_release(&rets[i]);
    if (host->jvp(op, args, info->nargs, outs, info->nrets, moved, rets) == RB_OK)
      for (i = 0; i < info->nrets; ++i) host->value_release(&rets[i]); } }
/* Calls with values of every tag in every place; returns how many calls there were. */
RB_EXPORT int32_t try_all(const char* name, RbTensor* t)
{ const RbOp* op = host->find_op(name); const RbOpInfo* info = host->op_info(op);
  static int64_t ints[] = {0, 1, -7}; static double floats[] = {1, 2}; RbTensor* list[] = {t, t};
  int32_t done = 0;
  for (int32_t place = -1; place < info->nargs; ++place) for (uint32_t tag = 0; tag <= RB_LAYOUT + 1; ++tag) {
    RbValue args[64], rets[16]; memset(args, 0, sizeof args); memset(rets, 0, sizeof rets);
    for (int32_t i = 0; i < info->nargs; ++i) { const RbArgInfo* arg = RB_ARG(info, i);
      uint32_t use = place < 0 || place == i ? tag
                   : arg->type == RB_A_TENSOR ? RB_TENSOR : arg->type == RB_A_TENSORS ? RB_TENSORS : RB_NONE;
      args[i].tag = use;
      if (place != i && place >= 0 && use == RB_NONE) { args[i] = arg->default_value; continue; }
      if (use == RB_TENSOR) args[i].v.t = t;
      if (use == RB_TENSORS) { args[i].v.ts = list; args[i].len = 2; }
      if (use == RB_INTS) { args[i].v.is = ints; args[i].len = 3; }
      if (use == RB_FLOATS || use == RB_COMPLEX) { args[i].v.fs = floats; args[i].len = 2; }
      if (use == RB_STR) { args[i].v.s = "odd"; args[i].len = 3; }
      if (use == RB_BOOLS) { args[i].v.bs = (const uint8_t*)"\1"; args[i].len = 2; }
      if (use == RB_STRS) { static const char* const words[] = {"a", "b"}; args[i].v.ss = words; args[i].len = 2; }
      if (use == RB_SCALARS) { static const RbValue two[] = {{RB_INT, 0, {1}}, {RB_UINT, 0, {-1}}}; args[i].v.vs = two; args[i].len = 2; }
      if (use == RB_UINT) args[i].v.u = UINT64_MAX;
      if (use == RB_DTYPE) args[i].v.i = place < 0 ? 11 : 99;
      if (use == RB_DEVICE) args[i].v.dev.backend = place < 0 ? 1 : 99; }
    if (host->call(op, args, info->nargs, rets, info->nrets, 0) == RB_OK)
      for (int32_t k = 0; k < info->nrets; ++k) host->value_release(&rets[k]);
    derive(op, info, t, args, tag);
    ++done; }
  return done; }
"""


def test_every_operator_survives_values_of_every_kind(tmp_path):
    library = build(tmp_path, "odd", extra=EVERY_OPERATOR, init="keep(host); (void)txn; return 0;")
    code = f"""
import ctypes, sys, rabbet
from rabbet import _C
rabbet._C.load_plugin({str(library)!r})
library = ctypes.CDLL({str(library)!r})
{ADDRESS}
count = 0
for dtype in (rabbet.float32, rabbet.int64):
    x = rabbet.ones(2, 3).to(dtype)
    address = address_of(x)
    for name in _C.record_names():
        print(name, file=sys.stderr, flush=True)
        count += library.try_all(name.encode(), ctypes.c_void_p(address))
print(count > 10000, (rabbet.ones(2) + 1).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-300:]
    assert done.stdout == "True [2.0, 2.0]\n"
    assert rabbet.ones(1).item() == 1


LEVELS = r"""
static const RbHost* host;
static int32_t layer_id, level, action;
static void keep(const RbHost* h) { host = h; }
static int32_t again(void* p) { (void)p; return host->transform_pop(level); }
static int32_t handle(void* s, const RbCall* c, const RbValue* a, int32_t n, RbValue* r, int32_t m)
{ (void)s; int32_t other, rc = 0, now = action; action = 0;
  if (now == 1) rc = host->transform_pop(level);
  if (now == 2) { rc = host->transform_push(layer_id, 0, 0, &other); if (!rc) rc = host->transform_pop(other); }
  if (now == 3) rc = host->transform_below(level, again, 0);
  return rc ? rc : host->call(c->op, a, n, r, m, c->flags); }
RB_EXPORT int32_t enter(void) { return host->transform_push(layer_id, 0, RB_X_EVERY, &level); }
RB_EXPORT int32_t leave(void) { return host->transform_pop(level); }
RB_EXPORT void act(int32_t a) { action = a; }
"""


def test_levels_of_others_do_not_go_while_a_transform_handles_a_call(tmp_path):
    init = (
        'RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = "odd"; '
        "l.phase = 460; l.fallback = handle; keep(host); "
        "return host->add_layer(txn, &l, &layer_id);"
    )
    library = build(tmp_path, "odd", extra=LEVELS, init=init)
    code = f"""
import ctypes, rabbet
rabbet._C.load_plugin({str(library)!r})
library = ctypes.CDLL({str(library)!r})
x = rabbet.ones(2)
assert library.enter() == 0
for action in (1, 2, 3):
    library.act(action)
    try:
        x.exp()
        print("entered and left")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    assert x.neg().tolist() == [-1, -1]
assert library.leave() == 0 and library.leave() != 0
print(rabbet.func.vmap(rabbet.neg)(x).tolist())
"""
    pop = "transform_pop: not possible while a transform handles a call"
    assert run(tmp_path, code).splitlines() == [pop, "entered and left", pop, "[-1.0, -1.0]"]


def test_functions_that_return_ok_without_their_results(tmp_path):
    """A kernel that makes its results, a decomposition and a shape rule, each of which sets nothing."""
    init = """
if (host->add_ops(txn, "odd::k(Tensor x) -> Tensor\\n  kind opaque\\n  shape kernel\\n"
                       "odd::d(Tensor x) -> (Tensor a, Tensor b)\\n  kind composite\\n"
                       "odd::s(Tensor x) -> Tensor\\n  kind opaque\\n  shape kernel\\n")) return RB_E_PLUGIN;
RbKernel k = kernel("odd::k", 0); k.backend = "cpu"; k.flags = RB_K_ALLOCATES;
RbRule d = {sizeof d, 0, "odd::d", 0, RB_RULE_DECOMP, 0, run, 0, 0, 0, 0};
RbRule s = {sizeof s, 0, "odd::s", 0, RB_RULE_SHAPE, 0, run, 0, 0, 0, 0};
RbKernel f = kernel("odd::s", 0); f.backend = "cpu";
return host->add_kernel(txn, &k) || host->add_rule(txn, &d) || host->add_rule(txn, &s) || host->add_kernel(txn, &f);
"""
    library = build(tmp_path, "odd", extra=KERNEL, init=init)
    code = f"""
import rabbet
rabbet._C.load_plugin({str(library)!r})
for name in "kds":
    try:
        rabbet.ops("odd::" + name)(rabbet.ones(2))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""
    assert run(tmp_path, code).splitlines() == [
        f"odd::{name}: a function of odd 1.0 returned RB_OK without result 0" for name in "kds"
    ]


DEEP = {
    "parentheses": "(" * 100000 + "x" + ")" * 100000,
    "signs": "-" * 100000 + "x",
    "not": "not " * 100000 + "x",
    "a sum": "+".join(["x"] * 100000),
    "powers": "x" + "**1" * 100000,
    "indices": "x.shape" + "[0]" * 100000,
    "lists": "[" * 100000 + "x" + "]" * 100000,
    "calls": "neg(" * 100000 + "x" + ")" * 100000,
    "conditions": "x if 1 else " * 100000 + "x",
}


@pytest.mark.parametrize("kind", DEEP)
def test_formulas_that_are_too_deep_for_the_stack_are_refused(kind):
    with pytest.raises(rabbet.PluginError, match="nested deeper than 200 levels") as refused:
        deep(DEEP[kind])
    assert len(str(refused.value)) < 1000


def deep(formula: str, lets: str = "") -> rabbet.Tensor:
    rabbet.library.register_records(
        f"odd::deep(Tensor x) -> Tensor\n  kind composite\n{lets}  decomp {formula}\n"
    )
    return rabbet.ops("odd::deep")(rabbet.ones(2))


def test_names_of_formulas_are_used_after_their_let():
    chain = "".join(f"  let     a{i} = a{i - 1} + x\n" for i in range(1, 1000))
    for lets, message in [
        ("  let     a = a + x\n", "'a' is used before its `let`"),
        ("  let     a = b\n  let     b = x\n", "'b' is used before its `let`"),
        ("  let     a0 = x\n" + chain, "more than 64 lets"),
    ]:
        with pytest.raises(rabbet.PluginError, match=message):
            deep("a", lets)
