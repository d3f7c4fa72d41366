"""The judge with made-up timings: its verdict and margin, lies, failures; and judges without a guard, each caught."""

import itertools
from collections.abc import Callable, Iterable

import pytest

from tocsin.engine.hint_judge import HintJudge, JudgeConfig, Way

CONFIG = JudgeConfig()
MANY = 40

Check = Callable[[type[HintJudge]], None]


def both(judge: HintJudge, scan: float, hints: float, *, rows: int = 100, found: int | None = None) -> None:
    """A window of reads each way, of so many milliseconds."""
    found = rows if found is None else found
    for _ in range(CONFIG.window):
        judge.scanned(scan / 1000, rows)
        judge.hinted(hints / 1000, found, found)


def faster_hints_are_taken(make: type[HintJudge]) -> None:
    judge = make()
    verdicts = [judge.verdict]
    for hints in (2, 30):
        both(judge, 10, hints)
        verdicts.append(judge.verdict)
    assert verdicts == [Way.SCAN, Way.HINTS, Way.SCAN]


def a_row_counts_not_a_read(make: type[HintJudge]) -> None:
    judge = make()
    for _ in range(CONFIG.window):
        judge.scanned(0.010, 1000)
        judge.hinted(0.005, 100, 100)
    assert judge.verdict == Way.SCAN


def one_slow_read_changes_nothing(make: type[HintJudge]) -> None:
    judge = make()
    both(judge, 10, 2)
    for _ in range(CONFIG.window // 2):
        judge.hinted(5.0, 100, 100)
    assert judge.verdict == Way.HINTS


def a_little_faster_is_not_enough(make: type[HintJudge]) -> None:
    """Else the verdict would change with every gust."""
    judge = make()
    verdicts = []
    for hints in (9, 2, 11):
        both(judge, 10, hints)
        verdicts.append(judge.verdict)
    assert verdicts == [Way.SCAN, Way.HINTS, Way.HINTS]


def a_few_reads_are_no_evidence(make: type[HintJudge]) -> None:
    judge = make()
    for _ in range(CONFIG.least - 1):
        judge.scanned(0.010, 100)
        judge.hinted(0.001, 100, 100)
    assert judge.verdict == Way.SCAN


def an_empty_index_is_not_fast(make: type[HintJudge]) -> None:
    """As after a flush: it answers at once, and knows nothing."""
    judge = make()
    both(judge, 10, 2)
    both(judge, 100, 1, rows=3, found=0)
    assert judge.verdict == Way.SCAN


def a_failure_ends_it_at_once(make: type[HintJudge]) -> None:
    judge = make()
    both(judge, 10, 2)
    judge.failed()
    verdicts = [judge.verdict]
    judge.scanned(0.010, 100)
    judge.hinted(0.001, 100, 100)
    verdicts.append(judge.verdict)  # what it was is forgotten
    both(judge, 10, 2)
    assert [*verdicts, judge.verdict] == [Way.SCAN, Way.SCAN, Way.HINTS]


def a_lie_ends_it_at_once(make: type[HintJudge]) -> None:
    judge = make()
    both(judge, 10, 2)
    assert judge.hinted(0.001, MANY, MANY // 2)
    assert not judge.hinted(0.001, MANY, MANY // 2 - 1)
    assert judge.verdict == Way.SCAN


def small_lies_add_up(make: type[HintJudge]) -> None:
    judge = make()
    said = [judge.hinted(0.001, CONFIG.enough // 4, 1) for _ in range(4)]
    assert said == [True, True, True, False]


def hints_are_never_taken_twice_running(make: type[HintJudge]) -> None:
    judge = make()
    both(judge, 10, 2)
    ways = [judge.next() for _ in range(20)]
    assert ways.count(Way.HINTS) == 10
    assert (Way.HINTS, Way.HINTS) not in set(pairs(ways))


def the_slower_way_is_probed(make: type[HintJudge]) -> None:
    judge = make()
    both(judge, 10, 30)
    ways = [judge.next() for _ in range(10 * CONFIG.probe_every)]
    assert ways.count(Way.HINTS) == 10


def what_has_failed_is_probed_seldom(make: type[HintJudge]) -> None:
    judge = make()
    assert [judge.next() for _ in range(4)].count(Way.HINTS) == 2  # a new one proves itself quickly
    judge.failed()
    assert [judge.next() for _ in range(10 * CONFIG.probe_every)].count(Way.HINTS) == 10


def pairs(ways: list[Way]) -> Iterable[tuple[Way, Way]]:
    return itertools.pairwise(ways)


CHECKS: tuple[Check, ...] = (
    faster_hints_are_taken,
    a_row_counts_not_a_read,
    one_slow_read_changes_nothing,
    a_little_faster_is_not_enough,
    a_few_reads_are_no_evidence,
    an_empty_index_is_not_fast,
    a_failure_ends_it_at_once,
    a_lie_ends_it_at_once,
    small_lies_add_up,
    hints_are_never_taken_twice_running,
    the_slower_way_is_probed,
    what_has_failed_is_probed_seldom,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_judge(check: Check) -> None:
    check(HintJudge)


def without(**changes: float) -> type[HintJudge]:
    """A judge with other bounds: one guard less."""

    class Changed(HintJudge):
        def __init__(self) -> None:
            super().__init__(JudgeConfig(**changes))  # type: ignore[arg-type]

    return Changed


class CountsReads(HintJudge):
    """Broken: a read that finds more counts like one that finds less."""

    def scanned(self, seconds: float, found: int) -> None:
        super().scanned(seconds, min(found, 1))

    def hinted(self, seconds: float, named: int, found: int) -> bool:
        return super().hinted(seconds, min(named, 1), min(found, 1))


class Remembers(HintJudge):
    """Broken: after a failure the old timings still count."""

    def failed(self) -> None:
        kept = list(self._hints)
        super().failed()
        self._hints.extend(kept)


class WaitsAndSees(HintJudge):
    """Broken: a failure counts as a slow read."""

    def failed(self) -> None:
        self.hinted(0.05, 0, 0)


class NeverBlind(HintJudge):
    """Broken: a read that finds nothing is a read like any other."""

    def hinted(self, seconds: float, named: int, found: int) -> bool:
        return super().hinted(seconds, max(named, 1), max(found, 1))


class Enthusiast(HintJudge):
    """Broken: takes what it holds for the better way, and no other."""

    def next(self) -> Way:
        return self.verdict


class Trusting(HintJudge):
    """Broken: only ever looks at one answer."""

    def _lies(self, reads: Iterable[object]) -> bool:
        return super()._lies(list(reads)[-1:])  # type: ignore[arg-type]


BROKEN: dict[str, tuple[type[HintJudge], Check]] = {
    "never changes": (without(edge=0.0), faster_hints_are_taken),
    "counts reads": (CountsReads, a_row_counts_not_a_read),
    "judges by the last read": (without(window=1, least=1), one_slow_read_changes_nothing),
    "has no margin": (without(edge=1.0), a_little_faster_is_not_enough),
    "judges by one read": (without(least=1), a_few_reads_are_no_evidence),
    "is not told of blindness": (NeverBlind, an_empty_index_is_not_fast),
    "remembers": (Remembers, a_failure_ends_it_at_once),
    "waits and sees": (WaitsAndSees, a_failure_ends_it_at_once),
    "believes all": (without(believed=0.0), a_lie_ends_it_at_once),
    "looks at one answer": (Trusting, small_lies_add_up),
    "is an enthusiast": (Enthusiast, hints_are_never_taken_twice_running),
    "never probes": (Enthusiast, the_slower_way_is_probed),
    "probes as before": (without(probe_every=2), what_has_failed_is_probed_seldom),
}


@pytest.mark.parametrize(("make", "check"), BROKEN.values(), ids=BROKEN.keys())
def test_a_judge_without_a_guard_is_caught(make: type[HintJudge], check: Check) -> None:
    with pytest.raises(AssertionError):
        check(make)
