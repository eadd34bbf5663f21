"""Memory and floating-point operations, compared with values computed from the shapes."""

import pytest
import rabbet
from rabbet import nn
from rabbet.nn import functional as F
from rabbet.profiler import profile, record_function


def by_name(prof, name):
    return [event for event in prof.events() if event.name == name]


@pytest.mark.parametrize("n", [2, 100, 100_000])
def test_a_call_keeps_the_memory_of_its_result(n):
    x = rabbet.ones(n)
    with profile(profile_memory=True) as prof:
        y = x.exp()
    assert by_name(prof, "aten::exp")[0].cpu_memory_usage == 4 * n == y.nbytes


def test_memory_that_is_freed_counts_where_it_is_freed():
    x = rabbet.ones(1000)
    with profile(profile_memory=True) as prof:
        with record_function("makes"):
            y = x.exp()
        with record_function("frees"):
            del y
        with record_function("both"):
            x.exp()
    usage = {name: by_name(prof, name)[0] for name in ("makes", "frees", "both")}
    assert [usage[n].cpu_memory_usage for n in usage] == [4000, -4000, 0]
    assert [usage[n].self_cpu_memory_usage for n in usage] == [0, -4000, -4000]


def test_memory_that_changes_outside_of_all_events_has_one_of_its_own():
    with profile(profile_memory=True) as prof:
        x = rabbet.ones(1000)
        del x
        rabbet.ones(1)
    assert [e.cpu_memory_usage for e in by_name(prof, "[memory]")] == [-4000, -4]


def test_what_calls_keep_is_what_their_parts_keep():
    x = rabbet.ones(10, 10)
    with profile(profile_memory=True) as prof:
        kept = rabbet.einsum("ij,jk->ik", x, x)
    (outer,) = by_name(prof, "aten::einsum")
    assert outer.cpu_memory_usage == kept.nbytes
    parts = sum(child.cpu_memory_usage for child in outer.cpu_children)
    assert outer.self_cpu_memory_usage == outer.cpu_memory_usage - parts


def test_views_keep_no_memory():
    x = rabbet.ones(10, 10)
    with profile(profile_memory=True) as prof:
        x.t()
    assert by_name(prof, "aten::t")[0].cpu_memory_usage == 0


def test_memory_over_time_ends_where_the_program_does():
    with profile(profile_memory=True) as prof:
        kept = [rabbet.ones(1000) for _ in range(3)]
        kept.pop()
        kept.append(rabbet.ones(10))
    trace = prof.profiler.trace
    sizes = [host for _, host, _ in trace.memory]
    assert max(sizes) == 12_000 and sizes[-1] == 8040
    assert [at for at, _, _ in trace.memory] == sorted(at for at, _, _ in trace.memory)


def total_flops(run):
    with profile(with_flops=True) as prof:
        run()
    return sum(event.flops for event in prof.events())


r = rabbet.ones
FLOPS = {
    "a product of matrices": (lambda: r(3, 4) @ r(4, 5), 2 * 3 * 4 * 5),
    "batches": (lambda: rabbet.bmm(r(6, 3, 4), r(6, 4, 5)), 6 * 2 * 3 * 4 * 5),
    "addmm": (lambda: rabbet.addmm(r(3, 5), r(3, 4), r(4, 5)), 2 * 3 * 4 * 5),
    "linear": (lambda: F.linear(r(2, 7, 4), r(5, 4), r(5)), 2 * 14 * 4 * 5),
    "einsum": (lambda: rabbet.einsum("bi,ij->bj", r(3, 4), r(4, 5)), 2 * 3 * 4 * 5),
    "a convolution": (lambda: F.conv2d(r(2, 3, 8, 8), r(4, 3, 3, 3)), 2 * 2 * 4 * 36 * 27),
    "with stride and padding": (
        lambda: F.conv2d(r(2, 3, 8, 8), r(4, 3, 3, 3), stride=2, padding=1),
        2 * 2 * 4 * 16 * 27,
    ),
    "in groups": (lambda: F.conv2d(r(1, 4, 5, 5), r(4, 1, 3, 3), groups=4), 2 * 4 * 9 * 9),
    "along a line": (lambda: F.conv1d(r(2, 3, 10), r(4, 3, 3)), 2 * 2 * 4 * 8 * 9),
    "attention": (
        lambda: F.scaled_dot_product_attention(r(2, 3, 5, 8), r(2, 3, 7, 8), r(2, 3, 7, 8)),
        2 * 2 * 3 * 5 * 7 * (8 + 8),
    ),
    "sums and products of elements": (lambda: (r(3, 4) + 1) * r(4), 12 + 12),
    "none": (lambda: r(3, 4).exp().sum(), 0),
}


@pytest.mark.parametrize("what", FLOPS)
def test_operations_follow_from_the_shapes(what):
    run, expected = FLOPS[what]
    assert total_flops(run) == expected


def test_backward_of_a_product_takes_two_products():
    a, b = r(3, 4, requires_grad=True), r(4, 5, requires_grad=True)
    y = a @ b
    assert total_flops(lambda: y.backward(r(3, 5))) == 2 * (2 * 3 * 4 * 5)


def test_backward_of_a_convolution_counts_both_gradients():
    x, conv = r(2, 3, 8, 8, requires_grad=True), nn.Conv2d(3, 4, 3, bias=False)
    y = conv(x)
    assert total_flops(lambda: y.backward(r(2, 4, 6, 6))) == 2 * (2 * 2 * 4 * 36 * 27)


def test_a_failed_call_has_no_operations():
    def fails():
        with pytest.raises((RuntimeError, ValueError)):
            r(2, 3) @ r(2, 3)

    assert total_flops(fails) == 0
