"""Graphs as text: what is printed is read back, and what is no graph is refused with its place."""

import re

import pytest
import rabbet
from rabbet.graph import ParseError, capture, cond, parse, while_loop

TEXT = """\
graph "example" {
  input %x: float32[s0, 4] "x"
  parameter %w: float32[4, 8] "weight"
  buffer %b: float32[8] "bias" transient
  constant %c: float64[] on "meta" "c"
  input %v: float32[4, 3] "v" strides [1, 4]
  symbol s0 = 3 in [2, inf] is dim(%x, 0)
  symbol s1 = 5 in [2, 64]
  require s0 * 2 > 3 @ "a.py:3 in f"
  require s0 % 3 == 0
  training False
  %1: float32[s0, 8] = matmul(%x, %w) @ "a.py:4 in f"
  %2: float32[8] of %1 = select(%1, 0, 0) nograd
  write %2 = add(%2, %b, 1)
  (%3: float32[s0], %4: int64[s0]) = max.dim(%1, 1, False)
  [%5: float32[s0, 4] of %1, %6: float32[s0, 4] of %1] = split(%1, 4, 1)
  %7: float32[s0 * 8] of %1 = reshape(%1, [{s0 * 8}])
  %8: float32[?24] = clone(%7)
  %9: float64[s0 // 2 + 1] = full([{s0 // 2 + 1}], -0.5, float64, device("cpu"), None)
  %10: float32[s0, 8] = mul(%1, inf)
  %11: float32[s0, 8] = add(%10, nan, complex(1.0, -2.0))
  %12: float32[8] = rand([8], object("generator_0"), float32, None)
  gradient %w = %w replaces
  gradient %b = None
  return %3, {(s0 + 1) * 2}, "text", None, True, -3, 1e-05
}
"""


def test_all_that_text_can_hold_is_read_back():
    assert str(parse(TEXT)) == TEXT


def test_comments_and_space_are_skipped():
    spaced = TEXT.replace("\n", "\n\n  # a comment\n")
    assert str(parse(spaced)) == TEXT


def program(x, n):
    y = cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))
    k, z = while_loop(lambda k, z: k < n, lambda k, z: (k + 1, z + y), (rabbet.tensor(0), x))
    z[0] += rabbet.rand(z.shape[1], generator=rabbet.Generator().manual_seed(3))
    return z, k


def test_branches_loops_and_objects_are_read_back():
    graph = capture(program, rabbet.ones(2, 3), rabbet.tensor(2))
    text = str(graph)
    again = parse(text, graph.bound, graph.objects)
    assert str(again) == text
    graph.objects["generator_0"].manual_seed(3)
    first = again.run(rabbet.ones(2, 3), rabbet.tensor(2))
    assert rabbet.equal(first[0], program(rabbet.ones(2, 3), rabbet.tensor(2))[0])


FAULTS = {
    "%1: float32[3] = relu(%0)": "expected a value that is defined before, got %0",
    "%1: float31[3] = relu(%x)": "expected an argument or a dtype, got float31",
    "%1: float32[3 = relu(%x)": "expected ',', got =",
    "%x: float32[3] = relu(%x)": "expected a name that is new, got %x",
    "%1: float32[s9 + 1] = relu(%x)": "expected a symbol of the graph (it has none), got s9",
    "%1: float32[3] = relu(%x": "expected ',', got return",
    "%1: float32[3] = relu(%x, &)": "unexpected character '&'",
    "require 3 ~ 4": "unexpected character '~'",
    "require 3 + 4": "expected a relation",
    "symbol s0 = x in [2, inf]": "expected a whole number, got x",
    "%1: float32[3] = relu(%x, widget(3))": "expected an argument or a dtype, got widget",
    "%1: float32[3] = if(%x, %x) { then \"t\" { return } }": "expected 'else', got }",
    "input %y: float32[3] 5": "expected an operator, got 5",
}  # fmt: skip


@pytest.mark.parametrize("line", FAULTS)
def test_text_that_is_no_graph_is_refused_with_line_and_column(line):
    text = f'graph "g" {{\n  input %x: float32[3]\n  {line}\n  return %x\n}}\n'
    with pytest.raises(ParseError, match=re.escape(FAULTS[line])) as found:
        parse(text)
    assert re.match(r"line [34], column \d+: ", str(found.value))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected 'graph', got the end of the text"),
        ('graph "g" {', "expected an operator, got the end of the text"),
        ('graph "g" { return } more', "expected the end of the text, got more"),
        ('graph "g" { input %x: float32[n] return %x }', "no line declares the symbol n"),
    ],
)
def test_text_that_stops_early_or_goes_on_is_refused(text, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        parse(text)


def test_parse_takes_text():
    with pytest.raises(TypeError, match="expected the text of a graph, got int"):
        parse(3)


@pytest.mark.parametrize("cut", range(0, len(TEXT), 7))
def test_a_text_that_is_cut_is_refused_as_such(cut):
    with pytest.raises(ParseError):
        parse(TEXT[:cut])
