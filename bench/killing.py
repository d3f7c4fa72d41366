"""An executor is killed under load: what was in flight by its end, and what was called again afterwards."""

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import psutil

from bench.delays import delay_charts
from bench.drive import Played, judgement_figures
from bench.frame import Options
from bench.ledger import Arrival, Judgement, SlotKey, delay_figures, judge
from bench.report import Environment, Figure, Report, at_most, exactly
from bench.system import Connection

PATH = "150ms/"
TENANTS = 100
REFIRED_SECONDS = 15.0

OWN_SECONDS = 0.25
"""A call of a run that the dead executor held is taken for its own if it came within so long after the kill: a busy
endpoint reads late. Its runs are seldom given back that soon; where they are, some count as in flight that were not."""


@dataclass(frozen=True, slots=True)
class Killed:
    """`at` in Unix seconds; `held`: the runs that were attached to the executor's lease then."""

    at: float
    held: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class Aftermath:
    """`in_flight`: runs that the dead executor held and had called. `again`: calls of runs beyond their first,
    `astray` those among them whose run it did not hold. `refired`: the longest time, in seconds, from the kill, or from
    the due instant where that came later, to the last call of a run; nan where nothing was called after the kill."""

    in_flight: int
    again: int
    astray: int
    refired: float


def with_a_survivor(options: Options) -> Options:
    """Ray starts a killed executor anew; of plain processes another must be there to take over."""
    return replace(options, executors=max(2, options.executors)) if options.ray is False else options


async def kill(connection: Connection) -> Killed:
    """Kills the executor that owns the most shards."""
    lease = await connection.fetchrow(
        "select l.id, l.pid from leases l join shards s on s.owner = l.id where l.expired_at is null"
        " group by l.id order by count(*) desc limit 1"
    )
    assert lease is not None
    at = time.time()
    psutil.Process(lease["pid"]).kill()
    rows = await connection.fetch("select run_id from running where lease_id = $1", lease["id"])
    return Killed(at, frozenset(row["run_id"] for row in rows))


def aftermath(due: Mapping[SlotKey, float], arrivals: Sequence[Arrival], killed: Killed) -> Aftermath:
    """Reads the endpoint's log around the kill."""
    calls: defaultdict[UUID, list[float]] = defaultdict(list)
    late = [math.nan]
    for arrival in sorted(arrivals, key=lambda one: one.at):
        calls[arrival.run_id].append(arrival.at)
        slot_due = due.get((arrival.task_id, arrival.slot))
        if slot_due is not None and arrival.at > killed.at + OWN_SECONDS:
            late.append(arrival.at - max(killed.at, slot_due))
    again = {run: len(times) - 1 for run, times in calls.items() if len(times) > 1}
    return Aftermath(
        in_flight=sum(1 for run in killed.held if run in calls and calls[run][0] <= killed.at + OWN_SECONDS),
        again=sum(again.values()),
        astray=sum(count for run, count in again.items() if run not in killed.held),
        refired=max(late[1:], default=math.nan),
    )


def report(
    test: str,
    before: Judgement,
    played: Played,
    killed: Killed,
    where: Environment,
    figures: Mapping[str, Figure],
) -> Report:
    """Judges the load in which the kill fell. What was lost or called twice in the one `before` it counts too; there
    nothing may be called again."""
    due = played.load.expected()
    judgement = judge(due, played.arrivals, played.history)
    found = aftermath(due, played.arrivals, killed)
    lost, unrecorded = before.lost + judgement.lost, before.duplicates + judgement.duplicates
    again_before = before.duplicates + before.retried
    return Report(
        test=test,
        environment=where,
        targets=[
            exactly("lost", 0, lost),
            exactly("calls without a recorded attempt", 0, unrecorded),
            at_most("called again, of those in flight", found.in_flight, found.again, "calls"),
            exactly("called again though not in flight", 0, again_before + found.astray),
            at_most("all called, after the kill", REFIRED_SECONDS, found.refired, "s"),
        ],
        figures={
            "held_at_the_kill": len(killed.held),
            "in_flight_at_the_kill": found.in_flight,
            "called_again": found.again,
            "called_again_before_the_kill": again_before,
            "lost_before_the_kill": before.lost,
            **figures,
            **judgement_figures(judgement),
            **delay_figures(judgement),
        },
        lost=lost,
        duplicates=again_before + found.again,
        charts=delay_charts({"all": judgement.delay_of}, [("killed", killed.at, killed.at)]),
        not_meaning="a proof: one kill at one moment; the property tests strike everywhere. On one machine a death is "
        "proven by its pid, within two seconds; on several it takes a lease's ttl of ten.",
    )
