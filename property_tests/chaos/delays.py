"""Start delays over time, and how long after each fault it took until what was due was on time again."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.ledger import percentile
from property_tests.chaos.books import Books
from property_tests.chaos.ledger import Evidence, SlotKey

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
    """What a fault did to those due in its time: `late` first calls, the last of them, or of the calls made again,
    `after_began` seconds after the fault had begun and `after_ended` after it was over (0: none was late)."""

    late: int
    worst: float
    after_began: float
    after_ended: float


def first_calls(evidence: Evidence) -> dict[SlotKey, float]:
    """When each slot that counts was first called."""
    first: dict[SlotKey, float] = {}
    for call in evidence.calls:
        key = (call.task_id, call.scheduled)
        if key in evidence.expected and evidence.tasks[call.task_id].judged:
            first[key] = min(call.at, first.get(key, math.inf))
    return first


def timeline(evidence: Evidence, first: dict[SlotKey, float]) -> list[Second]:
    """By the second in which a slot was due. What was never called is not in it: it is lost, and counted there."""
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
    """One for each fault: its time lasts from its beginning to that of the next."""
    evidence = books.evidence
    faults = evidence.faults
    late: list[list[tuple[float, float]]] = [[] for _ in faults]
    again: list[list[float]] = [[] for _ in faults]
    for key, at in first.items():
        due = evidence.expected[key]
        if at - due > LATE_SECONDS and (number := evidence.fault_at(at)) is not None:
            late[number].append((at - due, at))
    for (run_id, fence), row in books.lost.items():
        known = evidence.tasks.get(row.task_id)
        if known is None or not known.judged:
            continue
        later = [call.at for call in books.calls_of.get(run_id, ()) if call.fence > fence]
        if later and (number := evidence.fault_at(min(later))) is not None:
            again[number].append(min(later))
    return [_recovery(fault.began, fault.ended, late[number], again[number]) for number, fault in enumerate(faults)]


def _recovery(began: float, ended: float, late: Sequence[tuple[float, float]], again: Sequence[float]) -> Recovery:
    last = max([*(at for _, at in late), *again], default=None)
    return Recovery(
        late=len(late),
        worst=max((delay for delay, _ in late), default=0.0),
        after_began=0.0 if last is None else last - began,
        after_ended=0.0 if last is None else max(0.0, last - ended),
    )
