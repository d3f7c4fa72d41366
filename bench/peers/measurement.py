"""peers: other schedulers and queues beside Tocsin, in one run on one machine, at the same work."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table as ScreenTable

from bench.endpoint import Endpoint
from bench.frame import Measurement, Options, Screen
from bench.ledger import percentile
from bench.peers import ours
from bench.peers.catalogue import PEERS, Peer, version_of
from bench.peers.driver import (
    LEAD_SECONDS,
    Adapter,
    AdapterError,
    Attempt,
    LateError,
    attempted,
    database,
    redis_running,
)
from bench.peers.installation import SYNC_SECONDS, NotInstalledError, pythons_of, redis_server
from bench.peers.verdict import COLUMNS, NOT_RUN, Outcome, Row, best_drain, cells, figures, targets
from bench.report import Report
from bench.series import Charts, Table
from bench.system import environment_of, server, work_folder

DRAIN = 30_000
SHORT_DRAIN = 3_000
WARM_UP = 300
"""Jobs at one instant before each test of each peer and of ours, by the very workers that are then measured."""

RATE = 1_000
SECONDS = 30
SHORT_SECONDS = 3
STEADY_WAIT_MS = 150
"""The endpoint's in the steady test; in the drain it answers at once, to be no limit itself."""

LIMIT_SECONDS = 120.0
SHORT_LIMIT_SECONDS = 8.0

TITLE = "Other queues at the same work"
BARS = ("jobs/s", "steady p99, ms")

NOT_MEANING = (
    "that one is better than another: the peers do other things too, some have no tenants, no retries by default, no "
    "fairness, no signatures, some keep less or lose it with their Redis; each is configured by its documentation as "
    "said in its row, by people who know Tocsin best. All of it, with databases and the endpoint, shares one machine; "
    "peers on machines of their own, or with other jobs than a short HTTP call, come out in another order. Drained at "
    "an endpoint that answers at once, steady at one that answers after 150 ms. Before each test 300 jobs at one "
    "instant go through the very workers that are then measured, the peers' as ours; but a peer's workers and store "
    "are new for each test, and ours are kept from the drain to the steady test. Clients differ: every peer calls by "
    "aiohttp but Celery, which calls by urllib3, and Tocsin by the transport that its row names; where that is lean, "
    "its own client, a part of any difference is the client's and not the scheduler's. The bare clients keep nothing, "
    "are only drained, and are no peers. The short form is a check: its steady test lasts 3 s at 1,000/s, so its p99 "
    "stands on the worst 30 calls, which one pause of the machine decides; and a peer that is not done 8 s after the "
    "last instant is cut, and shown with what it did until then."
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all peers share: one PostgreSQL, one endpoint; `folder` takes the rest."""

    options: Options
    screen: Screen
    folder: Path
    dsn: str
    endpoint: Endpoint
    names: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def drain_count(self) -> int:
        return self.options.amount(SHORT_DRAIN if self.options.short else DRAIN)

    @property
    def warm_up(self) -> int:
        return self.options.amount(WARM_UP)

    @property
    def rate(self) -> int:
        return self.options.amount(RATE)

    @property
    def seconds(self) -> int:
        return SHORT_SECONDS if self.options.short else SECONDS

    @property
    def limit(self) -> float:
        return SHORT_LIMIT_SECONDS if self.options.short else LIMIT_SECONDS

    def drain_of(self, peer: Peer, processes: int) -> Attempt:
        return Attempt(peer, processes, self.drain_count, 0, self.limit, self.warm_up)

    def steady_of(self, peer: Peer, processes: int) -> Attempt:
        return Attempt(peer, processes, self.rate * self.seconds, self.rate, self.limit, self.warm_up)


async def run(options: Options, screen: Screen) -> Report:
    rows: list[Row] = []
    screen.say(f"environments of the peers, {SYNC_SECONDS:.0f} s at most")
    pythons = await pythons_of(PEERS)
    async with work_folder(options.work_dir) as folder, server(folder) as postgres, Endpoint(folder) as endpoint:
        bench = Bench(options, screen, folder, postgres.dsn, endpoint)
        for peer in PEERS:
            rows.append(await measured(bench, peer, pythons[peer]))
            screen.say(_line(rows[-1]))
    work = ours.Work(bench.warm_up, bench.drain_count, bench.rate, bench.seconds, STEADY_WAIT_MS)
    mine, where = await ours.measured(options, screen, work)
    screen.say(_line(mine))
    _show(screen, [mine, *rows])
    found = [each for each in (mine.drain, mine.steady) if each is not None]
    return Report(
        test="peers",
        environment=where,
        targets=targets(mine, [row for peer, row in zip(PEERS, rows, strict=True) if not peer.is_bare]),
        figures=figures([mine, *rows]),
        lost=sum(each.lost for each in found),
        duplicates=sum(each.duplicates for each in found),
        not_meaning=NOT_MEANING,
        charts=Charts(tables=[Table(TITLE, COLUMNS, [cells(row) for row in [mine, *rows]], bars=BARS)]),
    )


async def measured(bench: Bench, peer: Peer, python: Path | NotInstalledError) -> Row:
    """A peer's row: drained with each number of workers (the short form: the last), steady with the number that drained
    best; bare clients are drained only. A peer that cannot be had, or whose adapter fails, is said to be so, and the
    bench goes on."""
    try:
        if isinstance(python, NotInstalledError):
            raise python
        redis = redis_server() if peer.store == "Redis" else None
    except NotInstalledError as error:
        return Row(peer.name, version_of(peer), peer.configuration, not_run=str(error))
    drains: list[Outcome] = []
    steadies: list[Outcome] = []
    fault = None
    try:
        for processes in peer.processes[-1:] if bench.options.short else peer.processes:
            drains.append(await _attempted(bench, bench.drain_of(peer, processes), python, redis, 0))
        best = best_drain(drains)
        assert best is not None
        if not peer.is_bare:
            steady = bench.steady_of(peer, best.processes)
            steadies.append(await _attempted(bench, steady, python, redis, STEADY_WAIT_MS))
    except (AdapterError, LateError) as error:
        fault = str(error)
    return Row(peer.name, version_of(peer), peer.configuration, drains, steadies, fault)


async def _attempted(bench: Bench, attempt: Attempt, python: Path, redis: Path | None, wait_ms: int) -> Outcome:
    """One attempt, and another with twice the lead where the first was not ready at its instant."""
    lead = LEAD_SECONDS + attempt.count * attempt.peer.enqueue_seconds
    url = f"{bench.endpoint.url}{wait_ms}ms/"
    try:
        async with _adapter(bench, attempt.peer, python, redis, url) as adapter:
            return await attempted(attempt, adapter, bench.endpoint, bench.screen, lead)
    except LateError as error:
        bench.screen.say(f"{attempt.text}: {error}; once more")
    async with _adapter(bench, attempt.peer, python, redis, url) as adapter:
        return await attempted(attempt, adapter, bench.endpoint, bench.screen, 2 * lead)


@asynccontextmanager
async def _adapter(bench: Bench, peer: Peer, python: Path, redis: Path | None, url: str) -> AsyncIterator[Adapter]:
    """A peer's adapter on an empty database or Redis of its own."""
    name = f"{peer.name}_{next(bench.names)}"
    folder = bench.folder / name
    folder.mkdir()
    environment = {**environment_of(None), "PEER_URL": url}
    if redis is not None:
        async with redis_running(redis, folder) as address:
            yield await _prepared(Adapter((python, "-m", peer.module), {**environment, "PEER_REDIS": address}, folder))
    elif peer.store == "PostgreSQL":
        async with database(bench.dsn, name) as dsn:
            yield await _prepared(Adapter((python, "-m", peer.module), {**environment, "PEER_DATABASE": dsn}, folder))
    else:
        yield Adapter((python, "-m", peer.module), environment, folder)


async def _prepared(adapter: Adapter) -> Adapter:
    await adapter.run("prepare", seconds=30.0)
    return adapter


def _line(row: Row) -> str:
    if row.drain is None:
        return f"{row.name}: {NOT_RUN}: {row.not_run}"
    steady = "" if row.steady is None else f", steady p99 {percentile(row.steady.delays, 0.99) * 1000:,.0f} ms"
    return f"{row.name}: {row.drain.rate:,.0f} jobs/s{steady}"


def _show(screen: Screen, rows: Sequence[Row]) -> None:
    table = ScreenTable(title="peers", title_justify="left")
    for column in COLUMNS[:-1]:
        table.add_column(column)
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in cells(row)[:-1]))
    screen.console.print(table)


MEASUREMENT = Measurement(
    "peers", "other queues at the same work: ahead of every one's best, >= 1.7 times pgqueuer's rate", run
)
