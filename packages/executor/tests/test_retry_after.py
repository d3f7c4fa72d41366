"""B40: what an endpoint may ask by `Retry-After`, and what is ignored."""

from datetime import UTC, datetime, timedelta

import pytest

from tocsin.executor.retry_after import MAX_RETRY_AFTER_SECONDS, http_date, retry_after

NOW = datetime(2015, 10, 21, 7, 26, 30, tzinfo=UTC)
LATER = datetime(2016, 1, 1, tzinfo=UTC)
DAY = MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0120", 120.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 90.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 90.0),
        ("Wed Oct 21 07:28:00 2015", 90.0),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", 90.0),
        ("Wed, 21 Oct 2015 07:27:60 GMT", 89.0),
        ("86400", DAY),
        ("86401", DAY),
        ("1000000", DAY),
        ("99999999999999999999", DAY),
        ("9" * 5_000, DAY),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
    ],
)
def test_b40_usable_forms_are_taken_and_clamped(value: str, seconds: float) -> None:
    assert retry_after([value], NOW) == seconds


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["0"],
        ["-5"],
        ["+5"],
        ["1.5"],
        ["1e9"],
        ["\u0661\u0662"],
        ["120, 240"],
        ["120", "240"],
        ["soon"],
        ["Wed, 21 Oct 2015 07:28:00"],
        ["Wed, 21 Oct 2015 07:28:00 CEST"],
        ["Wed, 21 Xxx 2015 07:28:00 GMT"],
        ["Wed, 32 Oct 2015 07:28:00 GMT"],
        ["Wed, 21 Oct 2015 25:28:00 GMT"],
        ["21 Oct 2015 07:28:00 GMT"],
        ["2015-10-21T07:28:00Z"],
    ],
)
def test_b40_malformed_negative_and_several_values_are_ignored(values: list[str]) -> None:
    assert retry_after(values, NOW) is None


@pytest.mark.parametrize(
    "value",
    [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 -0000",
        "Wed Oct 21 07:28:00 2015",
        "Wednesday, 21-Oct-15 07:28:00 GMT",
    ],
)
def test_b40_a_date_that_is_past_asks_nothing(value: str) -> None:
    assert retry_after([value], LATER) is None
    assert http_date(value, LATER) == datetime(2015, 10, 21, 7, 28, tzinfo=UTC)


def test_two_digits_of_a_year_are_read_around_now() -> None:
    def year(digits: str, now: datetime) -> int:
        date = http_date(f"Sunday, 06-Nov-{digits} 08:49:37 GMT", now)
        assert date is not None
        return date.year

    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert year("94", now) == 1994
    assert year("76", now) == 2076
    assert year("77", now) == 1977
    assert year("26", now) == 2026


def test_a_day_of_one_digit_is_padded_in_the_oldest_form() -> None:
    assert http_date("Sun Nov  6 08:49:37 1994", NOW) == datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)


def test_the_wait_ends_at_the_date_asked_for() -> None:
    wait = retry_after(["Wed, 21 Oct 2015 07:28:00 GMT"], NOW)
    assert wait is not None
    assert NOW + timedelta(seconds=wait) == datetime(2015, 10, 21, 7, 28, tzinfo=UTC)
