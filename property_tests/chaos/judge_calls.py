"""Promises 3, 4 and 5: calls are recorded, each once; extra ones are bounded; what has ended stays as it is."""

from collections import Counter, defaultdict

from property_tests.chaos.books import Books, Finding, counted
from property_tests.chaos.ledger import Call, Life

COMMIT_SECONDS = 0.5
"""From an answer to its commit, on a machine that does everything else as well: until then a call is in flight."""

ARRIVAL_SECONDS = 1.0
"""From a request's first byte to when the endpoint's process notes it: what a dead process wrote still arrives."""


def bounded_duplicates(books: Books) -> list[Finding]:
    """Calls are recorded, each once; a run is called anew without having failed only where its executor had failed,
    and then for no more calls than that process had in flight."""
    evidence = books.evidence
    called = Counter((call.run_id, call.fence) for call in evidence.calls)
    twice = [f"run {run}, fence {fence}: {n} calls" for (run, fence), n in called.items() if n > 1]
    unrecorded = [f"run {run}, fence {fence}" for run, fence in called if (run, fence) not in books.sent]
    unseen = [
        f"run {row.run_id}, fence {row.fence}, {row.outcome}"
        for attempt, row in books.sent.items()
        if not row.lost and attempt not in called
    ]
    findings = [
        counted(3, "attempts that were called more than once", twice),
        counted(3, "calls that no history row records as sent", unrecorded),
        counted(3, "attempts recorded as sent that the endpoint never saw", unseen),
    ]
    extra, late = extra_calls(books)
    findings.append(counted(3, "extra calls of runs whose executor had not failed", extra.pop(None, [])))
    findings.append(counted(3, "extra calls whose first was not in flight when its process failed", late))
    in_flight = _in_flight_at_failures(books)
    for number in sorted({*extra, *in_flight} - {None}, key=lambda n: -1 if n is None else n):
        assert number is not None
        name = evidence.faults[number].name
        findings.append(
            Finding(3, f"{name}: extra calls", len(extra.get(number, ())), in_flight.get(number, 0), "calls", number)
        )
    return findings


def extra_calls(books: Books) -> tuple[dict[int | None, list[str]], list[str]]:
    """Extra calls by the fault in whose time their executor failed (None: it had not failed, or in no fault's time),
    and those whose first call was not in flight then."""
    extra: dict[int | None, list[str]] = defaultdict(list)
    late = []
    for (run_id, fence), row in books.lost.items():
        calls = books.calls_of.get(run_id, [])
        first = next((call for call in calls if call.fence == fence), None)
        if first is None or not any(call.fence > fence for call in calls):
            continue
        failed = None if row.lease_id is None else books.failed(row.lease_id)
        text = f"run {run_id}, fence {fence}, called at {first.at:.3f}, lease {row.lease_id}"
        if failed is None:
            extra[None].append(text)
            continue
        extra[books.evidence.fault_at(failed[1])].append(text)
        if not was_in_flight(first, failed):
            late.append(text)
    return extra, late


def was_in_flight(call: Call, failed: tuple[float, float]) -> bool:
    """Whether a call was between its first byte and its commit at the instant, between two, when its process failed."""
    return call.at <= failed[1] + ARRIVAL_SECONDS and call.until + COMMIT_SECONDS >= failed[0]


def _in_flight_at_failures(books: Books) -> dict[int | None, int]:
    """Calls in flight in failed processes, by fault."""
    failed = {lease: when for lease in books.evidence.lives if (when := books.failed(lease)) is not None}
    found: dict[int | None, int] = defaultdict(int)
    for call in books.evidence.calls:
        lease = books.lease_of.get((call.run_id, call.fence))
        when = None if lease is None else failed.get(lease)
        if when is not None and was_in_flight(call, when):
            found[books.evidence.fault_at(when[1])] += 1
    found.pop(None, None)
    return found


def fenced(books: Books) -> list[Finding]:
    lives = books.evidence.lives
    stale = [row for row in books.evidence.rows if row.stale]
    groundless = [
        f"run {r.run_id}, fence {r.fence}" for r in stale if not _has_failed(lives.get(r.lease_id or r.run_id))
    ]
    effective = [
        f"run {row.run_id}, fence {row.fence}"
        for row in stale
        if row.attempt not in books.lost and not any(t.fence > row.fence for t in books.terminal.get(row.run_id, ()))
    ]
    return [
        counted(4, "stale results of executors that had not failed", groundless),
        counted(4, "stale results of runs that had not been given to another", effective),
    ]


def _has_failed(life: Life | None) -> bool:
    return life is not None and life.failed is not None


def terminal_is_final(books: Books) -> list[Finding]:
    evidence = books.evidence
    several = [f"run {run}" for run, rows in books.terminal.items() if len(rows) > 1]
    after = [
        f"run {run}: called with fence {calls[-1].fence}, ended with {books.terminal[run][0].fence}"
        for run, calls in books.calls_of.items()
        if run in books.terminal and calls[-1].fence > books.terminal[run][0].fence
    ]
    now = {row.attempt: (row.ended_at, row.state, row.outcome) for rows in books.terminal.values() for row in rows}
    changed = [f"run {attempt[0]}" for attempt, *seen in evidence.terminal if now.get(attempt) != tuple(seen)]
    return [
        counted(5, "runs with several terminal rows", several),
        counted(5, "runs called after their end", after),
        counted(5, f"terminal rows that changed, of {len(evidence.terminal)} looked at while it ran", changed),
        Finding(5, "terminal runs seen pending or running", evidence.reopened),
    ]
