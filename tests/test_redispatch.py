"""What a layer hands down is what runs below it, whatever was found out about the call that it got."""

import pytest
from plugin_wheels import build, run

# A layer, on for the thread, that replaces the second argument of an `add` by a row of 5.
LAYER = """
static int32_t id;
static int32_t add_row(void* self, const RbCall* c, const RbValue* args, int32_t n, RbValue* rets,
                        int32_t m) {
  const RbHost* host = c->host;
  if (strcmp(host->op_info(c->op)->name, "add") || args[0].tag != RB_TENSOR)
    return host->redispatch(c, id, args, n, rets, m);
  const int64_t shape[] = {2};
  RbTensor* row = 0;
  int32_t rc = host->tensor_new(args[0].v.t->backend, 0, RB_F32, 1, shape, 0, &row);
  if (rc) return rc;
  for (int i = 0; i < 2; ++i) ((float*)row->data)[i] = 5;
  RbValue own[3];
  memcpy(own, args, sizeof own);
  own[1].v.t = row;
  RbCall copy = *c;
  (void)copy;
  rc = host->redispatch(WHICH, id, own, n, rets, m);
  host->release(row);
  return rc;
}
"""
INIT = """
RbLayer l; memset(&l, 0, sizeof l); l.struct_size = sizeof l; l.name = "row"; l.phase = 700;
l.fallback = add_row;
const int32_t rc = host->add_layer(txn, &l, &id);
if (rc == RB_OK) host->layer_mode(id, 1, -1);
return rc;
"""


@pytest.mark.parametrize("which", ["c", "&copy"])
def test_values_of_the_layer_are_read_anew(tmp_path, which):
    library = build(tmp_path, "odd", extra=LAYER.replace("WHICH", which), init=INIT)
    code = f"""
import rabbet
a, b = rabbet.ones(3, 2), rabbet.ones(3, 2)
print((a + b).tolist())
rabbet._C.load_plugin({str(library)!r})
print((a + b).tolist())
print((a * b).tolist())
print((a + rabbet.ones(7)).tolist())
"""
    ones, twos, sixes = (str([[x, x]] * 3) for x in (1.0, 2.0, 6.0))
    assert run(tmp_path, code).splitlines() == [twos, sixes, ones, sixes]
