"""What P7, P8, P9 and P9b read out of their ledgers, and what they call met."""

import math
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from rich.console import Console

from bench import killing, p8, p9, p9b
from bench.cgroup import UnavailableError
from bench.drive import Played
from bench.frame import Options, Screen
from bench.killing import Killed, aftermath
from bench.ledger import Arrival, Judgement, Recorded
from bench.load import Load, make_load
from bench.report import Report, not_run
from tocsin.common.clock import ManualClock
from tocsin.common.ids import Ids

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
AT = FIRST.timestamp() + 0.5
CLEAN = Judgement(
    expected=100, lost=0, duplicates=0, skipped=0, failed=0, strangers=0, early=0, unseen=0, delays=[0.01] * 100
)


def missed(report: Report) -> list[str]:
    return [target.name for target in report.targets if not target.met]


def the_load() -> Load:
    ids = Ids(ManualClock(FIRST), random.Random(1))
    return make_load("load 1", ids, [UUID(int=1)], 20, FIRST, 1, "http://127.0.0.1:1/")


def played(again: Sequence[tuple[int, float]] = (), missing: int = -1) -> tuple[Played, list[UUID]]:
    """All of the load called when due by the runs that are given back too, in that order; besides, calls `again` of the
    n-th run so long after the kill, each recorded. The run `missing` was not called."""
    load = the_load()
    slots = sorted(load.expected().items(), key=lambda item: item[1])
    runs = [UUID(int=1000 + number) for number in range(len(slots))]
    arrivals = [
        Arrival(due, run, *slot) for n, (run, (slot, due)) in enumerate(zip(runs, slots, strict=True)) if n != missing
    ]
    arrivals += [Arrival(AT + after, runs[number], *slots[number][0]) for number, after in again]
    sent = [Recorded(arrival.run_id, arrival.task_id, arrival.slot, None, None, True) for arrival in arrivals]
    ended = [Recorded(run, *slot, None, "succeeded", False) for run, (slot, _) in zip(runs, slots, strict=True)]
    return Played(load, arrivals, [*sent, *ended], 0.0, {}, 0, 0, 1.0), runs


def judged(found: Played, held: Sequence[UUID], before: Judgement = CLEAN) -> Report:
    return killing.report("p7", before, found, Killed(AT, frozenset(held)), {}, {})


def called_by_the_kill(found: Played) -> int:
    return sum(1 for arrival in found.arrivals if arrival.at <= AT + killing.OWN_SECONDS)


def test_runs_in_flight_may_be_called_again_in_time() -> None:
    found, runs = played(again=[(0, 3.0), (1, 14.0)])
    report = judged(found, runs[:2])
    assert report.met
    assert report.duplicates == 2
    assert (report.figures["in_flight_at_the_kill"], report.figures["called_again"]) == (2, 2)


def test_a_repeated_call_of_a_run_that_was_not_in_flight_is_found() -> None:
    found, runs = played(again=[(0, 3.0)])
    assert "called again though not in flight" in missed(judged(found, runs[1:3]))


def test_more_repeats_than_calls_in_flight_are_found() -> None:
    found, runs = played(again=[(0, 3.0), (0, 4.0)])
    assert missed(judged(found, runs[:1])) == ["called again, of those in flight"]


def test_a_run_that_was_held_and_not_yet_called_is_not_in_flight() -> None:
    found, runs = played()
    report = judged(found, runs)
    assert report.figures["held_at_the_kill"] == 20
    assert report.figures["in_flight_at_the_kill"] == called_by_the_kill(found) < 20


def test_a_late_call_and_a_lost_one_are_found() -> None:
    late, runs = played(again=[(0, 15.5)])
    assert missed(judged(late, runs[:1])) == ["all called, after the kill"]
    lost, runs = played(again=[(0, 3.0)], missing=19)
    assert missed(judged(lost, runs[:1])) == ["lost"]


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("lost", ["lost"]),
        ("duplicates", ["calls without a recorded attempt", "called again though not in flight"]),
        ("retried", ["called again though not in flight"]),
    ],
)
def test_what_was_lost_or_doubled_in_the_burst_before_the_kill_counts(fault: str, what: list[str]) -> None:
    found, runs = played(again=[(0, 3.0)])
    assert judged(found, runs[:1]).met
    report = judged(found, runs[:1], replace(CLEAN, **{fault: 2}))  # type: ignore[arg-type]
    assert missed(report) == what
    assert (report.lost, report.duplicates) == ((2, 1) if fault == "lost" else (0, 3))


def test_a_burst_after_the_kill_counts_from_when_it_is_due() -> None:
    found, _ = played()
    due = found.load.expected()
    before = Killed(FIRST.timestamp() - 60.0, frozenset())
    late = [replace(arrival, at=arrival.at + 2.0) for arrival in found.arrivals]
    assert aftermath(due, late, before).refired == pytest.approx(2.0)
    assert math.isnan(aftermath(due, found.arrivals, Killed(AT + 60.0, frozenset())).refired)


def a_cut(judgement: Judgement = CLEAN, again: int = 0) -> list[p8.Cut]:
    return [p8.Cut("black hole", 30, judgement, again)]


def test_a_cut_may_delay_by_its_own_length_and_two_seconds() -> None:
    slow = replace(CLEAN, delays=[0.01, 31.9])
    assert p8.report(a_cut(slow), {}, {}).met
    assert missed(p8.report(a_cut(replace(CLEAN, delays=[0.01, 32.1])), {}, {})) == ["black hole: worst start delay"]


def test_a_cut_may_neither_lose_nor_repeat() -> None:
    assert missed(p8.report(a_cut(replace(CLEAN, lost=1)), {}, {})) == ["black hole: lost"]
    assert missed(p8.report(a_cut(again=1), {}, {})) == ["black hole: called again"]


def test_calls_of_a_run_beyond_its_first_are_counted_after_a_cut() -> None:
    found, _ = played(again=[(0, 3.0), (1, 3.0)])
    assert p8.found("reset", 30, found).again == 2


FLAT = p9.Watched(
    name="plain",
    pinned=False,
    judgement=CLEAN,
    delays=[[0.01] * 100] * 6,
    resident=[100.0] * 6,
    dead=[50.0, 40.0, 60.0, 45.0, 55.0, 50.0],
)


def test_a_flat_day_is_met_and_each_growth_is_missed() -> None:
    assert p9.report([FLAT], {}).met
    rising = [[0.01 * (n + 1)] * 100 for n in range(6)]
    assert missed(p9.report([replace(FLAT, delays=rising)], {})) == ["plain: start delay p99, rise that is no chance"]
    fat = replace(FLAT, resident=[100.0] * 5 + [105.1])
    assert missed(p9.report([fat], {})) == ["plain: executors' resident memory, the last sixth against the first"]
    dead = replace(FLAT, dead=[10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    assert missed(p9.report([dead], {})) == ["plain: dead rows, rise that is no chance"]


def test_a_small_rise_is_told_from_chance_in_thirty_windows() -> None:
    """One of a sixth in all, window by window, beside noise of a twentieth."""
    noise = [0.0005 * (-1) ** n for n in range(p9.WINDOWS)]
    even = [0.01 + each for each in noise]
    rising = [each + 0.0017 * n / p9.WINDOWS for n, each in enumerate(even)]
    whole = replace(FLAT, resident=[100.0] * p9.WINDOWS, dead=[50.0, 60.0] * (p9.WINDOWS // 2))
    assert p9.report([replace(whole, delays=[[each] * 100 for each in even])], {}).met
    report = p9.report([replace(whole, delays=[[each] * 100 for each in rising])], {})
    assert missed(report) == ["plain: start delay p99, rise that is no chance"]


def test_memory_that_settles_in_its_first_minute_is_flat_and_one_that_leaks_is_not() -> None:
    minutes = replace(FLAT, delays=[[0.01] * 100] * 30, dead=[50.0] * 30)
    assert p9.report([replace(minutes, resident=[90.0, *[100.0] * 29])], {}).met
    leaking = replace(minutes, resident=[100.0 + 0.3 * n for n in range(30)])
    assert missed(p9.report([leaking], {})) == ["plain: executors' resident memory, the last sixth against the first"]


def test_the_short_form_shows_growth_without_a_target() -> None:
    fat = replace(FLAT, resident=[100.0] * 5 + [150.0])
    short = p9.report([fat], {}, growth_is_judged=False)
    assert short.met
    assert short.figures["plain: executors' resident memory, the last sixth against the first"] == 50.0
    lossy = replace(fat, judgement=replace(CLEAN, lost=1))
    assert missed(p9.report([lossy], {}, growth_is_judged=False)) == ["plain: lost"]


def test_under_an_old_transaction_dead_rows_may_pile_up_as_runs_do() -> None:
    runs = 5 * 100  # from the first window's end to the last one's
    allowed = replace(FLAT, pinned=True, dead=[0.0, 1.0, 2.0, 3.0, 4.0, 3.0 * runs])
    assert p9.report([allowed], {}).met
    more = replace(allowed, dead=[0.0, 1.0, 2.0, 3.0, 4.0, 3.1 * runs])
    assert missed(p9.report([more], {})) == ["plain: dead rows a run, none removable"]


def test_points_fall_into_whole_windows() -> None:
    length = p9.Span(seconds=10, window=4, burst=4)
    points = [(99.9, 0.0), (100.0, 1.0), (103.9, 2.0), (104.0, 3.0), (108.0, 9.0)]
    assert p9.by_window(points, 100.0, length) == [[1.0, 2.0], [3.0]]


def test_every_window_has_a_burst() -> None:
    assert p9.span(Options()) == p9.Span(seconds=1800, window=60, burst=60)
    for options in (Options(), Options(short=True), Options(hours=0.75), Options(hours=5)):
        length = p9.span(options)
        assert length.window % length.burst == 0
        assert length.seconds // length.window >= (4 if options.short else p9.WINDOWS)


@pytest.mark.parametrize(("held", "free", "holds"), [(8.4e6, 80e6, True), (70e6, 80e6, False), (7e6, 9e6, False)])
def test_a_cap_counts_where_it_held_a_writer_that_is_faster_without(held: float, free: float, holds: bool) -> None:
    assert p9b.took_effect(p9b.BYTES_A_SECOND, held, free) is holds


async def test_a_disk_that_cannot_be_capped_is_not_run_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(device: int) -> tuple[int, int]:
        raise UnavailableError("no disk of its own")

    monkeypatch.setattr(p9b, "disk_of", nowhere)
    report = await p9b.run(Options(), Screen(Console(quiet=True)))
    assert report == not_run("p9b", "no disk of its own")
    assert report.reason_not_run is not None


def test_a_partition_is_capped_by_its_disk(tmp_path: Path) -> None:
    disk = tmp_path / "devices" / "vda"
    part = disk / "vda1"
    part.mkdir(parents=True)
    (disk / "dev").write_text("254:0\n")
    (part / "dev").write_text("254:1\n")
    (part / "partition").write_text("1\n")
    known = tmp_path / "block"
    known.mkdir()
    (known / "254:0").symlink_to(disk)
    (known / "254:1").symlink_to(part)
    assert p9b.disk_of(os.makedev(254, 1), known) == p9b.disk_of(os.makedev(254, 0), known) == (254, 0)
    with pytest.raises(UnavailableError):
        p9b.disk_of(os.makedev(0, 40), known)
