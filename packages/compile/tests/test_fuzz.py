"""Random programs in regions: what they read and what they leave equals that of eager runs, bit for bit."""

import pytest
import rabbet_compile
import random_programs


@pytest.fixture(params=[7, 64])
def everything_deferred(request):
    rabbet_compile.configure(least_bytes=0, tile=request.param)


def compare(seed):
    read, kept = random_programs.run(seed)
    kept = [random_programs.bits(t) for t in kept]
    for _ in range(2):  # the second time plans are found
        with rabbet_compile.region():
            read_there, kept_there = random_programs.run(seed)
        assert str(read_there) == str(read), f"program {seed}"
        assert [random_programs.bits(t) for t in kept_there] == kept, f"program {seed}"


@pytest.mark.filterwarnings("ignore")
def test_random_programs_do_not_differ_from_eager(everything_deferred):
    for seed in range(300):
        compare(seed)
    done = rabbet_compile.totals()
    assert done["tiled"] > 500 and done["unstored"] > 100 and done["dropped"] > 100, done


@pytest.mark.filterwarnings("ignore")
def test_checks_find_nothing_in_random_programs():
    rabbet_compile.configure(least_bytes=0, check=True)
    for seed in range(1000, 1100):
        compare(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [10**5, 2 * 10**5, 3 * 10**5])
def test_many_random_programs_do_not_differ_from_eager(everything_deferred, first):
    for seed in range(first, first + 5000):
        compare(seed)
