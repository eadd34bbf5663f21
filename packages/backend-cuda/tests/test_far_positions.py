"""Positions beyond 2**32, on the simulator: memory is there only where it is touched."""

MEMORY = {"CUSIM_MEMORY": str(64 << 30)}


def test_more_elements_than_32_bits_count(compared):
    """Of each launch the first and the last blocks run; those reach both ends."""
    code = """
N = (1 << 32) + 4096
x = rabbet.empty(N, dtype=rabbet.uint8, device="cuda")
def ends(t): return t[:3].tolist() + t[-3:].tolist()
assert ends(x.fill_(3)) == [3] * 6
y = x + 2
assert ends(y) == [5] * 6
y[-2] = 9
assert ends(y * x) == [15] * 4 + [27, 15]
assert ends(y.to(rabbet.bool)) == [True] * 6
assert ends(rabbet.where(y > 5, x, y)) == [5] * 4 + [3, 5]
assert ends(rabbet.arange(N, dtype=rabbet.int64, device="cuda")) == [0, 1, 2, N - 3, N - 2, N - 1]
# Packs of rows, and positions one by one, both of which lie apart.
z = x.as_strided((N // 4, 2), (4, 1))
z.add_(1)
assert z[-1].tolist() == [4, 4] and x[-4:].tolist() == [4, 4, 3, 3]
# Many positions of few elements.
few = rabbet.zeros(2, device="cuda")
few.scatter_add_(0, rabbet.zeros(1, dtype=rabbet.int64, device="cuda").expand(N), rabbet.ones(1, device="cuda").expand(N))
assert few[0].item() > 1 << 16 and few[1].item() == 0
"""
    compared(code, CUSIM_BLOCKS="16", **MEMORY)


def test_elements_that_lie_far_apart(compared):
    """Few of them, in rows with more than 2**32 elements between."""
    code = """
FAR = (1 << 32) + 8
memory = rabbet.empty(FAR + 64, device="cuda")
def far(t, first=0):
    return memory.as_strided(tuple(t.shape), (FAR, *t[0].stride()), first).copy_(t)
F = rabbet.nn.functional
rows, at = some((2, 8), F32, nan=False), rabbet.tensor([[1, 0, 1, 1, 0, 0, 1, 0]])
other = some((2, 8), F32, nan=False)
def there(f, close=None):
    same(f(rows, at, other), f(far(rows), at.to("cuda"), far(other, 32)), close)
for f in (
    lambda x, at, y: x + y, lambda x, at, y: x * 2 - 1, lambda x, at, y: x > y, lambda x, at, y: rabbet.where(x > 0, x, y),
    lambda x, at, y: x.clone(), lambda x, at, y: x.t().contiguous(), lambda x, at, y: x.to(F64), lambda x, at, y: x.flip(0),
    lambda x, at, y: rabbet.cat([x, y]), lambda x, at, y: rabbet.cat([x, y], 1), lambda x, at, y: x.roll(1, 0), lambda x, at, y: x.triu(),
    lambda x, at, y: x.sum(0), lambda x, at, y: x.sum(1), lambda x, at, y: x.amax(0), lambda x, at, y: x.argmax(0),
    lambda x, at, y: x.cumsum(0), lambda x, at, y: x.cumsum(1), lambda x, at, y: x.sort(1)[0], lambda x, at, y: x.sort(0)[1],
    lambda x, at, y: x.topk(2, 1)[0],
    lambda x, at, y: x.gather(0, at), lambda x, at, y: x.index_select(0, at[0]), lambda x, at, y: x.index_select(1, at[0]),
    lambda x, at, y: x[at[0]], lambda x, at, y: x[at[0], at[0] * 7], lambda x, at, y: F.embedding(at, x), lambda x, at, y: x[x > 0],
    lambda x, at, y: x.nonzero(),
):
    there(f)
for f in (lambda x, at, y: x @ y.t(), lambda x, at, y: x.t() @ y, lambda x, at, y: x.softmax(1), lambda x, at, y: x.softmax(0),
          lambda x, at, y: F.layer_norm(x, (8,)), lambda x, at, y: F.cross_entropy(x, at[0, :2]), lambda x, at, y: x.logsumexp(0)):
    there(f, 1e-5)
# Results that lie far apart.
def into(f):
    here, x, y = rows.clone(), far(rows), far(other, 32)
    f(here, at, other), f(x, at.to("cuda"), y)
    same(here, x)
for f in (lambda x, at, y: x.add_(y), lambda x, at, y: x.copy_(y.flip(1)), lambda x, at, y: x.fill_(2), lambda x, at, y: x[:, 1:].fill_(2),
          lambda x, at, y: x.scatter_(0, at, y), lambda x, at, y: x.scatter_add_(0, at, y), lambda x, at, y: x.index_add_(0, at[0, :2], y),
          lambda x, at, y: x.index_put_((at[0, :2],), y, True), lambda x, at, y: x.index_put_((at[0, :2], at[0, :2] * 7), y[0, :2]),
          lambda x, at, y: x.masked_fill_(y > 0, 5), lambda x, at, y: rabbet.cumsum(y, 1, out=x), lambda x, at, y: x.index_fill_(0, at[0, :1], 3)):
    into(f)
seeded(lambda device: rabbet.empty(2, 8).uniform_() if device == "cpu" else far(rabbet.zeros(2, 8)).uniform_().clone())
"""
    compared(code, **MEMORY)
