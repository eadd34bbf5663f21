"""Arguments that are lists of bools, strs or numbers, layouts, callables, and large ints: from Python to a function."""

import pytest
import rabbet
from rabbet import library


@pytest.fixture(scope="module")
def told():
    """An operator that takes one of each, and returns what came."""
    came = {}

    def forward(x, which, words, numbers, *, layout=None, fn=None):
        came.update(which=which, words=words, numbers=numbers, layout=layout, fn=fn)
        return x.clone()

    op = library.op(
        "values::all(Tensor x, bool[] which, str[] words, Scalar[] numbers, *, "
        "layout? layout=None, callable? fn=None) -> Tensor"
    )(forward)
    return op, came


def test_all_arrive_as_they_are(told):
    op, came = told
    op(
        rabbet.ones(2),
        [True, False],
        ("a", "bé"),
        [1, 2.5, True, 3j, 2**64 - 1],
        layout=rabbet.strided,
        fn=len,
    )
    assert came["which"] == [True, False] and came["words"] == ["a", "bé"]
    assert came["numbers"] == [1, 2.5, True, 3j, 2**64 - 1] and came["numbers"][2] is True
    assert came["layout"] is rabbet.strided and came["fn"] is len


def test_empty_lists_and_none(told):
    op, came = told
    op(rabbet.ones(2), [], [], ())
    assert came == {"which": [], "words": [], "numbers": [], "layout": None, "fn": None}


def test_tensors_of_one_number_are_numbers(told):
    op, came = told
    op(rabbet.ones(2), [], [], [rabbet.tensor(3), rabbet.tensor(0.5)])
    assert came["numbers"] == [3, 0.5]


BAD = {
    "a number among bools": (([1], [], []), {}, "argument 'which' must be tuple of bools, but element 0 is int"),
    "a bool for a list": ((True, [], []), {}, "argument 'which' must be tuple of bools, not bool"),
    "a text for a list of them": (([], "ab", []), {}, "argument 'words' must be tuple of strs, not str"),
    "bytes among texts": (([], ["a", b"b"], []), {}, "argument 'words' must be tuple of strs, but element 1 is bytes"),
    "a text among numbers": (([], [], [1, "2"]), {}, "argument 'numbers' must be tuple of numbers, but element 1 is str"),
    "a tensor of several numbers": (([], [], [rabbet.ones(2)]), {}, "argument 'numbers' must be tuple of numbers, but element 0 is Tensor"),
    "no layout": (([], [], []), {"layout": "strided"}, "argument 'layout' must be layout or None, not str"),
    "a memory format": (([], [], []), {"layout": rabbet.contiguous_format}, "must be layout or None, not rabbet.memory_format"),
    "what cannot be called": (([], [], []), {"fn": 3}, "argument 'fn' must be callable or None, not int"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_others_are_refused(kind, told):
    args, kwargs, message = BAD[kind]
    with pytest.raises(TypeError, match=message):
        told[0](rabbet.ones(2), *args, **kwargs)


def test_a_list_of_what_has_none_is_refused():
    with pytest.raises(rabbet.PluginError, match=r"type 'layout\[\]' does not exist"):
        library.op("values::bad(Tensor x, layout[] l) -> Tensor")(lambda x, l: x.clone())


# ---- ints above 2**63


def test_large_ints_are_exact_in_uint64():
    large = 2**64 - 1
    x = rabbet.full((2,), large, dtype=rabbet.uint64)
    assert (
        x.tolist() == [large, large]
        and rabbet.zeros(1, dtype=rabbet.uint64).fill_(large).item() == large
    )
    assert (x == large).tolist() == [True, True] and (x == large - 1).tolist() == [False, False]
    assert (rabbet.tensor([1.0]) + 2**63).item() == 2.0**63


@pytest.mark.parametrize("call", [
    lambda: rabbet.full((2,), 2**63), lambda: rabbet.zeros(1, dtype=rabbet.int32).fill_(2**63),
])  # fmt: skip
def test_large_ints_do_not_fit_signed_dtypes(call):
    with pytest.raises((ValueError, RuntimeError, OverflowError), match="without overflow"):
        call()


def test_larger_ints_are_none():
    for call in (lambda: rabbet.ones(1) + 2**64, lambda: rabbet.full((2,), -(2**63) - 1)):
        with pytest.raises(OverflowError):
            call()
