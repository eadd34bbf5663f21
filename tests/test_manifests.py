"""Manifests: core's TOML parser beside Python's, and the order of the layers that manifests declare."""

import math
import tomllib

import pytest
import rabbet
from hypothesis import given
from hypothesis import strategies as st
from plugin_wheels import run

HEAD = 'name = "odd"\nkind = "ops"\nprovides = []\n'
RIGHT = {
    "strings": r'''a = "tab\t quote\" \\ é \u00e9 \U0001F600 \b\n\f\r"''' + "\nb = 'C:\\raw'\nc = \"\"\nd = ''\n",
    "strings of several lines": 'a = """\nfirst\n  second \\\n   joined ""quoted"" """\nb = \'\'\'\nraw \\n\'\'\'\nc = """a"""""\n',
    "whole numbers": "a = 0\nb = -17\nc = +1_000\nd = 0xDEAD_beef\ne = 0o17\nf = 0b1_01\ng = 9223372036854775807\nh = -0\n",
    "floats": "a = 1.5\nb = -0.0\nc = 1e6\nd = 6.02_2e+2_3\ne = inf\nf = -inf\ng = +1E-3\nh = 3.0e-2\n",
    "truth": "a = true\nb = false\n",
    "arrays": "a = []\nb = [1, 2,]\nc = [ # comment\n  [1.5, 'x'], # more\n\n  {k = 1}\n]\nd = [[[[]]]]\n",
    "tables": "[a]\nx = 1\n[a.b]\ny = 2\n[c.d.e]\nz = 3\n[c]\nw = 4\n[f]\n",
    "keys": "a.b.c = 1\na.b.d = 2\n\"quoted key\" = 3\n'x'.\"y\" . z = 4\n1234 = 5\n-_ = 6\n\"\" = 7\n",
    "tables in a line": "a = {}\nb = { x = 1, y.z = 'w', \"q r\" = [1] }\nc = {d = {e = {}}}\n",
    "arrays of tables": "[[a]]\nx = 1\n[a.b]\ny = 1\n[[a]]\n[[a.c]]\n[[a.c]]\nz = 2\n[[d.e]]\n",
    "comments and ends of lines": "# first\r\na = 1 # behind\r\n\r\n   \t\n[t] # table\nb = 2",
    "nothing": "",
}  # fmt: skip
WRONG = (
    "a", "a =", "= 1", "a = 1 b = 2", "a = 1\na = 2", "[a]\n[a]", "a = 1\n[a]", "a.b = 1\n[a]", "[a]\nx = 1\n[a.x]",
    "a = {x = 1}\na.y = 2", "a = {x = 1}\n[a.b]", "a = {x = 1,}", "a = {x = 1\n}", "a = [1\nb = 2", "a = [1 2]", "a = 01",
    "a = 1__0", "a = _1", "a = 1_", "a = 0x", "a = +0x1", "a = 0b2", "a = 1.", "a = .5", "a = 1.e3", "a = 1e", "a = 1._5",
    "a = 00.5", "a = nope", "a = True", 'a = "open', "a = 'open", 'a = """open', 'a = "\\q"', 'a = "\\u12"',
    'a = "\\uD800"', 'a = "\\U00110000"', "a = 'x\ny'", 'a = "x\ny"', "a b = 1", "[a", "[]", "[a]]", "[[a]", "[a] b = 1",
    '"""k""" = 1', "a = \x01", "a = '\x7f'", "a = 1\rb = 2", "[[a]]\n[a]", "a = []\n[[a]]", "a..b = 1", ".a = 1",
    "a.b = 1\na.b.c = 2", "a = 1\na.b = 2", "[a.b]\n[a]\nb = 1", "[a.b.c]\n[a]\nb.c.d = 1", "\ufeffa = 1",
)  # fmt: skip


def parse(folder, text):
    """What core reads of a manifest with this text behind the keys that it needs."""
    path = folder / "rabbet_plugin.toml"
    path.write_bytes((HEAD + text).encode() if isinstance(text, str) else HEAD.encode() + text)
    return rabbet._C.read_manifest(str(path))


@pytest.mark.parametrize("kind", RIGHT)
def test_core_reads_toml_as_python_does(kind, tmp_path):
    text = RIGHT[kind]
    expected = tomllib.loads(HEAD + text.replace("\r\n", "\n"))
    got = parse(tmp_path, text)
    assert repr(got) == repr(expected)  # also the types, the order, and the sign of zero


@pytest.mark.parametrize("text", WRONG)
def test_both_refuse_what_is_no_toml(text, tmp_path):
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(HEAD + text)
    with pytest.raises(rabbet.PluginError, match=r"rabbet_plugin.toml is no TOML file: line \d+: "):
        parse(tmp_path, text)


@pytest.mark.parametrize("text", ["a = 1979-05-27", "a = 07:32:00", "a = 1979-05-27T07:32:00Z"])
def test_dates_are_refused_by_name(text, tmp_path):
    tomllib.loads(HEAD + text)
    with pytest.raises(rabbet.PluginError, match=r"line 4: .*: dates and times are not supported"):
        parse(tmp_path, text)


def test_a_nan_is_read(tmp_path):
    assert math.isnan(parse(tmp_path, "a = nan")["a"])


@pytest.mark.parametrize(
    "text", [b"a = '\xff'", b"a = '\xc0\x80'", b"a = '\xed\xa0\x80'", b"\xf5 = 1"]
)
def test_bytes_that_are_not_utf8_are_refused(text, tmp_path):
    with pytest.raises(rabbet.PluginError, match="line 4: this is not UTF-8"):
        parse(tmp_path, text)


def test_the_line_of_a_mistake_is_named(tmp_path):
    with pytest.raises(rabbet.PluginError, match="line 6: expected a value"):
        parse(tmp_path, "a = 1\n\nb = \n")
    with pytest.raises(rabbet.PluginError, match="line 5: 'a' is there already"):
        parse(tmp_path, "a = 1\na = 2\n")


def test_arrays_that_are_too_deep_are_refused(tmp_path):
    assert parse(tmp_path, "a = " + "[" * 60 + "]" * 60)
    with pytest.raises(rabbet.PluginError, match="arrays inside each other, too deep"):
        parse(tmp_path, "a = " + "[" * 100_000 + "]" * 100_000)


@given(text=st.text(st.sampled_from('a=1.[]{}",\'\n\\ #_-e0xu"'), max_size=24))
def test_core_and_python_agree_on_any_text(text, tmp_path_factory):
    """But for whole numbers beyond 64 bits, and dates, which these characters do not make."""
    folder = tmp_path_factory.getbasetemp()
    try:
        expected = tomllib.loads(HEAD + text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(rabbet.PluginError):
            parse(folder, text)
    else:
        if not any(type(v) is int and abs(v) >= 1 << 63 for v in expected.values()):
            assert repr(parse(folder, text)) == repr(expected)


def test_a_manifest_that_is_not_there(tmp_path):
    with pytest.raises(rabbet.PluginError, match="cannot be read: No such file"):
        rabbet._C.read_manifest(str(tmp_path / "gone.toml"))


# ---- the order of layers

ORDER = "import rabbet\nprint(rabbet._C.reserve_layers({!r}))"


@pytest.mark.parametrize(
    "declared,expected",
    [
        ([("a", 1, ["b"], []), ("b", 1, ["a"], [])], [("a", 1), ("b", 1)]),
        ([("vmap", 450, [], []), ("z", 0, [], ["ghost"])], [("z", 0)]),
        ([("b", 2, [], []), ("a", 2, [], []), ("c", 1, [], [])], [("c", 1), ("a", 2), ("b", 2)]),
        ([("a", 2, [], ["b"]), ("b", 2, [], []), ("c", 2, ["b"], [])], [("c", 2), ("b", 2), ("a", 2)]),
        ([("a", 9, [], []), ("b", 2, [], []), ("a", 1, [], [])], [("a", 1), ("b", 2)]),
        ([("a", 1, [], ["a"])], [("a", 1)]),
        ([], []),
    ],
)  # fmt: skip
def test_the_order_of_declared_layers(declared, expected, tmp_path):
    assert run(tmp_path, ORDER.format(declared)) == f"{expected}\n"
