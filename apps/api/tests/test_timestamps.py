"""Timestamps: RFC 3339 and nothing else."""

from datetime import UTC, datetime

import pytest

from tocsin.api.timestamps import format_timestamp, parse_timestamp
from tocsin.common.clock import PARKED


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00"),
        ("2026-01-01t00:00:00z", "2026-01-01T00:00:00"),
        ("2026-01-01T00:00:00+23:59", "2025-12-31T00:01:00"),
        ("2026-01-01T00:00:00-23:59", "2026-01-01T23:59:00"),
        ("2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00"),
        ("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500000"),
        ("2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123456"),
        ("2024-02-29T12:00:00+01:00", "2024-02-29T11:00:00"),
    ],
)
def test_b69_accepted_forms(text: str, utc: str) -> None:
    assert parse_timestamp(text) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


REFUSED = [
    "2016-12-31T23:59:60Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-01",
    "2026-W01-1",
    "20260101T000000Z",
    "2026-01-01 00:00:00Z",
    "2026-01-01T00:00Z",
    "2026-01-01T00:00:00.Z",
    "2026-01-01T00:00:00,5Z",
    "2026-01-01T00:00:00.1234567Z",
    "2026-01-01T00:00:00.123456789Z",
    "2026-01-01T00:00:00+24:00",
    "2026-01-01T00:00:00+0100",
    "2026-01-01T00:00:00+01",
    "2026-02-29T00:00:00Z",
    "2026-13-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "\uff12026-01-01T00:00:00Z",
    "2026-01-01T00:00:00Z\n",
    " 2026-01-01T00:00:00Z",
    "",
    1_767_225_600,
    None,
    True,
]


@pytest.mark.parametrize("text", REFUSED)
def test_b69_refused_forms(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_timestamp(text)


def test_the_standard_parser_would_let_some_pass() -> None:
    """The broken twin: `fromisoformat` takes forms that RFC 3339 does not have."""
    taken = []
    for text in REFUSED:
        try:
            datetime.fromisoformat(text)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            continue
        taken.append(text)
    assert {"2026-W01-1", "20260101T000000Z", "2026-01-01T00:00:00.123456789Z"} <= set(taken)


def test_shown_in_utc() -> None:
    assert format_timestamp(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"
    assert format_timestamp(datetime(2026, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)) == "2026-01-01T00:00:00.005000Z"
    assert format_timestamp(PARKED) is None
    assert format_timestamp(None) is None
