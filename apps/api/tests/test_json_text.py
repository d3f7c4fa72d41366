"""JSON is read strictly and written back exactly."""

import json

import pytest

from tocsin.api.json_text import MAX_DEPTH, MAX_DIGITS, Raw, decode, encode
from tocsin.api.problems import InvalidError, Problem


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "true",
        '"text"',
        "[]",
        "{}",
        "9007199254740993",
        "-" + "9" * 900,
        "1.10",
        "1e5",
        "0.12345678901234567890123",
        "-0.0",
        "1e-9999",
        '{"b":1,"a":[1.50,{"c":null}]}',
        '"\U0001f514 \\" \\\\ \\n"',
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        '"' + "[{" * 1000 + '"',
        '"\\\\u0000"',
        "[" + "[]," * 1000 + "1]",
    ],
)
def test_b50_what_is_read_is_written_back_as_it_was(text: str) -> None:
    assert encode(decode(text.encode())) == text


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("NaN", "(document)"),
        ('{"a":[0,-Infinity]}', "a[1]"),
        ('{"a":1e999}', "a"),
        ("1e200000", "(document)"),
        ('{"a":{"b":' + "1" * 5000 + "}}", "a.b"),
        ("1" * (MAX_DIGITS + 1), "(document)"),
        ("0." + "1" * 5000, "(document)"),
        ('{"a":1,"a":2}', "a"),
        ('{"x":[{"a":1,"b":2,"a":3}]}', "x[0].a"),
        (r'{"a":"\u0000"}', "a"),
        (r'{"a":{"\u0000":1}}', 'a."\\u0000"'),
        (r'{"a":["\ud800"]}', "a[0]"),
        (r'"\udc00\ud800"', "(document)"),
        (r'{"\ud800":1}', '"\\ud800"'),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "(document)"),
        ('{"a":' * 900 + "1" + "}" * 900, "(document)"),
        ("[" * 20_000 + "]" * 20_000, "(document)"),
    ],
)
def test_b50_what_is_refused_is_named(text: str, field: str) -> None:
    with pytest.raises(InvalidError) as raised:
        decode(text.encode())
    assert [error.field for error in raised.value.errors] == [field]


def test_every_refused_field_is_named() -> None:
    with pytest.raises(InvalidError) as raised:
        decode(rb'{"a":NaN,"b":["\u0000",1e999]}')
    assert [error.field for error in raised.value.errors] == ["a", "b[0]", "b[1]"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1,]",
        b"{'a':1}",
        b"\xef\xbb\xbf{}",
        b"\xff",
        b'"\xed\xa0\x80"',
        b'"\x00"',
        b"01",
        b"[" * 20_000,
    ],
)
def test_b50_what_is_no_json_is_refused(content: bytes) -> None:
    with pytest.raises((Problem, InvalidError)):
        decode(content)


def test_the_standard_parser_would_let_them_pass() -> None:
    """The broken twin: what the hooks are for."""
    assert json.loads('{"a":1,"a":2}') == {"a": 2}
    assert json.loads("1e999") == float("inf")
    assert json.loads(r'"\ud800\u0000"') == "\ud800\0"
    assert json.dumps(json.loads("1.10")) == "1.1"


def test_names_are_sorted_where_asked() -> None:
    value = decode(b'{"b":[{"d":1,"c":2.0}],"a":"x"}')
    assert encode(value, sort_keys=True) == '{"a":"x","b":[{"c":2.0,"d":1}]}'


def test_raw_text_goes_in_as_it_is() -> None:
    assert encode({"json": Raw("[1.00]")}) == '{"json":[1.00]}'
