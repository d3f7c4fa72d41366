"""Promises 6, 7, 8 and 10: what no process may do: call without a lease, take an outage for a death, call early, or
exceed a cap."""

import math
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

from property_tests.chaos.books import EXAMPLES, Books, Finding, counted, reached
from property_tests.chaos.delays import LATE_SECONDS, first_calls
from property_tests.chaos.judge_calls import COMMIT_SECONDS, extra_calls
from property_tests.chaos.ledger import Call, Life, Row

DEADLINE_SLACK = 1.0
"""From the answer that asks for a retry to its commit."""

TRUST_SLACK = 0.5
"""Of the way from the check of the trust window to the endpoint's note of the call."""


def trust_window(books: Books) -> list[Finding]:
    """Seconds from a lease's last heartbeat, on the database's clock, to a call that it made."""
    evidence = books.evidence
    worst, examples = 0.0, []
    window = evidence.ttl - evidence.margin
    by_lease: dict[UUID, list[float]] = defaultdict(list)
    for call in evidence.calls:
        lease = books.lease_of.get((call.run_id, call.fence))
        if lease is not None and lease in evidence.lives:
            by_lease[lease].append(call.at)
    for lease, instants in by_lease.items():
        beats, n = evidence.lives[lease].beats, 0
        for at in sorted(instants):
            while n + 1 < len(beats) and beats[n + 1] <= at:
                n += 1
            since = at - beats[n]
            worst = max(worst, since)
            if since > window + TRUST_SLACK:
                examples.append(f"lease {lease} called {since:.2f} s after its heartbeat")
    what = "longest time from a lease's heartbeat to a call of it"
    return [Finding(6, what, round(worst, 3), window + TRUST_SLACK, "s", examples=tuple(examples[:EXAMPLES]))]


def outage_is_no_death(books: Books) -> list[Finding]:
    evidence = books.evidence
    expired = [
        f"lease {life.lease_id}, pid {life.pid}"
        for life in evidence.lives.values()
        if life.expired is not None and not life.draining and (life.failed is None or life.failed[0] > life.expired)
    ]
    findings = [counted(7, "leases that ended while their process worked", expired)]
    extra = extra_calls(books)
    for number, fault in enumerate(evidence.faults):
        if fault.database:
            again = [one.text for one in extra if one.fault == number]
            findings.append(counted(7, f"{fault.name}: runs called again", again, number))
    return findings


def never_early(books: Books) -> list[Finding]:
    """`due_at` is that of each attempt; a drifting clock may be early by what it drifts."""
    lives = books.evidence.lives
    early, worst, worst_allowed = [], 0.0, max((life.early for life in lives.values()), default=0.0)
    for call in books.evidence.calls:
        row = books.sent.get((call.run_id, call.fence))
        if row is None or row.due_at is None:
            continue
        by = row.due_at - call.at
        worst = max(worst, by)
        life = None if row.lease_id is None else lives.get(row.lease_id)
        if by > (0.0 if life is None else life.early):
            early.append(f"run {call.run_id}, by {1000 * by:.3f} ms")
    furthest = "earliest call, where the clock drifted"
    return [
        counted(8, "calls before their due instant", early),
        Finding(8, furthest, round(1000 * worst, 3), round(1000 * worst_allowed, 3), "ms"),
    ]


def deadlines_kept(books: Books) -> list[Finding]:
    """No attempt is due later than its task's deadline after the first. Not judged is what the loss of an attempt, or a
    fault of the database, has put off: that is due in a fault's time, or while it is recovered from."""
    evidence = books.evidence
    attempts: dict[UUID, list[Row]] = defaultdict(list)
    for row in evidence.rows:
        known = evidence.tasks.get(row.task_id)
        if known is not None and known.deadline is not None and row.due_at is not None:
            attempts[row.run_id].append(row)
    late = []
    for run_id, rows in attempts.items():
        deadline = evidence.tasks[rows[0].task_id].deadline or 0.0
        instants = sorted(row.due_at for row in rows if row.due_at is not None)
        over = [at for at in instants if at > instants[0] + deadline + DEADLINE_SLACK]
        lost = any(row.lost for row in rows)
        faults = [evidence.held_up_by(at) for at in over]
        if any(fault is None or not (lost or fault.database) for fault in faults):
            late.append(f"run {run_id}, by {over[-1] - instants[0] - deadline:.1f} s, {len(rows)} attempts")
    return [counted(8, "runs tried again after their deadline", late)]


def on_time_in_calm(books: Books) -> list[Finding]:
    """First calls are late only where they became so in a fault's time, or while it was recovered from. The load's
    first seconds are calm: all executors serve before it begins."""
    evidence = books.evidence
    first = first_calls(evidence)
    late = []
    for (task, slot), due in evidence.expected.items():
        delay = first.get((task, slot), math.inf) - due
        if delay > LATE_SECONDS and evidence.tasks[task].judged and evidence.held_up_by(due + LATE_SECONDS) is None:
            late.append(f"task {task}, slot {slot:.0f}, by {delay:.1f} s")
    return [counted(8, "first calls that were late in no fault's time", late)]


def isolated(books: Books) -> list[Finding]:
    """Calls in flight at the endpoint, by live leases, against the cap, which must be reached. Not judged is the time
    in which a process that called for the tenant was failing: its last calls may have ended before or after that."""
    findings = []
    for tenant, cap in books.evidence.caps.items():
        failing = _failing(books, tenant)
        most, over = 0, []
        for at, count in _in_flight(books, tenant):
            if count > cap and any(since <= at <= until for since, until in failing):
                continue
            most = max(most, count)
            if count > cap:
                over.append(f"{count} at {at:.3f}")
        what = f"calls in flight of a tenant with a cap of {cap}"
        findings.append(Finding(10, what, most, cap, "calls", examples=tuple(over[:EXAMPLES])))
        findings.append(reached(10, f"{what}: it was reached", most, cap))
    return findings


def _calls_of(books: Books, tenant: UUID) -> Iterator[tuple[Call, Life | None]]:
    """A tenant's calls, each with the life of the lease that made it, where that is known."""
    evidence = books.evidence
    for call in evidence.calls:
        known = evidence.tasks.get(call.task_id)
        if known is not None and known.tenant_id == tenant:
            lease = books.lease_of.get((call.run_id, call.fence))
            yield call, None if lease is None else evidence.lives.get(lease)


def _failing(books: Books, tenant: UUID) -> set[tuple[float, float]]:
    """When processes that called for a tenant failed."""
    failed = (life.failed for _, life in _calls_of(books, tenant) if life is not None and life.failed is not None)
    return {(since, until + COMMIT_SECONDS) for since, until in failed}


def _in_flight(books: Books, tenant: UUID) -> list[tuple[float, int]]:
    """How many calls of a tenant are open at the endpoint, each time that this grows or shrinks. A call ends when it
    is answered, when its connection does, or when its process failed."""
    changes: list[tuple[float, int]] = []
    for call, life in _calls_of(books, tenant):
        until = call.until
        if life is not None and life.failed is not None:
            until = min(until, max(call.at, life.failed[1]))
        changes += [(call.at, 1), (until, -1)]
    changes.sort()
    counted, count = [], 0
    for at, change in changes:
        count += change
        counted.append((at, count))
    return counted
