"""The promises as code over the two ledgers. Each function names the number of the promise it holds.

Of promise 9 nothing is here: in what order runs are begun shows only where many wait, and the fairness machine asks it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

from property_tests.slot_chain import TEN_YEARS
from property_tests.world.endpoint import Answer, Call
from property_tests.world.tables import Row, Tables, TaskRows
from tocsin.common.ids import planted_at
from tocsin.common.states import RunState
from tocsin.common.store.rows import Begun

TTL = timedelta(seconds=10)
TRUSTED = 8.0
"""Seconds after a heartbeat was sent in which its process may start calls: the ttl without the margin."""
TICKS = timedelta(milliseconds=50)
"""How far a database whose clock stands counts on, microsecond by microsecond, so that no two rows end at once."""

EARLY = timedelta(milliseconds=5)
"""A run that is due again in the past is due at once, for its process; for a database that counts on while its clock
stands, microsecond by microsecond, that may be some microseconds later."""

RECORDED_AS = {
    Answer.OK: "success",
    Answer.ERROR: "http_error",
    Answer.GONE: "http_error",
    Answer.TIMEOUT: "timeout",
    Answer.RESET: "connection_lost",
}

Pair = tuple[UUID, int]

TERMINAL = {state for state in RunState if state.terminal}


class Beaten(NamedTuple):
    """One heartbeat that took effect: in seconds of the world, and on the database's clock.

    `answered`: its process got to know of it, and lived to reckon with it.
    """

    at: float
    database: datetime
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """One account of slots: a run (`first` = `until`) or a recorded skip. `last`: the slot accounted for before it."""

    first: datetime
    until: datetime
    last: datetime | None
    count: int
    exact: bool


def links_of(rows: TaskRows) -> list[Link]:
    """A task's accounts in order of their slots; every row of one run tells of the same slot."""
    links: dict[tuple[UUID, datetime], Link] = {}
    for row in (*rows.pending, *rows.running, *rows.history):
        if row["slot"] is None or row.get("stale"):
            continue
        until = row.get("until_slot") or row["slot"]
        skipped = row.get("state") == RunState.SKIPPED
        count = (row.get("skip_count") or 1) if skipped else 1
        exact = bool(row.get("skip_exact", True)) or not skipped
        links[row["run_id"], row["slot"]] = Link(row["slot"], until, row["last_slot"], count, exact)
    return sorted(links.values(), key=lambda link: link.first)


def promise_1_every_slot_is_accounted_for(rows: TaskRows, state: str) -> None:
    """The chain of a task has no gap, and a task that is not deleted or ended has one next row."""
    for before, after in pairwise(links_of(rows)):
        assert after.last == before.until, f"promise 1: a gap or a repeat in the chain: {before}, then {after}"
    found = sum(1 for row in rows.pending if row["kind"] == "next")
    wanted = 0 if state == "deleted" else 1
    assert found == wanted, f"promise 1: {found} next rows of a task that is {state}"


def promise_1_an_undisturbed_schedule_is_walked(rows: TaskRows, period: float) -> None:
    """Of a task that nobody edited or paused the slots follow each other by the period, counts of skips included."""
    links = links_of(rows)
    for link in links:
        spanned = (link.until - link.first).total_seconds() / period + 1
        assert link.exact or link.until - link.first > TEN_YEARS, f"promise 1: a bound where it can count: {link}"
        right = link.count == spanned if link.exact else 0 < link.count <= spanned
        assert right, f"promise 1: a skip of {spanned} slots counts {link.count}"
    for before, after in pairwise(links):
        step = (after.first - before.until).total_seconds()
        assert step == period, f"promise 1: {step} seconds between {before.until} and {after.first}"


def promise_1_no_run_vanishes(tables: Tables, known: Collection[UUID]) -> None:
    """Whatever had once become a run is in one of the three tables, with a slot or without. A next row is no run yet:
    writes replace it."""
    gone = set(known) - runs_of(tables) - ended_runs_of(tables)
    assert not gone, f"promise 1: neither pending nor running nor ended: {gone}"


def promise_1_a_run_has_its_attempts(tables: Tables, attempts: Mapping[UUID, int]) -> None:
    """Losses and put-backs spend none: a run ends for its attempts after that many answers, neither more nor fewer."""
    spent: Counter[UUID] = Counter()
    for row in tables.history:
        if row["outcome"] not in ("lost", "skipped") and not row["stale"]:
            spent[row["run_id"]] += 1
    for row in tables.history:
        if (most := attempts.get(row["task_id"])) is None or row["stale"]:
            continue
        had = spent[row["run_id"]]
        assert had <= most, f"promise 1: {had} attempts of {row['run_id']}, which may have {most}"
        ended = row["reason"] == "max_attempts"
        assert not ended or had == most, f"promise 1: {row['run_id']} ended after {had} attempts of {most}"


def promise_1_a_lost_begin_is_found_again(tables: Tables, lease_id: UUID, begun: Collection[Pair]) -> None:
    """What a living process began without an answer has been called, or is pending again, by now."""
    lives = lease_id in tables.leases and tables.leases[lease_id] is None
    if not lives:
        return  # what it held is given back, whether it knew it or not
    still = [row["run_id"] for row in tables.running if (row["run_id"], row["fence"]) in begun]
    assert not still, f"promise 1: begun by a begin whose answer was lost, and neither called nor put back: {still}"


def promise_2_one_run_per_slot(rows: TaskRows) -> None:
    runs: defaultdict[datetime, set[UUID]] = defaultdict(set)
    for row in (*rows.pending, *rows.running, *rows.history):
        if row["slot"] is not None and row["kind"] != "backfill":
            runs[row["slot"]].add(row["run_id"])
    twice = {slot: ids for slot, ids in runs.items() if len(ids) > 1}
    assert not twice, f"promise 2: slots with more than one run: {twice}"


def promise_2_a_run_is_in_one_place(tables: Tables) -> None:
    places = Counter(row["run_id"] for row in (*tables.pending, *tables.running))
    places.update({row["run_id"] for row in tables.history if row["state"] in TERMINAL and not row["stale"]})
    twice = [run_id for run_id, count in places.items() if count > 1]
    assert not twice, f"promise 2: runs that are in two places at once: {twice}"


def promise_3_every_call_is_a_recorded_attempt(tables: Tables, called: Collection[Pair], *, at_rest: bool) -> None:
    """`called`: the runs and fences that the endpoint saw. Each of them runs, or is recorded: as what it came to, or as
    lost by a process that had it in flight when it failed. At rest none runs. And what is recorded as sent was seen."""
    written = [row for row in tables.history if row["sent"] and not row["stale"]]
    answered = pairs_of(row for row in written if row["outcome"] != "lost")
    lost = pairs_of(row for row in written if row["outcome"] == "lost")
    unseen = answered - set(called)
    assert not unseen, f"promise 3: recorded as sent, and never seen: {unseen}"
    known = answered | lost | (set() if at_rest else pairs_of(tables.running))
    extra = set(called) - known
    assert not extra, f"promise 3: called without an attempt on record: {extra}"


def promise_3_only_ended_leases_lose_runs(tables: Tables) -> None:
    lives = {lease_id for lease_id, expired_at in tables.leases.items() if expired_at is None}
    for row in tables.history:
        if row["outcome"] == "lost":
            assert row["lease_id"] not in lives, f"promise 3: lost by a lease that lives: {dict(row)}"


def promise_3_a_fence_is_called_once(calls: Sequence[Call]) -> None:
    times = Counter((call.run_id, call.fence) for call in calls)
    twice = [pair for pair, count in times.items() if count > 1]
    assert not twice, f"promise 3: called more than once after one begin: {twice}"


def promise_3_an_ended_lease_begins_nothing(before: Tables, after: Tables) -> None:
    """What it had in flight when it ended bounds the extra calls; nothing may come to that later."""
    had = pairs_of(before.running)
    for row in after.running:
        ended = before.leases.get(row["lease_id"]) is not None
        new = (row["run_id"], row["fence"]) not in had
        assert not (ended and new), f"promise 3: {row['run_id']} was begun by a lease that had ended"


def promise_4_fences_only_grow(before: Tables, after: Tables) -> None:
    fences = {row["run_id"]: row["fence"] for row in (*before.pending, *before.running)}
    for row in (*after.pending, *after.running):
        had = fences.get(row["run_id"], row["fence"])
        assert row["fence"] >= had, f"promise 4: the fence of {row['run_id']} fell from {had} to {row['fence']}"


def promise_4_a_result_is_of_the_call_that_it_names(
    tables: Tables, calls: Sequence[Call], spoilt: Collection[Pair]
) -> None:
    """Stale or not, an attempt is recorded with its own fence, and as what the endpoint answered to that very call.

    `spoilt`: the calls after whose answer their process failed inside; those, and no others, are so recorded.
    """
    answers = {(call.run_id, call.fence): call.answer for call in calls}
    for row in tables.history:
        if not row["sent"] or row["outcome"] in ("lost", "cancelled"):
            continue
        answer = answers.get((row["run_id"], row["fence"]))
        assert answer is not None, f"promise 4: a result of a call that has not ended: {dict(row)}"
        due = "protocol_error" if (row["run_id"], row["fence"]) in spoilt else RECORDED_AS[answer]
        assert row["outcome"] == due, f"promise 4: the endpoint answered {answer}, and recorded is {dict(row)}"


def promise_5_terminal_is_final(before: Tables, after: Tables) -> None:
    """No row of history changes or goes, and no run ends twice."""
    now = {_key(row): row for row in after.history}
    for row in before.history:
        same = now.get(_key(row))
        assert same is not None, f"promise 5: a row of history is gone: {dict(row)}"
        assert dict(same) == dict(row), f"promise 5: a row of history has changed: {dict(row)}, {dict(same)}"
    ends = Counter(row["run_id"] for row in after.history if row["state"] in TERMINAL and not row["stale"])
    twice = [run_id for run_id, count in ends.items() if count > 1]
    assert not twice, f"promise 5: runs that ended twice: {twice}"


def _key(row: Row) -> tuple[Any, ...]:
    return (row["run_id"], row["fence"], row["ended_at"])


def promise_6_a_call_starts_within_the_trust_window(beats: Sequence[Beaten], now: float, *, lives: bool) -> None:
    """`beats` of the caller's lease; `lives`: what the database says of it in this instant."""
    assert lives, "promise 6: a call starts though its lease has ended"
    silent = now - beats[-1].at
    assert silent < TRUSTED + 1e-6, f"promise 6: a call starts {silent:g} s after the last heartbeat of its process"


def promise_7_only_the_silent_are_ended(ended: Sequence[Beaten], judge: Sequence[Beaten], now: datetime) -> None:
    """By a judge that has itself seen the database, without a break, for a whole ttl; all on the database's clock."""
    silent = now - ended[-1].database
    assert silent > TTL - TICKS, f"promise 7: a lease was ended that was silent for {silent}"
    since = judge[0].database
    for before, after in pairwise(judge):
        if after.database - before.database > TTL / 4 + TICKS:
            since = after.database
    assert now - since > TTL - TICKS, f"promise 7: a lease was ended by who has seen the database for {now - since}"
    away = now - judge[-1].database
    assert away < TTL / 4 + TICKS, f"promise 7: a lease was ended by who has not beaten for {away}"


def promise_8_a_call_is_not_early(run_id: UUID, due_at: datetime | None, now: datetime) -> None:
    """`now`: the latest that its process may take it to be."""
    early = timedelta() if due_at is None else due_at - now
    assert early < EARLY, f"promise 8: {run_id} is called {early} before it is due"


def promise_8_runs_bear_the_databases_time(
    tables: Tables, known: Collection[UUID], earliest: datetime, latest: datetime
) -> None:
    """A run's id says when it was planted, and its deadline counts from there: no worker's wall clock goes into it.

    `earliest`: of those that are not yet known.
    """
    for run_id in ids_of(tables) - set(known):
        planted = planted_at(run_id)
        assert planted >= earliest, (
            f"promise 8: {run_id} is new, and says {planted}; at the last look it was {earliest}"
        )
        assert planted <= latest, f"promise 8: {run_id} was planted at {planted}, and it is {latest}"


def promise_10_no_tenant_exceeds_its_cap(tables: Tables) -> None:
    live = {lease_id for lease_id, expired_at in tables.leases.items() if expired_at is None}
    held = Counter(row["tenant_id"] for row in tables.running if row["lease_id"] in live)
    for tenant_id, count in held.items():
        cap = tables.caps[tenant_id]
        assert count <= cap, f"promise 10: live leases hold {count} runs of a tenant that may have {cap}"


def promise_11_only_owned_tenants_are_begun(begun: Sequence[Begun], served: Collection[UUID]) -> None:
    """Whatever a hint index names: `served` are the tenants of which the beginner owns a shard as the begin commits."""
    foreign = [run.run_id for run in begun if run.tenant_id not in served]
    assert not foreign, f"promise 11: begun by who does not own their tenants: {foreign}"


def promise_12_rows_stay_with_their_tenant(tables: Tables) -> None:
    for row in (*tables.pending, *tables.running, *tables.history):
        owner = tables.tasks[row["task_id"]]["tenant_id"]
        assert row["tenant_id"] == owner, f"promise 12: a row of {owner}'s task names tenant {row['tenant_id']}"


def promise_12_another_tenant_finds_nothing(asked: str, found: object) -> None:
    """`found`: what a request came to that named another's task or run; None where it was told that there is none."""
    assert found is None, f"promise 12: {asked} of another tenant's came to {found!r}"


def promise_12_and_changes_nothing(asked: str, before: Tables, after: Tables) -> None:
    assert before == after, f"promise 12: {asked} of another tenant's has changed something"


def promise_1_at_rest_nothing_due_is_left(tables: Tables, late: datetime) -> None:
    """At quiescence what was due has ended, and nobody holds a run."""
    waiting = [dict(row) for row in tables.pending if _instant(row["due_at"], late) and row["due_at"] < late]
    assert not waiting, f"promise 1: due and not begun: {waiting}"
    held = [dict(row) for row in tables.running if row["due_at"] < late]
    assert not held, f"promise 1: held by nobody who ends it: {held}"


def _instant(value: datetime, like: datetime) -> bool:
    """PostgreSQL's infinity comes without a zone."""
    return value.tzinfo is not None and value.year < like.year + 1000


def ids_of(tables: Tables) -> set[UUID]:
    return {row["run_id"] for row in (*tables.pending, *tables.running, *tables.history)}


def runs_of(tables: Tables) -> set[UUID]:
    """What has become a run and has not ended."""
    waiting = {row["run_id"] for row in tables.pending if row["kind"] != "next"}
    return waiting | {row["run_id"] for row in tables.running}


def ended_runs_of(tables: Tables) -> set[UUID]:
    return {row["run_id"] for row in tables.history if row["state"] in TERMINAL and not row["stale"]}


def believed_now(beats: Sequence[Beaten], now: float) -> datetime:
    """The latest that the process of a lease may take the database's time to be: as its last heartbeat said.

    No answer takes time in this world, so each sample is exact: it is the greatest, or contradicts all before it.
    """
    last = next(beat for beat in reversed(beats) if beat.answered)
    return last.database + timedelta(seconds=now - last.at)


def pairs_of(rows: Iterable[Row]) -> set[Pair]:
    return {(row["run_id"], row["fence"]) for row in rows}
