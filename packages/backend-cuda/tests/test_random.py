"""Random numbers, on the simulator: a seed gives the CPU's, whose own tests judge their distribution."""

import pytest


def test_a_seed_gives_the_numbers_of_the_cpu(compared):
    code = """
for dtype in (F16, BF16, F32, F64):
    close = {F16: 2e-3, BF16: 1e-2, F32: 1e-5, F64: 1e-12}[dtype]
    for shape in ((5,), (3, 7), (), (0, 3), (64,)):
        def new(device): return rabbet.empty(shape, dtype=dtype, device=device)
        seeded(lambda device: rabbet.rand(shape, dtype=dtype, device=device))
        seeded(lambda device: new(device).uniform_(-3, 1))
        seeded(lambda device: new(device).bernoulli_(0.3))
        seeded(lambda device: rabbet.bernoulli(rabbet.full(shape, 0.25, dtype=dtype).to(device)))
        seeded(lambda device: new(device).normal_(2, 3), close)
        seeded(lambda device: new(device).exponential_(2.0), close)
    seeded(lambda device: rabbet.rand(4, 6, dtype=dtype, device=device).t().uniform_())
    for top in (0.0, -1.0, 3.14159, 1e-7, -0.001):  # the largest value below it, in each dtype
        seeded(lambda device: rabbet.empty(40, dtype=dtype, device=device).uniform_(top - 1e-7, top))
for dtype in REAL:
    seeded(lambda device: rabbet.randint(0, 2, (9,), dtype=dtype, device=device))
seeded(lambda device: rabbet.randint(-5, 2**40, (9,), device=device))
seeded(lambda device: rabbet.empty(9, dtype=rabbet.int64, device=device).random_())
for n in (0, 1, 7, 300, 5000):
    seeded(lambda device: rabbet.randperm(n, device=device))
seeded(lambda device: rabbet.randperm(9, dtype=rabbet.int32, device=device))
seeded(lambda device: rabbet.nn.functional.dropout(rabbet.ones(50, device=device), 0.4))
seeded(lambda device: rabbet.multinomial(rabbet.tensor([0.1, 0.2, 0.7]).to(device), 9, replacement=True))
generator = rabbet.Generator(device="cuda").manual_seed(5)
there = rabbet.rand(6, generator=generator, device="cuda")
same(rabbet.rand(6, generator=rabbet.Generator().manual_seed(5)), there)
"""
    compared(code)


def test_each_launch_of_a_graph_draws_anew(compared):
    """What a graph draws is what the same calls draw one by one; sorts and scans are captured, too."""
    code = """
from rabbet import accelerator
ones = rabbet.ones(8, device="cuda")
def draw():
    u = rabbet.rand(8, device="cuda")
    return (u, rabbet.randn(8, device="cuda"), rabbet.randperm(9, device="cuda"), rabbet.bernoulli(u),
            rabbet.nn.functional.dropout(ones, 0.5), rabbet.sort(u)[1], u.cumsum(0), u[rabbet.argsort(u)])
rabbet.manual_seed(3)
eager = [draw() for _ in range(3)]
rabbet.manual_seed(3)
graph, stream = accelerator.Graph(), rabbet.Stream("cuda")
stream.wait_stream(accelerator.current_stream("cuda"))
with stream:
    with graph: made = draw()
    for expected in eager:
        graph.replay()
        for a, b in zip(expected, made, strict=True): same(a.cpu(), b)
    try:
        with accelerator.Graph(): rabbet.nonzero(ones)
    except RuntimeError as error: assert "nonzero" in str(error), error
    else: raise AssertionError("nonzero was captured")
"""
    compared(code)


@pytest.mark.parametrize("p", ["[0.5, 2.0]", "[-0.5, 0.5]", "[float('nan'), 0.5]"])
def test_probabilities_outside_0_to_1_are_an_error_of_the_next_wait(compared, p):
    code = f"""
try:
    rabbet.bernoulli(rabbet.tensor({p}).to("cuda")).cpu()
except ValueError as error:
    assert "bernoulli" in str(error) and "[0, 1]" in str(error), error
else:
    raise AssertionError("no error")
"""
    compared(code)


def test_refusals_of_the_host(compared):
    code = """
x = rabbet.empty(3, device="cuda")
for f in (lambda: x.uniform_(2, 1), lambda: x.exponential_(-1), lambda: x.bernoulli_(2), lambda: x.normal_(0, -1),
          lambda: x.random_(3, 3)):
    try: f()
    except ValueError: continue
    raise AssertionError("no error")
"""
    compared(code)
