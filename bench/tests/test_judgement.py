"""The judgement finds what is wrong in ledgers that were broken on purpose, and nothing in those that were not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from bench.ledger import Arrival, Judgement, Recorded, SlotKey, delay_figures, judge, percentile

FIRST = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
TASKS = [UUID(int=n) for n in (1, 2)]
SLOTS = 3
DELAY = 0.004


@dataclass(slots=True)
class Ledgers:
    """What two tasks with three slots each leave behind where nothing goes wrong."""

    expected: dict[SlotKey, float]
    arrivals: list[Arrival]
    history: list[Recorded]

    def judge(self) -> Judgement:
        return judge(self.expected, self.arrivals, self.history)


def sound() -> Ledgers:
    slots = [(task, FIRST + timedelta(seconds=n)) for task in TASKS for n in range(SLOTS)]
    runs = {key: UUID(int=100 + n) for n, key in enumerate(slots)}
    return Ledgers(
        expected={key: key[1].timestamp() for key in slots},
        arrivals=[Arrival(slot.timestamp() + DELAY, runs[task, slot], task, slot) for task, slot in slots],
        history=[Recorded(runs[task, slot], task, slot, None, "succeeded", True) for task, slot in slots],
    )


def test_sound_ledgers_are_clean() -> None:
    found = sound().judge()
    assert found.clean
    assert found.expected == 6
    assert found.delays == pytest.approx([DELAY] * 6, abs=1e-6)
    assert found.late(0.05) == 0


def never_called(ledgers: Ledgers) -> None:
    """The database says that it ran; the endpoint has not seen it."""
    del ledgers.arrivals[2]


def never_recorded(ledgers: Ledgers) -> None:
    """The endpoint has seen it; the database knows nothing of it."""
    del ledgers.history[2]


def neither(ledgers: Ledgers) -> None:
    del ledgers.arrivals[2], ledgers.history[2]


def not_ended(ledgers: Ledgers) -> None:
    """An attempt is recorded, and no end of its run."""
    ledgers.history[2] = replace(ledgers.history[2], state=None)


@pytest.mark.parametrize("broken", [never_called, never_recorded, neither, not_ended])
def test_a_lost_run_is_found(broken: Callable[[Ledgers], None]) -> None:
    ledgers = sound()
    broken(ledgers)
    found = ledgers.judge()
    assert found.lost == 1
    assert not found.clean
    assert str(TASKS[0]) in found.examples[0]


def called_twice(ledgers: Ledgers) -> None:
    """Two calls of one run, one attempt recorded."""
    ledgers.arrivals.append(replace(ledgers.arrivals[0], at=ledgers.arrivals[0].at + 1))


def two_runs(ledgers: Ledgers) -> None:
    """A second run of one slot, called and recorded like the first."""
    other = UUID(int=999)
    ledgers.arrivals.append(replace(ledgers.arrivals[0], run_id=other))
    ledgers.history.append(replace(ledgers.history[0], run_id=other))


def second_run_unrecorded(ledgers: Ledgers) -> None:
    """The endpoint has seen another run in the place of the recorded one, too."""
    ledgers.history.append(replace(ledgers.history[0], run_id=UUID(int=999), sent=False))


@pytest.mark.parametrize("broken", [called_twice, two_runs, second_run_unrecorded])
def test_a_duplicate_is_found(broken: Callable[[Ledgers], None]) -> None:
    ledgers = sound()
    broken(ledgers)
    found = ledgers.judge()
    assert found.duplicates == 1
    assert found.lost == 0
    assert not found.clean


def test_a_recorded_retry_is_no_duplicate() -> None:
    ledgers = sound()
    called_twice(ledgers)
    ledgers.history.append(replace(ledgers.history[0], state=None))
    found = ledgers.judge()
    assert (found.clean, found.retried) == (True, 1)


def test_a_late_run_is_found() -> None:
    ledgers = sound()
    ledgers.arrivals[3] = replace(ledgers.arrivals[3], at=ledgers.arrivals[3].at + 2)
    found = ledgers.judge()
    assert found.late(1.0) == 1
    assert found.delays[-1] == pytest.approx(2 + DELAY, abs=1e-6)
    assert percentile(found.delays, 0.99) > 2


def test_a_retry_does_not_make_its_run_late() -> None:
    ledgers = sound()
    called_twice(ledgers)
    assert ledgers.judge().late(0.05) == 0


def test_an_early_call_is_found() -> None:
    ledgers = sound()
    ledgers.arrivals[0] = replace(ledgers.arrivals[0], at=ledgers.arrivals[0].at - 2 * DELAY)
    found = ledgers.judge()
    assert (found.early, found.other_faults, found.clean) == (1, 1, False)


def test_a_failed_run_is_found() -> None:
    ledgers = sound()
    ledgers.history[0] = replace(ledgers.history[0], state="dead")
    found = ledgers.judge()
    assert (found.failed, found.lost, found.clean) == (1, 0, False)


def test_a_run_may_have_to_die() -> None:
    """Of an endpoint that is down, dead is right and a success is not."""
    ledgers = sound()
    ledgers.history[0] = replace(ledgers.history[0], state="dead")

    def ends(task_id: UUID, run_id: UUID) -> frozenset[str]:
        return frozenset({"dead" if run_id == ledgers.history[0].run_id else "succeeded"})

    found = judge(ledgers.expected, ledgers.arrivals, ledgers.history, ends)
    assert (found.clean, found.ended) == (True, {"succeeded": 5, "dead": 1})
    ledgers.history[0] = replace(ledgers.history[0], state="succeeded")
    assert judge(ledgers.expected, ledgers.arrivals, ledgers.history, ends).failed == 1


def test_each_slot_has_its_delay() -> None:
    ledgers = sound()
    ledgers.arrivals[3] = replace(ledgers.arrivals[3], at=ledgers.arrivals[3].at + 2)
    late = ledgers.arrivals[3]
    found = ledgers.judge()
    assert found.delay_of[late.task_id, late.slot] == pytest.approx(2 + DELAY, abs=1e-6)
    assert sorted(found.delay_of.values()) == list(found.delays)


def test_a_call_for_nothing_due_is_found() -> None:
    ledgers = sound()
    ledgers.arrivals.append(Arrival(FIRST.timestamp(), UUID(int=7), UUID(int=77), FIRST))
    found = ledgers.judge()
    assert (found.strangers, found.clean) == (1, False)


def test_an_attempt_that_the_endpoint_did_not_see_is_found() -> None:
    ledgers = sound()
    ledgers.history.append(replace(ledgers.history[0], state=None))
    found = ledgers.judge()
    assert (found.unseen, found.lost, found.clean) == (1, 0, False)


def test_a_recorded_skip_is_not_lost_and_not_clean() -> None:
    ledgers = sound()
    del ledgers.arrivals[1:3]
    first, last = (FIRST + timedelta(seconds=n) for n in (1, 2))
    ledgers.history[1:3] = [Recorded(UUID(int=55), TASKS[0], first, last, "skipped", False)]
    found = ledgers.judge()
    assert (found.skipped, found.lost, found.clean) == (2, 0, False)


def test_a_skip_of_another_task_does_not_excuse_a_loss() -> None:
    ledgers = sound()
    neither(ledgers)
    ledgers.history.append(Recorded(UUID(int=55), TASKS[1], FIRST, FIRST + timedelta(hours=1), "skipped", False))
    assert ledgers.judge().lost == 1


def test_nothing_at_all_is_all_lost() -> None:
    ledgers = sound()
    found = judge(ledgers.expected, [], [])
    assert (found.lost, list(found.delays)) == (6, [])


@pytest.mark.parametrize(
    ("values", "share", "wanted"),
    [
        ([1.0], 0.99, 1.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0], 0.51, 2.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 102)], 0.99, 100.0),
        ([float(n) for n in range(1, 1001)], 0.999, 999.0),
        ([3.0, 5.0], 0.0, 3.0),
        ([3.0, 5.0], 1.0, 5.0),
    ],
)
def test_percentiles_are_values_that_occurred(values: list[float], share: float, wanted: float) -> None:
    assert percentile(values, share) == wanted


def test_no_values_have_no_percentile() -> None:
    assert math.isnan(percentile([], 0.99))
    assert delay_figures(judge({}, [], []))["start_delay_p99_ms"] is None
