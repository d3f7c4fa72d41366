"""Start delays over time, and how long after each fault it took until what was due was on time again."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.ledger import percentile
from property_tests.chaos.books import Books
from property_tests.chaos.ledger import Evidence, SlotKey, Struck

LATE_SECONDS = 1.0
"""A first call that comes later than this is late."""


@dataclass(frozen=True, slots=True)
class Second:
    """Start delays, in seconds, of what was due in one second, which began at the Unix second `at`."""

    at: int
    count: int
    p50: float
    p99: float
    worst: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a fault did to those that became late in its time: `late` first calls, the last of them, or of the calls
    made again, `after_began` seconds after the fault had begun and `after_ended` after it was over (0: none was late;
    infinite: one was never made)."""

    late: int
    worst: float
    after_began: float
    after_ended: float


def first_calls(evidence: Evidence) -> dict[SlotKey, float]:
    """When each slot that counts was first called."""
    first: dict[SlotKey, float] = {}
    without_slot = evidence.without_slot()
    for call in evidence.calls:
        key = (call.task_id, call.scheduled)
        if key in evidence.expected and evidence.tasks[call.task_id].judged and call.run_id not in without_slot:
            first[key] = min(call.at, first.get(key, math.inf))
    return first


def timeline(evidence: Evidence, first: dict[SlotKey, float]) -> list[Second]:
    """By the second in which a slot was due. What was never called is not in it: it counts against the recovery."""
    by_second: dict[int, list[float]] = defaultdict(list)
    for key, at in first.items():
        due = evidence.expected[key]
        by_second[int(due)].append(max(0.0, at - due))
    seconds = []
    for second, delays in sorted(by_second.items()):
        delays.sort()
        seconds.append(Second(second, len(delays), percentile(delays, 0.5), percentile(delays, 0.99), delays[-1]))
    return seconds


def recoveries(books: Books, first: dict[SlotKey, float]) -> list[Recovery]:
    """One for each fault. A late call is of the fault in whose time it became late, and a call made again of that in
    whose time its executor failed, however many faults later it was made."""
    evidence = books.evidence
    late: list[list[tuple[float, float]]] = [[] for _ in evidence.faults]
    for key, due in evidence.expected.items():
        at = first.get(key, math.inf)
        if at - due <= LATE_SECONDS or not evidence.tasks[key[0]].judged:
            continue
        number = evidence.fault_at(due + LATE_SECONDS)
        if number is not None:
            late[number].append((at - due, at))
    again = _made_again(books)
    return [_recovery(fault, late[number], again[number]) for number, fault in enumerate(evidence.faults)]


def _made_again(books: Books) -> list[list[float]]:
    """When what was lost was called again, by the number of the fault."""
    evidence = books.evidence
    again: list[list[float]] = [[] for _ in evidence.faults]
    for (run_id, fence), row in books.lost.items():
        known = evidence.tasks.get(row.task_id)
        if known is None or not known.judged:
            continue
        failed = None if row.lease_id is None else books.failed(row.lease_id)
        number = evidence.fault_at(row.ended_at if failed is None else failed[1])
        later = [call.at for call in books.calls_of.get(run_id, ()) if call.fence > fence]
        if later and number is not None:
            again[number].append(min(later))
    return again


def _recovery(fault: Struck, late: Sequence[tuple[float, float]], again: Sequence[float]) -> Recovery:
    last = max([*(at for _, at in late), *again], default=None)
    return Recovery(
        late=len(late),
        worst=max((delay for delay, _ in late), default=0.0),
        after_began=0.0 if last is None else last - fault.began,
        after_ended=0.0 if last is None else max(0.0, last - fault.ended),
    )
