"""A promise holds only where something was there to break it: the least counts that a verdict needs."""

from property_tests.chaos.books import Books, Finding, reached


def enough(books: Books) -> list[Finding]:
    evidence = books.evidence
    watched = sum(books.lease_of.get((call.run_id, call.fence)) in evidence.lives for call in evidence.calls)
    findings = [
        reached(1, "slots that were due", len(evidence.expected)),
        reached(1, "run-nows that the API has taken", len(evidence.accepted)),
        reached(1, "tasks that the API has made", evidence.made),
        reached(5, "terminal rows looked at while it ran", len(evidence.terminal)),
        reached(6, "calls held against the heartbeats of their leases", watched),
    ]
    if any(fault.zombie and fault.missed is None for fault in evidence.faults):
        findings.append(reached(4, "runs given to another while their process lived on", _taken_from_zombies(books)))
    return findings


def _taken_from_zombies(books: Books) -> int:
    """Only their results can be stale; whether any was depends on what the process noticed first."""
    faults = books.evidence.faults
    taken = 0
    for row in books.lost.values():
        failed = None if row.lease_id is None else books.failed(row.lease_id)
        number = None if failed is None else books.evidence.fault_at(failed[1])
        taken += number is not None and faults[number].zombie
    return taken
