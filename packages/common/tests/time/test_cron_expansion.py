"""The matches of an expression in naive local time: known answers, a naive walk, and two second opinions."""

import calendar
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.common.time.cron import CronExpression, parse

SETTINGS = settings(max_examples=250, deadline=None, print_blob=True)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time
DAY = 86_400


def seconds(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(seconds=1)


def following(text: str, after: str, count: int) -> list[str]:
    """The next matches as ISO texts, midnight left out."""
    expression, at, found = parse(text), seconds(after), []
    for _ in range(count):
        match = expression.at_or_after(at + 1)
        assert match is not None
        assert match > at
        at = match
        found.append((EPOCH + timedelta(seconds=at)).isoformat().removesuffix(":00").removesuffix("T00:00"))
    return found


CASES = [
    ("b1a", "0 11 1-7 * FRI", "2024-10-07T12:00", ["2024-10-11T11:00", "2024-10-18T11:00"]),
    ("b1b", "0 0 13 * 5", "2026-01-01T00:00", ["2026-01-02", "2026-01-09", "2026-01-13"]),
    ("b1c", "48 14 31 jun sun", "2026-01-01T00:00", ["2026-06-07T14:48"]),
    ("b1c", "0 0 31 2 1", "2026-01-01T00:00", ["2026-02-02"]),
    ("b1", "0 0 */2 * 1", "2026-01-01T00:00", ["2026-01-05", "2026-01-19", "2026-02-09"]),
    (
        "b4",
        "0 0 L * *",
        "2015-09-30T00:00",
        ["2015-10-31", "2015-11-30", "2015-12-31", "2016-01-31", "2016-02-29", "2016-03-31"],
    ),
    (
        "b4",
        "0 0 */10 * *",
        "2021-02-20T00:00",
        ["2021-02-21", "2021-03-01", "2021-03-11", "2021-03-21", "2021-03-31"],
    ),
    ("b4", "0 0 31 * *", "2026-01-31T00:00", ["2026-03-31", "2026-05-31"]),
    (
        "b6",
        "0 22-2 * * *",
        "2026-01-01T00:00",
        ["2026-01-01T01:00", "2026-01-01T02:00", "2026-01-01T22:00", "2026-01-01T23:00", "2026-01-02"],
    ),
    (
        "b6",
        "0 8 * * sat-sun",
        "2026-01-01T00:00",
        ["2026-01-03T08:00", "2026-01-04T08:00", "2026-01-10T08:00"],
    ),
    (
        "b6",
        "0 8 * * fri-mon",
        "2026-01-01T00:00",
        ["2026-01-02T08:00", "2026-01-03T08:00", "2026-01-04T08:00", "2026-01-05T08:00", "2026-01-09T08:00"],
    ),
    (
        "b6",
        "0 22-2/2 * * *",
        "2026-01-01T00:00",
        ["2026-01-01T02:00", "2026-01-01T22:00", "2026-01-02"],
    ),
    ("b6", "0 0 30-2 * *", "2026-02-01T00:00", ["2026-02-02", "2026-03-01", "2026-03-02", "2026-03-30"]),
    ("b6", "0 0 1 nov-feb *", "2026-01-01T00:00", ["2026-02-01", "2026-11-01", "2026-12-01", "2027-01-01"]),
    ("b7", "0 0 * * 7", "2026-01-01T00:00", ["2026-01-04", "2026-01-11"]),
    ("b7", "0 0 * * 5-7", "2026-01-01T00:00", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-09"]),
    ("b7", "0 0 * * 0-7", "2026-01-01T00:00", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05"]),
    ("b7", "0 0 * * 1-7/2", "2026-01-01T00:00", ["2026-01-02", "2026-01-04", "2026-01-05", "2026-01-07"]),
    ("b7", "0 0 * * 7-1", "2026-01-01T00:00", ["2026-01-04", "2026-01-05", "2026-01-11"]),
    ("b10", "0 0 12 * * *", "2026-01-11T00:00", ["2026-01-11T12:00", "2026-01-12T12:00"]),
    ("b10", "*/10 * * * * *", "2026-01-11T00:00", ["2026-01-11T00:00:10", "2026-01-11T00:00:20"]),
    ("b12", "0 0 12 9 * ", "2023-10-10T00:00", ["2024-09-12"]),
    ("special", "0 0 LW * *", "2026-01-01T00:00", ["2026-01-30", "2026-02-27", "2026-03-31"]),
    ("special", "0 0 15W * *", "2026-01-16T00:00", ["2026-02-16", "2026-03-16", "2026-04-15"]),
    ("special", "0 0 1W * *", "2026-07-02T00:00", ["2026-08-03", "2026-09-01"]),
    ("special", "0 0 31W * *", "2026-04-01T00:00", ["2026-05-29", "2026-07-31"]),
    ("special", "0 0 L-3 * *", "2026-01-01T00:00", ["2026-01-28", "2026-02-25"]),
    ("special", "0 0 * * 5L", "2026-01-01T00:00", ["2026-01-30", "2026-02-27"]),
    ("special", "0 0 * * frl", "2026-01-01T00:00", None),
    ("special", "0 0 * * friL", "2026-01-01T00:00", ["2026-01-30"]),
    ("special", "0 0 * * 7L", "2026-01-01T00:00", ["2026-01-25"]),
    ("special", "0 0 * * 1#5", "2026-01-01T00:00", ["2026-03-30", "2026-06-29"]),
    ("leap", "0 0 29 2 *", "2096-03-01T00:00", ["2104-02-29"]),
    ("leap", "0 0 29 2 */7", "2088-03-01T00:00", ["2128-02-29"]),
]


@pytest.mark.parametrize(("case", "text", "after", "expected"), CASES, ids=[f"{c[0]} {c[1]}" for c in CASES])
def test_known_answers(case: str, text: str, after: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            parse(text)
    else:
        assert following(text, after, len(expected)) == expected


def test_b7_sunday_named_twice_is_one_slot() -> None:
    expression = parse("0 0 * * 0-7")
    assert expression.count(seconds("2026-01-04T00:00"), seconds("2026-01-05T00:00")) == 1


def test_b12_an_answer_does_not_depend_on_the_parse() -> None:
    texts = ["0 9 * * *", "0 0 LW * *", "@daily"]
    for text in texts:
        answers = {parse.__wrapped__(text).at_or_after(seconds("2026-01-01T00:00")) for _ in range(5)}
        assert len(answers) == 1


# A naive matcher, written apart from the product: each item is text and a predicate on one date.

Item = tuple[str, Callable[[date], bool]]


def month_length(on: date) -> int:
    return calendar.monthrange(on.year, on.month)[1]


def is_nearest_working(on: date, day: int) -> bool:
    if day > month_length(on):
        return False
    working = [d for d in range(1, month_length(on) + 1) if calendar.weekday(on.year, on.month, d) not in (5, 6)]
    return on.day == min(working, key=lambda d: abs(d - day))


def number_item(low: int, high: int, value: Callable[[date], int]) -> st.SearchStrategy[Item]:
    number = st.integers(low, high)

    def ranged(first: int, last: int, step: int) -> Item:
        cycle = [*range(low, high + 1)]
        turned = cycle[first - low :] + cycle[: first - low]
        chosen = turned[: turned.index(last) + 1][::step]
        return f"{first}-{last}/{step}", lambda on: value(on) in chosen

    def stepped(step: int) -> Item:
        return f"*/{step}", lambda on: (value(on) - low) % step == 0

    return st.one_of(
        st.just(("*", lambda on: True)),
        number.map(lambda n: (str(n), lambda on: value(on) == n)),
        st.builds(ranged, number, number, st.integers(1, high - low + 1)),
        st.integers(1, high - low + 1).map(stepped),
    )


def weekday(on: date) -> int:
    return on.isoweekday() % 7


DOM: st.SearchStrategy[Item] = st.one_of(
    number_item(1, 31, lambda on: on.day),
    st.just(("L", lambda on: on.day == month_length(on))),
    st.integers(1, 30).map(lambda n: (f"L-{n}", lambda on: on.day == month_length(on) - n)),
    st.integers(1, 31).map(lambda n: (f"{n}W", lambda on: is_nearest_working(on, n))),
    st.just(
        (
            "LW",
            lambda on: (
                on.day == max(d for d in range(1, month_length(on) + 1) if calendar.weekday(on.year, on.month, d) < 5)
            ),
        )
    ),
)
DOW: st.SearchStrategy[Item] = st.one_of(
    number_item(0, 6, weekday),
    st.integers(0, 7).map(lambda d: (f"{d}L", lambda on: weekday(on) == d % 7 and on.day + 7 > month_length(on))),
    st.tuples(st.integers(0, 7), st.integers(1, 5)).map(
        lambda pair: (
            f"{pair[0]}#{pair[1]}",
            lambda on: weekday(on) == pair[0] % 7 and (on.day + 6) // 7 == pair[1],
        )
    ),
)
MONTH = number_item(1, 12, lambda on: on.month)


def any_of(items: list[Item]) -> Item:
    return ",".join(text for text, _ in items), lambda on: any(holds(on) for _, holds in items)


@st.composite
def day_texts(draw: st.DrawFn) -> Item:
    """The last three fields of a text, and whether a date matches them."""
    (dom, dom_holds), (month, month_holds), (dow, dow_holds) = (
        any_of(draw(st.lists(kind, min_size=1, max_size=2))) for kind in (DOM, MONTH, DOW)
    )
    both = dom.startswith("*") or dow.startswith("*")

    def holds(on: date) -> bool:
        days = (dom_holds(on), dow_holds(on))
        return month_holds(on) and (all(days) if both else any(days))

    return f"{dom} {month} {dow}", holds


@SETTINGS
@given(day_texts(), st.dates(date(1975, 1, 1), date(2190, 1, 1)))
def test_days_agree_with_a_naive_walk(days: Item, begin: date) -> None:
    text, holds = days
    dates = [begin + timedelta(days=n) for n in range(400)]
    matching = [on for on in dates if holds(on)]
    if not any(holds(date(2000, 1, 1) + timedelta(days=n)) for n in range(28 * 366)):
        with pytest.raises(ValueError, match="must name a day that some month has"):
            parse(f"0 0 {text}")
        return
    expression = parse(f"0 0 {text}")
    assert [on for on in dates if on.day in expression.days_of(on.year, on.month)] == matching
    midnights = [(on - EPOCH.date()).days * DAY for on in matching]
    assert_walks(expression, midnights, (dates[0] - EPOCH.date()).days * DAY, (dates[-1] - EPOCH.date()).days * DAY)


@SETTINGS
@given(
    st.lists(st.integers(0, 59), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(0, 59), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True),
    st.integers(0, 2 * DAY - 1),
    st.integers(0, 2 * DAY - 1),
)
def test_times_of_day_agree_with_a_naive_walk(
    second: list[int], minute: list[int], hour: list[int], one: int, other: int
) -> None:
    text = " ".join(",".join(map(str, values)) for values in (second, minute, hour))
    times = sorted(h * 3600 + m * 60 + s for h in hour for m in minute for s in second)
    matching = [day * DAY + at for day in range(4) for at in times]
    assert_walks(parse(f"{text} * * *"), matching, min(one, other), max(one, other))


def assert_walks(expression: CronExpression, matching: list[int], first: int, last: int) -> None:
    """Forward, backward and counted, the matches in [first, last] are those of `matching`."""
    inside = [at for at in matching if first <= at <= last]
    assert expression.count(first, last + 1) == len(inside)
    at, forward = first, []
    while (found := expression.at_or_after(at)) is not None and found <= last:
        forward.append(found)
        at = found + 1
    assert forward == inside
    at, backward = last, []
    while (found := expression.at_or_before(at)) is not None and found >= first:
        backward.append(found)
        at = found - 1
    assert backward == inside[::-1]


def test_the_walk_check_catches_a_broken_twin() -> None:
    class LosesTheEnd(CronExpression):
        def at_or_before(self, local: int) -> int | None:
            return super().at_or_before(local - 1)

    good = parse("0 0 * * *")
    broken = LosesTheEnd(**{name: getattr(good, name) for name in CronExpression.__slots__})
    midnights = [day * DAY for day in range(10)]
    assert_walks(good, midnights, 0, 5 * DAY)
    with pytest.raises(AssertionError):
        assert_walks(broken, midnights, 0, 5 * DAY)


def common_texts(weekdays: list[str]) -> st.SearchStrategy[str]:
    """Texts that all three libraries read alike."""
    fields = [
        ["*", "*/7", "0", "5,20", "10-40/10"],
        ["*", "*/5", "0", "9", "8-18/3", "0,23"],
        ["*", "1", "31", "15,L", "1-7"],
        ["*", "2", "*/3", "feb,nov", "1-6"],
        weekdays,
    ]
    return st.tuples(*map(st.sampled_from, fields)).map(" ".join)


AFTER = st.datetimes(datetime(1980, 1, 1), datetime(2090, 1, 1)).map(  # noqa: DTZ001
    lambda after: after.replace(microsecond=0)
)


def assert_agrees(text: str, after: datetime, opinion: Callable[[], datetime]) -> None:
    try:
        expression = parse(text)
    except ValueError:
        return
    at = (after - EPOCH) // timedelta(seconds=1)
    for _ in range(4):
        found = expression.at_or_after(at + 1)
        assert found is not None
        at = found
        assert EPOCH + timedelta(seconds=at) == opinion().replace(tzinfo=None)


@SETTINGS
@given(common_texts(["*", "*/2", "1", "mon-fri", "0", "7", "5#3", "sat"]), AFTER)
def test_cronsim_agrees_in_utc(text: str, after: datetime) -> None:
    try:
        cronsim = CronSim(text, after.replace(tzinfo=UTC))
    except CronSimError:
        with pytest.raises(ValueError):
            parse(text)
        return
    assert_agrees(text, after, lambda: next(cronsim))


@SETTINGS
@given(common_texts(["*", "1", "mon-fri", "0", "7", "sat"]), AFTER)  # croniter joins `#` and a day by AND
def test_croniter_agrees_in_naive_time(text: str, after: datetime) -> None:
    opinion = croniter(text, after)
    assert_agrees(text, after, lambda: opinion.get_next(datetime))
