"""What became of one attempt, the best of several, and the targets. Values in, values out."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from bench.ledger import Arrival, percentile
from bench.report import Figure, Target, at_least, at_most, exactly

OURS = "tocsin"
NOT_RUN = "NOT RUN"
AHEAD = 1.0
PGQUEUER_FACTOR = 1.7


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt by `processes` workers at `expected` jobs.

    `delays`: seconds from due to the first call, rising, one a job that was called. `lost`: jobs without a call.
    `duplicates`: calls beyond a job's first. `early`: calls before the due instant. `kept`: jobs that the peer has on
    record as having succeeded, None where it keeps none. `cold`: jobs of the warm-up that were still to be called when
    the measured ones were due. `fault` says why the attempt ended before its jobs did.
    """

    processes: int
    expected: int
    delays: Sequence[float]
    lost: int
    duplicates: int
    early: int = 0
    kept: int | None = None
    cold: int = 0
    fault: str | None = None

    @property
    def seconds(self) -> float:
        """From the first due instant to the last call, where all jobs are due at one instant; nan without calls."""
        return self.delays[-1] if self.delays else math.nan

    @property
    def rate(self) -> float:
        """Jobs a second, where all jobs are due at one instant; nan without calls."""
        return len(self.delays) / max(self.seconds, 1e-3)

    @property
    def whole(self) -> bool:
        """All jobs were called, and nothing broke."""
        return self.fault is None and not self.lost


def judged(
    due: Mapping[UUID, float],
    arrivals: Iterable[Arrival],
    *,
    processes: int,
    kept: int | None = None,
    cold: int = 0,
    fault: str | None = None,
) -> Outcome:
    """Holds what the endpoint saw against what was `due` (Unix seconds by id); calls of other ids do not count."""
    first: dict[UUID, float] = {}
    calls: Counter[UUID] = Counter()
    early = 0
    for arrival in arrivals:
        name = arrival.task_id
        if name in due:
            calls[name] += 1
            first[name] = min(arrival.at, first.get(name, math.inf))
            early += arrival.at < due[name]
    return Outcome(
        processes=processes,
        expected=len(due),
        delays=sorted(at - due[name] for name, at in first.items()),
        lost=len(due) - len(first),
        duplicates=sum(calls.values()) - len(first),
        early=early,
        kept=kept,
        cold=cold,
        fault=fault,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A peer, or ourselves: every attempt at the two tests; `not_run`: why one that is not there was not made."""

    name: str
    version: str
    configuration: str
    drains: Sequence[Outcome] = ()
    steadies: Sequence[Outcome] = ()
    not_run: str | None = None

    @property
    def drain(self) -> Outcome | None:
        return best_drain(self.drains)

    @property
    def steady(self) -> Outcome | None:
        return best_steady(self.steadies)


def best_drain(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The fastest of those that are whole, else the one that got furthest; None of none."""
    return max(outcomes, key=lambda each: (each.whole, each.rate if each.whole else len(each.delays)), default=None)


def best_steady(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The one with the shortest p99 of those that are whole, else the one that got furthest; None of none."""

    def order(each: Outcome) -> tuple[bool, float]:
        return each.whole, -percentile(each.delays, 0.99) if each.whole else len(each.delays)

    return max(outcomes, key=order, default=None)


def targets(ours: Row, peers: Sequence[Row]) -> list[Target]:
    """Ahead of every peer's best. Peers that did not finish are compared only where none finished. Who was the best is
    in no target's name: of several rounds, targets are found by their names."""
    drain, steady = ours.drain, ours.steady
    found = [each for each in (drain, steady) if each is not None]
    rates = {name: each.rate for name, each in _comparable({row.name: row.drain for row in peers}).items()}
    tails = {name: _p99(each) for name, each in _comparable({row.name: row.steady for row in peers}).items()}
    pgqueuer = next((row.drain.rate for row in peers if row.name == "pgqueuer" and row.drain is not None), math.nan)
    fastest, quickest = max(rates.values(), default=math.nan), min(tails.values(), default=math.nan)
    rate = math.nan if drain is None else drain.rate
    tail = math.nan if steady is None else _p99(steady)
    return [
        exactly("lost by Tocsin", 0, sum(each.lost for each in found)),
        exactly("duplicates by Tocsin", 0, sum(each.duplicates for each in found)),
        exactly("tests that Tocsin finished", 2, sum(each.whole for each in found)),
        exactly("peers that were measured", len(peers), sum(bool(row.drains and row.steadies) for row in peers)),
        at_least("drain rate, times the fastest peer's", AHEAD, rate / fastest),
        at_least("drain rate, times pgqueuer's", PGQUEUER_FACTOR, rate / pgqueuer),
        at_most("steady p99, times the quickest peer's", AHEAD, tail / quickest),
    ]


def _comparable(outcomes: Mapping[str, Outcome | None]) -> dict[str, Outcome]:
    called = {name: each for name, each in outcomes.items() if each is not None and each.delays}
    return {name: each for name, each in called.items() if each.whole} or called


def _p99(outcome: Outcome) -> float:
    return percentile(outcome.delays, 0.99)


COLUMNS = (
    "who",
    "version",
    "workers",
    "drain, s",
    "jobs/s",
    "drain p50, ms",
    "drain p99, ms",
    "steady p50, ms",
    "steady p99, ms",
    "lost",
    "duplicates",
    "note",
    "configuration",
)


def cells(row: Row) -> tuple[Figure, ...]:
    """A row of the table, by `COLUMNS`."""
    drain, steady = row.drain, row.steady
    both = [each for each in (drain, steady) if each is not None]
    return (
        row.name,
        row.version,
        "/".join(str(each.processes) for each in both),
        None if drain is None else _rounded(drain.seconds, 3),
        None if drain is None else _rounded(drain.rate, 0),
        _milliseconds(drain, 0.5),
        _milliseconds(drain, 0.99),
        _milliseconds(steady, 0.5),
        _milliseconds(steady, 0.99),
        sum(each.lost for each in both) if both else None,
        sum(each.duplicates for each in both) if both else None,
        note(row),
        row.configuration,
    )


def note(row: Row) -> str:
    """What a reader must know of a row's figures; nothing where all is well."""
    said = [] if row.not_run is None else [f"{NOT_RUN}: {row.not_run}"]
    for name, outcome in (("drain", row.drain), ("steady", row.steady)):
        if outcome is None:
            continue
        if outcome.fault is not None:
            said.append(f"{name}: {outcome.fault}, {len(outcome.delays):,} of {outcome.expected:,} called")
        if outcome.cold:
            said.append(f"{name}: {outcome.cold:,} jobs of its warm-up were still to come")
        if outcome.early:
            said.append(f"{name}: {outcome.early:,} calls early")
        if outcome.kept is not None and outcome.kept < len(outcome.delays):
            said.append(f"{name}: {outcome.kept:,} results kept of {len(outcome.delays):,} calls")
    return "; ".join(said)


def figures(rows: Iterable[Row]) -> dict[str, Figure]:
    """Flat figures by name: of the best attempt, and of each other number of workers its rate."""
    flat: dict[str, Figure] = {}
    for row in rows:
        named = dict(zip(COLUMNS, cells(row), strict=True))
        for column in ("version", "drain, s", "jobs/s", "drain p50, ms", "drain p99, ms", "steady p50, ms"):
            flat[_key(row.name, column)] = named[column]
        for column in ("steady p99, ms", "lost", "duplicates", "note"):
            flat[_key(row.name, column)] = named[column] or (None if column == "note" else named[column])
        for each in row.drains:
            flat[f"{row.name}_jobs_per_s_of_{each.processes}"] = _rounded(each.rate, 0)
    return {name: value for name, value in flat.items() if value not in (None, "")}


def _key(who: str, column: str) -> str:
    return f"{who}_{column.replace('/', '_per_').replace(', ', '_').replace(' ', '_')}"


def _rounded(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(value, digits)


def _milliseconds(outcome: Outcome | None, share: float) -> float | None:
    return None if outcome is None else _rounded(percentile(outcome.delays, share) * 1000, 1)
