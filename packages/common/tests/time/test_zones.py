"""Names, the one source of zone data, and segments against the transitions that the zone files list."""

import struct
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest
import tzdata  # type: ignore[import-untyped]

from tocsin.common.time import zones
from tocsin.common.time.zones import DAY, check_zone, segment_at, zone, zone_data_version, zone_names

BAD_NAMES = [
    "",
    "europe/berlin",
    "EUROPE/BERLIN",
    "utc",
    "Europe/Atlantis",
    "Europe",
    "Europe/",
    "../zoneinfo/UTC",
    "Europe/../UTC",
    "./UTC",
    "/etc/localtime",
    "/usr/share/zoneinfo/UTC",
    "zone.tab",
    "tzdata.zi",
    "__init__.py",
    "posixrules",
    "localtime",
    "UTC ",
    "UTC\n",
    "UTC\0",
    "+02:00",
    "EST5EDT,M3.2.0,M11.1.0",
    "A" * 1_000_000,
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_unknown_names_and_paths_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be an IANA time zone name"):
        check_zone(name)
    with pytest.raises(ValueError, match="must be an IANA time zone name"):
        zone(name)


def test_b18_every_name_of_the_release_loads_and_has_segments() -> None:
    assert {"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "US/Eastern"} <= zone_names()
    for name in zone_names():
        assert check_zone(name) == name
        assert zone(name).key == name
        assert segment_at(name, 1_800_000_000).start <= 1_800_000_000


def test_b21_zone_data_comes_from_the_package_and_not_from_the_system(tmp_path: Path) -> None:
    """A system that claims that New York keeps Tokyo's time changes nothing."""
    fake = tmp_path / "America" / "New_York"
    fake.parent.mkdir()
    fake.write_bytes((resources.files("tzdata") / "zoneinfo" / "Asia" / "Tokyo").read_bytes())
    at = datetime(2026, 7, 1, tzinfo=UTC)
    zone.cache_clear()
    zoneinfo.ZoneInfo.clear_cache()
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    try:
        assert at.astimezone(zoneinfo.ZoneInfo("America/New_York")).utcoffset() == timedelta(hours=9)
        assert at.astimezone(zone("America/New_York")).utcoffset() == timedelta(hours=-4)
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_b21_the_release_is_named() -> None:
    assert zone_data_version() == tzdata.IANA_VERSION
    assert zone_data_version() >= "2025b"


def test_segments_of_new_york() -> None:
    spring, autumn = (int(datetime(2025, *at, tzinfo=UTC).timestamp()) for at in ((3, 9, 7), (11, 2, 6)))
    summer = segment_at("America/New_York", spring)
    assert (summer.start, summer.end, summer.offset) == (spring, autumn, -4 * 3600)
    assert summer.gap_from == summer.local_start - 3600
    assert summer.new_from == summer.local_start
    assert summer.again_from == summer.local_end - 3600
    winter = segment_at("America/New_York", autumn)
    assert (winter.start, winter.offset) == (autumn, -5 * 3600)
    assert winter.gap_from == winter.local_start
    assert winter.new_from == winter.local_start + 3600
    assert segment_at("America/New_York", autumn - 1) == summer


def test_a_fold_is_known_on_both_sides_of_the_new_year() -> None:
    """Kwajalein's day and Kanton's come near one; here a made-up zone puts a fold right on it."""
    new_year = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp())
    changes = [(new_year - 600, 7200, 3600)]
    before = zones._segment(new_year - DAY, new_year - 600, 7200, changes)
    between = zones._segment(new_year - 600, new_year, 3600, changes)
    after = zones._segment(new_year, new_year + DAY, 3600, changes)
    assert before.again_from == new_year - 600 + 3600
    assert between.new_from == after.new_from == new_year - 600 + 7200
    assert after.gap_from == after.local_start


def listed_transitions(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(instant, offset before, offset after) of a TZif file, RFC 9636, read from its 64-bit block."""

    def counts(at: int) -> tuple[int, ...]:
        return struct.unpack(">6L", data[at + 20 : at + 44])

    isut, isstd, leap, times, types, chars = counts(0)
    second = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, _, times, types, _ = counts(second)
    body = second + 44
    instants = struct.unpack(f">{times}q", data[body : body + 8 * times])
    kinds = data[body + 8 * times : body + 9 * times]
    table = body + 9 * times
    offsets = [struct.unpack(">l", data[table + 6 * n : table + 6 * n + 4])[0] for n in range(types)]
    before = offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before:
            yield instant, before, offsets[kind]
        before = offsets[kind]


def distinct_zones() -> list[tuple[str, bytes]]:
    """One name for each content of a zone file."""
    root = resources.files("tzdata") / "zoneinfo"
    contents = {root.joinpath(*name.split("/")).read_bytes(): name for name in sorted(zone_names())}
    return [(name, data) for data, name in contents.items()]


def test_every_listed_transition_since_1970_bounds_two_segments() -> None:
    seen = 0
    for name, data in distinct_zones():
        transitions = [entry for entry in listed_transitions(data) if entry[0] >= 0]
        for instant, before, after in transitions:
            left, right = segment_at(name, instant - 1), segment_at(name, instant)
            assert (left.end, left.offset) == (instant, before)
            assert (right.start, right.offset) == (instant, after)
            seen += 1
    assert seen > 5_000


def test_what_the_search_for_changes_rests_on() -> None:
    """No zone changes twice within six days, and no change is longer than a day."""
    for _, data in distinct_zones():
        transitions = [entry for entry in listed_transitions(data) if entry[0] >= -DAY]
        assert all(later[0] - earlier[0] > 6 * DAY for earlier, later in pairwise(transitions))
        assert all(abs(after - before) <= DAY for _, before, after in transitions)
        assert all(abs(after) < DAY for _, _, after in transitions)


def test_segments_lie_end_to_end_and_are_cut_nowhere_but_at_changes_and_new_years() -> None:
    at = 0
    while at < int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()):
        segment = segment_at("Africa/Casablanca", at)
        assert segment.start == at < segment.end
        following = segment_at("Africa/Casablanca", segment.end)
        new_year = datetime.fromtimestamp(segment.end, UTC).strftime("%m-%d %H:%M:%S") == "01-01 00:00:00"
        assert following.offset != segment.offset or new_year
        at = segment.end
