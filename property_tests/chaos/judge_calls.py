"""Promises 3, 4 and 5: calls are recorded, each once; extra ones are bounded; what has ended stays as it is."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from property_tests.chaos.books import Books, Finding, counted
from property_tests.chaos.ledger import Call, Life

COMMIT_SECONDS = 0.5
"""From an answer to its commit, on a machine that does everything else as well: until then a call is in flight."""

ARRIVAL_SECONDS = 1.0
"""From a request's first byte to when the endpoint's process notes it: what a dead process wrote still arrives."""


def bounded_duplicates(books: Books) -> list[Finding]:
    """Calls are recorded, each once; a run is called anew without having failed only where its executor had failed,
    and then for no more calls than that process had in flight."""
    called = Counter((call.run_id, call.fence) for call in books.evidence.calls)
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
    return findings + _bounded(books)


def _bounded(books: Books) -> list[Finding]:
    """Extra calls against those in flight in their process when it failed. The sums by fault, which the report tells,
    are held where each process's are."""
    extra = extra_calls(books)
    in_flight = _in_flight_at_failures(books)
    by_lease = Counter(one.lease for one in extra if one.lease is not None and one.failed is not None)
    above = [
        f"lease {lease}: {count} extra calls, {in_flight.get(lease, 0)} in flight"
        for lease, count in by_lease.items()
        if count > in_flight.get(lease, 0)
    ]
    groundless = [one.text for one in extra if one.fault is None]
    late = [one.text for one in extra if one.failed is not None and not was_in_flight(one.first, one.failed)]
    findings = [
        counted(3, "extra calls of runs whose executor had not failed", groundless),
        counted(3, "extra calls whose first was not in flight when its process failed", late),
        counted(3, "failed processes with more extra calls than they had in flight at any one instant of it", above),
    ]
    by_fault = Counter(one.fault for one in extra)
    bounds = Counter[int]()
    for lease, count in in_flight.items():
        failed = books.failed(lease)
        number = None if failed is None else books.evidence.fault_at(failed[1])
        if number is not None:
            bounds[number] += count
    for number in sorted({n for n in by_fault if n is not None} | {*bounds}):
        name = books.evidence.faults[number].name
        findings.append(Finding(3, f"{name}: extra calls", by_fault[number], bounds[number], "calls", number))
    return findings


@dataclass(frozen=True, slots=True)
class Extra:
    """A run was called again after its attempt by `lease` was lost; `first` is the call of that attempt. `failed`: when
    that process did (None: it had not). `fault`: in whose time that was (None: in no fault's, or it had not)."""

    first: Call
    lease: UUID | None
    failed: tuple[float, float] | None
    fault: int | None

    @property
    def text(self) -> str:
        call = self.first
        return f"run {call.run_id}, fence {call.fence}, called at {call.at:.3f}, lease {self.lease}"


def extra_calls(books: Books) -> list[Extra]:
    extra = []
    for (run_id, fence), row in books.lost.items():
        calls = books.calls_of.get(run_id, [])
        first = next((call for call in calls if call.fence == fence), None)
        if first is None or not any(call.fence > fence for call in calls):
            continue
        failed = None if row.lease_id is None else books.failed(row.lease_id)
        number = None if failed is None else books.evidence.fault_at(failed[1])
        extra.append(Extra(first, row.lease_id, failed, number))
    return extra


def _flight(call: Call) -> tuple[float, float]:
    """From a call's first byte, at the earliest, to its commit, at the latest."""
    return call.at - ARRIVAL_SECONDS, call.until + COMMIT_SECONDS


def was_in_flight(call: Call, failed: tuple[float, float]) -> bool:
    """Whether a call was between its first byte and its commit at the instant, between two, when its process failed."""
    since, until = _flight(call)
    return since <= failed[1] and until >= failed[0]


def _in_flight_at_failures(books: Books) -> dict[UUID, int]:
    """By the lease of a failed process: the most calls that it had in flight at one instant of those between which it
    failed. Each of two calls may have been in flight then, and yet never both."""
    failed = {lease: when for lease in books.evidence.lives if (when := books.failed(lease)) is not None}
    flights: dict[UUID, list[tuple[float, float]]] = defaultdict(list)
    for call in books.evidence.calls:
        lease = books.lease_of.get((call.run_id, call.fence))
        if lease in failed and was_in_flight(call, failed[lease]):
            flights[lease].append(_flight(call))
    # flights that overlap one another and a span have an instant of that span in common
    return {lease: _most_at_once(spans) for lease, spans in flights.items()}


def _most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    changes = sorted(change for since, until in spans for change in ((since, 0), (until, 1)))
    count = most = 0
    for _, ends in changes:
        count += -1 if ends else 1
        most = max(most, count)
    return most


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
    now = {row.attempt: (row.ended_at, row.state, row.outcome) for row in evidence.rows if row.state is not None}
    changed = [f"run {attempt[0]}" for attempt, *seen in evidence.terminal if now.get(attempt) != tuple(seen)]
    return [
        counted(5, "runs with several terminal rows", several),
        counted(5, "runs called after their end", after),
        counted(5, f"terminal rows that changed, of {len(evidence.terminal)} looked at while it ran", changed),
        Finding(5, "terminal runs seen pending or running", evidence.reopened),
    ]
