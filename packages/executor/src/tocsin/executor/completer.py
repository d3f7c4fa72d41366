"""The completer: results in batches, kept and sent again until the database has them (promise 7, rules 4 and 9)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from tocsin.common.clock import Clock
from tocsin.common.errors import RowRefusedError, StoreUnavailableError
from tocsin.common.store.ports import RunStore
from tocsin.common.store.rows import Begun, Completion
from tocsin.common.telemetry.meter import Meter
from tocsin.common.telemetry.metrics import FLUSH_SECONDS, RUNS, STALE_WRITES
from tocsin.executor.classify import EndReason

log = logging.getLogger("tocsin.executor.completer")

Committed = Callable[[Begun, Completion | None], None]
Result = tuple[Begun, Completion]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CompleterConfig:
    """`batch` results a statement; `gather` seconds in which further ones may join the first; `refused_pause` seconds
    until what the database refused in every form is tried again."""

    batch: int = 500
    gather: float = 0.005
    longest_pause: float = 0.5
    refused_pause: float = 30.0


class Completer:
    """Tells `committed` of each run once its result, or its return to pending, is durable.

    A statement of unknown outcome is sent again unchanged: its key makes the second one a no-op.

    A result that the database refuses even in its minimal form is a fault of the schema. It is kept as in an outage:
    nobody is told of it, so the run stays in flight and is not called again, and it is sent again after a pause. If
    this process ends before it is stored, the run counts as lost, and so ends after a few losses (rule 7).
    """

    def __init__(
        self,
        runs: RunStore,
        lease_id: UUID,
        clock: Clock,
        meter: Meter,
        committed: Committed,
        config: CompleterConfig | None = None,
    ) -> None:
        self._runs = runs
        self._lease_id = lease_id
        self._clock = clock
        self._meter = meter
        self._committed = committed
        self._config = config or CompleterConfig()
        self._results: list[Result] = []
        self._returns: list[Begun] = []
        self._refused: list[Result] = []
        self._refused_due = False
        self._refused_timer: asyncio.TimerHandle | None = None
        self._under_way = 0
        self._wake = asyncio.Event()
        self._away = False

    def __len__(self) -> int:
        """Results and returns that are not yet committed."""
        return len(self._results) + len(self._returns) + len(self._refused) + self._under_way

    def add(self, run: Begun, completion: Completion) -> None:
        self._results.append((run, completion))
        self._wake.set()

    def put_back(self, run: Begun) -> None:
        """Returns a run that was never called."""
        self._returns.append(run)
        self._wake.set()

    async def run(self) -> None:
        """Flushes for ever; ends only by cancellation."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if len(self._results) < self._config.batch:
                await asyncio.sleep(self._config.gather)
            while self._results or self._returns or self._refused_due:
                await self.flush()

    async def flush(self) -> None:
        """Writes one batch of each kind, trying until the database has it, or refuses it in every form."""
        results, self._results = self._results[: self._config.batch], self._results[self._config.batch :]
        returns, self._returns = self._returns[: self._config.batch], self._returns[self._config.batch :]
        self._under_way = len(results) + len(returns)
        if results:
            refused = await self._store(results)
            self._under_way -= len(results)
            for run, _ in refused:
                log.error("run %s: not even its outcome can be stored; it stays in flight, uncalled", run.run_id)
            if refused:
                self._keep(refused)
        if returns:
            pairs = [(run.run_id, run.fence) for run in returns]
            await self._insist(lambda: self._return(pairs))
            self._under_way -= len(returns)
            for run in returns:
                self._tell(run, None)
        if self._refused_due:
            await self._try_refused()

    async def _try_refused(self) -> None:
        """One batch of what was refused, in turns: the others must not wait long for it."""
        self._refused_due = False
        again, self._refused = self._refused[: self._config.batch], self._refused[self._config.batch :]
        self._under_way = len(again)
        refused = await self._store(again)
        self._under_way = 0
        if len(refused) < len(again):
            log.warning("the database has taken %d results that it had refused", len(again) - len(refused))
        if refused:
            self._keep(refused)
        else:
            self._refused_due = bool(self._refused)  # healed: the next ones need not wait

    def _keep(self, refused: Sequence[Result]) -> None:
        self._refused += refused
        if self._refused_timer is None:
            self._refused_timer = asyncio.get_running_loop().call_later(self._config.refused_pause, self._come_due)

    def _come_due(self) -> None:
        self._refused_timer = None
        self._refused_due = True
        self._wake.set()

    async def _store(self, results: Sequence[Result]) -> list[Result]:
        """Writes results, and tells of them; returns those that were refused, in their minimal form."""
        refused = await self._insist(lambda: self._complete(results))
        kept = {(run.run_id, run.fence) for run, _ in refused}
        stored = [result for result in results if (result[0].run_id, result[0].fence) not in kept] if kept else results
        for outcome, count in Counter(completion.outcome for _, completion in stored).items():
            self._meter.add(RUNS, count, outcome)
        for run, completion in stored:
            self._tell(run, completion)
        return refused

    def _tell(self, run: Begun, completion: Completion | None) -> None:
        """What the engine makes of it is its own matter: it must not keep other results from the database."""
        try:
            self._committed(run, completion)
        except Exception:
            log.exception("run %s: its end is stored, and could not be told", run.run_id)

    async def _return(self, pairs: Sequence[tuple[UUID, int]]) -> None:
        await self._runs.put_back(self._lease_id, pairs)

    async def _complete(self, results: Sequence[Result]) -> list[Result]:
        """Returns what the database refuses in every form."""
        began = self._clock.monotonic()
        try:
            done = await self._runs.complete(self._lease_id, [completion for _, completion in results])
        except RowRefusedError as error:
            return await self._narrow(results, error)
        self._meter.observe(FLUSH_SECONDS, self._clock.monotonic() - began)
        if done.stale:
            self._meter.add(STALE_WRITES, len(done.stale))
            log.warning(
                "%d results came after their lease was taken for dead, and were recorded as stale",
                len(done.stale),
            )
        return []

    async def _narrow(self, results: Sequence[Result], error: RowRefusedError) -> list[Result]:
        """A batch that the database cannot hold: its halves, down to the row at fault, written in minimal form."""
        if len(results) > 1:
            middle = len(results) // 2
            return await self._complete(results[:middle]) + await self._complete(results[middle:])
        run, completion = results[0]
        least = minimal(completion)
        if completion == least:
            return [(run, least)]
        log.error(
            "the result of run %s cannot be stored as it is (%s); storing its outcome alone",
            run.run_id,
            error,
        )
        return await self._complete([(run, least)])

    async def _insist(self, write: Callable[[], Awaitable[T]]) -> T:
        pause = 0.05
        while True:
            try:
                done = await write()
            except StoreUnavailableError as error:
                if not self._away:
                    log.warning("results wait for the database (%s)", error)
                self._away = True
            except Exception:
                log.exception("results could not be written; trying again")
            else:
                if self._away:
                    log.warning("the database has taken the results that waited")
                self._away = False
                return done
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._config.longest_pause)


def minimal(completion: Completion) -> Completion:
    """The same end of the same attempt, of values that every column takes: no text but ours, no status, no answer."""
    reason = completion.reason if isinstance(completion.reason, EndReason) else None
    error = "the result could not be stored as it was"
    return replace(completion, reason=reason, error=error, response=None, http_status=None)
