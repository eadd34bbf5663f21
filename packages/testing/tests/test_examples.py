"""Examples and domains of records: every record has some, what does not fit is refused, and what is made is as written."""

import pytest
import rabbet
from rabbet import _C, library
from rabbet_testing.cases import Maker, NoCase, cases
from rabbet_testing.judges.calls import takes_integers_only
from rabbet_testing.judges.references import reference


def test_every_record_has_examples_that_fit():
    _C.check_records()  # of core: each line against its signature
    assert [n for n in _C.record_names() if "::" not in n and not _C.op_info(n)["examples"]] == []


def test_every_operator_that_is_not_made_of_others_has_a_reference():
    primitive = [n for n in _C.record_names() if "::" not in n and not _C.op_info(n)["has_decomp"]]
    assert [n for n in primitive if reference(n) is None] == [] and len(primitive) > 100


def test_every_example_runs_in_float64():
    for name in _C.record_names():
        if "::" in name or takes_integers_only(name):
            continue
        for case in cases(name):
            rabbet.manual_seed(0)
            case.run()


SCHEMA = "odd::scale(Tensor x, Tensor[] more=[], *, float by=1.0, str how='plain', dtype? kind=None) -> Tensor"
RECORD = (
    SCHEMA
    + """
  kind    opaque
  shape   x.shape
"""
)
WRONG = {
    "example (3,4), [(2)], 2.0": "more arguments than the signature has without keywords",
    "example (3,4), times=2.0": "there is no argument 'times'",
    "example by=2.0": "argument 'x' is missing",
    "example (3,4), x=(3)": "argument 'x' is given twice",
    "example [(3,4)]": "argument 'x' takes a tensor",
    "example 3": "argument 'x' takes a tensor",
    "example (3,4), (2)": "argument 'more' takes a list of tensors",
    "example (3,4), by='much'": "argument 'by' takes a number",
    "example (3,4), how=2": "argument 'how' takes a string",
    "example (3,4), kind=float7": "argument 'kind' takes the name of a dtype",
    "example random(3,4)": "unknown maker 'random', known are result, index, mask",
    "example index(3,4)": "expected ';' before",
    "example index((3); 4)": "index takes a whole number",
    "example data(None)": "data takes numbers",
    "example (3,-4)": "a shape holds sizes",
    "example (3,4": "expected ')' before the end",
    "example (3,4), how='x": "a string is not closed",
    "example (3,4) (5)": "expected ',' or ';' before",
    "example result(nosuch, x)": "result: there is no operator 'nosuch'",
    "example result(neg, y)": "'y' is neither an argument of the call nor a dtype",
    "example by=1.0, (3)": "an argument without a keyword comes after one with a keyword",
    "example": "expected 'example' and what it says",
    "domain z > 0": "there is no tensor argument 'z'",
    "domain by > 0": "there is no tensor argument 'by'",
    "domain x": "expected 'x' to be compared with a number",
    "domain x > y": "expected a number before",
    "domain 2 < x < 1": "no number lies between the bounds",
    "domain x != 1": "only 0 may be excluded",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_does_not_fit_is_refused(line):
    with pytest.raises(_C.PluginError) as raised:
        library.register_records(f"{RECORD}  {line}\n", "odd.rec")
    assert str(raised.value).startswith("odd.rec:4: ") and WRONG[line] in str(raised.value)
    assert "odd::scale" not in _C.record_names()


def test_operators_of_others_give_examples():
    fields = {"example": "(2), by=3; positive(4), how='other'", "domain": "1 < x < 2"}
    with library.op(SCHEMA, fields=fields)(lambda x, more, *, by, how, kind: x * by).handle:
        first, second = cases("odd::scale")
        assert (first.label, first.kwargs) == ("(2), by=3", {"by": 3})
        assert first.args[0].min().item() > 1 and first.args[0].max().item() < 2
        assert second.args[0].shape == (4,) and second.kwargs == {"how": "other"}


# ---- what is made


def made(dtype="float64"):
    return Maker(0, getattr(rabbet, dtype), False)


def test_plain_tensors_are_apart_and_away_from_0():
    x = made().tensor(3, 4).flatten()
    assert x.abs().min().item() > 0.01 and len(set(x.tolist())) == 12
    assert not set(x.tolist()) & set(
        made().tensor(4, bounds=(0.0, False, None, False, False)).tolist()
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize(
    "bounds",
    [
        (0.0, False, None, False, False),
        (None, False, 3.0, True, True),
        (-1.0, True, 5.0, False, False),
    ],
)
def test_tensors_keep_to_the_domain(dtype, bounds):
    low, low_closed, high, high_closed, nonzero = bounds
    for x in (made(dtype).tensor(40, bounds=bounds), made(dtype).ties(9, bounds=bounds)):
        for v in map(float, x.tolist()):
            assert low is None or v > low or (low_closed and v == low)
            assert high is None or v < high or (high_closed and v == high)
            assert not (nonzero and v == 0)


def test_a_dtype_without_a_number_in_the_domain_has_no_case():
    for dtype in ("int64", "bool"):
        with pytest.raises(NoCase):
            made(dtype).tensor(3, bounds=(0.0, False, 1.0, False, False))


def test_other_makers():
    m = made()
    assert m.index(3, 2, 2).max().item() < 3 and m.mask(3, 4)[1, 1].item()
    assert len(set(m.ties(3, 4).flatten().tolist())) == 3 and m.nan(6).isnan().sum().item() == 2
    wide = m.wide(64).abs()
    assert wide.max().item() > 1e300 and wide.min().item() == 0 and wide[1:].min().item() < 1e-300
    spd, q = m.spd(4), m.orthogonal(4)
    assert rabbet.allclose(spd, spd.mT) and rabbet.allclose(
        q @ q.mT, rabbet.eye(4, dtype=rabbet.float64)
    )
    assert all((spd @ v).dot(v).item() > 0 for v in m.tensor(5, 4))
    assert (
        m.data([1, 2]).dtype is rabbet.int64
        and not Maker(0, rabbet.float64, True).data([0.5]).requires_grad
    )
