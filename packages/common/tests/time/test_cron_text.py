"""Which cron texts are accepted, what they normalise to, and that each refusal is quick and says its rule."""

import time

import pytest

from tocsin.common.time.cron import check_cron, parse

REFUSED = {
    # never fires
    "0 0 30 2 *": "must name a day that some month has",
    "0 0 31 4,6,9,11 *": "must name a day that some month has",
    "0 0 30-31 feb *": "must name a day that some month has",
    "0 0 L-30 2 *": "must name a day that some month has",
    "0 0 30W 2 *": "must name a day that some month has",
    # steps
    "*/0 * * * *": "minute: a step takes a number from 1 to 60",
    "*/00 * * * *": "minute: a step takes a number from 1 to 60",
    "*/61 * * * *": "minute: a step takes a number from 1 to 60",
    "*/999 * * * *": "minute: a step takes a number from 1 to 60",
    "* * * 1/00 *": "month: a step follows * or a range, not a single value",
    "0 0 * * 7/2": "day of week: a step follows * or a range, not a single value",
    "5/15 * * * *": "minute: a step follows * or a range, not a single value",
    "*/-2 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "*/ * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "*/5/5 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "*/9999 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    # malformed items
    "1,,2 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "1-2-3 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "1.5 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "-1 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "1_0 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "+1 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "60 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "000 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "60 0 0 * * *": "second: takes numbers 0 to 59, *, ranges, steps, lists",
    "0 24 * * *": "hour: takes numbers 0 to 23, *, ranges, steps, lists",
    "0 0 0 * *": "day of month: takes numbers 1 to 31, *, ranges, steps, lists, L, L-n, nW, LW",
    "0 0 32 * *": "day of month: takes numbers 1 to 31, *, ranges, steps, lists, L, L-n, nW, LW",
    "0 0 32W * *": "day of month: takes numbers 1 to 31, *, ranges, steps, lists, L, L-n, nW, LW",
    "0 0 L-3W * *": "day of month: takes numbers 1 to 31, *, ranges, steps, lists, L, L-n, nW, LW",
    "0 0 L-0 * *": "day of month: L- takes a number from 1 to 30",
    "0 0 L-31 * *": "day of month: L- takes a number from 1 to 30",
    "0 0 mon * *": "day of month: takes numbers 1 to 31, *, ranges, steps, lists, L, L-n, nW, LW",
    "0 0 * 0 *": "month: takes numbers 1 to 12, names JAN to DEC, *, ranges, steps, lists",
    "0 0 * 13 *": "month: takes numbers 1 to 12, names JAN to DEC, *, ranges, steps, lists",
    "0 0 * mon *": "month: takes numbers 1 to 12, names JAN to DEC, *, ranges, steps, lists",
    "0 0 * * 8": "day of week: takes numbers 0 to 7, names SUN to SAT, *, ranges, steps, lists, dL, d#n",
    "0 0 * * L": "day of week: takes numbers 0 to 7, names SUN to SAT, *, ranges, steps, lists, dL, d#n",
    "0 0 * * L5": "day of week: takes numbers 0 to 7, names SUN to SAT, *, ranges, steps, lists, dL, d#n",
    "0 0 * * 8L": "day of week: takes numbers 0 to 7, names SUN to SAT, *, ranges, steps, lists, dL, d#n",
    "0 0 * * monday": "day of week: takes numbers 0 to 7, names SUN to SAT, *, ranges, steps, lists, dL, d#n",
    "0 0 * * 5#0": "day of week: # takes a number from 1 to 5",
    "0 0 * * 5#6": "day of week: # takes a number from 1 to 5",
    "0 0 ? * *": "day of month: takes numbers 1 to 31, *, ranges, steps, lists, L, L-n, nW, LW",
    # drawn or hashed values
    "R R * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "0 R * * *": "hour: takes numbers 0 to 23, *, ranges, steps, lists",
    "H H * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "H(0-5) * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "5kevin * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    # the text as a whole
    "": "must have five fields, or six with seconds first",
    " ": "must have five fields, or six with seconds first",
    "* * * *": "must have five fields, or six with seconds first",
    "0 0 1 1 * 0 1980": "must have five fields, or six with seconds first",
    "TZ=UTC 0 0 * * *": "takes no variables; the time zone has a field of its own",
    "CRON_TZ=UTC 0 0 * * *": "takes no variables; the time zone has a field of its own",
    "0\N{NO-BREAK SPACE}0 * * *": "must be ASCII: plain digits, letters and blanks",
    "\N{ARABIC-INDIC DIGIT FIVE} * * * *": "must be ASCII: plain digits, letters and blanks",
    "\N{FULLWIDTH DIGIT FIVE} * * * *": "must be ASCII: plain digits, letters and blanks",
    "0\v0 * * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "0\0 0 * * *": "minute: takes numbers 0 to 59, *, ranges, steps, lists",
    "0," * 127 + "0": "must have five fields, or six with seconds first",
    "0," * 60 + "0 * * * *": "minute: a list has at most 60 items",
    "0 0 " + "1," * 60 + "1 * *": "day of month: a list has at most 60 items",
    "0 0 * * " + "1," * 60 + "1": "day of week: a list has at most 60 items",
    "0 " * 128 + "0": "must have at most 256 characters",
}
MACROS = "of macros only @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually are known"


@pytest.mark.parametrize(("text", "rule"), REFUSED.items())
def test_b3_b8_b12_refused_with_its_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_cron(text)
    assert str(caught.value) == rule


@pytest.mark.parametrize("text", ["@reboot", "@every 5m", "@", "@daily @daily", "@daily 0 0 * * *", "@dailyx"])
def test_b12_unknown_macros_are_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_cron(text)
    assert str(caught.value) == MACROS


@pytest.mark.parametrize(
    "text", [*REFUSED, "0," * 500_000 + "0 * * * *", "@" * 1_000_000, " " * 1_000_000, "*/" * 128, "-" * 256]
)
def test_b8_every_refusal_takes_less_than_100_ms(text: str) -> None:
    began = time.thread_time()
    with pytest.raises(ValueError):
        check_cron(text)
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize(
    "text",
    ["0 0 12 9 *", "0 0 12 9 * ", "0\t0 12  9 *", "0 0 12 9 *\n", "\r\n 0 0 12 \t 9 * ", "0 0 12 SEP *"],
)
def test_b12_blank_variants_mean_the_same(text: str) -> None:
    plain, variant = parse("0 0 12 9 *"), parse(text)
    assert variant.text.replace("SEP", "9") == plain.text
    assert variant.at_or_after(0) == plain.at_or_after(0)


@pytest.mark.parametrize(
    ("text", "normalised", "fields"),
    [
        ("@hourly", "@hourly", "0 * * * *"),
        ("@DAILY", "@daily", "0 0 * * *"),
        (" @Midnight\n", "@midnight", "0 0 * * *"),
        ("@weekly", "@weekly", "0 0 * * 0"),
        ("@monthly", "@monthly", "0 0 1 * *"),
        ("@yearly", "@yearly", "0 0 1 1 *"),
        ("@annually", "@annually", "0 0 1 1 *"),
    ],
)
def test_b12_macros(text: str, normalised: str, fields: str) -> None:
    macro, plain = parse(text), parse(fields)
    assert (macro.text, macro.has_seconds) == (normalised, False)
    assert macro.fixed_time == plain.fixed_time
    assert [macro.at_or_after(at) for at in range(0, 10**8, 10**7)] == [
        plain.at_or_after(at) for at in range(0, 10**8, 10**7)
    ]


def test_the_normalised_text_is_stable() -> None:
    text = check_cron("0  8\t* jan,feb mon-fri,1l,2#3 ")
    assert text == "0 8 * JAN,FEB MON-FRI,1L,2#3"
    assert check_cron(text) == text


@pytest.mark.parametrize(
    ("text", "fixed_time"),
    [
        ("0 9 * * *", True),
        ("0,30 1-3 * * *", True),
        ("0-59 0-23 * * *", True),
        ("*/10 0 12 * * *", True),
        ("* 0 12 * * *", True),
        ("0 5,*/6 * * *", True),
        ("*/5 2 * * *", False),
        ("30 */1 * * *", False),
        ("*/15,7 2 * * *", False),
        ("0 0 * * * *", False),
    ],
)
def test_fixed_time_is_decided_by_how_minute_and_hour_begin(text: str, fixed_time: bool) -> None:
    assert parse(text).fixed_time is fixed_time


def test_b10_six_fields_are_said_to_be_six() -> None:
    assert parse("0 0 12 * * *").has_seconds
    assert not parse("0 12 * * *").has_seconds


def test_the_longest_useful_list_is_accepted() -> None:
    text = ",".join(map(str, range(60))) + " * * * *"
    assert parse(text).minutes == tuple(range(60))
