"""The verdicts on days of the town and on slow endpoints are met by what is right, and missed by what is not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bench import p3, p4, p5, p6
from bench.day import Lived, Window, window_of
from bench.frame import Options
from bench.ledger import Arrival, Judgement, SlotKey
from bench.report import Report
from bench.town import TownTask, make_town
from tocsin.common.models import Priority

MEETING = datetime(2026, 3, 1, 9, 13, tzinfo=UTC)
FIVE_MINUTES = timedelta(minutes=5)
WINDOW = Window(MEETING - timedelta(minutes=1), MEETING, MEETING + FIVE_MINUTES)
DUE = 0.02

Delay = Callable[[TownTask, datetime], float]


def soon(task: TownTask, slot: datetime) -> float:
    return DUE


def judged(delay_of: dict[SlotKey, float]) -> Judgement:
    return Judgement(
        expected=len(delay_of),
        lost=0,
        duplicates=0,
        skipped=0,
        failed=0,
        strangers=0,
        early=0,
        unseen=0,
        delays=sorted(delay_of.values()),
        delay_of=delay_of,
    )


def lived(peak: bool, delay: Delay = soon) -> Lived:
    town = make_town(1, 0.02, WINDOW.first, WINDOW.meeting, peak=peak)
    tasks = {task.id: task for task in town.tasks}
    slots = town.expected(WINDOW.first, WINDOW.last)
    return Lived(town, WINDOW, judged({(task, slot): delay(tasks[task], slot) for task, slot in slots}))


def with_fault(day: Lived, **fault: int) -> Lived:
    return replace(day, judgement=replace(day.judgement, **fault))  # type: ignore[arg-type]


def missed(report: Report) -> list[str]:
    return [target.name for target in report.targets if not target.met]


def p3_report(day: Lived) -> Report:
    return p3.report("p3", Options(), day, {}, {})


def p4_report(day: Lived) -> Report:
    return p4.report(Options(), day, {}, {})


def at_meeting(priority: Priority | None, seconds: float) -> Delay:
    def delay(task: TownTask, slot: datetime) -> float:
        return seconds if slot == MEETING and priority in (None, task.plan.priority) else DUE

    return delay


def last_of_the_peak(task: TownTask, slot: datetime) -> float:
    """One low run is late, which no percentile shows."""
    return 4.1 if slot == MEETING and task == LATE else DUE


LATE = next(
    task
    for task in make_town(1, 0.02, WINDOW.first, WINDOW.meeting, peak=True).tasks
    if task.plan.priority is Priority.LOW and task.rhythm == "daily"
)


def test_a_peak_in_time_is_met() -> None:
    report = p4_report(lived(peak=True))
    assert report.met
    assert report.figures["peak_count"] == 600
    assert report.json()


@pytest.mark.parametrize(
    ("delay", "what"),
    [
        (at_meeting(Priority.CRITICAL, 0.41), ["start delay p99, critical"]),
        (at_meeting(Priority.HIGH, 1.1), ["start delay p99, high"]),
        (at_meeting(Priority.LOW, 3.9), []),
        (last_of_the_peak, ["all of the peak started within"]),
    ],
)
def test_a_late_peak_is_missed_by_what_was_late(delay: Delay, what: list[str]) -> None:
    assert missed(p4_report(lived(peak=True, delay=delay))) == what


@pytest.mark.parametrize("report", [p3_report, p4_report])
@pytest.mark.parametrize("fault", ["lost", "duplicates", "skipped", "failed", "strangers", "early", "unseen"])
def test_no_fault_is_overlooked(report: Callable[[Lived], Report], fault: str) -> None:
    day = lived(peak=report is p4_report)
    assert report(day).met
    assert len(missed(report(with_fault(day, **{fault: 1})))) == 1


def test_a_peak_of_which_nothing_started_is_missed() -> None:
    day = lived(peak=True)
    nothing = replace(day, judgement=replace(day.judgement, delays=[], delay_of={}))
    assert len(missed(p4_report(nothing))) == 3


def test_ordinary_seconds_and_marks_are_judged_apart() -> None:
    def only_marks(slow: float) -> Delay:
        return lambda task, slot: slow if (slot - MEETING) % timedelta(minutes=1) == timedelta() else DUE

    assert p3_report(lived(peak=False, delay=only_marks(0.79))).met
    assert missed(p3_report(lived(peak=False, delay=only_marks(0.81)))) == [
        "start delay p99, the worst five-minute mark"
    ]

    def only_ordinary(task: TownTask, slot: datetime) -> float:
        return DUE if (slot - MEETING) % timedelta(minutes=1) == timedelta() else 0.041

    assert missed(p3_report(lived(peak=False, delay=only_ordinary))) == ["start delay p99, ordinary seconds"]


def test_the_worst_of_the_five_minute_marks_counts() -> None:
    second = MEETING + FIVE_MINUTES
    day = lived(peak=False, delay=lambda task, slot: 0.9 if slot == second else DUE)
    assert missed(p3_report(day)) == ["start delay p99, the worst five-minute mark"]
    minute = lived(peak=False, delay=lambda task, slot: 0.9 if slot == MEETING + timedelta(minutes=1) else DUE)
    assert p3_report(minute).met


def beside(others: float, *, hangs: bool = True, called: float = 0.1, cap: int = 10_000) -> Lived:
    """A day with the noisy tenant's own peak, its runs called so many seconds after they were due, `cap` of them; the
    others start `others` seconds after the mark, and are on time else."""
    town = p6.neighbours(make_town(1, 0.02, WINDOW.first, MEETING, peak=False), WINDOW, hangs=hangs)
    tenant_of = {task.id: task.tenant for task in town.tasks}
    slots = town.expected(WINDOW.first, WINDOW.last)
    delays = {
        (task, slot): called if tenant_of[task] == p6.NOISY else others if slot == MEETING else DUE
        for task, slot in slots
    }
    own = [key for key in slots if tenant_of[key[0]] == p6.NOISY][:cap]
    arrivals = [Arrival(slot.timestamp() + called, task, task, slot) for task, slot in own]
    return Lived(town, WINDOW, judged(delays), arrivals)


def p6_report(others: float, called: float = 0.1, cap: int = 10_000) -> Report:
    noisy = beside(others, called=called, cap=cap)
    return p6.report(Options(), [beside(0.5, hangs=False)], [noisy], {}, {})


def test_neighbours_of_a_noisy_tenant_may_be_a_little_later() -> None:
    assert p6_report(0.5).met
    assert p6_report(0.524).met
    assert len(missed(p6_report(0.526))) == 1
    assert p6_report(0.4).met
    quick, later = beside(DUE, hangs=False), beside(DUE + 0.019)
    assert p6.report(Options(), [quick], [later], {}, {}).met
    assert not p6.report(Options(), [quick], [beside(DUE + 0.021)], {}, {}).met
    assert not p6.report(Options(), [quick], [with_fault(later, lost=1)], {}, {}).met
    assert not p6.report(Options(), [with_fault(quick, duplicates=1)], [later], {}, {}).met


def test_the_noisy_tenant_has_its_calls_open_at_the_mark() -> None:
    found = p6_report(0.5)
    could = found.figures["calls_that_could_hang_at_the_mark"]
    assert found.figures["calls_that_hang_at_the_mark"] == could
    own = [task for task in make_town(1, 0.02, WINDOW.first, MEETING, peak=False).tasks if task.tenant == p6.NOISY]
    assert isinstance(could, int)
    assert could >= 0.5 * len(own)


HOLDS = "calls that hang at the mark, of those that could"


@pytest.mark.parametrize(
    ("called", "cap"), [(0.1, 0), (0.1, 100), (15.1, 10_000), (-16.0, 10_000)], ids=["none", "few", "late", "over"]
)
def test_a_mark_at_which_no_calls_hang_is_not_judged_as_one(called: float, cap: int) -> None:
    assert missed(p6_report(0.5, called, cap)) == [HOLDS]


def test_calls_to_an_endpoint_that_answers_do_not_hang() -> None:
    answering = beside(0.5, hangs=False)
    assert missed(p6.report(Options(), [answering], [answering], {}, {})) == [HOLDS]


def test_of_several_days_the_one_with_the_fewest_calls_open_counts() -> None:
    days = [beside(0.5), beside(0.5, cap=0)]
    assert missed(p6.report(Options(), [beside(0.5, hangs=False)], days, {}, {})) == [HOLDS]


def test_the_arithmetic_of_slow_endpoints() -> None:
    found = p5.arithmetic(4_800, 0.5)
    assert (found.dead, found.abandoned) == (600, 4_200)
    assert found.dead_sigma == pytest.approx((4_800 / 8 * 7 / 8) ** 0.5)
    assert found.abandoned_sigma == pytest.approx((4_800 * (15 / 8 - (7 / 8) ** 2)) ** 0.5)
    assert p5.arithmetic(4_800, 0.0) == p5.Arithmetic(0, 0, 0, 0)
    assert p5.arithmetic(10, 1.0).abandoned == 30


def slow(dead: int, abandoned: int) -> Judgement:
    ended = {"succeeded": 4_800 - dead, "dead": dead}
    return replace(judged({}), expected=4_800, ended=ended, retried=abandoned - dead, delays=[DUE])


ALL = slow(0, 0)


@pytest.mark.parametrize(("dead", "abandoned"), [(600, 4_200), (668, 4_200), (532, 4_200), (600, 4_418), (600, 3_982)])
def test_what_chance_allows_is_met(dead: int, abandoned: int) -> None:
    assert p5.report(Options(), ALL, slow(dead, abandoned), {}, {}).met


@pytest.mark.parametrize(("dead", "abandoned"), [(669, 4_200), (531, 4_200), (600, 4_419), (600, 3_981), (0, 0)])
def test_what_chance_does_not_allow_is_missed(dead: int, abandoned: int) -> None:
    assert missed(p5.report(Options(), ALL, slow(dead, abandoned), {}, {}))


def test_with_a_fitting_timeout_all_must_succeed() -> None:
    right = slow(600, 4_200)
    assert missed(p5.report(Options(), slow(1, 3), right, {}, {})) == ["30 s timeout: not succeeded"]
    assert len(missed(p5.report(Options(), replace(ALL, lost=1), right, {}, {}))) == 1
    assert len(missed(p5.report(Options(), ALL, replace(right, failed=1), {}, {}))) == 1


def test_the_window_begins_with_the_minute_before_a_full_one() -> None:
    now = MEETING + timedelta(seconds=10.5)
    window = window_of(now, Options(), FIVE_MINUTES, at_once=False)
    assert window.meeting == MEETING + timedelta(minutes=2)
    assert window.first == window.meeting - timedelta(minutes=1)
    assert window.first - now >= timedelta(seconds=30)
    assert window.last == window.meeting + FIVE_MINUTES


@pytest.mark.parametrize(
    ("scale", "short", "seeding", "before"), [(0.002, True, 3, 2), (1.0, True, 13, 8), (1.0, False, 30, 15)]
)
def test_at_once_there_is_time_for_the_seeding(scale: float, short: bool, seeding: int, before: int) -> None:
    now = MEETING + timedelta(seconds=10.5)
    window = window_of(now, Options(scale=scale, short=short), timedelta(), at_once=True)
    assert window.first == MEETING + timedelta(seconds=10 + seeding)
    assert window.meeting - window.first == timedelta(seconds=before)
    assert window.meeting == window.last
