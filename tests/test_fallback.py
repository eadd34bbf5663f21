"""Calls that no kernel of a backend takes run on the CPU, where the backend asks for it (decision 0027)."""

import pytest
from plugin_wheels import build_lazy, run

START = """
import warnings, rabbet
rabbet._C.load_plugin({library!r})
x = (rabbet.arange(12.0).reshape(3, 4) - 5).flip(0).to("lazy")
def said(f):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f()
    return [str(w.message) for w in seen]
"""


@pytest.fixture(scope="module")
def lazy(tmp_path_factory):
    """Runs code in a process of its own with the backend `lazy`, which falls back."""
    folder = tmp_path_factory.mktemp("fallback")
    library = str(build_lazy(folder, "RB_B_FALLS_BACK"))
    return lambda code, **env: run(folder, START.format(library=library) + code, **env)


def test_results_are_those_of_the_cpu_on_the_device(lazy):
    lazy("""
values, places = rabbet.sort(x.t(), dim=0)
here = rabbet.sort(x.cpu().t(), dim=0)
assert values.device == places.device == x.device
assert values.tolist() == here[0].tolist() and places.tolist() == here[1].tolist()
assert values.stride() == here[0].stride()
assert rabbet.cumsum(x[:, ::2].t(), 1).tolist() == rabbet.cumsum(x.cpu()[:, ::2].t(), 1).tolist()
""")


def test_one_warning_names_the_operator(lazy):
    lazy("""
first, again, other = (said(lambda: f(x, 0)) for f in (rabbet.cumsum, rabbet.cumsum, rabbet.cumprod))
assert len(first) == len(other) == 1 and not again, (first, again, other)
assert "cumsum: no kernel for 'lazy' takes this call" in first[0] and "cumprod" in other[0]
""")


def test_the_warning_says_why_a_kernel_declines(lazy):
    code = """
first, other, silent = (said(lambda: f(x)) for f in (rabbet.cos, lambda x: rabbet.cumsum(x, 0), rabbet.sin))
assert "cos: no kernel for 'lazy' takes this call (its library was not found); it runs on the CPU" in first[0], first
assert "cumsum: no kernel for 'lazy' takes this call; it runs" in other[0], other
assert "sin: no kernel for 'lazy' takes this call; it runs" in silent[0], silent
assert rabbet.allclose(rabbet.cos(x).cpu(), rabbet.cos(x.cpu()))
"""
    lazy(code)
    refused = """
try: rabbet.cos(x)
except NotImplementedError as error: assert "no kernel for 'lazy' (its library was not found) and no decomposition" in str(error), error
else: raise AssertionError("it ran")
"""
    lazy(refused, RABBET_LAZY_FALLBACK="error")


def test_what_is_written_is_written_and_counts_as_written(lazy):
    """In place and out=: values and version; a result that backward needs is refused afterwards."""
    lazy("""
out = rabbet.empty(0, device="lazy")
y = x.clone()
want, versions = x.cpu().cumsum(0).tolist(), (out._version, y._version)
rabbet.cumsum(x, 0, out=out)
y.cumsum_(0)
assert out.tolist() == y.tolist() == want
assert out._version > versions[0] and y._version > versions[1]
weight = x.clone().requires_grad_()
product = weight * y
y.cumsum_(0)
try: product.sum().backward()
except RuntimeError as error: assert "modified by an inplace operation" in str(error) or "written" in str(error), error
else: raise AssertionError("backward read a value that was written")
""")


def test_it_can_be_refused(lazy):
    lazy(
        """
try: rabbet.cumsum(x, 0)
except NotImplementedError as error: assert "cumsum" in str(error) and "RABBET_LAZY_FALLBACK=error" in str(error), error
else: raise AssertionError("it ran")
assert (x + x).tolist() == (x.cpu() * 2).tolist()
""",
        RABBET_LAZY_FALLBACK="error",
    )
