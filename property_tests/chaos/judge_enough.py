"""A promise holds only where something was there to break it: the least counts that a verdict needs."""

from uuid import UUID

from property_tests.chaos.books import EXAMPLES, Books, Finding, reached
from property_tests.chaos.delays import LATE_SECONDS

CALM_SHARE = 0.05
"""Of all slots: so many at least must be due when no fault excuses them."""


def enough(books: Books) -> list[Finding]:
    evidence = books.evidence
    findings = [
        reached(1, "slots that were due", len(evidence.expected)),
        reached(1, "run-nows that the API has taken", len(evidence.accepted)),
        reached(1, "tasks that the API has made", evidence.made),
        reached(5, "terminal rows looked at while it ran", len(evidence.terminal)),
        _watched(books),
        *_calm(books),
    ]
    if any(fault.zombie and fault.missed is None for fault in evidence.faults):
        findings.append(reached(4, "runs given to another while their process lived on", _taken_from_zombies(books)))
    return findings


def _calm(books: Books) -> list[Finding]:
    """Else nothing would show that what is late, or passed over, is so by a fault alone."""
    evidence = books.evidence
    judged, brief, judged_calm, brief_calm = 0, 0, 0, 0
    for (task, _), due in evidence.expected.items():
        known = evidence.tasks[task]
        if known.judged:
            judged += 1
            judged_calm += evidence.held_up_by(due + LATE_SECONDS) is None
        if known.grace is not None:
            brief += 1
            brief_calm += evidence.held_up_by(due + known.grace, known.grace) is None
    return [
        reached(8, "slots that were due in no fault's time", judged_calm, round(CALM_SHARE * judged)),
        reached(1, "slots of `brief` that were due in no fault's time", brief_calm, round(CALM_SHARE * brief)),
    ]


def _watched(books: Books) -> Finding:
    """All recorded calls: a lease outlives its end by `REMOVE_AFTER` seconds, and the watch looks at them each third of
    a second, so none comes and goes unseen while the watch works."""
    evidence = books.evidence
    recorded, unseen = 0, dict[UUID | None, int]()
    for call in evidence.calls:
        attempt = call.run_id, call.fence
        if attempt in books.sent:
            recorded += 1
            lease = books.lease_of.get(attempt)
            if lease not in evidence.lives:
                unseen[lease] = unseen.get(lease, 0) + 1
    examples = [f"lease {lease} was never seen, and called {count} times" for lease, count in unseen.items()]
    what = "recorded calls that were held against the heartbeats of their leases"
    found = recorded - sum(unseen.values())
    return Finding(6, what, found, max(1, recorded), examples=tuple(examples[:EXAMPLES]), least=True)


def _taken_from_zombies(books: Books) -> int:
    """Only their results can be stale; whether any was depends on what the process noticed first."""
    faults = books.evidence.faults
    taken = 0
    for row in books.lost.values():
        failed = None if row.lease_id is None else books.failed(row.lease_id)
        number = None if failed is None else books.evidence.fault_at(failed[1])
        taken += number is not None and faults[number].zombie
    return taken
